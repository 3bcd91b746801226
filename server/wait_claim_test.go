// Tests of waiting for locks, as the nodes of their clients see it: a client learns of a grant only
// once that was claimed.

package server

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// queued returns a client that waits for the lock l.
func (n *node) queued(t testing.TB, owner string, options ...string) *client {
	t.Helper()
	return n.popping(t, append([]string{"LOCK.ACQUIRE", "l", owner, "PX", "100000", "WAIT", "0"},
		options...)...)
}

// wantLock reads a grant, and returns its token.
func (c *client) wantLock(t testing.TB) (token string) {
	t.Helper()
	all := strings.Fields(strings.ReplaceAll(c.next(), ":", ""))
	if len(all) != 5 || all[0] != "*4" || all[1] == "0" || all[3] != "1" || all[4] != "0" {
		t.Fatalf("%q is no grant", all)
	}
	return all[1]
}

const noLock = "*4\r\n:0\r\n:-1\r\n:0\r\n:0\r\n"

func TestLocksAreClaimed(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	c := n.queued(t, "me")
	n.fake.takeCalls()
	main.call("DEL", "l")
	token := c.wantLock(t)
	if calls := n.fake.takeCalls(); calls != "write 1, write 1" {
		t.Errorf("calls %q", calls)
	}
	if got := main.call("FENCE", "l"); got != ":"+token+"\r\n" {
		t.Errorf("its token is %s, that of the key %q", token, got)
	}
	n.idle(t)
}

// What a process grants its own client with an entry that it proposes needs no other.
func TestOwnGrantsAreClaimed(t *testing.T) {
	n := start(t, nil)
	n.fake.set(func() { n.fake.origin = fakeOrigin })
	main := n.dial(t)
	main.call("SET", "l", "x")
	c := n.queued(t, "me")
	n.fake.takeCalls()
	main.call("DEL", "l")
	token := c.wantLock(t)
	if calls := n.fake.takeCalls(); calls != "write 1" {
		t.Errorf("calls %q", calls)
	}
	n.fake.set(func() { n.fake.clockMs += 5000 })
	if got := main.call("FENCE", "l"); got != ":"+token+"\r\n" {
		t.Errorf("its token is %s, that of the key %q", token, got)
	}
	n.idle(t)
}

// A node that was away tells no client of a lock that is over by now, though it was claimed with
// its entry.
func TestOwnGrantIsOver(t *testing.T) {
	n := start(t, nil)
	n.fake.set(func() { n.fake.origin = fakeOrigin })
	main := n.dial(t)
	main.call("SET", "l", "x")
	c := n.popping(t, "LOCK.ACQUIRE", "l", "me", "PX", "2000", "WAIT", "0")
	release := n.holdEvents()
	n.fake.change(t, commandOf("DEL", "l"))
	n.fake.set(func() { n.fake.clockMs += 5000 })
	before := strings.Fields(main.call("LOCK.ACQUIRE", "l", "next", "PX", "100000"))
	if before[1] == ":0" {
		t.Fatalf("next got %q", before)
	}
	release()
	n.machineHas(t, 1)
	main.call("LOCK.RELEASE", "l", "next")
	if token := c.wantLock(t); ":"+token == before[1] {
		t.Error("it has a token of another")
	}
	n.idle(t)
}

