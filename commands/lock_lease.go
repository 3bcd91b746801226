// Until when a lock is held: for a time, or as long as a lease.

package commands

import "github.com/coordd/coordd/commands/leases"

// lockUntil is until when a lock is held.
type lockUntil struct {
	deadlineMs int64 // its key's or field's, ms of the cluster clock
	endMs      int64 // until when the owner holds it: that, or before the delay of its lease
	lease      *leases.Lease
}

// lockEnd returns until when a call has its locks held.
func (x *Call) lockEnd(a *lockArgs) (u lockUntil, err error) {
	if a.lease == nil {
		at := x.deadline(a.ms, false)
		return lockUntil{deadlineMs: at, endMs: at}, nil
	}
	if u.lease, err = x.lease(a.lease); err != nil {
		return u, err
	}
	if u.deadlineMs, u.endMs = u.lease.DeadlineMs(), u.lease.EndMs(); x.past(u.deadlineMs) {
		return u, errNoLease // the key would never exist
	}
	return u, nil
}

// lockRoom returns the error for a lease that has no room for the locks of a call. Who attaches
// them asks before it changes anything.
func (x *Call) lockRoom(a *lockArgs, u lockUntil) error {
	if u.lease == nil {
		return nil
	}
	size := 0
	for _, key := range a.keys {
		size += len(key) + len(a.owner)
	}
	return x.leaseRoom(u.lease, len(a.keys), size)
}

// attachLock attaches the key of a lock to its lease, if it has one.
func (x *Call) attachLock(u lockUntil, key []byte) {
	if u.lease != nil {
		x.attach(u.lease, key, x.DB().Find(key))
	}
}

// attachHolder attaches what an owner holds of a lock that several may hold.
func (x *Call) attachHolder(u lockUntil, key, owner []byte) {
	if u.lease != nil {
		x.attachMember(u.lease, key, owner)
	}
}
