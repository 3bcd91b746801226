package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/audit"
	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/locks"
	"github.com/coordd/coordd/internal/logging"
	"github.com/coordd/coordd/internal/metrics"
	"github.com/coordd/coordd/internal/tlsconf"
	"github.com/coordd/coordd/internal/tracing"
)

// Options are what an operator sets of a Server. The defaults given apply to zero values.
type Options struct {
	RedisVersion string       // what INFO and HELLO report; commands.WholeVersion
	PresentAs    Presentation // PresentReplicated
	SentinelName string       // the master name of SENTINEL; mymaster

	MaxClients         int // connections at a time; 10000
	MaxUserClients     int // … of a user who is no administrator; 0: unlimited
	MaxRequestBytes    int // bytes of one command, and of one transaction's queue; 32 MiB
	MaxSubscriberBytes int // messages queued for a slow subscriber before it is closed; 32 MiB
	// output that may wait for clients of some classes, in place of the defaults
	OutputLimits OutputLimits
	// large replies of the whole node, until clients have read them; 128 MiB
	MaxReplyBytes int64
	// memory of all connections, before the largest are closed; zero: unlimited
	MaxClientMemory ClientMemory
	ClientRate      Rate          // limit for each connection
	UserRate        Rate          // limit for all connections of a user together
	IdleTimeout     time.Duration // after which connections without commands are closed; 0: never
	KeepAlive       time.Duration // silence until TCP asks whether a client is there; 0: never
	DrainTimeout    time.Duration // how long Close waits for requests in flight; 5 s

	Unprotected bool // protected mode is off
	// that clients may connect from, and to the HTTP port; empty: all, and those of clients
	AllowFrom, HTTPAllowFrom halfopen.Addresses
	// after which clients that have not authenticated are closed, if they must; 0: never
	AuthTimeout        time.Duration
	MaxUnauthenticated int    // connections that have not authenticated, if they must; 1000
	UsersFile          string // file for ACL SAVE and ACL LOAD; empty: none
	TLSUsers           bool   // the CN of a client's certificate names its user

	// Parameters are first values of parameters of CONFIG that have no field here.
	Parameters []Parameter
	ConfigFile string // for INFO; empty: none
	// Rewrite has the configuration file say what CONFIG SET changed; nil: there is no such file.
	// It calls changed itself: it holds its own lock there, as around Configure.
	Rewrite func(changed func() []Parameter) error
}

// Config configures a Server. The defaults given apply to zero values.
type Config struct {
	Options
	Table   *commands.Table
	Backend Backend
	Logger  *slog.Logger // nil: no logs
	Version string       // version of coordd, for INFO
	Zone    string       // availability zone; empty: unknown

	MostClients int // that the limit of open files allows; 0: unlimited
	// messages queued for all clients, each counted once, before the slowest are closed; 8 times
	// MaxSubscriberBytes
	MaxBacklogBytes int64

	Locks *locks.Observer // nil: one that receives nothing
	Audit *audit.Log      // nil: there is no audit trail
	// Tracing makes spans of requests; nil: there are none.
	Tracing *tracing.Tracer

	UnixSocket     string                  // its path, for CONFIG GET
	UnixSocketPerm uint32                  // likewise
	Bind           string                  // hosts that it listens on, likewise
	DataDir        string                  // likewise
	PeerTLS        bool                    // likewise: nodes dial each other over TLS
	TLS            tlsconf.Files           // likewise
	TLSClientAuth  tls.ClientAuthType      // likewise
	Certificates   func() []tlsconf.Status // what INFO and the health page show; nil: none

	cronPeriod, trimAfter time.Duration    // shorter in tests
	clock                 func() time.Time // read for rates and for delivery
	// answerBytes bounds a reply of the session itself, and all of those in a transaction, which
	// cannot be sent before the last one is known. It is less in tests.
	answerBytes int
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.RedisVersion == "" {
		c.RedisVersion = commands.WholeVersion
	}
	if c.PresentAs == "" {
		c.PresentAs = PresentReplicated
	}
	if c.Certificates == nil {
		c.Certificates = func() []tlsconf.Status { return nil }
	}
	if c.Locks == nil {
		rules, _ := locks.ParseRules("")
		c.Locks = locks.New(rules)
	}
	if c.SentinelName == "" {
		c.SentinelName = "mymaster"
	}
	if c.MaxClients == 0 {
		c.MaxClients = 10000
	}
	if c.MaxUnauthenticated == 0 {
		c.MaxUnauthenticated = 1000
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
		c.MaxReplyBytes = 2 * MinReplyBytes
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 5 * time.Second
	}
	if c.clock == nil {
		c.clock = time.Now
	}
	if c.answerBytes == 0 {
		c.answerBytes = commands.MaxReplyBytes
	}
	if c.cronPeriod == 0 {
		c.cronPeriod, c.trimAfter = cronPeriod, trimAfter
	}
}

