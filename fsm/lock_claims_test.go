// Tests of what was granted to those who waited: it is claimed, given up, or asked for again.

package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// A grant that is not claimed in time is given up, and the next is served; one that was claimed is
// not.
func TestGrantsAreClaimed(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	for i := range 4 {
		w.wait("n1", uint64(i+1), fmt.Sprintf("LOCK.ACQUIRE l w%d PX 100000 WAIT 0", i+1))
	}
	w.run("DEL l")
	if got := w.granted(); got != "1" {
		t.Fatal(got)
	}
	if at, ok := w.NextDeadline(); !ok || at != w.clock+claimMs {
		t.Errorf("the next deadline is %d, %v at %d", at, ok, w.clock)
	}
	w.clock += claimMs
	w.apply()
	w.grants("")
	w.clock++
	w.apply()
	if got := w.granted(); got != "2" {
		t.Fatalf("granted to %q", got)
	}
	w.claims("1", notWaiting)
	w.claims("2", "+OK")
	w.claims("2", "+OK") // its node did not get the answer
	w.clock += claimMs + 1
	w.reply("GET l", "$2 w2")
	w.apply(lineSystem(commands.SystemLeaveWait + " 2")) // its client is gone
	if got := w.granted(); got != "3" {
		t.Fatalf("granted to %q", got)
	}
	w.apply(lineSystem(commands.SystemLeaveWait + " 3")) // before it was claimed
	if got := w.granted(); got != "4" {
		t.Fatalf("granted to %q", got)
	}
	w.claims("4", "+OK")
	w.clock += claimedMs + 1
	w.apply()
	w.claims("4", notWaiting)
	w.reply("GET l", "$2 w4")
	if c := &w.waiting.locks.claims; c.bytes != 0 || !w.waiting.locks.empty() {
		t.Errorf("claims count %d bytes", c.bytes)
	}
}

// What an entry grants to a client of the process that proposed it is claimed, unless the call has
// an id. It can be given up all the same.
func TestProposersClaim(t *testing.T) {
	const ours, others = 5 << 50, 6 << 50
	w := newWaitMachine(t)
	w.run("SET l x")
	w.wait("n1", FirstWait(ours)+1, "LOCK.ACQUIRE l w1 PX 100000 WAIT 0")
	w.wait("n1", FirstWait(ours)+2, "LOCK.ACQUIRE l w2 PX 100000 WAIT 0 ID r")
	w.wait("n1", FirstWait(ours)+3, "LOCK.ACQUIRE l w3 PX 100000 WAIT 0")
	w.proposer = ours
	w.run("DEL l")
	if last := w.news[len(w.news)-1]; last.Kind != commands.Served || !last.Claimed {
		t.Errorf("its node learns %+v", last)
	}
	w.clock += claimMs + 1
	w.reply("GET l", "$2 w1")
	w.apply(lineSystem(commands.SystemLeaveWait + " " + fmt.Sprint(FirstWait(ours)+1)))
	w.reply("GET l", "$2 w2") // its client had gone
	w.clock += claimMs + 1
	w.proposer = others
	w.reply("GET l", "$2 w3")
	w.clock += claimMs + 1
	w.reply("EXISTS l", ":0")
}

// What was claimed long ago and is over by now is claimed no more: somebody else may hold it.
func TestClaimsThatAreOver(t *testing.T) {
	w := newWaitMachine(t)
	for i, over := range []string{"LOCK.RELEASE a w", "LOCK.STEAL b other PX 9000", "DEL a b",
		"LOCK.RELEASE b w"} {
		w.run("SET a x")
		number := fmt.Sprint(i + 1)
		w.wait("n1", uint64(i+1), "LOCK.ACQUIRE a w PX 9000 WAIT 0 KEYS 1 b")
		w.run("DEL a")
		w.grants(number)
		w.claims(number, "+OK")
		w.run("LOCK.EXTEND a w PX 8000 KEYS 1 b")
		w.claims(number, "+OK")
		w.run(over)
		w.claims(number, notWaiting)
		w.claims(number, notWaiting)
		w.reply("LOCK.RELEASE a w KEYS 1 b", ":0") // it has given up the rest
		w.run("DEL a b")
	}
}

// What was claimed takes no more than its share of the room for waits, however often locks go from
// one to the next.
func TestClaimsLeaveRoomForWaits(t *testing.T) {
	w := newWaitMachine(t)
	keys := "KEYS 127"
	for i := range 127 {
		keys += fmt.Sprintf(" k%d", i)
	}
	for i := range 700 {
		owner := fmt.Sprintf("%0*d", 1024, i)
		w.run("SET l x")
		w.wait("n1", uint64(i+1), "LOCK.ACQUIRE l "+owner+" PX 9000 WAIT 0 "+keys)
		w.run("DEL l")
		w.grants(fmt.Sprint(i + 1))
		w.run("LOCK.RELEASE l " + owner + " " + keys)
	}
	if got := w.waiting.locks.claims.bytes; got > maxClaims {
		t.Errorf("claims count %d bytes", got)
	}
	w.run("SET l x")
	w.wait("n1", 1000, "LOCK.ACQUIRE l w PX 9000 WAIT 0")
	w.run("DEL l")
	w.grants("1000")
	w.apply(lineSystem(commands.SystemLeaveWait + " 1000"))
	w.reply("EXISTS l", ":0")
	w.clock += claimedMs + 1
	w.apply()
	if got := w.waiting.locks.claims; got.bytes != 0 || len(got.numbers) != 0 {
		t.Errorf("claims count %d bytes", got.bytes)
	}
}

