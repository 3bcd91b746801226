package keyspace

import (
	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/internal/wire"
	"github.com/tidwall/btree"
)

// Stream is a log of entries in the order of their ids, with consumer groups that read it. Unlike
// other collections it stays when it is empty: its last id and its groups matter.
type Stream struct {
	entries *btree.BTreeG[StreamEntry]
	nodes   *btree.BTreeG[streamNode]
	groups  *btree.BTreeG[*Group] // by name
	// owner marks the groups that may be changed in place. A clone and its original both get a new
	// one, so the first change of a group in either copies that group, and Clone need not copy them
	// all.
	owner *owner
	last  StreamID // the highest id ever, or the one set by XSETID
	// tombstone is the highest id deleted by XDEL; trimming does not count.
	tombstone StreamID
	added     uint64 // entries ever added
	sum       uint64 // sum over entries and groups
	loose     bool   // its nodes may overlap and miscount: see stream_loose.go
	once      *once  // what producers added lately; nil: none said who it is
	weight
}

type owner struct{ _ byte } // not empty: each needs its own address

// StreamEntry is one entry of a stream.
type StreamEntry struct {
	ID     StreamID
	packed []byte // see pack
}

// Fields returns the number of names and values together.
func (e StreamEntry) Fields() int {
	c := wire.NewCursor(e.packed)
	return int(c.Uvarint())
}

// Size returns about how many bytes the names and values take.
func (e StreamEntry) Size() int { return len(e.packed) }

// Each calls f with the names and values in turn, for reading only.
func (e StreamEntry) Each(f func(text []byte)) {
	c := wire.NewCursor(e.packed)
	for range c.Uvarint() {
		f(c.Bytes())
	}
}

// pack encodes texts: their number, then each after its length.
func pack(texts [][]byte) []byte {
	size := wire.UvarintLen(uint64(len(texts)))
	for _, t := range texts {
		size += wire.UvarintLen(uint64(len(t))) + len(t)
	}
	return wire.AppendList(make([]byte, 0, size), texts)
}

func streamEntryLess(a, b StreamEntry) bool { return a.ID.Less(b.ID) }

// NewStream returns an empty stream.
func NewStream() *Stream {
	return &Stream{
		entries: newTree(streamEntryLess),
		nodes:   newTree(streamNodeLess),
		groups:  newTree(groupLess),
		owner:   new(owner),
	}
}

func (s *Stream) rests() bool { return false }

// Kind returns KindStream.
func (s *Stream) Kind() Kind { return KindStream }

// Len returns the number of entries.
func (s *Stream) Len() int { return s.entries.Len() }

// Sum returns a hash over the content.
func (s *Stream) Sum() uint64 {
	last, tombstone := s.last.bigEndian(), s.tombstone.bigEndian()
	ids := pairSum(xxhash.Sum64(last[:]), xxhash.Sum64(tombstone[:]))
	return pairSum(s.sum, ids) ^ s.added ^ s.once.mixed()
}

// Clone returns a copy that can change while s is read, in constant time.
func (s *Stream) Clone() Collection {
	c := *s
	c.entries, c.nodes = s.entries.IsoCopy(), s.nodes.IsoCopy()
	c.groups, c.once = s.groups.IsoCopy(), s.once.clone()
	c.owner, s.owner = new(owner), new(owner)
	return &c
}

// Last returns the highest id ever given to an entry, or the one set by SetLast.
func (s *Stream) Last() StreamID { return s.last }

// Tombstone returns the highest id of an entry that was deleted, not trimmed; zero if none was.
func (s *Stream) Tombstone() StreamID { return s.tombstone }

// Added returns the number of entries ever added.
func (s *Stream) Added() uint64 { return s.added }

// First returns the entry with the lowest id.
func (s *Stream) First() (e StreamEntry, ok bool) { return s.entries.Min() }

// Top returns the entry with the highest id.
func (s *Stream) Top() (e StreamEntry, ok bool) { return s.entries.Max() }

// Get returns the entry of an id.
func (s *Stream) Get(id StreamID) (e StreamEntry, ok bool) {
	return s.entries.Get(StreamEntry{ID: id})
}

