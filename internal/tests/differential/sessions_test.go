// Random calls on several connections to our server and to redis-server. They cover what
// TestDifferential, whose machine has no connections, cannot: transactions step by step, messages
// and notifications, blocking commands, and the state of connections.

package differential

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

const (
	// sessionShare is how many calls of TestDifferential there are for each of
	// TestDifferentialSessions, which waits for each reply.
	sessionShare     = 15
	sessionsPerRound = 4
	callsPerSessions = 600 // a round
	// stepTimeout bounds the wait for our server to send what the real one has sent.
	stepTimeout = 20 * time.Second
)

// TestDifferentialSessions compares replies and messages, the replies to CLIENT LIST, and all data
// at the end of each round.
func TestDifferentialSessions(t *testing.T) {
	d := newDifferential(t)
	s := &sessions{differential: d, own: startNode(t, d.table)}
	s.listSessionCommands()
	calls := max(callsWanted(t)/sessionShare, 1)
	seed := seeds.Of(t)
	for d.calls < calls && d.differences < maxDifferences {
		s.round(seed)
		seed = d.nextSeed(seed)
	}
	s.reportSessions(calls)
}

// sessions is a run of TestDifferentialSessions.
type sessions struct {
	*differential
	own     *singleNode
	local   []*commands.Spec // of package server
	pairs   []*pair
	control *pair
	made    [][]byte // the current call
	// notified: the round has keyspace notifications.
	notified bool
	waited   int // calls that waited
	messages int
	changed  int // keys that were invalidated
	closed   int // connections that were closed
}

// pair is a connection to each of the servers.
type pair struct {
	number int
	sides  [2]side // ours, the real one
	db     int
	multi  bool
	queue  [][][]byte
	watch  []commands.WatchedKey
	waits  [][]byte // the call that waits
	woken  bool     // a call waited before the step
	closed [2]bool
	// subscribed: the connection may have subscriptions.
	subscribed bool
	tracking   bool // it may receive invalidations
	stopped    bool // it may have switched them off: see stoppedLine
}

// side is one connection of a pair.
type side struct {
	*commandtest.Conn
	id  string
	got []commandtest.Value // since the last step
}

// The sides of a pair.
const ours, theirs = 0, 1

// round makes random calls. If the servers differ, it finds a few calls that suffice.
func (s *sessions) round(seed uint64) {
	d := s.differential
	d.g, d.ttls, d.entries = random.NewCalls(d.table, seed), 0, 0
	d.g.Specs, d.g.Pools, d.g.Strays = d.specs, asRandom(sessionPools), 12
	if d.g.IntN(4) > 0 {
		d.g.Shunned = seldomRight
	}
	proto, focus := 2+d.g.IntN(2), d.focus(seed)
	s.notified = d.g.IntN(2) == 0
	var made []request
	failure := s.play(proto, func(yield func(request) bool) {
		for len(made) < callsPerSessions {
			made = append(made, s.request(focus))
			if !yield(made[len(made)-1]) {
				return
			}
		}
	})
	if failure == "" {
		return
	}
	few := d.shrunk(made, func(requests []request) bool {
		again := s.play(proto, slices.Values(requests))
		if again != "" {
			failure = again
		}
		return again != ""
	})
	d.reportFailure(seed, proto, failure, few)
}

// play makes calls on empty servers and returns the first difference.
func (s *sessions) play(proto int, requests iter.Seq[request]) (failure string) {
	d := s.differential
	d.restart(proto)
	began := d.began // connections of the last round may still end
	s.own.reset(d.node, func() int64 { return time.Since(began).Milliseconds() + 1 })
	s.pairs = nil
	s.control = s.open(0)
	for _, words := range sessionSettings {
		s.ask(s.control, commandtest.Args(words...))
	}
	if s.notified {
		s.ask(s.control, commandtest.Args("CONFIG", "SET", "notify-keyspace-events", "KEA"))
	}
	for i := range sessionsPerRound {
		s.pairs = append(s.pairs, s.open(i+1))
	}
	for q := range requests {
		if p := s.pairs[q.conn]; p.waits == nil {
			s.step(p, s.adapted(p, q.calls[0]))
			unlock := s.own.lock()
			d.outlasted(q)
			unlock()
		}
		if d.failure != "" {
			break
		}
	}
	if d.failure == "" {
		s.release()
	}
	for _, p := range append(s.pairs, s.control) {
		s.close(p)
	}
	if d.failure == "" {
		unlock := s.own.lock()
		d.compareData()
		unlock()
	}
	return d.failure
}

