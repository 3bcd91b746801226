// Entries: a key with its value and what is known of it.

package keyspace

// Entry is a key with its value: a string or a Collection. Key and value follow in memory, in one
// of several forms. A packed entry is replaced when its value changes, so what Key and Bytes have
// returned stays as it was.
type Entry struct {
	created  Revision
	changed  Revision
	deadline int64 // ms of the cluster clock; 0 means none
	gen      uint32
	form     form
	keyLen   uint8 // of a packed entry
	valueLen uint8
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

// kinds has the name of each kind for TYPE, and the decoder of its snapshot record.
var kinds = [...]struct {
	name string
	read func(*reader) Collection // nil for strings, which are no collections
}{
	KindString: {"string", nil},
	KindHash:   {"hash", func(r *reader) Collection { return readHash(r) }},
	KindZSet:   {"zset", func(r *reader) Collection { return readZSet(r) }},
	KindSet:    {"set", func(r *reader) Collection { return readSet(r) }},
	KindList:   {"list", func(r *reader) Collection { return readList(r) }},
	KindStream: {"stream", func(r *reader) Collection { return readStream(r) }},
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
	if e.form != boxed {
		return KindString
	}
	return e.box().coll.Kind()
}

// Emptied reports whether the entry's collection is empty, so that its key is removed. Empty
// streams stay.
func (e *Entry) Emptied() bool {
	c := e.Collection()
	return c != nil && c.Kind() != KindStream && c.Len() == 0
}

// Deadline returns when the key expires, ms of the cluster clock; 0 means never.
func (e *Entry) Deadline() int64 { return e.deadline }

// Created returns the revision that created the key.
func (e *Entry) Created() Revision { return e.created }

// Changed returns the revision that last changed the key.
func (e *Entry) Changed() Revision { return e.changed }
