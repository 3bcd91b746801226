// Outgoing links: one persistent forwarding connection to each other member, redialed when lost.

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/lockorder"
)

// maxFrames is how many frames of a kind a follower has in flight to the leader.
const maxFrames = 4

// Heavy frames, of one batch each, are sent beside those. They are few, since the leader's fair
// queue orders only what has arrived, and small together (unless one alone is larger), since light
// frames wait behind them on the connection.
const (
	maxHeavyFrames = 4
	maxHeavyBytes  = 2 << 20
)

const (
	redialMin   = 20 * time.Millisecond
	redialMax   = 500 * time.Millisecond
	linkBuffer  = 64 << 10 // bytes of the read buffer
	maxAskQueue = 64 << 10 // backlog in bytes at which a confirm frame is skipped
)

// sentFrame is a write or read frame that waits for its reply.
type sentFrame struct {
	kind  frameKind
	sent  time.Time
	calls []*call // nil once abandoned; the frame keeps its slot until the reply arrives
	// part of it may have left this node; guarded by the peerConn's lock until its writer ends
	begun bool
	heavy bool // it carries one heavy batch
	size  int  // bytes of its batches
}

// inFlight counts frames of a kind in flight.
type inFlight struct{ light, heavy, heavyBytes int }

func (c *inFlight) add(f *sentFrame, sign int) {
	if !f.heavy {
		c.light += sign
		return
	}
	c.heavy, c.heavyBytes = c.heavy+sign, c.heavyBytes+sign*f.size
}

// link is this node's connection to one other member.
type link struct {
	n  *Node
	id string

	stop chan struct{} // closed when the member is removed or the node stops

	missed   atomic.Bool // its absence was logged
	foreign  atomic.Bool // the member has another processor architecture
	late     atomic.Bool // it did not answer the newest question in time
	length   messageLength
	repeats  repeats
	attempts int    // to reach it; run's own
	worked   string // the address of the newest connection; run's own

	confirmed uint64 // the newest confirmation that it was part of; the read loop's own

	mu lockorder.Mutex
	traffic
	known
}

// traffic is what goes over a link's connection; guarded by link.mu.
type traffic struct {
	wire     *peerConn // nil while down
	frames   map[uint64]*sentFrame
	inFlight [lastKind + 1]inFlight
	asked    map[uint64]chan<- response // questions that wait for its answer
	failure  error                      // why begun frames fail; nil: errLinkLost
	drained  bool                       // the member said that it runs none of them
	renewing bool                       // connect again once no frame is in flight
}

// known is what the node knows of a link's member; guarded by link.mu.
type known struct {
	peer    hello         // the member's hello on the newest connection
	started time.Time     // … and when it started, by that
	wallMs  int64         // its wall clock, less this node's Monotonic; 0: unknown
	walled  time.Duration // the Monotonic at which it told that
	// the cluster last named by a node with the member's id, refused or not
	claimed   string
	attempted bool   // an attempt to reach it has ended
	fault     string // how the newest attempt or connection ended; empty while connected
	addr      string // where the member was last reached; empty if that failed since
	// when the connection was lost; zero while connected, and before the first
	broke time.Time
	// when the address of that connection last refused another one, since then; else zero
	refused time.Time
	told    time.Time     // the time of the finding that the member was told of, see tell
	lost    bool          // the last attempt did not reach the member; false before the first
	reached chan struct{} // closed when lost becomes false
	// the newest confirm frame that was answered, and the answer's content; both zero until one has
	// come on the newest connection: a member that was restarted may have less than it said before
	ackNonce   uint64
	report     termReport
	reportedAt uint64 // this node's commit index when the report came
	lastIndex  uint64 // the newest report's, of whichever connection
	heard      time.Time
	unfit      bool // to lead, or stopping, as of that answer
	toldSums   toldSums
	confirms   confirms
}

func newLink(n *Node, id string) *link {
	return &link{n: n, id: id, stop: make(chan struct{}),
		traffic: traffic{frames: map[uint64]*sentFrame{}},
		known:   known{reached: make(chan struct{})}}
}

// reachable reports whether the member answers, as far as known, and returns a channel that is
// closed when it does again. A member that refuses this link, say for its version, is reachable.
func (l *link) reachable() (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached, !l.lost
}

// noteClaim notes the cluster that a node with the member's id names as its own, empty for none.
func (l *link) noteClaim(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimed = cluster
}

// hasCluster reports whether the member said that it belongs to a cluster.
func (l *link) hasCluster() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claimed != ""
}

// incarnation returns the member's incarnation as of its last connection, empty before the first.
func (l *link) incarnation() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer.incarnation
}

// probed reports whether the member was asked and did not name a cluster.
func (l *link) probed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempted && l.claimed == ""
}

func (l *link) setAddr(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = addr
}

