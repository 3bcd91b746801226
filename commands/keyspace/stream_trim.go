// Trimming by XTRIM and XADD: of whole nodes or of single entries.

package keyspace

// StreamTrim says what Trim removes.
type StreamTrim struct {
	ByLength bool
	MaxLen   int64    // by length: entries to keep
	MinID    StreamID // else: the lowest id to keep
	Approx   bool     // whole nodes only; without effect if references count
	Limit    int64    // entries to remove at most; 0: no limit
	Refs     Refs
}

// Trim removes the entries with the lowest ids, and returns how many, and about how many bytes they
// took.
func (s *Stream) Trim(t StreamTrim) (removed, size int) {
	if t.Refs != KeepRefs {
		return s.trimEach(t)
	}
	for {
		n, ok := s.nodes.Min()
		if !ok {
			return removed, size
		}
		whole, ok := t.step(n, s.Len(), removed)
		if !ok {
			return removed, size
		}
		if whole {
			for range n.live {
				size += s.popEntry()
			}
			s.dropNode(n)
			removed += n.live
			continue
		}
		for {
			first, ok := s.First()
			if !ok || t.keeps(s.Len(), first.ID) {
				break
			}
			size += s.popEntry()
			n.live--
			n.dead++
			removed++
		}
		// as in Redis, even with no entry left, until entries after it are removed too
		s.setNode(n)
		return removed, size
	}
}

// trimEach is Trim where references count: it looks at each entry, and goes on after nodes of which
// some must stay.
func (s *Stream) trimEach(t StreamTrim) (removed, size int) {
	for n, ok := s.nodes.Min(); ok; n, ok = s.nodeAfter(n) {
		whole, ok := t.step(n, s.Len(), removed)
		if !ok {
			break
		}
		gone := s.trimmable(n, &t, s.Len(), func(StreamID) {})
		for _, e := range gone {
			if t.Refs == DropRefs {
				s.DropRefs(e.ID)
			}
			s.entries.Delete(e)
			s.forget(e)
			size += e.Size()
		}
		removed += len(gone)
		n.live -= len(gone)
		n.dead += len(gone)
		switch {
		case whole && n.live == 0:
			s.dropNode(n)
		case len(gone) > 0:
			s.setNode(n)
		}
		if !whole {
			break
		}
	}
	return removed, size
}

// nodeAfter returns the first node after n, which may be gone.
func (s *Stream) nodeAfter(n streamNode) (next streamNode, ok bool) {
	start, more := n.last.Next()
	if !more {
		return next, false
	}
	s.nodes.Ascend(streamNode{first: start}, func(found streamNode) bool {
		next, ok = found, true
		return false
	})
	return next, ok
}

// trimmable returns the entries of a node that Trim removes where references count, when length
// entries are left. It calls look before it looks for the references of an entry.
func (s *Stream) trimmable(n streamNode, t *StreamTrim, length int,
	look func(StreamID)) (gone []StreamEntry) {
	s.Range(n.first, n.last, func(e StreamEntry) bool {
		if t.keeps(length-len(gone), e.ID) {
			return false
		}
		if look(e.ID); t.Refs != AckedOnly || !s.Needed(e.ID) {
			gone = append(gone, e)
		}
		return true
	})
	return gone
}

// Trims reports whether Trim would do anything on the stream with more additional entries, even if
// only remove an empty node. Where references count it may report so for entries that all must
// stay.
func (s *Stream) Trims(t StreamTrim, more int) bool {
	n, ok := s.nodes.Min()
	if !ok {
		return more > 0 // which may go at once
	}
	whole, ok := t.step(n, s.Len()+more, 0)
	if !ok || whole || t.Refs != KeepRefs {
		return ok
	}
	first, some := s.First()
	return some && n.live > 0 && !t.keeps(s.Len()+more, first.ID)
}

// TrimSize estimates Trim on the stream with more additional entries: how many nodes it looks at,
// and at most how many entries of how many bytes it removes. References must not count.
func (s *Stream) TrimSize(t StreamTrim, more int) (nodes, entries, size int) {
	s.nodes.Scan(func(n streamNode) bool {
		nodes++
		left := int64(s.Len() + more - entries)
		switch {
		case t.Limit > 0 && int64(entries+n.live) > t.Limit:
			return false
		case t.ByLength && left <= t.MaxLen, !t.ByLength && !n.first.Less(t.MinID):
			return false
		}
		taken := n.live
		if t.ByLength {
			taken = int(min(int64(taken), left-t.MaxLen))
		}
		entries += taken
		size += n.size
		return true
	})
	return nodes, entries, size
}

// TrimSizeEach is TrimSize where references count. It calls look before it looks for those of an
// entry.
func (s *Stream) TrimSizeEach(t StreamTrim, more int,
	look func(StreamID)) (nodes, entries, size int) {
	s.nodes.Scan(func(n streamNode) bool {
		nodes++
		left := s.Len() + more - entries
		whole, ok := t.step(n, left, entries)
		if !ok {
			return false
		}
		gone := s.trimmable(n, &t, left, look)
		entries += len(gone)
		for _, e := range gone {
			size += e.Size()
		}
		return whole
	})
	return nodes, entries, size
}

// step returns the next step of a trim, when length entries are left: to remove the node n whole,
// or to remove entries of it; ok is false at the end.
func (t *StreamTrim) step(n streamNode, length, removed int) (whole, ok bool) {
	if (t.ByLength && int64(length) <= t.MaxLen) ||
		(t.Limit > 0 && int64(removed+n.live) > t.Limit) {
		return false, false
	}
	if t.ByLength {
		whole = int64(length-n.live) >= t.MaxLen
	} else {
		whole = n.last.Less(t.MinID)
	}
	return whole, whole || !t.Approx || t.Refs != KeepRefs
}

// keeps reports whether trimming ends at an entry with id first, when length entries are left.
func (t *StreamTrim) keeps(length int, first StreamID) bool {
	if t.ByLength {
		return int64(length) <= t.MaxLen
	}
	return !first.Less(t.MinID)
}

// popEntry removes the first entry and returns its size. A node of a loose stream may count more
// entries than there are: then release 0.1 changed the hash, and so it changes here.
func (s *Stream) popEntry() int {
	e, ok := s.entries.PopMin()
	if s.sum ^= entrySum(e); ok {
		s.bytes -= messageSize(e)
	}
	return e.Size()
}
