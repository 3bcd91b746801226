package keyspace

import (
	"bytes"
	"encoding/binary"
	"math"
)

// This file holds the record of a stream in a snapshot: its ids, its nodes with their entries, its groups.

func (s *Stream) appendTo(dst []byte) []byte {
	dst = s.last.appendTo(dst)
	dst = s.tombstone.appendTo(dst)
	dst = binary.AppendUvarint(dst, s.added)
	dst = binary.AppendUvarint(dst, uint64(s.nodes.Len()))
	s.nodes.Scan(func(n streamNode) bool {
		dst = n.first.appendTo(dst)
		dst = n.last.appendTo(dst)
		dst = binary.AppendUvarint(dst, uint64(n.dead))
		dst = binary.AppendUvarint(dst, uint64(n.size))
		dst = appendBytes(dst, n.names)
		dst = binary.AppendUvarint(dst, uint64(n.live))
		s.Range(n.first, n.last, func(e StreamEntry) bool {
			dst = e.ID.appendTo(dst)
			dst = appendBytes(dst, e.packed)
			return true
		})
		return true
	})
	dst = binary.AppendUvarint(dst, uint64(s.Groups()))
	s.EachGroup(func(g *Group) { dst = g.appendTo(dst) })
	return dst
}

func (g *Group) appendTo(dst []byte) []byte {
	dst = appendBytes(dst, g.name)
	dst = g.last.appendTo(dst)
	dst = binary.AppendVarint(dst, g.reads)
	dst = binary.AppendUvarint(dst, uint64(g.consumers.Len()))
	g.EachConsumer(func(c Consumer) {
		dst = appendBytes(dst, c.Name)
		dst = binary.AppendVarint(dst, c.SeenMs)
		dst = binary.AppendUvarint(dst, uint64(c.Pending))
		g.owned.Ascend(ownedID{consumer: c.Name}, func(o ownedID) bool {
			if o.consumer != c.Name {
				return false
			}
			p, _ := g.FindPending(o.id)
			dst = p.ID.appendTo(dst)
			dst = binary.AppendVarint(dst, p.DeliveredMs)
			dst = binary.AppendVarint(dst, p.Deliveries)
			return true
		})
	})
	return dst
}

func readStream(r *reader) *Stream {
	s := NewStream()
	last := readStreamID(r)
	s.tombstone = readStreamID(r)
	s.added = r.uvarint()
	for range r.count(9) {
		s.readNode(r)
	}
	if last.Less(s.last) {
		r.fail()
	}
	s.last = last
	for range r.count(5) {
		s.readGroup(r)
	}
	return s
}

// readNode reads a node whose ids have to be higher than those read before.
func (s *Stream) readNode(r *reader) {
	n := streamNode{first: readStreamID(r), last: readStreamID(r), dead: readSmall(r), size: readSmall(r), names: readPacked(r)}
	n.live = r.count(4)
	if n.last.Less(n.first) || !s.last.Less(n.first) {
		r.fail()
	}
	before, _ := n.first.Prev()
	for range n.live {
		e := StreamEntry{ID: readStreamID(r), packed: readPacked(r)}
		if !before.Less(e.ID) || n.last.Less(e.ID) || e.Fields()%2 != 0 {
			r.fail()
			return
		}
		before = e.ID
		s.entries.Set(e)
		s.sum ^= entrySum(e)
	}
	s.nodes.Set(n)
	s.last = n.last
}

// readSmall reads a number of things that are not in the record.
func readSmall(r *reader) int { return int(min(r.uvarint(), math.MaxInt32)) }

// readPacked reads what pack made.
func readPacked(r *reader) []byte {
	b := r.bytes()
	texts := &reader{b: b}
	for range texts.count(1) {
		texts.bytes()
	}
	if texts.bad || len(texts.b) > 0 {
		r.fail()
		return []byte{0}
	}
	return bytes.Clone(b)
}

func (s *Stream) readGroup(r *reader) {
	g := s.CreateGroup(r.bytes(), readStreamID(r), r.varint())
	if g == nil {
		r.fail()
		return
	}
	for range r.count(3) {
		name := r.bytes()
		if !g.See(name, r.varint()) {
			r.fail()
		}
		for range r.count(4) {
			p := Pending{ID: readStreamID(r), Consumer: view(name), DeliveredMs: r.varint(), Deliveries: r.varint()}
			if _, twice := g.FindPending(p.ID); twice {
				r.fail()
				return
			}
			g.SetPending(p)
		}
	}
}
