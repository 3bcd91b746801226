// WAIT and WAITAOF, and how a session waits in the middle of a command. One goroutine asks the
// leader on behalf of all waiters.

package server

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// wait replies immediately if enough voters hold the writes; otherwise it asks the leader until
// they do or the time is up.
func wait(s *session, _ *commands.Spec, args [][]byte) {
	want, ok := commands.ParseInt(args[1])
	if !ok {
		s.fail(commands.ErrNotInteger)
		return
	}
	if _, others, ok := s.waitReplicated(0, want, args[2]); ok {
		s.w.Int(others)
	}
}

// waitAOF is WAIT for logs on disk. Every Raft log is on disk, this node's included.
func waitAOF(s *session, _ *commands.Spec, args [][]byte) {
	local, ok := commands.ParseInt(args[1])
	if !ok {
		s.fail(commands.ErrNotInteger)
		return
	}
	if local < 0 || local > 1 {
		s.fail(commands.Error("ERR value is out of range, value must between 0 and 1"))
		return
	}
	want, ok := commands.ParseInt(args[2])
	if !ok || want < 0 {
		s.fail(commands.ErrNotPositive)
		return
	}
	if own, others, ok := s.waitReplicated(local, want, args[3]); ok {
		s.w.Array(2)
		s.w.Int(own)
		s.w.Int(others)
	}
}

// waitReplicated waits until want other voters, and this node if local is 1, hold the writes, for
// at most timeout ms. If ok is false, nothing more is to be replied.
func (s *session) waitReplicated(local, want int64, timeout []byte) (own, others int64, ok bool) {
	timeoutMs, ok := commands.ParseInt(timeout)
	switch {
	case !ok:
		s.fail(commands.Error("ERR timeout is not an integer or out of range"))
		return 0, 0, false
	case timeoutMs < 0:
		s.fail(commands.Error("ERR timeout is negative"))
		return 0, 0, false
	}
	if s.held.known { // all of a transaction's writes were there before the first answer
		return s.held.own, s.held.others, true
	}
	st := s.srv.backend.Status()
	voters, _ := st.voters()
	q := replicationQuestion{s: s, others: assured(voters)}
	if timeoutMs > 0 {
		q.until = time.Now().Add(time.Duration(min(timeoutMs, 1<<40)) * time.Millisecond)
	}
	own, others = q.ask()
	if s.inExec {
		s.held = replicated{true, own, others}
	}
	if own >= local && others >= want || s.inExec {
		return own, others, true
	}
	if s.send() != nil { // the client sees earlier replies while it waits
		s.quit = true
		return 0, 0, false
	}
	own, others, err := q.await(local, want)
	switch {
	case err == errUnblocked:
		s.fail(err)
	case err != nil:
		s.quit = true
	}
	return own, others, err == nil
}

// replicated is an answer about the writes of a transaction: those that ask in it share one.
type replicated struct {
	known       bool
	own, others int64
}

const (
	// firstAsk and laterAsk bound one question to the leader; the first delays the replies to
	// earlier commands.
	firstAsk = 50 * time.Millisecond
	laterAsk = time.Second
	// minPause separates the first questions, maxPause those without progress. Followers learn
	// of a commit within about 10 ms; until then the pause is at most busyPause.
	minPause  = 2 * time.Millisecond
	busyPause = 20 * time.Millisecond
	maxPause  = 200 * time.Millisecond
)

// replicationQuestion is a WAIT in progress.
type replicationQuestion struct {
	s     *session
	until time.Time // zero: no limit
	index uint64    // the index to be held, from the first answer; 0: no answer yet
	// voters other than the leader that hold it; at first from this node's possibly old view of
	// the members
	others int64
}

func (q *replicationQuestion) late() bool {
	return !q.until.IsZero() && !time.Now().Before(q.until)
}

// left returns d, limited to the remaining time.
func (q *replicationQuestion) left(d time.Duration) time.Duration {
	if q.until.IsZero() {
		return d
	}
	return max(min(d, time.Until(q.until)), 0)
}

// ask asks for the first time. If the leader does not answer, it returns the known state.
func (q *replicationQuestion) ask() (own, others int64) {
	ctx, cancel := context.WithTimeout(q.s.srv.ctx, max(q.left(firstAsk), minPause))
	defer cancel()
	h, err := q.s.srv.backend.Replication(ctx)
	if err != nil {
		return q.held(q.s.srv.backend.Status().Applied)
	}
	return q.record(&h, q.s.srv.backend.Status().Applied)
}

// record records an answer, given when this node had applied the log up to an index.
func (q *replicationQuestion) record(h *Replication, applied uint64) (own, others int64) {
	if q.index == 0 {
		q.index, q.others = h.Index, assured(len(h.Others)+1)
	}
	known := int64(0)
	for _, index := range h.Others {
		if index >= q.index {
			known++
		}
	}
	q.others = max(q.others, known)
	return q.held(applied)
}

func (q *replicationQuestion) held(applied uint64) (own, others int64) {
	if q.index > 0 && applied >= q.index {
		own = 1
	}
	return own, q.others
}