// A repeat of a request that waits for a lock waits for its end, and gets its reply. If that does
// not come in time, nothing is known yet.
func TestRepeatsWaitForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		first := n.queued(t, "me", "ID", "r")
		underWay := "-" + string(commands.ErrUnderWay) + "\r\n"
		if got := n.dial(t).call("LOCK.ACQUIRE", "l", "me", "PX", "100000", "ID", "r"); got !=
			underWay {
			t.Errorf("a repeat that does not wait: %q", got)
		}
		if got := n.dial(t).call("LOCK.ACQUIRE", "l", "me", "PX", "100000", "WAIT", "500", "ID",
			"r"); got != underWay {
			t.Errorf("the time of a repeat is over: %q", got)
		}
		again := n.queued(t, "me", "ID", "r")
		n.fake.takeCalls()
		time.Sleep(time.Second)
		if calls := n.fake.takeCalls(); strings.Contains(calls, "write") ||
			!strings.Contains(calls, "dry run") {
			t.Errorf("a repeat that waits calls %q", calls)
		}
		main.call("DEL", "l")
		if a, b := first.wantLock(t), again.wantLock(t); a != b {
			t.Errorf("a repeat got the token %s, and the first request %s", b, a)
		}
		// besides DEL each runs once more at most, and claims
		if calls := n.fake.takeCalls(); strings.Count(calls, "write") > 4 {
			t.Errorf("calls %q", calls)
		}
		// who comes instead of a client that is gone takes its turn
		gone := n.queued(t, "you", "ID", "s")
		again = n.queued(t, "you", "ID", "s")
		time.Sleep(time.Second)
		_ = gone.Close()
		time.Sleep(time.Second)
		if looks := n.looks.Load(); looks != 0 {
			t.Errorf("%d looks an hour, though nobody looks", looks)
		}
		main.call("DEL", "l")
		again.wantLock(t)
		// and who goes himself leaves nothing
		gone = n.queued(t, "they", "ID", "t")
		again = n.queued(t, "they", "ID", "t")
		time.Sleep(time.Second)
		_, _ = again.Close(), gone.Close()
		n.idle(t)
	})
}

// A client that is gone holds nobody up, whenever it goes.
func TestWhoIsGoneGetsNoLock(t *testing.T) {
	for i := range 4 {
		granted, origin := i&1 != 0, uint64(i>>1*fakeOrigin)
		n := start(t, nil)
		n.fake.set(func() { n.fake.origin = origin })
		main := n.dial(t)
		main.call("SET", "l", "x")
		gone, c := n.queued(t, "gone"), n.queued(t, "me")
		release := n.holdEvents()
		if granted {
			n.fake.change(t, commandOf("DEL", "l"))
			if got := main.call("GET", "l"); got != "$4\r\ngone\r\n" {
				t.Fatalf("held by %q", got)
			}
		}
		_ = gone.Close()
		if !granted {
			n.waiting(t, 1)
			main.call("DEL", "l")
		}
		release()
		c.wantLock(t)
		if got := main.call("GET", "l"); got != "$2\r\nme\r\n" {
			t.Errorf("held by %q", got)
		}
		n.idle(t)
	}
}

// CLIENT UNBLOCK ends a wait for a lock as it ends others.
func TestUnblockedLocks(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	for reason, want := range map[string]string{"TIMEOUT": noLock,
		"ERROR": "-" + string(errUnblocked) + "\r\n"} {
		before := n.waitQueues.blocked.Load()
		c := n.dial(t)
		id := strings.Trim(c.call("CLIENT", "ID"), ":\r\n")
		if err := c.Send(commandtest.Args("LOCK.ACQUIRE", "l", "me", "PX", "1000", "WAIT",
			"0")); err != nil {
			t.Fatal(err)
		}
		n.waiting(t, before+1)
		main.call("CLIENT", "UNBLOCK", id, reason)
		c.want(want)
	}
	n.idle(t)
}

// Waits that the machine drops are sent again. A lock's places outlive the term.
func TestDroppedLocksAreSentAgain(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	a, b := n.queued(t, "a"), n.queued(t, "b")
	for range 3 {
		n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
		n.machineHas(t, 2)
	}
	main.call("DEL", "l")
	a.wantLock(t)
	main.call("LOCK.RELEASE", "l", "a")
	b.wantLock(t)
	n.idle(t)
}

