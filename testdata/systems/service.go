package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// calm is how many rounds in a row must succeed before a change of the leader, and after it.
	calm = 30
	// calmLimit bounds the wait for them.
	calmLimit = 2 * time.Minute
)

// service is a system with a program that repeats one round of checks. It prints `ok`, `failed WHY`
// (no service) or `wrong WHAT` (a promise is broken) for each.
type service struct {
	name, version string
	program       []string
	processes     int
	checked       string
}

func services() []service {
	node := []string{"node", sources + "/node/service.js"}
	python := []string{"/usr/bin/python3", sources + "/python/service_program.py"}
	ruby := []string{"ruby", sources + "/ruby/service.rb"}
	return []service{
		{"@socket.io/redis-adapter", "8.3.0", append(node, "redis-adapter"), 1,
			"two servers: `serverCount`, sockets of a room, a message to each, at most once"},
		{"@socket.io/redis-streams-adapter", "0.3.1", append(node, "redis-streams-adapter"), 1,
			"the same, over a stream"},
		{"connect-redis, express-session", "10.0.0, 1.19.0", append(node, "connect-redis"), 1,
			"three servers: no visit that was answered leaves the session"},
		{"Symfony Lock", "5.4.53", []string{"php", sources + "/php/lock.php"}, 3,
			"three processes: one holder at a time, acknowledged releases let the next in"},
		{"Action Cable", "6.1.7", append(ruby, "actioncable"), 1,
			"two servers: a broadcast reaches both, at most once"},
		{"Rack::Attack", "6.6.1", append(ruby, "rack-attack"), 1,
			"three servers: the limit of 3 is never less, a ban outlives leaders"},
		{"HAProxy", "2.6.12", append(python, "haproxy"), 1,
			"`tcp-check` finds the leader, `redis-check` any node; counts rise by one"},
		{"prometheus-redis-exporter", "1.45.0", append(python, "exporter"), 1,
			"each node has its metrics, one is the master and counts every key"},
		{"nchan", "1.3.6", append(python, "nchan"), 1,
			"two nginx on two nodes: a message reaches the subscribers of both, which it counts"},
		{"Rspamd", "3.4", append(python, "rspamd"), 1,
			"a limit of three messages: never less, and exact while no node fails"},
	}
}

func (s service) run(ctx context.Context, dir, coordd string) (*rounds, error) {
	r := &rounds{of: make([]streak, s.processes), first: true}
	c, err := startCluster(ctx, dir, coordd)
	if err != nil {
		return r, err
	}
	defer c.stop()
	ctx, cancel := context.WithCancel(ctx)
	p := programs{stop: cancel}
	defer p.end()
	for i := range s.processes {
		env := []string{"COORDD_ADDR=" + c.addrs[i%3],
			"COORDD_ADDRS=" + strings.Join(c.addrs, ","), "TMPDIR=" + dir}
		if err := p.start(ctx, s.program, env, func(word, rest string) {
			r.line(i, word, rest)
		}); err != nil {
			return r, err
		}
	}
	for _, step := range []struct {
		when   string
		change func(context.Context) error
	}{
		{"before the leader is killed", c.killLeader},
		{"after the leader was killed", c.handOver},
		{"after the handover", func(context.Context) error { return nil }},
	} {
		if err := r.untilCalm(ctx); err != nil {
			return r, errors.Join(fmt.Errorf("%s: %w", step.when, err), r.broken())
		}
		if err := step.change(ctx); err != nil {
			return r, err
		}
	}
	return r, r.broken()
}

// rounds counts what the processes of a service report.
type rounds struct {
	mu     sync.Mutex
	of     []streak
	first  bool // the leader has not changed: no round may fail
	count  int
	failed int
	wrong  []error
	gap    time.Duration // the longest time in which a process had no success
	why    string        // of the last failure
}

// streak is what one process has achieved.
type streak struct {
	length int
	last   time.Time
}

// broken returns the first promises that were broken, nil if there are none.
func (r *rounds) broken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.wrong[:min(len(r.wrong), 10)]...)
}

func (r *rounds) line(process int, word, rest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.of[process]
	if word == "ok" || word == "failed" || word == "wrong" {
		r.count++
	}
	switch word {
	case "ok":
		now := time.Now()
		if !s.last.IsZero() {
			r.gap = max(r.gap, now.Sub(s.last))
		}
		s.last = now
		s.length++
	case "failed":
		s.length = 0
		r.failed++
		r.why = rest
		if r.first {
			r.wrong = append(r.wrong, errors.New("failed before a change: "+rest))
		}
	case "wrong":
		s.length = 0
		r.wrong = append(r.wrong, errors.New(rest))
	}
}

// untilCalm waits for the next rounds of every process to succeed.
func (r *rounds) untilCalm(ctx context.Context) error {
	r.mu.Lock()
	for i := range r.of {
		r.of[i].length = 0
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, calmLimit)
	defer cancel()
	for {
		r.mu.Lock()
		reached := !slices.ContainsFunc(r.of, func(s streak) bool { return s.length < calm })
		if reached {
			r.first = false
		}
		why := r.why
		r.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("fewer than %d rounds in a row succeeded, last: %s", calm, why)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *rounds) row(s service) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %.1f | %s |", s.name, s.version, r.count,
		r.failed, len(r.wrong), r.gap.Seconds(), s.checked)
}

// notRun names systems that users would ask for.
const notRun = `- resque, huey, dramatiq, Envoy: not in Debian 12. node-resque runs the queue of resque.
- github.com/taylorchu/work: not in the Go module proxy.
- github.com/RichardKnop/machinery: builds with the SDKs of AWS, Google and MongoDB.

The workers of Laravel and Symfony are loops of ours around the libraries' transports, which connect
again after an error. Action Cable's servers are built again after an error, as a supervisor would.

A Celery worker ends when it is answered with an error: UNKNOWN to the EXEC of its acknowledgement,
if that was in flight. It is started again, as a supervisor would. A worker that has lost its
connection several times at once may take no more jobs, which celery/celery#8091 describes; in one
of nine runs one did, and the others took its share.
`
