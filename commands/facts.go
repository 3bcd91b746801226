// Facts: what requests did to locks and windows, as values for an observer outside of the machine.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// FactKind says what happened.
type FactKind uint8

// The kinds of facts.
const (
	LockGranted   FactKind = iota // a client took a lock
	LockRefused                   // a client asked for a lock that another holds
	LockReleased                  // a holder gave a lock back, or somebody deleted its key
	LockExpired                   // a lease ended while its lock was held
	LockRenewed                   // a holder extended its lease
	LockMissed                    // a release or renewal found the lock with another holder
	WindowAllowed                 // a window let a request pass
	WindowDenied                  // a window let no request pass
	WindowCounted                 // a window counted a request; its client compares with the limit
	FactKinds                     // how many kinds there are
)

// LeaseForm is how a lock or a window is kept.
type LeaseForm uint8

// The forms of locks and windows.
const (
	FormString    LeaseForm = iota // a lock: SET NX with a TTL
	FormReentrant                  // a lock: a hash with its owner and how often that has entered
	FormReadWrite                  // a lock: a hash with a mode and its owners
	FormSemaphore                  // a lock: a sorted set of its holders
	FormSliding                    // a window: a sorted set of requests
	FormFixed                      // a window: a counter with a TTL
	FormBucket                     // a window: what is left of a rate, and since when
	FormShared                     // a lock of LOCK.ACQUIRE SHARED: a hash of its owners
	FormPermits                    // permits of LOCK.ACQUIRE: a hash of their owners
	formNames
)

// String returns the word that commands and metrics show.
func (f LeaseForm) String() string {
	return [formNames]string{"string", "reentrant", "read-write", "semaphore", "sliding", "fixed",
		"bucket", "shared", "permits"}[f]
}

// maxOwner bounds what a fact tells of an owner, bytes.
const maxOwner = 256

// Fact is one thing that happened to a lock or a window.
type Fact struct {
	Kind FactKind
	Form LeaseForm
	DB   int
	Key  []byte
	// Owner is who acted; of LockExpired and LockReleased, who held the lock. It is the token of a
	// lock that is a string, the field of one that is a hash, the member of one that is a sorted
	// set, at most maxOwner bytes of it.
	Owner []byte
	// Token is the key's creation revision, FENCE's reply. The lock was taken at that revision.
	Token keyspace.Revision
	// Shared means that others hold the lock as well.
	Shared bool
	// Patient means that who was refused has learned when the lease ends: he waits until then, or
	// for a message.
	Patient bool
	// DeadlineMs is when the lease ends or ended, ms of the cluster clock, of a LockRefused that of
	// the holder's.
	DeadlineMs int64
	// BeforeMs is when it would have ended, of LockRenewed.
	BeforeMs int64
	// QueuedMs is when who was granted it had joined its queue, of LockGranted; 0: never.
	QueuedMs int64
}
