// Loose streams, which only machines below commands.LevelSecond make (docs/adr/0051): XSETID set a
// last id that is lower than the id of a deleted entry, and left that in its node. Nodes may then
// overlap, and count entries that others hold. What such a machine does with them is release 0.1's,
// so snapshots hold the nodes as they are. An entry that raises the level mends them.

package keyspace

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/coordd/coordd/internal/wire"
)

// looseNodes marks the number of nodes in the record of a loose stream.
const looseNodes = 1 << 63

// SetLastLoosely is SetLast of a stream in the keyspace, as release 0.1 does it.
func (ks *Keyspace) SetLastLoosely(s *Stream, id StreamID) {
	if n, ok := s.nodes.Max(); ok && id.Less(n.last) {
		s.loose, ks.loose = true, true
	}
	s.last = id
}

// MendStreams mends all loose streams.
func (ks *Keyspace) MendStreams() {
	if !ks.loose {
		return
	}
	ks.loose = false
	for _, db := range ks.dbs {
		var keys []string
		db.Each(func(e *Entry) bool {
			if e.Kind() == KindStream && e.Collection().(*Stream).loose {
				keys = append(keys, e.Key())
			}
			return true
		})
		for _, key := range keys {
			e := db.Edit([]byte(key))
			e.Collection().(*Stream).mend()
			db.recount(e, e.valueSize())
		}
	}
}

// mend lays the nodes out again if they are not in order.
func (s *Stream) mend() {
	if !s.tight() {
		s.sum ^= s.surplus()
		s.nodes.Scan(func(n streamNode) bool {
			s.bytes -= nodeSize(n)
			return true
		})
		s.nodes = newTree(streamNodeLess)
		s.entries.Scan(func(e StreamEntry) bool {
			var texts [][]byte
			e.Each(func(text []byte) { texts = append(texts, text) })
			s.layOut(e.ID, texts)
			return true
		})
	}
	s.loose = false
}

// tight reports whether the nodes of a loose stream are in order all the same, and count what they
// hold.
func (s *Stream) tight() bool {
	held, last, fits := 0, StreamID{}, true
	s.nodes.Scan(func(n streamNode) bool {
		fits = last.Less(n.first) && !n.last.Less(n.first) && s.within(n) == n.live
		held, last = held+n.live, n.last
		return fits
	})
	return fits && held == s.Len() && !s.last.Less(last) && s.surplus() == 0
}

// within returns how many entries have ids between the first and the last of a node.
func (s *Stream) within(n streamNode) (count int) {
	s.Range(n.first, n.last, func(StreamEntry) bool {
		count++
		return true
	})
	return count
}

// surplus returns the part of the sum that no entry and no group accounts for: see popEntry.
func (s *Stream) surplus() uint64 {
	sum := s.sum
	s.entries.Scan(func(e StreamEntry) bool {
		sum ^= entrySum(e)
		return true
	})
	s.EachGroup(func(g *Group) { sum ^= g.sum })
	return sum
}

// appendLoose appends the nodes of a loose stream, as they are, and the entries.
func (s *Stream) appendLoose(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, looseNodes|uint64(s.nodes.Len()))
	s.nodes.Scan(func(n streamNode) bool {
		dst = n.first.appendTo(dst)
		dst = n.last.appendTo(dst)
		dst = binary.AppendUvarint(dst, uint64(n.dead))
		dst = binary.AppendUvarint(dst, uint64(n.size))
		dst = wire.AppendBytes(dst, n.names)
		dst = binary.AppendVarint(dst, int64(n.live))
		return true
	})
	dst = binary.AppendUvarint(dst, uint64(s.Len()))
	s.entries.Scan(func(e StreamEntry) bool {
		dst = e.ID.appendTo(dst)
		dst = wire.AppendBytes(dst, e.packed)
		return true
	})
	return binary.LittleEndian.AppendUint64(dst, s.surplus())
}

// readLoose reads what appendLoose wrote.
func (s *Stream) readLoose(r *reader, nodes uint64) {
	s.loosen(r)
	for range nodes {
		n := readLooseNode(r)
		n.live = readCount(r.Varint())
		if r.Failed() {
			return
		}
		s.setNode(n)
	}
	if uint64(s.nodes.Len()) != nodes {
		r.Fail()
	}
	before := StreamID{}
	for range r.Count(3) {
		e := StreamEntry{ID: readStreamID(r), packed: readPacked(r)}
		if !before.Less(e.ID) || e.Fields()%2 != 0 {
			r.Fail()
			return
		}
		before = e.ID
		s.put(e)
	}
	s.sum ^= r.Uint64()
}

// loosen marks a stream that is being read.
func (s *Stream) loosen(r *reader) {
	if s.loose = true; r.keyspace != nil {
		r.keyspace.loose = true
	}
}

