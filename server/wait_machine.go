// The commands of this node that wait in the machine, which serves them in the entry that brings
// them something (docs/adr/0040). The node tells the machine when one no longer waits, and sends it
// again if the machine has dropped it.

package server

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/resp"
)

const (
	// servedLimit is how long a command that has been served waits for its reply, which this node
	// gets when it applies the entry.
	servedLimit = 10 * time.Second
	// leaveLimit is how long the end of the server waits for the machine to forget waits, and to
	// get back what was taken.
	leaveLimit = time.Second
	// leaveTogether is how many waits are left in one batch.
	leaveTogether = 256
)

var errWaitLost = &Error{Unknown, "UNKNOWN the command may or may not have run: it waited, and " +
	"this node did not learn how that ended"}

// machineWaits are the commands of this node that wait in the machine, or are about to.
type machineWaits struct {
	named   sync.Once
	node    []byte // this node's id
	mu      lockorder.Mutex
	era     uint64 // era of the node's waits, as far as known
	number  uint64 // number of the newest wait
	waiting map[uint64]*waiter
	left    []uint64            // the machine is to forget them: their clients are gone
	strays  map[uint64]struct{} // see leaveStrays
	leaving bool                // leaveAll runs
	// gone are the requests whose clients are gone, encoded, until their WaitEnded
	gone map[uint64][]byte
}

// join makes a waiter of a command that may come to wait in the machine.
func (m *machineWaits) join(s *session) *waiter {
	m.named.Do(func() { m.node = []byte(s.srv.backend.Status().ID) })
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting == nil {
		m.waiting, m.number = map[uint64]*waiter{}, s.srv.backend.FirstWait()
	}
	m.number++
	w := &waiter{session: s, conn: s.conn, db: s.db, number: m.number,
		wakeup: make(chan struct{}, 1)}
	m.waiting[w.number] = w
	return w
}

// renumber gives a waiter another number: news of the earlier one no longer concern it, also those
// that came while it left. A grant among them was given up.
func (m *machineWaits) renumber(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, w.number)
	w.takeNews()
	w.session.out.pay()
	m.number++
	w.number = m.number
	m.waiting[w.number] = w
}

// request returns what an attempt names, with the command's earlier place.
func (m *machineWaits) request(w *waiter) *commands.Wait {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &commands.Wait{Node: m.node, Era: m.era, Number: w.number, Order: w.order}
}

// knows takes an era that the machine named.
func (m *machineWaits) knows(era uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era = max(m.era, era)
}

// sent reports whether this process, whose numbers come behind first, has given a wait its number.
// The caller holds the mutex.
func (m *machineWaits) sent(first, number uint64) bool {
	return m.waiting != nil && number > first && number <= m.number
}

// forget removes a waiter that has its reply.
func (m *machineWaits) forget(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, w.number)
	w.session.out.pay() // it may have been served meanwhile
}

// tellWaits hands events of the machine to the waiters that they concern. It never blocks.
func (s *Server) tellWaits(e *commands.Event) {
	m := &s.machineWaits
	switch e.Kind {
	case commands.Served, commands.WaitsDropped, commands.StateReplaced,
		commands.WaitEnded:
		m.mu.Lock()
		defer m.mu.Unlock()
	default:
		return
	}
	if e.Kind == commands.Served {
		if w := m.waiting[e.Wait]; w != nil {
			if w.session.track.Load() != nil {
				w.session.out.holdFor(&s.wg) // what the command changed is told after its reply
			}
			w.tell(func(n *waitNews) {
				n.reply, n.claimed, n.clockMs = commands.RepliesOf(e.Payload), e.Claimed, e.ClockMs
			})
		} else if q, gone := m.gone[e.Wait]; gone {
			delete(m.gone, e.Wait)
			var r commands.RequestReader
			r.Reset(q)
			if q, err := r.Next(); err == nil {
				s.putBackServed(e.Wait, *q, commands.RepliesOf(e.Payload))
			}
		} else if e.Claimed && m.sent(s.backend.FirstWait(), e.Wait) {
			m.left = append(m.left, e.Wait) // a stray: else it holds the lock for nobody
			s.startLeaving()
		}
		return
	}
	switch e.Kind {
	case commands.WaitEnded:
		delete(m.gone, e.Wait)
		if w := m.waiting[e.Wait]; w != nil {
			w.tell(func(n *waitNews) { n.ended = true })
		}
		return
	case commands.WaitsDropped:
		m.era = max(m.era, e.Wait)
	case commands.StateReplaced: // the ends of these may be in what the snapshot skipped
		m.left = slices.AppendSeq(m.left, maps.Keys(m.gone))
		s.startLeaving()
	}
	var asleep []*waiter
	for _, w := range m.waiting {
		if w.note(func(n *waitNews) {
			if e.Kind == commands.WaitsDropped {
				n.dropped = max(n.dropped, e.Wait)
			}
			n.replaced = n.replaced || e.Kind == commands.StateReplaced
		}) {
			asleep = append(asleep, w)
		}
	}
	wakeWaiters(asleep)
}

