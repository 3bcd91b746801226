// The state and life of a connection: read what has arrived, run it, write all replies, repeat.

package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/lockorder"
)

// Limits of one batch.
const (
	maxBatchRequests = 4096
	maxBatchBytes    = 1 << 20
)

// How long, and for how many bytes, a connection that the server closes is still read.
const (
	drainTime  = 100 * time.Millisecond
	drainBytes = 1 << 20
)

// lastWrites bounds the writing of queued output when a connection ends.
const lastWrites = time.Second

// session is one connection. Its fields stand together by who may use them: docs/concurrency.md.
type session struct {
	srv  *Server
	conn net.Conn
	in   *stream // used by the session's goroutine alone
	out  output  // with a mutex of its own

	origin
	admission
	choices
	running
	charges
	shared
	noted

	mu   lockorder.Mutex
	view view // guarded by mu: what other connections see
}

// origin is where a connection comes from. It does not change.
type origin struct {
	id      uint64
	unix    bool           // on a Unix socket
	seesTLS bool           // its client is given the TLS addresses of members
	gate    *halfopen.Gate // by which it came in
	addr    string         // address of the client, host:port
	laddr   string         // address of the server
	created time.Time
}

// admission is what decides whether a connection may stay. Its goroutine alone uses it.
type admission struct {
	// the user whom its certificate names; empty: none, or it was tried
	certifiedAs string
	// from another machine, and protected mode could not decide yet
	unvetted bool
	counted  bool // in Server.unauthenticated, see stand
	// its host has its token of Server.door back
	identified bool
	usersUntil time.Time // how long it waits for the users; zero: it has not waited yet
	newUsers   bool      // it has changed the users, and awaitRevoked has not run yet
	admittedBy *Users    // those that decided about the newest command; nil: none were known
	early      int       // commands since its client must authenticate
}

// choices are what a client has chosen. The session's goroutine alone uses them.
type choices struct {
	db           int
	proto        int   // 2 or 3
	stale        bool  // READONLY: reads see this node's own state
	muted        bool  // CLIENT REPLY OFF
	skipNext     bool  // CLIENT REPLY SKIP: suppress the next command's reply
	skipping     bool  // … this is that command
	noTouch      bool  // CLIENT NO-TOUCH
	redirects    bool  // CLIENT CAPA redirect
	leaderWaitMs int64 // CLIENT LEADER-WAIT; -1: as CONFIG says
	monitoring   bool  // MONITOR is on
	caching      bool  // CLIENT CACHING applies to the next command
	name         string
	libName      string
	libVer       string
	tx           transaction
	subs         [subKinds]map[string]struct{} // this session's subscriptions, as in pubsub
}

// running is what a session's commands are about. Its goroutine alone uses it.
type running struct {
	gone    bool                      // the client has disconnected
	quit    bool                      // the connection ends after the current replies
	killing []*session                // by the CLIENT KILL that runs
	meant   *clientsMeant             // by the CLIENT command that runs
	planned map[subscription]struct{} // what a running transaction subscribes to: see receiveAhead
	batch   batch
	reply   commands.RESP  // complete replies, not sent yet
	w       *commands.RESP // receives the current command's own reply
	last    *commands.Spec // newest command
	tally   tally
	traces  *traces   // nil: it makes no spans
	clock   time.Time // newest reading: reading it costs as much as a command
	fails   uint64    // error replies to the session's own commands
	failure codeWord  // code word of the newest error reply

	more    int  // commands that follow the current one in the same read
	sends   int  // how often replies were sent
	sent    int  // bytes of them
	pushed  bool // the current command replies with messages, which CLIENT REPLY does not suppress
	inExec  bool // answering the session's part of a transaction
	inBlock int  // … of so many commands

	work *budget    // budget of the running command, with Local.Works
	held replicated // WAIT's answer in inExec

	uncounted bool // its subscriptions may not count yet: see awaitCounted

	refused bool // a command of the newest batch did not run for lack of a leader
	blocked bool // the current command waits
	nudged  bool // the connection's deadline has served its purpose
}

