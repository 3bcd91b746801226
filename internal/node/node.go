package node

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/audit"
	"github.com/coordd/coordd/internal/discovery"
	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/locks"
	"github.com/coordd/coordd/internal/tlsconf"
	"github.com/coordd/coordd/internal/tracing"
	"github.com/coordd/coordd/internal/web"
	"github.com/coordd/coordd/server"
)

// Config says how a node runs. The zero value of a field means its default, unless it says
// otherwise.
type Config struct {
	ID      string // unique in the cluster and fixed for the data directory
	AutoID  bool   // in place of ID: it is made with the data directory, and kept in it
	Version string // version of coordd, for INFO and the log

	Listen         string      // host:port for clients; empty: none
	ListenAlso     []string    // more of them
	UnixSocket     string      // path of a Unix socket for clients; empty: none
	UnixSocketPerm os.FileMode // 0: by the umask
	Advertise      string      // host:port at which clients reach the node; empty: nowhere
	TLSListen      string      // host:port for clients over TLS; empty: none
	TLSAdvertise   string      // host:port at which they reach the node
	TLS            tlsconf.Files
	TLSClientAuth  tls.ClientAuthType
	HTTPListen     string // host:port for the page, /healthz and /readyz; empty: off
	HTTPTLS        bool   // with the certificate of TLS
	HTTPNoPage     bool   // without the page
	HTTPInsecure   bool   // the page takes passwords from other machines without TLS
	// MetricsTokenFile has the tokens of which /metrics asks for one; empty: for none.
	MetricsTokenFile string

	PeerListen    string // host:port for the other nodes
	PeerAdvertise string // host:port at which they reach this one; empty: where it listens
	// PeerGuessed: PeerAdvertise is what Members says
	PeerGuessed bool
	PeerTLS     cluster.PeerTLSConfig
	Members     []cluster.Member
	// Discover are names of the peer addresses of all nodes: a node without state joins their
	// cluster, or, told to by RAFT FOUND, founds one with Founders empty nodes. DiscoverDNS is the
	// DNS server to ask, host:port; empty: the system's
	Discover     discovery.Names
	DiscoverDNS  string
	Founders     int      // 0: it only joins
	Join         []string // client addresses of members of the cluster to join
	JoinUser     string   // empty: the default user
	JoinPassword string   // empty: the user needs none

	// FirstUsers are the users of a new cluster, as a file with hashed passwords. nil: the default
	// user, who may do everything.
	FirstUsers []byte
	// FirstMaxMemory is what the data of a cluster may count while nobody has set a limit, bytes;
	// 0: as much as there is.
	FirstMaxMemory int64

	Zone           string // availability zone; empty: unknown
	LeaderPriority uint64 // leadership goes to the voter with the highest; 0: the default
	Learner        bool   // never becomes a voter; requires Join or Discover
	// AutoremoveAfter: as leader, remove members unreachable for that long; 0: never
	AutoremoveAfter time.Duration

	DataDir           string
	LogStore          string // cluster.LogStoreWAL (default) or cluster.LogStoreBolt
	SnapshotThreshold uint64 // log entries between snapshots
	HeartbeatTimeout  time.Duration
	LeaderWait        time.Duration // 0: the default; negative: requests do not wait for a leader
	Clock             clock.Clock   // nil: the system's
	World             *World        // set in a simulation; nil: the real one
	Trace             trace.To      // see cluster.Config; nil: see trace.ToFile

	server.Options
	LockLabels string // rules by which locks and windows are counted, see locks.ParseRules

	Tracing tracing.Config // where spans go; its node, version and logger are this one's
	Audit   audit.Config   // where the audit trail goes; its node and logger are this one's
}

// World is what a simulation puts in place of the network, the disk and the process.
type World struct {
	cluster.World
	Exit func(error) // in place of ending the process
}

// Listeners are sockets that are bound before a node starts. The node binds those that are nil, if
// it has an address for them.
type Listeners struct{ Client, Peer net.Listener }

// Close closes the listeners that are set.
func (l Listeners) Close() {
	for _, ln := range []net.Listener{l.Client, l.Peer} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}

