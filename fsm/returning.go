// The waits that a change of leader has dropped come back in their order: until they have, nobody
// is served, and a blocking command that arrives takes nothing (docs/adr/0040). The nodes send them
// again at once. The leader ends the hold if some do not come: their nodes or clients are gone.

package fsm

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/coordd/coordd/internal/wire"
)

// nodeCount counts the waits of a node.
type nodeCount struct {
	node  string
	waits int
}

// nodeCounts counts waits by node, in the order of their ids: equal machines give equal snapshots,
// in whatever order the nodes came. A node without any is not there.
type nodeCounts []nodeCount

func (v nodeCounts) find(node string) (at int, there bool) {
	return slices.BinarySearchFunc(v, node, func(c nodeCount, node string) int {
		return strings.Compare(c.node, node)
	})
}

// add adds waits of a node.
func (v *nodeCounts) add(node string, waits int) {
	at, there := v.find(node)
	if !there {
		*v = slices.Insert(*v, at, nodeCount{node: node})
	}
	if (*v)[at].waits += waits; (*v)[at].waits == 0 {
		*v = slices.Delete(*v, at, at+1)
	}
}

// forget removes a node.
func (v *nodeCounts) forget(node string) {
	if at, there := v.find(node); there {
		*v = slices.Delete(*v, at, at+1)
	}
}

// sum counts the waits of all nodes.
func (v nodeCounts) sum() (n int) {
	for _, c := range v {
		n += c.waits
	}
	return n
}

// returning are the waits that terms have dropped, and that are not kept again.
type returning struct {
	counts nodeCounts
	waits  []droppedWait // in order; also some that are back
}

// droppedWait is a wait that a term has dropped. Its order names it: its node may send it again
// under several numbers.
type droppedWait struct {
	order uint64
	node  string // "" once it is back
}

// expect adds the waits of a term that ends.
func (r *returning) expect(all []*waiter) {
	old := r.waits
	r.waits = make([]droppedWait, 0, len(old)+len(all))
	add := func(d droppedWait) {
		n := len(r.waits)
		if d.node != "" && (n == 0 || r.waits[n-1].order != d.order) {
			r.waits = append(r.waits, d)
		}
	}
	r.counts = nil
	for _, w := range all {
		for len(old) > 0 && old[0].order < w.order {
			add(old[0])
			old = old[1:]
		}
		add(droppedWait{w.order, w.node})
	}
	for _, d := range old {
		add(d)
	}
	for _, d := range r.waits {
		r.counts.add(d.node, 1)
	}
}

// came notes that a wait of a node is back, however often it comes.
func (r *returning) came(node string, order uint64) {
	at, there := slices.BinarySearchFunc(r.waits, order, func(d droppedWait, order uint64) int {
		return cmp.Compare(d.order, order)
	})
	if there && r.waits[at].node == node {
		r.waits[at].node = ""
		if r.counts.add(node, -1); len(r.counts) == 0 {
			r.waits = nil
		}
	}
}

// forget expects no wait of a node any more. It returns how many waits it had to look at: not those
// that are back, of which a restored machine knows nothing.
func (r *returning) forget(node string) (looked int) {
	looked = r.counts.sum()
	r.counts.forget(node)
	if len(r.counts) == 0 {
		r.waits = nil
	}
	for i := range r.waits {
		if r.waits[i].node == node {
			r.waits[i].node = ""
		}
	}
	return looked
}

// Held reports whether nobody is served until waits are back.
func (m *Machine) Held() bool { return len(m.waiting.returning.counts) > 0 }

// freeze returns what appendTo needs, while the machine goes on.
func (r *returning) freeze() returning { return returning{waits: slices.Clone(r.waits)} }

// appendTo appends the encoding for a snapshot: each wait with the distance from the order before.
func (r *returning) appendTo(dst []byte) []byte {
	last := uint64(0)
	for _, d := range r.waits {
		if d.node != "" {
			dst = binary.AppendUvarint(dst, d.order-last)
			dst = wire.AppendBytes(dst, d.node)
			last = d.order
		}
	}
	return dst
}

// restore reads what appendTo wrote, the rest of c.
func (r *returning) restore(c *wire.Cursor) {
	last := uint64(0)
	for c.Len() > 0 && !c.Failed() {
		d := droppedWait{last + c.Uvarint(), c.Text()}
		if d.order <= last || d.node == "" {
			c.Fail()
			return
		}
		r.waits, last = append(r.waits, d), d.order
		r.counts.add(d.node, 1)
	}
}
