// Tests of commands that wait in the machine, as their nodes see them.

package server

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/fsm"
)

// change applies requests as another node would send them.
func (f *fakeBackend) change(t testing.TB, requests ...commands.Request) {
	t.Helper()
	var batch []byte
	for i := range requests {
		requests[i].Proto = 2
		batch = commands.AppendRequest(batch, &requests[i])
	}
	f.set(func() {
		if _, err := f.apply(batch); err != nil {
			t.Error(err)
		}
	})
}

func commandOf(words ...string) commands.Request {
	return commands.Request{Cmds: [][][]byte{commandtest.Args(words...)}}
}

func settingOf(words ...string) commands.Request {
	q := commandOf(words...)
	q.System = true
	return q
}

// The entry that brings something serves who waits: the node sends nothing more.
func TestServedByTheEntry(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	a, b := n.popping(t, "BLMOVE", "l", "next", "LEFT", "LEFT", "0"), n.popping(t, "BLPOP", "next",
		"0")
	n.fake.takeCalls()
	main.call("RPUSH", "l", "x")
	if calls := n.fake.takeCalls(); calls != "write 1" {
		t.Errorf("calls %q", calls)
	}
	a.want("$1\r\nx\r\n")
	b.want("*2\r\n$4\r\nnext\r\n$1\r\nx\r\n")
	n.idle(t)
}

// Waits that the machine drops are sent again, in their old places.
func TestDroppedWaitsAreSentAgain(t *testing.T) {
	n := start(t, nil)
	var all []*client
	for range 20 {
		all = append(all, n.popping(t, "BLPOP", "l", "0"))
	}
	for range 3 {
		n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
		n.machineHas(t, len(all))
	}
	push := []string{"RPUSH", "l"}
	for i := range all {
		push = append(push, fmt.Sprint(i))
	}
	n.fake.change(t, commandOf(push...))
	for i, c := range all {
		c.want(fmt.Sprintf("*2\r\n$1\r\nl\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
	}
	n.idle(t)
}

// machineHas waits until the machine has so many waits of this node's sessions.
func (n *node) machineHas(t testing.TB, count int) {
	t.Helper()
	eventually(t, fmt.Sprint(count, " waits in the machine"), func() bool {
		n.machineWaits.mu.Lock()
		var numbers []uint64
		for number := range n.machineWaits.waiting {
			numbers = append(numbers, number)
		}
		n.machineWaits.mu.Unlock()
		have := 0
		for _, number := range numbers {
			if n.fake.Waits(number) {
				have++
			}
		}
		return have == count
	})
}

// patient returns a client blocked on l, and what ends its wait as the end of its time does.
func (n *node) patient(t testing.TB) (c *client, giveUp func()) {
	t.Helper()
	other, before := n.dial(t), n.waitQueues.blocked.Load()
	c = n.dial(t)
	id := strings.Trim(c.call("CLIENT", "ID"), ":\r\n")
	if err := c.Send(commandtest.Args("BLPOP", "l", "0")); err != nil {
		t.Fatal(err)
	}
	n.waiting(t, before+1)
	return c, func() {
		t.Helper()
		if got := other.call("CLIENT", "UNBLOCK", id); got != ":1\r\n" {
			t.Fatal(got)
		}
	}
}

// While there is no leader, a command that was dropped goes on waiting, and one whose time is over
// has its null: it took nothing.
func TestDroppedWhileThereIsNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.popping(t, "BLPOP", "l", "0")
		timed, giveUp := n.patient(t)
		n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN not now"} })
		n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
		giveUp()
		timed.want("*-1\r\n")
		n.fake.set(func() { n.fake.fail = nil })
		c2 := n.dial(t)
		c2.call("RPUSH", "l", "x")
		c.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
		n.idle(t)
	})
}

// A command whose time is over while there is no leader may have run: its connection ends.
func TestTimeoutWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		timed, giveUp := n.patient(t)
		n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN not now"} })
		giveUp()
		timed.ended()
		n.fake.set(func() { n.fake.fail = nil })
		n.idle(t) // the machine has forgotten it
	})
}

