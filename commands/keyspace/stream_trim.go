// XTRIM and the trimming of XADD: entries leave a stream by whole nodes or one by one.

package keyspace

// StreamTrim says what Trim removes.
type StreamTrim struct {
	ByLength bool
	MaxLen   int64    // by length: entries to keep
	MinID    StreamID // else: the lowest id to keep
	Approx   bool     // whole nodes only
	Limit    int64    // entries to remove at most; 0: no limit
}

// Trim removes the entries with the lowest ids. It says how many, and about how many bytes they
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
			s.nodes.Delete(n)
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
		// even with no entry left, as in Redis, until entries behind it are removed too
		s.nodes.Set(n)
		return removed, size
	}
}

// Trims reports whether Trim would do anything, if only away with a node in which nothing is left.
func (s *Stream) Trims(t StreamTrim) bool {
	n, whole, ok := s.trimStep(t, 0)
	if !ok || whole {
		return ok
	}
	first, some := s.First()
	return some && n.live > 0 && !t.keeps(s.Len(), first.ID)
}

// TrimSize is about what Trim would do on the stream with more entries than it has: how many nodes
// it looks at, and how many entries of how many bytes it removes, or more.
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

// trimStep says what Trim does next: to remove its first node n whole, or entries of it, or to
// stop.
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

// keeps reports whether to stop before an entry that is the first of length.
func (t *StreamTrim) keeps(length int, first StreamID) bool {
	if t.ByLength {
		return int64(length) <= t.MaxLen
	}
	return !first.Less(t.MinID)
}

// popEntry removes the first entry and gives its size.
func (s *Stream) popEntry() int {
	e, _ := s.entries.PopMin()
	s.sum ^= entrySum(e)
	return e.Size()
}
