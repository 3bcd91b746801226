// The waits that a change of leader has dropped come back in their order: until they have, nobody
// is served, and a blocking command that arrives takes nothing (docs/adr/0040). The nodes send them
// again at once. The leader ends the hold if some do not come: their nodes or clients are gone.

package fsm

import (
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

// came takes off a wait of a node, if there is any.
func (v *nodeCounts) came(node string) {
	if _, there := v.find(node); there {
		v.add(node, -1)
	}
}

// forget removes a node.
func (v *nodeCounts) forget(node string) {
	if at, there := v.find(node); there {
		*v = slices.Delete(*v, at, at+1)
	}
}

// Held reports whether nobody is served until waits are back.
func (m *Machine) Held() bool { return len(m.waiting.returning) > 0 }

// appendTo appends the encoding for a snapshot.
func (v nodeCounts) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	for _, c := range v {
		dst = wire.AppendBytes(dst, c.node)
		dst = binary.AppendUvarint(dst, uint64(c.waits))
	}
	return dst
}

// restore reads what appendTo wrote.
func (v *nodeCounts) restore(c *wire.Cursor) {
	for range c.Count(2) {
		v.add(c.Text(), int(c.Uvarint()))
	}
}