// A command whose time is over asks again when what it has asked is lost.
func TestLeavingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, reason := range []Outcome{NotRun, Unknown} {
			n := startSimulated(t, nil)
			timed, giveUp := n.patient(t)
			begun := make(chan struct{}, 100) // it may ask more often
			n.fake.set(func() {
				n.fake.fail, n.fake.begun = &Error{reason, "UNKNOWN lost"}, begun
			})
			giveUp()
			receive(t, "it asks", begun)
			receive(t, "it asks", begun)
			n.fake.set(func() { n.fake.fail, n.fake.begun = nil, nil })
			timed.want("*-1\r\n")
			n.idle(t)
		}
	})
}

// holdEvents keeps the events of the machine back until the returned function is called.
func (n *node) holdEvents() (release func()) {
	var held []commands.Event
	deliver := n.fake.deliver
	n.fake.set(func() {
		n.fake.deliver = func(e []commands.Event) { held = append(held, e...) }
	})
	return func() {
		n.fake.set(func() {
			deliver(held)
			n.fake.deliver = deliver
		})
	}
}

// A node may learn after its client's time is over, when it applies the entry, how the wait ended.
func TestNewsAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, q := range map[string]commands.Request{
			"*-1\r\n":                      settingOf(commands.SystemDropWaits, "n1"),
			"*2\r\n$1\r\nl\r\n$1\r\nx\r\n": commandOf("RPUSH", "l", "x"),
		} {
			n := startSimulated(t, nil)
			timed, giveUp := n.patient(t)
			release := n.holdEvents()
			n.fake.change(t, q)
			n.fake.takeCalls()
			giveUp()
			eventually(t, "it has asked", func() bool { return n.fake.takeCalls() != "" })
			release()
			timed.want(want)
			n.idle(t)
		}
	})
}

// What the machine serves while its client gives up reaches the client.
func TestServedWhileLeaving(t *testing.T) {
	n := start(t, nil)
	timed, giveUp := n.patient(t)
	begun := make(chan struct{})
	n.fake.set(func() { n.fake.gate, n.fake.begun = make(chan struct{}), begun })
	giveUp()
	receive(t, "it is about to leave", begun)
	n.fake.change(t, commandOf("RPUSH", "l", "x"))
	n.fake.set(func() {
		close(n.fake.gate)
		n.fake.gate, n.fake.begun = nil, nil
	})
	timed.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
	n.idle(t)
}

// What was taken for clients that are gone comes back.
func TestGoneClientsGiveBack(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	for range 5 {
		c := n.popping(t, "BLPOP", "l", "0")
		_ = c.Close()
		main.call("RPUSH", "l", "x", "y")
		eventually(t, "both are there", func() bool {
			return main.call("LRANGE", "l", "0", "-1") == "*2\r\n$1\r\nx\r\n$1\r\ny\r\n"
		})
		main.call("DEL", "l")
	}
	n.idle(t)
}

// What is too much for one entry comes back in parts.
func TestMuchIsGivenBack(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	for count := range 3 {
		elements := make([]string, count*partElements+2)
		for i := range elements {
			elements[i] = strconv.Itoa(i)
		}
		c := n.popping(t, "BLMPOP", "0", "1", "l", "LEFT", "COUNT", strconv.Itoa(len(elements)))
		_ = c.Close()
		main.call(append([]string{"RPUSH", "l"}, elements...)...)
		eventually(t, "all are there", func() bool {
			return main.call("LLEN", "l") == fmt.Sprintf(":%d\r\n", len(elements))
		})
		if got := main.call("LINDEX", "l", "1"); got != "$1\r\n1\r\n" {
			t.Errorf("the second is %q", got)
		}
		main.call("DEL", "l")
	}
	n.idle(t)
}

