// Tests of what becomes of a command that waited, if its client is gone by then: however it ends,
// nothing is lost and nothing appears.

package server

import (
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/ports"
)

// blockingCalls has a call of each command that waits in the machine, and what brings it something.
var blockingCalls = map[string]struct{ call, brings string }{
	"blpop":      {"BLPOP other from 0", "RPUSH from x"},
	"brpop":      {"BRPOP other from 0", "RPUSH from x"},
	"blmpop":     {"BLMPOP 0 2 other from LEFT", "RPUSH from x"},
	"blmove":     {"BLMOVE from to LEFT LEFT 0", "RPUSH from x"},
	"blmovem":    {"BLMOVEM from to LEFT LEFT 0 EXACTLY 1 OBO", "RPUSH from x"},
	"brpoplpush": {"BRPOPLPUSH from to 0", "RPUSH from x"},
	"bzpopmin":   {"BZPOPMIN other from 0", "ZADD from 1 x"},
	"bzpopmax":   {"BZPOPMAX other from 0", "ZADD from 1 x"},
	"bzmove":     {"BZMOVE from to MIN 0 COUNT 2", "ZADD from 1 x"},
	"bzmpop":     {"BZMPOP 0 2 other from MIN", "ZADD from 1 x"},
}

// goneEnds are the ways in which a command ends: by what changes its user before, or by what the
// node is told in place of what the machine tells.
var goneEnds = []struct {
	name    string
	changes []string
	told    string
}{
	{"served", nil, ""},
	{"denied its key", []string{"ACL", "SETUSER", "bob", "resetkeys", "~mine"}, ""},
	{"denied the command", []string{"ACL", "SETUSER", "bob", "nocommands"}, ""},
	{"removed", []string{"ACL", "DELUSER", "bob"}, ""},
	{"an error", nil, "-ERR no\r\n"},
	{"null", nil, "*-1\r\n"},
}

// goneMoments are the times at which a node learns that the client is gone, as what it does then
// with what the machine has told.
var goneMoments = []func(n *node, w *waiter, q commands.Request, served commands.Event,
	ended net.Conn){
	// before it learns how the command ended
	func(n *node, _ *waiter, _ commands.Request, served commands.Event, _ net.Conn) {
		n.fake.deliver([]commands.Event{served})
	},
	// when it has learned it, and the session has not
	func(n *node, w *waiter, q commands.Request, served commands.Event, _ net.Conn) {
		w.news.reply = commands.RepliesOf(served.Payload)
		n.leaveLater(w, q)
	},
	// when the session has learned it
	func(n *node, w *waiter, q commands.Request, served commands.Event, ended net.Conn) {
		spec, _ := n.table.Resolve(q.Cmds[0])
		b := blocked{s: &session{srv: n.Server, conn: ended}, w: w, spec: spec, request: q}
		_, _ = b.served(commands.RepliesOf(served.Payload), nil)
	},
}

func TestWaitsOfGoneClients(t *testing.T) {
	ended := endedConn(t)
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		for _, spec := range testTable().All() {
			if !spec.Has(commands.Blocking) || !spec.WaitsInMachine() || spec.Name == "wait" ||
				spec.Claims() { // nothing of it comes back: see wait_claim_test.go
				continue
			}
			c, known := blockingCalls[spec.Name]
			if !known {
				t.Errorf("no call of %s", spec.Name)
			}
			moves := strings.Contains(c.call, " to ")
			for _, end := range goneEnds {
				for at, learns := range goneMoments {
					main.call("FLUSHALL")
					main.call("ACL", "SETUSER", "bob", "reset", "on", "nopass", "+@all", "~*")
					n.goes(t, main, c.call, c.brings, end.changes, end.told,
						func(w *waiter, q commands.Request, served commands.Event) {
							learns(n, w, q, served, ended)
						})
					want := "*1\r\n$4\r\nfrom\r\n"
					if end.name == "served" && moves {
						want = "*1\r\n$2\r\nto\r\n"
					}
					if got := main.call("KEYS", "*"); got != want {
						t.Errorf("%s, %s, moment %d: the keys are %q, want %q", c.call, end.name,
							at, got, want)
					}
				}
			}
		}
	})
}

// endedConn returns a connection whose other end is closed.
func endedConn(t *testing.T) net.Conn {
	t.Helper()
	ln := ports.Listen(t)
	other, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	t.Cleanup(func() { _, _ = conn.Close(), ln.Close() })
	eventually(t, "the end is known", func() bool { return !clientConnected(conn) })
	return conn
}

