// The simulated processes: nodes that start, stop, crash and start again on what their disk kept.

package sim

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/internal/tests/models"
	"github.com/coordd/coordd/internal/tests/simnet"
)

// clock is a node's clock. Its monotonic part may run slow, never fast; its wall part may do
// anything.
type clock struct {
	mu   sync.Mutex
	at   time.Time
	mono time.Duration
	rate float64
	wall time.Duration // ahead of the simulation's time
}

func newClock(rnd *rand.Rand) *clock {
	return &clock{at: time.Now(), mono: time.Duration(rnd.Int64N(int64(time.Hour))), rate: 1}
}

// Monotonic implements clock.Clock of the cluster.
func (c *clock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.mono += time.Duration(float64(now.Sub(c.at)) * c.rate)
	c.at = now
	return c.mono
}

// Wall implements clock.Clock of the cluster.
func (c *clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.wall)
}

// slew changes how fast the monotonic clock runs.
func (c *clock) slew(rate float64) {
	c.Monotonic()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate = rate
}

// step sets the wall clock.
func (c *clock) step(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = ahead
}

// process is a node's host.
type process struct {
	s    *simulation
	id   string
	host string // its address

	mu      sync.Mutex
	rnd     *rand.Rand
	clock   *clock
	disk    *disk
	machine *simnet.Machine
	node    *node.Node    // nil: it is not open
	run     int           // counts starts and ends
	up      bool          // a run has begun and not ended
	known   uint64        // the newest feature level of its release
	join    bool          // it joins a cluster
	gone    bool          // for good: it was removed, or all ends
	rotten  bool          // its disk changed what it holds
	damaged bool          // … and the node has found it
	over    chan struct{} // closed when the run ends

	recording atomic.Int64 // the run whose events are checked; 0: none
}

func (p *process) clientAddr() string { return net.JoinHostPort(p.host, "6379") }
func (p *process) peerAddr() string   { return net.JoinHostPort(p.host, "7379") }

// start starts the node, again and again until it runs or the process is ended.
func (p *process) start() {
	p.mu.Lock()
	if p.up || p.gone {
		p.mu.Unlock()
		return
	}
	p.up, p.over = true, make(chan struct{})
	p.run++
	p.recording.Store(int64(p.run))
	run, over, d := p.run, p.over, p.disk
	p.machine = p.s.net.Boot(p.host)
	d.crash = func() { p.ends(run, "power", false, time.Second) }
	p.clock = newClock(p.rnd)
	cfg := node.Config{
		ID: p.id, Listen: p.clientAddr(), Advertise: p.clientAddr(),
		PeerListen: p.peerAddr(), PeerAdvertise: p.peerAddr(),
		Clock: p.clock, SnapshotThreshold: p.s.threshold,
		World: &node.World{World: d.world(p.machine), Exit: func(err error) { p.fatal(run, err) }},
	}
	cfg.Unprotected, cfg.World.KnownLevel = true, p.known
	cfg.Trace = func(e trace.Event) { p.record(run, e) }
	if p.join {
		for _, q := range p.s.processes {
			if q != p {
				cfg.Join = append(cfg.Join, q.clientAddr())
			}
		}
	} else {
		cfg.Members = p.s.members
	}
	ls := node.Listeners{Client: p.machine.Listen(p.clientAddr()),
		Peer: p.machine.Listen(p.peerAddr())}
	p.mu.Unlock()
	p.s.running.Go(func() { p.open(run, over, cfg, ls) })
}

func (p *process) open(run int, over chan struct{}, cfg node.Config, ls node.Listeners) {
	n, err := node.Start(cfg, ls, p.logger(run))
	p.mu.Lock()
	current := p.run == run
	if err == nil && current {
		p.node = n
	}
	p.mu.Unlock()
	switch {
	case err == nil && !current:
		_ = n.Close()
	case err != nil && current:
		p.s.note("%s does not start: %v", p.id, err)
		p.finds(err)
		p.ends(run, "kill", true, time.Second)
	case err == nil:
		select {
		case err := <-n.Failed(): // the program would end
			p.fatal(run, err)
		case <-over:
		}
	}
}

func (p *process) logger(run int) *slog.Logger {
	if p.s.log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(p.s.log, &slog.HandlerOptions{Level: slog.LevelDebug})).
		With("node", p.id, "run", run)
}

// ends ends a run of the process at once: what it does from now on has no effect. It starts again
// after some time, unless that is 0.
func (p *process) ends(run int, mode string, tells bool, restart time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != run || !p.up {
		return
	}
	p.up = false
	p.recording.Store(0)
	close(p.over)
	p.run++
	old, n := p.disk, p.node
	p.node = nil
	p.machine.Crash(tells)
	p.disk = old.survivor(mode)
	old.mu.Lock()
	old.latency, old.failing, old.full, old.crashAt = 0, false, false, 0
	old.heal()
	if old.stuck != nil {
		close(old.stuck)
		old.stuck = nil
	}
	old.mu.Unlock()
	if n != nil {
		p.s.running.Go(func() { _ = n.Close() })
	}
	if restart > 0 {
		time.AfterFunc(restart, p.start)
	}
}

