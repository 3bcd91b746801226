// The subscriptions of this node, and what each subscriber receives.

package server

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/commands/subscriptions"
	"github.com/coordd/coordd/internal/lockorder"
)

// subKind is a kind of subscription.
type subKind = subscriptions.Kind

const (
	subChannel = subscriptions.Channel
	subPattern = subscriptions.Pattern
	subShard   = subscriptions.Shard
	subKinds   = subscriptions.Kinds
)

// subscription names what a session is subscribed to.
type subscription struct {
	kind subKind
	name string
}

// pubsub holds the subscriptions of all sessions.
type pubsub struct {
	delivery delivery
	size     atomic.Int64          // subscriptions of all kinds
	bytes    atomic.Int64          // cost of the names that the machine has or gets, as it counts
	backlog  atomic.Int64          // bytes of queued messages, each counted once
	disabled atomic.Pointer[error] // why no messages arrive any more; nil: they do

	channels, shards channelTable
	patterns         patternTable
	load             deliveryLoad
	unsent           []*session // messages were queued for them; the delivery goroutine's
}

// subscribers of one channel or pattern, with the number of the newest parcel queued before they
// subscribed.
type subscribers map[*session]uint64

// channelParts is the number of parts of a table, so that a walk through it blocks nobody for
// long.
const channelParts = 64

// channelTable finds the subscribers of channels.
type channelTable struct {
	seed  maphash.Seed
	parts [channelParts]channelPart
}

type channelPart struct {
	mu lockorder.RWMutex
	of map[string]subscribers
}

func (t *channelTable) init() { t.seed = maphash.MakeSeed() }

func (t *channelTable) part(name string) *channelPart {
	return &t.parts[maphash.String(t.seed, name)%channelParts]
}

// add reports whether s is the first subscriber.
func (t *channelTable) add(name string, s *session, after uint64) (first bool) {
	p := t.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]subscribers{}
	}
	if p.of[name] == nil {
		p.of[name] = subscribers{}
	}
	p.of[name][s] = after
	return len(p.of[name]) == 1
}

// remove reports whether s was the last subscriber.
func (t *channelTable) remove(name string, s *session) (last bool) {
	p := t.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of[name], s)
	if last = len(p.of[name]) == 0; last {
		delete(p.of, name)
	}
	if len(p.of) == 0 {
		p.of = nil // frees the map
	}
	return last
}

// reached calls f with the subscribers of a channel, if any.
func (t *channelTable) reached(channel []byte, f func(to subscribers)) {
	p := t.part(string(channel))
	p.mu.RLock()
	defer p.mu.RUnlock()
	if to := p.of[string(channel)]; len(to) > 0 {
		f(to)
	}
}

// mayReach reports whether a channel may have subscribers. It never waits.
func (t *channelTable) mayReach(channel []byte) bool {
	p := t.part(string(channel))
	if !p.mu.TryRLock() {
		return true
	}
	defer p.mu.RUnlock()
	return len(p.of[string(channel)]) > 0
}

// each calls f with every channel, locking one part at a time.
func (t *channelTable) each(f func(name string, to subscribers)) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.RLock()
		for name, to := range p.of {
			f(name, to)
		}
		p.mu.RUnlock()
	}
}

func (t *channelTable) size() int {
	n := 0
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.RLock()
		n += len(p.of)
		p.mu.RUnlock()
	}
	return n
}

func newPubsub(deliver func(p *parcel)) *pubsub {
	ps := &pubsub{}
	ps.delivery.init(deliver, ps.flush)
	ps.channels.init()
	ps.shards.init()
	ps.patterns.init()
	return ps
}

// table returns the table of a kind of channels.
func (ps *pubsub) table(kind subKind) *channelTable {
	if kind == subShard {
		return &ps.shards
	}
	return &ps.channels
}

// subscriptionCost is the overhead of a subscription, bytes.
const subscriptionCost = 384