// open connects to both servers.
func (s *sessions) open(number int) *pair {
	p := &pair{number: number}
	for i, at := range [][2]string{ours: {"tcp", s.own.addr}, theirs: {"unix", s.socket}} {
		conn, err := commandtest.Dial(at[0], at[1])
		if err != nil {
			s.Fatal(err)
		}
		p.sides[i].Conn = conn
		for _, words := range [][]string{{"HELLO", fmt.Sprint(s.proto)}, {"CLIENT", "ID"}} {
			raw, err := conn.Do(commandtest.Args(words...))
			if err != nil {
				s.Fatal(err)
			}
			p.sides[i].id = strings.Trim(string(raw), ":\r\n")
		}
	}
	return p
}

func (s *sessions) close(p *pair) {
	for i := range p.sides {
		_ = p.sides[i].Close() // it may be closed
	}
}

// ask makes a call on both servers and returns the replies.
func (s *sessions) ask(p *pair, call [][]byte) (replies [2]commandtest.Value) {
	for i := range p.sides {
		raw, err := p.sides[i].Do(call)
		if err == nil {
			replies[i], err = commandtest.Parse(raw)
		}
		if err != nil {
			s.Fatalf("%s: %v", callText(request{calls: [][][]byte{call}}), err)
		}
	}
	return replies
}

// step makes a call on both servers and compares what all connections receive. It skips a call that
// cannot be compared.
func (s *sessions) step(p *pair, call [][]byte) {
	if call == nil {
		return
	}
	s.calls++
	s.made = call
	s.send(p, ours, call)
	mayWait := s.mayWait(p, call)
	if mayWait {
		s.awaitReplyOrWait(p, ours)
	}
	other := call
	if isCommand(inner(call), "spop", "xadd") {
		other = translated(call, s.ownAnswer(p))
	}
	s.send(p, theirs, other)
	if mayWait {
		s.awaitReplyOrWait(p, theirs)
	}
	s.gather(p, call)
	s.compareStep(p, call)
}

// send writes a call to one server, with that server's ids of connections.
func (s *sessions) send(p *pair, side int, call [][]byte) {
	if err := p.sides[side].Send(s.named(side, call)); err != nil {
		s.Fatalf("%s: %v", callText(request{calls: [][][]byte{call}}), err)
	}
}

// ownAnswer is our reply to a data command. Messages may precede it.
func (s *sessions) ownAnswer(p *pair) []byte {
	for {
		v, open := s.receive(p, ours)
		if !open {
			return nil
		}
		if v.Kind != '>' {
			return v.Append(nil, s.proto)
		}
	}
}

// receive reads a reply or a message and keeps it. At the end of the stream, open is false.
func (s *sessions) receive(p *pair, side int) (v commandtest.Value, open bool) {
	ready, open := p.sides[side].Ready(stepTimeout)
	if !ready {
		if open {
			s.failure = fmt.Sprintf("connection %d of %s: no reply; after %s", p.number,
				sideNames[side], callText(request{calls: [][][]byte{s.made}}))
		}
		return v, false
	}
	raw, err := p.sides[side].Receive()
	if err != nil {
		s.Fatalf("connection %d of %s: %v", p.number, sideNames[side], err)
	}
	if v, err = commandtest.Parse(raw); err != nil {
		s.Fatal(err)
	}
	p.sides[side].got = append(p.sides[side].got, v)
	return v, true
}

var sideNames = [...]string{ours: "our server", theirs: "the real server"}