// Server serves the clients of one node. Its fields stand together by who may use them:
// docs/concurrency.md.
type Server struct {
	setup
	doors
	answers
	bounds
	observations
	standing
	lifetime

	mu lockorder.Mutex
	// guarded by mu
	listeners map[net.Listener]struct{}
	sessions  map[uint64]*session
	verify    verifier // checks clients' certificates once an authority was replaced; nil: none was
	following bool     // followLeader runs
	nextID    uint64
	// the first listener's without TLS, and the first one's with it; 0: there is none
	port, tlsPort int
}

// setup does not change once the server has begun.
type setup struct {
	table      *commands.Table
	backend    Backend
	log        *slog.Logger
	warnings   *logging.Limited // about clients
	cfg        Config
	started    time.Time
	runID      string // 40 hexadecimal digits, unique per start
	clientBase uint64 // added to session numbers in requests, to make them unique in the cluster
	startBytes uint64 // memory of objects at the start
}

// doors decide who may connect. Each has a lock of its own.
type doors struct {
	gate, httpGate  *halfopen.Gate // addresses that may connect
	door            *halfopen.Door // where connections come in
	reserve         reserve        // connections above maxclients
	userClients     userClients
	unauthenticated *halfopen.Set // those whose clients have not authenticated, but must
	guessing        guessing
	denials         denialLog
	revokedBy       *Users // the newest that revoke knows; only it uses them
}

// answers are what commands work with. Each has a lock of its own.
type answers struct {
	pubsub       *pubsub
	counting     counting
	holders      holders
	waitQueues   waitQueues
	machineWaits machineWaits
	clientIDs    clientIDs
	looks        atomic.Int64 // an hour, that waiting commands would make: see pace
	tracking     tracking
	lockHolds    lockHolds
	hints        hints
	config       settings
	configured   configured
	monitors     monitors
	replication  replicationWatch
	pause        pause
	saving       saving
	constants    sync.Map    // constantKey → []byte: cached replies
	backingUp    atomic.Bool // a backup is in progress
	failingOver  atomic.Bool // FAILOVER is in progress
	discovered   sync.Once   // noteDiscovery has told the log
	observing    lockorder.Mutex
	observed     bool // guarded by observing: the backend reports changed keys
}

// bounds are what clients share. Each has a lock of its own.
type bounds struct {
	clientMemory clientMemory
	intake       intake
	ahead        atomic.Int64 // bytes of input that waiting sessions buffer beyond their own
	replies      replyRoom
	nudge        chan struct{} // a token: cron should check
}

// observations are what operators see. Each has a lock of its own.
type observations struct {
	stats       stats
	commandLogs commandLogs
	latency     latency
	state       metrics.Asker[commands.Stats]
}

// standing is what clients learn about leaders, and about this node.
type standing struct {
	maintenance maintenance
	leader      atomic.Pointer[leaderView] // nil: no leader to send clients to
	leaderless  atomic.Pointer[time.Time]  // since when there is none; nil: there is one
}

