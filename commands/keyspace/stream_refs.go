// References to an entry: a group refers to those that are pending in it, and needs those that it
// has not read yet.

package keyspace

// Refs says what a deletion does about references.
type Refs byte

const (
	KeepRefs  Refs = iota // they stay, to an entry that is gone
	DropRefs              // they are removed too
	AckedOnly             // an entry with references, or not read by every group, stays
)

// Needed reports whether some group has not read an entry, or has it pending.
func (s *Stream) Needed(id StreamID) (needed bool) {
	s.groups.Scan(func(g *Group) bool {
		needed = g.last.Less(id)
		return !needed
	})
	return needed || len(s.referring(id)) > 0
}

// Referenced reports whether an entry is pending in some group.
func (s *Stream) Referenced(id StreamID) bool { return len(s.referring(id)) > 0 }

// referring returns the groups that have an entry pending.
func (s *Stream) referring(id StreamID) (groups []*Group) {
	s.groups.Scan(func(g *Group) bool {
		if _, ok := g.FindPending(id); ok {
			groups = append(groups, g)
		}
		return true
	})
	return groups
}

// DropRefs removes an entry from what is pending in all groups.
func (s *Stream) DropRefs(id StreamID) {
	for _, g := range s.referring(id) {
		s.editGroup(g).Acknowledge(id)
	}
}