func (l *link) setLost(lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case lost && !l.lost:
		l.reached = make(chan struct{})
	case !lost && l.lost:
		close(l.reached)
	}
	l.lost, l.attempted = lost, true
}

func (l *link) noteFault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = err.Error()
}

// run keeps the link connected until it is stopped.
func (l *link) run() {
	delay, up, reported := redialMin, false, false
	for {
		began := time.Now()
		err := l.session(&up)
		l.noteFault(err)
		if up {
			delay, reported = redialMin, false
		}
		select {
		case <-l.stop:
			return
		default:
		}
		if l.n.removal.removed.Load() {
			return // every member would refuse it
		}
		if !reported && (up || time.Since(l.n.opened) > 2*time.Second) {
			reported = true
			l.missed.Store(true)
			l.n.logger.Warn("no connection to member", "member", l.id, "error", err)
		}
		up = false
		wait := delay + time.Duration(rand.Int64N(int64(delay)/2)) - time.Since(began)
		delay = min(2*delay, redialMax)
		select {
		case <-l.stop:
			return
		case <-time.After(wait):
		}
	}
}

// session dials, greets, and reads replies until the connection fails.
func (l *link) session(up *bool) error {
	addrs := l.n.addresses(l.id)
	if len(addrs) == 0 {
		return errors.New("its address is not known")
	}
	addr := addrs[l.attempts%len(addrs)]
	l.attempts++ // the next attempt uses another address, unless this one succeeds
	l.setAddr("")
	conn, err := l.n.mux.open(l.id, addr, []byte{streamForward}, dialTimeout)
	if err != nil {
		l.setLost(true)
		if addr == l.worked && errors.Is(err, syscall.ECONNREFUSED) {
			l.noteRefused()
		}
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(appendHello(nil, l.n.hello(l.id, ""))); err != nil {
		return err
	}
	reader := bufio.NewReaderSize(conn, linkBuffer)
	h, err := readHello(reader)
	if err == nil && h.id == l.id {
		l.noteClaim(h.cluster)
	}
	l.setLost(err != nil)
	switch {
	case err != nil:
		return err
	case h.lostDisk && h.cluster != "":
		l.n.toldLostDisk(h)
		return errors.New(h.refusal)
	case h.removed:
		l.n.markRemoved()
		return errors.New(h.refusal)
	case h.refusal != "":
		return fmt.Errorf("it refused the connection: %s", h.refusal)
	case h.version != protocolVersion:
		return fmt.Errorf("its peer protocol is version %d, this node's is %d", h.version,
			protocolVersion)
	case h.id != l.id:
		return fmt.Errorf("the node at %s is %q", addr, h.id)
	}
	if refusal, _ := l.n.checkIdentity(h); refusal != "" {
		return errors.New(refusal)
	}
	l.attempts--
	l.worked = addr
	l.setAddr(addr)
	l.n.noteAddr(h)
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	l.mu.Lock()
	select {
	case <-l.stop: // end found no connection to close
		l.mu.Unlock()
		return errStopping
	default:
	}
	w := newPeerConn(conn, reader)
	l.wire, l.peer, l.heard, l.failure, l.drained = w, h, time.Now(), nil, false
	l.started = l.heard.Add(-time.Duration(h.upMs) * time.Millisecond)
	l.renewing, l.unfit, l.toldSums = false, false, toldSums{}
	l.ackNonce, l.report, l.reportedAt = 0, termReport{}, 0
	l.confirms = confirms{newest: l.heard}
	l.broke, l.refused, l.told = time.Time{}, time.Time{}, time.Time{}
	l.fault = ""
	l.noteWall(h.wallMs)
	l.mu.Unlock()
	*up = true
	if l.missed.Swap(false) {
		l.n.logger.Info("member reconnected", "member", l.id)
	} else {
		l.n.logger.Debug("connected to member", "member", l.id)
	}
	l.n.noteBuild(l.id, h)
	l.n.linkUp()
	err = l.receive(w)
	w.close()
	<-w.done
	l.down()
	return err
}

// receive handles frames until the connection or the peer fails.
func (l *link) receive(w *peerConn) error {
	for {
		f, err := readFrame(w.reader)
		if err != nil {
			return err
		}
		switch f.kind {
		case frameReply:
			if err = l.reply(f); err == nil && l.renewed() {
				return errRenewed
			}
		case frameTerm:
			err = l.termAnswer(f)
		case frameAnswer:
			l.takeAnswer(f)
		case frameDrained:
			l.mu.Lock()
			l.drained = true
			l.mu.Unlock()
			return errMemberStops
		default:
			err = fmt.Errorf("a frame of kind %d in place of a reply", f.kind)
		}
		if err != nil {
			l.n.logger.Warn("invalid frame from member, connection closed", "member", l.id, "error",
				err)
			return err
		}
	}
}

// takes reports whether frames may be sent. The caller holds mu. On a connection that is closed and
// not yet found to be down, forward would be tried again and again.
func (l *link) takes() bool { return l.wire != nil && !l.renewing && !l.wire.ended() }

// renew has the link connect again, after the frames in flight are answered or ReplyWait.
func (l *link) renew() {
	l.mu.Lock()
	l.renewing = true
	w := l.wire
	l.mu.Unlock()
	switch {
	case w == nil:
	case l.renewed():
		w.close()
	default:
		time.AfterFunc(l.n.cfg.ReplyWait, w.close)
	}
}

// renewed reports whether the link is to connect again now.
func (l *link) renewed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewing && len(l.frames) == 0
}

