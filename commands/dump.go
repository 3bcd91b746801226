// DUMP: values in Redis's RDB format (docs/adr/0036). It writes the plain forms of values, one
// element after the other, which every version of Redis reads and turns into its own.

package commands

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/rdb"
)

// Versions of the format.
const (
	rdbVersion        = 10 // Redis 7.0's, which is written
	rdbFieldsVersion  = 12 // Redis 7.4's, written for hashes whose fields expire
	rdbMembersVersion = 17 // Redis 8.12's, written for sets whose members expire
	rdbNewest         = 17 // that is read
)

// Types of values.
const (
	rdbString          = 0
	rdbList            = 1
	rdbSet             = 2
	rdbOldZSet         = 3
	rdbHash            = 4
	rdbZSet            = 5
	rdbZipmapHash      = 9
	rdbZiplistList     = 10
	rdbIntset          = 11
	rdbZiplistZSet     = 12
	rdbZiplistHash     = 13
	rdbQuicklist       = 14 // made of ziplists
	rdbStream          = 15 // since Redis 5.0
	rdbListpackHash    = 16
	rdbListpackZSet    = 17
	rdbQuicklist2      = 18
	rdbStream2         = 19 // since Redis 7.0
	rdbListpackSet     = 20
	rdbStream3         = 21 // since Redis 7.2
	rdbFieldsHash      = 24 // with fields that expire
	rdbFieldsListpack  = 25
	rdbMembersListpack = 34 // a set, with members that expire
	rdbMembersSet      = 35
)

var dumpSpecs = []Spec{
	{Name: "dump", Kind: Read, Arity: 2, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "generic", Since: "2.6.0",
		Syntax:     "key",
		Summary:    "Returns the value of a key in the form that RESTORE takes.",
		Complexity: "O(N) where N is the size of the value", Handler: dumpCommand},
	{Name: "restore", Kind: Write, Arity: -4, Flags: DenyOOM, Level: LevelSecond,
		Keys: collectionKey.does(KeyOW | KeyUpdate), Group: "generic", Since: "2.6.0",
		OwnCategories: "keyspace dangerous",
		Syntax: "key ttl:integer serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds:integer] " +
			"[FREQ frequency:integer]",
		Summary:    "Creates a key from a value of DUMP, of coordd or of Redis.",
		Complexity: "O(N log(N)) for sorted sets, else O(N), where N is the number of elements",
		Handler:    restoreCommand},
}

// dumpSpent is how many bytes of a value a unit of work writes.
const dumpSpent = 4

func dumpCommand(x *Call) error {
	e := x.find(x.Args[1])
	if e == nil {
		x.Out.Null()
		return nil
	}
	size := int(e.Size())
	x.Expect(1, size/8) // at least
	x.Spend(size / dumpSpent)
	b, version := x.dump(e)
	x.Out.Bulk(rdb.Seal(b, version))
	return nil
}

// dump writes the type and the value of an entry.
func (x *Call) dump(e *keyspace.Entry) (b []byte, version uint16) {
	version = rdbVersion
	switch c := e.Collection().(type) {
	case nil:
		b = appendNumberOrText([]byte{rdbString}, e.Bytes())
	case *keyspace.List:
		b = rdb.AppendLength([]byte{rdbList}, uint64(c.Len()))
		c.Range(0, c.Len()-1, func(value string) bool {
			b = rdb.AppendText(b, value)
			return true
		})
	case *keyspace.Set: //set: charged by its size, dead members and all
		if c.Lasting() {
			return x.dumpMembers(c), rdbMembersVersion
		}
		b = rdb.AppendLength([]byte{rdbSet}, uint64(c.Len()))
		c.Each(func(member string) bool {
			b = rdb.AppendText(b, member)
			return true
		})
	case *keyspace.ZSet:
		b = rdb.AppendLength([]byte{rdbZSet}, uint64(c.Len()))
		c.Range(0, c.Len()-1, func(s keyspace.Scored) bool {
			b = rdb.AppendText(b, s.Member)
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Score))
			return true
		})
	case *keyspace.Hash: //hash: charged by its size, dead fields and all
		if c.Lasting() {
			return x.dumpFields(c), rdbFieldsVersion
		}
		b = rdb.AppendLength([]byte{rdbHash}, uint64(c.Len()))
		c.Each(func(name string, value []byte) bool {
			b = rdb.AppendText(rdb.AppendText(b, name), value)
			return true
		})
	case *keyspace.Stream:
		b = x.dumpStream(c)
	}
	return b, version
}

