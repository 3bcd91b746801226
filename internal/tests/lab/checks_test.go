//go:build linux

// The checkers: they accept what a correct server does, and nothing that is slightly wrong.

package lab

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// at is an event of client n in milliseconds. The reply "?" stands for none.
func at(n int, op string, args []string, call, ret int, reply string) *event {
	e := &event{Actor: n, Key: "k", Op: op, Args: args, Call: time.Duration(call) * 1e6,
		Return: time.Duration(ret) * 1e6, What: acked, Reply: reply}
	if reply == "?" {
		e.What, e.Reply = unknown, ""
	}
	return e
}

// history is some events, and whether they are right.
type history struct {
	what   string
	right  bool
	events []*event
}

// bites checks histories with a model.
func bites[S comparable](t *testing.T, p player, all []history) {
	t.Helper()
	m := &p.(*keyed[S]).model
	for _, h := range all {
		result, _ := m.judge(h.events, time.Minute)
		if (result == porcupine.Ok) != h.right {
			t.Errorf("%s: %v", h.what, result)
		}
	}
}

func TestModelsBite(t *testing.T) {
	a, b := []string{"a"}, []string{"b"}
	bites[leased](t, leases(nil), []history{
		{"a lease given twice before its end", false, []*event{
			at(0, "take", a, 10, 20, "OK"), at(1, "take", b, 240, 259, "OK")}},
		{"a lease given again after its end", true, []*event{
			at(0, "take", a, 10, 20, "OK"), at(1, "take", b, 240, 261, "OK")}},
		{"a lease given again while it was extended", false, []*event{
			at(0, "take", a, 10, 20, "OK"), at(0, "extend", a, 200, 210, "1"),
			at(1, "take", b, 270, 449, "OK")}},
		{"a lease that runs late", true, []*event{
			at(0, "take", a, 10, 20, "OK"), at(1, "take", b, 900, 910, "nil")}},
		{"a lease that comes back", false, []*event{at(0, "take", a, 10, 20, "OK"),
			at(1, "get", nil, 300, 310, "nil"), at(1, "release", a, 320, 330, "1")}},
		{"a lease that was taken by one who does not know", true, []*event{
			at(0, "take", a, 10, 20, "?"), at(1, "take", b, 30, 40, "nil")}},
	})
	bites[number](t, counters(nil), []history{
		{"an increment that ran twice", false, []*event{at(0, "incrby", []string{"1"}, 10, 20, "1"),
			at(1, "incrby", []string{"1"}, 30, 40, "?"), at(2, "get", nil, 50, 60, "3")}},
		{"an increment that runs late", true, []*event{at(0, "incrby", []string{"1"}, 10, 20, "?"),
			at(1, "get", nil, 50, 60, "nil"), at(1, "get", nil, 70, 80, "1")}},
		{"an acknowledged increment that is lost", false, []*event{
			at(0, "incrby", []string{"1"}, 10, 20, "1"), at(1, "get", nil, 50, 60, "nil")}},
	})
	bites[string](t, registers(nil), []history{
		{"a stale read", false, []*event{at(0, "set", a, 10, 20, "OK"),
			at(1, "get", nil, 30, 40, "nil")}},
		{"a comparison that fails", false, []*event{at(0, "set", a, 10, 20, "OK"),
			at(1, "compare-and-set", []string{"a", "b"}, 30, 40, "0")}},
	})
	bites[string](t, lists(nil), []history{
		{"an element that is taken twice", false, []*event{at(0, "rpush", a, 10, 20, "1"),
			at(1, "lpop", nil, 15, 40, "a"), at(2, "rpop", nil, 15, 40, "a")}},
	})
	bites[leased](t, reentrant(nil), []history{
		{"a lock that is released with one release of two", false, []*event{
			at(0, "take", a, 10, 20, "1"), at(0, "take", a, 30, 40, "2"),
			at(0, "release", a, 50, 60, "1"), at(1, "take", b, 70, 80, "1")}},
	})
	bites[queued](t, fairLocks(nil), []history{
		{"a lock that goes to the one who came last", false, []*event{
			at(0, "take", a, 10, 20, "1"), at(1, "take", b, 30, 40, "0"),
			at(2, "take", []string{"c"}, 50, 60, "0"), at(0, "release", a, 70, 80, "1"),
			at(2, "take", []string{"c"}, 90, 99, "1")}},
	})
	bites[accounts](t, transfers(nil), []history{
		{"half a transfer", false, []*event{
			at(0, "transfer", []string{"0", "1", "5"}, 10, 20, "[-5 5]"),
			at(1, "balances", nil, 15, 19, "[-5 0 0]")}},
	})
	bites[number](t, watches(nil), []history{
		{"a lost update", false, []*event{at(0, "add", nil, 10, 20, "nil"),
			at(1, "add", nil, 15, 25, "nil")}},
	})
	bites[fixed](t, increx(nil), []history{
		{"a window that ends early", false, []*event{at(0, "increx", nil, 10, 20, "[1 1]"),
			at(0, "increx", nil, 30, 40, "[2 1]"), at(0, "increx", nil, 150, 209, "[1 1]")}},
		{"a window that ends late", true, []*event{at(0, "increx", nil, 10, 20, "[1 1]"),
			at(0, "increx", nil, 300, 310, "[2 1]"), at(0, "increx", nil, 320, 330, "[1 1]")}},
	})
}

