// Entries: what the index holds for a key.

package keyspace

// Entry is a key with its value. Strings lie in the entry itself, other types in a Collection.
type Entry struct {
	hash     uint64
	key      string
	str      []byte
	coll     Collection // nil for a string
	created  Revision
	changed  Revision
	deadline int64 // ms of the cluster clock; 0 means none
	gen      uint32
	own      bool // no other entry has a part in str, so that WriteAt may change it in place
}

// Collection is a value that has elements: a hash, a list.
type Collection interface {
	Kind() Kind
	Len() int
	// Sum is a hash over the content, kept up to date by every change.
	Sum() uint64
	// Clone returns a copy that can be changed while this one is read, in constant time or for a
	// small value.
	Clone() Collection
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

// kinds is what each kind is called by TYPE, and how the content of its snapshot record is read.
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

// String is the name that TYPE answers.
func (k Kind) String() string {
	if int(k) < len(kinds) && kinds[k].name != "" {
		return kinds[k].name
	}
	return "none"
}

// Key is the entry's key.
func (e *Entry) Key() string { return e.key }

// Kind is the type of the entry's value.
func (e *Entry) Kind() Kind {
	if e.coll == nil {
		return KindString
	}
	return e.coll.Kind()
}

// Bytes is the value of a string entry. The caller must not change it.
func (e *Entry) Bytes() []byte { return e.str }

// Collection is the value of an entry that is not a string, else nil.
func (e *Entry) Collection() Collection { return e.coll }

// Emptied reports whether nothing is left in the entry's collection, so that its key goes: all but
// streams go.
func (e *Entry) Emptied() bool {
	return e.coll != nil && e.coll.Kind() != KindStream && e.coll.Len() == 0
}

// Deadline is when the key expires, ms of the cluster clock; 0 means never.
func (e *Entry) Deadline() int64 { return e.deadline }

// Created is the revision that created the key.
func (e *Entry) Created() Revision { return e.created }

// Changed is the revision that last changed the key.
func (e *Entry) Changed() Revision { return e.changed }