// Node is a running node.
type Node struct {
	cfg         Config
	log         *slog.Logger
	adapter     *fsm.Adapter
	cluster     *cluster.Node
	server      *server.Server
	audit       *audit.Log
	mostClients int // that fit the limit of open files
	tracer      *tracing.Tracer
	locks       *locks.Observer
	client      net.Listener   // the first listener for clients; nil: they use another one
	others      []net.Listener // more of them
	secure      net.Listener   // for clients over TLS; nil: none
	certs       certificates
	tokens      metricsTokens
	http        *http.Server
	webAddr     string
	page        *web.Page              // nil: there is none
	pageConns   *web.Listener          // connections of page to server
	failed      chan error             // what ended the node
	refused     atomic.Pointer[string] // see refusal
	beside      atomic.Pointer[string] // see isBeside
	panicLog    rate.Sometimes
	slowScripts chan commands.SlowScript

	// closed when cluster is set: until then the node loads its data
	opened chan struct{}
	loaded atomic.Pointer[cluster.Node] // cluster, for callers that may come before

	usersKnown    atomic.Bool // the machine has caught up with a leader once
	foundingUsers *acl.Users  // the users of a cluster that this node founds; with Discover

	stopOnce sync.Once
	stop     chan struct{} // closed when a client asked the node to stop, or it was closed

	closeOnce sync.Once
	closeErr  error
}

// Start starts a node. It answers clients and probes while it loads its data. Start owns the
// listeners; if it fails, it leaves nothing open.
func Start(cfg Config, ls Listeners, log *slog.Logger) (started *Node, err error) {
	n := &Node{
		cfg: cfg, log: log, client: ls.Client,
		failed: make(chan error, 8), stop: make(chan struct{}), opened: make(chan struct{}),
		panicLog:    rate.Sometimes{First: 3, Interval: time.Minute},
		slowScripts: make(chan commands.SlowScript, maxSlowScripts),
	}
	var pages net.Listener
	defer func() {
		if err != nil {
			ls.Close()
			if pages != nil {
				_ = pages.Close()
			}
			_ = n.Close()
		}
	}()
	most, err := clientFiles(len(cfg.Members))
	if err != nil {
		return nil, err
	}
	if err = n.chooseID(); err != nil {
		return nil, err
	}
	cfg = n.cfg
	if err = n.certs.open(&cfg, log); err != nil {
		return nil, err
	}
	warnOfGuess(&cfg, log)
	n.tokens.file = cfg.MetricsTokenFile
	if err = n.tokens.load(); err != nil {
		return nil, err
	}
	// Sockets first: if a port is taken, no file is touched.
	if err = n.listenForClients(); err != nil {
		return nil, err
	}
	if ls.Peer == nil {
		if ls.Peer, err = Listen(cfg.PeerListen); err != nil {
			return nil, err
		}
	}
	if cfg.HTTPListen != "" {
		if pages, err = Listen(cfg.HTTPListen); err != nil {
			return nil, err
		}
	}
	cfg.Audit.Node, cfg.Audit.Logger = cfg.ID, log
	if n.audit, err = audit.Open(cfg.Audit); err != nil {
		return nil, err
	}
	cfg.Tracing.Node, cfg.Tracing.Version, cfg.Tracing.Logger = cfg.ID, cfg.Version, log
	if n.tracer, err = tracing.Open(cfg.Tracing); err != nil {
		return nil, err
	}
	n.mostClients = most
	warnOfFiles(log, cfg.MaxClients, most)
	deliver := func(events []commands.Event) { n.server.Deliver(events) }
	table := commands.NewTable(commands.Specs(), server.Specs())
	if len(cfg.Discover) > 0 {
		n.foundingUsers = acl.New(table.Catalog(commands.FeatureLevel))
		if cfg.FirstUsers != nil {
			if n.foundingUsers, _, err = n.foundingUsers.Replace("", cfg.FirstUsers, 1,
				commands.MaxRequestWork); err != nil {
				return nil, fmt.Errorf("the first users: %w", err)
			}
		}
	}
	n.adapter = fsm.NewAdapter(table, NewOrigin(), deliver, n.fatal)
	n.adapter.SetNode(cfg.ID)
	n.adapter.SetAlarm(n.requestPanicked)
	invariant.SetLogger(n.log)
	n.adapter.SetSlowScript(n.slowScript)
	n.adapter.SetScriptCalls(func(calls *commands.ScriptCalls) {
		n.server.CountScriptCalls(calls)
	})
	rules, err := locks.ParseRules(cfg.LockLabels)
	if err != nil {
		return nil, fmt.Errorf("lock labels: %w", err)
	}
	n.locks = locks.New(rules)
	n.adapter.SetObserver(n.locks)
	n.server = server.New(n.serverConfig(table, most))
	n.serve(pages)
	c := n.clusterConfig(ls.Peer)
	if c.Trace == nil {
		if c.Trace, err = trace.ToFile(c.ID); err != nil {
			return nil, err
		}
	}
	if n.cluster, err = cluster.Open(c, n.adapter); err != nil {
		return nil, err
	}
	n.loaded.Store(n.cluster)
	close(n.opened)
	n.follow()
	n.watchCertificates()
	log.Info("started", "id", cfg.ID, "listen", n.Addr(), "data_dir", cfg.DataDir, "version",
		cfg.Version)
	return n, nil
}

