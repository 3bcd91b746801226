// Running scenario files against a server and a real redis-server.

package commandtest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Target is one session, which starts in RESP2 and database 0. Do returns the bytes of the whole
// reply to a call; an error means that there is none. The runner switches protocol and database by
// HELLO and SELECT.
type Target interface {
	Do(args [][]byte) (raw []byte, err error)
}

// Messenger is a Target that can also send and receive separately, for @receive and [silent].
type Messenger interface {
	Send(args [][]byte) error
	Receive() (raw []byte, err error)
}

// Server is what scenarios run against.
type Server struct {
	// Reset empties the server: no key, no script, no function.
	Reset func() error
	// Open starts a session. If the Target has a Close method, the runner calls it at the end.
	Open func() (Target, error)
	// Advance moves the cluster clock by ms. nil: files with @advance fail.
	Advance func(ms int64) error
}

// Run runs every file that matches pattern as a subtest, once in RESP2 and once in RESP3, and
// compares each reply with the one on its line or else with that of a real redis-server. If none is
// installed, the test "redis" is skipped with a message, and only replies on lines are compared.
func Run(t *testing.T, pattern string, server Server) {
	files, err := Load(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var real *Server
	// Redis looks ten times a second for commands whose time is over, unless it is told otherwise.
	if socket := StartRedis(t, "--hz", "500"); socket != "" {
		real = Redis(socket)
	} else {
		t.Run("redis", func(t *testing.T) {
			t.Skip(RedisMissing + ": only replies that the scenario files carry were compared")
		})
	}
	for _, f := range files {
		for _, proto := range []int{2, 3} {
			name := strings.TrimSuffix(filepath.Base(f.Path), ".txt") + "/resp" +
				strconv.Itoa(proto)
			t.Run(name, func(t *testing.T) {
				r := &run{t: t, file: f, first: proto, own: side{server: &server}}
				if real != nil {
					r.real = &side{server: real}
				}
				r.all()
			})
		}
	}
}

// Redis returns the server behind a unix socket (see StartRedis).
func Redis(socket string) *Server {
	open := func() (Target, error) { return Dial("unix", socket) }
	return &Server{Open: open, Reset: func() error {
		c, err := Dial("unix", socket)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, call := range [][][]byte{Args("FLUSHALL"), Args("SCRIPT", "FLUSH"),
			Args("FUNCTION", "FLUSH")} {
			if err := must(c, call); err != nil {
				return err
			}
		}
		return nil
	}}
}

// must runs a call whose reply must not be an error.
func must(target Target, args [][]byte) error {
	raw, err := target.Do(args)
	if err != nil {
		return fmt.Errorf("%q: %w", args, err)
	}
	v, err := Parse(raw)
	if err == nil && v.IsError() {
		err = fmt.Errorf("%q: %s", args, v)
	}
	return err
}

// run is the run of one file in one protocol.
type run struct {
	t     testing.TB
	file  *File
	first int   // protocol that sessions begin with
	own   side  // what is tested
	real  *side // what it is compared with, or nil
}

// side is one of the two servers, with the sessions that a file has opened on it.
type side struct {
	server   *Server
	sessions map[string]*session
	current  *session
}

// firstSession is the name for @conn of the session that a file starts with.
const firstSession = "main"

type session struct {
	Target
	proto int
}

func (r *run) all() {
	r.t.Cleanup(func() {
		for _, s := range r.sides() {
			s.close()
		}
	})
	r.fresh()
	for i := range r.file.Steps {
		s := &r.file.Steps[i]
		if err := r.step(s); err != nil {
			r.t.Fatalf("%s:%d: %s: %v", r.file.Path, s.Line, s.Text, err)
		}
	}
}

func (r *run) sides() []*side {
	if r.real == nil {
		return []*side{&r.own}
	}
	return []*side{&r.own, r.real}
}

func (r *run) fresh() {
	for _, s := range r.sides() {
		s.close()
		if err := s.server.Reset(); err != nil {
			r.t.Fatal(err)
		}
		if err := s.use(firstSession, r.first); err != nil {
			r.t.Fatal(err)
		}
	}
}

// step executes a line. It reports differences to the test; an error means that the file cannot
// continue.
func (r *run) step(s *Step) error {
	switch s.Directive {
	case "fresh":
		r.fresh()
		return nil
	case "advance":
		if r.own.server.Advance == nil {
			return fmt.Errorf("this server's clock cannot be moved")
		}
		return r.own.server.Advance(s.Number)
	case "":
		return r.call(s)
	}
	var replies [][]byte
	for _, side := range r.sides() {
		raw, err := side.direct(s, r.first)
		if err != nil {
			return err
		}
		replies = append(replies, raw)
	}
	if s.Directive == "receive" && r.real != nil {
		return r.compare(s, replies[0], replies[1])
	}
	return nil
}

// direct executes a directive on one side. raw is the reply for "receive".
func (d *side) direct(s *Step, first int) (raw []byte, err error) {
	switch s.Directive {
	case "conn":
		return nil, d.use(s.Name, first)
	case "db":
		return nil, must(d.current, Args("SELECT", strconv.FormatInt(s.Number, 10)))
	case "resp":
		return nil, d.current.hello(int(s.Number))
	case "blocked":
		return nil, d.waitBlocked(s.Number)
	}
	m, ok := d.current.Target.(Messenger)
	if !ok {
		return nil, fmt.Errorf("this target has no messages")
	}
	return m.Receive()
}

// waitBlocked waits until the server reports n blocked clients, in a session of its own.
func (d *side) waitBlocked(n int64) error {
	target, err := d.server.Open()
	if err != nil {
		return err
	}
	if c, ok := target.(interface{ Close() error }); ok {
		defer c.Close()
	}
	want := []byte("\nblocked_clients:" + strconv.FormatInt(n, 10) + "\r")
	for deadline := time.Now().Add(replyTimeout); ; time.Sleep(time.Millisecond) {
		raw, err := target.Do(Args("INFO", "clients"))
		if err != nil || bytes.Contains(raw, want) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not %d clients wait:\n%s", n, raw)
		}
	}
}