// add subscribes a session that is not subscribed yet. It fails if no messages arrive any more, or
// if there are too many patterns.
func (ps *pubsub) add(kind subKind, name string, s *session) error {
	if kind == subPattern && ps.patterns.full() {
		return errNodePatterns
	}
	s.subscriptions.Add(1)
	s.memory.add(memoryKeys, len(name)+subscriptionCost)
	ps.size.Add(1) // before reading the number: from here on Deliver queues messages
	after := ps.delivery.join()
	first := false
	if kind == subPattern {
		first = ps.patterns.add(name, s, after)
	} else {
		first = ps.table(kind).add(name, s, after)
	}
	why := ps.disabledReason() // asked when DropWaiting can see the subscription
	if first && ps.bytes.Add(countedBytes(kind, name)) > subscriptions.MaxBytes && why == nil {
		why = errNodeChannels
	}
	s.note(kind, name, 0)
	if why != nil {
		ps.remove(kind, name, s)
	}
	return why
}

// countedBytes is what the machine may count for a name.
func countedBytes(kind subKind, name string) int64 {
	n := len(name) + subscriptions.NameCost
	if kind == subPattern {
		n += len(name) // at most so much of it is literal
	}
	return int64(n)
}

// everything returns all names with subscribers.
func (ps *pubsub) everything() (names []change) {
	for kind := range subKinds {
		add := func(name string, _ subscribers) {
			names = append(names, change{subscription: subscription{kind, name}})
		}
		if kind == subPattern {
			ps.patterns.each(add)
		} else {
			ps.table(kind).each(add)
		}
	}
	return names
}

// disable refuses further subscriptions.
func (ps *pubsub) disable(why error) { ps.disabled.Store(&why) }

func (ps *pubsub) disabledReason() error {
	if why := ps.disabled.Load(); why != nil {
		return *why
	}
	return nil
}

// remove ends an existing subscription.
func (ps *pubsub) remove(kind subKind, name string, s *session) {
	last := false
	if kind == subPattern {
		last = ps.patterns.remove(name, s)
	} else {
		last = ps.table(kind).remove(name, s)
	}
	frees := int64(0)
	if last {
		frees = countedBytes(kind, name)
	}
	s.note(kind, name, frees)
	ps.size.Add(-1)
	s.memory.add(memoryKeys, -len(name)-subscriptionCost)
	s.subscriptions.Add(-1)
}

// forget removes all subscriptions of a session.
func (ps *pubsub) forget(s *session) {
	for kind := range s.subs {
		for name := range s.subs[kind] {
			ps.remove(subKind(kind), name, s)
		}
		s.subs[kind] = nil
	}
}

// mayReach reports whether a message may have receivers. It never waits.
func (ps *pubsub) mayReach(channel []byte, shard bool) bool {
	if shard {
		return ps.shards.mayReach(channel)
	}
	return ps.channels.mayReach(channel) || ps.patterns.mayReach(channel)
}

// receivers counts the subscriptions that a message to channel reaches, as PUBLISH does.
func (ps *pubsub) receivers(channel []byte, shard bool) int {
	n := 0
	count := func(to subscribers) { n += len(to) }
	if shard {
		ps.shards.reached(channel, count)
		return n
	}
	ps.channels.reached(channel, count)
	ps.patterns.reached(channel, func(_ *pattern, to subscribers) { count(to) }, nil, nil)
	return n
}

// subscribers returns the sessions that a message to channel reaches.
func (ps *pubsub) subscribers(channel []byte) map[*session]struct{} {
	found := map[*session]struct{}{}
	take := func(to subscribers) {
		for c := range to {
			found[c] = struct{}{}
		}
	}
	ps.channels.reached(channel, take)
	ps.patterns.reached(channel, func(_ *pattern, to subscribers) { take(to) }, nil, nil)
	return found
}