// readLooseNode reads all of a node but its count of entries. It may have no names.
func readLooseNode(r *reader) streamNode {
	return streamNode{first: readStreamID(r), last: readStreamID(r), dead: readSmall(r),
		size: readSmall(r), names: append([]byte(nil), r.Bytes()...)}
}

// readCount bounds a count of entries, which may be negative.
func readCount(n int64) int { return int(max(min(n, math.MaxInt32), math.MinInt32)) }

// readOverlapping reads the nodes of a loose stream as release 0.1 wrote them: each with the
// entries between its first and last id, which need be neither those that it holds nor as many as
// it says. So their number is what makes sense of the rest.
func (s *Stream) readOverlapping(r *reader, nodes uint64) {
	if nodes > uint64(r.Len()/8) {
		r.Fail()
		return
	}
	s.loosen(r)
	o := overlaps{nodes: make([]overlap, nodes), senseless: map[overlapAt]bool{}}
	if !o.read(r.Cursor) {
		r.Fail()
		return
	}
	for _, n := range o.nodes {
		s.setNode(n.streamNode)
	}
	for _, e := range o.entries {
		s.put(StreamEntry{e.ID, bytes.Clone(e.packed)})
	}
	r.Cursor = o.rest
}

// overlaps is a try to read overlapping nodes.
type overlaps struct {
	nodes     []overlap
	senseless map[overlapAt]bool // from where on nothing could be read
	entries   []StreamEntry      // entries of all nodes, each once, in order
	rest      wire.Cursor        // what follows the nodes
}

type overlap struct {
	streamNode
	entries []StreamEntry // as written with it
}

type overlapAt struct{ node, left int }

// overlapTry is a node from some place on, with the entries that may be its own. Its stack is not
// Go's: a record can have a million nodes.
type overlapTry struct {
	at      overlapAt
	node    streamNode
	entries []StreamEntry
	ends    []wire.Cursor // what follows the node with none of them, the first, …
	likely  int           // how many probably are
	tried   int
}

// read reads the nodes, and reports whether they make sense.
func (o *overlaps) read(c wire.Cursor) bool {
	var tries []overlapTry
	for {
		if i := len(tries); i == len(o.nodes) {
			if o.complete(c) {
				return true
			}
		} else if at := (overlapAt{i, c.Len()}); !o.senseless[at] {
			if t, ok := o.begin(c, at); ok {
				tries = append(tries, t)
			} else {
				o.senseless[at] = true
			}
		}
		for {
			if len(tries) == 0 {
				return false
			}
			t := &tries[len(tries)-1]
			if t.tried < len(t.ends) {
				k := (t.likely + t.tried) % len(t.ends)
				o.nodes[len(tries)-1], c = overlap{t.node, t.entries[:k]}, t.ends[k]
				t.tried++
				break
			}
			o.senseless[t.at] = true
			tries = tries[:len(tries)-1]
		}
	}
}

// begin reads a node and all that may be its entries. It fails if there is none.
func (o *overlaps) begin(c wire.Cursor, at overlapAt) (t overlapTry, ok bool) {
	r := &reader{Cursor: c}
	n := readLooseNode(r)
	n.live = readCount(int64(r.Uvarint()))
	if r.Failed() || at.node > 0 && !o.nodes[at.node-1].first.Less(n.first) {
		return t, false
	}
	t = overlapTry{at: at, node: n, ends: []wire.Cursor{r.Cursor}}
	for before, ok := n.first.Prev(); ; {
		e := StreamEntry{ID: readStreamID(r), packed: r.Bytes()}
		if r.Failed() || ok && !before.Less(e.ID) || n.last.Less(e.ID) || !isPacked(e.packed) {
			break
		}
		before, ok = e.ID, true
		t.entries, t.ends = append(t.entries, e), append(t.ends, r.Cursor)
	}
	t.likely = max(min(n.live, len(t.entries)), 0) // then more, since others' are there too
	return t, true
}

// isPacked reports whether b is the encoding of pack for pairs of texts.
func isPacked(b []byte) bool {
	c := wire.NewCursor(b)
	n := c.Count(1)
	for range n {
		c.Bytes()
	}
	return c.Done() && n%2 == 0
}

// complete reports whether the groups follow, and each node has all the entries between its ids.
func (o *overlaps) complete(c wire.Cursor) bool {
	groups := &reader{Cursor: c}
	if NewStream().readGroups(groups); !groups.Done() {
		return false
	}
	all := NewStream()
	for _, n := range o.nodes {
		for _, e := range n.entries {
			if old, ok := all.entries.Set(e); ok && !bytes.Equal(old.packed, e.packed) {
				return false
			}
		}
	}
	for _, n := range o.nodes {
		if all.within(n.streamNode) != len(n.entries) {
			return false
		}
	}
	o.entries, o.rest = all.entries.Items(), c
	return true
}