// awaitReplyOrWait returns when a call has its reply, or waits in its server.
func (s *sessions) awaitReplyOrWait(p *pair, side int) {
	for end := time.Now().Add(stepTimeout); time.Now().Before(end); {
		if ready, _ := p.sides[side].Ready(100 * time.Microsecond); ready ||
			s.waiting(side)[p.sides[side].id] {
			return
		}
	}
	s.Fatalf("connection %d of %s: no reply, and it does not wait", p.number, sideNames[side])
}

// clients returns CLIENT LIST.
func (s *sessions) clients(side int) string {
	raw, err := s.control.sides[side].Do(commandtest.Args("CLIENT", "LIST"))
	if err != nil {
		s.Fatal(err)
	}
	v, err := commandtest.Parse(raw)
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimPrefix(v.Text, verbatim)
}

// waiting returns the ids of the connections that wait.
func (s *sessions) waiting(side int) map[string]bool {
	ids := map[string]bool{}
	for line := range strings.Lines(s.clients(side)) {
		fields := clientFields(line)
		if strings.Contains(fields["flags"], "b") {
			ids[fields["id"]] = true
		}
	}
	return ids
}

// gather reads what all connections receive because of a call: first from the real server, which
// has sent all of it when it answers another call; then as much from ours, and then any excess.
func (s *sessions) gather(asker *pair, call [][]byte) {
	waits := s.waiting(theirs)
	if asker.waits == nil && waits[asker.sides[theirs].id] {
		asker.waits = call
		s.waited++
	}
	if asker.waits == nil {
		s.noteState(asker, call)
	}
	for _, p := range s.pairs {
		waiting := waits[p.sides[theirs].id]
		if waiting {
			s.readPending(p)
		} else {
			s.readToMark(p, theirs)
		}
		s.readAsMuch(p)
		if !waiting && !p.closed[ours] {
			s.readToMark(p, ours)
		}
		if s.failure == "" && p.closed[ours] != p.closed[theirs] {
			s.failure = fmt.Sprintf(
				"connection %d: closed by our server %v, by the real one %v; after %s",
				p.number, p.closed[ours], p.closed[theirs],
				callText(request{calls: [][][]byte{call}}))
		}
		if s.failure != "" {
			return
		}
	}
	s.compareWaiting(call)
}

// compareWaiting waits until the same connections wait in both servers. It asks the real one again
// too: what it says may change by itself.
func (s *sessions) compareWaiting(call [][]byte) {
	end := time.Now().Add(stepTimeout)
	for {
		differ := ""
		waits, waiting := s.waiting(theirs), s.waiting(ours)
		for _, p := range s.pairs {
			if !p.closed[theirs] && waiting[p.sides[ours].id] != waits[p.sides[theirs].id] {
				differ = fmt.Sprintf(
					"connection %d: waits in the real server %v, in ours %v; after %s",
					p.number, waits[p.sides[theirs].id], waiting[p.sides[ours].id],
					callText(request{calls: [][][]byte{call}}))
			}
		}
		if differ == "" {
			return
		}
		if time.Now().After(end) {
			s.failure = fmt.Sprintf("%s\n   ours\n%s   real\n%s", differ, s.clients(ours),
				s.clients(theirs))
			return
		}
	}
}

// readPending reads what the real server has sent a connection that waits. It sent that before the
// last reply to the control connection.
func (s *sessions) readPending(p *pair) {
	for {
		if ready, _ := p.sides[theirs].Ready(100 * time.Microsecond); !ready {
			return
		}
		s.receive(p, theirs)
	}
}

// readAsMuch reads as much from our server as the real one has sent.
func (s *sessions) readAsMuch(p *pair) {
	end := time.Now().Add(stepTimeout)
	for (units(p.sides[ours].got) < units(p.sides[theirs].got) || p.closed[theirs]) &&
		time.Now().Before(end) {
		ready, open := p.sides[ours].Ready(time.Until(end))
		if !open {
			p.closed[ours] = true
			return
		}
		if ready {
			s.receive(p, ours)
		}
	}
}

// mark is what readToMark has a server echo.
const mark = "the mark of the test"

