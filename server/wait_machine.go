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
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/pulse"
	"github.com/coordd/coordd/internal/resp"
)

const (
	// contactLimit is how long the leader waits to hear from a node before it drops the node's
	// waits: nobody knows whether those clients are there.
	contactLimit = time.Second
	// returnLimit is how long those who wait are not served after a change of leader, because not
	// all waits are back.
	returnLimit = 500 * time.Millisecond
	// watchPeriod is the time between two looks at the nodes with waits.
	watchPeriod = 50 * time.Millisecond
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

// renumber gives a waiter another number: news of the earlier one no longer concern it.
func (m *machineWaits) renumber(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, w.number)
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
		batch = commands.AppendRequest(batch, &commands.Request{Proto: 2, Setting: true,
			Cmds: [][][]byte{{[]byte(commands.SettingLeaveWait), strconv.AppendUint(nil, n, 10)}}})
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

// watchNodes drops the waits, the counts of subscribers and the connections with leases of nodes
// that this node does not reach, while it leads, and the waits and connections of those that have
// been started again since it looked. When it begins to lead, it has the nodes send their waits
// again, and ends the hold if some do not come.
// Until it began, the waits of an earlier process have not left.
func (s *Server) watchNodes(began bool) {
	defer s.background.Done()
	started := map[string]time.Time{}
	term, held, led := s.backend.Status().Term, time.Time{}, time.Time{}
	looked := time.Now()
	tick := pulse.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Next()
		case <-s.ctx.Done():
			return
		}
		if !began || time.Since(looked) >= strayPeriod {
			began, looked = s.leaveStrays() || began, time.Now()
		}
		nodes, subscribed := s.backend.WaitingNodes(), s.backend.SubscribedNodes()
		holders, caughtUp := s.backend.HolderNodes(), s.users() != nil
		if caughtUp { // until then it sees what was
			s.holders.begins(s, holders)
		}
		if len(nodes)+len(subscribed)+len(holders) == 0 && s.pubsub.size.Load() == 0 {
			continue
		}
		st := s.backend.Status()
		if caughtUp {
			s.counting.begins(s, slices.Contains(subscribed, st.ID))
		}
		if st.Role != "leader" {
			continue
		}
		if st.Term != term || led.IsZero() {
			led = time.Now()
		}
		if st.Term != term {
			term, held = st.Term, time.Time{}
			clear(started) // nodes that were started again while another led
			// It ends no wait, but as an entry of the term it drops all.
			if len(nodes) > 0 {
				s.changeWaits(commands.SettingLeaveWait, "0")
			}
		}
		switch {
		case !s.backend.WaitsHeld():
			held = time.Time{}
		case held.IsZero():
			held = time.Now()
		case time.Since(held) >= returnLimit:
			s.changeWaits(commands.SettingServeWaits)
		}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(
			slices.Concat(nodes, subscribed, holders)))) {
			again, heard := st.restarted(id, started), st.hears(id)
			if id == st.ID {
				continue
			}
			// A new leader has not heard of all yet. What waits for elements, its term has dropped;
			// who waits for a lock keeps its place.
			settled := time.Since(led) > contactLimit
			switch {
			case !slices.Contains(nodes, id):
			case again || !heard && settled:
				s.changeWaits(commands.SettingDropWaits, id)
			case !heard && s.backend.WaitsHeld():
				s.changeWaits(commands.SettingForgetWaits, id)
			}
			// A new leader has not heard of all yet, and counts are not lost with a term. A process
			// that has just begun drops what is of an earlier one, and may have told its own by
			// now.
			if slices.Contains(subscribed, id) && !heard && settled {
				s.changeWaits(commands.SettingDropSubscribers, id)
			}
			// likewise: leases are not lost with a term
			if slices.Contains(holders, id) && (again || !heard && settled) {
				s.changeWaits(commands.SettingDropHolders, id)
			}
		}
	}
}

// hears reports whether the leader, whose status it is, reaches a member.
func (st *Status) hears(id string) bool {
	return slices.ContainsFunc(st.Members, func(m Member) bool {
		return m.ID == id && m.Connected && m.LastContact < contactLimit
	})
}

// restarted reports whether a member has another process than when it was last asked about, and
// notes in started when its process began.
func (st *Status) restarted(id string, started map[string]time.Time) bool {
	at := slices.IndexFunc(st.Members, func(m Member) bool { return m.ID == id })
	if at < 0 || st.Members[at].Uptime <= 0 {
		return false
	}
	began, before := time.Now().Add(-st.Members[at].Uptime), started[id]
	started[id] = began
	// the node tells its uptime with each connection, the times of which differ by its delay
	return !before.IsZero() && began.Sub(before) > contactLimit
}

// changeWaits has the machine change what it has of nodes, as the leader decides.
func (s *Server) changeWaits(words ...string) {
	var cmd [][]byte
	for _, w := range words {
		cmd = append(cmd, []byte(w))
	}
	if _, err := s.changeState(Workload{LeaderWait: -1}, cmd...); err != nil {
		s.warnings.Warn("what the state has of a node is not changed yet", "change",
			strings.Join(words, " "), "error", err)
	}
}

// changeState has the machine change what it has of nodes, and returns the reply.
func (s *Server) changeState(load Workload, words ...[]byte) (reply []byte, err error) {
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2, Setting: true,
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