// What clients of an earlier process of the node wait for leaves the queue when the next one
// begins.
func TestEarlierProcessesLeaveTheQueue(t *testing.T) {
	n := start(t, nil)
	earlier := commandOf("LOCK.ACQUIRE", "l", "earlier", "PX", "100000", "WAIT", "0")
	n.fake.change(t, commandOf("SET", "l", "x"))
	for number := range 3 {
		earlier.Wait = &commands.Wait{Node: []byte("n1"), Era: fakeEra, Number: uint64(number + 1)}
		n.fake.change(t, earlier)
	}
	c := n.queued(t, "me")
	gate := make(chan struct{})
	n.fake.set(func() { n.fake.gate = gate })
	n.leaveStrays()
	n.machineWaits.mu.Lock()
	left := slices.Clone(n.machineWaits.left)
	n.machineWaits.mu.Unlock()
	if slices.ContainsFunc(left, func(number uint64) bool { return number > 3 }) {
		t.Errorf("it is to leave: %d", left)
	}
	n.fake.set(func() { n.fake.gate = nil })
	close(gate)
	eventually(t, "they leave", func() bool { return len(n.fake.OwnWaits()) == 1 })
	n.machineHas(t, 1)
	if got := n.dial(t).call("DEL", "l"); got != ":1\r\n" {
		t.Fatal(got)
	}
	c.wantLock(t)
	n.idle(t)
}

// A request that runs behind the one by which its client leaves, as it can when a connection to the
// leader breaks, leaves nobody in a queue, and takes no element.
func TestStraysLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		c := n.queued(t, "me")
		late := []commands.Request{commandOf("LOCK.ACQUIRE", "l", "gone", "PX", "100000", "WAIT",
			"0", "PRIORITY", "7"), commandOf("BLPOP", "list", "0")}
		for i := range late {
			gone := n.queued(t, "gone")
			late[i].Wait = n.waitOf(t, gone)
			gone.Close()
			eventually(t, "it leaves", func() bool { return !n.fake.Waits(late[i].Wait.Number) })
			n.fake.change(t, late[i])
		}
		time.Sleep(3 * strayPeriod)
		if own := n.fake.OwnWaits(); len(own) != 1 {
			t.Errorf("waits of this node: %d", own)
		}
		main.call("RPUSH", "list", "e")
		if got := main.call("LLEN", "list"); got != ":1\r\n" {
			t.Errorf("elements: %q", got)
		}
		main.call("DEL", "l")
		c.wantLock(t)
		n.idle(t)
	})
}

// Nor is it left for as long as clients come and go: then some are always about to leave.
func TestStraysLeaveBesideOthers(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	gone := n.queued(t, "gone")
	own := n.waitOf(t, gone).Number
	gate := make(chan struct{})
	n.machineHas(t, 1)
	n.fake.set(func() { n.fake.gate = gate })
	_ = gone.Close()
	eventually(t, "it is about to leave", func() bool {
		n.machineWaits.mu.Lock()
		defer n.machineWaits.mu.Unlock()
		return n.machineWaits.leaving
	})
	earlier := commandOf("LOCK.ACQUIRE", "l", "earlier", "PX", "100000", "WAIT", "0")
	earlier.Wait = &commands.Wait{Node: []byte("n1"), Era: fakeEra, Number: 1}
	n.fake.change(t, earlier)
	n.leaveStrays()
	n.machineWaits.mu.Lock()
	left := slices.Clone(n.machineWaits.left)
	n.machineWaits.mu.Unlock()
	if !slices.Equal(left, []uint64{own, 1}) {
		t.Errorf("they leave: %d", left)
	}
	n.fake.set(func() { n.fake.gate = nil })
	close(gate)
	n.idle(t)
}

// waitOf returns the place for which a client of this node asks.
func (n *node) waitOf(t testing.TB, c *client) *commands.Wait {
	t.Helper()
	w := n.sessionOf(c).waiter.Load()
	if w == nil {
		t.Fatal("it does not wait")
	}
	place := *n.machineWaits.request(w)
	return &place
}