// waitNews is what the machine has done with a waiter.
type waitNews struct {
	reply    commands.Replies // it was served
	claimed  bool             // … with a lock that is claimed
	clockMs  int64            // … by the cluster clock
	dropped  uint64           // … or dropped, if it was kept in an era before this one
	ended    bool             // … or it left: the machine no longer has it
	replaced bool             // … or any of these, unless the machine still has it
	raised   bool             // the machine may keep it now
}

// note records news and reports whether the waiter must be woken.
func (w *waiter) note(change func(*waitNews)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.news)
	w.woken = true
	w.signal()
	return w.asleep
}

// tell records news and wakes the waiter.
func (w *waiter) tell(change func(*waitNews)) {
	w.note(change)
	w.interrupt()
}

func (w *waiter) hasNews() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &w.news
	return n.reply.Size() > 0 || n.dropped > 0 || n.ended || n.replaced
}

// takeNews returns what is new.
func (w *waiter) takeNews() waitNews {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.news
	w.news = waitNews{}
	return news
}

// inMachine reports whether a command waits in the machine. Below LevelSecond none does.
func (s *Server) inMachine(spec *commands.Spec) bool {
	return spec.WaitsInMachine() && s.backend.Level() >= commands.LevelSecond
}

// enter moves a command that waits on this node into the machine.
func (b *blocked) enter() {
	left := b.w
	b.w = b.s.srv.machineWaits.join(b.s)
	b.publish()
	b.s.srv.waitQueues.leave(left)
	b.s.srv.observe()
	b.dueAll = true // the next attempt names all keys
}

// takePlace takes the place that the machine gave the command. Without one the next attempt is due:
// in the era that the machine has named, or as one that waits on this node.
func (b *blocked) takePlace(block []byte) {
	p, ok := commands.CutPlace(block)
	waits := &b.s.srv.machineWaits
	waits.knows(p.Era)
	switch {
	case ok && p.Order != 0:
		b.w.order, b.kept = p.Order, true
		return
	case !ok || p.Era == b.request.Wait.Era: // it has no room
		waits.forget(b.w)
		args := b.request.Cmds[0]
		b.w, _ = b.s.srv.waitQueues.join(b.s.conn, b.s.db, waitedKeys(b.spec, args), b.spec, args)
		b.request.Wait = nil
		b.s.srv.observe()
		if b.s.blocked {
			b.publish()
		}
	}
	b.w.mu.Lock()
	b.w.woken = true
	b.w.mu.Unlock()
}

// read acts on news of the machine. done is false if the command waits on, or is to be sent again
// because the machine no longer has it.
func (b *blocked) read(news waitNews) (replies commands.Replies, err error, done bool) {
	switch {
	case news.reply.Size() > 0 && b.leaves && b.spec.Claims():
		// The request gives up what was granted, also what is claimed. It may have done so, and
		// else the next one does.
		b.s.out.pay()
		return replies, nil, false
	case news.reply.Size() > 0:
		b.kept = false
		b.s.out.pay()
		// a node that was away, or has sent it again, asks whether the client still holds it
		if news.claimed && !b.resent && b.s.srv.backend.ClockMs()-news.clockMs <= freshMs {
			return news.reply, nil, true
		}
		return b.claimed(news.reply)
	case !b.kept:
		return replies, nil, false
	case news.replaced && !b.s.srv.backend.Waits(b.w.number):
		b.missed = true
	}
	// The places of those who wait for locks outlive the term of a leader.
	if news.dropped > b.request.Wait.Era && !news.ended && b.spec.Claims() &&
		b.s.srv.backend.Waits(b.w.number) {
		b.request.Wait.Era = news.dropped
		return replies, nil, false
	}
	if news.ended || news.dropped > b.request.Wait.Era {
		b.kept = false
		if b.missed && !b.spec.Claims() { // it may have been served before
			return replies, errWaitLost, true
		}
		b.missed = false
	}
	return replies, nil, false
}

// leave ends a wait, with the reply if the machine has served it meanwhile. What the machine
// answers may be lost on the way: its news, which come in the order of the log, say the same.
func (b *blocked) leave() (replies commands.Replies, err error, served bool) {
	if b.w.number == 0 {
		return replies, nil, false
	}
	limit := servedLimit
	if b.s.srv.closing.Load() {
		limit = leaveLimit
	}
	ctx, cancel := context.WithTimeout(b.s.srv.ctx, limit)
	defer cancel()
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		if replies, err, served = b.read(b.w.takeNews()); served || !b.kept {
			return replies, err, served
		}
		left, err := b.s.srv.leaveWaits(ctx, b.s.workload(1), b.w.number)
		switch {
		case err == nil && left[0]:
			b.kept, b.missed = false, false
			return replies, nil, false
		case err != nil && outcomeOf(err) == NoLeader:
			cancel()
			continue
		}
		b.leaves = b.leaves || err != nil && !notRun(err)
		b.w.awaitNews(ctx, pause)
	}
	if b.spec.Claims() { // what it may have been granted is not claimed
		return replies, nil, false
	}
	return replies, errWaitLost, true
}

