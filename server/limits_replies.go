package server

// This file holds what replies may take on the whole node while they are made and until clients have taken them. A small reply waits for nobody. Before
// a session asks for what may have a large one, it takes room for that, and waits, holding no reply itself, until there is some. So each who holds room
// comes to an end without more of it, but for a client that does not read: see look.
//
// How large a reply will be is known of those that give whole values, which are looked up on this node. Of others it is what such a request was
// answered lately, and no more than the values of its keys.

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
)

const (
	// freeReply is how large a reply may be that takes no room.
	freeReply = 64 << 10
	// unknownReply is expected of what was never asked before.
	unknownReply = commands.MaxReplyBytes / 4
	// LeastReplyBytes is how much room there is at least: the largest reply has to fit.
	LeastReplyBytes = commands.MaxReplyBytes
	// Of a run so many requests, and of each so many keys, are looked up.
	lookedUpRequests = 8
	lookedUpKeys     = 64
	// A client that others wait for has slowReply to take something, and that and a second for each slowReplyBytes to take all.
	slowReply      = 5 * time.Second
	slowReplyBytes = 1 << 20
	// A client is quick that takes this many bytes in each millisecond, and has quickReply besides.
	quickBytes = 32 << 10
	quickReply = 100 * time.Millisecond
)

// replyRoom shares the room among sessions, in the order in which they asked for some.
type replyRoom struct {
	limit int64 // bytes
	known replySizes

	mu       sync.Mutex
	held     int64                 // bytes, by all
	slowHeld int64                 // … by slow clients
	holders  map[*session]struct{} // who hold some
	waiting  [2][]*session         // the eldest first: quick clients, and slow ones
}

// replyTurn is a session's part in the room. It is guarded by replyRoom.mu.
type replyTurn struct {
	held   int64        // bytes
	slow   bool         // the client took its last large reply slowly, or had none yet: such clients share half of the room
	wants  func() int64 // bytes that it waits for; nil: it does not wait
	signal chan struct{}
	since  time.Time // when it began to wait, or its reply came
	beats  uint32    // of the session, when it was last looked at
	moved  time.Time // when they last changed
}

// Who is waiting in which queue.
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

// take gives room at once if there is some and nobody waits.
func (r *replyRoom) take(s *session, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting[s.answering.queue()]) > 0 || !r.mayHold(s, n) || !r.fits(n) {
		return false
	}
	r.give(s, n)
	return true
}

// fits reports whether there is room; whoever comes alone always finds some. The caller holds mu.
func (r *replyRoom) fits(n int64) bool { return r.held == 0 || r.held+n <= r.limit }

// mayHold reports whether a client, if it is slow, may have so much besides what slow ones have. The caller holds mu.
func (r *replyRoom) mayHold(s *session, n int64) bool {
	return !s.answering.slow || r.slowHeld == 0 || r.slowHeld+n <= r.limit/2
}

// give gives room. The caller holds mu.
func (r *replyRoom) give(s *session, n int64) {
	r.set(s, s.answering.held+n)
}

// set makes what a session holds so much. The caller holds mu.
func (r *replyRoom) set(s *session, n int64) {
	t := &s.answering
	r.held += n - t.held
	if t.slow {
		r.slowHeld += n - t.held
	}
	if t.held = n; n == 0 {
		delete(r.holders, s)
		return
	}
	if r.holders == nil {
		r.holders = map[*session]struct{}{}
	}
	r.holders[s] = struct{}{}
	t.since = time.Now()
	t.moved = t.since
}

// hold says that a session holds so much now: a reply has come, or was taken by the client.
func (r *replyRoom) hold(s *session, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n <= freeReply {
		n = 0
	}
	r.set(s, n)
	r.grant()
}

// taken is hold for what is left when a client took so much since a time.
func (r *replyRoom) taken(s *session, bytes int, since time.Time, left int64) {
	r.hold(s, 0)
	if bytes > maxBatchBytes {
		r.mu.Lock()
		s.answering.slow = time.Since(since) > time.Duration(bytes/quickBytes)*time.Millisecond+quickReply
		r.mu.Unlock()
	}
	if left > 0 {
		r.hold(s, left)
	}
}

// settle lets those on for whom there is room now. The caller holds mu.
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
		q := s.answering.queue()
		r.waiting[q] = slices.Delete(r.waiting[q], 0, 1)
		s.answering.wants = nil
		s.answering.wake()
	}
}

// next is who comes next: who has waited longest, unless it is a slow client and others of those have all that they may. What
// it wants is told anew: the replies to others may have told more. The caller holds mu.
func (r *replyRoom) next() *session {
	var next *session
	for _, waiting := range r.waiting {
		if len(waiting) == 0 || !r.mayHold(waiting[0], waiting[0].answering.wants()) {
			continue
		}
		if s := waiting[0]; next == nil || s.answering.since.Before(next.answering.since) {
			next = s
		}
	}
	return next
}

