// Tests of claims that come late, twice, or without a leader.

package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// A node that learns of a grant too late does not pass it on: its client waits on, in its place.
func TestLateClaim(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	c := n.queued(t, "me")
	release := n.holdEvents()
	n.fake.change(t, commandOf("DEL", "l"))
	before := strings.Trim(main.call("FENCE", "l"), ":\r\n")
	n.fake.set(func() { n.fake.clockMs += 5000 })
	n.fake.change(t, commandOf("PING"))
	if got := main.call("EXISTS", "l"); got != ":0\r\n" {
		t.Fatalf("nobody has claimed it: %q", got)
	}
	release()
	if token := c.wantLock(t); token == before {
		t.Error("it got what was given up")
	}
	n.idle(t)
}

// Who claims too late again and again goes to the end of the queue: each time costs the others the
// time for which the machine waits.
func TestLateClaimsLoseTheirPlace(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	slow := n.queued(t, "slow")
	var others []*client
	for _, owner := range []string{"0", "1", "2"} {
		others = append(others, n.queued(t, owner))
	}
	for i, end := range [][]string{{"DEL", "l"}, {"LOCK.RELEASE", "l", "0"}} {
		begun, gate := make(chan struct{}, 100), make(chan struct{})
		n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
		n.fake.change(t, commandOf(end...)) // slow gets the lock
		receive(t, "it claims", begun)
		n.fake.set(func() {
			n.fake.clockMs += 5000
			n.fake.gate, n.fake.begun = nil, nil
		})
		close(gate)
		others[i].wantLock(t)
		n.machineHas(t, len(others)-i) // slow is back
	}
	main.call("LOCK.RELEASE", "l", "1")
	others[2].wantLock(t)
	main.call("LOCK.RELEASE", "l", "2")
	slow.wantLock(t)
	n.idle(t)
}

// Whether a claim got through is found out.
func TestClaimAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []Outcome{NoLeader, NotRun, Unknown} {
			n := startSimulated(t, nil)
			main := n.dial(t)
			main.call("SET", "l", "x")
			c := n.queued(t, "me")
			begun := make(chan struct{}, 100)
			n.fake.set(func() { n.fake.fail, n.fake.begun = &Error{fails, "UNKNOWN lost"}, begun })
			n.fake.change(t, commandOf("DEL", "l"))
			receive(t, "it claims", begun)
			receive(t, "it claims", begun)
			n.fake.set(func() { n.fake.fail, n.fake.begun = nil, nil })
			c.wantLock(t)
			n.idle(t)
		}
	})
}

// A wait whose time is over ends with a refusal, also without a leader: what it may have been
// granted meanwhile is not claimed.
func TestLockIsLateWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		c := n.popping(t, "LOCK.ACQUIRE", "l", "me", "PX", "100000", "WAIT", "300")
		next := n.queued(t, "next")
		n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN not now"} })
		c.want(noLock)
		n.fake.change(t, commandOf("DEL", "l"))
		n.fake.set(func() { n.fake.fail = nil })
		next.wantLock(t)
		n.idle(t)
	})
}

// A wait whose time is over just as it is granted is refused, and the client's messages go on.
func TestMessagesAfterALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("MSET", "l", "x", "k", "1")
		c := n.dial(t)
		c.call("HELLO", "3")
		c.call("CLIENT", "TRACKING", "ON")
		c.call("GET", "k")
		before := n.waitQueues.blocked.Load()
		gate, begun := make(chan struct{}), make(chan struct{}, 100)
		if err := c.Send(commandtest.Args("LOCK.ACQUIRE", "l", "me", "PX", "100000", "WAIT",
			"300")); err != nil {
			t.Fatal(err)
		}
		n.waiting(t, before+1)
		n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
		receive(t, "it leaves", begun)
		n.fake.change(t, commandOf("DEL", "l")) // it is granted
		n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
		close(gate)
		c.want(noLock)
		n.fake.change(t, commandOf("SET", "k", "2"))
		c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	})
}

// A waiter whose grant may be in what a snapshot has skipped leaves first, however long that takes,
// and then waits on.
func TestGrantInASnapshotWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		c := n.queued(t, "me")
		deliver := n.fake.deliver
		n.holdEvents()
		n.fake.change(t, commandOf("DEL", "l")) // it is granted
		n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN not now"} })
		deliver([]commands.Event{{Kind: commands.StateReplaced}})
		time.Sleep(20 * time.Second)
		n.fake.set(func() {
			n.fake.fail, n.fake.deliver = nil, deliver
			n.fake.clockMs += 5000
		})
		n.fake.change(t, commandOf("PING"))
		c.wantLock(t)
		n.idle(t)
	})
}