// use makes the named session current, and opens it if missing.
func (d *side) use(name string, proto int) error {
	if d.current = d.sessions[name]; d.current != nil {
		return nil
	}
	target, err := d.server.Open()
	if err != nil {
		return err
	}
	if d.sessions == nil {
		d.sessions = map[string]*session{}
	}
	d.current = &session{Target: target, proto: 2}
	d.sessions[name] = d.current
	if proto == 2 {
		return nil
	}
	return d.current.hello(proto)
}

func (s *session) hello(proto int) error {
	s.proto = proto
	return must(s, Args("HELLO", strconv.Itoa(proto)))
}

func (d *side) close() {
	for _, s := range d.sessions {
		if c, ok := s.Target.(interface{ Close() error }); ok {
			_ = c.Close() // best effort: the session is done
		}
	}
	d.sessions, d.current = nil, nil
}

// call runs a call on both sides and compares the replies. If the line carries the reply, it runs
// on the tested side alone.
func (r *run) call(s *Step) error {
	if s.Silent {
		return r.silent(s)
	}
	got, err := r.own.current.Do(s.Args)
	if err != nil {
		return err
	}
	if s.Want != nil {
		proto := r.own.current.proto
		return r.compare(s, got, s.Want[proto-2].Append(nil, proto))
	}
	if r.real == nil {
		return nil
	}
	want, err := r.real.current.Do(s.Args)
	if err != nil {
		return fmt.Errorf("the real server: %w", err)
	}
	return r.compare(s, got, want)
}

func (r *run) silent(s *Step) error {
	for _, side := range r.sides() {
		m, ok := side.current.Target.(Messenger)
		if !ok {
			return fmt.Errorf("this target always replies")
		}
		if err := m.Send(s.Args); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) compare(s *Step, got, want []byte) error {
	equal, err := s.Compare.Equal(got, want)
	if err != nil {
		return err
	}
	if !equal {
		r.t.Errorf("%s:%d: %s\n   got  %s\n   want %s", r.file.Path, s.Line, s.Text, show(got),
			show(want))
	}
	return nil
}

// show formats a reply in the notation of the files, so that a line can be copied from a failure.
func show(raw []byte) string {
	v, err := Parse(raw)
	if err != nil {
		return strconv.Quote(string(raw))
	}
	return clip(v.String())
}
