package once

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/tidwall/btree"

	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/wire"
)

// recordBytes is about how long a record of calls is.
const recordBytes = 1 << 20

// ErrCorrupt means that records are not those of any calls.
var ErrCorrupt = errors.New("the requests that ran are invalid")

// Frozen is a copy of Calls that does not change.
type Frozen struct{ all *btree.Map[uint64, *call] }

// Freeze returns a copy, which another goroutine may read. It takes no time.
func (c *Calls) Freeze() *Frozen { return &Frozen{c.all.IsoCopy()} }

// Records calls f with the encoding: a record with the number of calls, then the calls from the
// oldest on, as many to a record as there is room for. A user is named with his first call.
func (z *Frozen) Records(f func(record []byte)) {
	f(binary.AppendUvarint(nil, uint64(z.all.Len())))
	var record []byte
	numbers := map[*user]uint64{} // from 1 on, for look-ups
	z.all.Scan(func(_ uint64, c *call) bool {
		number, named := numbers[c.user]
		if !named {
			number = uint64(len(numbers) + 1)
			numbers[c.user] = number
		}
		record = binary.AppendUvarint(record, number)
		if !named {
			record = wire.AppendBytes(record, c.user.Name)
			record = binary.AppendUvarint(record, c.user.Created)
		}
		record = wire.AppendBytes(record, c.id)
		record = binary.AppendUvarint(record, uint64(c.atMs))
		record = binary.LittleEndian.AppendUint64(record, c.reply.Call)
		record = append(record, byte(c.reply.Proto))
		if record = wire.AppendBytes(record, c.reply.Bytes); len(record) >= recordBytes {
			f(record)
			record = record[:0]
		}
		return true
	})
	if len(record) > 0 {
		f(record)
	}
}

// Restore reads calls from the records that next returns. None may be later than nowMs.
func Restore(next func() []byte, nowMs int64) (*Calls, error) {
	c, in := New(), wire.NewCursor(next())
	left := in.Uvarint()
	if !in.Done() || left == 0 {
		return nil, ErrCorrupt
	}
	var users []User
	lastMs := int64(0)
	for ; left > 0; left-- {
		if in.Len() == 0 {
			in = wire.NewCursor(next())
		}
		number := in.Uvarint()
		if number == uint64(len(users)+1) {
			users = append(users, User{Name: in.Text(), Created: in.Uvarint()})
			if c.users[users[number-1]] != nil {
				return nil, ErrCorrupt
			}
		}
		if number == 0 || number > uint64(len(users)) {
			return nil, ErrCorrupt
		}
		by, id, atMs := users[number-1], in.Text(), int64(in.Uvarint())
		r := Reply{Call: in.Uint64(), Proto: int(in.Byte()), Bytes: bytes.Clone(in.Bytes())}
		if len(r.Bytes) == 0 {
			r.Bytes = nil
		}
		switch {
		case in.Failed(), len(id) == 0, len(id) > MaxID, atMs < lastMs, atMs > nowMs,
			r.Proto != 2 && r.Proto != 3, !wellFormed(r.Bytes),
			c.users[by] != nil && c.users[by].calls[id] != nil:
			return nil, ErrCorrupt
		}
		c.add(by, id, r, atMs)
		if lastMs = atMs; len(c.users[by].calls) > MaxUserCalls || c.bytes > MaxBytes {
			return nil, ErrCorrupt
		}
	}
	if !in.Done() {
		return nil, ErrCorrupt
	}
	return c, nil
}

// wellFormed reports whether a reply can be one that was remembered.
func wellFormed(reply []byte) bool {
	return len(reply) <= MaxReply && resp.Len(reply) == len(reply)
}