// lifetime is how a server ends.
type lifetime struct {
	ctx        context.Context // ends what Close did not wait for
	cancel     context.CancelFunc
	wg         sync.WaitGroup  // sessions
	background sync.WaitGroup  // followLeader, cron, and what begins in the background
	ending     lockorder.Mutex // guards cancel, and what begins in the background
	underway   underway
	leaving    atomic.Bool // clients are asked to move
	retired    atomic.Bool // accept no more connections
	closing    atomic.Bool // … and end the existing ones
	lastReads  time.Time   // when reading ends; set before closing
}

// New returns a Server. Config.Table must include Specs().
func New(cfg Config) *Server {
	cfg.setDefaults()
	s := &Server{
		setup: setup{
			table:    cfg.Table,
			backend:  cfg.Backend,
			log:      cfg.Logger,
			warnings: logging.NewLimited(cfg.Logger),
			cfg:      cfg,
			started:  time.Now(),
		},
		listeners: map[net.Listener]struct{}{},
		sessions:  map[uint64]*session{},
	}
	s.pubsub = newPubsub(s.deliverParcel)
	s.counting.most = maxUntold
	s.pubsub.delivery.clock = s.cfg.clock
	s.startBytes = readMemory().objects
	s.tracking.init()
	s.commandLogs.init()
	s.denials.maxLen.Store(denialLogLen)
	s.guessing.init()
	s.reserve.init()
	s.userClients.count = map[string]int64{}
	s.userClients.most.Store(int64(cfg.MaxUserClients))
	s.gate = halfopen.NewGate("allow-from", cfg.AllowFrom, nil, s.warnings)
	s.httpGate = halfopen.NewGate("http-allow-from", cfg.HTTPAllowFrom, s.gate, s.warnings)
	s.httpGate.Watch(s.checkAddresses) // the page's sessions
	s.door = halfopen.NewDoor(halfopen.Rate{AtOnce: 3 * cfg.MaxUnauthenticated,
		PerSecond: strangersPerSecond}, s.warnings)
	s.unauthenticated = halfopen.New(halfopen.Limits{Most: cfg.MaxUnauthenticated,
		Waiting: cfg.MaxUnauthenticated, Grace: authGrace})
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	s.runID = hex.EncodeToString(id[:])
	s.clientBase = binary.LittleEndian.Uint64(id[:])>>1 | 1<<62 // never 0 with a number added
	s.stats.errors = map[string]uint64{}
	s.stats.byCommand = newCommandStats(cfg.Table)
	s.config.init(cfg)
	s.clientMemory.init(cfg.MaxClientMemory)
	s.replies.init(cfg.MaxReplyBytes)
	s.intake.limit = intakeRequests * cfg.MaxRequestBytes
	s.nudge = make(chan struct{}, 1)
	s.initParameters()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections on ln until Retire or Close, then returns nil; other ends of ln are
// errors. It may be called for several listeners. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	gate := s.httpGate // for the page; clients of a Unix socket come in by any
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		s.mu.Lock()
		if s.port == 0 {
			s.port = a.Port
		}
		s.mu.Unlock()
		gate = s.gate
		ln = gate.Guard(ln, s.checkAddresses)
	}
	return s.serve(ln, gate)
}

// serve is Serve. The listener's connections came in by the gate.
func (s *Server) serve(ln net.Listener, gate *halfopen.Gate) error {
	began := s.leaveStrays()
	s.mu.Lock()
	if s.retired.Load() {
		s.mu.Unlock()
		_ = ln.Close()
		return nil
	}
	if len(s.listeners) == 0 {
		s.background.Add(2)
		go s.cron()
		go s.watchNodes(began)
	}
	s.listeners[ln] = struct{}{}
	s.startFollowing()
	s.mu.Unlock()
	defer func() { _ = ln.Close() }()
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		if err == nil {
			pause = 0
			s.accept(conn, gate)
			continue
		}
		if s.retired.Load() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Usually out of file descriptors: other connections end in time.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.warnings.Warn("accept failed", "error", err)
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
		}
	}
}

const errMaxClients commands.Error = "ERR max number of clients reached"

