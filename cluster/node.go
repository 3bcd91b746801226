// The node: opening it, and the calls that it answers.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/lockorder"
)

// Node is one member of the cluster. Its methods may be called from any goroutine. Its fields stand
// together by who may use them: docs/concurrency.md.
type Node struct {
	setup
	serving
	acts
	observed
	lifetime

	linksMu lockorder.Mutex
	// guarded by linksMu
	links     map[string]*link
	inbounds  map[*inbound]struct{}
	announced map[string]string    // id → the peer address that the member announced
	met       map[string]time.Time // empty nodes that asked this one
}

// setup does not change once the node is open. What it points to has locks of its own.
type setup struct {
	cfg         Config
	logger      *slog.Logger
	trace       trace.To
	opened      time.Time
	machine     *applier
	levels      Leveled // the machine's
	guard       *levelGuard
	arrivals    *arrivals
	logs        *logStore
	mark        raftlog.Marked // the log, if it has a mark; nil: it has none
	stores      *stores
	incarnation string // identifies the data directory
	mux         *mux
	raft        *raft.Raft
	transport   *transport        // Raft's
	members     map[string]string // id → peer address, from Config.Members
	joining     bool              // started without state, waits to be added to a cluster
}

// serving is how requests run. A field without a comment about that may be used by any goroutine.
type serving struct {
	writes, reads  *queue
	parked         parked
	route          atomic.Pointer[route]
	routeWake      chan struct{}
	watchers       watchers
	establishing   atomic.Bool  // the route loop may be waiting for Raft
	proposed       chan *entry  // in order, to the completer
	inFlight       atomic.Int32 // those, and the one that the proposer is building
	resting        atomic.Bool  // the route loop may sleep beyond a leaderTick
	few            int          // entries in a row with few batches; the proposer's
	pendingEntries entryList    // the proposed entries, for the sweep
	pause          proposalPause
	tickDue        atomic.Bool
	raising        atomic.Pointer[raise] // the raise to propose; nil: none
	raiseProposed  atomic.Bool           // one of the proposed entries raises the level
	heavyWrite     atomic.Bool           // one of the proposed entries has heavy batches
	writeTurn      writeTurn
	heavyRead      atomic.Bool // a heavy read runs or waits for the gate
	gate           fair.Gate   // for heavy reads and session work of this node
	costs          fair.Costs
	nextFrame      atomic.Uint64
	nextInbound    atomic.Uint64 // number of the newest inbound
	nonce          uint64        // in the newest confirm frame; the read loop's
	confirmed      chan struct{} // kicked when a confirm frame is answered
}

// acts are what the node does about its cluster, one of a kind at a time: who does it holds the
// token in its channel.
type acts struct {
	asking       chan struct{} // a token for each question in progress
	changing     chan struct{} // a membership change
	checked      checkedEntry  // see checkStore; with that token
	transferring chan struct{} // leadership is handed over
	discovering  chan struct{} // it joins or founds a cluster
	asked        string        // a cluster that it asked to add it; with that token
	founding     atomic.Bool   // it is about to found a cluster
	leaving      atomic.Bool   // it stops: it is not to lead
	removal      removal
	watch        memberWatch
	vouchers     vouchers
	owed         atomic.Uint64 // see owedKey
}

// observed is what the node has found out. A field without a comment about that may be used by any
// goroutine.
type observed struct {
	seen     atomic.Pointer[view]   // the newest configuration
	identity atomic.Pointer[string] // the cluster's id, once certain
	// another member has the register that is in this node's log
	registerConfirmed atomic.Bool

	unreached atomic.Bool             // this node reaches others, and none of them reaches it
	reachedAt time.Time               // by a member, or there was none to ask; maintain's
	stranger  atomic.Pointer[string]  // see lookForStrangers; empty: there is none
	awaits    atomic.Pointer[waiting] // why the newest look around led into no cluster
	mixed     atomic.Bool             // it was reported that members run different builds
	heard     heardSums
	findings  findings
	lag       lag
	meters    meters

	starved       atomic.Int64 // when it was last short of processor time, ns since 1970; 0: never
	leaderLost    atomic.Int64 // when lastLeader became unknown, after opened; 0 while it is known
	askedOthers   atomic.Int64 // ns since opened when AskMembers asked last; 0: never
	caughtUpAt    atomic.Int64 // ns since opened, see noteProgress
	stalledLeader atomic.Bool  // it leads, but sends nothing as a leader
	termLeader    termLeader
	sending       atomic.Int32 // snapshots being sent that may let this leader commit
	roles         broadcast    // notified when lastRoles changes, and when a stall begins or ends

	// the route loop's
	lastLeader leaderSeen
	lastRoles  roleSeen
	lastSweep  time.Time
	looked     time.Time // the leader's last contact when Raft was made to check
}

