package leases

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// MaxItems is how many items a lease has at most; MaxBytes what all leases may count, and the costs
// what a lease and an item count besides their texts.
const (
	MaxItems  = 10_000
	MaxBytes  = 256 << 20
	LeaseCost = 512
	ItemCost  = 192
)

// Item is what lives as long as a lease: a key, or a member of one.
type Item struct {
	DB     int
	Key    string
	Member string // "": the whole key
	// Created is the revision that created the key: a later key of that name is another one.
	Created uint64
}

func (i *Item) bytes() int { return ItemCost + len(i.Key) + len(i.Member) }

func (i *Item) place() place { return place{i.DB, i.Key, i.Member} }

func compareItems(a, b Item) int {
	return cmp.Or(cmp.Compare(a.DB, b.DB), strings.Compare(a.Key, b.Key),
		strings.Compare(a.Member, b.Member))
}

// place names what an item is. At most one lease has it.
type place struct {
	db          int
	key, member string
}

// Connection is a connection to a node, unique in the cluster. One without a node is none.
type Connection struct {
	Node string
	ID   uint64
}

// Lease is a lease. It is for reading only: the Registry changes it.
type Lease struct {
	ID      uint64
	TTLMs   int64 // by which a renewal prolongs it
	UntilMs int64 // when it ends, unless its connection ends before
	DelayMs int64 // how long its items stay after its end
	// User is the name of whoever made it, and Created the revision that created that user.
	User    string
	Created uint64
	// Connection has granted or last renewed it. None: it is bound to none.
	Connection Connection
	GraceMs    int64 // how long it goes on without its connection
	// GraceUntilMs is when it ends because its connection is gone; 0: it is there, as far as known.
	GraceUntilMs int64
	// Closed: the connection has closed. Otherwise its node is not reached, and may come back.
	Closed bool

	items []Item // in order
	gen   uint64
}

// EndMs returns the last ms in which the lease exists.
func (l *Lease) EndMs() int64 {
	if l.GraceUntilMs != 0 {
		return min(l.UntilMs, l.GraceUntilMs)
	}
	return l.UntilMs
}

// DeadlineMs returns the deadline of the lease's items.
func (l *Lease) DeadlineMs() int64 { return add(l.EndMs(), l.DelayMs) }

// Items returns the items, in the order of database, key and member, also those that are stale.
func (l *Lease) Items() []Item { return l.items }

// add adds two positive times and saturates.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (l *Lease) bytes() (n int) {
	n = LeaseCost + len(l.User) + len(l.Connection.Node)
	for i := range l.items {
		n += l.items[i].bytes()
	}
	return n
}

// state says what is known of a lease's connection.
type state uint8

const (
	unbound state = iota
	open          // the connection is there
	lost          // its node is not reached
	closed
)

func (l *Lease) state() state {
	switch {
	case l.Connection.Node == "":
		return unbound
	case l.GraceUntilMs == 0:
		return open
	case l.Closed:
		return closed
	}
	return lost
}

// end is the place of a lease in the order of their ends.
type end struct {
	atMs int64
	id   uint64
}

// bond is the place of a lease in the order of their connections.
type bond struct {
	state state
	node  string
	conn  uint64
	id    uint64
}

// Registry holds leases. Registries that agree on the changes agree on all. It is not safe for
// concurrent use.
type Registry struct {
	last   uint64 // id of the newest lease
	gen    uint64 // rises with every Freeze
	leases *btree.BTreeG[*Lease]
	byID   map[uint64]*Lease // the same, to find one; never walked
	ends   *btree.BTreeG[end]
	bonds  *btree.BTreeG[bond] // … by connection, while they are open or lost
	owners map[place]uint64    // which lease has an item; never walked
	bytes  int
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{
		leases: btree.NewBTreeGOptions(func(a, b *Lease) bool { return a.ID < b.ID },
			btree.Options{NoLocks: true}),
		ends: btree.NewBTreeGOptions(func(a, b end) bool {
			return cmp.Or(cmp.Compare(a.atMs, b.atMs), cmp.Compare(a.id, b.id)) < 0
		}, btree.Options{NoLocks: true}),
		bonds: btree.NewBTreeGOptions(func(a, b bond) bool {
			return cmp.Or(cmp.Compare(a.state, b.state), strings.Compare(a.node, b.node),
				cmp.Compare(a.conn, b.conn), cmp.Compare(a.id, b.id)) < 0
		}, btree.Options{NoLocks: true}),
		byID:   map[uint64]*Lease{},
		owners: map[place]uint64{},
	}
}

// Bytes returns what all leases count.
func (r *Registry) Bytes() int { return r.bytes }

