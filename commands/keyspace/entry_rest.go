// How a small collection rests between changes: its content in one block, without pointers, as a
// short string. Who reads it gets a collection made from the block, whose texts are parts of the
// block. Who changes it gets a box, which rests again when others have been opened since: a lock
// that is taken, renewed and released soon never becomes a block. From outside one cannot tell
// which form an entry has.

package keyspace

import (
	"encoding/binary"
	"slices"

	"github.com/coordd/coordd/internal/wire"
)

// maxRested is how many bytes a collection that rests counts at most. Waking takes time for each
// element.
const maxRested = 2048

// maxOpen is how many boxes stay open between log entries. A snapshot begins by making them rest.
const maxOpen = 512

// Where the parts of a rested entry's value begin.
const bytesAt, sumAt, contentAt = 1, 3, 11

// block reads the value of a rested entry: kind (1 byte), bytes that the elements count (2), sum
// (8), and the content as in a snapshot record.
type block struct {
	wire.Cursor
	sum uint64
}

// text returns the next text, a part of the block.
func (b *block) text() string { return view(b.Bytes()) }

// wake returns the collection of a rested entry.
func (e *Entry) wake() Collection {
	b := block{Cursor: wire.NewCursor(e.value()[sumAt:])}
	b.sum = b.Uint64()
	c := kinds[e.Kind()].wake(b)
	*c.weigh() = weight{e.restedBytes(), e.valueSize()}
	return c
}

// restedBytes returns the bytes that the elements of a rested entry count.
func (e *Entry) restedBytes() int { return int(binary.LittleEndian.Uint16(e.value()[bytesAt:])) }

// awake returns a box for a rested entry, which is the same until another is asked for.
func (ks *Keyspace) awake(e *Entry) *Entry {
	if ks.woken.rested != e {
		b := &box{Entry: *e, key: e.Key(), coll: e.wake()}
		b.form = boxed
		ks.woken.rested, ks.woken.box = e, &b.Entry
	}
	return ks.woken.box
}

// rest returns an entry for a collection that can rest, else nil. It uses and returns scratch.
func rest(key string, c Collection, scratch []byte) (*Entry, []byte) {
	if bytes := c.weigh().bytes; len(key) <= maxPacked && bytes <= maxRested && c.rests() {
		scratch = append(scratch[:0], byte(c.Kind()))
		scratch = binary.LittleEndian.AppendUint16(scratch, uint16(bytes))
		scratch = c.appendTo(binary.LittleEndian.AppendUint64(scratch, c.Sum()))
		return newBlock(rested, key, scratch), scratch
	}
	return nil, scratch
}

// open makes a box one that is to rest.
func (db *DB) open(e *Entry) *Entry {
	if e.form == boxed {
		e.form = opened
		e.box().at = db.ks.closed + len(db.ks.opened)
		db.ks.opened = append(db.ks.opened, openBox{db, e})
	}
	return e
}

// close lets go of an entry that is gone, which may be a large box: nothing is to rest.
func (ks *Keyspace) close(e *Entry) {
	if e != nil && e.form == opened {
		e.form = boxed
		ks.opened[e.box().at-ks.closed] = openBox{}
	}
}

// closeAll is close for all keys of a database.
func (db *DB) closeAll() {
	for _, o := range db.ks.opened {
		if o.db == db {
			db.ks.close(o.entry)
		}
	}
}

// openBox is a box that is to rest.
type openBox struct {
	db    *DB
	entry *Entry
}

// rest makes the oldest open boxes rest until at most most are open. It must not be called while
// somebody may use an entry.
func (ks *Keyspace) rest(most int) {
	for ; len(ks.opened)-ks.rests > most; ks.rests++ {
		o := &ks.opened[ks.rests]
		if o.entry != nil {
			o.rest(ks)
		}
		*o = openBox{}
	}
	if ks.rests > most {
		ks.opened = slices.Delete(ks.opened, 0, ks.rests)
		ks.closed += ks.rests
		ks.rests = 0
	}
	ks.woken.rested, ks.woken.box = nil, nil
}

// rest makes a box rest if it can.
func (o openBox) rest(ks *Keyspace) {
	b := o.entry.box()
	b.form = boxed
	var e *Entry
	if e, ks.scratch = rest(b.key, b.coll, ks.scratch); e != nil {
		e.inherit(b.Entry)
		o.db.keys.replace(hashOf(b.key), &b.Entry, e)
	}
}