// lifetime is how a node ends.
type lifetime struct {
	failOnce  sync.Once
	failure   atomic.Bool // the node cannot take part, see lost
	lost      error       // why; set before failure
	failed    chan error
	closing   chan struct{} // closed when Close begins
	draining  atomic.Bool   // members' requests are refused; set under linksMu
	stop      chan struct{} // closed when the loops are to end
	loops     sync.WaitGroup
	completer sync.WaitGroup
	linkWG    sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// Open starts the node on its data directory and returns without waiting for a leader. A directory
// without state gets the configuration in cfg.Members. It fails on an invalid configuration, on a
// peer port that cannot be bound, and on a data directory that is in use, unreadable, or belongs to
// another node or cluster.
func Open(cfg Config, m Machine) (node *Node, err error) {
	ln := cfg.PeerListener
	defer func() {
		if err != nil && ln != nil {
			ln.Close()
		}
	}()
	if err := cfg.applyDefaults(); err != nil {
		return nil, err
	}
	levels := cfg.World.levels(levelsOf(m))
	guard := &levelGuard{levels: levels, dir: cfg.DataDir, fatal: cfg.Fatal, world: cfg.World}
	if err := guard.open(cfg.ID, cfg.LogStore); err != nil {
		return nil, err
	}
	if ln == nil {
		if ln, err = net.Listen("tcp", cfg.PeerListen); err != nil {
			return nil, fmt.Errorf("cannot listen on the peer port %s: %w", cfg.PeerListen, err)
		}
	}
	n := newNode(cfg, m)
	n.levels, n.guard = levels, guard
	if cfg.World != nil {
		n.stores, err = cfg.World.openStores(n.logger)
	} else {
		n.stores, err = openStores(cfg.DataDir, cfg.ID, cfg.LogStore, guard.level, n.logger)
	}
	if err != nil {
		return nil, err
	}
	guard.held = n.stores.held
	if log, ok := n.stores.log.(raftlog.Marked); ok {
		n.mark, guard.marked = log, log.EnsureMark
	}
	n.keepRoom()
	if n.incarnation, err = n.stores.ensureIncarnation(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write data directory %s: %w", cfg.DataDir,
			err), n.stores.close())
	}
	n.mux = newMux(ln, cfg.ID, cfg.advertise(ln), cfg.dial, n.logger)
	n.mux.cluster, n.mux.admit, n.mux.tls = n.clusterID, n.admit, cfg.TLS
	if err := n.startRaft(); err != nil {
		n.mux.Close()
		return nil, errors.Join(err, n.stores.close())
	}
	n.start()
	return n, nil
}

func newNode(cfg Config, m Machine) *Node {
	n := &Node{
		setup: setup{cfg: cfg, logger: cfg.Logger, opened: time.Now(),
			machine: newApplier(m, cfg.Logger), members: map[string]string{}},
		serving: serving{proposed: make(chan *entry, cfg.inFlight+2),
			confirmed: make(chan struct{}, 1), routeWake: make(chan struct{}, 1)},
		acts: acts{asking: make(chan struct{}, maxQuestions), changing: make(chan struct{}, 1),
			transferring: make(chan struct{}, 1), discovering: make(chan struct{}, 1),
			removal: removal{notify: make(chan error, 1)}},
		observed: observed{heard: heardSums{wake: make(chan struct{}, 1),
			of: map[string]*memberSums{}}},
		lifetime: lifetime{failed: make(chan error, 1), closing: make(chan struct{}),
			stop: make(chan struct{})},
		links: map[string]*link{}, inbounds: map[*inbound]struct{}{},
		announced: map[string]string{},
	}
	n.writes, n.reads = newQueue(&n.costs), newQueue(&n.costs)
	for _, member := range cfg.Members {
		n.members[member.ID] = member.PeerAddr
	}
	n.route.Store(&route{})
	n.arrivals = newArrivals(cfg.Clock, m.EntryClock)
	n.machine.restored = func(clockMs int64) { n.arrivals.Raise(clock.Stamp{ClockMs: clockMs}) }
	return n
}

