// Schedules: what clients do and what fails, and when. A seed makes one; it can be written down,
// shortened and read again.

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// event is a step of a schedule: what a client does or what fails.
type event struct {
	at     time.Duration
	client int // -1: a fault
	kind   string
	args   []string
}

func (e event) String() string {
	who := "fault"
	if e.client >= 0 {
		who = fmt.Sprintf("c%d", e.client)
	}
	return fmt.Sprintf("%v %s %s %s", e.at, who, e.kind, strings.Join(e.args, " "))
}

// schedule is a simulation to run.
type schedule struct {
	seed      uint64
	nodes     int
	clients   int
	threshold uint64 // log entries between snapshots
	level     uint64 // the newest feature level that nodes know at first; 0: that of the release
	events    []event
}

// String writes a schedule so that parseSchedule reads it.
func (sc *schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d nodes %d clients %d threshold %d level %d\n", sc.seed, sc.nodes,
		sc.clients, sc.threshold, sc.level)
	for _, e := range sc.events {
		fmt.Fprintf(&b, "%v\n", e)
	}
	return b.String()
}

func parseSchedule(text string) (*schedule, error) {
	sc := &schedule{}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if _, err := fmt.Sscanf(lines[0], "seed %d nodes %d clients %d threshold %d level %d", &sc.seed,
		&sc.nodes, &sc.clients, &sc.threshold, &sc.level); err != nil {
		return nil, fmt.Errorf("%q: %w", lines[0], err)
	}
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		if len(words) < 3 {
			return nil, fmt.Errorf("no event: %q", line)
		}
		e := event{client: -1, kind: words[2], args: words[3:]}
		var err error
		if e.at, err = time.ParseDuration(words[0]); err != nil {
			return nil, err
		}
		if words[1] != "fault" {
			if e.client, err = strconv.Atoi(strings.TrimPrefix(words[1], "c")); err != nil {
				return nil, err
			}
		}
		sc.events = append(sc.events, e)
	}
	return sc, nil
}

// generator makes a schedule.
type generator struct {
	*rand.Rand
	sc   *schedule
	last map[int]string // what a client wrote last, by client and key
}

// lengthOf is how long clients work and things fail.
const lengthOf = 12 * time.Second

// newSchedule makes the schedule of a seed.
func newSchedule(seed uint64) *schedule {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x736368)), last: map[int]string{}}
	sc := &schedule{seed: seed, nodes: []int{1, 3, 3, 3, 3, 3, 5}[g.IntN(7)],
		clients:   2 + g.IntN(4),
		threshold: []uint64{8, 30, 100, 8192}[g.IntN(4)],
		level:     []uint64{0, 0, 1, 2}[g.IntN(4)]}
	g.sc = sc
	for c := range sc.clients {
		g.work(c)
	}
	for range g.IntN(8) {
		g.fault()
	}
	if sc.level != 0 {
		g.upgrade()
	}
	if sc.nodes > 1 && g.IntN(4) == 0 {
		g.membership()
	}
	// what came later draws numbers of its own: seeds keep what they had
	g.Rand = rand.New(rand.NewPCG(seed, 0x6d6f7265))
	if g.IntN(2) == 0 {
		g.watch()
	}
	if sc.nodes > 1 && g.IntN(4) == 0 {
		g.splitAll()
	}
	if g.IntN(4) == 0 {
		g.rot()
	}
	g.Rand = rand.New(rand.NewPCG(seed, 0x6c6f636b))
	if sc.level == 0 && g.IntN(3) > 0 { // older nodes do not know the commands
		g.locks()
	}
	slices.SortStableFunc(sc.events, func(a, b event) int { return int(a.at - b.at) })
	return sc
}

func (g *generator) add(at time.Duration, client int, kind string, args ...any) {
	e := event{at: at.Round(time.Microsecond), client: client, kind: kind}
	for _, a := range args {
		e.args = append(e.args, fmt.Sprint(a))
	}
	g.sc.events = append(g.sc.events, e)
}