// charges are what a session counts towards limits. Its goroutine alone uses them.
type charges struct {
	tlsBytes  int // what TLS keeps for the connection
	spare     int
	aheadHeld int    // the session's part of Server.ahead
	meter     meter  // counts what the connection sends
	meterOf   *rates // those that meter counts for; nil: there are none
	inHand    int    // bytes of replies being put in order
	taken     int    // bytes of the requests that run
}

// shared is what any goroutine may use.
type shared struct {
	memory        account
	place         atomic.Int32             // a place, see seat
	user          atomic.Pointer[identity] // nil: nobody has authenticated
	holds         atomic.Uint64            // its id, once it may hold leases
	noEvict       atomic.Bool              // CLIENT NO-EVICT
	state         atomic.Int32             // what it waits for: see cron
	beats         atomic.Uint32            // incremented by each read and write
	trims         atomic.Bool              // asked to free buffers
	sending       atomic.Int64             // bytes of replies being sent
	killed        atomic.Bool              // ends soon
	leaves        atomic.Bool              // what is sent to it now may get lost
	cut           atomic.Bool              // … without writing anything more
	pushProto     atomic.Int32             // proto, for delivery
	subscriptions atomic.Int32             // as in pubsub
	waiter        atomic.Pointer[waiter]   // the command that waits; nil: none
	track         atomic.Pointer[tracker]  // nil: tracking is off
	// since when it may have to leave, if so
	triedSince atomic.Pointer[time.Time]
	// since when the client must authenticate and has not; nil: it need not, as far as it is known
	unauthenticatedSince atomic.Pointer[time.Time]
}

// noted is what others note about a session, each under its own lock or in its own goroutine.
type noted struct {
	attention attention // used by cron
	// used by cron: since when the output exceeds the soft limit; zero: it does not
	swollen   time.Time
	load      sessionLoad // used by delivery
	turn      turn        // guarded by intake.mu
	answering replyTurn   // guarded by replyRoom.mu
	telling   countTurn   // guarded by counting.mu
	// keys with pending invalidations, and their bytes as charged; guarded by tracking.mu
	tracked      map[string]uint32
	trackedBytes int
	// those that may be lost; guarded by lockHolds.mu
	locks      map[heldLock]*lockHold
	holdsLocks atomic.Int64 // how many
}

// view is what CLIENT LIST and CLIENT KILL see of another session.
type view struct {
	name, libName, libVer string
	db, proto             int
	multi                 int // queued commands; -1: no transaction
	multiBytes            int
	subs                  [subKinds]int
	watch                 int
	redirect              int64
	flags, capa           string // capa: r if the client follows REDIRECT
	used                  time.Time
	last                  string // full name of the newest command
	queryBytes, queryFree int
	argBytes              int
	replyBytes            int
}

func newSession(srv *Server, id uint64, conn net.Conn) *session {
	s := &session{
		srv:  srv,
		conn: conn,
		origin: origin{
			id:      id,
			addr:    conn.RemoteAddr().String(),
			laddr:   conn.LocalAddr().String(),
			created: time.Now(),
			seesTLS: srv.seesTLS(conn),
		},
		choices: choices{leaderWaitMs: -1},
	}
	if path, ok := conn.LocalAddr().(*net.UnixAddr); ok { // the client's end has no name
		s.unix = true
		s.laddr = path.Name + ":0"
		s.addr = s.laddr
	}
	if chain := s.certificates(); len(chain) > 0 && srv.cfg.TLSUsers {
		s.certifiedAs = chain[0].Subject.CommonName
	}
	if _, ok := conn.(*tls.Conn); ok {
		s.tlsBytes = tlsBytes
	}
	s.memory.of = &srv.clientMemory
	s.in = newStream(conn, srv.cfg.MaxRequestBytes)
	s.in.grow = s.mayGrow
	s.out.init(conn, s.pushLimit, &srv.stats.bytesOut, &s.beats, &s.memory)
	s.setProto(2)
	s.batch.room = firstRoom
	s.answering.signal, s.answering.slow = make(chan struct{}, 1), true
	s.w = &s.reply
	if srv.cfg.Tracing != nil {
		s.traces = &traces{}
	}
	s.triedSince.Store(&s.created)
	s.view = view{proto: 2, multi: -1, redirect: -1, flags: "N", used: s.created, last: "NULL"}
	return s
}

