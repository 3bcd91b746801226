package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/logging"
)

// Config says how a Server works. Zero values of limits mean the defaults that are named.
type Config struct {
	Table   *commands.Table
	Backend Backend
	Logger  *slog.Logger // nil: no logs
	Version string       // of coordd itself, for INFO

	Redirect     Redirect // what becomes of the leader's commands on other nodes; RedirectForward
	SentinelName string   // the master name that SENTINEL knows; mymaster

	MaxClients         int           // connections at a time; 10000
	MostClients        int           // … that the limit of open files allows; 0: any number
	MaxRequestBytes    int           // of one command, and of what one transaction queues; 32 MiB
	MaxSubscriberBytes int           // messages that wait for a slow subscriber before it is closed; 32 MiB
	MaxBacklogBytes    int64         // messages that wait for all clients together, each counted once, before the slowest are closed; 8 times MaxSubscriberBytes
	IdleTimeout        time.Duration // a connection without commands for so long is closed; 0: never
	UnixSocket         string        // path of the socket that clients reach the node by besides; for CONFIG GET
	UnixSocketPerm     uint32        // its permissions
	DrainTimeout       time.Duration // how long Close lets requests in flight be answered; 5 s
	MaxReplyBytes      int64         // large replies that are made, or wait for their clients, on the whole node; 128 MiB
	MaxClientMemory    ClientMemory  // what all connections may take together, before those that take most are closed; zero: any number

	cronPeriod, trimAfter time.Duration // tests set them shorter
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Redirect == "" {
		c.Redirect = RedirectForward
	}
	if c.SentinelName == "" {
		c.SentinelName = "mymaster"
	}
	if c.MaxClients == 0 {
		c.MaxClients = 10000
	}
	if c.MostClients > 0 {
		c.MaxClients = min(c.MaxClients, c.MostClients)
	}
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = 32 << 20
	}
	if c.MaxSubscriberBytes == 0 {
		c.MaxSubscriberBytes = 32 << 20
	}
	if c.MaxBacklogBytes == 0 {
		c.MaxBacklogBytes = 8 * int64(c.MaxSubscriberBytes)
	}
	if c.MaxReplyBytes == 0 {
		c.MaxReplyBytes = 2 * LeastReplyBytes
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 5 * time.Second
	}
	if c.cronPeriod == 0 {
		c.cronPeriod, c.trimAfter = cronPeriod, trimAfter
	}
}

// Server serves clients of one node.
type Server struct {
	table      *commands.Table
	backend    Backend
	log        *slog.Logger
	cfg        Config
	started    time.Time
	runID      string // 40 hexadecimal digits, other at each start
	pubsub     *pubsub
	waitQueues waitQueues
	tracking   tracking
	hints      hints
	stats      stats
	config     settings
	monitors   monitors
	holders    holdersWatch
	pause      pause
	slowlog    slowlog
	latency    latency
	saving     saving

	clientMemory clientMemory
	intake       intake
	replies      replyRoom
	nudge        chan struct{}    // a token: cron is to look
	warnings     *logging.Limited // of what clients cause

	failingOver atomic.Bool // FAILOVER runs
	constants   sync.Map    // constantKey → []byte: answers that are made once
	backingUp   atomic.Bool // a backup is sent
	startBytes  uint64      // that objects took at the start

	ctx    context.Context // ends what Close did not wait for
	cancel context.CancelFunc
	wg     sync.WaitGroup // sessions

	leader     atomic.Pointer[leaderView] // nil: clients cannot be sent to one
	following  bool                       // guarded by mu: the leader is followed
	background sync.WaitGroup             // who follows the leader

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	sessions  map[uint64]*session
	retired   atomic.Bool // no connections are accepted any more
	closing   atomic.Bool // and those that are there end
	lastReads time.Time   // when the last of them is read no more; set before closing
	nextID    uint64

	askers    uint64 // what a session's number is added to in requests, where it has to be another one than those of all nodes
	observing sync.Mutex
	observed  bool // guarded by observing: the backend tells of changes of keys
	port      int  // of the first listener, for INFO
}

