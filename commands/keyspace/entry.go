// Entries: a key with its value and what is known of it.

package keyspace

// Entry is a key with its value: a string in the entry itself, or a Collection.
type Entry struct {
	hash     uint64
	key      string
	str      []byte
	coll     Collection // nil for a string
	created  Revision
	changed  Revision
	deadline int64 // ms of the cluster clock; 0 means none
	gen      uint32
	own      bool // str is not shared, so WriteAt may change it in place
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

// Key returns the key.
func (e *Entry) Key() string { return e.key }

// Kind returns the type of the value.
func (e *Entry) Kind() Kind {
	if e.coll == nil {
		return KindString
	}
	return e.coll.Kind()
}

// Bytes returns the value of a string. The caller must not change it.
func (e *Entry) Bytes() []byte { return e.str }

// Collection returns the value of an entry that is not a string, else nil.
func (e *Entry) Collection() Collection { return e.coll }

// Emptied reports whether the entry's collection is empty, so that its key is removed. Empty
// streams stay.
func (e *Entry) Emptied() bool {
	return e.coll != nil && e.coll.Kind() != KindStream && e.coll.Len() == 0
}

// Deadline returns when the key expires, ms of the cluster clock; 0 means never.
func (e *Entry) Deadline() int64 { return e.deadline }

// Created returns the revision that created the key.
func (e *Entry) Created() Revision { return e.created }

// Changed returns the revision that last changed the key.
func (e *Entry) Changed() Revision { return e.changed }