// work makes the operations of one client.
func (g *generator) work(c int) {
	at := 500*time.Millisecond + time.Duration(g.Int64N(int64(time.Second)))
	pause := []time.Duration{20, 100, 400}[g.IntN(3)] * time.Millisecond
	for n := 0; at < lengthOf; n++ {
		value := fmt.Sprintf("c%d-%d", c, n)
		key := fmt.Sprint(g.IntN(2))
		// a key of its own for each part of the time: what is unknown makes checks slow
		key += fmt.Sprintf(":%d", int(at/(3*time.Second)))
		switch g.IntN(16) {
		case 0, 1:
			g.add(at, c, "set", "reg"+key, value)
		case 2, 3:
			g.add(at, c, "get", "reg"+key)
		case 4:
			g.add(at, c, "cas", "reg"+key, fmt.Sprintf("c%d-%d", g.IntN(g.sc.clients),
				max(0, n-1-g.IntN(4))), value)
		case 5:
			g.add(at, c, "incr", "counter"+key)
		case 6:
			g.add(at, c, "count", "counter"+key)
		case 7, 8:
			g.add(at, c, "lease", "lock"+key, value, 100+g.IntN(900))
		case 9:
			g.add(at, c, "free", "lock"+key, fmt.Sprintf("c%d-%d", c, max(0, n-1-g.IntN(3))))
		case 10:
			g.add(at, c, "holder", "lock"+key)
		case 11:
			g.add(at, c, "push", "queue"+key, value)
		case 12:
			g.add(at, c, "pop", "queue"+key)
		case 13:
			g.add(at, c, []string{"multi", "both"}[g.IntN(2)], "pair"+key, value)
		case 14:
			g.add(at, c, "window", "window"+key, 300+g.IntN(500))
		case 15:
			g.add(at, c, "fence", "fence"+key, value, 100+g.IntN(400))
		}
		at += time.Duration(g.ExpFloat64() * float64(pause))
	}
}

// watch adds clients that watch, and one that publishes.
func (g *generator) watch() {
	publisher, listener := g.sc.clients, g.sc.clients+1
	stale, cached := g.sc.clients+2, g.sc.clients+3
	pause := []time.Duration{20, 100, 400}[g.IntN(3)] * time.Millisecond
	next := func() time.Duration { return time.Duration(g.ExpFloat64() * float64(pause)) }
	at := time.Second / 2
	for n := 0; at < lengthOf; n++ {
		g.add(at, publisher, "publish", "channel", fmt.Sprint("m", n))
		for _, reader := range []int{stale, cached} {
			key := fmt.Sprintf("counter%d:%d", g.IntN(2), int(at/(3*time.Second)))
			g.add(at+next(), reader, map[int]string{stale: "stale", cached: "cached"}[reader], key)
		}
		at += next()
	}
	for at := time.Second / 2; at < lengthOf; at += time.Second {
		g.add(at, listener, "listen", "channel", time.Second)
	}
}

// splitAll splits nodes and clients in two.
func (g *generator) splitAll() {
	at := time.Duration(g.Int64N(int64(lengthOf)))
	span := time.Duration(g.ExpFloat64() * float64(2*time.Second)).Round(time.Millisecond)
	clients := []string{}
	for c := range g.sc.clients + len(watchers) {
		if g.IntN(2) == 0 {
			clients = append(clients, strconv.Itoa(c))
		}
	}
	if len(clients) > 0 {
		g.add(at, -1, "split", []string{g.node(), "leader"}[g.IntN(2)], span,
			strings.Join(clients, ","))
	}
}

