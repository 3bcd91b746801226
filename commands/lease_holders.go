// Leases that end with the connection that holds them. Nodes say which of their connections have
// closed, and the leader which nodes it does not reach (docs/adr/0064).

package commands

import "github.com/coordd/coordd/commands/leases"

// holderWork is the work after which a change of the leases of many connections is continued by
// another request: their keys can be many.
const holderWork = MaxRequestWork / 16

// EndHolder has the leases of a connection end after their grace: it has closed. more reports that
// it is to be called again.
func (e *Env) EndHolder(of leases.Connection) (more bool) {
	return e.eachLease(func() *leases.Lease {
		if l := e.Leases.FirstOpen(of); l != nil {
			return l
		}
		return e.Leases.FirstLost(of)
	}, func(id uint64) *leases.Lease {
		return e.Leases.Shorten(id, e.Keyspace.Now(), true)
	}, leaseShorter)
}

// DropHolders is EndHolder for all connections of a node, which may be there after all. With below
// it is for those of smaller ids, which are not.
func (e *Env) DropHolders(node string, below uint64) (more bool) {
	return e.eachLease(func() *leases.Lease {
		l := e.Leases.FirstOpen(leases.Connection{Node: node})
		if l != nil && below != 0 && l.Connection.ID >= below {
			return nil
		}
		return l
	}, func(id uint64) *leases.Lease {
		return e.Leases.Shorten(id, e.Keyspace.Now(), below != 0)
	}, leaseShorter)
}

// KeepHolder takes back what DropHolders has done to the leases of a connection.
func (e *Env) KeepHolder(of leases.Connection) (more bool) {
	return e.eachLease(func() *leases.Lease { return e.Leases.FirstLost(of) }, e.Leases.Recover,
		leaseLonger)
}

// eachLease changes the leases that next returns, until there is none or it has done holderWork.
func (e *Env) eachLease(
	next func() *leases.Lease, change func(id uint64) *leases.Lease, what byte,
) (more bool) {
	for stop := e.Work + holderWork; ; {
		l := next()
		switch {
		case l == nil:
			return false
		case e.Work >= stop:
			return true
		}
		e.Work += leaseWork
		if l.EndMs() < e.Keyspace.Now() { // nothing brings it back
			e.Work += uint64(ItemDropped * len(l.Items()))
			e.Leases.End(l.ID)
			continue
		}
		e.Work += uint64(e.itemsWork(l))
		before := l.DeadlineMs()
		l = change(l.ID)
		e.moveItems(l, before)
		e.foldLease(what, l.ID, uint64(l.EndMs()))
	}
}
