// The forms of an entry in memory. Go's collector visits a pointer at a time, so most keys are one
// block without pointers.

package keyspace

import (
	"math"
	"unsafe"
)

// form says what follows the fields of an Entry in its allocation.
type form uint8

const (
	packed form = iota // the bytes of the key and of a string
	rested             // the bytes of the key and of a small collection: see entry_rest.go
	texted             // the rest of a text
	boxed              // the rest of a box
	opened             // the same, to rest later if it can
)

// text is the entry of a string that is long or has a long key.
type text struct {
	Entry
	key string
	str []byte
	own bool // str is not shared, so WriteAt may change it in place
	// revision of the newest write of str by this process; not part of the state
	wrote Revision
}

// box is the entry of a collection.
type box struct {
	Entry
	key  string
	coll Collection
	at   int // place of an opened one in DB.opened, counted from the first there ever was
}

// maxPacked is the length of the longest key and of the longest string that an entry packs.
const maxPacked = math.MaxUint8

// newString returns an entry with copies of a key and of a string.
func newString(key, value []byte) *Entry {
	if len(key) > maxPacked || len(value) > maxPacked {
		return newText(key, append([]byte(nil), value...))
	}
	return newBlock(packed, view(key), value)
}

// newBlock returns an entry of form packed or rested, with copies of a key and of its value.
func newBlock(f form, key string, value []byte) *Entry {
	// Of words, so that the fields are aligned.
	const word = unsafe.Sizeof(uint64(0))
	const header = unsafe.Sizeof(Entry{})
	words := make([]uint64, (header+uintptr(len(key)+len(value))+word-1)/word)
	e := (*Entry)(unsafe.Pointer(&words[0]))
	e.form, e.keyLen, e.valueLen = f, uint8(len(key)), uint16(len(value))
	copy(e.tail(0, len(key)), key)
	copy(e.value(), value)
	return e
}

// newText returns an entry with a copy of a key and a string, which it takes over.
func newText(key, str []byte) *Entry {
	return &(&text{Entry: Entry{form: texted}, key: string(key), str: str}).Entry
}

// newBox returns an entry with a copy of a key and a collection.
func newBox(key []byte, c Collection) *Entry {
	return &(&box{Entry: Entry{form: boxed}, key: string(key), coll: c}).Entry
}

// tail returns n bytes of a block, from an offset behind its fields.
func (e *Entry) tail(offset, n int) []byte {
	if n == 0 {
		return nil // a pointer past the end of the block would be one to another
	}
	start := unsafe.Add(unsafe.Pointer(e), unsafe.Sizeof(*e)+uintptr(offset))
	return unsafe.Slice((*byte)(start), n)[:n:n]
}

// value returns the value of a block.
func (e *Entry) value() []byte { return e.tail(int(e.keyLen), int(e.valueLen)) }

// boxes reports whether an entry is a box.
func (e *Entry) boxes() bool { return e.form >= boxed }

// text returns the entry of form texted, box that of form boxed or opened.
func (e *Entry) text() *text { return (*text)(unsafe.Pointer(e)) }
func (e *Entry) box() *box   { return (*box)(unsafe.Pointer(e)) }

// Key returns the key.
func (e *Entry) Key() string {
	switch e.form {
	case packed, rested:
		return view(e.tail(0, int(e.keyLen)))
	case texted:
		return e.text().key
	}
	return e.box().key
}

// Bytes returns the value of a string, else nil. The caller must not change it.
func (e *Entry) Bytes() []byte {
	switch e.form {
	case packed:
		return e.value()
	case texted:
		return e.text().str
	}
	return nil
}

// Collection returns the value of an entry that is not a string, else nil. It is for reading only
// unless the entry came from Edit or a setter.
func (e *Entry) Collection() Collection {
	switch e.form {
	case rested:
		return e.wake()
	case boxed, opened:
		return e.box().coll
	}
	return nil
}

// clone returns a copy of an entry that does not rest. It can change while e is read.
func (e *Entry) clone() *Entry {
	var c *Entry
	switch e.form {
	case packed:
		c = newString(e.tail(0, int(e.keyLen)), e.Bytes())
	case texted:
		t := *e.text()
		t.own = false
		return &t.Entry
	case boxed, opened:
		b := *e.box()
		b.form, b.coll = boxed, b.coll.Clone()
		return &b.Entry
	}
	c.inherit(*e)
	return c
}

// inherit takes over what is known of another entry, whatever its form.
func (e *Entry) inherit(old Entry) {
	e.created, e.changed, e.deadline, e.gen = old.created, old.changed, old.deadline, old.gen
}