// appendNumberOrText writes a string, a number as such: Redis would otherwise not recognize it as
// one that can be shared and counted cheaply.
func appendNumberOrText(b, text []byte) []byte {
	n, ok := ParseInt(text)
	if !ok || len(text) > 11 || n != int64(int32(n)) || strconv.FormatInt(n, 10) != string(text) {
		return rdb.AppendText(b, text)
	}
	return rdb.AppendInt(b, int32(n))
}

// dumpFields writes a hash with fields that expire.
func (x *Call) dumpFields(h *keyspace.Hash) []byte {
	return x.dumpElements(rdbFieldsHash, h, h.Each)
}

// dumpMembers writes a set with members that expire.
func (x *Call) dumpMembers(s *keyspace.Set) []byte {
	return x.dumpElements(rdbMembersSet, s, func(f func(name string, value []byte) bool) {
		s.Each(func(member string) bool { return f(member, nil) })
	})
}

// dumpElements writes a collection with elements that expire: the earliest deadline, then each
// element after its distance from that plus 1; 0: it does not expire. each is Each, with the values
// of a hash.
func (x *Call) dumpElements(kind byte, c mortal,
	each func(f func(name string, value []byte) bool)) []byte {
	// what RESTORE takes: the time of day may have been set ahead since
	wall := func(atMs int64) int64 { return min(x.WallAt(atMs), maxElementTTLMs) }
	first := int64(math.MaxInt64)
	each(func(name string, _ []byte) bool {
		if at, _ := c.Deadline([]byte(name)); at != 0 {
			first = min(first, wall(at))
		}
		return true
	})
	b := binary.LittleEndian.AppendUint64([]byte{kind}, uint64(first))
	b = rdb.AppendLength(b, uint64(c.Len()))
	each(func(name string, value []byte) bool {
		distance := uint64(0)
		if at, _ := c.Deadline([]byte(name)); at != 0 {
			distance = uint64(wall(at)-first) + 1
		}
		b = rdb.AppendText(rdb.AppendLength(b, distance), name)
		if kind == rdbFieldsHash {
			b = rdb.AppendText(b, value)
		}
		return true
	})
	return b
}

// A node of a dumped stream has at most so many entries, and bytes unless it has one entry.
const (
	dumpedEntries = 100
	dumpedBytes   = 4096
)

// dumpStream writes a stream: its entries in nodes, its counters and its groups.
func (x *Call) dumpStream(s *keyspace.Stream) []byte {
	var nodes []byte
	count := uint64(0)
	var entries []keyspace.StreamEntry
	size := 0
	flush := func() {
		if len(entries) > 0 {
			nodes = appendStreamNode(nodes, entries)
			count++
			entries, size = entries[:0], 0
		}
	}
	s.Range(keyspace.StreamID{}, keyspace.MaxStreamID, func(e keyspace.StreamEntry) bool {
		if len(entries) == dumpedEntries || size+e.Size() > dumpedBytes {
			flush()
		}
		entries = append(entries, e)
		size += e.Size()
		return true
	})
	flush()
	b := append(rdb.AppendLength([]byte{rdbStream2}, count), nodes...)
	b = rdb.AppendLength(b, uint64(s.Len()))
	first, _ := s.First()
	for _, id := range []keyspace.StreamID{s.Last(), first.ID, s.Tombstone()} {
		b = rdb.AppendLength(rdb.AppendLength(b, id.Ms), id.Seq)
	}
	b = rdb.AppendLength(b, s.Added())
	b = rdb.AppendLength(b, uint64(s.Groups()))
	s.EachGroup(func(g *keyspace.Group) { b = x.appendGroup(b, g) })
	return b
}