// skipsEarly reports whether the connection goes on after a command that is too large before AUTH:
// it is read after all, as the node learns meanwhile that the client need not authenticate, or is
// skipped.
func (s *session) skipsEarly(err error) bool {
	switch _, unknown := s.knownUsers(); {
	case unknown != nil:
		s.in.skip(unknown)
	case !s.stand():
		s.in.again()
	case err == errBigBeforeAuth:
		s.in.skip(commands.ErrNoAuth)
	default:
		return false
	}
	return true
}

// serve runs the connection.
func (s *session) serve() {
	defer s.close()
	// if it fails without ending the session, the next command tries again
	if err := s.authenticateByCertificate(); s.quit {
		s.fail(err)
		_ = s.send()
	}
	for !s.quit {
		s.in.small = s.stand() && s.certifiedAs == ""
		s.in.most = s.allowance()
		from := s.in.start
		cmds, err := s.in.nextCommands()
		if !s.pay(len(cmds), s.in.start-from) {
			return
		}
		if len(cmds) > 0 {
			s.taken = s.in.start - from
			s.handle(cmds)
		}
		if len(cmds) > 0 || s.in.partial {
			if s.in.small {
				s.slowDown()
			}
			if s.quit || s.refused && s.srv.cutOff() {
				return
			}
			s.refused = false
			if s.in.partial && !s.killed.Load() {
				continue // with the limits that apply now: it may have authenticated
			}
		}
		if beforeAuth(err) && s.skipsEarly(err) {
			continue
		}
		if err != nil {
			s.srv.log.Debug("protocol error", "client", s.addr, "error", err)
			s.w.Error(err.Error())
			s.countError(codeOf(err.Error()))
			_ = s.send()
			return
		}
		if !s.readOn() {
			return
		}
		n, err := s.read()
		switch {
		case err == nil:
			s.srv.stats.bytesIn.Add(uint64(n))
			s.srv.stats.reads.Add(1)
		// someone interrupted: readOn and freeIdle find out why
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.nudged = true
			if s.trims.Swap(false) {
				s.freeIdle()
			}
		default:
			s.gone = true
			return
		}
	}
}

// read waits for input.
func (s *session) read() (int, error) {
	s.state.Store(waitsForInput)
	defer s.state.Store(works)
	if err := s.in.makeRoom(); err != nil {
		return 0, err
	}
	s.measure()
	n, err := s.in.fill()
	if n > 0 {
		s.beats.Add(1)
	}
	if s.aheadHeld > 0 {
		s.holdAhead(max(len(s.in.ahead)-freeAhead, 0))
	}
	return n, err
}

// freeIdle frees what an idle client does not need.
func (s *session) freeIdle() {
	b := &s.batch
	s.in.freeBuffers()
	b.bytes, b.pending, b.literals.Buf, s.reply.Buf = nil, nil, nil, nil
	s.out.freeBuffers()
	s.show(0)
}

// lastRequests bounds how long a connection of a closing server may finish received requests and
// open transactions.
const lastRequests = time.Second

// readOn prepares the next read; false: the connection ends. A closing server reads what the
// client has sent by now and nothing more: a later request is not read, so it does not run, and
// the client sees the connection end in place of a reply. The end follows the reply to the last
// request read, so a client that sends one request at a time has none in flight then.
func (s *session) readOn() bool {
	if s.nudged {
		s.nudged = false
		_ = s.conn.SetReadDeadline(time.Time{})
		s.stand() // whoever interrupts now sets a later deadline
	}
	if s.srv.closing.Load() { // checked after setting the deadline: Close sets a later one
		s.takeDecrypted()
		_ = s.conn.SetReadDeadline(s.srv.lastReads)
		if !time.Now().Before(s.srv.lastReads) || !s.midway() && !inputPending(s.conn) {
			return false
		}
	}
	return !s.killed.Load() // likewise: whoever kills sets a later deadline
}