// readToMark reads all that a server has sent a connection that does not wait.
func (s *sessions) readToMark(p *pair, side int) {
	c := &p.sides[side]
	question, answer := commandtest.Args("PING", mark), mark
	if p.multi { // fails at once and changes nothing
		question, answer = commandtest.Args("WATCH", mark), "ERR WATCH inside MULTI is not allowed"
	}
	// if this fails, the connection is closed, and what it received before can still be read
	_ = c.Send(question)
	for {
		v, open := s.receive(p, side)
		if !open {
			p.closed[side] = s.failure == ""
			return
		}
		inSubscriber := len(v.Elems) == 2 && v.Elems[0].Text == "pong" && v.Elems[1].Text == mark
		if (v.Text == answer && (v.Kind == '$' || v.Kind == '-')) || inSubscriber {
			c.got = c.got[:len(c.got)-1]
			return
		}
	}
}

// noteState records how a call changed the state of its connection, by the real server's reply.
func (s *sessions) noteState(p *pair, call [][]byte) {
	name := strings.ToLower(string(call[0]))
	s.noteMessages(p, name, call)
	if !p.multi && !slices.Contains(words("multi watch unwatch select reset quit"), name) {
		return
	}
	v, open := s.receive(p, theirs)
	for open && v.Kind == '>' {
		v, open = s.receive(p, theirs)
	}
	switch {
	case !open:
	case name == "reset" && v.Text == "RESET":
		p.multi, p.queue, p.watch, p.db, p.subscribed, p.tracking = false, nil, nil, 0, false, false
	case p.multi && endsTransaction(name, v):
		s.noteSelects(p, v)
		p.multi, p.watch = false, nil // the queue is still needed
	case v.IsError():
	case name == "multi":
		p.multi, p.queue = true, nil
	case p.multi && v.Text == "QUEUED":
		p.queue = append(p.queue, call)
	case name == "watch":
		unlock := s.own.lock()
		for _, key := range call[1:] {
			p.watch = append(p.watch, commands.WatchedKey{DB: p.db, Key: key,
				Changed: s.node.lastChange(p.db, key)})
		}
		unlock()
	case name == "unwatch":
		p.watch = nil
	case name == "select":
		p.db = database(call)
	}
}

// noteMessages records which messages the connection may receive after a call.
func (s *sessions) noteMessages(p *pair, name string, call [][]byte) {
	p.stopped = p.stopped ||
		(p.tracking && (name == "reset" || (name == "client" && hasWord(call, "off"))))
	p.tracking = p.tracking || (name == "client" && hasWord(call, "tracking"))
	if name == "client" {
		for _, target := range s.redirects(call) {
			target.subscribed = true
		}
	}
	p.subscribed = p.subscribed || p.tracking || strings.HasSuffix(name, "subscribe")
}

// endsTransaction reports whether a call with this reply ended its transaction.
func endsTransaction(name string, v commandtest.Value) bool {
	return name == "exec" && (!v.IsError() || strings.HasPrefix(v.Text, "EXECABORT")) ||
		name == "discard" && !v.IsError()
}

// noteSelects records the database that a transaction ended in.
func (s *sessions) noteSelects(p *pair, reply commandtest.Value) {
	for i := range min(len(reply.Elems), len(p.queue)) {
		if isCommand(p.queue[i], "select") && reply.Elems[i].Text == "OK" {
			p.db = database(p.queue[i])
		}
	}
}

// release ends the calls that wait.
func (s *sessions) release() {
	for _, p := range s.pairs {
		if p.waits == nil {
			continue
		}
		replies := [2]commandtest.Value{}
		for i := range p.sides {
			raw, err := s.control.sides[i].Do(commandtest.Args("CLIENT", "UNBLOCK", p.sides[i].id,
				"ERROR"))
			if err != nil {
				s.Fatal(err)
			}
			replies[i], _ = commandtest.Parse(raw)
		}
		if replies[ours].Text != "1" || replies[theirs].Text != "1" {
			s.failure = fmt.Sprintf(
				"connection %d waits, but UNBLOCK returns %v, on the real server %v", p.number,
				replies[ours], replies[theirs])
			return
		}
		s.gather(p, p.waits)
		s.compareStep(p, p.waits)
		if s.failure != "" {
			return
		}
	}
}