// requestPanicked logs that a request met a bug of coordd. A client can repeat it as often as it
// likes, so most are only counted.
func (n *Node) requestPanicked(what string) {
	n.panicLog.Do(func() {
		n.log.Error("a request met a bug in coordd, and got an internal error; please report it",
			"panic", what)
	})
}

// listenForClients binds the listeners for clients that are not bound yet.
func (n *Node) listenForClients() (err error) {
	if n.client == nil && n.cfg.Listen != "" {
		if n.client, err = Listen(n.cfg.Listen); err != nil {
			return err
		}
	}
	if n.cfg.TLSListen != "" {
		if n.secure, err = Listen(n.cfg.TLSListen); err != nil {
			return err
		}
	}
	for _, addr := range n.cfg.ListenAlso {
		ln, err := Listen(addr)
		if err != nil {
			return err
		}
		n.others = append(n.others, ln)
	}
	if n.cfg.UnixSocket != "" {
		ln, err := listenUnix(n.cfg.UnixSocket, n.cfg.UnixSocketPerm)
		if err != nil {
			return err
		}
		n.others = append(n.others, ln)
	}
	return nil
}

func (n *Node) serverConfig(table *commands.Table, most int) server.Config {
	c := &n.cfg
	return server.Config{
		Options: c.Options, Table: table, Backend: backend{n}, Logger: n.log, Version: c.Version,
		Zone: c.Zone, MostClients: most,
		UnixSocket: c.UnixSocket, UnixSocketPerm: uint32(c.UnixSocketPerm),
		Bind: c.bound(), DataDir: c.DataDir, PeerTLS: n.certs.peer.Dials(),
		TLS: c.TLS, TLSClientAuth: c.TLSClientAuth,
		Certificates: n.certs.status, Audit: n.audit, Locks: n.locks, Tracing: n.tracer,
	}
}

func (n *Node) clusterConfig(peer net.Listener) cluster.Config {
	c := cluster.Config{
		ID: n.cfg.ID, Version: n.cfg.Version, Members: n.cfg.Members, Join: len(n.cfg.Join) > 0,
		Zone: n.cfg.Zone, Priority: n.cfg.LeaderPriority, Learner: n.cfg.Learner,
		Discover: n.cfg.discoverer(), Founders: n.cfg.Founders,
		AutoremoveAfter: n.cfg.AutoremoveAfter, OnAutoremove: n.auditAutoremove,
		ClientAddr: n.cfg.Advertise, TLSAddr: n.cfg.TLSAdvertise, TLS: n.certs.peer,
		PeerListener: peer, PeerListen: n.cfg.PeerListen, PeerAdvertise: n.cfg.PeerAdvertise,
		DataDir: n.cfg.DataDir, LogStore: n.cfg.LogStore,
		SnapshotThreshold: n.cfg.SnapshotThreshold,
		HeartbeatTimeout:  n.cfg.HeartbeatTimeout, LeaderWait: n.cfg.LeaderWait,
		Clock: n.cfg.Clock, Trace: n.cfg.Trace, Logger: n.log, Fatal: n.fatal,
		Answer: n.server.Answer,
	}
	if n.cfg.World != nil {
		c.World = &n.cfg.World.World
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise = peer.Addr().String()
	}
	return c
}