// A client whose time is over is not told of a grant that its node has given up, or may have: how
// the node's request to leave ended is not known.
func TestGrantThatItsNodeMayHaveGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 4 {
			runs, origin := i&1 != 0, uint64(i>>1*fakeOrigin)
			n := startSimulated(t, nil)
			main := n.dial(t)
			main.call("SET", "l", "x")
			gate, begun := make(chan struct{}), make(chan struct{}, 100)
			c := n.popping(t, "LOCK.ACQUIRE", "l", "me", "PX", "100000", "WAIT", "300")
			n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
			receive(t, "it leaves", begun)
			n.fake.set(func() { n.fake.origin = origin })
			n.fake.change(t, commandOf("DEL", "l")) // it is granted
			n.fake.set(func() {
				n.fake.gate, n.fake.begun = nil, nil
				if n.fake.lost = (&Error{Unknown, "UNKNOWN lost"}); !runs {
					n.fake.fail = n.fake.lost
				}
			})
			close(gate)
			time.Sleep(time.Second)
			n.fake.set(func() { n.fake.fail, n.fake.lost = nil, nil })
			c.want(noLock)
			if got := main.call("EXISTS", "l"); got != ":0\r\n" {
				t.Errorf("%d: it is held: %q", i, got)
			}
			n.idle(t)
		}
	})
}

// CLIENT PAUSE holds back no grant: nobody else could get the lock meanwhile.
func TestGrantsDuringAPause(t *testing.T) {
	for _, origin := range []uint64{0, fakeOrigin} {
		n := start(t, nil)
		n.fake.set(func() { n.fake.origin = origin })
		main := n.dial(t)
		main.call("SET", "l", "x")
		c := n.queued(t, "me")
		main.call("CLIENT", "PAUSE", "100000", "WRITE")
		n.fake.set(func() { n.fake.term++ })
		n.fake.change(t, commandOf("PING")) // another leader's
		n.heard(t)
		n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
		n.machineHas(t, 1)
		n.fake.change(t, commandOf("DEL", "l"))
		c.wantLock(t)
		main.call("CLIENT", "UNPAUSE")
		n.idle(t)
	}
}

// A client that is killed while its grant is claimed holds nobody up.
func TestKilledWhileItClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		before := n.waitQueues.blocked.Load()
		gone := n.dial(t)
		id := strings.Trim(gone.call("CLIENT", "ID"), ":\r\n")
		if err := gone.Send(commandtest.Args("LOCK.ACQUIRE", "l", "gone", "PX", "100000", "WAIT",
			"0")); err != nil {
			t.Fatal(err)
		}
		n.waiting(t, before+1)
		c := n.queued(t, "me")
		gate, begun := make(chan struct{}), make(chan struct{}, 100)
		n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
		n.fake.change(t, commandOf("DEL", "l"))
		receive(t, "it claims", begun)
		if got := main.call("CLIENT", "KILL", "ID", id); got != ":1\r\n" {
			t.Fatal(got)
		}
		n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
		close(gate)
		c.wantLock(t)
		n.idle(t)
	})
}

// A wait goes on if there was no leader for long just as it was granted.
func TestClaimWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("SET", "l", "x")
		c := n.queued(t, "me")
		next := n.queued(t, "next")
		n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN not now"} })
		n.fake.change(t, commandOf("DEL", "l"))
		time.Sleep(3 * claimLimit)
		n.fake.set(func() { n.fake.fail = nil })
		next.wantLock(t) // it had its turn
		main.call("LOCK.RELEASE", "l", "next")
		c.wantLock(t)
		n.idle(t)
	})
}

// A node that was away while it claimed tells no client of a lock that is over by now.
func TestAnswerOfAClaimIsLate(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	main.call("SET", "l", "x")
	c := n.popping(t, "LOCK.ACQUIRE", "l", "me", "PX", "2000", "WAIT", "0")
	done := make(chan struct{})
	n.fake.set(func() {
		n.fake.after = func() {
			n.fake.set(func() { n.fake.clockMs += 5000 })
			n.fake.change(t, commandOf("SET", "l", "other", "NX"))
			close(done)
		}
	})
	n.fake.change(t, commandOf("DEL", "l"))
	receive(t, "another has it", done)
	n.machineHas(t, 1)
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