// What is due to be given back when a snapshot replaces the state still is, and the node asks until
// the end of its request is known.
func TestGiveBackAfterASnapshot(t *testing.T) {
	for _, fails := range []Outcome{NoLeader, Unknown} {
		synctest.Test(t, func(t *testing.T) {
			n := startSimulated(t, nil)
			main := n.dial(t)
			c := n.popping(t, "BLPOP", "l", "0")
			n.fake.set(func() { n.fake.fail = &Error{fails, "no leader"} })
			_ = c.Close()
			eventually(t, "it leaves", func() bool {
				n.machineWaits.mu.Lock()
				defer n.machineWaits.mu.Unlock()
				return len(n.machineWaits.gone) == 1
			})
			n.fake.deliver([]commands.Event{{Kind: commands.StateReplaced}})
			n.fake.change(t, commandOf("RPUSH", "l", "x"))
			asked := 0
			n.fake.set(func() { asked = len(n.fake.calls) })
			eventually(t, "it asks more than once", func() bool {
				now := 0
				n.fake.set(func() { now = len(n.fake.calls) })
				return now > asked+1
			})
			n.fake.set(func() { n.fake.fail = nil })
			eventually(t, "it is there", func() bool {
				return main.call("LRANGE", "l", "0", "-1") == "*1\r\n$1\r\nx\r\n"
			})
			n.idle(t)
		})
	}
}

// undo is the inverse of what takes, for each way to take.
func TestUndo(t *testing.T) {
	for _, c := range []struct{ before, take string }{
		{"RPUSH l a b c d", "BLPOP l 0"},
		{"RPUSH l a b c d", "BRPOP k l 0"},
		{"RPUSH l a b c d", "BLMPOP 0 1 l LEFT COUNT 3"},
		{"RPUSH l a b c d", "BLMPOP 0 2 k l RIGHT COUNT 3"},
		{"ZADD l 1.5 a -inf b 3 c", "BZPOPMIN l 0"},
		{"ZADD l 1.5 a -inf b 3 c", "BZPOPMAX l 0"},
		{"ZADD l 1.5 a -inf b 3 c", "BZMPOP 0 1 l MAX COUNT 2"},
		{"RPUSH l a" + strings.Repeat(" b c d", partElements), "BLMPOP 0 1 l LEFT COUNT 20000"},
		{"RPUSH l a b " + strings.Repeat("c", partBytes) + " d", "BLMPOP 0 1 l RIGHT COUNT 3"},
	} {
		for _, proto := range []string{"2", "3"} {
			n := start(t, nil)
			k := n.dial(t)
			k.call("HELLO", proto)
			show := []string{"LRANGE", "l", "0", "-1"}
			if c.before[0] == 'Z' {
				show = []string{"ZRANGE", "l", "0", "-1", "WITHSCORES"}
			}
			k.call(strings.Fields(c.before)...)
			before := k.call(show...)
			take := strings.Fields(c.take)
			back := undo(commandtest.Args(take...), []byte(k.call(take...)))
			if after := k.call(show...); after == before {
				t.Errorf("%s took nothing: %.200q", c.take, after)
			}
			for _, part := range back {
				var words []string
				for _, w := range part {
					words = append(words, string(w))
				}
				k.call(words...)
			}
			if after := k.call(show...); after != before {
				t.Errorf("%s, %d parts: %.200q, before %.200q", c.take, len(back), after, before)
			}
		}
	}
	for _, reply := range []string{"-ERR no\r\n", "*-1\r\n", "_\r\n", "$1\r\nx\r\n", "", "*"} {
		if got := undo(commandtest.Args("BLMOVE", "a", "b", "LEFT", "LEFT", "0"),
			[]byte(reply)); got != nil {
			t.Errorf("%q: %q", reply, got)
		}
	}
}

// After a snapshot replaced the state, what still waits there waits on; the outcome of the rest is
// unknown, so their connections end.
func TestWaitsAndReplacedState(t *testing.T) {
	n := start(t, nil)
	stays, gone := n.popping(t, "BLPOP", "l", "0"), n.popping(t, "BLPOP", "k", "0")
	n.fake.set(func() {
		batch := commands.AppendRequest(nil, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("RPUSH", "k", "x")}})
		deliver := n.fake.deliver
		n.fake.deliver = func([]commands.Event) {}
		if _, err := n.fake.apply(batch); err != nil {
			t.Error(err)
		}
		n.fake.deliver = deliver
		deliver([]commands.Event{{Kind: commands.StateReplaced}})
	})
	gone.ended()
	n.fake.change(t, commandOf("RPUSH", "l", "y"))
	stays.want("*2\r\n$1\r\nl\r\n$1\r\ny\r\n")
	n.idle(t)
}

