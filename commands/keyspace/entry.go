// Entries: a key with its value and what is known of it.

package keyspace

// Entry is a key with its value: a string or a Collection. Key and value follow in memory, in one
// of several forms. A packed entry is replaced when its value changes, so what Key and Bytes have
// returned stays as it was.
type Entry struct {
	created  Revision // with mark
	changed  Revision // with mark
	deadline int64    // ms of the cluster clock; 0 means none
	gen      uint32
	form     form
	keyLen   uint8 // length of the key of a packed or rested entry
	valueLen uint16
}

// Collection is a value with elements, such as a hash or a list.
type Collection interface {
	Kind() Kind
	Len() int
	// Sum is a hash over the content. Every change updates it.
	Sum() uint64
	// Clone returns a copy that can change while this one is read, in constant time or for a small
	// value.
	Clone() Collection
	weigh() *weight
	// rests reports whether the collection has a form that can rest: see entry_rest.go.
	rests() bool
	// appendTo appends the content as snapshot record fields.
	appendTo(dst []byte) []byte
}

// Kind is a value's type. The numbers are part of the snapshot format.
type Kind uint8

// The kinds of values.
const (
	KindString Kind = 1
	KindHash   Kind = 2
	KindZSet   Kind = 3
	KindList   Kind = 4
	KindSet    Kind = 5
	KindStream Kind = 6
)

// kinds has the name of each kind for TYPE, and the decoders of its snapshot record and of its
// block.
var kinds = [...]struct {
	name string
	read func(*reader) Collection // nil for strings, which are no collections
	wake func(block) Collection   // nil for what never rests
}{
	KindString: {"string", nil, nil},
	KindHash:   {"hash", func(r *reader) Collection { return readHash(r) }, wakeHash},
	KindZSet:   {"zset", func(r *reader) Collection { return readZSet(r) }, wakeZSet},
	KindSet:    {"set", func(r *reader) Collection { return readSet(r) }, wakeSet},
	KindList:   {"list", func(r *reader) Collection { return readList(r) }, wakeList},
	KindStream: {"stream", func(r *reader) Collection { return readStream(r) }, nil},
}

// String returns the name of the kind for TYPE.
func (k Kind) String() string {
	if int(k) < len(kinds) && kinds[k].name != "" {
		return kinds[k].name
	}
	return "none"
}

// hash returns the hash of the key.
func (e *Entry) hash() uint64 { return hashOf(e.Key()) }

// Kind returns the type of the value.
func (e *Entry) Kind() Kind {
	switch e.form {
	case rested:
		return Kind(e.value()[0])
	case boxed, opened:
		return e.box().coll.Kind()
	}
	return KindString
}

// Emptied reports whether the entry's collection is empty, so that its key is removed. Empty
// streams stay.
func (e *Entry) Emptied() bool {
	if !e.boxes() {
		return false // nothing empty rests
	}
	c := e.box().coll
	return c.Kind() != KindStream && c.Len() == 0
}

// Deadline returns when the key expires, ms of the cluster clock; 0 means never.
func (e *Entry) Deadline() int64 { return e.deadline }

// Created returns the revision that created the key, or that of the newest holder who overwrote it.
func (e *Entry) Created() Revision { return e.created &^ mark }

// Changed returns the revision that last changed the key.
func (e *Entry) Changed() Revision { return e.changed &^ mark }
