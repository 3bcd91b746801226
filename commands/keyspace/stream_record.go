// The snapshot record of a stream: its ids, its nodes with their entries, its groups.

package keyspace

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/coordd/coordd/internal/wire"
)

func (s *Stream) appendTo(dst []byte) []byte {
	dst = s.last.appendTo(dst)
	dst = s.tombstone.appendTo(dst)
	dst = binary.AppendUvarint(dst, s.added)
	if s.loose && !s.tight() {
		dst = s.appendLoose(dst)
	} else {
		dst = s.appendNodes(dst)
	}
	dst = binary.AppendUvarint(dst, uint64(s.Groups()))
	s.EachGroup(func(g *Group) { dst = g.appendTo(dst) })
	return s.once.appendTo(dst)
}

// appendNodes appends the nodes, each with its entries.
func (s *Stream) appendNodes(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.nodes.Len()))
	s.nodes.Scan(func(n streamNode) bool {
		dst = n.first.appendTo(dst)
		dst = n.last.appendTo(dst)
		dst = binary.AppendUvarint(dst, uint64(n.dead))
		dst = binary.AppendUvarint(dst, uint64(n.size))
		dst = wire.AppendBytes(dst, n.names)
		dst = binary.AppendUvarint(dst, uint64(n.live))
		s.Range(n.first, n.last, func(e StreamEntry) bool {
			dst = e.ID.appendTo(dst)
			dst = wire.AppendBytes(dst, e.packed)
			return true
		})
		return true
	})
	return dst
}

func (g *Group) appendTo(dst []byte) []byte {
	dst = wire.AppendBytes(dst, g.name)
	dst = g.last.appendTo(dst)
	dst = binary.AppendVarint(dst, g.reads)
	owners := g.Consumers()
	g.EachConsumer(func(c Consumer) {
		if c.ActiveMs != c.SeenMs {
			owners++
		}
	})
	if g.Released() > 0 {
		owners++
	}
	dst = binary.AppendUvarint(dst, uint64(owners))
	g.EachConsumer(func(c Consumer) {
		seenMs := c.SeenMs
		c.SeenMs = c.ActiveMs
		dst = appendOwner(dst, c)
		g.owned.Ascend(ownedID{consumer: c.Name}, func(o ownedID) bool {
			if o.consumer != c.Name {
				return false
			}
			p, _ := g.FindPending(o.id)
			dst = p.appendTo(dst)
			return true
		})
		if seenMs != c.ActiveMs { // it follows again, with when it was seen
			dst = appendOwner(dst, Consumer{Name: c.Name, SeenMs: seenMs})
		}
	})
	if g.Released() > 0 { // they follow like a consumer's
		dst = appendOwner(dst, Consumer{SeenMs: releasedMs, Pending: g.Released()})
		g.EachPending(StreamID{}, func(p Pending) bool {
			if p.Released() {
				dst = p.appendTo(dst)
			}
			return true
		})
	}
	return dst
}

func appendOwner(dst []byte, c Consumer) []byte {
	dst = wire.AppendBytes(dst, c.Name)
	dst = binary.AppendVarint(dst, c.SeenMs)
	return binary.AppendUvarint(dst, uint64(c.Pending))
}

func (p Pending) appendTo(dst []byte) []byte {
	dst = p.ID.appendTo(dst)
	dst = binary.AppendVarint(dst, p.DeliveredMs)
	return binary.AppendVarint(dst, p.Deliveries)
}

func readStream(r *reader) *Stream {
	s := NewStream()
	last := readStreamID(r)
	s.tombstone = readStreamID(r)
	s.added = r.Uvarint()
	nodes := r.Uvarint()
	at, empty := r.Cursor, *s
	if nodes&looseNodes != 0 {
		s.readLoose(r, nodes&^looseNodes)
	} else {
		s.readNodes(r, nodes, last)
	}
	if s.readGroups(r); !r.Done() && nodes&looseNodes == 0 && !r.marks {
		r.Cursor, *s = at, empty
		s.entries, s.nodes, s.groups = NewStream().entries, NewStream().nodes, NewStream().groups
		s.readOverlapping(r, nodes)
		s.readGroups(r)
	}
	if r.marks && !r.Done() && !r.Failed() {
		s.readOnce(r)
	}
	s.last = last
	return s
}

// readNodes reads nodes in order. That of deleted entries may end after last.
func (s *Stream) readNodes(r *reader, nodes uint64, last StreamID) {
	if nodes > uint64(r.Len()/9) {
		r.Fail()
		return
	}
	for range nodes {
		s.readNode(r)
	}
	if last.Less(s.last) {
		if top, ok := s.Top(); ok && last.Less(top.ID) {
			r.Fail()
		}
		if !r.marks { // from a machine below commands.LevelSecond
			s.loosen(r)
		}
	}
}

func (s *Stream) readGroups(r *reader) {
	for range r.Count(5) {
		s.readGroup(r)
	}
}

// readNode reads a node, whose ids must be higher than those before.
func (s *Stream) readNode(r *reader) {
	n := streamNode{first: readStreamID(r), last: readStreamID(r), dead: readSmall(r),
		size: readSmall(r), names: readPacked(r)}
	n.live = r.Count(4)
	if n.last.Less(n.first) || !s.last.Less(n.first) {
		r.Fail()
	}
	before, _ := n.first.Prev()
	for range n.live {
		e := StreamEntry{ID: readStreamID(r), packed: readPacked(r)}
		if !before.Less(e.ID) || n.last.Less(e.ID) || e.Fields()%2 != 0 {
			r.Fail()
			return
		}
		before = e.ID
		s.put(e)
	}
	s.setNode(n)
	s.last = n.last
}

// readSmall reads a number that is not a count of what follows in the record.
func readSmall(r *reader) int { return int(min(r.Uvarint(), math.MaxInt32)) }

// readPacked reads the encoding of pack.
func readPacked(r *reader) []byte {
	b := r.Bytes()
	texts := wire.NewCursor(b)
	for range texts.Count(1) {
		texts.Bytes()
	}
	if !texts.Done() {
		r.Fail()
		return []byte{0}
	}
	return bytes.Clone(b)
}

func (s *Stream) readGroup(r *reader) {
	g := s.CreateGroup(r.Bytes(), readStreamID(r), r.Varint())
	if g == nil {
		r.Fail()
		return
	}
	var before Consumer
	known := false // before
	for range r.Count(3) {
		name, seenMs := r.Bytes(), r.Varint()
		owned := seenMs != releasedMs
		switch {
		case !owned:
		// the same again, with when it was seen
		case r.marks && known && before.Name == string(name) && before.ActiveMs != seenMs:
			g.See(name, seenMs, false)
			known = false
			if r.Uvarint() != 0 {
				r.Fail()
			}
			continue
		case known && before.ActiveMs == NeverActive, !g.See(name, seenMs, true):
			r.Fail()
		}
		before, known = Consumer{Name: string(name), ActiveMs: seenMs}, owned
		for range r.Count(4) {
			p := Pending{ID: readStreamID(r), Consumer: view(name), DeliveredMs: r.Varint(),
				Deliveries: r.Varint()}
			_, twice := g.FindPending(p.ID)
			switch {
			case twice || p.Released() == owned:
				r.Fail()
				return
			case owned:
				g.SetPending(p)
			default:
				g.Release(p.ID, p.Deliveries)
			}
		}
	}
	if known && before.ActiveMs == NeverActive { // nobody says when it was seen
		r.Fail()
	}
}