// midway reports whether the client has begun something that it cannot continue on another
// connection.
func (s *session) midway() bool {
	return s.tx.open || len(s.tx.watch) > 0 || s.in.start < s.in.end || len(s.in.ahead) > 0
}

// handle runs all received commands and sends their replies.
func (s *session) handle(cmds [][][]byte) {
	s.clock = time.Now()
	s.traces.begin(s.clock, len(cmds))
	s.show(len(cmds[0]))
	for i, args := range cmds {
		if s.killed.Load() {
			s.quit = true // what it has sent does not run any more: that can take hours
			break
		}
		s.more = len(cmds) - 1 - i
		s.dispatch(args)
		if len(s.reply.Buf) > maxBatchBytes && s.send() != nil {
			s.quit = true
		}
		if s.quit {
			break
		}
	}
	s.flush()
	s.flushTally()
	if s.in.lent {
		// all of it is answered: a client that does not read replies keeps no large request
		s.in.freeBuffers()
	}
	s.taken = 0
	// before the replies: a client that has read them may inspect this connection from another
	s.show(0)
	if s.send() != nil {
		s.quit = true
	}
}

// written returns the bytes of all replies so far, of which the newest go to w.
func (s *session) written(w *commands.RESP) int { return s.sent + len(w.Buf) }

// send writes the complete replies.
func (s *session) send() error {
	s.awaitCounted()
	if len(s.reply.Buf) > 0 {
		s.srv.stats.writes.Add(1)
	}
	s.sends++
	s.sent += len(s.reply.Buf)
	if s.turn.held > 0 { // a client that does not read replies must not delay requests of others
		s.srv.intake.leaveOut(s)
	}
	s.measure()
	charged := s.answering.held > 0
	// replies of the session itself count too
	if own := cap(s.reply.Buf); own > maxBatchBytes || charged {
		s.srv.replies.hold(s, int64(own+s.inHand))
		charged = true
	}
	s.state.Store(waitsForOutput)
	began, bytes := s.clock, len(s.reply.Buf)
	if charged {
		began = time.Now()
	}
	s.sending.Store(int64(bytes))
	defer s.sending.Store(0)
	if hard := s.outputLimit().hard; hard > 0 && s.outputWaits() > hard {
		s.srv.warnings.Warn("closed a client: client-output-buffer-limit exceeded", "client",
			s.addr, "limit_bytes", hard)
		s.kill() // the write fails
	}
	// Invalidations of keys recorded for pending reads wait for the replies to those reads, and
	// messages of the subscriptions that a transaction makes for its reply.
	holdOn := s.batch.count > 0 && (s.track.Load() != nil || s.planned != nil)
	err := errKilled // whoever cuts it may not have got as far as to have writes fail
	if !s.cut.Load() {
		err = s.out.write(s.reply.Buf, holdOn, framing{s.proto, s.subscribed(), s.monitoring})
	}
	s.state.Store(works)
	s.traceSent()
	if s.reply.Buf = s.reply.Buf[:0]; cap(s.reply.Buf) > maxBatchBytes {
		s.reply.Buf = nil
	}
	if charged {
		s.srv.replies.taken(s, bytes, began, int64(s.inHand))
	}
	return err
}

// close closes the connection and removes all references to it.
func (s *session) close() {
	s.leaves.Store(true)
	s.srv.holders.leave(s)
	if s.quit && s.subscribed() {
		s.awaitDelivery(context.Background()) // messages published before QUIT was answered
	}
	if s.counted {
		s.srv.unauthenticated.Remove(s.conn)
	}
	s.srv.pubsub.forget(s)
	s.srv.maintenance.leave(s)
	s.endMonitor()
	if s.track.Load() != nil {
		s.srv.tracking.stop(s)
		s.srv.observe()
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(lastWrites))
	s.out.drain()
	s.srv.intake.leave(s)
	s.holdAhead(0)
	s.srv.replies.hold(s, 0)
	s.out.closeAccount()
	s.memory.close()
	if !s.gone && !s.cut.Load() {
		s.drainInput()
	}
	s.setUser(nil)             // before its client sees the end, and comes again
	_ = socket(s.conn).Close() // TLS could wait until the client has read an alert
}