// errRenewed ends a link that connects again.
var errRenewed = errors.New("the connection is renewed")

// errMemberStops ends a link whose other end is drained.
var errMemberStops = errors.New("it is stopping")

// down ends the frames of a lost connection. Frames that cannot have left this node, and reads, are
// rerouted; a write that may have left is unknown, unless the member was drained.
func (l *link) down() {
	l.mu.Lock()
	frames, failure, drained := l.frames, l.failure, l.drained
	l.wire, l.frames, l.inFlight = nil, map[uint64]*sentFrame{}, [lastKind + 1]inFlight{}
	l.broke = time.Now()
	l.unanswered()
	l.mu.Unlock()
	if failure == nil {
		failure = errLinkLost
	}
	for _, f := range frames {
		if f.kind == frameWrite && f.begun && !drained {
			finishAll(f.calls, failure)
		} else {
			l.n.queueOf(f.kind).requeue(f.calls, false)
		}
	}
	l.n.linkChanged()
}

// fail closes the connection if a write or read is in flight on it; these end with err or are
// rerouted.
func (l *link) fail(err error) {
	l.mu.Lock()
	w := l.wire
	busy := len(l.frames) > 0
	if w != nil && busy && l.failure == nil {
		l.failure = err
	}
	l.mu.Unlock()
	if w != nil && busy {
		w.close()
	}
}

// close stops the link for good.
func (l *link) close() {
	l.mu.Lock()
	w := l.wire
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	if w != nil {
		w.close()
	}
}

// room reports whether another frame of light batches may be sent, and how many batches it needs.
func (l *link) room(kind frameKind) (least int, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	least = 1
	if l.inFlight[kind].light > 0 {
		least = joinBatches
	}
	return least, l.takes() && l.inFlight[kind].light < maxFrames
}

// roomForHeavy reports whether one more frame of a heavy batch of that kind may be sent.
func (l *link) roomForHeavy(kind frameKind) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.inFlight[kind]
	return l.takes() && c.heavy < maxHeavyFrames && c.heavyBytes < maxHeavyBytes
}

// heardSince reports whether the member has answered anything since then.
func (l *link) heardSince(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard.After(t)
}

// brokeAt returns when the connection was lost, zero while there is one.
func (l *link) brokeAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broke
}

// noteRefused notes that the address where the member was last reached refuses connections.
func (l *link) noteRefused() {
	l.mu.Lock()
	l.refused = time.Now()
	l.mu.Unlock()
	kick(l.n.routeWake)
}

// refusedAt returns when the member's address last refused a connection, zero if the member was
// reached since then or never.
func (l *link) refusedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// tell tells the member once what this node has found.
func (l *link) tell(f finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire != nil && !l.told.Equal(f.at) && l.peer.abilities&abilityLeaderless != 0 {
		l.told = f.at
		l.wire.send(endFrame(appendFinding(beginFrame(20), f), frameLeaderless, 0, 0), nil)
	}
}

// busy reports whether a write or read is in flight.
func (l *link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.frames) > 0
}

// able reports whether the member has an ability.
func (l *link) able(ability uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer.abilities&ability != 0
}

// up reports whether the link is connected.
func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wire != nil
}

