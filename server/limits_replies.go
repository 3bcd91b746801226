// A limit on the memory of replies on the whole node, from execution until clients have read them.
// Small replies are exempt. Before a session sends a request whose reply may be large, it reserves
// room, and waits for it without holding any reply. So every holder of room finishes without
// needing more, unless its client does not read: see closeSlow.
//
// The reply size of commands that return whole values is looked up on this node. For others it is
// estimated from recent replies, and bounded by the values of the keys.

package server

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// freeReply is the size up to which a reply needs no room.
	freeReply = 64 << 10
	// unknownReply is the estimate for a request never seen before.
	unknownReply = commands.MaxReplyBytes / 4
	// MinReplyBytes is the smallest limit: the largest reply must fit.
	MinReplyBytes = commands.MaxReplyBytes
	// Requests of a batch, and keys of a request, that are looked up.
	lookedUpRequests = 8
	lookedUpKeys     = 64
	// While others wait, a client has slowReply to read something, and that plus a second per
	// slowReplyBytes to read everything.
	slowReply      = 5 * time.Second
	slowReplyBytes = 1 << 20
	// A quick client reads quickBytes per millisecond, with quickReply of slack.
	quickBytes = 32 << 10
	quickReply = 100 * time.Millisecond
)

// replyRoom shares the room among sessions: those of the users who hold least come first, then
// those who have waited longest. So who opens more connections gets no more room while others wait.
type replyRoom struct {
	limit int64 // bytes
	known replySizes

	mu       lockorder.Mutex
	held     int64                 // bytes, in total
	slowHeld int64                 // … by slow clients
	holders  map[*session]struct{} // sessions that hold room
	heldBy   map[owner]int64       // bytes, of those who hold some
	waiting  [2][]*session         // oldest first: quick clients, slow clients
}

// replyTurn is a session's share of the room, guarded by replyRoom.mu.
type replyTurn struct {
	held int64 // bytes
	of   owner // whose held is, or who waits
	// the client read its last large reply slowly, or has had none yet: such clients share half of
	// the room
	slow   bool
	wants  func() int64 // bytes it waits for; nil: it does not wait
	signal chan struct{}
	since  time.Time // when it began to wait, or its reply arrived
	beats  uint32    // beats of the session at the last check
	moved  time.Time // when beats last changed
}

// Indexes of replyRoom.waiting.
const (
	quickClients = iota
	slowClients
)

func (t *replyTurn) queue() int {
	if t.slow {
		return slowClients
	}
	return quickClients
}

// tryReserve reserves room if there is some and nobody waits for it. Slow clients whose share is
// used up do not delay quick ones.
func (r *replyRoom) tryReserve(s *session, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting[s.answering.queue()]) > 0 || r.next() != nil || !r.mayHold(s, n) ||
		!r.fits(n) {
		return false
	}
	r.give(s, n)
	return true
}

func (r *replyRoom) init(limit int64) {
	r.limit = max(limit, MinReplyBytes)
	r.holders, r.heldBy = map[*session]struct{}{}, map[owner]int64{}
}

// size returns how many bytes are held.
func (r *replyRoom) size() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// fits reports whether there is room; the only client always fits. The caller holds mu.
func (r *replyRoom) fits(n int64) bool { return r.held == 0 || r.held+n <= r.limit }

// mayHold reports whether a slow client may hold n more bytes within the share of slow clients.
// The caller holds mu.
func (r *replyRoom) mayHold(s *session, n int64) bool {
	return !s.answering.slow || r.slowHeld == 0 || r.slowHeld+n <= r.limit/2
}

// give adds to a session's room. The caller holds mu.
func (r *replyRoom) give(s *session, n int64) {
	r.set(s, s.answering.held+n)
}

// set sets a session's room. The caller holds mu.
func (r *replyRoom) set(s *session, n int64) {
	t := &s.answering
	if t.held == 0 {
		t.of = s.owner()
	}
	r.held += n - t.held
	r.heldBy[t.of] += n - t.held
	if r.heldBy[t.of] == 0 {
		delete(r.heldBy, t.of)
	}
	if t.slow {
		r.slowHeld += n - t.held
	}
	if t.held = n; n == 0 {
		delete(r.holders, s)
		return
	}
	r.holders[s] = struct{}{}
	t.since = time.Now()
	t.moved = t.since
}

// hold updates a session's room when a reply arrives or is read by the client.
func (r *replyRoom) hold(s *session, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n <= freeReply {
		n = 0
	}
	r.set(s, n)
	r.grant()
}