// rot spoils the disk of one node, a minority, whose members stay: one thing, since two may hide
// each other. It comes to light at a restart at the latest. That is none by loss of power within
// the second in which a lost batch looks torn (ADR 0056).
func (g *generator) rot() {
	for _, e := range g.sc.events {
		if g.sc.nodes < 3 || e.kind == "join" || e.kind == "remove" {
			return
		}
	}
	at := 2*time.Second + time.Duration(g.Int64N(int64(lengthOf-2*time.Second)))
	victim := g.node()
	how := []string{"flip", "flip", "zeros", "cut", "lost", "stray", "snapshot"}[g.IntN(7)]
	for i, e := range g.sc.events {
		if strings.HasPrefix(e.kind, "crash") && e.args[len(e.args)-2] != "kill" &&
			(e.args[0] == victim || e.args[0] == "leader") {
			g.sc.events[i].args = slices.Clone(e.args)
			g.sc.events[i].args[len(e.args)-2] = "kill"
		}
	}
	g.add(at, -1, "rot", victim, how)
	at += time.Duration(g.Int64N(int64(2 * time.Second)))
	g.add(at, -1, "crash", victim, "kill", 50*time.Millisecond)
	at += time.Duration(g.Int64N(int64(time.Second)))
	g.add(at, -1, "crash", g.node(), "kill", time.Second) // now its copy may be needed
}

// node picks a node.
func (g *generator) node() string { return fmt.Sprintf("n%d", 1+g.IntN(g.sc.nodes)) }

// fault adds something that fails.
func (g *generator) fault() {
	at := time.Duration(g.Int64N(int64(lengthOf)))
	span := time.Duration(g.ExpFloat64() * float64(1500*time.Millisecond)).Round(time.Millisecond)
	mode := []string{"kill", "synced", "torn"}[g.IntN(3)]
	switch g.IntN(13) {
	case 0:
		g.add(at, -1, "crash", g.node(), mode, span)
	case 1:
		g.add(at, -1, "crash", "leader", mode, span)
	case 2:
		for i := range g.sc.nodes { // all at about the same time
			g.add(at+time.Duration(g.IntN(20))*time.Millisecond, -1, "crash",
				fmt.Sprintf("n%d", i+1), mode, span)
		}
	case 3:
		g.add(at, -1, "crashstep", g.node(), 1+g.IntN(60), mode, span)
	case 4:
		g.add(at, -1, "stop", g.node(), span)
	case 5:
		g.add(at, -1, "cut", g.node(), g.node(), span) // in one direction
	case 6:
		g.add(at, -1, "split", "leader", span)
	case 7:
		g.add(at, -1, "split", g.node()+","+g.node(), span)
	case 8:
		g.add(at, -1, "pause", []string{g.node(), "leader"}[g.IntN(2)], span)
	case 9:
		g.add(at, -1, "slew", g.node(), 0.8+0.2*g.Float64())
		g.add(at, -1, "wall", g.node(), time.Duration(g.NormFloat64()*float64(time.Hour)))
	case 10:
		g.add(at, -1, "disk", g.node(), []string{"slow", "fail", "full", "stuck"}[g.IntN(4)], span)
	case 11:
		g.add(at, -1, "break", g.node())
	case 12:
		g.add(at, -1, "admin", g.node(), []string{"snapshot", "transfer"}[g.IntN(2)])
	}
}

// membership adds a node, removes one, or does both.
func (g *generator) membership() {
	at := func() time.Duration { return time.Second + time.Duration(g.Int64N(int64(lengthOf))) }
	what := g.IntN(3)
	if what != 0 {
		g.add(at(), -1, "join", "n1")
	}
	if what != 1 {
		g.add(at(), -1, "remove", []string{g.node(), "leader"}[g.IntN(2)])
	}
}

// upgrade restarts the nodes one after another, with the newest feature level.
func (g *generator) upgrade() {
	at := time.Second + time.Duration(g.Int64N(int64(lengthOf/2)))
	for i := range g.sc.nodes {
		g.add(at, -1, "upgrade", fmt.Sprintf("n%d", i+1), 100*time.Millisecond)
		at += time.Duration(g.Int64N(int64(2 * time.Second)))
	}
}
