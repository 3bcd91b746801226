package subscriptions

import (
	"encoding/binary"
	"errors"

	"github.com/coordd/coordd/internal/wire"
)

// recordBytes is about how long a record of names is.
const recordBytes = 1 << 20

// ErrCorrupt means that records are not those of any counts.
var ErrCorrupt = errors.New("the counts of subscribers are invalid")

// Records calls f with the encoding: a record with the nodes and how many names of each kind they
// have, then the names in that order, as many to a record as there is room for.
func (c *Counts) Records(f func(record []byte)) {
	head := binary.AppendUvarint(nil, uint64(len(c.nodes)))
	for _, n := range c.nodes {
		head = wire.AppendBytes(head, n.id)
		head = binary.AppendUvarint(head, n.era)
		head = binary.AppendUvarint(head, n.last)
		for _, tree := range n.names {
			size := 0
			if tree != nil {
				size = tree.Len()
			}
			head = binary.AppendUvarint(head, uint64(size))
		}
	}
	f(head)
	var record []byte
	for _, n := range c.nodes {
		for _, tree := range n.names {
			if tree == nil {
				continue
			}
			tree.Scan(func(item name) bool {
				record = binary.AppendUvarint(record, uint64(item.count))
				if record = wire.AppendBytes(record, item.text); len(record) >= recordBytes {
					f(record)
					record = record[:0]
				}
				return true
			})
		}
	}
	if len(record) > 0 {
		f(record)
	}
}

// Restore reads counts from the records that next returns.
func Restore(next func() []byte) (*Counts, error) {
	c, in := &Counts{}, wire.NewCursor(next())
	var sizes [][Kinds]uint64
	for range in.Count(3 + int(Kinds)) {
		n := &node{id: in.Text(), era: in.Uvarint(), last: in.Uvarint()}
		var size [Kinds]uint64
		for kind := range size {
			size[kind] = in.Uvarint()
		}
		if len(c.nodes) > 0 && c.nodes[len(c.nodes)-1].id >= n.id {
			in.Fail()
		}
		c.nodes, sizes = append(c.nodes, n), append(sizes, size)
	}
	if !in.Done() {
		return nil, ErrCorrupt
	}
	for i, n := range c.nodes {
		for kind := range Kinds {
			var last name
			for left := sizes[i][kind]; left > 0; left-- {
				if in.Len() == 0 {
					in = wire.NewCursor(next())
				}
				count := in.Uvarint()
				item := named(kind, in.Text())
				if item.count = int64(count); in.Failed() || item.count <= 0 ||
					n.names[kind] != nil && !before(last, item) || n.bytes > MaxBytes {
					return nil, ErrCorrupt
				}
				if n.names[kind] == nil {
					n.names[kind] = newTree()
				}
				n.names[kind].Load(item)
				n.bytes += item.cost()
				last = item
			}
		}
	}
	if !in.Done() {
		return nil, ErrCorrupt
	}
	return c, nil
}
