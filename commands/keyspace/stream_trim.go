// Trimming by XTRIM and XADD: of whole nodes or of single entries.

package keyspace

// StreamTrim says what Trim removes.
type StreamTrim struct {
	ByLength bool
	MaxLen   int64    // by length: entries to keep
	MinID    StreamID // else: the lowest id to keep
	Approx   bool     // whole nodes only
	Limit    int64    // entries to remove at most; 0: no limit
}

// Trim removes the entries with the lowest ids, and returns how many, and about how many bytes they
// took.
func (s *Stream) Trim(t StreamTrim) (removed, size int) {
	for {
		n, whole, ok := s.trimStep(t, removed)
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
		s.nodes.Set(n)
		return removed, size
	}
}

// Trims reports whether Trim would do anything, even if only remove an empty node.
func (s *Stream) Trims(t StreamTrim) bool {
	n, whole, ok := s.trimStep(t, 0)
	if !ok || whole {
		return ok
	}
	first, some := s.First()
	return some && n.live > 0 && !t.keeps(s.Len(), first.ID)
}

// TrimSize estimates Trim on the stream with more additional entries: how many nodes it looks at,
// and at most how many entries of how many bytes it removes.
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

// trimStep returns the next step of Trim: to remove its first node n whole, or to remove entries of
// it; ok is false at the end.
func (s *Stream) trimStep(t StreamTrim, removed int) (n streamNode, whole, ok bool) {
	n, ok = s.nodes.Min()
	if !ok || (t.ByLength && int64(s.Len()) <= t.MaxLen) ||
		(t.Limit > 0 && int64(removed+n.live) > t.Limit) {
		return n, false, false
	}
	if t.ByLength {
		whole = int64(s.Len()-n.live) >= t.MaxLen
	} else {
		whole = n.last.Less(t.MinID)
	}
	return n, whole, whole || !t.Approx
}

// keeps reports whether trimming ends at an entry with id first, when length entries are left.
func (t *StreamTrim) keeps(length int, first StreamID) bool {
	if t.ByLength {
		return int64(length) <= t.MaxLen
	}
	return !first.Less(t.MinID)
}

// popEntry removes the first entry and returns its size.
func (s *Stream) popEntry() int {
	e, _ := s.entries.PopMin()
	s.sum ^= entrySum(e)
	s.bytes -= messageSize(e)
	return e.Size()
}
