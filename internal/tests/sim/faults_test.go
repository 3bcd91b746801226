// What fails in a simulation, and how it is mended.

package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/tests/simnet"
)

// named returns the processes that a list of names means; "leader" is whoever leads now.
func (s *simulation) named(names string) (all []*process) {
	for name := range strings.SplitSeq(names, ",") {
		for _, p := range s.processes {
			if n := p.ready(); p.id == name || name == "leader" && n != nil && n.Leads() {
				all = append(all, p)
				break
			}
		}
	}
	return all
}

// inject does what a fault says.
func (s *simulation) inject(e event) {
	s.note("%s %s", e.kind, strings.Join(e.args, " "))
	ps := s.named(e.args[0])
	if len(ps) == 0 {
		return
	}
	p := ps[0]
	span := func(arg int) time.Duration {
		d, err := time.ParseDuration(e.args[arg])
		if err != nil {
			panic(err)
		}
		return max(d, time.Millisecond)
	}
	number := func(arg int) float64 {
		f, err := strconv.ParseFloat(e.args[arg], 64)
		if err != nil {
			panic(err)
		}
		return f
	}
	switch e.kind {
	case "crash":
		p.crash(e.args[1], e.args[1] == "kill", span(2))
	case "crashstep":
		p.crashAt(int(number(1)), e.args[2], span(3))
	case "stop":
		p.stop(span(1))
	case "upgrade":
		p.mu.Lock()
		p.known = 0
		p.mu.Unlock()
		p.stop(span(1))
	case "cut":
		if qs := s.named(e.args[1]); len(qs) > 0 && qs[0] != p {
			s.cutFor([]simnet.Route{{From: p.host, To: qs[0].host}}, span(2))
		}
	case "split":
		var clients []string
		if len(e.args) > 2 {
			clients = strings.Split(e.args[2], ",")
		}
		s.split(ps, clients, span(1))
	case "pause":
		s.pause(p, span(1))
	case "slew":
		p.clock.slew(number(1))
	case "wall":
		p.clock.step(span(1))
	case "disk":
		p.spoil(e.args[1], span(2))
	case "rot":
		p.mu.Lock()
		p.rotten = true
		d := p.disk
		p.mu.Unlock()
		s.note("%s: %s", p.id, d.rot(e.args[1]))
	case "break":
		s.net.Break(p.host)
	case "admin":
		s.admin(p, e.args[1])
	case "join":
		s.join()
	case "remove":
		s.remove(p)
	default:
		panic("no fault " + e.kind)
	}
}

// cutFor cuts routes for a time.
func (s *simulation) cutFor(routes []simnet.Route, span time.Duration) {
	for _, r := range routes {
		s.net.Cut(r, 1)
	}
	s.healed.Add(1)
	time.AfterFunc(span, func() {
		for _, r := range routes {
			s.net.Cut(r, -1)
		}
		s.healed.Done()
	})
}

// split cuts some nodes, and some clients, named by their numbers, off the others. Other clients
// reach all nodes if none is named, else the other nodes.
func (s *simulation) split(some []*process, clients []string, span time.Duration) {
	here := map[string]bool{}
	hosts := make([]string, 0, len(s.processes)+len(s.clients))
	for _, p := range s.processes {
		hosts = append(hosts, p.host)
		here[p.host] = slices.Contains(some, p)
	}
	for _, c := range s.clients {
		if clients != nil {
			hosts = append(hosts, c.machine.Host)
			here[c.machine.Host] = slices.Contains(clients, strconv.Itoa(c.number))
		}
	}
	var routes []simnet.Route
	for _, from := range hosts {
		for _, to := range hosts {
			if here[from] != here[to] {
				routes = append(routes, simnet.Route{From: from, To: to})
			}
		}
	}
	s.cutFor(routes, span)
}

// pause holds up all that a node sends, receives and stores.
func (s *simulation) pause(p *process, span time.Duration) {
	var routes []simnet.Route
	for _, h := range s.hosts() {
		if h != p.host {
			routes = append(routes, simnet.Route{From: p.host, To: h},
				simnet.Route{From: h, To: p.host})
		}
	}
	s.cutFor(routes, span)
	p.spoil("stuck", span)
}

// spoil makes the disk of the node bad for a time.
func (p *process) spoil(how string, span time.Duration) {
	p.mu.Lock()
	d := p.disk
	p.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	latency := d.latency
	var stuck chan struct{}
	switch how {
	case "slow":
		d.latency = 200 * time.Millisecond
	case "fail":
		d.failing = true
	case "full":
		d.full = true
	case "stuck":
		if d.stuck == nil {
			stuck = make(chan struct{})
			d.stuck = stuck
		}
	}
	p.s.healed.Add(1)
	time.AfterFunc(span, func() {
		defer p.s.healed.Done()
		p.mu.Lock()
		later := p.disk // it keeps what was wrong with the one before
		p.mu.Unlock()
		for _, d := range []*disk{d, later} {
			d.mu.Lock()
			switch how {
			case "slow":
				d.latency = latency
			case "fail":
				d.failing = false
			case "full":
				d.full = false
			}
			if stuck != nil && d.stuck == stuck {
				close(stuck)
				d.stuck = nil
			}
			d.mu.Unlock()
		}
	})
}

// crashAt ends the process at a later step of its disk.
func (p *process) crashAt(steps int, mode string, restart time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up {
		return
	}
	run, d := p.run, p.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = steps
	d.crash = func() { p.ends(run, mode, mode == "kill", restart) }
}

// join starts a new node, which joins the cluster.
func (s *simulation) join() {
	q := s.add(len(s.processes) + 1)
	q.join = true // of the newest release, as the others may be before it has joined
	q.start()
}

// remove removes a node from the cluster, however often that must be tried, and then stops it.
func (s *simulation) remove(p *process) {
	c := s.adminClient(0)
	s.healed.Add(1)
	s.running.Go(func() {
		defer s.healed.Done()
		defer c.close()
		for began := time.Now(); time.Since(began) < lengthOf+recovery; {
			if c.to%len(s.processes) == indexOf(s.processes, p) {
				c.to++
			}
			replies, err := c.call(patience, []string{"RAFT", "REMOVE", p.id})
			s.note("removal of %s: %v %v", p.id, replies, err)
			if err == nil && (replies[0] == "OK" ||
				strings.Contains(replies[0], "was already removed")) {
				p.mu.Lock()
				p.gone = true
				p.mu.Unlock()
				p.stop(0)
				return
			}
			time.Sleep(300 * time.Millisecond)
		}
		s.violation("%s cannot be removed", p.id)
	})
}

// adminClient returns a client of its own host.
func (s *simulation) adminClient(to int) *client {
	s.admins++
	return &client{s: s, number: 100 + s.admins, to: to,
		machine: s.net.Boot(fmt.Sprintf("10.0.2.%d", s.admins))}
}

// admin has a client of its own send a command to a node.
func (s *simulation) admin(p *process, what string) {
	c := s.adminClient(indexOf(s.processes, p))
	s.running.Go(func() {
		defer c.close()
		replies, err := c.call(patience, []string{"RAFT", strings.ToUpper(what)})
		s.note("%s of %s: %v %v", what, p.id, replies, err)
	})
}

func indexOf(all []*process, p *process) int {
	for i, q := range all {
		if q == p {
			return i
		}
	}
	return -1
}