// taken is hold for what is left after the client read some bytes since a time.
func (r *replyRoom) taken(s *session, bytes int, since time.Time, left int64) {
	r.hold(s, 0)
	if bytes > maxBatchBytes {
		r.mu.Lock()
		s.answering.slow = time.Since(since) > time.Duration(bytes/quickBytes)*time.Millisecond+
			quickReply
		r.mu.Unlock()
	}
	if left > 0 {
		r.hold(s, left)
	}
}

// grant admits waiting sessions for which there is room. The caller holds mu.
func (r *replyRoom) grant() {
	for {
		s := r.next()
		if s == nil {
			return
		}
		n := s.answering.wants()
		if n > freeReply && !r.fits(n) {
			return
		}
		if n > freeReply {
			r.give(s, n)
		}
		r.forget(s)
		s.answering.wake()
	}
}

// forget ends a session's wait. The caller holds mu.
func (r *replyRoom) forget(s *session) {
	q := s.answering.queue()
	i := slices.Index(r.waiting[q], s)
	r.waiting[q] = slices.Delete(r.waiting[q], i, i+1)
	s.answering.wants = nil
}

// next returns the session to admit, skipping slow clients while their share is used up. It
// estimates sizes again: later replies may have improved the estimate. The caller holds mu.
func (r *replyRoom) next() *session {
	var all []*session
	for _, waiting := range r.waiting {
		if len(waiting) == 0 {
			continue
		}
		if s := slices.MinFunc(waiting, r.order); r.mayHold(s, s.answering.wants()) {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, r.order)
}

// order compares sessions that wait. The caller holds mu.
func (r *replyRoom) order(a, b *session) int {
	return cmp.Or(cmp.Compare(r.heldBy[a.answering.of], r.heldBy[b.answering.of]),
		a.answering.since.Compare(b.answering.since))
}

// wake makes the session check whether it is admitted. It never blocks.
func (t *replyTurn) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// await waits for room. It fails if the session is to end.
func (r *replyRoom) await(s *session, wants func() int64) error {
	t := &s.answering
	r.mu.Lock()
	t.wants, t.since, t.of = wants, time.Now(), s.owner()
	r.waiting[t.queue()] = append(r.waiting[t.queue()], s)
	r.grant()
	r.mu.Unlock()
	for {
		r.mu.Lock()
		if t.wants != nil && s.killed.Load() && s.cut.Load() {
			r.forget(s)
			r.grant() // it may have been the first
			r.mu.Unlock()
			return errKilled
		}
		done := t.wants == nil
		r.mu.Unlock()
		if done {
			return nil
		}
		<-t.signal
	}
}

// closeSlow closes clients that read their replies too slowly while others have waited long, until
// there is room for the one that has waited longest.
func (r *replyRoom) closeSlow(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.holders {
		if beats := s.beats.Load(); beats != s.answering.beats {
			s.answering.beats, s.answering.moved = beats, now
		}
	}
	var first *session
	for _, waiting := range r.waiting {
		if len(waiting) > 0 && (first == nil ||
			waiting[0].answering.since.Before(first.answering.since)) {
			first = waiting[0]
		}
	}
	if first == nil || now.Sub(first.answering.since) < slowReply {
		return
	}
	missing := r.held + first.answering.wants() - r.limit
	if first.answering.slow {
		missing = max(missing, r.slowHeld+first.answering.wants()-r.limit/2)
	}
	for s := range r.holders {
		t := &s.answering
		if missing <= 0 {
			return
		}
		patience := slowReply + time.Duration(t.held/slowReplyBytes)*time.Second
		if s.state.Load() != waitsForOutput || now.Sub(t.moved) < slowReply &&
			now.Sub(t.since) < patience {
			continue
		}
		missing -= t.held
		s.srv.clientMemory.evicted.Add(1)
		s.srv.warnings.Warn("closed a client that reads a large reply too slowly while others wait",
			"client", s.addr, "bytes", t.held)
		s.kill()
	}
}

// reserveReply reserves room for the replies to the next requests.
func (s *session) reserveReply(load Workload, owed []pending) error {
	room := &s.srv.replies
	s.inHand = 0
	wants := func() int64 { return room.known.expect(load) }
	n := wants()
	if most, whole := s.bound(owed, n > freeReply); whole {
		n = most
		wants = func() int64 { return most }
	} else if most < n {
		n = most
		wants = func() int64 { return min(most, room.known.expect(load)) }
	}
	return s.reserve(wants)
}

// reserve reserves room for as many bytes as wants returns.
func (s *session) reserve(wants func() int64) error {
	room := &s.srv.replies
	if n := wants(); n <= freeReply || room.tryReserve(s, n) {
		return nil
	}
	if err := s.send(); err != nil {
		return err
	}
	if s.answering.held > 0 { // nothing of what was sent is left
		room.hold(s, 0)
	}
	return room.await(s, wants)
}

// bound looks up the maximum size of the replies. whole reports that it is also the expected size;
// if it cannot be, and others is not set, nothing is looked up.
func (s *session) bound(owed []pending, others bool) (most int64, whole bool) {
	whole = true
	for i := range owed {
		if p := &owed[i]; p.step == plain || p.step == executed {
			whole = whole && p.step == plain && p.spec.Has(commands.WholeValues)
		}
	}
	if !whole && !others {
		return 0, false
	}
	looked := 0
	for i := range owed {
		p := &owed[i]
		if p.step == literal || p.step == delivered {
			continue
		}
		if looked++; looked > lookedUpRequests {
			return commands.MaxReplyBytes, false
		}
		if p.step == executed {
			for j := range p.block {
				most += s.boundOf(p.db, p.block[j].spec, p.block[j].args)
			}
			continue
		}
		most += s.boundOf(p.db, p.spec, p.args)
	}
	return min(most, commands.MaxReplyBytes), whole
}

// namesForeign reports whether the first request, by which the workload is known, is for a key that
// the session's user may not ask for: what is known of that key must not decide how long it waits.
func (s *session) namesForeign(owed []pending) bool {
	at := slices.IndexFunc(owed, func(p pending) bool { return p.step != literal })
	switch {
	case at < 0:
		return false
	case owed[at].step != executed:
		return s.isDenied(owed[at].spec, owed[at].args)
	}
	first := slices.IndexFunc(owed[at].block, func(q queued) bool { return q.inMachine() })
	return first >= 0 && s.isDenied(owed[at].block[first].spec, owed[at].block[first].args)
}

// isDenied reports whether the machine will deny a command, for all that this node knows.
func (s *session) isDenied(spec *commands.Spec, args [][]byte) bool {
	return s.srv.users() != nil && !s.mayRun(spec, args)
}

// boundOf returns the maximum size of a command's reply, from the values of its keys: not of those
// that the user may not ask for, who could tell their sizes by how long the denial takes.
func (s *session) boundOf(db int, spec *commands.Spec, args [][]byte) int64 {
	if spec.Handler == nil || s.isDenied(spec, args) {
		return 0
	}
	k := &spec.Keys
	var keys [][]byte
	switch {
	case spec.Group == "scripting" || k.First == 0 && k.Numkeys == 0:
		return commands.MaxReplyBytes
	case len(k.Parts) == 0 && k.Flags&commands.KeyAccess == 0:
		return freeReply / lookedUpRequests // the reply contains no values
	case k.First == 1 && k.Last == 1:
		keys = args[1:2]
	default:
		keys = waitedKeys(spec, args)
	}
	some := keys[:min(len(keys), lookedUpKeys)]
	n, ok := s.srv.backend.ValueBytes(db, some)
	if !ok {
		return commands.MaxReplyBytes
	}
	if len(some) < len(keys) {
		n *= len(keys) / len(some)
	}
	return int64(n)
}

// replied records the size of the replies that arrived.
func (s *session) replied(load Workload, n int) {
	s.srv.replies.known.note(load, int64(n))
	s.inHand = n
	if s.answering.held > 0 || n > freeReply {
		s.srv.replies.hold(s, int64(n+cap(s.reply.Buf)))
	}
}

// replySizes remembers reply sizes. Concurrent updates may be lost: they are hints.
type replySizes struct {
	commands [1 << 10]replySize // by Workload.Command
	shapes   [1 << 12]replySize // by Workload.Shape, only large ones
}

// replySize has the upper half of the request's hash in its upper half, and bytes in its lower.
type replySize struct{ atomic.Uint64 }

func (v *replySize) load(hash uint64) (bytes int64, known bool) {
	word := v.Load()
	return int64(uint32(word)), word>>32 == hash>>32
}

func (v *replySize) store(hash uint64, bytes int64) {
	v.Store(hash>>32<<32 | uint64(uint32(bytes)))
}

func (z *replySizes) expect(load Workload) int64 {
	if n, known := z.shapes[load.Shape%uint64(len(z.shapes))].load(load.Shape); known {
		return n
	}
	if n, known := z.commands[load.Command%uint64(len(z.commands))].load(load.Command); known {
		return n
	}
	return unknownReply
}

// note records a reply. The estimate decays slowly.
func (z *replySizes) note(load Workload, bytes int64) {
	shape, command := &z.shapes[load.Shape%uint64(len(z.shapes))],
		&z.commands[load.Command%uint64(len(z.commands))]
	if _, known := shape.load(load.Shape); known && bytes <= freeReply {
		shape.Store(0)
	} else if bytes > freeReply {
		shape.store(load.Shape, bytes)
	}
	last, known := command.load(load.Command)
	if known && last <= freeReply && bytes <= freeReply {
		return // the common case: write nothing
	}
	command.store(load.Command, max(bytes, last-last/8))
}
