// The estimate for MEMORY USAGE. It depends on the contents alone, never on the capacity of slices:
// capacities differ between a node that ran all writes and one that was restored, and a script may
// see the number.

package keyspace

// Overhead besides the text, in bytes: records, positions in indexes, allocation.
const (
	entryCost    = 144 // a key and its index positions
	deadlineCost = 48  // its deadline
	textCost     = 16  // a separate text
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

// Memory estimates the size of a key and its value, in bytes. It looks at samples elements of a
// collection, at all if samples is 0.
func (e *Entry) Memory(samples int) int {
	n := entryCost + textBytes(len(e.Key()))
	if e.deadline != 0 {
		n += deadlineCost
	}
	coll := e.Collection()
	if coll == nil {
		return n + textBytes(len(e.Bytes()))
	}
	s := sizes{limit: samples}
	switch c := coll.(type) {
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
		if c.once != nil {
			n += c.once.bytes
		}
	}
	return n + s.of(coll.Len())
}

func textBytes(n int) int { return textCost + (n+7)&^7 }

// sizes sums the sizes of the elements that were looked at.
type sizes struct{ limit, seen, bytes int }

func (s *sizes) add(n int) bool {
	s.seen++
	s.bytes += n
	return s.seen != s.limit
}

// of estimates the size of that many elements from those that were seen.
func (s *sizes) of(elements int) int {
	if s.seen == 0 || s.seen == elements {
		return s.bytes
	}
	return s.bytes/s.seen*elements + s.bytes%s.seen*elements/s.seen
}