// drainInput lets the last replies arrive: closing a connection with unread input resets it, which
// discards replies that the client has not read.
func (s *session) drainInput() {
	if closeWrite(s.conn) != nil {
		return
	}
	conn := socket(s.conn)
	_ = conn.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, conn, drainBytes)
}

// kill ends another session immediately. It never blocks.
func (s *session) kill() {
	s.cut.Store(true)
	s.killed.Store(true)
	_ = s.conn.SetDeadline(past)
	s.interrupt()
}

// dismiss ends another session after in-flight replies and queued messages, as QUIT would. A
// client that does not read delays that by at most lastWrites. It never blocks.
func (s *session) dismiss() {
	s.out.shutOut()
	s.killed.Store(true)
	_ = s.conn.SetWriteDeadline(time.Now().Add(lastWrites))
	s.interrupt()
}

// interrupt makes a session that waits for its client or for a key check its state. Other sessions
// call it.
func (s *session) interrupt() {
	_ = s.conn.SetReadDeadline(past)
	s.srv.pubsub.delivery.wake()
	if w := s.waiter.Load(); w != nil {
		w.interrupt()
	}
	s.turn.interrupt()
	s.answering.wake()
}

func (s *session) subscribed() bool {
	return len(s.subs[subChannel])+len(s.subs[subPattern])+len(s.subs[subShard]) > 0
}

// show publishes the session's state to other sessions. args is the number of arguments of the
// next command.
func (s *session) show(args int) {
	last := "NULL"
	if s.last != nil {
		last = s.last.FullName()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.view
	v.name, v.libName, v.libVer = s.name, s.libName, s.libVer
	v.db, v.proto, v.last, v.used = s.db, s.proto, last, s.clock
	v.multi, v.multiBytes = -1, 0
	switch {
	case s.tx.open:
		v.multi, v.multiBytes = len(s.tx.queue), s.tx.bytes
	case s.inExec:
		v.multi = s.inBlock
	}
	v.watch = len(s.tx.watch)
	for k := range s.subs {
		v.subs[k] = len(s.subs[k])
	}
	v.flags, v.redirect = s.flags(), s.redirect()
	if v.capa = ""; s.redirects {
		v.capa = "r"
	}
	v.queryBytes = s.in.end - s.in.start + s.taken // what runs is not answered yet
	v.queryFree = max(len(s.in.buf)-v.queryBytes, 0)
	v.argBytes = args * 24
	v.replyBytes = cap(s.reply.Buf)
	s.measure()
}

// flags returns the letters of CLIENT LIST.
func (s *session) flags() string {
	var b []byte
	if s.subscribed() {
		b = append(b, 'P')
	}
	if s.monitoring {
		b = append(b, 'O')
	}
	if s.tx.open || s.inExec {
		b = append(b, 'x')
	}
	if s.blocked {
		b = append(b, 'b')
	}
	if t := s.track.Load(); t != nil {
		b = append(b, 't')
		if t.broken.Load() {
			b = append(b, 'R')
		}
		if t.bcast {
			b = append(b, 'B')
		}
	}
	if s.quit {
		b = append(b, 'c')
	}
	if s.unix {
		b = append(b, 'U')
	}
	if s.stale {
		b = append(b, 'r')
	}
	if s.noEvict.Load() {
		b = append(b, 'e')
	}
	if s.noTouch {
		b = append(b, 'T')
	}
	if len(b) == 0 {
		return "N"
	}
	return string(b)
}

func sortedSessions(m map[uint64]*session) []*session {
	all := make([]*session, 0, len(m))
	for _, c := range m {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	return all
}