// startRaft bootstraps a new data directory and starts Raft, which restores the newest snapshot.
func (n *Node) startRaft() error {
	if n.cfg.wrapLog != nil {
		n.stores.log = n.cfg.wrapLog(n.stores.log)
	}
	n.logs = newLogStore(n.stores.log, n.arrivals, n.machine.clockMs.Load)
	n.logs.guard, n.stores.snapshots.guard = n.guard, n.guard
	n.stores.snapshots.closing = n.closing
	if c, ok := n.machine.machine.(SnapshotChecker); ok {
		n.stores.snapshots.reads.check = c.CheckSnapshot
	}
	n.logs.trailing, n.logs.trailingBytes = n.cfg.TrailingLogs, n.cfg.trailingBytes
	n.logs.growth, n.logs.space = n.stores.snapshots.growth, n.stores.snapshots.space
	n.stores.snapshots.makeRoom, n.machine.loaded = n.spareRoom, n.stores.snapshots.restored
	n.machine.worked, n.machine.durable = n.logs.growth.applied, n.logs.awaitDurable
	n.logs.covered = func() uint64 { return n.stores.snapshots.newest.Load().index }
	n.logs.applied, n.logs.fatal = n.machine.appliedIndex.Load, n.cfg.Fatal
	var running atomic.Pointer[raft.Raft]
	if trace.On && n.cfg.Trace != nil {
		n.startTrace()
	}
	n.logs.leads = func() bool {
		r := running.Load()
		return r != nil && r.State() == raft.Leader
	}
	transport := &transport{NetworkTransport: n.newTransport(n.mux), n: n}
	transport.receive()
	n.transport = transport
	rc := n.cfg.raftConfig()
	existing := false
	n.resumeOwing()
	n.stores.stable.fatal = n.cfg.Fatal
	err := n.stores.undoFounding()
	if err == nil {
		existing, err = raft.HasExistingState(n.logs, n.stores.stable, n.stores.snapshots)
	}
	if err == nil {
		if err := n.checkFounding(existing); err != nil {
			transport.Close()
			return err
		}
	}
	if err == nil && !existing && !n.joining {
		err = raft.BootstrapCluster(rc, n.logs, n.stores.stable, n.stores.snapshots, transport,
			n.firstConfiguration())
	}
	if err == nil {
		err = n.stores.snapshots.fitLog()
	}
	if err == nil {
		err = n.surveyLog()
	}
	if err == nil {
		n.logs.resetArrival() // the log's content arrived no later than now
		n.raft, err = raft.NewRaft(rc, n.machine, n.logs, n.stores.stable, n.stores.snapshots,
			transport)
	}
	running.Store(n.raft)
	if err != nil {
		transport.Close()
		if cause := n.stores.snapshots.unopened.Load(); cause != nil { // Raft only logs it
			err = fmt.Errorf("%w: %w", err, *cause)
		}
		return fmt.Errorf("cannot start Raft on data directory %s: %w", n.cfg.DataDir, err)
	}
	n.stores.snapshots.started()
	return nil
}

// startTrace has all parts of the node record what they do.
func (n *Node) startTrace() {
	n.trace = func(e trace.Event) {
		e.Node = n.cfg.ID
		n.cfg.Trace(e)
	}
	n.logs.trace, n.stores.stable.trace, n.machine.trace = n.trace, n.trace, n.trace
	n.machine.term = func() uint64 { return n.stores.stable.number(currentTermKey) }
	last, _ := n.stores.log.LastIndex() // an error ends the start later
	n.trace.Record(trace.Event{Kind: trace.Starts, Index: last, Term: n.machine.term(),
		Now: n.stores.stable.number(lastVoteTermKey)})
}

