// Consumer groups of a stream, and their pending entries: those delivered and not acknowledged.

package keyspace

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// UnknownReads is a count of entries that cannot be known.
const UnknownReads = -1

// Group is a consumer group. It delivers each entry to one consumer. Groups from Stream.Group are
// for reading only; those from EditGroup or CreateGroup may change until the stream is cloned.
type Group struct {
	stream   *Stream // has the sum to update; valid in a group that may change
	owner    *owner
	name     string
	nameHash uint64
	last     StreamID
	reads    int64

	consumers *btree.BTreeG[Consumer] // by name
	pending   *btree.BTreeG[Pending]  // by id
	owned     *btree.BTreeG[ownedID]  // also by consumer and id
	sum       uint64                  // the group's part in the stream's sum
	bytes     int                     // its part in what the stream counts

	// Hints to the last changes: those of one command are mostly adjacent.
	pendingHint, comeHint, goneHint btree.PathHint
}

// Consumer is one member of a group.
type Consumer struct {
	Name    string
	SeenMs  int64 // when it last read, ms of the cluster clock
	Pending int   // entries delivered to it and not acknowledged
	// when entries last became pending for it, or NeverActive. Below commands.LevelSecond nobody
	// knows, and it is SeenMs.
	ActiveMs int64
}

// NeverActive is Consumer.ActiveMs of one that has got no entry yet.
const NeverActive = math.MinInt64 + 1

// Pending is an entry that was delivered to a consumer and not acknowledged. It may have been
// deleted from the stream since. Once XNACK released it, it has no consumer.
type Pending struct {
	ID       StreamID
	Consumer string
	// when it was last delivered, ms of the cluster clock; XCLAIM can make it negative
	DeliveredMs int64
	Deliveries  int64
}

// releasedMs is DeliveredMs of a released entry. No clock or XCLAIM goes back so far.
const releasedMs = math.MinInt64

// Released reports whether no consumer owns the entry.
func (p Pending) Released() bool { return p.DeliveredMs == releasedMs }

// isOf reports whether a consumer, whose name may be empty, owns the entry.
func (p Pending) isOf(consumer string) bool { return p.Consumer == consumer && !p.Released() }

type ownedID struct {
	consumer string
	id       StreamID
}

func consumerLess(a, b Consumer) bool { return a.Name < b.Name }
func pendingLess(a, b Pending) bool   { return a.ID.Less(b.ID) }

func ownedLess(a, b ownedID) bool {
	if a.consumer != b.consumer {
		return a.consumer < b.consumer
	}
	return a.id.Less(b.id)
}

func groupLess(a, b *Group) bool { return a.name < b.name }

// Groups returns the number of groups.
func (s *Stream) Groups() int { return s.groups.Len() }

// EachGroup calls f with every group, ordered by name, for reading.
func (s *Stream) EachGroup(f func(*Group)) {
	s.groups.Scan(func(g *Group) bool {
		f(g)
		return true
	})
}

// Group returns a group for reading, or nil.
func (s *Stream) Group(name []byte) *Group {
	g, _ := s.groups.Get(&Group{name: view(name)})
	return g
}

// EditGroup returns a group that may be changed, or nil.
func (s *Stream) EditGroup(name []byte) *Group {
	g := s.Group(name)
	if g == nil {
		return nil
	}
	return s.editGroup(g)
}

// editGroup is EditGroup for a group that was looked up.
func (s *Stream) editGroup(g *Group) *Group {
	if g.owner != s.owner {
		c := *g
		c.stream, c.owner = s, s.owner
		c.consumers, c.pending, c.owned = g.consumers.IsoCopy(), g.pending.IsoCopy(),
			g.owned.IsoCopy()
		g = &c
		s.groups.Set(g)
	}
	return g
}

// CreateGroup creates a group that has read entries up to last, or returns nil if the name is
// taken. reads is the number of these entries, or UnknownReads.
func (s *Stream) CreateGroup(name []byte, last StreamID, reads int64) *Group {
	if s.Group(name) != nil {
		return nil
	}
	g := &Group{
		stream: s, owner: s.owner, name: string(name), nameHash: xxhash.Sum64(name), last: last,
		reads:     reads,
		consumers: newTree(consumerLess), pending: newTree(pendingLess), owned: newTree(ownedLess),
	}
	s.groups.Set(g)
	g.mix(g.positionSum())
	g.count(heldGroupCost + textBytes(len(name)))
	return g
}

// DestroyGroup removes a group and reports whether it existed.
func (s *Stream) DestroyGroup(name []byte) bool {
	g, ok := s.groups.Delete(&Group{name: view(name)})
	if ok {
		s.sum ^= g.sum
		s.bytes -= g.bytes
	}
	return ok
}

