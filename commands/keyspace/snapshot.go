package keyspace

import (
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
	r := newReader(record, ks)
	index, first, marked := int(r.Byte()), r.Byte(), byte(0)
	if marks {
		marked = first & recordMarks
	}
	kind := Kind(first &^ marked)
	if index >= Databases {
		return ErrCorrupt
	}
	db := ks.dbs[index]
	if kind == kindSwap && marked == 0 {
		db.swapped = Revision(r.Uvarint())
		if !r.Done() || db.swapped == 0 {
			return ErrCorrupt
		}
		return nil
	}
	key := r.Bytes()
	known := Entry{gen: uint32(ks.gen), created: Revision(r.Uvarint()),
		changed: Revision(r.Uvarint()), deadline: r.Varint()}
	var e *Entry
	switch {
	case kind == KindString:
		e = newString(key, r.Bytes())
	case int(kind) < len(kinds) && kinds[kind].read != nil:
		c := kinds[kind].read(r)
		if e, ks.scratch = rest(view(key), c, ks.scratch); e == nil {
			e = newBox(key, c)
		}
	default:
		return ErrCorrupt
	}
	hash := hashKey(key)
	if !r.Done() || known.deadline < 0 || marked == recordMarks || db.keys.find(hash, key) != nil {
		return ErrCorrupt
	}
	e.inherit(known)
	switch {
	case !marks:
		markLikely(e)
	case marked == recordLease:
		e.MarkLease(true)
	case marked == recordWindow:
		e.MarkWindow()
	}
	db.insert(hash, e)
	if e.deadline != 0 {
		db.volatile++
	}
	db.recount(e, 0)
	db.count(int(e.Size()) - e.valueSize())
	db.schedule(e)
	return nil
}

// reader decodes a record.
type reader struct {
	wire.Cursor
	keyspace *Keyspace // being restored
}

func newReader(record []byte, ks *Keyspace) *reader { return &reader{wire.NewCursor(record), ks} }