// await waits for a sufficient answer, the timeout or CLIENT UNBLOCK. The error is errUnblocked if
// that says so, another if the client or the server has gone away.
func (q *replicationQuestion) await(local, want int64) (own, others int64, err error) {
	s := q.s
	w := &replicationWaiter{waiter: waiter{conn: s.conn, wakeup: make(chan struct{}, 1)}, q: q,
		local: local, want: want}
	s.srv.replication.join(s.srv, w)
	defer s.srv.replication.leave(w)
	w.waits = true
	s.waiter.Store(&w.waiter)
	s.srv.waitQueues.blocked.Add(1) // who sees that one waits can unblock it
	defer func() {
		s.srv.waitQueues.blocked.Add(-1)
		s.waiter.Store(nil)
	}()
	defer func() { _ = s.conn.SetReadDeadline(time.Time{}) }()
	for {
		if own, others, done, err := w.prepareSleep(); done {
			return own, others, err
		}
		// checked after setting the deadline: closing sets a later one
		if s.srv.closing.Load() || s.killed.Load() || !s.watchClient(q.left(pollInterval)) {
			return 0, 0, io.EOF
		}
	}
}

// replicationWaiter is a waiter for answers. Only sufficient answers wake it.
type replicationWaiter struct {
	waiter
	q           *replicationQuestion // guarded by waiter.mu
	local, want int64
}

// prepareSleep returns the result if it is sufficient, the time is up or CLIENT UNBLOCK ends the
// wait; otherwise it prepares a sleep.
func (w *replicationWaiter) prepareSleep() (own, others int64, done bool, err error) {
	applied := w.q.s.srv.backend.Status().Applied
	w.mu.Lock()
	defer w.mu.Unlock()
	own, others = w.q.held(applied)
	done = own >= w.local && others >= w.want || w.q.late() || w.unblock != ""
	if w.unblock == unblockError {
		err = errUnblocked
	}
	if w.asleep = !done; w.asleep {
		_ = w.conn.SetReadDeadline(w.q.until)
	}
	return own, others, done, err
}

func (w *replicationWaiter) receive(h *Replication, applied uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if own, others := w.q.record(h, applied); own >= w.local && others >= w.want {
		w.wake()
	}
}

// replicationWatch asks the leader for all waiters.
type replicationWatch struct {
	mu      lockorder.Mutex
	waiting map[*replicationWaiter]struct{}
	end     context.CancelFunc // ends the goroutine that asks
	came    chan struct{}      // a waiter arrived
}

func (v *replicationWatch) join(srv *Server, w *replicationWaiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waiting == nil {
		v.waiting, v.came = map[*replicationWaiter]struct{}{}, make(chan struct{}, 1)
	}
	v.waiting[w] = struct{}{}
	select {
	case v.came <- struct{}{}:
	default:
	}
	if v.end != nil {
		return
	}
	var ctx context.Context
	ctx, v.end = context.WithCancel(srv.ctx)
	came := v.came // a later goroutine has another channel
	srv.wg.Go(func() { v.ask(ctx, srv.backend, came) })
}

func (v *replicationWatch) leave(w *replicationWaiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if delete(v.waiting, w); len(v.waiting) == 0 {
		v.end()
		v.end, v.waiting = nil, nil
	}
}

// ask asks until nobody waits. An answer counts for those who waited when it was requested.
func (v *replicationWatch) ask(ctx context.Context, backend Backend, came <-chan struct{}) {
	var last Replication
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		select {
		case <-time.After(pause):
		case <-came: // more may arrive
			pause = minPause
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
		h, err := v.askOnce(ctx, backend)
		if err != nil {
			continue
		}
		if !slices.Equal(h.Others, last.Others) {
			pause = min(pause, busyPause/2)
		}
		last = h
	}
}

func (v *replicationWatch) askOnce(ctx context.Context, backend Backend) (Replication, error) {
	v.mu.Lock()
	asking := make([]*replicationWaiter, 0, len(v.waiting))
	for w := range v.waiting {
		asking = append(asking, w)
	}
	v.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, laterAsk)
	defer cancel()
	h, err := backend.Replication(limited)
	if err != nil {
		return h, err
	}
	applied := backend.Status().Applied
	for _, w := range asking {
		w.receive(&h, applied)
	}
	return h, nil
}

// pollInterval is how often a waiting session checks its state when it cannot read the connection.
const pollInterval = 50 * time.Millisecond

// awaitNode waits until this node has what it may lack because it lags, or has just started; at
// most until a time, or the session ends. It asks less and less often: however many sessions wait,
// they do not take the processor from what they wait for. It reports whether the node has it.
func (s *session) awaitNode(until time.Time, has func() bool) bool {
	for pause := time.Millisecond; !has(); pause = min(2*pause, pollInterval) {
		if !time.Now().Before(until) || s.killed.Load() || s.srv.closing.Load() {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// linger pauses the current command. It returns false if the client or the server has gone away.
func (s *session) linger(d time.Duration) bool {
	if s.srv.closing.Load() || s.killed.Load() {
		return false
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(d))
	defer func() { _ = s.conn.SetReadDeadline(time.Time{}) }()
	return s.watchClient(d)
}