func (n *Node) newTransport(over raft.StreamLayer) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: over, MaxPool: raftConnectionPool, Timeout: rpcTimeout,
		ServerAddressProvider: n, Logger: newRaftLogger(n.logger),
	})
}

// surveyLog finds out, before Raft starts, which entries will be replayed.
func (n *Node) surveyLog() error {
	if n.stores.snapshots.newest.Load().index > 0 {
		n.logs.commands.Store(true)
	} else if err := n.logs.findCommand(); err != nil {
		return err
	}
	end, err := n.logs.survey()
	if err != nil {
		return err
	}
	if err := n.logs.measure(n.stores.snapshots.newest.Load().index); err != nil {
		return err
	}
	n.machine.replayEnd.Store(max(end, n.owed.Load())) // until then it has less than it had
	n.logs.cut = n.machine.cut
	return nil
}

func (n *Node) firstConfiguration() raft.Configuration {
	return n.cfg.memberConfiguration(n.mux.Addr().String())
}

// memberConfiguration returns the members as voters, or this node alone at the address own if there
// are none.
func (c *Config) memberConfiguration(own string) raft.Configuration {
	var conf raft.Configuration
	for _, m := range c.Members {
		addr := m.PeerAddr
		if m.ID == c.ID && c.PeerAdvertise != "" {
			addr = c.PeerAdvertise
		}
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(m.ID),
			Address: raft.ServerAddress(addr)})
	}
	if len(conf.Servers) == 0 {
		conf.Servers = []raft.Server{{ID: raft.ServerID(c.ID), Address: raft.ServerAddress(own)}}
	}
	return conf
}

// start starts the node's goroutines once Raft runs.
func (n *Node) start() {
	if n.stores.wasRemoved() {
		n.markRemoved()
	}
	if why := n.owing(); why != "" {
		n.logger.Info("the node is not ready", "reason", why, "cluster", n.clusterID())
	}
	n.raft.RegisterObserver(raft.NewObserver(nil, false, n.observeRaft))
	n.findings.startTerm = n.raft.CurrentTerm()
	for _, loop := range []func(){n.followRaft, n.propose, n.serveReads, n.maintain, n.boundLog,
		n.watchApply, n.watchProgress, n.watchSums} {
		n.loops.Add(1)
		go func() {
			defer n.loops.Done()
			loop()
		}()
	}
	n.completer.Add(1)
	go func() {
		defer n.completer.Done()
		n.complete()
	}()
	if n.cfg.TLS != nil {
		n.cfg.TLS.OnChange(n.verifyPeers)
	}
	n.mux.start(n.serveForward, n.serveAdmin)
	if n.mark != nil {
		n.loops.Go(n.syncMark)
	}
	if n.guard.held != nil {
		n.loops.Go(n.watchLock)
	}
	if n.cfg.Discover != nil {
		n.loops.Go(n.discover)
	}
}

// Write runs a batch of count requests through the log, whichever node leads, and returns its
// reply. The error says what is certain: ErrNotRun, ErrUnknown or ErrTooLarge. If ctx ends the
// call, the caller must not change batch afterwards; otherwise it is the caller's again.
func (n *Node) Write(ctx context.Context, load fair.Workload, batch []byte,
	count int) ([]byte, error) {
	if count < 1 || count > MaxBatchRequests {
		return nil, tooLarge(fmt.Sprintf("a batch of %d requests exceeds the limit of %d", count,
			MaxBatchRequests))
	}
	return n.submit(ctx, n.writes, newLocalCall(batch, count,
		n.leaderDeadline(load)).withWorkload(load), errAbandoned)
}

// WriteFirst has a batch of one request run before all that wait on this node, and does not wait
// for it. It may be lost. On the leader it may be called while an entry is applied, to have it run
// right after what is in flight.
func (n *Node) WriteFirst(batch []byte) {
	c := newLocalCall(batch, 1, n.leaderDeadline(fair.Workload{}))
	if n.writes.pushFirst(c) != nil {
		c.release()
		return
	}
	go func() {
		<-c.done
		c.release()
	}()
}