// fillMachine has commands of another node leave the machine little room for waits.
func (n *node) fillMachine(t *testing.T) {
	t.Helper()
	for i := range 3 {
		q := commandOf("BLPOP", strings.Repeat("o", (21<<20+1<<18)/2), "0")
		q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: uint64(i + 1)}
		n.fake.change(t, q)
	}
	if got := n.fake.WaitingNodes(); fmt.Sprint(got) != "[n2]" {
		t.Fatalf("%q", got)
	}
}

// Commands for which the machine has no room wait on their nodes.
func TestNoRoomInTheMachine(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	n.fillMachine(t)
	name := strings.Repeat("k", 30<<10)
	var all []*client
	for i := range 10 {
		all = append(all, n.popping(t, "BLPOP", fmt.Sprint(name, i), "0"))
	}
	n.waitQueues.mu.Lock()
	own := len(n.waitQueues.byKey)
	n.waitQueues.mu.Unlock()
	if own == 0 || own == len(all) {
		t.Errorf("%d of %d wait on the node", own, len(all))
	}
	for i, c := range all {
		main.call("RPUSH", fmt.Sprint(name, i), "x")
		if got, err := c.Receive(); err != nil || !strings.HasSuffix(string(got), "$1\r\nx\r\n") {
			t.Fatalf("%d: %.50q, %v", i, got, err)
		}
	}
	n.fake.change(t, settingOf(commands.SystemDropWaits, "n2"))
	n.idle(t)
}

// Who waits on its node for many elements holds up nobody who needs fewer.
func TestWhoNeedsManyWaitsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		n.fillMachine(t)
		name := strings.Repeat("k", 1<<20)
		many := n.popping(t, "BLMOVEM", name, "to", "LEFT", "LEFT", "0", "EXACTLY", "2", "BULK")
		one := n.popping(t, "BLPOP", name, "0")
		synctest.Wait() // each has tried again since it joined its node's queue
		if own := n.waitQueues.count.Load(); own != 2 {
			t.Fatalf("%d wait on the node", own)
		}
		main.call("RPUSH", name, "x")
		if got := one.next(); !strings.HasSuffix(got, "$1\r\nx\r\n") {
			t.Fatalf("%.50q", got)
		}
		main.call("RPUSH", name, "y", "z")
		many.want("*2\r\n$1\r\ny\r\n$1\r\nz\r\n")
		n.fake.change(t, settingOf(commands.SystemDropWaits, "n2"))
		n.idle(t)
	})
}

// The leader drops the waits of nodes that it does not reach, and of no others.
func TestUnreachedNodesLoseTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.popping(t, "BLPOP", "l", "0")
		for i, id := range []string{"n2", "n3", "stranger"} {
			q := commandOf("BLPOP", "l", "0")
			q.Wait = &commands.Wait{Node: []byte(id), Era: fakeEra, Number: uint64(i + 1)}
			n.fake.change(t, q)
		}
		eventually(t, "two nodes with waits", func() bool {
			return fmt.Sprint(n.fake.WaitingNodes()) == "[n1 n2]"
		})
		n.fake.change(t, commandOf("RPUSH", "l", "x"))
		c.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
		n.fake.set(func() { n.fake.st.Members[1].LastContact = 2 * contactLimit })
		eventually(t, "no waits", func() bool { return len(n.fake.WaitingNodes()) == 0 })
	})
}

// The leader drops what an earlier process of a node has left behind, however soon the node is
// back.
func TestRestartedNodesLoseTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		q := commandOf("BLPOP", "l", "0")
		q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
		for _, process := range []struct {
			age   time.Duration
			drops bool
		}{{time.Hour, false}, {time.Hour - contactLimit/2, false}, {0, true}} {
			n.fake.set(func() { n.fake.began = time.Now().Add(-process.age) })
			n.fake.change(t, q)
			if process.drops {
				eventually(t, "no waits", func() bool { return len(n.fake.WaitingNodes()) == 0 })
				continue
			}
			var looks int
			n.fake.set(func() { looks = n.fake.looks })
			eventually(t, "the leader has looked", func() (done bool) {
				n.fake.set(func() { done = n.fake.looks > looks+2 })
				return done
			})
			if len(n.fake.WaitingNodes()) == 0 {
				t.Errorf("dropped with a process that began %v ago", process.age)
			}
		}
	})
}

