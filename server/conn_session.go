package server

// This file holds a connection's state and its life: read all that came, run it, write all replies, again.

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
)

// Limits of one run: what is ready beyond them makes another.
const (
	maxBatchRequests = 4096
	maxBatchBytes    = 1 << 20
)

// maxExecBytes of answers are given by the session within one transaction: they cannot be sent before the last is there.
const maxExecBytes = commands.MaxReplyBytes

// How long, and for how many bytes, a connection that the server ends is still read.
const (
	goodbye      = 100 * time.Millisecond
	goodbyeBytes = 1 << 20
)

// lastWrites is how long what waits for a client is still written when its connection ends.
const lastWrites = time.Second

// session is one connection. Its goroutine alone uses the fields without a comment; others see it through view and atomics.
type session struct {
	srv     *Server
	id      uint64
	conn    net.Conn
	unix    bool   // by a Unix socket
	addr    string // the client's, host:port
	laddr   string // ours
	created time.Time
	in      *stream
	out     output

	db        int
	proto     int  // 2 or 3
	gone      bool // the client has closed the connection
	stale     bool // READONLY: reads see this node's own state
	quit      bool // the connection ends after the replies so far
	muted     bool // CLIENT REPLY OFF
	skipNext  bool // CLIENT REPLY SKIP: the next command's reply is not sent
	skipping  bool // … and this is that command
	noTouch   bool
	redirects bool // CLIENT CAPA redirect
	name      string
	libName   string
	libVer    string
	tx        transaction
	subs      [subKinds]map[string]struct{} // of this session, as hub knows them
	batch     batch
	reply     commands.RESP  // replies that are complete, not sent yet
	w         *commands.RESP // where a command's own answer goes
	last      *commands.Spec // newest command
	tally     tally
	clock     time.Time // newest reading: one costs as much as a command
	fails     uint64    // error answers to the session's own commands

	more    int  // commands that came with the one under way and follow it
	sends   int  // how often replies were sent
	pushed  bool // the command under way answers by messages, which CLIENT REPLY does not silence
	inExec  bool // the session's part of a transaction is being answered
	inBlock int  // … whose commands are so many

	refused    bool // a command of the newest run did not run for want of a leader
	blocked    bool // the command under way waits
	monitoring bool // MONITOR was said
	caching    bool // CLIENT CACHING was said for the next command

	nudged    bool          // the connection has a deadline that has served its purpose
	noEvict   atomic.Bool   // CLIENT NO-EVICT
	state     atomic.Int32  // what it waits for: see cron
	beats     atomic.Uint32 // rises with each read and write of the connection
	trims     atomic.Bool   // it is to give buffers back
	attention attention     // cron's
	memory    account
	turn      turn // see intake
	spare     int
	answering replyTurn    // see replies
	load      sessionLoad  // the delivery's
	sending   atomic.Int64 // bytes of replies that are being sent
	swollen   time.Time    // cron's: since when more than the soft limit waits for the client; zero: it does not
	inHand    int          // bytes of replies that are being put in order

	killed        atomic.Bool             // it ends soon
	cut           atomic.Bool             // and nothing more is written
	pushProto     atomic.Int32            // proto, for who delivers messages
	subscriptions atomic.Int32            // as hub knows them
	waiter        atomic.Pointer[waiter]  // of the command that waits
	track         atomic.Pointer[tracker] // nil: the client is not told of changes of keys
	tracked       map[string]struct{}     // keys that it is told of; guarded by tracking.mu
	trackedBytes  int                     // of that, as the account has it; guarded by tracking.mu

	mu   sync.Mutex
	view view // guarded by mu: what other connections are told
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
	flags                 string
	used                  time.Time
	last                  string // full name of the newest command
	queryBytes, queryFree int
	argBytes              int
	replyBytes            int
}

func newSession(srv *Server, id uint64, conn net.Conn) *session {
	s := &session{
		srv:     srv,
		id:      id,
		conn:    conn,
		addr:    conn.RemoteAddr().String(),
		laddr:   conn.LocalAddr().String(),
		created: time.Now(),
	}
	if path, ok := conn.LocalAddr().(*net.UnixAddr); ok { // the client's end has no name
		s.unix = true
		s.laddr = path.Name + ":0"
		s.addr = s.laddr
	}
	s.memory.of = &srv.clientMemory
	s.in = newStream(conn, srv.cfg.MaxRequestBytes)
	s.in.grow = s.mayGrow
	s.out.init(conn, s.pushLimit, &srv.stats.bytesOut, &s.beats, &s.memory)
	s.setProto(2)
	s.batch.room = firstRoom
	s.answering.signal, s.answering.slow = make(chan struct{}, 1), true
	s.w = &s.reply
	s.view = view{proto: 2, multi: -1, redirect: -1, flags: "N", used: s.created, last: "NULL"}
	return s
}

