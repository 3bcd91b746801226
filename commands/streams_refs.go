// XDELEX and XACKDEL: deletions of stream entries that heed what consumer groups still need, as in
// Redis 8.2.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Errors of lists of ids that follow IDS.
const (
	errIDsNumber  Error = "ERR Number of IDs must be a positive integer"
	errIDsCount   Error = "ERR The `numids` parameter must match the number of arguments"
	errIDsMissing Error = "ERR IDS option is required"
)

// What happened to an entry, in replies.
const (
	noEntry      = -1
	entryDeleted = 1
	entryNeeded  = 2
)

// readRefs reads what a deletion does about references, and reports whether arg says it.
func readRefs(arg []byte, refs *keyspace.Refs) bool {
	switch {
	case isWord(arg, "KEEPREF"):
		*refs = keyspace.KeepRefs
	case isWord(arg, "DELREF"):
		*refs = keyspace.DropRefs
	case isWord(arg, "ACKED"):
		*refs = keyspace.AckedOnly
	default:
		return false
	}
	return true
}

// parseIDsAndRefs parses the last arguments of XDELEX and XACKDEL. The ids may be invalid.
func parseIDsAndRefs(args [][]byte) (ids [][]byte, refs keyspace.Refs, err error) {
	for named := false; len(args) > 0; {
		switch {
		case !named && readRefs(args[0], &refs):
			named, args = true, args[1:]
		case isWord(args[0], "IDS") && len(args) > 1:
			n, ok := ParseInt(args[1])
			if !ok || n < 1 {
				return nil, refs, errIDsNumber
			}
			if args = args[2:]; n > int64(len(args)) {
				return nil, refs, errIDsCount
			}
			ids, args = args[:n], args[n:]
		default:
			return nil, refs, ErrSyntax
		}
	}
	if ids == nil {
		err = errIDsMissing
	}
	return ids, refs, err
}

// refsWork returns the work of looking for the references to n entries, and of removing them if
// that is wanted.
func refsWork(s *keyspace.Stream, refs keyspace.Refs, n int) (units int) {
	if refs == keyspace.KeepRefs {
		return 0
	}
	s.EachGroup(func(g *keyspace.Group) {
		units += (lookWork + deep(g.Pending())) * n
		if refs == keyspace.DropRefs {
			units += ackWork(g, n)
		}
	})
	return units
}

// droppedNames returns the work of hashing the names of the consumers that have an entry pending,
// as is done when the references to it are removed.
func (x *Call) droppedNames(s *keyspace.Stream, refs keyspace.Refs,
	id keyspace.StreamID) (units int) {
	if refs != keyspace.DropRefs {
		return 0
	}
	s.EachGroup(func(g *keyspace.Group) {
		p, _ := g.FindPending(id)
		units += x.nameWork(1, len(p.Consumer))
	})
	return units
}

// deleting deletes entries of a stream and records what has changed.
type deleting struct {
	x       *Call
	refs    keyspace.Refs
	s       *keyspace.Stream
	e       *keyspace.Entry // nil: nothing has changed
	deleted int
}

// edit opens the stream for changes.
func (d *deleting) edit() {
	if d.e == nil {
		d.e, d.s = editStream(d.x, d.x.Args[1])
	}
}

// expect adds the work of deleting entries, in advance.
func (d *deleting) expect(ids []keyspace.StreamID) {
	size := 0
	for _, id := range ids {
		e, _ := d.s.Get(id)
		size += e.Size()
	}
	d.x.Spend(pendingWork*len(ids) + refsWork(d.s, d.refs, len(ids)))
	for _, id := range ids {
		d.x.Spend(d.x.droppedNames(d.s, d.refs, id))
	}
	d.x.spendRemoved(len(ids), size)
	d.x.Expect(len(ids), 0)
}

// delete deletes an entry unless a group needs it and that counts, and returns what happened.
func (d *deleting) delete(id keyspace.StreamID) (result int64) {
	switch {
	case d.refs == keyspace.AckedOnly && d.s.Needed(id):
		return entryNeeded
	case d.refs == keyspace.DropRefs && d.s.Referenced(id):
		d.edit()
		d.s.DropRefs(id)
	}
	if _, ok := d.s.Get(id); !ok {
		return noEntry
	}
	d.edit()
	d.s.Delete(id)
	d.deleted++
	return entryDeleted
}

// record records the change.
func (d *deleting) record() {
	switch {
	case d.deleted > 0:
		d.x.changed(d.e, NotifyStream, "xdel")
	case d.e != nil:
		d.x.DB().Noted(d.e, false)
	}
}

// replyNoEntries answers for n entries that do not exist.
func replyNoEntries(x *Call, n int) {
	x.Out.Array(n)
	for range n {
		x.Out.Int(noEntry)
	}
}

func xdelex(x *Call) error {
	s, err := findStream(x, x.Args[1])
	if err != nil {
		return err
	}
	args, refs, err := parseIDsAndRefs(x.Args[2:])
	if err != nil {
		return err
	}
	if s == nil {
		replyNoEntries(x, len(args))
		return nil
	}
	ids, err := parseStreamIDs(args)
	if err != nil {
		return err
	}
	d := deleting{x: x, refs: refs, s: s}
	d.expect(ids)
	x.Out.Array(len(ids))
	for _, id := range ids {
		x.Out.Int(d.delete(id))
	}
	d.record()
	return nil
}

func xackdel(x *Call) error {
	s, g, err := findGroup(x, x.Args[1], x.Args[2])
	if err != nil {
		return err
	}
	args, refs, err := parseIDsAndRefs(x.Args[3:])
	if err != nil {
		return err
	}
	if g == nil {
		replyNoEntries(x, len(args))
		return nil
	}
	ids, err := parseStreamIDs(args)
	if err != nil {
		return err
	}
	d := deleting{x: x, refs: refs, s: s}
	d.expect(ids)
	x.Spend(ackWork(g, len(ids)))
	x.spendOwners(g, ids)
	x.Out.Array(len(ids))
	for _, id := range ids {
		if _, pending := g.FindPending(id); !pending {
			x.Out.Int(noEntry)
			continue
		}
		if d.e == nil {
			d.edit()
			g = d.s.EditGroup(x.Args[2])
		}
		g.Acknowledge(id)
		x.Out.Int(max(d.delete(id), entryDeleted)) // if it is gone already, too
	}
	d.record()
	return nil
}
