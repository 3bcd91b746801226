//go:build linux

// The checkers: they accept what a correct server does, and nothing that is slightly wrong.

package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands/commandtest"
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
	bites[string](t, locks(nil), []history{
		{"a lock that two hold", false, []*event{at(0, "take", a, 10, 20, "OK"),
			at(1, "take", b, 30, 40, "OK")}},
		{"a lock that is refused while it is free", false, []*event{
			at(0, "take", a, 10, 20, "OK"), at(0, "release", a, 30, 40, "1"),
			at(1, "take", b, 50, 60, "nil")}},
		{"a lock that another releases", false, []*event{at(0, "take", a, 10, 20, "OK"),
			at(1, "release", b, 30, 40, "1")}},
		{"a lock whose release nobody knows of", true, []*event{at(0, "take", a, 10, 20, "OK"),
			at(0, "release", a, 30, 40, "?"), at(1, "take", b, 50, 60, "nil"),
			at(2, "take", b, 70, 80, "OK")}},
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
	job := []string{"0", "5"}
	lent := func(rest ...*event) []*event { // client 2 may have taken the job, and it came back
		return append([]*event{at(0, "zadd", job, 10, 20, "1"), at(2, "vanish", nil, 10, 20, "?"),
			at(3, "comes back", []string{"2"}, 25, 26, "?"),
			at(0, "zscore", job[:1], 30, 40, "nil")}, rest...)
	}
	bites[scheduled](t, &schedules(nil).(*schedule).keyed, []history{
		{"a job that comes back", true, lent(at(0, "zscore", job[:1], 50, 60, "5"))},
		{"a job that comes back after it was removed", false, lent(
			at(1, "del", nil, 42, 44, "0"), at(0, "zscore", job[:1], 50, 60, "5"))},
		{"a job that comes back over a later one", false, lent(
			at(1, "zadd", []string{"0", "9"}, 42, 44, "1"),
			at(0, "zscore", job[:1], 50, 60, "5"))},
		{"a job that nobody has taken", false, []*event{at(0, "zadd", job, 10, 20, "1"),
			at(0, "zpopmin", nil, 30, 40, "[]")}},
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

// judged returns how many problems a workload's own check finds in what a server holds.
func judged(make func(*work) player, fill func(w *work, p player), admin *redis.Client) int {
	w := &work{run: &run{site: &site{}}, ledger: newLedger(), admin: admin}
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
		{"a read of what an idle connection missed", true, idleReads, idled(2, 40)},
		{"a read of less than was written", false, idleReads, idled(1, 40)},
		{"a read sent while more was written", true, idleReads, idled(1, 20)},
		{"a cached key that is newer now", true, caches, cachedRead(2, 2, 2, 40)},
		{"a cached key that was newer", false, caches, cachedRead(1, 3, 2, 40)},
		{"a cached key that is older than a write", false, caches, cachedRead(2, 1, 1, 40)},
		{"a write while a cached key is read", true, caches, cachedRead(2, 1, 1, 20)},
		{"a follower's cached key that is older than a write", true, caches,
			cachedRead(1, 1, 1, 40)},
	} {
		if n := judged(c.make, c.fill, nil); (n == 0) != c.right {
			t.Errorf("%s: %d problems", c.what, n)
		}
	}
}

// TestLockChecksBite: the checks of locks that are waited for, of leases, and of windows.
func TestLockChecksBite(t *testing.T) {
	events := func(all ...*event) func(*work, player) {
		return func(w *work, _ player) { w.events = all }
	}
	// a grant for 3 s whose reply names the end of that, by the cluster clock
	take := func(key, owner string, weight, wait, call, ret int, token, endMs int64) *event {
		rank, _ := strconv.Atoi(strings.TrimLeft(owner, "abxy"))
		q := asked{owner, weight, rank, grantLong, time.Duration(wait) * 1e6, []string{key}}
		e := at(0, "take", q.args(), call, ret, fmt.Sprintf("[%d %d 1 0]", token, endMs))
		e.Key = key
		return e
	}
	mutex := func(owner string, wait, call, ret int, token, endMs int64) *event {
		return take("{mutex}", owner, 1, wait, call, ret, token, endMs)
	}
	then := func(op string, e *event, call, ret int, reply string) *event {
		n := at(0, op, e.Args, call, ret, reply)
		n.Key = e.Key
		return n
	}
	seen := func(key, owners string, call, ret int) *event {
		e := at(9, "waiters", nil, call, ret, owners)
		e.Key = key
		return e
	}
	a := mutex("a", 0, 10, 20, 5, 4000)
	free := then("release", a, 50, 60, "1")
	late := mutex("x", 100, 30, 131, 0, -1)
	e := take("{reentrant}", "a", 1, 0, 10, 20, 5, 4000)
	again := func(ret int) *event { return take("{reentrant}", "b", 1, 500, 45, ret, 7, 4060) }
	two := func(wa, wb int) func(*work, player) {
		return events(take("{permits}", "a", wa, 0, 10, 20, 5, 4000),
			take("{permits}", "b", wb, 0, 30, 40, 6, 4010))
	}
	key := func(reply string, l attachment, call, ret int) func(*work, player) {
		return func(w *work, p player) {
			p.(*attachments).check(w, &l, l, at(0, "exists", nil, call, ret, reply))
		}
	}
	lease := func(own string, l attachment, call, ret int) func(*work, player) {
		return func(w *work, p player) {
			p.(*leasedLocks).check(w, &l, 3, at(0, "look", nil, call, ret, own))
		}
	}
	leasedBy := func(owner string, token int64, from, to int) *hold {
		e := take("{leased}:a", owner, 1, 500, from-10, from, token, 4000)
		return &hold{event: e, asked: askedOf(e), token: token, from: e.Return,
			to: time.Duration(to) * 1e6}
	}
	held := func(all ...*hold) func(*work, player) {
		return func(_ *work, p player) { p.(*leasedLocks).held = all }
	}
	ran := func(ranges ...[2]int) func(*work, player) {
		return func(w *work, p player) {
			p.(*onces).ranges["k"] = ranges
			p.(*onces).judgeRanges(w)
		}
	}
	hit := func(n, every int, rest ...*event) func(*work, player) {
		return func(w *work, _ player) {
			for i := range n {
				w.events = append(w.events,
					at(0, "hit", []string{"both"}, every*i, every*i+1, "[1 0 0 0]"))
			}
			w.events = append(w.events, rest...)
		}
	}
	for _, c := range []struct {
		what  string
		right bool
		make  func(*work) player
		fill  func(*work, player)
	}{
		{"one after the other", true, mutexes,
			events(a, free, mutex("b", 500, 30, 61, 6, 4040))},
		{"two at once", false, mutexes, events(a, mutex("b", 500, 30, 61, 6, 4040))},
		{"a grant before the end of the last term", false, mutexes,
			events(a, mutex("b", 4000, 30, 3100, 6, 6900))},
		{"a grant after it", true, mutexes, events(a, mutex("b", 4000, 30, 3100, 6, 7000))},
		{"a grant before the end of an extended term", false, mutexes,
			events(a, then("extend", a, 200, 210, "[5 4190 1 0]"),
				mutex("b", 4000, 30, 3250, 6, 7000))},
		{"two with one token", false, mutexes, events(a, free, mutex("b", 0, 70, 80, 5, 4060))},
		{"a token that falls", false, mutexes, events(a, free, mutex("b", 0, 70, 80, 4, 4060))},
		{"a wait that is over", true, mutexes, events(a, late)},
		{"a wait that is over early", false, mutexes,
			events(a, mutex("x", 100, 30, 90, 0, -1))},
		{"one who is overtaken", false, mutexes, events(a, free,
			mutex("x", 500, 30, 300, 9, 4200), seen("{mutex}", "x", 40, 45),
			mutex("y", 500, 46, 62, 6, 4050), then("release", mutex("y", 500, 46, 62, 6, 4050),
				70, 80, "1"))},
		{"one who is not", true, mutexes, events(a, free,
			mutex("x", 500, 30, 61, 6, 4050), seen("{mutex}", "x", 40, 45),
			then("release", mutex("x", 500, 30, 61, 6, 4050), 70, 80, "1"),
			mutex("y", 500, 46, 82, 7, 4070))},
		{"one who waits in vain behind another", false, mutexes, events(a, free,
			mutex("x", 500, 30, 540, 0, -1), seen("{mutex}", "x", 40, 45),
			mutex("y", 500, 46, 62, 6, 4050))},
		{"one whom a higher priority overtakes", true, ranked, events(a, free,
			take("{ranked}", "x1", 1, 500, 30, 300, 9, 4200), seen("{ranked}", "x1", 40, 45),
			take("{ranked}", "y2", 1, 500, 46, 62, 6, 4050),
			then("release", take("{ranked}", "y2", 1, 500, 46, 62, 6, 4050), 70, 80, "1"))},
		{"one whom the same priority overtakes", false, ranked, events(a, free,
			take("{ranked}", "x2", 1, 500, 30, 300, 9, 4200), seen("{ranked}", "x2", 40, 45),
			take("{ranked}", "y2", 1, 500, 46, 62, 6, 4050),
			then("release", take("{ranked}", "y2", 1, 500, 46, 62, 6, 4050), 70, 80, "1"))},
		{"a lock that was entered twice and released twice", true, reentrants, events(e,
			then("enter", e, 30, 40, "[5 4030 2 0]"), then("release", e, 50, 60, "1"),
			then("release", e, 70, 80, "1"), again(81))},
		{"a lock that was entered twice and released once", false, reentrants, events(e,
			then("enter", e, 30, 40, "[5 4030 2 0]"), then("release", e, 50, 60, "1"),
			again(61))},
		{"another token behind entering again", false, reentrants, events(e,
			then("enter", e, 30, 40, "[6 4030 2 0]"))},
		{"a lock that counts one too few", false, reentrants, events(e,
			then("enter", e, 30, 40, "[5 4030 1 0]"))},
		{"permits that there are", true, permits, two(1, 2)},
		{"permits that there are not", false, permits, two(2, 2)},
		{"a reader beside a writer", false, readersWriters, events(
			take("{shared}", "a", 1, 0, 10, 20, 5, 4000),
			take("{shared}", "b", 1000, 0, 30, 40, 6, 4010))},
		{"two readers", true, readersWriters, events(
			take("{shared}", "a", 1, 0, 10, 20, 5, 4000),
			take("{shared}", "b", 1, 0, 30, 40, 6, 4010))},
		{"keys that are there", true, attachedKeys, key("3", attachment{until: 50e6}, 10, 20)},
		{"keys that are gone early", false, attachedKeys,
			key("0", attachment{until: 50e6}, 10, 20)},
		{"keys that are gone", true, attachedKeys, key("0", attachment{until: 50e6}, 40, 51)},
		{"keys that were revoked", true, attachedKeys,
			key("0", attachment{until: 50e6, revoked: true}, 10, 20)},
		{"keys of which one is gone", false, attachedKeys, key("2", attachment{}, 10, 20)},
		{"keys that are back", false, attachedKeys, key("3", attachment{gone: 5e6}, 10, 20)},
		{"what a lease has", true, leasedMutexes, lease("3", attachment{until: 50e6}, 10, 20)},
		{"a lock that outlasts the keys of its lease", false, leasedMutexes,
			lease("2", attachment{until: 5e6}, 10, 20)},
		{"a lock that is gone before its lease", false, leasedMutexes,
			lease("0", attachment{until: 50e6}, 10, 20)},
		{"a lock that is gone with its lease", true, leasedMutexes,
			lease("0", attachment{until: 15e6}, 10, 20)},
		{"a lock that is back", false, leasedMutexes,
			lease("3", attachment{until: 5e6, gone: 5e6}, 10, 20)},
		{"one lease after the other", true, leasedMutexes,
			held(leasedBy("a", 5, 20, 40), leasedBy("b", 6, 50, 90))},
		{"a lock of two leases", false, leasedMutexes,
			held(leasedBy("a", 5, 20, 60), leasedBy("b", 6, 50, 90))},
		{"numbers that follow each other", true, repeats, ran([2]int{3, 5}, [2]int{0, 3})},
		{"a number that was added twice", false, repeats, ran([2]int{3, 6}, [2]int{0, 4})},
		{"four hits in a window", true, windowHits, hit(4, 10)},
		{"five hits in a window", false, windowHits, hit(5, 10)},
		{"five hits in time", true, windowHits, hit(5, 40)},
		{"a full window", true, windowHits,
			hit(4, 10, at(0, "hit", []string{"both"}, 50, 51, "[0 0 9 1]"))},
		{"a window that refuses too early", false, windowHits,
			hit(3, 10, at(0, "hit", []string{"both"}, 50, 51, "[0 0 9 1]"))},
		{"a window that is charged for what another refused", false, windowHits,
			hit(11, 60, at(0, "hit", []string{"long"}, 665, 666, "[0 0 9 1]"))},
	} {
		if n := judged(c.make, c.fill, nil); (n == 0) != c.right {
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

// idled is a reply to an idle connection, sent at an instant; 2 was written at 30 ms.
func idled(n, call int) func(*work, player) {
	return func(w *work, p player) {
		d := p.(*idlers)
		d.written["k"] = []seen{{1, 10e6}, {2, 30e6}}
		d.check(w, &idler{key: "k", call: time.Duration(call) * 1e6}, n)
	}
}

// cachedRead is a reply to a client that caches, and had read last before, sent at an instant; 2
// was written at 30 ms.
func cachedRead(seat, last, n, call int) func(*work, player) {
	return func(w *work, p player) {
		c := p.(*cachers)
		c.written["k"] = map[int]time.Duration{2: 30e6}
		c.check(&actor{work: w, seat: seat}, &cached{last: map[string]int{"k": last}}, "k", n,
			time.Duration(call)*1e6)
	}
}

// TestChecksOfDataBite: the checks of what a cluster holds in the end. Here a redis-server does.
func TestChecksOfDataBite(t *testing.T) {
	socket := commandtest.NeedRedis(t)
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	t.Cleanup(func() { _ = admin.Close() })
	const job, mail, worker = jobsList + ":1", mailList + ":1", "c1"
	push := func(list, element string) []any { return []any{"RPUSH", list, element} }
	add := func(id, value string) []any { return []any{"XADD", streamKey, id, "v", value} }
	group := []any{"XGROUP", "CREATE", streamKey, streamGroup, "0"}
	read := []any{"XREADGROUP", "GROUP", streamGroup, worker, "COUNT", "1", "STREAMS", streamKey,
		">"}
	ack := []any{"XACK", streamKey, streamGroup, "1-1"}
	waits := func(added map[string]outcome, taken map[string]int, done map[string]outcome,
		lost int) func(*work, player) {
		return func(_ *work, p player) {
			q := p.(*waiting)
			q.added, q.taken, q.done, q.lost = added, taken, done, lost
		}
	}
	streamed := func(added map[string]outcome, delivered map[string]int,
		done map[string]outcome) func(*work, player) {
		return func(_ *work, p player) {
			g := p.(*grouped)
			g.added, g.delivered, g.done = added, delivered, done
		}
	}
	type outcomes = map[string]outcome
	type times = map[string]int
	one, once := outcomes{"1": acked}, times{"1-1": 1}
	for _, c := range []struct {
		what  string
		right bool
		make  func(*work) player
		fill  func(*work, player)
		data  [][]any
	}{
		{"a job that waits", true, queues, waits(outcomes{job: acked}, nil, nil, 0),
			[][]any{push(jobsList, job)}},
		{"a job that is lost", false, queues, waits(outcomes{job: acked}, nil, nil, 3), nil},
		{"a job that perhaps was never added", true, queues, waits(outcomes{job: unknown}, nil, nil,
			0), nil},
		{"a job that perhaps was done", true, queues, waits(outcomes{job: acked}, times{job: 1},
			outcomes{job: unknown}, 0), nil},
		{"a job in two lists", false, queues, waits(outcomes{job: acked}, nil, nil, 0),
			[][]any{push(jobsList, job), push(workList, job)}},
		{"a job that is done, and there", false, queues, waits(outcomes{job: acked}, times{job: 1},
			outcomes{job: acked}, 0), [][]any{push(workList, job)}},
		{"an element that nobody added", false, queues, waits(outcomes{}, nil, nil, 0),
			[][]any{push(mailList, mail)}},
		{"mail that was taken", true, queues, waits(outcomes{mail: acked}, times{mail: 1}, nil, 0),
			nil},
		{"mail that was taken twice", false, queues, waits(outcomes{mail: acked}, times{mail: 2},
			nil, 0), nil},
		{"mail that is lost", false, queues, waits(outcomes{mail: acked}, nil, nil, 0), nil},
		{"mail that a pop without a reply took", true, queues, waits(outcomes{mail: acked}, nil,
			nil, 1), nil},
		{"an entry that is acknowledged", true, streams, streamed(one, once,
			outcomes{"1-1": acked}), [][]any{add("1-1", "1"), group, read, ack}},
		{"an entry that is pending", true, streams, streamed(one, once, nil),
			[][]any{add("1-1", "1"), group, read}},
		{"an entry that nobody has read", true, streams, streamed(one, nil, nil),
			[][]any{add("1-1", "1"), group}},
		{"an entry that is pending again", false, streams, streamed(one, once,
			outcomes{"1-1": acked}), [][]any{add("1-1", "1"), group, read}},
		{"an entry that is neither", false, streams, streamed(one, once, nil),
			[][]any{add("1-1", "1"), group, read, ack}},
		{"an entry that was delivered twice", false, streams, streamed(one, times{"1-1": 2}, nil),
			[][]any{add("1-1", "1"), group, read}},
		{"a group that has forgotten what it delivered", false, streams, streamed(one, once, nil),
			[][]any{add("1-1", "1"), group}},
		{"an entry that is lost", false, streams, streamed(outcomes{"1": acked, "2": acked}, nil,
			nil), [][]any{add("1-1", "1"), group}},
		{"an entry that was added twice", false, streams, streamed(one, nil, nil),
			[][]any{add("1-1", "1"), add("1-2", "1"), group}},
		{"an entry that nobody added", false, streams, streamed(one, nil, nil),
			[][]any{add("1-1", "1"), add("1-2", "2"), group}},
		{"keys that are kept", true, keptWrites, remembers("a", "b"),
			[][]any{{"MSET", "a", 1, "b", 1}}},
		{"a key that is lost", false, keptWrites, remembers("a", "b"), [][]any{{"SET", "a", 1}}},
		{"a cache that is right", true, caches, keeps(t, socket, 1), [][]any{{"SET", "k", 1}}},
		{"a cache that no invalidation reached", false, caches, keeps(t, socket, 1),
			[][]any{{"SET", "k", 2}}},
	} {
		if err := admin.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for _, words := range c.data {
			if err := admin.Do(t.Context(), words...).Err(); err != nil {
				t.Fatalf("%s: %v: %v", c.what, words, err)
			}
		}
		if n := judged(c.make, c.fill, admin); (n == 0) != c.right {
			t.Errorf("%s: %d problems", c.what, n)
		}
	}
}

// remembers are keys whose writes were acknowledged.
func remembers(keys ...string) func(*work, player) {
	return func(_ *work, p player) { p.(*kept).keys = keys }
}

// keeps is a client that has a number of k in its cache.
func keeps(t *testing.T, socket string, n int) func(*work, player) {
	return func(w *work, p player) {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		p.(*cachers).patience = 50 * time.Millisecond
		p.(*cachers).actors = []*actor{{work: w, conn: receiver(c),
			mem: &cached{kept: map[string]int{"k": n}}}}
	}
}

// TestStatesDifferInMarks: of clusters that were upgraded, what keys are used for is not compared.
func TestStatesDifferInMarks(t *testing.T) {
	snapshot := func(kind byte, value string, sum byte) string {
		b := append([]byte("coordd snapshot\n"), 1, 0, 0, 0)
		for _, record := range [][]byte{append([]byte{0, kind}, value...), nil} {
			b = binary.LittleEndian.AppendUint64(b, uint64(len(record)))
			b = append(b, record...)
		}
		return string(append(b, sum, 2, 3, 4))
	}
	marked, plain := snapshot(0x81, "v", 1), snapshot(0x01, "v", 5)
	if unmarked(marked) != unmarked(plain) || unmarked(plain) == plain {
		t.Errorf("%q and %q differ", unmarked(marked), unmarked(plain))
	}
	for _, other := range []string{snapshot(0x02, "v", 1), snapshot(0x01, "w", 1)} {
		if unmarked(marked) == unmarked(other) {
			t.Errorf("%q and %q do not differ", marked, other)
		}
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