// judged returns how many problems a workload's own check finds.
func judged(make func(*work) player, fill func(w *work, p player)) int {
	w := &work{run: &run{site: &site{}}, ledger: newLedger()}
	p := make(w)
	fill(w, p)
	p.judge(w)
	return len(w.run.found())
}

func TestChecksBite(t *testing.T) {
	events := func(all ...*event) func(*work, player) {
		return func(w *work, _ player) { w.events = all }
	}
	take := func(call, ret int, reply string) *event {
		return at(0, "take", []string{"a"}, call, ret, reply)
	}
	for _, c := range []struct {
		what  string
		right bool
		make  func(*work) player
		fill  func(*work, player)
	}{
		{"tokens that rise", true, fencing, events(take(1, 2, "[OK 7]"), take(3, 4, "[nil 7]"),
			take(5, 6, "[OK 9]"))},
		{"a token that falls", false, fencing, events(take(1, 2, "[OK 7]"), take(3, 4, "[OK 6]"))},
		{"two holders with one token", false, fencing,
			events(take(1, 4, "[OK 7]"), take(2, 3, "[OK 7]"))},
		{"calls at the same time with tokens in any order", true, fencing,
			events(take(1, 4, "[OK 7]"), take(2, 3, "[OK 6]"))},
		{"nine calls in a window of eight", false, windows, calls(9, 20, "[1 %d]")},
		{"eight calls in a window", true, windows, calls(8, 20, "[1 %d]")},
		{"nine calls beyond a window", true, windows, calls(9, 40, "[1 %d]")},
		{"two calls at one instant", false, windows,
			events(take(1, 4, "[1 100]"), take(2, 3, "[2 100]"))},
		{"six tokens of five at once", false, buckets, calls(6, 5, "1")},
		{"six tokens in time", true, buckets, calls(6, 15, "1")},
		{"a throttle that is too generous", false, throttle, calls(8, 15, "[0 5 1 -1 0]")},
		{"messages in order", true, messages, listened(1, 2, 4)},
		{"a message is missing", false, messages, listened(1, 4)},
		{"a message comes twice", false, messages, listened(1, 2, 2, 4)},
		{"messages out of order", false, messages, listened(2, 1, 4)},
		{"a message that was refused", false, messages, listened(1, 2, 3, 4)},
		{"a read of what was written", true, staleReads, showed(1, 50, 60, "1")},
		{"a read from the future", false, staleReads, showed(2, 50, 60, "1")},
		{"a read of what is lost later", false, staleReads, showed(1, 50, 60, "nil")},
	} {
		if n := judged(c.make, c.fill); (n == 0) != c.right {
			t.Errorf("%s: %d problems", c.what, n)
		}
	}
}

// calls are n calls that were let through, every so many milliseconds.
func calls(n, every int, reply string) func(*work, player) {
	return func(w *work, _ player) {
		for i := range n {
			text := reply
			if reply[0] == '[' && reply[1] == '1' {
				text = fmt.Sprintf(reply, 1+i)
			}
			w.events = append(w.events, at(0, "ask", nil, every*i, every*i+1, text))
		}
	}
}

// listened is one connection that got some of the messages 1 to 4, of which 3 was refused.
func listened(got ...int) func(*work, player) {
	return func(_ *work, p player) {
		c := p.(*channels)
		c.published = map[int]outcome{1: acked, 2: acked, 3: refused, 4: acked}
		h := heard(slices.Clone(got))
		c.heard = append(c.heard, &h)
	}
}

// showed is a follower that shows a number, of which 1 was written, and a read afterwards.
func showed(n, call, ret int, reply string) func(*work, player) {
	return func(w *work, p player) {
		w.events = []*event{at(0, "raise", []string{"1"}, 10, 20, "1"),
			at(0, "get", nil, call, ret, reply)}
		p.(*stale).reads["k"] = []seen{{n, 30e6}}
	}
}

// TestPlansMeet: every pair of faults comes up once, every fault in the first rounds, and every
// workload and kind of client before one comes again.
func TestPlansMeet(t *testing.T) {
	for n := 2; n < 20; n++ {
		met, early := map[[2]int]bool{}, map[int]bool{}
		pairs := pairsOf(n)
		for i, p := range pairs {
			if p[0] == p[1] || met[p] || met[[2]int{p[1], p[0]}] {
				t.Fatalf("%d faults: the pair %v again", n, p)
			}
			met[p] = true
			if i < n {
				early[p[0]], early[p[1]] = true, true
			}
		}
		if len(pairs) != n*(n-1)/2 || len(early) != n {
			t.Errorf("%d faults: %d pairs, %d faults early", n, len(pairs), len(early))
		}
	}
}