// wake makes the session look whether it has its turn. It never blocks.
func (t *replyTurn) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// await waits for room. It fails where the session is to end.
func (r *replyRoom) await(s *session, wants func() int64) error {
	t := &s.answering
	r.mu.Lock()
	t.wants, t.since = wants, time.Now()
	r.waiting[t.queue()] = append(r.waiting[t.queue()], s)
	r.grant()
	r.mu.Unlock()
	for {
		r.mu.Lock()
		if t.wants != nil && s.killed.Load() && s.cut.Load() {
			q := t.queue()
			r.waiting[q] = slices.DeleteFunc(r.waiting[q], func(c *session) bool { return c == s })
			t.wants = nil
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

// look closes clients that take their replies too slowly, or not at all, while others have waited for room for long, until there would be
// room for who has waited longest.
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
		if len(waiting) > 0 && (first == nil || waiting[0].answering.since.Before(first.answering.since)) {
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
		if s.state.Load() != waitsForOutput || now.Sub(t.moved) < slowReply && now.Sub(t.since) < patience {
			continue
		}
		missing -= t.held
		s.srv.clientMemory.evicted.Add(1)
		s.srv.warnings.Warn("closed a client that reads a large reply too slowly while others wait", "client", s.addr, "bytes", t.held)
		s.kill()
	}
}

// makeWay takes room for the replies to the requests that are asked for now.
func (s *session) reserveReply(by Asker, owed []pending) error {
	room := &s.srv.replies
	s.inHand = 0
	wants := func() int64 { return room.known.expect(by) }
	n := wants()
	if most, whole := s.bound(owed, n > freeReply); whole {
		n = most
		wants = func() int64 { return most }
	} else if most < n {
		n = most
		wants = func() int64 { return min(most, room.known.expect(by)) }
	}
	if n <= freeReply || room.take(s, n) {
		return nil
	}
	if err := s.send(); err != nil {
		return err
	}
	if s.answering.held > 0 { // of what was sent nothing is left
		room.hold(s, 0)
	}
	return room.await(s, wants)
}

// bound looks up how large the replies to requests can be. whole says that this is how large they are expected to be; where it does not come
// to that, and others is not set, the bound is not looked up.
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

// boundOf is how large the reply to one command can be, by the values of its keys.
func (s *session) boundOf(db int, spec *commands.Spec, args [][]byte) int64 {
	if spec.Handler == nil {
		return 0
	}
	k := &spec.Keys
	var keys [][]byte
	switch {
	case spec.Group == "scripting" || k.First == 0 && k.Numkeys == 0:
		return commands.MaxReplyBytes
	case len(k.Parts) == 0 && k.Flags&commands.KeyAccess == 0:
		return freeReply / lookedUpRequests // it tells nothing of values
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

// replied takes in how large the replies are that came.
func (s *session) replied(by Asker, n int) {
	s.srv.replies.known.note(by, int64(n))
	s.inHand = n
	if s.answering.held > 0 || n > freeReply {
		s.srv.replies.hold(s, int64(n+cap(s.reply.Buf)))
	}
}

// replySizes remembers how large replies were. Where sessions meet it is not exact: what it tells are hints.
type replySizes struct {
	commands [1 << 10]replySize // by Asker.Command
	shapes   [1 << 12]replySize // by Asker.Shape: large ones alone
}

// replySize has the upper half of the hash of what was asked for in its upper half, and bytes in its lower.
type replySize struct{ atomic.Uint64 }

func (v *replySize) load(hash uint64) (bytes int64, known bool) {
	word := v.Load()
	return int64(uint32(word)), word>>32 == hash>>32
}

func (v *replySize) store(hash uint64, bytes int64) { v.Store(hash>>32<<32 | uint64(uint32(bytes))) }

func (z *replySizes) expect(by Asker) int64 {
	if n, known := z.shapes[by.Shape%uint64(len(z.shapes))].load(by.Shape); known {
		return n
	}
	if n, known := z.commands[by.Command%uint64(len(z.commands))].load(by.Command); known {
		return n
	}
	return unknownReply
}

// note takes in a reply. What is expected falls slowly.
func (z *replySizes) note(by Asker, bytes int64) {
	shape, command := &z.shapes[by.Shape%uint64(len(z.shapes))], &z.commands[by.Command%uint64(len(z.commands))]
	if _, known := shape.load(by.Shape); known && bytes <= freeReply {
		shape.Store(0)
	} else if bytes > freeReply {
		shape.store(by.Shape, bytes)
	}
	last, known := command.load(by.Command)
	if known && last <= freeReply && bytes <= freeReply {
		return // as nearly always: nothing is written
	}
	command.store(by.Command, max(bytes, last-last/8))
}
