// Tests that waits come back in their order after a change of leader, before anybody is served.

package fsm

import (
	"bytes"
	"testing"

	"github.com/coordd/coordd/commands"
)

// lineSystem returns the request of a setting.
func lineSystem(line string) commands.Request {
	q := lineRequest(line)
	q.System = true
	return q
}

// again sends a wait again after a change of leader, with its place.
func (w *waitMachine) again(node string, number uint64, line string, order uint64) []byte {
	w.t.Helper()
	w.eras[node] = w.eraOf(node)
	q := w.waitRequest(node, number, line)
	q.Woken, q.Wait.Order = true, order
	return w.apply(q)
}

// A push that is the first entry of a term waits for those that were there before it, in whatever
// order their nodes send them, and whoever else comes.
func TestOrderHoldsOverLeaders(t *testing.T) {
	w := newWaitMachine(t)
	first := w.wait("n2", 1, "BLPOP k 0").Order
	second := w.wait("n1", 2, "BLPOP k 0").Order
	third := w.wait("n1", 3, "BLMOVE k to LEFT LEFT 0").Order
	w.term++
	w.run("RPUSH k a b c d e")
	w.eras["n1"], w.eras["n2"] = w.eraOf("n1"), w.eraOf("n2")
	if !w.Held() {
		t.Fatal("nothing is held")
	}
	if _, due := w.NextDeadline(); due {
		t.Error("the leader is asked for entries meanwhile")
	}
	w.again("n1", 3, "BLMOVE k to LEFT LEFT 0", third)
	w.again("n1", 3, "BLMOVE k to LEFT LEFT 0", third) // its reply was lost
	w.want("")
	var file bytes.Buffer
	if _, err := w.Snapshot().WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	m, err := ReadSnapshot(bytes.NewReader(file.Bytes()), w.table)
	if err != nil {
		t.Fatal(err)
	}
	m.SetNode("n1")
	restored := &waitMachine{t: t, Machine: m, term: w.term, clock: w.clock, eras: w.eras}
	for _, v := range []*waitMachine{w, restored} {
		v.again("n1", 2, "BLPOP k 0", second)
		v.want("")
		v.reply("LLEN k", ":5")
		v.again("n2", 1, "BLPOP k 0", first)
		v.want("2: *2 $1 k $1 b, 3: $1 c")
		v.reply("LRANGE k 0 -1", "*2 $1 d $1 e")
		if v.Held() {
			t.Error("it is still held")
		}
		if got := v.text(v.apply(v.waitRequest("n1", 5, "BLPOP k 0"))); got != "*2 $1 k $1 d" {
			t.Errorf("a later one gets %q", got)
		}
	}
}

// A wait is back once, however often it comes: one that its node has ended and sent again under
// another number, as after a snapshot, does not stand for another.
func TestWaitIsBackOnce(t *testing.T) {
	w := newWaitMachine(t)
	first := w.wait("n1", 1, "BLPOP k 0").Order
	second := w.wait("n1", 2, "BLPOP k 0").Order
	other := w.wait("n2", 3, "BLPOP k 0").Order
	w.term++
	w.run("RPUSH k a b c")
	w.again("n1", 1, "BLPOP k 0", first)
	for range 2 {
		restored := &waitMachine{t: t, Machine: restore(t, snapshotBytes(t, w.Snapshot()), w.table),
			term: w.term, clock: w.clock, eras: w.eras}
		restored.SetNode("n1")
		for _, v := range []*waitMachine{w, restored} {
			v.apply(lineSystem(commands.SystemLeaveWait + " 1"))
			v.again("n1", 4, "BLPOP k 0", first)
			v.again("n1", 5, "BLPOP k 0", first)
			v.apply(lineSystem(commands.SystemLeaveWait + " 5"))
			if n := v.waiting.returning.counts.sum(); n != 2 || !v.Held() {
				t.Fatalf("%d are to come", n)
			}
			v.want("")
		}
		w.term++ // what has come comes again
		w.run("PING")
		if n := w.waiting.returning.counts.sum(); n != 3 {
			t.Fatalf("%d are to come in the next term", n)
		}
		w.again("n1", 1, "BLPOP k 0", first)
	}
	w.again("n2", 3, "BLPOP k 0", other)
	w.want("")
	w.again("n1", 2, "BLPOP k 0", second)
	w.want("1: *2 $1 k $1 a, 2: *2 $1 k $1 b")
	if w.Held() {
		t.Error("it is still held")
	}
}

// A key is still to be looked at when the only one who waits for it has left: a machine that was
// restored then does the same work in the next entry.
func TestReadyKeyOfWhoLeft(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n2", 1, "BLPOP other 0")
	w.term++
	w.apply() // n2 is to come back: nobody is served
	w.eras["n1"] = w.eraOf("n1")
	w.wait("n1", 2, "BLPOP k 0")
	w.run("RPUSH k a")
	if len(w.waiting.ready) != 1 {
		t.Fatalf("ready: %v", w.waiting.ready)
	}
	w.apply(lineSystem(commands.SystemLeaveWait + " 2"))
	file := snapshotBytes(t, w.Snapshot())
	if again := snapshotBytes(t, restore(t, file, w.table).Snapshot()); !bytes.Equal(file, again) {
		t.Errorf("a restored machine gives another snapshot:\n%q\n%q", file, again)
	}
}

// A blocking command that arrives while others are to come back takes its place behind them.
func TestWhoArrivesWhileServingIsHeld(t *testing.T) {
	w := newWaitMachine(t)
	order := w.wait("n2", 1, "BZPOPMIN k 0").Order
	w.term++
	w.run("ZADD k 1 a")
	w.eras["n1"] = w.eraOf("n1")
	w.wait("n1", 9, "BZPOPMIN k 0")
	w.want("")
	w.again("n2", 1, "BZPOPMIN k 0", order)
	w.reply("ZCARD k", ":0")
	if !w.Waits(9) || w.Waits(1) {
		t.Error("the wrong one is served")
	}
}

// Waits that do not come back hold up nobody for ever: their node is dropped, or the leader ends
// the hold.
func TestHoldEnds(t *testing.T) {
	for _, setting := range []string{"drop-waits n2", "serve-waits"} {
		w := newWaitMachine(t)
		order := w.wait("n1", 1, "BLPOP k 0").Order
		w.wait("n2", 2, "BLPOP k 0")
		w.term++
		w.run("RPUSH k a")
		w.again("n1", 1, "BLPOP k 0", order)
		w.want("")
		w.term++ // what has not come is still expected
		w.run("PING")
		w.again("n1", 1, "BLPOP k 0", order)
		w.want("")
		if got := w.text(w.apply(lineSystem(setting))); got != "+OK" {
			t.Errorf("%s: %s", setting, got)
		}
		w.want("1: *2 $1 k $1 a")
		if w.Held() {
			t.Errorf("%s: it is still held", setting)
		}
	}
}

// A machine on which nobody waited holds nothing.
func TestNothingIsHeldForNobody(t *testing.T) {
	w := newWaitMachine(t)
	w.term++
	w.run("RPUSH k a")
	w.eras["n1"] = w.eraOf("n1")
	if got := w.text(w.apply(w.waitRequest("n1", 1, "BLPOP k 0"))); got != "*2 $1 k $1 a" {
		t.Errorf("%q", got)
	}
	if got := w.text(w.apply(lineSystem(commands.SystemServeWaits))); got != "+OK" {
		t.Error(got)
	}
}