// Lag returns how many entries the group has not read yet, if that is known: what XINFO shows. It
// is negative if ENTRIESREAD was set too high.
func (s *Stream) Lag(g *Group) (lag int64, known bool) {
	if s.added == 0 {
		return 0, true
	}
	reads := g.reads
	if reads == UnknownReads || s.tombstonesFrom(g.last) {
		if reads = s.ReadsTo(g.last); reads == UnknownReads {
			return 0, false
		}
	}
	return int64(s.added) - reads, true
}

// Name returns the group's name.
func (g *Group) Name() string { return g.name }

// Last returns the id up to which entries were delivered.
func (g *Group) Last() StreamID { return g.last }

// Reads returns how many entries were delivered, or UnknownReads.
func (g *Group) Reads() int64 { return g.reads }

// Consumers returns the number of consumers.
func (g *Group) Consumers() int { return g.consumers.Len() }

// Pending returns the number of pending entries.
func (g *Group) Pending() int { return g.pending.Len() }

// Released returns the number of pending entries without a consumer.
func (g *Group) Released() int { return g.pending.Len() - g.owned.Len() }

// mix folds a part that was added or removed into the sums.
func (g *Group) mix(part uint64) {
	g.sum ^= part
	g.stream.sum ^= part
}

// count adds n bytes to what the group and its stream count.
func (g *Group) count(n int) {
	g.bytes += n
	g.stream.bytes += n
}

// The parts of a group in the sum: its position, each consumer, each pending entry. A leading
// number distinguishes them.

func (g *Group) positionSum() uint64 {
	var buf [64]byte
	b := g.last.appendTo(append(buf[:0], 1))
	return pairSum(g.nameHash, xxhash.Sum64(binary.AppendVarint(b, g.reads)))
}

func (g *Group) consumerSum(c Consumer) uint64 {
	var buf [64]byte
	b := binary.AppendVarint(append(buf[:0], 2), c.SeenMs)
	if c.ActiveMs != c.SeenMs {
		b = binary.AppendVarint(binary.AppendVarint(append(buf[:0], 4), c.SeenMs), c.ActiveMs)
	}
	return pairSum(g.nameHash, xxhash.Sum64(append(b, c.Name...)))
}

func (g *Group) pendingSum(p Pending) uint64 {
	var buf [128]byte
	b := p.ID.appendTo(append(buf[:0], 3))
	b = binary.AppendVarint(b, p.DeliveredMs)
	b = binary.AppendVarint(b, p.Deliveries)
	return pairSum(g.nameHash, xxhash.Sum64(append(b, p.Consumer...)))
}

// SetPosition sets the id up to which entries were delivered, and the number of these.
func (g *Group) SetPosition(last StreamID, reads int64) {
	g.mix(g.positionSum())
	g.last, g.reads = last, reads
	g.mix(g.positionSum())
}

// Advance moves the position to an entry that is being delivered, unless it is already past it.
func (g *Group) Advance(id StreamID) {
	if !g.last.Less(id) {
		return
	}
	reads := g.reads
	if reads != UnknownReads && !g.stream.tombstonesFrom(id) {
		reads++
	} else if g.stream.added > 0 {
		reads = g.stream.ReadsTo(id)
	}
	g.SetPosition(id, reads)
}

// Consumer returns a consumer.
func (g *Group) Consumer(name []byte) (c Consumer, ok bool) {
	return g.consumers.Get(Consumer{Name: view(name)})
}

// EachConsumer calls f with every consumer, ordered by name.
func (g *Group) EachConsumer(f func(Consumer)) {
	g.consumers.Scan(func(c Consumer) bool {
		f(c)
		return true
	})
}

// See records that a consumer read at nowMs, creates it if missing, and reports whether it is new.
// active says that entries become pending for it.
func (g *Group) See(name []byte, nowMs int64, active bool) (created bool) {
	c, exists := g.Consumer(name)
	if exists {
		g.mix(g.consumerSum(c))
	} else {
		c.Name, c.ActiveMs = string(name), NeverActive
		g.count(consumerSize(c.Name))
	}
	if c.SeenMs = nowMs; active {
		c.ActiveMs = nowMs
	}
	g.mix(g.consumerSum(c))
	g.consumers.Set(c)
	return !exists
}