// Read runs a batch of read-only requests that sees every write acknowledged, on any node, before
// the call. The error is ErrNotRun or ErrTooLarge. The rule about ctx and batch is Write's.
func (n *Node) Read(ctx context.Context, load fair.Workload, batch []byte) ([]byte, error) {
	return n.submit(ctx, n.reads, newLocalCall(batch, 1, n.leaderDeadline(load)).withWorkload(load),
		errWithdrawn)
}

// DryRun is Read for a batch that may write: it runs the requests before the first that would
// change anything, and returns their replies, possibly none. The rest is for Write. It returns no
// replies either if the leader is of a version without dry runs.
func (n *Node) DryRun(ctx context.Context, load fair.Workload, batch []byte) ([]byte, error) {
	c := newLocalCall(batch, 1, n.leaderDeadline(load)).withWorkload(load)
	c.dryRun = true
	return n.submit(ctx, n.reads, c, errWithdrawn)
}

// leaderDeadline returns until when a batch that arrives now waits for a leader.
func (n *Node) leaderDeadline(load fair.Workload) time.Time {
	wait := n.cfg.LeaderWait
	if load.LeaderWait != 0 {
		wait = max(0, min(wait, load.LeaderWait))
	}
	return time.Now().Add(wait)
}

// submit queues a call and waits for its outcome. abandoned is the outcome when ctx ends a call
// that is already in flight.
func (n *Node) submit(ctx context.Context, q *queue, c *call, abandoned error) ([]byte, error) {
	if c.size > MaxBatchBytes {
		defer c.release()
		return nil, tooLarge(fmt.Sprintf("a batch of %d bytes exceeds the limit of %d", c.size,
			MaxBatchBytes))
	}
	if err := q.push(c); err != nil {
		c.release()
		return nil, err
	}
	if ctx.Done() == nil {
		<-c.done // a select costs as much as the rest of the handover
		return c.result()
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if q.withdraw(c) {
			return nil, errWithdrawn
		}
		select {
		case <-c.done: // it was just finished
		default:
			return nil, abandoned
		}
	}
	return c.result()
}

// ReadLocal runs a batch of read-only requests against this node's own state, which may be old, but
// not older than before a restart: until the log is replayed the error is ErrLoading.
//
// A batch that is predicted to be cheap runs at once, beside others, and entries wait for all of
// them. A prediction can be wrong: such a batch is aborted when it has done more, and then waits
// for the gate like a heavy one.
func (n *Node) ReadLocal(load fair.Workload, batch []byte) (reply []byte, err error) {
	predicted, known := n.costs.Estimate(load)
	if known {
		if most, ok := n.gate.ExemptRead(predicted, len(batch)); ok {
			reply, units, done, err := n.readHere(batch, most)
			n.gate.SettleExempt(fair.Flow{ID: load.Conn}, predicted, units)
			if done {
				n.costs.Record(load, units)
				return reply, err
			}
		}
	}
	busy := n.inTurn(load, func() (units uint64) {
		reply, units, _, err = n.readHere(batch, 0)
		return units
	})
	if busy != nil {
		err = busy
	}
	return reply, err
}

// readHere runs a batch of reads if this node may answer with its own state. If most is not 0, the
// batch may do that many units: done is false if it takes more. It returns what the batch cost.
func (n *Node) readHere(batch []byte, most uint64) (reply []byte, units uint64, done bool,
	err error) {
	select {
	case <-n.closing:
		return nil, 0, true, errStopping
	default:
	}
	switch {
	case n.removal.removed.Load():
		return nil, 0, true, n.removal.err
	case n.failure.Load():
		return nil, 0, true, n.lost
	case n.machine.loading():
		return nil, 0, true, ErrLoading
	}
	now, done := n.reading(), true
	if m, ok := n.machine.machine.(WorkReader); ok && most > 0 {
		reply, units, done = m.ReadWithin([]byte{}, batch, now.ClockMs(), now.WallUs(), most)
	} else {
		reply, units = n.runRead(batch, now, nil, false)
	}
	return reply, units + uint64(len(reply))/fair.BytesPerUnit, done, nil
}