// names returns the subscribed channels that match pattern (nil: all), sorted.
func (ps *pubsub) names(kind subKind, pattern []byte, work *budget) []string {
	var names []string
	ps.table(kind).each(func(name string, _ subscribers) { names = append(names, name) })
	work.spend(nameWork * len(names))
	if pattern != nil {
		matches := matcher(pattern, work)
		names = slices.DeleteFunc(names, func(name string) bool { return !matches(name) })
	}
	slices.Sort(names)
	return names
}

// nameWork is what a name costs in pubsub.names: found, and put in order.
const nameWork = 16

// matcher returns a function that matches names with one pattern, and spends what that
// takes.
func matcher(pattern []byte, work *budget) func(name string) bool {
	var m glob.Matcher
	return func(name string) bool {
		before := m.Work
		ok := m.Match(pattern, []byte(name))
		work.spend(m.Work - before)
		return ok
	}
}

// count returns the number of subscribers of one channel or pattern.
func (ps *pubsub) count(kind subKind, name []byte) int {
	if kind == subPattern {
		return ps.patterns.count(string(name))
	}
	n := 0
	ps.table(kind).reached(name, func(to subscribers) { n = len(to) })
	return n
}

// kinds returns the number of different channels or patterns.
func (ps *pubsub) kinds(kind subKind) int {
	if kind == subPattern {
		return ps.patterns.size()
	}
	return ps.table(kind).size()
}

// Deliver hands the events of one entry to the clients of this node. It retains their bytes, but
// not the slice. It is called while entries are applied: it takes one step per event and never
// blocks. Subscriptions confirmed before the call receive the messages, later ones do not. If a
// snapshot replaced entries, or events arrive faster than they are delivered, subscribers'
// connections are closed after the messages queued before.
func (s *Server) Deliver(events []commands.Event) {
	subscribed, tracked, watched := s.pubsub.size.Load() > 0, s.tracking.on.Load() > 0,
		s.monitors.size.Load() > 0
	var parcels []parcel
	var heard []commands.Event
	var changes []keyChange
	pack := func() {
		if len(heard) > 0 {
			parcels = append(parcels, parcel{events: heard})
		}
		if len(changes) > 0 {
			parcels = append(parcels, parcel{changes: changes})
		}
		heard, changes = nil, nil
	}
	for i := range events {
		s.tellWaits(&events[i])
		s.counting.heard(s, &events[i])
		s.holders.heard(s, &events[i])
		switch e := &events[i]; e.Kind {
		case commands.Message:
			if subscribed && s.pubsub.mayReach(e.Channel, e.Shard) {
				heard = append(heard, *e)
			}
		case commands.ScriptCall:
			if watched {
				heard = append(heard, *e)
			}
		case commands.StateReplaced, commands.UsersChanged:
			pack()                   // invalidations keep their order
			s.pubsub.delivery.join() // there may be no receivers, but there are sessions
			heard = append(heard, *e)
		case commands.KeyChanged, commands.DBChanged:
			if tracked {
				changes = append(changes, keyChange{key: e.Key, client: e.Client,
					all: e.Kind == commands.DBChanged})
			}
		}
	}
	pack()
	if s.lockHolds.applied(s, events) {
		parcels = append(parcels, parcel{locks: true})
	}
	if len(parcels) > 0 {
		s.pubsub.delivery.put(parcels...)
	}
	s.waitQueues.changed(events)
}

// wants reports whether a client of this node waits for a key, tracks it, or holds it as a lock.
func (s *Server) wants(db int, key string) bool {
	return s.waitQueues.wants(db, key) || s.tracking.wants(key) || s.lockHolds.wants(db, key)
}

// observe tells the backend whether to report changed keys. It is called after a client becomes
// interested, before its next request, and after one has left.
func (s *Server) observe() {
	s.observing.Lock()
	defer s.observing.Unlock()
	on := s.waitQueues.count.Load() > 0 || s.tracking.on.Load() > 0
	if on == s.observed {
		return
	}
	s.observed = on
	if on {
		s.backend.Observe(s.wants)
	} else {
		s.backend.Observe(nil)
	}
}

