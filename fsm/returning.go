// The waits that a change of leader has dropped come back in their order: until they have, nobody
// is served, and a blocking command that arrives takes nothing (docs/adr/0040). The nodes send them
// again at once. The leader ends the hold if some do not come: their nodes or clients are gone.

package fsm

import (
	"encoding/binary"
	"slices"

	"github.com/coordd/coordd/internal/wire"
)

// returning counts the waits of each node that are still to come back, in the order in which the
// nodes came. While there are any, serving is held. It is part of the state.
type returning []nodeCount

// expect adds waits of a node, which were dropped.
func (v *returning) expect(node string, waiters int) {
	for i := range *v {
		if (*v)[i].node == node {
			(*v)[i].waiters += waiters
			return
		}
	}
	*v = append(*v, nodeCount{node, waiters})
}

// came notes that a wait of a node is back.
func (v *returning) came(node string) {
	at := slices.IndexFunc(*v, func(c nodeCount) bool { return c.node == node })
	if at < 0 {
		return
	}
	if (*v)[at].waiters--; (*v)[at].waiters == 0 {
		v.forget(node)
	}
}

// forget expects nothing more of a node.
func (v *returning) forget(node string) {
	*v = slices.DeleteFunc(*v, func(c nodeCount) bool { return c.node == node })
}

// Held reports whether nobody is served until waits are back.
func (m *Machine) Held() bool { return len(m.waiting.returning) > 0 }

// appendTo appends the encoding for a snapshot.
func (v returning) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	for _, c := range v {
		dst = wire.AppendBytes(dst, c.node)
		dst = binary.AppendUvarint(dst, uint64(c.waiters))
	}
	return dst
}

// restore reads what appendTo wrote.
func (v *returning) restore(c *wire.Cursor) {
	for range c.Count(2) {
		v.expect(c.Text(), int(c.Uvarint()))
	}
}