// RemoveConsumer removes a consumer and its pending entries.
func (g *Group) RemoveConsumer(name []byte) {
	c, ok := g.consumers.Delete(Consumer{Name: view(name)})
	if !ok {
		return
	}
	g.mix(g.consumerSum(c))
	g.count(-consumerSize(c.Name) - c.Pending*deliveredCost)
	if RebuildCheaper(c.Pending, g.pending.Len()) {
		g.owned = without(g.owned, ownedLess, c.Pending, func(o ownedID) bool {
			return o.consumer == c.Name
		})
		g.pending.Scan(func(p Pending) bool {
			if p.isOf(c.Name) {
				g.mix(g.pendingSum(p))
			}
			return true
		})
		g.pending = without(g.pending, pendingLess, c.Pending, func(p Pending) bool {
			return p.isOf(c.Name)
		})
		return
	}
	for range c.Pending {
		o, _ := g.nextOwned(c.Name, StreamID{})
		g.owned.DeleteHint(o, &g.goneHint)
		p, _ := g.pending.DeleteHint(Pending{ID: o.id}, &g.pendingHint)
		g.mix(g.pendingSum(p))
	}
}

// FindPending returns the pending entry with an id.
func (g *Group) FindPending(id StreamID) (p Pending, ok bool) {
	return g.pending.Get(Pending{ID: id})
}

// EachPending calls f with the pending entries from start on, ordered by id, until it returns
// false. f must not change the group.
func (g *Group) EachPending(start StreamID, f func(Pending) bool) {
	g.pending.Ascend(Pending{ID: start}, f)
}

// EachPendingOf is EachPending for the pending entries of one consumer.
func (g *Group) EachPendingOf(consumer []byte, start StreamID, f func(Pending) bool) {
	c, ok := g.Consumer(consumer)
	if !ok {
		return
	}
	find := finder(g.pending)
	// by the name that they share: equal pointers make a long one quick to compare
	g.owned.Ascend(ownedID{c.Name, start}, func(o ownedID) bool {
		if o.consumer != c.Name {
			return false
		}
		p, _ := find(Pending{ID: o.id})
		return f(p)
	})
}

// NextPending returns the pending entry with the lowest id from start on.
func (g *Group) NextPending(start StreamID) (p Pending, ok bool) {
	g.pending.Ascend(Pending{ID: start}, func(found Pending) bool {
		p, ok = found, true
		return false
	})
	return p, ok
}

// LastPending returns the pending entry with the highest id.
func (g *Group) LastPending() (p Pending, ok bool) { return g.pending.Max() }

// NextPendingOf returns the pending entry of a consumer with the lowest id from start on.
func (g *Group) NextPendingOf(consumer []byte, start StreamID) (p Pending, ok bool) {
	o, ok := g.nextOwned(view(consumer), start)
	if !ok {
		return Pending{}, false
	}
	return g.pending.Get(Pending{ID: o.id})
}

func (g *Group) nextOwned(consumer string, start StreamID) (o ownedID, ok bool) {
	g.owned.Ascend(ownedID{consumer, start}, func(found ownedID) bool {
		o, ok = found, found.consumer == consumer
		return false
	})
	return o, ok
}

// SetPending makes an entry pending or changes a pending one. The consumer must belong to the
// group.
func (g *Group) SetPending(p Pending) {
	c, _ := g.consumers.Get(Consumer{Name: p.Consumer})
	p.Consumer = c.Name // share one copy, not the caller's bytes
	old, exists := g.put(p)
	if exists && old.isOf(p.Consumer) {
		return
	}
	if exists {
		g.disown(old)
	}
	c.Pending++
	g.consumers.Set(c)
	g.owned.SetHint(ownedID{p.Consumer, p.ID}, &g.comeHint)
}

// Release makes an entry pending without a consumer.
func (g *Group) Release(id StreamID, deliveries int64) {
	old, exists := g.put(Pending{ID: id, DeliveredMs: releasedMs, Deliveries: deliveries})
	if exists {
		g.disown(old)
	}
}

// put adds or replaces a pending entry, but not at its consumer.
func (g *Group) put(p Pending) (old Pending, exists bool) {
	old, exists = g.pending.SetHint(p, &g.pendingHint)
	if exists {
		g.mix(g.pendingSum(old))
	} else {
		g.count(deliveredCost)
	}
	g.mix(g.pendingSum(p))
	return old, exists
}

// disown removes a pending entry from its consumer, if it has one.
func (g *Group) disown(p Pending) {
	if p.Released() {
		return
	}
	g.owned.DeleteHint(ownedID{p.Consumer, p.ID}, &g.goneHint)
	c, _ := g.consumers.Get(Consumer{Name: p.Consumer})
	c.Pending--
	g.consumers.Set(c)
}

// Acknowledge removes a pending entry and reports whether it existed.
func (g *Group) Acknowledge(id StreamID) bool {
	p, ok := g.pending.DeleteHint(Pending{ID: id}, &g.pendingHint)
	if ok {
		g.mix(g.pendingSum(p))
		g.count(-deliveredCost)
		g.disown(p)
	}
	return ok
}