// awaitNews waits until there are news, for a pause at most.
func (w *waiter) awaitNews(ctx context.Context, pause time.Duration) {
	over := time.NewTimer(pause)
	defer over.Stop()
	for !w.hasNews() {
		select {
		case <-w.wakeup:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// leaveWaits has the machine forget waits. left reports for each whether it had it.
func (s *Server) leaveWaits(ctx context.Context, load Workload, numbers ...uint64) (left []bool,
	err error) {
	var batch []byte
	for _, n := range numbers {
		batch = commands.AppendRequest(batch, &commands.Request{Proto: 2, System: true,
			Cmds: [][][]byte{{[]byte(commands.SystemLeaveWait), strconv.AppendUint(nil, n, 10)}}})
	}
	replies, err := s.backend.Write(ctx, load, batch, len(numbers))
	for a, ok := replies.Next(); ok; a, ok = replies.Next() {
		left = append(left, a.Err() == nil)
	}
	return left, err
}

// leaveLater has the machine forget a wait whose client is gone, or put back what it takes.
func (s *Server) leaveLater(w *waiter, q commands.Request) {
	m := &s.machineWaits
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, w.number)
	w.session.out.pay()
	if news := w.takeNews(); news.reply.Size() > 0 && !claims(q.Cmds[0]) {
		s.putBackServed(w.number, q, news.reply)
		return
	}
	m.left = append(m.left, w.number)
	if m.gone == nil {
		m.gone = map[uint64][]byte{}
	}
	m.gone[w.number] = commands.AppendRequest(nil, &q)
	s.startLeaving()
}

// startLeaving has the machine forget what is in machineWaits.left. The caller holds the mutex.
func (s *Server) startLeaving() {
	m := &s.machineWaits
	if len(m.left) > 0 && !m.leaving {
		m.leaving = s.outlasting(s.leaveAll)
	}
}

// leaveAll runs until the machine has forgotten all of machineWaits.left.
func (s *Server) leaveAll() {
	m := &s.machineWaits
	m.mu.Lock()
	defer m.mu.Unlock()
	for pause := firstPause; len(m.left) > 0 && s.ctx.Err() == nil; {
		some := slices.Clone(m.left[:min(len(m.left), leaveTogether)])
		m.mu.Unlock()
		left, err := s.leaveWaits(s.ctx, Workload{}, some...)
		switch {
		case err == nil:
		case outcomeOf(err) == Refused:
			left = make([]bool, len(some)) // for good
		default: // they end with the leader's term at the latest
			pause = s.rest(pause)
		}
		m.mu.Lock()
		if m.left = m.left[len(left):]; len(left) > 0 {
			pause = firstPause
		}
	}
	m.leaving = false
}

// rest waits for a pause, and returns the next one.
func (s *Server) rest(pause time.Duration) time.Duration {
	select {
	case <-time.After(pause):
	case <-s.ctx.Done():
	}
	return min(2*pause, longestPause)
}

// underway counts what the end of the server waits for: that the machine forgets the waits of
// clients that are gone, and that what they took is put back.
type underway struct {
	mu    lockorder.Mutex
	count int
	none  chan struct{} // closed when count falls to 0; nil: it is
}

func (u *underway) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count++; u.count == 1 {
		u.none = make(chan struct{})
	}
}

func (u *underway) done() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count--; u.count == 0 {
		close(u.none)
		u.none = nil
	}
}

// await waits until nothing is under way, also of what begins meanwhile, for limit at most.
func (u *underway) await(limit time.Duration) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		u.mu.Lock()
		none := u.none
		u.mu.Unlock()
		if none == nil {
			return
		}
		select {
		case <-none:
		case <-late.C:
			return
		}
	}
}

// outlasting is inBackground for what the end of the server waits for.
func (s *Server) outlasting(f func()) bool {
	s.underway.begin()
	runs := s.inBackground(func() {
		defer s.underway.done()
		f()
	})
	if !runs {
		s.underway.done()
	}
	return runs
}

// changeState has the machine change what it has of nodes, and returns the reply.
func (s *Server) changeState(load Workload, words ...[]byte) (reply []byte, err error) {
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2, System: true,
		Cmds: [][][]byte{words}})
	replies, err := s.backend.Write(s.ctx, load, batch, 1)
	a, _ := replies.Next()
	return a.Reply, err
}

// askState is changeState for what is answered with a number.
func (s *Server) askState(load Workload, words ...[]byte) (uint64, error) {
	reply, err := s.changeState(load, words...)
	if err != nil {
		return 0, err
	}
	if v, err := resp.NewReader(bytes.NewReader(reply)).Value(); err == nil && v.Kind == resp.Int {
		return strconv.ParseUint(v.Text, 10, 64)
	}
	return 0, &Error{Unknown, "UNKNOWN the state may not have changed"}
}
