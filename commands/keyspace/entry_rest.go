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

// maxOpen is how many boxes of a database stay open between log entries. A snapshot begins by
// making them rest.
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

// openBoxes are the boxes of a database that are to rest. They are nobody else's, so that who
// empties the database is done with them at once.
type openBoxes struct {
	list   []*Entry // the oldest first
	rests  int      // how many of list are done with
	closed int      // how many there were before list
}

// open makes a box one that is to rest.
func (db *DB) open(e *Entry) *Entry {
	if e.form == boxed {
		e.form = opened
		o := db.opened
		e.box().at = o.closed + len(o.list)
		o.list = append(o.list, e)
	}
	return e
}

// close lets go of an entry that is gone, which may be a large box: nothing is to rest.
func (db *DB) close(e *Entry) {
	if e != nil && e.form == opened {
		e.form = boxed
		db.opened.list[e.box().at-db.opened.closed] = nil
	}
}

// closeAll is close for all keys of a database, in constant time.
func (db *DB) closeAll() {
	o := db.opened
	*o = openBoxes{closed: o.closed + len(o.list)}
}

// rest makes the oldest open boxes rest until each database has at most most. It must not be called
// while somebody may use an entry.
func (ks *Keyspace) rest(most int) {
	for _, db := range ks.dbs {
		db.rest(most)
	}
	ks.woken.rested, ks.woken.box = nil, nil
}

func (db *DB) rest(most int) {
	o := db.opened
	for ; len(o.list)-o.rests > most; o.rests++ {
		if e := o.list[o.rests]; e != nil {
			db.restBox(e)
		}
		o.list[o.rests] = nil
	}
	if o.rests > most {
		o.list = slices.Delete(o.list, 0, o.rests)
		o.closed += o.rests
		o.rests = 0
	}
}

// restBox makes a box rest if it can.
func (db *DB) restBox(opened *Entry) {
	b := opened.box()
	b.form = boxed
	var e *Entry
	if e, db.ks.scratch = rest(b.key, b.coll, db.ks.scratch); e != nil {
		e.inherit(b.Entry)
		db.keys.replace(hashOf(b.key), &b.Entry, e)
	}
}