// Giving up takes back what was granted and no more.
func TestGivingUp(t *testing.T) {
	w := newWaitMachine(t)
	for _, c := range []struct{ held, asks, left string }{
		{"LOCK.ACQUIRE l a PX 9000 SHARED", "LOCK.ACQUIRE l b PX 9000 WAIT 0 SHARED", "shared 1"},
		{"LOCK.ACQUIRE l a PX 9000 PERMITS 1 OF 4",
			"LOCK.ACQUIRE l a PX 9000 WAIT 0 PERMITS 3 OF 4", "permits 1"},
	} {
		w.run("SET l x")
		w.wait("n1", 7, c.held+" WAIT 0")
		w.wait("n1", 8, c.asks)
		w.run("DEL l")
		if got := w.granted(); got != "7 8" {
			t.Fatalf("%s: granted to %q", c.asks, got)
		}
		w.claims("7", "+OK")
		w.clock += claimMs + 1
		w.apply()
		_, value, _ := strings.Cut(w.run("HGET l a"), " ")
		if !strings.HasPrefix(value, c.left+" ") {
			t.Errorf("%s: a has %q", c.asks, value)
		}
		w.reply("HLEN l", ":1")
		w.run("DEL l")
	}
	// a lock that somebody else has by now is not touched
	w.run("SET l x")
	w.wait("n1", 9, "LOCK.ACQUIRE l a PX 9000 WAIT 0")
	w.run("DEL l")
	w.run("LOCK.STEAL l a PX 9000")
	w.clock += claimMs + 1
	w.apply()
	w.reply("GET l", "$1 a")
}

// A wait whose node sends it again has what it was granted given up first, and is the next one.
func TestSentAgainAfterItsGrant(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	place := w.wait("n1", 1, "LOCK.ACQUIRE l w1 PX 1000 WAIT 0")
	w.wait("n1", 2, "LOCK.ACQUIRE l w2 PX 1000 WAIT 0")
	w.run("DEL l")
	before := w.run("FENCE l")
	q := w.waitRequest("n1", 1, "LOCK.ACQUIRE l w1 PX 1000 WAIT 0")
	q.Wait.Order, q.Woken = place.Order, true
	if got := w.text(w.apply(q)); strings.HasPrefix(got, "*4 :0") || got[:4] != "*4 :" {
		t.Fatalf("it gets %q", got)
	}
	if after := w.run("FENCE l"); after == before {
		t.Error("it has the same token")
	}
	w.claims("1", "+OK")
	w.reply("GET l", "$2 w1")
}

// A call with an id is under way while it waits, and until its grant is claimed: another one is
// refused meanwhile, and gets its reply afterwards.
func TestRepeatsInQueues(t *testing.T) {
	w := newWaitMachine(t)
	const underWay = "-" + string(commands.ErrUnderWay)
	for _, form := range []string{"", " REENTRANT", " PERMITS 1 OF 5", " SHARED REENTRANT"} {
		w.run("SET l x")
		call := fmt.Sprintf("LOCK.ACQUIRE l me PX 100000 WAIT 0%s ID r%d", form, len(form))
		again := func(number uint64) string {
			return w.text(w.apply(w.waitRequest("n1", number, call)))
		}
		w.wait("n1", 1, call)
		w.wait("n1", 2, "LOCK.ACQUIRE l other PX 100000 WAIT 0")
		if got := again(3); got != underWay {
			t.Errorf("%s: while it waits: %q", call, got)
		}
		w.run("DEL l")
		if got := w.granted(); got != "1" {
			t.Fatalf("%s: granted to %q", call, got)
		}
		_, first, _ := strings.Cut(w.told(), " ")
		if got := again(3); got != underWay {
			t.Errorf("%s: before it is claimed: %q", call, got)
		}
		other := w.reloaded()
		if got := other.text(other.apply(other.waitRequest("n1", 3, call))); got != underWay {
			t.Errorf("%s: on a machine from a snapshot: %q", call, got)
		}
		w.claims("1", "+OK")
		if got := again(3); got != first {
			t.Errorf("%s: afterwards: %q, want %q", call, got, first)
		}
		// its client has gone, but may have sent it again
		w.apply(lineSystem(commands.SystemLeaveWait + " 1"))
		w.reply("LOCK.RELEASE l me", ":1")
		w.grants("2")
		if len(w.waiting.locks.calls) != 0 {
			t.Errorf("%s: calls are left that wait no more", call)
		}
	}
}