// Schedule runs f, which is work of this node alone. If f is predicted to be heavy, or much exempt
// work ran lately or runs now, it waits until the fair queue admits it: one such f at a time. The
// error is ErrBusy: f did not run.
func (n *Node) Schedule(load fair.Workload, f func()) error {
	timed := func() uint64 {
		began := time.Now()
		f()
		return fair.ElapsedWork(time.Since(began))
	}
	predicted, _ := n.costs.Estimate(load)
	if !n.gate.Enter(predicted) {
		return n.inTurn(load, timed)
	}
	units := timed()
	n.gate.Leave()
	n.costs.Record(load, units)
	n.gate.SettleExempt(fair.Flow{ID: load.Conn}, predicted, units)
	return nil
}

// inTurn runs f, which returns its cost in units, when the gate admits it.
func (n *Node) inTurn(load fair.Workload, f func() uint64) error {
	w := n.gate.Acquire(fair.Flow{ID: load.Conn}, n.cfg.ReplyWait, n.closing)
	if w == nil {
		return errOverloaded
	}
	units := f()
	n.costs.Record(load, units)
	n.gate.Release(w, units)
	return nil
}

// runRead runs one batch against the applied state and returns its cost in units. next and
// early are Machine.Read's.
func (n *Node) runRead(batch []byte, now clock.Reading,
	next func(lastUs, stampUs int64) (us int64, ok bool),
	early bool) (reply []byte, work uint64) {
	if m, ok := n.machine.machine.(WorkReader); ok {
		return m.ReadWork([]byte{}, batch, now.ClockMs(), now.WallUs(), next, early)
	}
	return n.machine.machine.Read([]byte{}, batch, now.ClockMs(), now.WallUs(), next, early), 0
}

// snapshotPatience is how long Snapshot waits for the machine to apply a committed membership
// change.
const snapshotPatience = 5 * time.Second

// Snapshot writes a snapshot now and truncates the log. It does nothing if there is nothing to
// write.
func (n *Node) Snapshot() error {
	deadline := time.Now().Add(snapshotPatience)
	for {
		err := n.raft.Snapshot().Error()
		switch {
		case errors.Is(err, raft.ErrNothingNewToSnapshot):
			return nil
		case err != nil && strings.HasSuffix(err.Error(), errStopping.Error()):
			return errStopping
		// hashicorp/raft v1.7.3 has no error value for this: a configuration was committed after
		// the machine was frozen, or shortly before.
		case err == nil || !strings.HasPrefix(err.Error(), "cannot take snapshot now") ||
			time.Now().After(deadline):
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-n.closing:
			return err
		}
	}
}

func (n *Node) queueOf(kind frameKind) *queue {
	if kind == frameRead {
		return n.reads
	}
	return n.writes
}

// hello is how this node introduces itself to the node with id to.
func (n *Node) hello(to, refusal string) hello {
	return hello{
		version: protocolVersion, id: n.cfg.ID, clientAddr: n.cfg.ClientAddr,
		tlsAddr: n.cfg.TLSAddr, refusal: refusal,
		peerAddr: n.mux.Addr().String(), level: n.levels.KnownLevel(),
		incarnation: n.incarnation, cluster: n.clusterID(),
		expects: n.view().register.incarnations[to], abilities: ownAbilities, arch: n.cfg.arch,
		release: n.cfg.Version, upMs: uint64(time.Since(n.opened).Milliseconds()),
		zone: n.cfg.Zone, priority: n.cfg.Priority, traits: n.traits(), to: to,
		build: n.cfg.Build, wallMs: n.wallMs(),
	}
}

// traits says what this node is, for its hello.
func (n *Node) traits() (t uint64) {
	if n.cfg.Learner {
		t |= traitLearner
	}
	if n.awaitsJoin() {
		t |= traitAwaiting
		if n.raft.CurrentTerm() == 0 {
			t |= traitFresh
		}
		if n.founding.Load() {
			t |= traitFounding
		}
	}
	return t
}