// Who is in a queue is counted as such, and a wait for a lock not as one for an element.
func TestQueuesAreCounted(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	main.call("LEASE", "GRANT", "10000")
	blocked := n.cfg.Locks.Snapshot()[0].Blocked.Count
	c := n.queued(t, "me")
	info := main.call("INFO")
	for _, field := range []string{"blocked_clients:1\r\n", "lock_waiters:1\r\n", "leases:1\r\n",
		"unclaimed_grants:0\r\n", "once_requests:0\r\n"} {
		if !strings.Contains(info, "\n"+field) {
			t.Errorf("no %q", field)
		}
	}
	main.call("DEL", "l")
	c.wantLock(t)
	if info := main.call("INFO", "clients"); !strings.Contains(info, "\nlock_waiters:0\r\n") {
		t.Errorf("%s", info)
	}
	if got := n.cfg.Locks.Snapshot()[0].Blocked.Count; got != blocked {
		t.Errorf("%d waits for elements", got-blocked)
	}
}

// A new leader that has not heard of a node yet keeps its places in queues for locks, and drops
// them once it should have.
func TestNewLeadersKeepPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.change(t, commandOf("SET", "l", "x"))
		q := commandOf("LOCK.ACQUIRE", "l", "other", "PX", "100000", "WAIT", "0")
		q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
		n.fake.change(t, q)
		time.Sleep(2 * contactLimit)
		n.fake.set(func() {
			n.fake.st.Term++
			n.fake.st.Members[1].LastContact = 2 * contactLimit
		})
		time.Sleep(contactLimit - 2*watchPeriod)
		if !n.fake.Waits(1) {
			t.Error("its place is lost")
		}
		eventually(t, "no waits", func() bool { return !n.fake.Waits(1) })
	})
}

// What a wait was granted before its node sent it again is given up by that: somebody who was
// before it may have the lock by now, or it itself with another token.
func TestGrantBeforeItIsSentAgain(t *testing.T) {
	for i := range 4 {
		twice, origin := i&1 != 0, uint64(i>>1*fakeOrigin)
		n := start(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		first := commandOf("LOCK.ACQUIRE", "l", "first", "PX", "100000", "WAIT", "0")
		first.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
		n.fake.change(t, first)
		c := n.queued(t, "me")
		n.fake.change(t, settingOf(commands.SystemDropWaits, "n2"))
		gate, begun := make(chan struct{}), make(chan struct{}, 100)
		n.fake.set(func() {
			n.fake.origin, n.fake.gate, n.fake.begun = origin, gate, begun
			n.fake.term++
			n.fake.hidesWaits = true // it is granted the lock just now
		})
		n.fake.change(t, commandOf("PING")) // another leader's
		receive(t, "it is sent again", begun)
		first.Wait.Era, first.Wait.Order = n.fake.index, 1
		var held []commands.Event
		deliver := n.fake.deliver
		n.fake.set(func() {
			n.fake.hidesWaits = false
			n.fake.deliver = func(all []commands.Event) {
				for _, e := range all {
					if e.Kind == commands.Served {
						held = append(held, e)
					}
				}
			}
		})
		n.fake.change(t, commandOf("DEL", "l"))
		n.fake.change(t, first) // it is back
		if got := main.call("GET", "l"); got != "$2\r\nme\r\n" {
			t.Fatalf("held by %q", got)
		}
		n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
		close(gate)
		eventually(t, "it waits behind the first", func() bool {
			return main.call("GET", "l") == "$5\r\nfirst\r\n"
		})
		n.machineHas(t, 1)
		if twice {
			main.call("LOCK.RELEASE", "l", "first")
			if len(held) != 2 {
				t.Fatalf("%d grants", len(held))
			}
		}
		deliver(held[:1])
		n.fake.set(func() { n.fake.deliver = deliver })
		if !twice {
			n.heard(t)
			main.call("LOCK.RELEASE", "l", "first")
		}
		token := c.wantLock(t)
		if got := main.call("FENCE", "l"); got != ":"+token+"\r\n" {
			t.Errorf("%d: its token is %s, that of the key %q", i, token, got)
		}
		n.idle(t)
	}
}

// Another leader ends no wait for a lock: nothing is sent, which could have an unknown outcome.
func TestPlacesNeedNoWrites(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	a, b := n.queued(t, "a"), n.queued(t, "b")
	n.fake.takeCalls()
	for range 3 {
		n.fake.set(func() { n.fake.term++ })
		n.fake.change(t, commandOf("PING"))
		n.heard(t)
	}
	if calls := n.fake.takeCalls(); calls != "" {
		t.Errorf("three leaders later: calls %q", calls)
	}
	n.fake.change(t, settingOf(commands.SystemDropWaits, "n1")) // of that term
	n.machineHas(t, 2)
	main.call("DEL", "l")
	a.wantLock(t)
	main.call("LOCK.RELEASE", "l", "a")
	b.wantLock(t)
	n.idle(t)
}

// A wait goes on if it is not known whether it was sent again.
func TestWaitThatMayBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 8 {
			runs, origin := i&1 != 0, uint64(i>>1&1*fakeOrigin)
			options := []string{"ID", "r"}[:i>>2*2]
			n := startSimulated(t, nil)
			main := n.dial(t)
			main.call("SET", "l", "x")
			c := n.queued(t, "me", options...)
			n.fake.set(func() {
				n.fake.origin = origin
				if n.fake.lost = (&Error{Unknown, "UNKNOWN lost"}); !runs {
					n.fake.fail, n.fake.failWrites = n.fake.lost, true
				}
			})
			n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
			time.Sleep(100 * time.Millisecond)
			n.fake.change(t, commandOf("DEL", "l"))
			time.Sleep(time.Second)
			n.fake.set(func() { n.fake.fail, n.fake.lost = nil, nil })
			token := c.wantLock(t)
			if got := main.call("FENCE", "l"); got != ":"+token+"\r\n" {
				t.Errorf("%d: its token is %s, that of the key %q", i, token, got)
			}
			n.idle(t)
		}
	})
}