// What was granted and given up is not remembered, and an id is no ticket past a queue.
func TestRepeatsOfWhatWasGivenUp(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	call := "LOCK.ACQUIRE l me PX 100000 WAIT 0 ID r1"
	w.wait("n1", 1, call)
	w.run("SET dummy x")
	w.wait("n1", 2, "LOCK.ACQUIRE l other PX 100000 WAIT 0")
	if got := w.text(w.apply(w.waitRequest("n1", 3,
		"LOCK.ACQUIRE dummy me PX 1000 WAIT 0 ID r1"))); got != "-"+string(commands.ErrUnderWay) {
		t.Errorf("another call: %q", got)
	}
	w.run("DEL l")
	w.apply(lineSystem(commands.SystemLeaveWait + " 1"))
	w.grants("2")
	w.wait("n1", 3, call)
	w.run("DEL l")
	w.grants("3")
}

// A node that sends a wait again behind its client's repeat elsewhere has that refused.
func TestRepeatsAroundADrop(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	call := "LOCK.ACQUIRE l me PX 100000 WAIT 0 ID r1"
	p := w.wait("n2", 1, call)
	w.apply(lineSystem(commands.SystemDropWaits + " n2"))
	w.wait("n1", 2, "LOCK.ACQUIRE l other PX 100000 WAIT 0")
	w.wait("n1", 3, call)
	w.eras["n2"] = w.eraOf("n2")
	q := w.waitRequest("n2", 1, call)
	q.Wait.Order, q.Woken = p.Order, true
	if got := w.text(w.apply(q)); got != "-"+string(commands.ErrUnderWay) {
		t.Errorf("the first: %q", got)
	}
	other := w.reloaded()
	other.SetNode("n1")
	for _, w := range []*waitMachine{w, other} {
		w.run("DEL l")
		w.grants("2")
		w.run("DEL l")
		w.grants("3")
	}
	if a, b := w.StateSum(), other.StateSum(); a != b {
		t.Errorf("sums %v and %v", a, b)
	}
}

// A grant that is given up leaves no key of it, whatever the owner held before.
func TestGivingUpWholly(t *testing.T) {
	for _, form := range []string{"SHARED REENTRANT", "REENTRANT", "PERMITS 1 OF 5"} {
		for _, keys := range []string{"k l", "l k"} {
			w := newWaitMachine(t)
			first, second, _ := strings.Cut(keys, " ")
			w.run("LOCK.ACQUIRE k me PX 100000 " + form)
			before := w.run("HGETALL k")
			w.run("SET l other")
			w.wait("n1", 1, fmt.Sprintf("LOCK.ACQUIRE %s me PX 100000 WAIT 0 %s KEYS 1 %s", first,
				form, second))
			w.run("DEL l")
			if got := w.granted(); got != "1" {
				t.Fatalf("%s: granted to %q", form, got)
			}
			w.apply(lineSystem(commands.SystemLeaveWait + " 1"))
			w.reply("EXISTS l", ":0")
			w.reply("HGETALL k", before)
		}
	}
}

// A remembered call whose node asks in a dry run changes nothing.
func TestRecallIsARead(t *testing.T) {
	w := newWaitMachine(t)
	call := "LOCK.ACQUIRE l me PX 100000 WAIT 0 ID r1"
	w.run(call)
	before := w.StateSum()
	q := w.waitRequest("n1", 7, call)
	q.Wait.Order, q.Woken = 1, true
	if got := w.Read(nil, commands.AppendRequest(nil, &q), w.clock, 1); len(got) != 0 {
		t.Errorf("a reply that cannot be claimed: %q", got)
	}
	if after := w.StateSum(); after != before || !w.waiting.locks.claims.empty() {
		t.Errorf("a read changed the state: %v, %v", before, after)
	}
}

// Claims are forgotten for what that takes, however many there are; so is who waits counted.
func TestForgettingClaims(t *testing.T) {
	w := newWaitMachine(t)
	const n = 100_000
	for i := range n {
		w.waiting.locks.openClaim(&claim{number: uint64(i + 1), node: "n1",
			untilMs: w.clock + claimedMs, claimed: true})
	}
	w.clock += claimedMs + 1
	w.apply()
	if w.spent < n*lookWork && w.waiting.locks.claims.empty() {
		t.Errorf("%d claims are forgotten for %d units", n, w.spent)
	}
	for range 1000 {
		w.apply()
	}
	if v := &w.waiting.locks.claims; !v.empty() || v.bytes != 0 {
		t.Errorf("%d claims are left", len(v.numbers))
	}
	w.run("SET l x")
	w.wait("n1", n+1, "LOCK.ACQUIRE l me PX 100000 WAIT 0")
	for range 3 {
		w.term++
		w.apply()
	}
	if n := w.waiting.locks.waits; n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
}