// A node that stops takes its clients' waits along, and what is served meanwhile reaches them.
func TestCloseLeavesTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		for range 50 {
			n.popping(t, "BLPOP", "l", "0")
		}
		n.Close()
		if got := n.fake.WaitingNodes(); got != nil {
			t.Errorf("waits of %q", got)
		}
	})
}

// Commands that wait on their nodes move into the machine once it can keep them.
func TestWaitsMoveIntoTheMachine(t *testing.T) {
	n := start(t, nil)
	n.fake.restart(commands.LevelFirst)
	var all []*client
	for range 3 {
		all = append(all, n.popping(t, "BLPOP", "k", "l", "0"))
	}
	n.fake.set(func() {
		n.fake.index++
		r, err := n.fake.machine.Apply(n.fake.index, &fsm.Entry{ClockMs: n.fake.clockMs,
			Level: commands.LevelSecond}, false)
		if err != nil {
			t.Error(err)
		}
		n.fake.users.Store((*Users)(n.fake.machine.Users()))
		n.fake.deliver(r.Events)
	})
	n.machineHas(t, len(all))
	n.fake.change(t, commandOf("RPUSH", "l", "x", "x", "x"))
	for _, c := range all {
		c.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
	}
	n.idle(t)
}

// What a command changes when it is served is told to its own client after the reply, also if it is
// served before its session knows that it waits.
func TestServedBeforeItsInvalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		c.call("HELLO", "3")
		c.call("CLIENT", "TRACKING", "ON")
		for _, soon := range []bool{false, true} {
			c.call("LRANGE", "to", "0", "-1")
			push := func() {
				n.fake.change(t, commandOf("RPUSH", "from", "x"))
				synctest.Wait() // until it is delivered
			}
			if soon {
				n.fake.set(func() { n.fake.after = push })
			}
			move := commandtest.Args("BLMOVE", "from", "to", "LEFT", "LEFT", "0")
			if err := c.Send(move); err != nil {
				t.Fatal(err)
			}
			if !soon {
				n.waiting(t, 1)
				push()
			}
			c.want("$1\r\nx\r\n")
			c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\nto\r\n")
		}
		n.idle(t)
	})
}

// Without a leader, the end of the server does not wait long for its waits to end.
func TestCloseWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.popping(t, "BLPOP", "l", "0")
		gone := n.popping(t, "BLPOP", "l", "0")
		n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN not now"} })
		_ = gone.Close()
		n.waiting(t, 1)
		n.cfg.DrainTimeout = time.Millisecond
		done := make(chan struct{})
		go func() {
			n.Close()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("it does not end")
		}
		n.fake.set(func() { n.fake.fail = nil })
	})
}

// TestGiveBackOutlastsTheServer ends a server while what a wait took goes back to a leader that is
// slow, for a client that is gone: the server waits for that.
func TestGiveBackOutlastsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.popping(t, "BLPOP", "l", "0")
		leave, back, begun := make(chan struct{}), make(chan struct{}), make(chan struct{}, 9)
		n.fake.set(func() { n.fake.gate, n.fake.begun = leave, begun })
		_ = c.Close()
		<-begun
		n.fake.set(func() { n.fake.gate = back })
		n.fake.change(t, commandOf("RPUSH", "l", "x"))
		<-begun // the element goes back
		close(leave)
		synctest.Wait()
		go func() {
			time.Sleep(200 * time.Millisecond)
			close(back)
		}()
		n.Close()
		n.fake.set(func() { n.fake.gate = nil })
		if keys := n.fake.machine.Stats().Databases[0].Keys; keys != 1 {
			t.Errorf("%d keys", keys)
		}
	})
}