// crash is ends of the current run.
func (p *process) crash(mode string, tells bool, restart time.Duration) {
	p.mu.Lock()
	run := p.run
	p.mu.Unlock()
	p.ends(run, mode, tells, restart)
}

// stop stops the node as SIGTERM does, and starts it again.
func (p *process) stop(restart time.Duration) {
	p.mu.Lock()
	n, run := p.node, p.run
	p.mu.Unlock()
	if n == nil {
		return
	}
	p.s.running.Go(func() {
		_ = n.Close()
		p.ends(run, "kill", true, restart)
	})
}

// end stops the process for good, or ends a start that is in progress.
func (p *process) end() {
	p.mu.Lock()
	p.gone = true
	starting, run := p.node == nil, p.run
	p.mu.Unlock()
	if starting {
		p.ends(run, "kill", true, 0)
	} else {
		p.stop(0)
	}
}

// fatal is the node's wish to end the process.
func (p *process) fatal(run int, err error) {
	p.s.note("%s ends: %v", p.id, err)
	if strings.Contains(err.Error(), "differs from the leader's") {
		p.s.violation("%s: %v", p.id, err)
	}
	p.finds(err)
	p.ends(run, "kill", true, time.Second)
}

// finds notes why a node ends: one whose disk is damaged does until somebody replaces it.
func (p *process) finds(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rotten && namesDamage.MatchString(err.Error()) {
		p.damaged = true
	}
}

// isDamaged reports whether the node does not start before somebody replaces it.
func (p *process) isDamaged() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.damaged
}

// namesDamage matches what a node says of damaged files.
var namesDamage = regexp.MustCompile(`damaged|corrupt|checksum|cannot read the snapshot|load any existing snapshots`)

// ready returns the node if it is open.
func (p *process) ready() *node.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

// simulation is one run of a schedule.
type simulation struct {
	seed      uint64
	net       *simnet.Network
	processes []*process
	members   []cluster.Member
	threshold uint64
	clients   []*client
	running   sync.WaitGroup
	began     time.Time
	log       io.Writer      // nil: none
	working   sync.WaitGroup // clients
	healed    sync.WaitGroup // faults that end by themselves
	admins    int
	undecided int // keys whose check took too long
	// a command of the newest feature level has run: every later one does
	risen atomic.Bool
	// snapshots of its first feature level have no marks
	guessesMarks bool

	models struct {
		mu     sync.Mutex
		trace  *models.Trace
		broken bool
	}

	mu         sync.Mutex
	notes      []string
	violations []string
	history    []operation
	messages   []published
	seen       []sight // by clients that watch
	order      int64
}

func newSimulation(sc *schedule) *simulation {
	s := &simulation{seed: sc.seed, net: simnet.NewRandom(sc.seed), began: time.Now(),
		threshold:    sc.threshold,
		guessesMarks: sc.level != 0 && sc.level < commands.LevelSecond}
	s.models.trace = models.NewTrace()
	for i := range sc.nodes {
		p := s.add(i + 1)
		p.known = sc.level
		s.members = append(s.members, cluster.Member{ID: p.id, PeerAddr: p.peerAddr()})
	}
	return s
}

func (s *simulation) add(number int) *process {
	p := &process{s: s, id: fmt.Sprintf("n%d", number), host: fmt.Sprintf("10.0.0.%d", number),
		rnd:  rand.New(rand.NewPCG(s.seed, uint64(number))),
		disk: newDisk(s.seed + uint64(number)<<48)}
	s.processes = append(s.processes, p)
	return p
}

func (s *simulation) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf("%8.3f ", time.Since(s.began).Seconds())+
		fmt.Sprintf(format, args...))
}

func (s *simulation) violation(format string, args ...any) {
	s.note("VIOLATION "+format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// record checks what a process does against the models.
func (p *process) record(run int, e trace.Event) {
	m := &p.s.models
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.recording.Load() != int64(run) || m.broken {
		return
	}
	if err := m.trace.Step(e); err != nil {
		m.broken = true
		p.s.violation("the models do not allow it: %v", err)
	}
}

// trace notes what a client did, for a log.
func (s *simulation) trace(format string, args ...any) {
	if s.log != nil {
		fmt.Fprintf(s.log, format+"\n", args...)
	}
}

// hosts returns the addresses of all hosts, in order.
func (s *simulation) hosts() []string {
	all := map[string]bool{}
	for _, p := range s.processes {
		all[p.host] = true
	}
	for _, c := range s.clients {
		all[c.machine.Host] = true
	}
	return slices.Sorted(maps.Keys(all))
}