// serve starts to accept clients and, if ln is given, to answer on HTTP there.
func (n *Node) serve(ln net.Listener) {
	accept := func(serve func() error) {
		go func() {
			if err := serve(); err != nil {
				n.failed <- fmt.Errorf("serving clients: %w", err)
			}
		}()
	}
	if n.client != nil {
		accept(func() error { return n.server.Serve(n.client) })
	}
	for _, ln := range n.others {
		accept(func() error { return n.server.Serve(ln) })
	}
	if n.secure != nil {
		handshake := n.certs.client.Server(n.cfg.TLSClientAuth)
		accept(func() error { return n.server.ServeTLS(n.secure, handshake) })
	}
	if ln == nil {
		return
	}
	n.webAddr = ln.Addr().String()
	l := n.openWeb(ln)
	if n.page != nil {
		accept(func() error { return n.server.Serve(n.pageConns) })
	}
	go func() {
		err := n.serveWeb(l)
		if !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
}

// fatal ends the process: the machine cannot continue, and wrong answers are worse than none.
func (n *Node) fatal(err error) {
	n.log.Error("fatal error, the node stops", "error", err)
	if n.cfg.World != nil {
		n.cfg.World.Exit(err)
		return
	}
	os.Exit(1)
}

// Close drains and stops the node. It lets clients move that can, stops accepting clients and
// transfers leadership while it serves those that are connected: their requests wait for the next
// leader. Then it closes their connections, each after a complete reply, and leaves the cluster.
// Close may be called more than once.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closeErr = n.end() })
	return n.closeErr
}

func (n *Node) end() error {
	n.requestStop()
	if n.server != nil {
		n.server.MoveClients()
		n.server.Retire()
		if n.cluster != nil {
			n.cluster.TransferIfLeader()
		}
		n.server.Close()
	}
	n.audit.Close()
	n.tracer.Close()
	if n.page != nil {
		n.page.Close()
	}
	if n.http != nil {
		_ = n.http.Close()
	}
	for _, ln := range append([]net.Listener{n.client, n.secure}, n.others...) {
		if ln != nil {
			_ = ln.Close()
		}
	}
	if n.cluster != nil {
		return n.cluster.Close()
	}
	return nil
}

// Locks returns what the node observes of locks and windows.
func (n *Node) Locks() *locks.Observer { return n.locks }

// Leads reports whether the node believes that it leads its cluster.
func (n *Node) Leads() bool { return n.cluster.Status().Role == membership.Leader }

// ID returns the node's id.
func (n *Node) ID() string { return n.cfg.ID }

// Addr returns the first address that the node listens on for clients.
func (n *Node) Addr() string {
	for _, ln := range append([]net.Listener{n.client, n.secure}, n.others...) {
		if ln != nil {
			return ln.Addr().String()
		}
	}
	return ""
}

// Configure changes parameters of CONFIG on this node, all or none.
func (n *Node) Configure(values []server.Parameter) error {
	for i := range values {
		if v := &values[i]; v.Name == "maxclients" { // as at the start
			if asked, err := strconv.Atoi(v.Value); err == nil && asked > n.mostClients {
				warnOfFiles(n.log, asked, n.mostClients)
				v.Value = strconv.Itoa(n.mostClients)
			}
		}
	}
	return n.server.Configure(values)
}

// WebAddr returns the address of the HTTP port; empty: there is none.
func (n *Node) WebAddr() string { return n.webAddr }

// Failed returns a channel that receives the errors that end the node.
func (n *Node) Failed() <-chan error { return n.failed }

// Stopping returns a channel that is closed when a client asks the node to stop. The caller then
// closes the node.
func (n *Node) Stopping() <-chan struct{} { return n.stop }

func (n *Node) requestStop() { n.stopOnce.Do(func() { close(n.stop) }) }

// WaitReady waits until the node serves commands.
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !n.cluster.Status().Ready {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// CheckAlive fails if the node does not answer before ctx ends. It is for watchdogs: a node that
// waits for other nodes or for its disk is alive.
func (n *Node) CheckAlive(ctx context.Context) error { return n.cluster.CheckAlive(ctx) }

// NewOrigin returns a random number that names one start of a process in its log entries.
func NewOrigin() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
