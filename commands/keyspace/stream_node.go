// The layout of stream entries in nodes. Redis groups up to 100 entries, of up to about 4096 bytes,
// into a node, and XADD and XTRIM with ~ remove whole nodes. So which entries remain depends on
// where nodes start. Here entries are in a tree and need no nodes, so only what decides where a
// node ends is stored: its number of entries, and the size of Redis's listpack of them.
//
// The sizes are those of Redis's listpack format (https://github.com/antirez/listpack, listpack.md)
// with stream-node-max-bytes and stream-node-max-entries at their defaults.

package keyspace

import (
	"bytes"
	"strconv"

	"github.com/coordd/coordd/commands/rdb"
)

const (
	nodeBytes   = 4096
	nodeEntries = 100
)

// streamNode is a range of entries that Redis would store in one node.
type streamNode struct {
	// ids of its first and last entry, deleted or not
	first, last StreamID
	live, dead  int    // existing and deleted entries
	size        int    // bytes of Redis's listpack
	names       []byte // packed names of its first entry; entries with the same names are smaller
}

func streamNodeLess(a, b streamNode) bool { return a.first.Less(b.first) }

// nodeOf returns the node of an entry that exists or was just deleted.
func (s *Stream) nodeOf(id StreamID) (n streamNode) {
	s.nodes.Descend(streamNode{first: id}, func(found streamNode) bool {
		n = found
		return false
	})
	return n
}

// layOut adds a new entry to the last node, or to a new one if that is full.
func (s *Stream) layOut(id StreamID, texts [][]byte) {
	n, ok := s.nodes.Max()
	length := 0
	for _, t := range texts {
		length += len(t)
	}
	if !ok || n.size+length >= nodeBytes || n.live+n.dead >= nodeEntries {
		if ok && !n.last.Less(id) && !s.loose { // after SetLast, the id of a deleted entry
			n.last = s.last
			s.setNode(n)
		}
		n = newStreamNode(id, texts)
	}
	n.add(id, texts)
	s.setNode(n)
}

// setNode puts a node in the place of the one with the same first id, if there is one: XSETID lets
// a new node begin where one whose entries were all deleted did.
func (s *Stream) setNode(n streamNode) {
	if old, ok := s.nodes.Set(n); ok {
		s.bytes -= nodeSize(old)
	}
	s.bytes += nodeSize(n)
}

// dropNode removes a node.
func (s *Stream) dropNode(n streamNode) {
	if old, ok := s.nodes.Delete(n); ok {
		s.bytes -= nodeSize(old)
	}
}

// listpackFrame is the size of an empty listpack.
const listpackFrame = 7

// newStreamNode returns an empty node with the head that the first entry, given here, decides.
func newStreamNode(id StreamID, texts [][]byte) streamNode {
	n := streamNode{first: id}
	names := make([][]byte, 0, len(texts)/2)
	n.size = listpackFrame + 2*numberSize(0) + numberSize(int64(len(texts)/2)) + numberSize(0)
	for i := 0; i < len(texts); i += 2 {
		names = append(names, texts[i])
		n.size += textSize(texts[i])
	}
	n.names = pack(names)
	return n
}

// add adds the size of an entry.
func (n *streamNode) add(id StreamID, texts [][]byte) {
	const flags = 0
	pieces := 3 + len(texts)/2 // Redis's elements: flags, two parts of the id, values
	n.size += numberSize(flags) + numberSize(int64(id.Ms-n.first.Ms)) +
		numberSize(int64(id.Seq-n.first.Seq))
	same := n.sameNames(texts)
	if !same {
		n.size += numberSize(int64(len(texts) / 2))
		pieces += len(texts)/2 + 1
	}
	for i, t := range texts {
		if i%2 == 1 || !same {
			n.size += textSize(t)
		}
	}
	n.size += numberSize(int64(pieces))
	n.last = id
	n.live++
}

func (n *streamNode) sameNames(texts [][]byte) bool {
	names := StreamEntry{packed: n.names}
	if names.Fields() != len(texts)/2 {
		return false
	}
	i, same := 0, true
	names.Each(func(name []byte) {
		same = same && bytes.Equal(name, texts[i])
		i += 2
	})
	return same
}

// numberSize returns the size of a number in a listpack.
func numberSize(n int64) int {
	switch {
	case 0 <= n && n < 1<<7:
		return 2
	case -1<<12 <= n && n < 1<<12:
		return 3
	case -1<<15 <= n && n < 1<<15:
		return 4
	case -1<<23 <= n && n < 1<<23:
		return 5
	case -1<<31 <= n && n < 1<<31:
		return 6
	}
	return 10
}

// textSize returns the size of a text in a listpack, which stores a text that is a number as a
// number.
func textSize(t []byte) int {
	if len(t) <= 20 {
		if n, err := strconv.ParseInt(view(t), 10, 64); err == nil &&
			strconv.FormatInt(n, 10) == string(t) {
			return numberSize(n)
		}
	}
	size := len(t)
	switch {
	case size < 1<<6:
		size++
	case size < 1<<12:
		size += 2
	default:
		size += 5
	}
	return size + rdb.BackLength(size)
}

// Nodes returns the number of nodes.
func (s *Stream) Nodes() int { return s.nodes.Len() }

// RadixNodes returns the number of nodes of the radix tree in which Redis stores a stream's nodes,
// by their first ids. It takes a multiple of Nodes steps.
func (s *Stream) RadixNodes() int {
	ids := make([][16]byte, 0, s.nodes.Len())
	s.nodes.Scan(func(n streamNode) bool {
		ids = append(ids, n.first.bigEndian())
		return true
	})
	if len(ids) == 0 {
		return 1
	}
	return radixNodes(ids, 0)
}

// radixNodes returns the number of nodes of a radix tree of sorted ids that share their first depth
// bytes.
func radixNodes(ids [][16]byte, depth int) int {
	if len(ids) == 1 {
		if depth == len(ids[0]) {
			return 1 // a leaf
		}
		return 2 // a chain of bytes and its leaf
	}
	count, fork := 1, depth
	first, last := ids[0], ids[len(ids)-1]
	for first[fork] == last[fork] {
		fork++
	}
	if fork > depth {
		count++
	}
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n][fork] == ids[0][fork] {
			n++
		}
		count += radixNodes(ids[:n], fork+1)
		ids = ids[n:]
	}
	return count
}
