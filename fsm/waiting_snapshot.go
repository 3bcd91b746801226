// The waits in snapshots.

package fsm

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/coordd/coordd/internal/wire"
)

var errWaitingCorrupt = errors.New("its waits are invalid")

// freeze returns what appendTo needs, while the machine goes on. It copies no waiter.
func (v *waiting) freeze() *waiting {
	return &waiting{term: v.term, era: v.era, eras: slices.Clone(v.eras), newest: v.newest,
		all: slices.Clone(v.all), ready: slices.Clone(v.ready),
		lent: v.lent.freeze(), returning: v.returning.freeze()}
}

// appendTo appends the encoding for a snapshot.
func (v *waiting) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, v.term)
	dst = binary.AppendUvarint(dst, v.era)
	dst = binary.AppendUvarint(dst, v.newest)
	dst = binary.AppendUvarint(dst, uint64(len(v.eras)))
	for _, e := range v.eras {
		dst = wire.AppendBytes(dst, e.node)
		dst = binary.AppendUvarint(dst, e.era)
	}
	dst = binary.AppendUvarint(dst, uint64(len(v.all)))
	for _, w := range v.all {
		dst = wire.AppendBytes(dst, w.class)
		dst = wire.AppendBytes(dst, w.request)
		dst = binary.AppendUvarint(dst, uint64(len(w.keys)))
		for _, k := range w.keys {
			dst = wire.AppendBytes(dst, k.key)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(v.ready)))
	for _, k := range v.ready {
		dst = append(dst, byte(k.db))
		dst = wire.AppendBytes(dst, k.key)
	}
	if len(v.lent.queue)+len(v.returning.waits) == 0 {
		return dst // as before there were these
	}
	return v.returning.appendTo(v.lent.appendTo(dst))
}

// restore reads what appendTo wrote.
func (v *waiting) restore(record []byte) error {
	c := wire.NewCursor(record)
	v.term, v.era, v.newest = c.Uvarint(), c.Uvarint(), c.Uvarint()
	for range c.Count(2) {
		v.eras = append(v.eras, nodeEra{c.Text(), c.Uvarint()})
	}
	for range c.Count(3) {
		if w := v.readWaiter(&c); w != nil {
			v.add(w)
		}
	}
	for range c.Count(2) {
		v.addReady(changedKey{int(c.Byte()), c.Text()}) // also if who waited for it has left
	}
	if c.Len() > 0 {
		v.lent.restore(&c)
		v.returning.restore(&c)
	}
	if !c.Done() {
		return errWaitingCorrupt
	}
	return nil
}

// readWaiter reads a waiter, or fails c.
func (v *waiting) readWaiter(c *wire.Cursor) *waiter {
	w := &waiter{class: c.Text(), request: slices.Clone(c.Bytes())}
	v.reader.Reset(w.request)
	q, err := v.reader.Next()
	if err != nil || q.Wait == nil || v.numbers[q.Wait.Number] != nil {
		c.Fail()
		return nil
	}
	w.order, w.number, w.node = q.Wait.Order, q.Wait.Number, string(q.Wait.Node)
	w.lock = placeOf(w.class, "", 0)
	for range c.Count(1) {
		w.keys = append(w.keys, changedKey{q.DB, c.Text()})
	}
	if len(q.Cmds[0]) > 2 {
		w.lock.setOwner(q, len(w.keys))
	} else if w.lock != nil {
		c.Fail()
	}
	return w
}