// Flags of an entry in a node of a stream.
const (
	streamDeleted    = 1
	streamSameFields = 2 // as the node's first entry: only values follow
)

// appendStreamNode writes entries as a node: the first id, then a listpack. It begins with the
// number of entries, the number of those that were deleted, and the names of the first entry's
// fields.
func appendStreamNode(b []byte, entries []keyspace.StreamEntry) []byte {
	master := entries[0].ID
	names := streamNames(entries[0])
	w := &rdb.ListpackWriter{}
	w.Int(int64(len(entries)))
	w.Int(0)
	w.Int(int64(len(names)))
	for _, name := range names {
		w.Text(name)
	}
	w.Int(0)
	for _, e := range entries {
		same := slices.EqualFunc(names, streamNames(e), bytes.Equal)
		flags, elements := int64(0), int64(e.Fields())
		if same {
			flags, elements = streamSameFields, elements/2
		} else {
			elements++ // the number of fields
		}
		w.Int(flags)
		w.Int(int64(e.ID.Ms - master.Ms))
		w.Int(int64(e.ID.Seq - master.Seq))
		if !same {
			w.Int(int64(e.Fields() / 2))
		}
		at := 0
		e.Each(func(text []byte) {
			if !same || at%2 == 1 {
				w.Text(text)
			}
			at++
		})
		w.Int(elements + 3) // to read backwards
	}
	id := binary.BigEndian.AppendUint64(nil, master.Ms)
	b = rdb.AppendText(b, binary.BigEndian.AppendUint64(id, master.Seq))
	return rdb.AppendText(b, w.Bytes())
}

// streamNames returns the names of an entry's fields.
func streamNames(e keyspace.StreamEntry) (names [][]byte) {
	at := 0
	e.Each(func(text []byte) {
		if at%2 == 0 {
			names = append(names, text)
		}
		at++
	})
	return names
}

// appendGroup writes a consumer group. What XNACK released belongs to nobody, which the format
// cannot say: it is given to the consumer without a name.
func (x *Call) appendGroup(b []byte, g *keyspace.Group) []byte {
	b = rdb.AppendText(b, g.Name())
	b = rdb.AppendLength(rdb.AppendLength(b, g.Last().Ms), g.Last().Seq)
	b = rdb.AppendLength(b, uint64(g.Reads()))
	b = rdb.AppendLength(b, uint64(g.Pending()))
	appendID := func(id keyspace.StreamID) {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, id.Ms), id.Seq)
	}
	g.EachPending(keyspace.StreamID{}, func(p keyspace.Pending) bool {
		appendID(p.ID)
		deliveredMs := int64(0)
		if !p.Released() {
			deliveredMs = x.WallAt(p.DeliveredMs)
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(deliveredMs))
		b = rdb.AppendLength(b, uint64(p.Deliveries))
		return true
	})
	var released []keyspace.StreamID
	g.EachPending(keyspace.StreamID{}, func(p keyspace.Pending) bool {
		if p.Released() {
			released = append(released, p.ID)
		}
		return true
	})
	consumers := g.Consumers()
	nobody, known := g.Consumer(nil)
	if len(released) > 0 && !known {
		consumers++
	}
	b = rdb.AppendLength(b, uint64(consumers))
	appendConsumer := func(c keyspace.Consumer, more []keyspace.StreamID) {
		b = rdb.AppendText(b, c.Name)
		b = binary.LittleEndian.AppendUint64(b, uint64(x.WallAt(c.SeenMs)))
		b = rdb.AppendLength(b, uint64(c.Pending+len(more)))
		g.EachPendingOf([]byte(c.Name), keyspace.StreamID{}, func(p keyspace.Pending) bool {
			appendID(p.ID)
			return true
		})
		for _, id := range more {
			appendID(id)
		}
	}
	if len(released) > 0 || known { // the first by name
		appendConsumer(nobody, released)
	}
	g.EachConsumer(func(c keyspace.Consumer) {
		if c.Name != "" {
			appendConsumer(c, nil)
		}
	})
	return b
}