// deliverParcel gives a parcel to all receivers that were there when it was queued. The delivery
// goroutine calls it.
func (s *Server) deliverParcel(p *parcel) {
	t := &parcelDelivery{srv: s, number: p.number, audience: p.audience}
	switch {
	case p.events != nil:
		for i := range p.events {
			if s.pubsub.delivery.dropped(p.number) {
				return
			}
			t.event(&p.events[i])
			t.done()
			t.breathe()
		}
		return
	case p.lost:
		s.warnings.Warn("delivery queue overflowed: dropped pending messages", "limit_bytes",
			s.pubsub.delivery.limit)
		t.resetSubscribers()
		t.tellLost()
		s.monitors.closeAll(t)
		s.revoke()
	case p.hidden:
		s.warnings.Warn("closed monitors: a command is too long to show")
		s.monitors.closeAll(t)
	case p.line != nil:
		s.monitors.show(t, p.line)
	case p.changes != nil:
		s.tracking.changed(p.changes, p.number, t.invalidate)
	case p.locks:
		t.tellLost()
	case p.overdue:
		v := s.tracking.takeOverdue()
		t.invalidate(&v)
	default:
		t.invalidate(&p.evicted)
	}
	t.done()
}

func (t *parcelDelivery) event(e *commands.Event) {
	switch e.Kind {
	case commands.StateReplaced:
		t.resetSubscribers()
		t.srv.revoke()
	case commands.UsersChanged:
		t.srv.revoke()
	case commands.ScriptCall:
		t.srv.called(t, e)
	default:
		t.publish(e)
	}
}

// parcelDelivery is the delivery of one parcel.
type parcelDelivery struct {
	srv    *Server
	number uint64
	audience
	slow   []*session // closed because they do not read
	missed map[*session]struct{}
	queued int // bytes, for all receivers, since the last flush
}

// publish sends a message to its subscribers.
func (t *parcelDelivery) publish(e *commands.Event) {
	ps := t.srv.pubsub
	ps.load.begin(e.Matching)
	if e.Shard {
		ps.shards.reached(e.Channel, func(to subscribers) {
			t.fanOut(to, published("smessage", e))
		})
		return
	}
	var m *message
	ps.channels.reached(e.Channel, func(to subscribers) {
		m = published("message", e)
		t.fanOut(to, m)
	})
	ps.patterns.reached(e.Channel, func(p *pattern, to subscribers) {
		if m == nil {
			m = published("message", e)
		}
		t.fanOut(to, m.forPattern(p.text))
	}, t.noteMissed, ps.load.match)
}

// fanOut queues one message for several sessions.
func (t *parcelDelivery) fanOut(to subscribers, m *message) {
	for c, after := range to {
		if t.number > after && t.includes(c) {
			t.push(c, m)
			if m.kind == subPattern {
				t.srv.pubsub.load.pushCopy(c)
			}
		}
	}
}

// noteMissed records subscribers whose patterns take too long to match.
func (t *parcelDelivery) noteMissed(to subscribers) {
	if t.missed == nil {
		t.missed = map[*session]struct{}{}
	}
	for c, after := range to {
		if t.number > after {
			t.missed[c] = struct{}{}
		}
	}
}

// push queues a message for a client, and ends the client if too much is queued, or others if too
// much is queued for all.
func (t *parcelDelivery) push(c *session, m *message) {
	ps := t.srv.pubsub
	if m.total == nil { // nobody else has it yet
		m.countIn(&ps.backlog)
	}
	ps.load.push()
	unsent, over := c.out.push(m)
	if unsent {
		ps.unsent = append(ps.unsent, c)
	}
	if over {
		t.slow = append(t.slow, c)
		c.kill()
	}
	t.queued += m.size()
	if ps.backlog.Load() > t.srv.cfg.MaxBacklogBytes {
		t.flush() // what no socket was offered shows of nobody that it does not read
		if ps.backlog.Load() > t.srv.cfg.MaxBacklogBytes {
			t.srv.relieve()
		}
	}
}