// forward sends calls in one frame. It returns false if the link is down, and nothing was sent.
func (l *link) forward(kind frameKind, calls []*call) bool {
	count, size, batches := 0, 0, make([][]byte, 0, len(calls))
	for _, c := range calls {
		count, size, batches = count+c.count, size+c.size, append(batches, c.batches...)
	}
	id := l.n.nextFrame.Add(1)
	buf := appendRequests(beginFrame(size+5*len(batches)+40), count, batches)
	f := &sentFrame{kind: kind, calls: calls, sent: time.Now(), heavy: calls[0].heavy, size: size}
	if f.heavy && l.able(abilityScheduling) {
		buf = appendTag(buf, tag{calls[0].Flow.ID, calls[0].cost})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.takes() {
		return false
	}
	l.frames[id] = f
	l.inFlight[kind].add(f, 1)
	if !l.wire.send(endFrame(buf, kind, 0, id), f) {
		delete(l.frames, id)
		l.inFlight[kind].add(f, -1)
		return false
	}
	return true
}

// ask sends a confirm frame, unless the peer reads nothing.
func (l *link) ask(nonce uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire != nil && l.wire.backlog() < maxAskQueue {
		l.confirms.asked(time.Now())
		l.wire.send(endFrame(appendCommit(beginFrame(20), l.n.raft.CurrentTerm(),
			l.n.committed()), frameConfirm, 0, nonce), nil)
	}
}

// confirms are the confirm frames of a connection, which are answered in order. Of those in flight
// the time of one is known: an answer that took long proves nothing about later.
type confirms struct {
	sent, answered uint64
	timed          uint64 // the one whose time is known; 0: none
	at             time.Time
	newest         time.Time // when the newest was sent that is known to be answered
}

func (c *confirms) asked(now time.Time) {
	c.sent++
	if c.timed == 0 {
		c.timed, c.at = c.sent, now
	}
}

func (c *confirms) answer() {
	if c.answered++; c.answered == c.timed {
		c.timed = 0
		c.proves(c.at)
	}
}

// proves notes that what was sent at a time is answered.
func (c *confirms) proves(at time.Time) {
	if at.After(c.newest) {
		c.newest = at
	}
}

// holds reports whether the member, in the same term, has reported exactly the log of a leader, and
// to have applied as much: one that still replays its log does not stand for election.
func (l *link) holds(term, lastIndex, applied uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.term == term && l.report.lastIndex == lastIndex && l.report.applied >= applied
}

// answered reports whether the member answered a confirm frame no older than nonce and is in no
// later term than term.
func (l *link) answered(nonce, term uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ackNonce >= nonce && l.report.term <= term
}

func (l *link) termAnswer(f frame) error {
	t, err := decodeTermReport(f.payload)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.n.trace.Record(trace.Event{Kind: trace.Answered, Peer: l.id, Question: f.id, Term: t.term})
	// A question of the route loop has nonce 0 and must not undo an answer to the read loop.
	l.ackNonce, l.report, l.heard = max(l.ackNonce, f.id), t, time.Now()
	l.reportedAt, l.lastIndex = l.n.raft.CommitIndex(), t.lastIndex
	l.confirms.answer()
	l.unfit = f.status == statusNotTaken
	if t.wallMs != 0 {
		l.noteWall(t.wallMs)
	}
	l.mu.Unlock()
	kick(l.n.confirmed)
	return nil
}

// noteUnfit notes that the member has declined to lead.
func (l *link) noteUnfit() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unfit = true
}

// reply handles the answer to a write or read frame.
func (l *link) reply(f frame) error {
	l.mu.Lock()
	fl := l.frames[f.id]
	if fl == nil {
		l.mu.Unlock()
		return fmt.Errorf("a reply to frame %d, which is not in flight", f.id)
	}
	var got answers
	var err error
	if f.status == statusDone && fl.calls != nil {
		if got, err = decodeReplies(f.payload); err == nil && len(got.replies) != len(fl.calls) {
			err = fmt.Errorf("%d replies to %d batches", len(got.replies), len(fl.calls))
		}
		if err != nil { // the frame ends with the connection
			l.mu.Unlock()
			return err
		}
	}
	delete(l.frames, f.id)
	l.inFlight[fl.kind].add(fl, -1)
	l.heard = time.Now()
	l.confirms.proves(fl.sent)
	l.mu.Unlock()

	q := l.n.queueOf(fl.kind)
	switch {
	case f.status == statusDone:
		l.deliver(q, fl, got)
	case f.status == statusNotTaken || fl.kind == frameRead && f.status == statusUnknown:
		l.n.reroute(q, fl.calls)
	default:
		finishAll(fl.calls, unknown("the leader says: "+string(f.payload)))
	}
	kick(q.wake)
	return nil
}

// deliver gives each call of a frame its reply, and requeues what did not run.
func (l *link) deliver(q *queue, fl *sentFrame, got answers) {
	again, total := fl.calls[:0], uint64(0)
	for i, c := range fl.calls { // none if the sweep abandoned them
		work := uint64(0)
		if i < len(got.work) {
			work = got.work[i]
			total += work
		}
		switch {
		case got.replies[i] != nil:
			q.charge(c, work, len(got.replies[i]))
			c.finish(got.replies[i:i+1:i+1], nil)
		case got.kinds[i] == replyNotRun, fl.kind == frameRead && i > 0:
			// there was no room for it behind the others
			again = append(again, c)
		case fl.kind == frameRead:
			c.finish(nil, errReadBigReply)
		default:
			c.finish(nil, errBigReply)
		}
	}
	if !fl.heavy && (len(again) > 0 || total >= fair.Quantum/2) {
		q.beCautious()
	}
	if len(again) > 0 {
		q.requeue(again, false)
	}
}