// New makes a server. Its table has Specs() among others.
func New(cfg Config) *Server {
	cfg.setDefaults()
	s := &Server{
		table:     cfg.Table,
		backend:   cfg.Backend,
		log:       cfg.Logger,
		warnings:  logging.NewLimited(cfg.Logger),
		cfg:       cfg,
		started:   time.Now(),
		listeners: map[net.Listener]struct{}{},
		sessions:  map[uint64]*session{},
	}
	s.pubsub = newPubsub(s.deliverParcel)
	s.startBytes = readMemory().objects
	s.tracking.init()
	s.slowlog.threshold.Store(slowlogUs)
	s.slowlog.maxLen.Store(slowlogLen)
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	s.runID = hex.EncodeToString(id[:])
	s.askers = binary.LittleEndian.Uint64(id[:])>>1 | 1<<62 // never 0 with a number added
	s.stats.errors = map[string]uint64{}
	s.stats.byCommand = newCommandStats(cfg.Table)
	s.config.init(cfg)
	s.clientMemory.init(cfg.MaxClientMemory)
	s.replies.limit = max(cfg.MaxReplyBytes, LeastReplyBytes)
	s.intake.limit = intakeRequests * cfg.MaxRequestBytes
	s.nudge = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections of ln until Retire or Close, then returns nil; another end of ln is an error. It may be called for
// several listeners. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.retired.Load() {
		s.mu.Unlock()
		_ = ln.Close()
		return nil
	}
	if len(s.listeners) == 0 {
		s.background.Add(1)
		go s.cron()
	}
	s.listeners[ln] = struct{}{}
	s.startFollowing()
	if a, ok := ln.Addr().(*net.TCPAddr); ok && s.port == 0 {
		s.port = a.Port
	}
	s.mu.Unlock()
	defer func() { _ = ln.Close() }()
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		if err == nil {
			pause = 0
			s.accept(conn)
			continue
		}
		if s.retired.Load() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Usually no file is left for the connection: others end in time.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.warnings.Warn("accept failed", "error", err)
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
		}
	}
}

// accept starts a session, unless there are too many.
func (s *Server) accept(conn net.Conn) {
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		_ = conn.Close()
		return
	}
	if int64(len(s.sessions)) >= s.config.maxClients.Load() {
		s.mu.Unlock()
		s.stats.rejected.Add(1)
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = conn.Write([]byte("-ERR max number of clients reached\r\n"))
		_ = conn.Close()
		return
	}
	s.nextID++
	c := newSession(s, s.nextID, conn)
	s.sessions[c.id] = c
	s.wg.Add(1)
	s.mu.Unlock()
	s.stats.connections.Add(1)
	go func() {
		defer s.wg.Done()
		c.serve()
		s.mu.Lock()
		delete(s.sessions, c.id)
		s.mu.Unlock()
	}()
}

// lastAccepts is for how long connections are still accepted that clients made already: a listener that is closed resets them.
const lastAccepts = 5 * time.Millisecond

// Retire stops accepting; connections that are there go on. /readyz says that the node stops. It may be called again.
func (s *Server) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired.Swap(true) {
		return
	}
	for ln := range s.listeners {
		if d, ok := ln.(interface{ SetDeadline(time.Time) error }); !ok || d.SetDeadline(time.Now().Add(lastAccepts)) != nil {
			_ = ln.Close()
		}
	}
}

// Close stops accepting, lets the requests that were received be answered for as long as Config.DrainTimeout, and closes
// all connections. A connection that ends within that time ends behind a whole reply, and no request was run whose reply does not come before the
// end: see session.readOn. A client that connects elsewhere may send again what was not answered. Past that time connections are cut: of
// requests that were not answered nobody knows whether they run, and sessions that wait for the Backend end when it answers.
func (s *Server) Close() {
	s.Retire()
	s.mu.Lock()
	if !s.closing.Load() {
		s.lastReads = time.Now().Add(min(lastRequests, s.cfg.DrainTimeout/2))
		s.closing.Store(true)
	}
	for _, c := range s.sessions {
		c.interrupt()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	limit := time.NewTimer(s.cfg.DrainTimeout)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		s.mu.Lock()
		for _, c := range s.sessions {
			c.kill()
			_ = c.conn.Close()
		}
		s.mu.Unlock()
	}
	s.cancel()
	s.pubsub.delivery.close()
	s.background.Wait()
}

// all returns the sessions in order of age.
func (s *Server) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedSessions(s.sessions)
}

// session returns the session of a number, or nil.
func (s *Server) session(id uint64) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// past is a deadline that wakes whoever reads or writes.
var past = time.Unix(1, 0)