// accept starts a session, unless there are too many, or protected mode or the client's neighbors
// forbid it.
func (s *Server) accept(conn net.Conn, gate *halfopen.Gate) {
	if _, admitted := conn.(*tls.Conn); !admitted && !s.door.Admit(conn) {
		return
	}
	unvetted := outside(conn)
	if unvetted {
		denied, known := s.protects()
		if denied {
			s.auditTurnedAway(conn)
			s.turnAway(conn, errProtected, &s.stats.protected)
			return
		}
		unvetted = !known
	}
	place, ok := s.placeFor(conn)
	if !ok {
		s.door.Identified(conn) // that is not its host's fault
		s.turnAway(conn, errMaxClients, &s.stats.rejected)
		return
	}
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		_ = conn.Close()
		return
	}
	s.nextID++
	c := newSession(s, s.nextID, conn)
	c.unvetted, c.gate = unvetted, gate
	s.sessions[c.id] = c
	c.seat(place)
	verify := s.verify
	s.wg.Add(1)
	s.mu.Unlock()
	s.stats.connections.Add(1)
	s.clientIDs.reserve(s, c.id)
	s.keepAlive(conn)
	go func() {
		defer s.wg.Done()
		c.verifyAgain(verify)
		c.checkAddress()
		c.serve()
		s.mu.Lock()
		c.seat(placeNone)
		delete(s.sessions, c.id)
		s.mu.Unlock()
	}()
}

// turnAway closes a new connection with an error.
func (s *Server) turnAway(conn net.Conn, why commands.Error, count *atomic.Uint64) {
	count.Add(1)
	_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = conn.Write([]byte("-" + string(why) + "\r\n"))
	_ = socket(conn).Close() // TLS could wait until the client has read an alert
}

// lastAccepts is how long connections in the backlog are still accepted: closing a listener resets
// them.
const lastAccepts = 5 * time.Millisecond

// Retire stops accepting connections; existing ones go on, and /readyz reports that the node is
// stopping. It may be called again.
func (s *Server) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired.Swap(true) {
		return
	}
	for ln := range s.listeners {
		if d, ok := ln.(interface{ SetDeadline(time.Time) error }); !ok ||
			d.SetDeadline(time.Now().Add(lastAccepts)) != nil {
			_ = ln.Close()
		}
	}
}

// Close stops accepting, waits up to Config.DrainTimeout for received requests to be answered, and
// closes all connections. Within that time, a connection ends after a whole reply, and no request
// runs whose reply does not precede the end: see session.readOn. A client may therefore resend
// unanswered requests elsewhere. After that time connections are cut: the outcome of unanswered
// requests is unknown, and sessions that wait for the Backend end when it answers.
func (s *Server) Close() {
	s.Retire()
	s.mu.Lock()
	if !s.closing.Load() {
		s.lastReads = time.Now().Add(min(lastRequests, s.cfg.DrainTimeout/2))
		s.closing.Store(true)
		s.unauthenticated.Close() // nobody waits for room any more
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
			_ = socket(c.conn).Close()
		}
		s.mu.Unlock()
	}
	s.underway.await(leaveLimit)
	s.ending.Lock()
	s.cancel()
	s.ending.Unlock()
	s.pubsub.delivery.close()
	s.background.Wait()
}

// inBackground runs f until it ends, which Close waits for. It reports whether it does: once the
// server has ended, nothing begins any more.
func (s *Server) inBackground(f func()) bool {
	s.ending.Lock()
	defer s.ending.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.background.Go(f)
	return true
}

// all returns the sessions, oldest first.
func (s *Server) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedSessions(s.sessions)
}

// session returns the session with a number, or nil.
func (s *Server) session(id uint64) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// numbered reports whether a connection has or had this number.
func (s *Server) numbered(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id > 0 && id <= s.nextID
}

// receiver is session, except that one which is about to end is gone already.
func (s *Server) receiver(id uint64) *session {
	if c := s.session(id); c != nil && !c.leaves.Load() {
		return c
	}
	return nil
}

// past is a deadline that interrupts reads and writes.
var past = time.Unix(1, 0)