// Len returns how many leases there are, also ended ones that are not dropped yet.
func (r *Registry) Len() int { return r.leases.Len() }

// Last returns the id of the newest lease, 0 if there was none.
func (r *Registry) Last() uint64 { return r.last }

// Empty reports whether there has never been a lease.
func (r *Registry) Empty() bool { return r.last == 0 }

func (r *Registry) get(id uint64) *Lease { return r.byID[id] }

// set puts a lease in the place of the one with its id.
func (r *Registry) set(l *Lease) {
	r.leases.Set(l)
	r.byID[l.ID] = l
}

// Find returns the lease of an id, nil if there is none, or it has ended.
func (r *Registry) Find(id uint64, nowMs int64) *Lease {
	if l := r.get(id); l != nil && l.EndMs() >= nowMs {
		return l
	}
	return nil
}

// After calls f with the leases of larger ids than this, in their order, also with ended ones,
// until f returns false.
func (r *Registry) After(id uint64, f func(*Lease) bool) {
	r.leases.Ascend(&Lease{ID: id + 1}, f)
}

// NextEnd returns when the first of the leases ends that are not dropped yet.
func (r *Registry) NextEnd() (atMs int64, some bool) {
	first, some := r.ends.Min()
	return first.atMs, some
}

// Over reports whether a lease has ended that is not dropped yet.
func (r *Registry) Over(nowMs int64) bool {
	atMs, some := r.NextEnd()
	return some && atMs < nowMs
}

// Drop removes leases that have ended, the earliest first: so many at most, and none after those
// that had so many items together. It returns how many there were of both.
func (r *Registry) Drop(nowMs int64, most, mostItems int) (dropped, items int) {
	for dropped < most && items < mostItems {
		first, some := r.ends.Min()
		if !some || first.atMs >= nowMs {
			break
		}
		items += len(r.get(first.id).items)
		r.End(first.id)
		dropped++
	}
	return dropped, items
}

// Fits reports whether there is room for so many bytes more.
func (r *Registry) Fits(bytes int) bool { return r.bytes+bytes <= MaxBytes }

// Grant adds a lease with the terms of l, by which it ends at UntilMs. Its id is at, or the next
// one that is free. ok is false if there is no room.
func (r *Registry) Grant(at uint64, terms Lease) (id uint64, ok bool) {
	l := terms
	l.items = nil
	if !r.Fits(l.bytes()) {
		return 0, false
	}
	r.last = max(at, r.last+1)
	l.ID, l.gen = r.last, r.gen
	r.enter(&l)
	return l.ID, true
}

// enter adds a lease, and its items.
func (r *Registry) enter(l *Lease) {
	r.set(l)
	for i := range l.items {
		r.owners[l.items[i].place()] = l.ID
	}
	r.bytes += l.bytes()
	r.index(l)
}

func (l *Lease) bond() bond { return bond{l.state(), l.Connection.Node, l.Connection.ID, l.ID} }

func (r *Registry) index(l *Lease) {
	r.ends.Set(end{l.EndMs(), l.ID})
	if l.bound() {
		r.bonds.Set(l.bond())
	}
}

// bound reports whether a lease ends with its connection, and that has not closed.
func (l *Lease) bound() bool { return l.state() == open || l.state() == lost }

func (r *Registry) unindex(l *Lease) {
	r.ends.Delete(end{l.EndMs(), l.ID})
	if l.bound() {
		r.bonds.Delete(l.bond())
	}
}

// own returns a lease that may be changed: no frozen registry has it.
func (r *Registry) own(l *Lease) *Lease {
	if l.gen == r.gen {
		return l
	}
	c := *l
	c.items, c.gen = slices.Clone(l.items), r.gen
	r.set(&c)
	return &c
}

// change changes the terms of a lease, and returns it as it is then.
func (r *Registry) change(id uint64, f func(*Lease)) *Lease {
	l := r.own(r.get(id))
	before := *l
	f(l)
	r.bytes += len(l.Connection.Node) - len(before.Connection.Node)
	if l.EndMs() != before.EndMs() || l.bond() != before.bond() {
		r.unindex(&before)
		r.index(l)
	}
	return l
}

// Renewed returns a lease as it is once it was renewed. It ends its TTL from now. If it is bound to
// a connection, by is that from now on, unless it is none, or the one that has closed: its requests
// can come late.
func (l *Lease) Renewed(nowMs int64, by Connection) Lease {
	renewed := *l
	renewed.UntilMs = add(nowMs, l.TTLMs)
	if l.Connection.Node != "" && by.Node != "" && !(l.Closed && by == l.Connection) {
		renewed.Connection, renewed.GraceUntilMs, renewed.Closed = by, 0, false
	}
	return renewed
}