// Finder returns a function that is Get, faster for ids in order. It is valid until the stream
// changes.
func (s *Stream) Finder() func(id StreamID) (e StreamEntry, ok bool) {
	find := finder(s.entries)
	return func(id StreamID) (StreamEntry, bool) { return find(StreamEntry{ID: id}) }
}

// Range calls f with the entries from start to end, inclusive, until it returns false. f may change
// groups, but not entries.
func (s *Stream) Range(start, end StreamID, f func(StreamEntry) bool) {
	s.entries.Ascend(StreamEntry{ID: start}, func(e StreamEntry) bool {
		return !end.Less(e.ID) && f(e)
	})
}

// RangeBack is Range from end down to start.
func (s *Stream) RangeBack(start, end StreamID, f func(StreamEntry) bool) {
	s.entries.Descend(StreamEntry{ID: end}, func(e StreamEntry) bool {
		return !e.ID.Less(start) && f(e)
	})
}

// entrySum returns an entry's part in sum.
func entrySum(e StreamEntry) uint64 {
	id := e.ID.bigEndian()
	return pairSum(xxhash.Sum64(id[:]), xxhash.Sum64(e.packed))
}

// Add appends an entry with copies of names and values, which come in turn. id must be higher than
// Last.
func (s *Stream) Add(id StreamID, texts [][]byte) {
	e := StreamEntry{ID: id, packed: pack(texts)}
	s.put(e)
	s.layOut(id, texts)
	s.last = id
	s.added++
}

// put adds an entry, but not to a node.
func (s *Stream) put(e StreamEntry) {
	s.entries.Set(e)
	s.sum ^= entrySum(e)
	s.bytes += messageSize(e)
}

// Delete deletes an entry and reports whether it existed.
func (s *Stream) Delete(id StreamID) bool {
	e, ok := s.entries.Delete(StreamEntry{ID: id})
	if !ok {
		return false
	}
	s.forget(e)
	n := s.nodeOf(id)
	n.live--
	n.dead++
	if n.live == 0 {
		s.dropNode(n)
	} else {
		s.setNode(n)
	}
	if s.tombstone.Less(id) {
		s.tombstone = id
	}
	return true
}

// forget updates the counts for an entry that is gone.
func (s *Stream) forget(e StreamEntry) {
	s.sum ^= entrySum(e)
	s.bytes -= messageSize(e)
}

// SetLast sets the id that the next entry must exceed. No entry may have a higher one, so nodes
// that begin above it hold nothing.
func (s *Stream) SetLast(id StreamID) {
	for n, ok := s.nodes.Max(); ok && id.Less(n.first); n, ok = s.nodes.Max() {
		s.dropNode(n)
	}
	s.last = id
}

// SetAdded sets the number of entries ever added.
func (s *Stream) SetAdded(n uint64) { s.added = n }

// SetTombstone sets the highest id that was deleted.
func (s *Stream) SetTombstone(id StreamID) { s.tombstone = id }

// tombstonesFrom reports whether entries with an id from start on may have been deleted.
func (s *Stream) tombstonesFrom(start StreamID) bool {
	first, ok := s.First()
	if !ok || s.tombstone.IsZero() || s.tombstone.Less(first.ID) {
		return false
	}
	return !s.tombstone.Less(start)
}

// ReadsTo returns how many of all entries ever added are up to id, UnknownReads if entries in
// between were deleted. The cases are those of Redis, since XINFO shows the result.
func (s *Stream) ReadsTo(id StreamID) int64 {
	first, ok := s.First()
	switch {
	case s.added == 0:
		return 0
	case !ok && !s.last.Less(id), id == s.last:
		return int64(s.added)
	case s.last.Less(id):
		return UnknownReads
	case !s.tombstone.IsZero() && !s.tombstone.Less(first.ID):
		return UnknownReads
	case id.Less(first.ID):
		return int64(s.added) - int64(s.Len())
	case id == first.ID:
		return int64(s.added) - int64(s.Len()) + 1
	}
	return UnknownReads
}
