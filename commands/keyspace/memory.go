// This file contains the estimate behind MEMORY USAGE. It is made of the contents alone, never of
// the room that slices happen to have: how a value came about differs between a node that ran all
// writes and one that was restored, and a script may look at the number.

package keyspace

// What keeping things takes besides their text, in bytes: the records themselves, their places in
// an index, what allocating them adds.
const (
	entryCost    = 144 // a key with its place in the database
	deadlineCost = 48  // its place among the deadlines
	textCost     = 16  // a text of its own
	fieldCost    = 64  // a field of a hash
	scoredCost   = 72  // a member of a sorted set, by name and by score
	memberCost   = 32  // a member of a set
	itemCost     = 24  // an element of a list
	messageCost  = 48  // an entry of a stream
	groupCost    = 160 // a consumer group
	// an entry that a consumer has not acknowledged, for the group and for the consumer
	pendingCost = 112
	readerCost  = 96 // a consumer
)

// Memory estimates what a key and its value take, in bytes. Of a collection samples elements are
// looked at, all if it is 0.
func (e *Entry) Memory(samples int) int {
	n := entryCost + textBytes(len(e.key))
	if e.deadline != 0 {
		n += deadlineCost
	}
	if e.coll == nil {
		return n + textBytes(len(e.str))
	}
	s := sizes{limit: samples}
	switch c := e.coll.(type) {
	case *Hash:
		c.Each(func(name string, value []byte) bool {
			return s.add(fieldCost + textBytes(len(name)) + textBytes(len(value)))
		})
	case *ZSet:
		c.Range(0, c.Len()-1, func(m Scored) bool {
			return s.add(scoredCost + textBytes(len(m.Member)))
		})
	case *Set:
		c.Each(func(member string) bool { return s.add(memberCost + textBytes(len(member))) })
	case *List:
		c.Range(0, c.Len()-1, func(value string) bool {
			return s.add(itemCost + textBytes(len(value)))
		})
	case *Stream:
		c.Range(StreamID{}, MaxStreamID, func(m StreamEntry) bool {
			return s.add(messageCost + textBytes(m.Size()))
		})
		c.EachGroup(func(g *Group) {
			n += groupCost + textBytes(len(g.Name())) + g.Pending()*pendingCost +
				g.Consumers()*readerCost
		})
	}
	return n + s.of(e.coll.Len())
}

func textBytes(n int) int { return textCost + (n+7)&^7 }

// sizes adds up the sizes of the elements that were looked at.
type sizes struct{ limit, seen, bytes int }

func (s *sizes) add(n int) bool {
	s.seen++
	s.bytes += n
	return s.seen != s.limit
}

// of is the size of so many elements, by those that were seen.
func (s *sizes) of(elements int) int {
	if s.seen == 0 || s.seen == elements {
		return s.bytes
	}
	return s.bytes/s.seen*elements + s.bytes%s.seen*elements/s.seen
}
