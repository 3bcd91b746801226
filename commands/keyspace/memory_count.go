// The count of what the data takes, which maxmemory limits. It is an estimate from the contents
// alone, the sum of Entry.Size over all keys, so it is the same on every node, at replay and after
// a restore. Changes keep it up to date: a collection adds up its elements as it adds up their
// hashes in its Sum, and what records a change of an entry counts the difference.

package keyspace

// Overhead besides that of memory.go, in bytes. The Go heap takes 0.25 to 1.2 times what is
// counted, and less for sets of integers.
const (
	// deliveredCost and heldGroupCost are pendingCost and groupCost as measured: MEMORY USAGE keeps
	// its answers at older feature levels.
	deliveredCost = 160
	heldGroupCost = 480
	// onceCost is an id that a producer gave its entry, in its trees
	onceCost = 160
	// nodeCost is a node of a stream. Its names come on top.
	nodeCost = 96
	// A stream holds its trees from the beginning; the others are little more than their elements.
	collectionCost = 80
	streamCost     = 700
	// datedCost is what a hash or a set takes more if an element has a deadline: it has an order of
	// them, does not rest and has a place among such collections.
	datedCost = 128
	// datedMemberCost is the deadline of a member, beside its name.
	datedMemberCost = 64
)

// Size returns the bytes that a key with its value counts.
func (e *Entry) Size() int64 {
	n := keySize(len(e.Key())) + e.valueSize()
	if e.deadline != 0 {
		n += deadlineCost
	}
	return int64(n)
}

func keySize(n int) int { return entryCost + textBytes(n) }

// valueSize returns the counted size of the value.
func (e *Entry) valueSize() int {
	switch {
	case e.boxes():
		return e.box().coll.weigh().counted
	case e.form == rested:
		return e.restedBytes() + collectionCost
	}
	return textBytes(len(e.Bytes()))
}

// weight is the part of each collection that counts its bytes.
type weight struct {
	bytes   int // what the elements take
	counted int // bytes of all that its database has counted; 0: it is not in one
}

func (w *weight) weigh() *weight { return w }

// Size returns what the data counts, bytes. What has expired counts until it is swept.
func (ks *Keyspace) Size() int64 { return ks.bytes }

// count adds n bytes.
func (db *DB) count(n int) {
	db.bytes += int64(n)
	db.ks.bytes += int64(n)
}

// recount counts what a value has grown by, of which before bytes are counted.
func (db *DB) recount(e *Entry, before int) {
	if e.boxes() {
		c := e.box().coll
		w := c.weigh()
		w.counted = w.bytes + baseSize(c)
	}
	if n := e.valueSize() - before; n != 0 {
		db.count(n)
	}
}

// countAll counts an entry of which nothing is counted.
func (db *DB) countAll(e *Entry) {
	db.recount(e, 0)
	db.count(int(e.Size()) - e.valueSize())
}

func baseSize(c Collection) int {
	switch {
	case c.Kind() == KindStream:
		return streamCost
	case ttlsOf(c).Volatile() > 0:
		return collectionCost + datedCost
	}
	return collectionCost
}

// uncount makes the value of e one that no database has counted, whatever it was cloned from.
func (e *Entry) uncount() {
	if e.boxes() {
		e.box().coll.weigh().counted = 0
	}
}

// The sizes of elements.

func fieldSize(f field) int {
	n := fieldCost + textBytes(len(f.name)) + textBytes(len(f.value))
	if f.deadline != 0 {
		n += deadlineCost
	}
	return n
}

func scoredSize(member string) int { return scoredCost + textBytes(len(member)) }

func memberSize(n setName) int {
	size := memberCost + textBytes(len(n.name))
	if n.deadline != 0 {
		size += datedMemberCost
	}
	return size
}

func itemSize(n int) int { return itemCost + textBytes(n) }

func itemsSize(piece []element) (n int) {
	for i := range piece {
		n += itemSize(len(piece[i].value))
	}
	return n
}

func messageSize(e StreamEntry) int { return messageCost + textBytes(e.Size()) }

func nodeSize(n streamNode) int { return nodeCost + textBytes(len(n.names)) }

func consumerSize(name string) int { return readerCost + textBytes(len(name)) }