// Renew renews a lease.
func (r *Registry) Renew(id uint64, nowMs int64, by Connection) *Lease {
	return r.change(id, func(l *Lease) { *l = l.Renewed(nowMs, by) })
}

// Shorten lets a lease end after its grace, since its connection is gone: for good if it has
// closed. It does not prolong one that ends before.
func (r *Registry) Shorten(id uint64, nowMs int64, isClosed bool) *Lease {
	return r.change(id, func(l *Lease) {
		if l.GraceUntilMs == 0 {
			l.GraceUntilMs = add(nowMs, l.GraceMs)
		}
		l.Closed = l.Closed || isClosed
	})
}

// Recover takes back that a lease ends with its grace: its connection is there after all.
func (r *Registry) Recover(id uint64) *Lease {
	return r.change(id, func(l *Lease) { l.GraceUntilMs = 0 })
}

// End removes a lease and lets go of its items.
func (r *Registry) End(id uint64) {
	l := r.get(id)
	r.unindex(l)
	r.leases.Delete(l)
	delete(r.byID, id)
	for i := range l.items {
		delete(r.owners, l.items[i].place())
	}
	r.bytes -= l.bytes()
}

// Attach adds an item to a lease, and takes it from the one that has it.
func (r *Registry) Attach(id uint64, item Item) {
	if of := r.owners[item.place()]; of != 0 && of != id {
		r.detach(of, item)
	}
	l := r.own(r.get(id))
	at, there := slices.BinarySearchFunc(l.items, item, compareItems)
	if there {
		l.items[at] = item
		return
	}
	l.items = slices.Insert(l.items, at, item)
	r.owners[item.place()] = id
	r.bytes += item.bytes()
}

// Detach takes the item of that name from the lease that has it, if one has.
func (r *Registry) Detach(db int, key, member string) {
	item := Item{DB: db, Key: key, Member: member}
	if of := r.owners[item.place()]; of != 0 {
		r.detach(of, item)
	}
}

func (r *Registry) detach(id uint64, item Item) {
	l := r.own(r.get(id))
	if at, there := slices.BinarySearchFunc(l.items, item, compareItems); there {
		l.items = slices.Delete(l.items, at, at+1)
		delete(r.owners, item.place())
		r.bytes -= item.bytes()
	}
}

// Keep lets go of the items of a lease for which f returns false.
func (r *Registry) Keep(id uint64, f func(Item) bool) {
	l := r.own(r.get(id))
	l.items = slices.DeleteFunc(l.items, func(i Item) bool {
		if f(i) {
			return false
		}
		delete(r.owners, i.place())
		r.bytes -= i.bytes()
		return true
	})
}

// Of returns the lease that has an item of that name, and the item, maybe a stale one. The lease is
// nil if none has.
func (r *Registry) Of(db int, key, member string) (l *Lease, i Item) {
	id := r.owners[place{db, key, member}]
	if id == 0 {
		return nil, i
	}
	l = r.get(id)
	at, _ := slices.BinarySearchFunc(l.items, Item{DB: db, Key: key, Member: member}, compareItems)
	return l, l.items[at]
}

// Has reports whether a lease has an item of that name, maybe a stale one.
func (r *Registry) Has(id uint64, db int, key, member string) bool {
	return r.owners[place{db, key, member}] == id
}

// FirstOpen returns a lease of a connection, or the first of a node by connection if that has no
// id, which is there, as far as known; nil if there is none.
func (r *Registry) FirstOpen(of Connection) *Lease { return r.first(open, of) }

// FirstLost is FirstOpen for a connection whose node was not reached.
func (r *Registry) FirstLost(of Connection) *Lease { return r.first(lost, of) }

func (r *Registry) first(s state, of Connection) (l *Lease) {
	r.bonds.Ascend(bond{state: s, node: of.Node, conn: of.ID}, func(b bond) bool {
		if b.state == s && b.node == of.Node && (of.ID == 0 || b.conn == of.ID) {
			l = r.get(b.id)
		}
		return false
	})
	return l
}

// Nodes returns the ids of the nodes with connections that have leases and are there, as far as
// known, in order.
func (r *Registry) Nodes() (ids []string) {
	from := bond{state: open}
	for more := true; more; {
		more = false
		r.bonds.Ascend(from, func(b bond) bool {
			if more = b.state == open; more {
				ids = append(ids, b.node)
				from.node = b.node + "\x00"
			}
			return false
		})
	}
	return ids
}

// Bound reports whether leases are bound to connections that are there, as far as known.
func (r *Registry) Bound() bool {
	first, some := r.bonds.Min()
	return some && first.state == open
}