// What the machine has done with a wait whose end its node knows does not concern the wait that
// comes instead: the grant was given up, and somebody else has the lock by now.
func TestGrantOfAWaitThatHasLeft(t *testing.T) {
	for _, origin := range []uint64{0, fakeOrigin} {
		n := start(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		c := n.queued(t, "me")
		leave, begun := make(chan struct{}), make(chan struct{}, 100)
		n.fake.set(func() {
			n.fake.origin, n.fake.gate, n.fake.begun = origin, leave, begun
			n.fake.hidesWaits = true
		})
		n.fake.deliver([]commands.Event{{Kind: commands.StateReplaced}})
		receive(t, "it leaves", begun)
		n.fake.change(t, commandOf("DEL", "l")) // it is granted
		again := make(chan struct{})
		n.fake.set(func() { n.fake.hidesWaits, n.fake.gate = false, again })
		close(leave)
		receive(t, "it is sent again", begun)
		n.fake.change(t, commandOf("SET", "l", "other", "NX"))
		n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
		n.fake.takeCalls()
		close(again)
		n.machineHas(t, 1)
		n.heard(t)
		if calls := n.fake.takeCalls(); calls != "write 1" {
			t.Errorf("calls %q", calls)
		}
		if got := main.call("GET", "l"); got != "$5\r\nother\r\n" {
			t.Errorf("held by %q", got)
		}
		main.call("DEL", "l")
		token := c.wantLock(t)
		if got := main.call("FENCE", "l"); got != ":"+token+"\r\n" {
			t.Errorf("its token is %s, that of the key %q", token, got)
		}
		n.idle(t)
	}
}

// A wait whose request ran behind the one to leave, and that is granted a lock with an entry of
// this node's, which claims it, holds it for nobody.
func TestStraysAreGrantedNothing(t *testing.T) {
	n := start(t, nil)
	n.fake.set(func() { n.fake.origin = fakeOrigin })
	main := n.dial(t)
	main.call("SET", "l", "x")
	late := commandOf("LOCK.ACQUIRE", "l", "gone", "PX", "100000", "WAIT", "0")
	gone := n.queued(t, "gone")
	late.Wait = n.waitOf(t, gone)
	_ = gone.Close()
	n.idle(t)
	n.fake.change(t, late)
	c := n.queued(t, "me")
	main.call("DEL", "l")
	c.wantLock(t)
	n.idle(t)
}