// breathe has receivers read what is queued once that is much: one parcel can be more than may wait
// for a client. The caller holds no locks.
func (t *parcelDelivery) breathe() {
	if t.queued >= yieldBytes {
		t.flush()
	}
}

func (t *parcelDelivery) flush() {
	t.queued = 0
	t.srv.pubsub.flush()
	t.srv.pubsub.delivery.sockets.yield()
}

// flush writes the queued messages as far as sockets take them. The delivery goroutine calls it:
// it writes to a crowd in the time that waking a goroutine for each takes besides.
//
// On the way it lets other clients be served: when a lock is released, one of those that are told
// first takes it, and its request is logged while the others are told.
func (ps *pubsub) flush() {
	every := max(yieldReceivers, len(ps.unsent)/yields)
	for i, c := range ps.unsent {
		c.out.flushQueued()
		if i%every == every-1 {
			ps.delivery.sockets.yield()
		}
	}
	clear(ps.unsent)
	if ps.unsent = ps.unsent[:0]; cap(ps.unsent) > keptReceivers {
		ps.unsent = nil
	}
}

// resetSubscribers closes all connections that subscribed before the parcel, and empties the
// caches. Messages were lost, to a snapshot or for lack of room: a subscriber that loses its
// connection knows that it missed something, one that continues does not.
func (t *parcelDelivery) resetSubscribers() {
	ps := t.srv.pubsub
	gone := map[*session]struct{}{}
	end := func(_ string, to subscribers) {
		for c, after := range to {
			if t.number > after {
				gone[c] = struct{}{}
			}
		}
	}
	ps.channels.each(end)
	ps.shards.each(end)
	ps.patterns.each(end)
	for c := range gone {
		c.dismiss()
	}
	if len(gone) > 0 {
		t.srv.warnings.Warn("closed subscribers: messages to them were lost", "clients", len(gone))
	}
	t.srv.tracking.changed([]keyChange{{all: true}}, t.number, t.invalidate)
}

// done ends the delivery and closes clients that cannot keep up.
func (t *parcelDelivery) done() {
	s := t.srv
	for c := range t.missed {
		c.kill()
	}
	if len(t.missed) > 0 {
		s.warnings.Warn("closed subscribers: matching their patterns takes too long", "clients",
			len(t.missed))
	}
	if len(t.slow) > 0 {
		s.warnings.Warn("closed clients that do not read", "clients", len(t.slow), "example",
			t.slow[0].addr)
	}
	t.missed, t.slow = nil, nil
	if all := s.pubsub.load.owners(s.cfg.clock(), s.pubsub.delivery.behind); len(all) > 0 {
		s.warnings.Warn("closed subscribers: their patterns slow down delivery", "clients",
			len(all), "example", all[0].addr)
		for _, c := range all {
			c.kill()
		}
	}
}

// relieve closes clients until the backlog of the node is well below its limit, so that it is
// seldom called: first those that hold most of it, among equals those that have read nothing for
// longest.
func (s *Server) relieve() {
	type stalled struct {
		c     *session
		holds int64
		since time.Time
	}
	var all []stalled
	for _, c := range s.all() {
		if frees, holds, since := c.out.stalled(); frees > 0 {
			all = append(all, stalled{c, holds, since})
		}
	}
	slices.SortFunc(all, func(a, b stalled) int {
		return cmp.Or(cmp.Compare(b.holds, a.holds), a.since.Compare(b.since))
	})
	closed, most := 0, s.cfg.MaxBacklogBytes-s.cfg.MaxBacklogBytes/16
	for ; closed < len(all) && s.pubsub.backlog.Load() > most; closed++ {
		all[closed].c.out.cutOff()
		all[closed].c.kill()
	}
	s.warnings.Warn("closed clients that do not read: total backlog limit exceeded", "clients",
		closed, "limit_bytes", s.cfg.MaxBacklogBytes)
}