// serve is the life of the connection.
func (s *session) serve() {
	defer s.end()
	for !s.quit {
		cmds, err := s.in.take()
		if len(cmds) > 0 {
			s.handle(cmds)
			if s.quit || s.refused && s.srv.cutOff() {
				return
			}
			s.refused = false
		}
		if err != nil {
			s.srv.log.Debug("protocol error", "client", s.addr, "error", err)
			s.w.Error(err.Error())
			s.countError(err.Error())
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
		case errors.Is(err, os.ErrDeadlineExceeded): // somebody wants it to look around: readOn and giveBack know why
			s.nudged = true
			if s.trims.Swap(false) {
				s.giveBack()
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
	return n, err
}

// giveInputBack lets go of what was read, where all of it was answered or is kept elsewhere.
func (s *session) giveInputBack() {
	s.batch.cmd[0], s.batch.req.Cmds = nil, nil // they refer to it
	s.in.giveBack()
}

// giveBack lets go of what a client that is idle does not need.
func (s *session) giveBack() {
	b := &s.batch
	s.giveInputBack()
	b.bytes, b.pending, b.literals.Buf, s.reply.Buf = nil, nil, nil, nil
	s.out.giveBack()
	s.show(0)
}

// lastRequests is how long a connection may go on that the server closes, with requests that are there and transactions that have begun.
const lastRequests = time.Second

// readOn prepares the next read; false: the connection ends here. Where the server closes, what the client has sent by now is
// still read, and then no more: a request that comes later is not read, so it does not run, and the client finds the end of
// the connection where its reply was due. The end follows the reply to the last request that was read, so a client that sends one request
// after the other has nothing under way then.
func (s *session) readOn() bool {
	if s.nudged {
		s.nudged = false
		_ = s.conn.SetReadDeadline(time.Time{})
	}
	if s.srv.closing.Load() { // looked at after the deadline was set: Close sets another one behind it
		_ = s.conn.SetReadDeadline(s.srv.lastReads)
		if !time.Now().Before(s.srv.lastReads) || !s.midway() && !inputPending(s.conn) {
			return false
		}
	}
	return !s.killed.Load() // as is this: who kills does the same
}

// midway says whether the client has begun something that it cannot go on with on another connection.
func (s *session) midway() bool {
	return s.tx.open || len(s.tx.watch) > 0 || s.in.start < s.in.end || len(s.in.ahead) > 0
}

// handle runs all commands that were ready and sends their replies.
func (s *session) handle(cmds [][][]byte) {
	s.clock = time.Now()
	s.show(len(cmds[0]))
	for i, args := range cmds {
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
	s.tellTally()
	if s.in.lent { // all of it was answered: who does not read replies keeps no large request
		s.giveInputBack()
	}
	s.show(0) // before the replies: who has read them may ask another connection about this one
	if s.send() != nil {
		s.quit = true
	}
}

// send writes the replies that are complete.
func (s *session) send() error {
	if len(s.reply.Buf) > 0 {
		s.srv.stats.writes.Add(1)
	}
	s.sends++
	if s.turn.held > 0 { // who does not read its replies holds up nobody's requests
		s.srv.intake.leaveOut(s)
	}
	s.measure()
	charged := s.answering.held > 0
	if own := cap(s.reply.Buf); own > maxBatchBytes || charged { // what the session answers by itself counts too
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
		s.srv.warnings.Warn("closed a client: client-output-buffer-limit exceeded", "client", s.addr, "limit_bytes", hard)
		s.kill() // the write fails
	}
	// What is said of keys that were noted for reads still owed waits for their replies too.
	err := s.out.write(s.reply.Buf, s.batch.count > 0 && s.track.Load() != nil, framing{s.proto, s.subscribed()})
	s.state.Store(works)
	if s.reply.Buf = s.reply.Buf[:0]; cap(s.reply.Buf) > maxBatchBytes {
		s.reply.Buf = nil
	}
	if charged {
		s.srv.replies.taken(s, bytes, began, int64(s.inHand))
	}
	return err
}

// end closes the connection and forgets it everywhere.
func (s *session) end() {
	if s.quit && s.subscribed() {
		s.srv.pubsub.delivery.settle() // what was published before QUIT was answered
	}
	s.srv.pubsub.forget(s)
	s.endMonitor()
	if s.track.Load() != nil {
		s.srv.tracking.end(s)
		s.srv.observe()
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(lastWrites))
	s.out.end()
	s.srv.intake.leave(s)
	s.srv.replies.hold(s, 0)
	s.out.settle()
	s.memory.close()
	if !s.gone && !s.cut.Load() {
		s.sayGoodbye()
	}
	_ = s.conn.Close()
}

// sayGoodbye lets the last replies arrive: a connection that is closed while input is unread is reset by the system, which takes
// replies from the client that it has not read yet.
func (s *session) sayGoodbye() {
	c, ok := s.conn.(interface{ CloseWrite() error })
	if !ok || c.CloseWrite() != nil {
		return
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(goodbye))
	_, _ = io.CopyN(io.Discard, s.conn, goodbyeBytes)
}

// kill makes another session end at once. It never blocks.
func (s *session) kill() {
	s.cut.Store(true)
	s.killed.Store(true)
	_ = s.conn.SetDeadline(past)
	s.interrupt()
}

// dismiss makes another session end behind what is under way and what messages it was given, but no more of them, as QUIT would. A client that does not
// read holds that up by lastWrites. It never blocks.
func (s *session) dismiss() {
	s.out.shutOut()
	s.killed.Store(true)
	_ = s.conn.SetWriteDeadline(time.Now().Add(lastWrites))
	s.interrupt()
}

// interrupt makes the session look around if it waits for its client or for a key. Others call it.
func (s *session) interrupt() {
	_ = s.conn.SetReadDeadline(past)
	if w := s.waiter.Load(); w != nil {
		w.interrupt()
	}
	s.turn.interrupt()
	s.answering.wake()
}

func (s *session) subscribed() bool {
	return len(s.subs[subChannel])+len(s.subs[subPattern])+len(s.subs[subShard]) > 0
}

// show refreshes what other sessions are told. args is the number of arguments of the command that comes now.
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
	v.queryBytes = s.in.end - s.in.start
	v.queryFree = len(s.in.buf) - v.queryBytes
	v.argBytes = args * 24
	v.replyBytes = cap(s.reply.Buf)
	s.measure()
}

// flags are the letters of CLIENT LIST.
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
