package leases

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tidwall/btree"

	"github.com/coordd/coordd/internal/wire"
)

// recordBytes is about how long a record is.
const recordBytes = 1 << 20

// databases is how many databases there may be.
const databases = 16

// ErrCorrupt means that records are not those of any registry.
var ErrCorrupt = errors.New("the leases are invalid")

// Frozen is what a registry was when it was frozen.
type Frozen struct {
	last   uint64
	leases *btree.BTreeG[*Lease]
}

// Freeze returns a copy that does not change, in constant time.
func (r *Registry) Freeze() *Frozen {
	f := &Frozen{r.last, r.leases.Copy()}
	r.gen++
	return f
}

// Records calls f with the encoding: the id of the newest lease, how many there are, and each with
// its items behind it, as many to a record as there is room for.
func (z *Frozen) Records(f func(record []byte)) {
	record := binary.AppendUvarint(nil, z.last)
	record = binary.AppendUvarint(record, uint64(z.leases.Len()))
	next := func() {
		if len(record) >= recordBytes {
			f(record)
			record = record[:0]
		}
	}
	z.leases.Scan(func(l *Lease) bool {
		next()
		record = l.appendTo(record)
		for i := range l.items {
			next()
			record = l.items[i].appendTo(record)
		}
		return true
	})
	if len(record) > 0 {
		f(record)
	}
}

func (l *Lease) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, l.ID)
	for _, ms := range [...]int64{l.TTLMs, l.UntilMs, l.DelayMs, l.GraceMs, l.GraceUntilMs} {
		dst = binary.AppendUvarint(dst, uint64(ms))
	}
	dst = wire.AppendBytes(dst, l.User)
	dst = binary.AppendUvarint(dst, l.Created)
	dst = wire.AppendBytes(dst, l.Connection.Node)
	dst = binary.AppendUvarint(dst, l.Connection.ID)
	dst = wire.AppendBool(dst, l.Closed)
	return binary.AppendUvarint(dst, uint64(len(l.items)))
}

func (i *Item) appendTo(dst []byte) []byte {
	dst = wire.AppendBytes(append(dst, byte(i.DB)), i.Key)
	dst = wire.AppendBytes(dst, i.Member)
	return binary.AppendUvarint(dst, i.Created)
}

// Restore reads a registry from the records that next returns.
func Restore(next func() []byte) (*Registry, error) {
	r, in := New(), wire.NewCursor(next())
	last := in.Uvarint()
	before := uint64(0)
	for left := in.Uvarint(); left > 0; left-- {
		if in.Len() == 0 {
			in = wire.NewCursor(next())
		}
		l, items := readLease(&in)
		if l.ID <= before {
			in.Fail()
		}
		for ; items > 0 && !in.Failed(); items-- {
			if in.Len() == 0 {
				in = wire.NewCursor(next())
			}
			i := readItem(&in)
			if _, owned := r.owners[i.place()]; owned || len(l.items) == MaxItems ||
				len(l.items) > 0 && compareItems(l.items[len(l.items)-1], i) >= 0 {
				in.Fail()
			}
			l.items = append(l.items, i)
		}
		if in.Failed() {
			return nil, ErrCorrupt
		}
		l.items = slices.Clip(l.items)
		r.enter(l)
		before = l.ID
	}
	if r.last = last; !in.Done() || last == 0 || before > last {
		return nil, ErrCorrupt
	}
	return r, nil
}

// readLease reads a lease without its items, and how many they are.
func readLease(in *wire.Cursor) (l *Lease, items uint64) {
	l = &Lease{ID: in.Uvarint()}
	for _, ms := range [...]*int64{&l.TTLMs, &l.UntilMs, &l.DelayMs, &l.GraceMs,
		&l.GraceUntilMs} {
		if *ms = int64(in.Uvarint()); *ms < 0 {
			in.Fail()
		}
	}
	l.User, l.Created = in.Text(), in.Uvarint()
	l.Connection = Connection{in.Text(), in.Uvarint()}
	closed := in.Byte()
	l.Closed = closed == 1
	items = in.Uvarint()
	bound := l.Connection.Node != ""
	if closed > 1 || l.TTLMs == 0 || bound != (l.Connection.ID != 0) || items > MaxItems ||
		!bound && l.GraceMs|l.GraceUntilMs != 0 || l.Closed && l.GraceUntilMs == 0 {
		in.Fail()
	}
	return l, items
}

func readItem(in *wire.Cursor) Item {
	i := Item{DB: int(in.Byte()), Key: in.Text(), Member: in.Text(), Created: in.Uvarint()}
	if i.DB >= databases {
		in.Fail()
	}
	return i
}
