package keyspace

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/coordd/coordd/internal/wire"
)

// ErrCorrupt means that a snapshot record cannot be decoded.
var ErrCorrupt = errors.New("keyspace: corrupt snapshot record")

// Frozen is the content of a keyspace at one moment. It may be read while the keyspace changes.
type Frozen struct {
	dbs     [Databases]*index
	swapped [Databases]Revision
}

// Freeze captures the current content, in constant time. It must not be called beside readers.
func (ks *Keyspace) Freeze() *Frozen {
	ks.rest(0) // nothing that the snapshot sees changes its form later
	f := &Frozen{}
	ks.gen++
	for i, db := range ks.dbs {
		f.dbs[i], f.swapped[i] = db.keys.freeze(ks.gen), db.swapped
	}
	return f
}

// Len returns the number of records.
func (f *Frozen) Len() int {
	n := 0
	for i, keys := range f.dbs {
		n += keys.size
		if f.swapped[i] != 0 {
			n++
		}
	}
	return n
}

// Records calls yield with one record per key, in the order of databases and of (hash, key), until
// it fails. A record of the swap precedes the keys of a swapped database. A record is valid until
// yield returns. Equal contents give equal records. With marks, each says what its key is used for.
func (f *Frozen) Records(marks bool, yield func(record []byte) error) error {
	var buf []byte
	var err error
	for i, keys := range f.dbs {
		if f.swapped[i] != 0 {
			if err = yield(binary.AppendUvarint(append(buf[:0], byte(i), byte(kindSwap)),
				uint64(f.swapped[i]))); err != nil {
				return err
			}
		}
		keys.from(0, func(s slot) bool {
			buf = appendRecord(buf[:0], i, s.entry)
			if marks {
				buf[1] |= recordMark(s.entry)
			}
			err = yield(buf)
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// appendRecord encodes a key: database, kind, key, revisions, deadline, content.
func appendRecord(dst []byte, db int, e *Entry) []byte {
	dst = append(dst, byte(db), byte(e.Kind()))
	dst = wire.AppendBytes(dst, e.Key())
	dst = binary.AppendUvarint(dst, uint64(e.Created()))
	dst = binary.AppendUvarint(dst, uint64(e.Changed()))
	dst = binary.AppendVarint(dst, e.deadline)
	switch {
	case e.form == rested:
		return append(dst, e.value()[contentAt:]...)
	case e.boxes():
		return e.box().coll.appendTo(dst)
	}
	return wire.AppendBytes(dst, e.Bytes())
}

// kindSwap replaces a key's kind in the record of a swapped database.
const kindSwap Kind = 0

// IsKey reports whether a record is a key's.
func IsKey(record []byte) bool { return len(record) > 1 && Kind(record[1]) != kindSwap }

// Load loads a record into a keyspace that is being restored.
func (ks *Keyspace) Load(record []byte) error { return ks.load(record, true) }

// LoadUnmarked is Load for a record that was written without marks: it guesses them.
func (ks *Keyspace) LoadUnmarked(record []byte) error { return ks.load(record, false) }

func (ks *Keyspace) load(record []byte, marks bool) error {
	l, err := ks.decode(record, marks)
	switch {
	case err != nil:
		return err
	case l.entry == nil:
		l.db.swapped = l.swapped
		return nil
	case l.db.keys.find(l.hash, l.key) != nil:
		return ErrCorrupt
	}
	db, e := l.db, l.entry
	db.insert(l.hash, e)
	if e.deadline != 0 {
		db.volatile.add(e.deadline)
	}
	db.countAll(e)
	db.schedule(e)
	return nil
}

// loaded is what a record holds: a key's entry, or the swap of a database.
type loaded struct {
	db      *DB
	key     []byte // a part of the record
	hash    uint64
	entry   *Entry // nil: a swap
	swapped Revision
}

// decode decodes a record, and changes nothing but ks.scratch.
func (ks *Keyspace) decode(record []byte, marks bool) (l loaded, err error) {
	r := newReader(record, ks, marks)
	index, first, marked := int(r.Byte()), r.Byte(), byte(0)
	if marks {
		marked = first & recordMarks
	}
	kind := Kind(first &^ marked)
	if index >= Databases {
		return l, ErrCorrupt
	}
	l.db = ks.dbs[index]
	if kind == kindSwap && marked == 0 {
		l.swapped = Revision(r.Uvarint())
		if !r.Done() || l.swapped == 0 {
			return l, ErrCorrupt
		}
		return l, nil
	}
	l.key = r.Bytes()
	l.hash = hashKey(l.key)
	known := Entry{gen: uint32(ks.gen), created: Revision(r.Uvarint()),
		changed: Revision(r.Uvarint()), deadline: r.Varint()}
	switch {
	case kind == KindString:
		l.entry = newString(l.key, r.Bytes())
	case int(kind) < len(kinds) && kinds[kind].read != nil:
		c := kinds[kind].read(r)
		if l.entry, ks.scratch = rest(view(l.key), c, ks.scratch); l.entry == nil {
			l.entry = newBox(l.key, c)
		}
	default:
		return l, ErrCorrupt
	}
	if !r.Done() || known.deadline < 0 {
		return l, ErrCorrupt
	}
	l.entry.inherit(known)
	switch {
	case !marks:
		markLikely(l.entry)
	case marked == recordMarks:
		l.entry.MarkAcquired()
	case marked == recordLease:
		l.entry.MarkLease(true)
	case marked == recordWindow:
		l.entry.MarkWindow()
	}
	return l, nil
}

// Checker checks the records of a snapshot as Load does, and keeps none of them.
type Checker struct {
	ks    *Keyspace
	marks bool
	db    *DB
	hash  uint64
	key   []byte // key of the newest record
}

// Size returns what the keys count that were checked.
func (c *Checker) Size() int64 { return c.ks.Size() }

// NewChecker returns a Checker of records with or without marks.
func NewChecker(marks bool) *Checker { return &Checker{ks: New(), marks: marks} }

// Check checks the next record. Equal keys would be neighbors.
func (c *Checker) Check(record []byte) error {
	l, err := c.ks.decode(record, c.marks)
	if err != nil || l.entry == nil {
		return err
	}
	if l.db == c.db && l.hash == c.hash && bytes.Equal(l.key, c.key) {
		return ErrCorrupt
	}
	c.db, c.hash, c.key = l.db, l.hash, append(c.key[:0], l.key...)
	l.db.countAll(l.entry)
	return nil
}

// reader decodes a record.
type reader struct {
	wire.Cursor
	keyspace *Keyspace // being restored
	marks    bool      // the record is one with marks
}

func newReader(record []byte, ks *Keyspace, marks bool) *reader {
	return &reader{wire.NewCursor(record), ks, marks}
}