// goes has bob wait and go, changes him, brings what he waits for, and has the node learn of both:
// of told in place of what the machine tells, which then does nothing.
func (n *node) goes(t *testing.T, main *client, call, brings string, changes []string, told string,
	learns func(*waiter, commands.Request, commands.Event)) {
	t.Helper()
	bob := n.dial(t)
	bob.call("AUTH", "bob", "any")
	before := n.waitQueues.blocked.Load()
	bob.raw(pipeline(strings.Fields(call)))
	n.waiting(t, before+1)
	n.machineHas(t, 1)
	var w *waiter
	m := &n.machineWaits
	m.mu.Lock()
	for _, waits := range m.waiting {
		w = &waiter{session: waits.session, conn: waits.conn, number: waits.number}
	}
	m.mu.Unlock()
	// the machine still has it
	n.fake.set(func() { n.fake.fail, n.fake.failWrites = &Error{NoLeader, "no leader"}, true })
	_ = bob.Close()
	var encoded []byte
	eventually(t, "it leaves", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		encoded = m.gone[w.number]
		return encoded != nil
	})
	var r commands.RequestReader
	r.Reset(encoded)
	q, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	served := commands.Event{Kind: commands.Served, Wait: w.number, Payload: []byte(told)}
	deliver := n.fake.deliver
	if changes != nil {
		n.fake.change(t, commandOf(changes...))
	}
	if told == "" {
		n.fake.set(func() {
			n.fake.deliver = func(events []commands.Event) {
				at := slices.IndexFunc(events, func(e commands.Event) bool {
					return e.Kind == commands.Served
				})
				served.Payload = slices.Clone(events[at].Payload)
			}
		})
		n.fake.change(t, commandOf(strings.Fields(brings)...))
		n.fake.set(func() { n.fake.deliver = deliver })
	}
	learns(w, *q, served)
	n.fake.set(func() { n.fake.fail, n.fake.failWrites = nil, false })
	n.idle(t)
	n.underway.await(waitLimit)
	if told != "" {
		main.call(strings.Fields(brings)...)
	}
}

// No reply, whatever it is, ends the node that puts back what it says.
func TestUndoOfStrangeReplies(t *testing.T) {
	denied := commands.Denials{}
	denied.Add("key", "toplevel", "from")
	for name, c := range blockingCalls {
		args := commandtest.Args(strings.Fields(c.call)...)
		for _, reply := range []string{"", "*", "*0\r\n", "*-1\r\n", "_\r\n", "-ERR no\r\n",
			"*1\r\n$1\r\nk\r\n", "*2\r\n$1\r\nk\r\n*0\r\n", "*2\r\n$1\r\nk\r\n:1\r\n",
			"*2\r\n$1\r\nk\r\n*1\r\n*1\r\n$1\r\nx\r\n", "%1\r\n$1\r\nk\r\n:1\r\n",
			string(denied.AppendTo(nil)) + "-NOPERM no\r\n"} {
			for cut := range args {
				for _, part := range undo(args[:cut+1], []byte(reply)) {
					if string(part[1]) != "k" {
						t.Errorf("%s, %q: %q", name, reply, part)
					}
				}
			}
		}
	}
}

// What waits on its node is judged as it came, too: by its first argument, and by all of its keys
// once the users have changed, although the node sends it again for the keys that have changed.
func TestWaitsOnNodesAreJudgedAsTheyCame(t *testing.T) {
	n := start(t, nil)
	main, bob := n.dial(t), n.dial(t)
	main.call("ACL", "SETUSER", "bob", "on", "nopass", "+blpop|k1", "+xread", "~*")
	bob.call("AUTH", "bob", "any")
	wait := func(words ...string) {
		t.Helper()
		before := n.waitQueues.blocked.Load()
		bob.raw(pipeline(words))
		n.waiting(t, before+1)
	}
	for i := range 3 { // the machine has no room
		q := commandOf("BLPOP", strings.Repeat("o", (21<<20+1<<18)/2), "0")
		q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: uint64(i + 1)}
		n.fake.change(t, q)
	}
	wait("BLPOP", "k1", strings.Repeat("k", 1<<20), "k2", "0")
	if got := n.fake.WaitingNodes(); len(got) != 1 {
		t.Fatalf("waits of %q", got)
	}
	main.call("RPUSH", "k2", "x")
	bob.want("*2\r\n$2\r\nk2\r\n$1\r\nx\r\n")
	wait("XREAD", "BLOCK", "0", "STREAMS", "s1", "s2", "$", "$")
	main.call("ACL", "SETUSER", "bob", "resetkeys", "~s2")
	main.call("XADD", "s2", "1-1", "f", "v")
	bob.want("-NOPERM this user has no permissions to access one of the keys used as arguments\r\n")
}
