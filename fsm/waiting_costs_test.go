// What waiting costs the machine is bounded.

package fsm

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/threadtime"
)

// Waiters whose requests are large, at a key that has nothing for them, must not stop the machine.
func TestLargeWaitersThatFindNothing(t *testing.T) {
	detector.Skip(t)
	w := newWaitMachine(t)
	key := strings.Repeat("k", 2700)
	many := strings.Repeat(key+" ", 10_000) // counts once
	w.wait("n1", 1, "BLPOP "+many+"0")
	w.wait("n1", 2, "BZPOPMIN "+many+"0")
	w.wait("n1", 3, "BLPOP "+key+" 0")
	w.apply(lineRequest("SET " + key + " x"))
	for range 20 {
		e := &Entry{Term: 1, ClockMs: w.clock, WallUs: w.clock * 1000, Batches: [][]byte{
			commands.AppendRequest(nil, &commands.Request{Proto: 2,
				Cmds: [][][]byte{commandtest.Args("SET", "other", "1")}})}}
		if r := mustApply(t, w.Machine, w.Index()+1, e, true); r.Ran == 1 {
			return
		}
	}
	t.Error("20 entries ran no request")
}

// A swap costs work for each key that is waited for, once a request, if there is anything for them.
// One of databases for which nobody waits costs nothing, and neither does a flush, which leaves
// nothing.
func TestSwapsWithManyWaitedKeys(t *testing.T) {
	detector.Skip(t)
	const keys = 50_000
	w := newWaitMachine(t)
	words := []string{"BLPOP"}
	for i := range keys {
		words = append(words, fmt.Sprint(i))
	}
	q := commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(append(words, "0")...)}}
	q.Wait = &commands.Wait{Node: []byte("n1"), Era: w.eras["n1"], Number: 1}
	w.place(w.apply(q))
	spent := func(line string, times int) uint64 {
		var batch []byte
		for range times {
			x := lineRequest(line)
			batch = commands.AppendRequest(batch, &x)
		}
		e := &Entry{Term: 1, ClockMs: w.clock, WallUs: w.clock * 1000, Batches: [][]byte{batch}}
		return mustApply(t, w.Machine, w.Index()+1, e, true).Spent
	}
	fill := lineRequest("SET other 1")
	fill.DB = 1
	w.apply(fill)
	if got := spent("SWAPDB 0 1", 1); got < (foundKeyWork+lookWork)*keys {
		t.Errorf("a swap over %d waited keys: %d units of work", keys, got)
	}
	for _, line := range []string{"SWAPDB 3 4", "SWAPDB 1 2", "FLUSHDB", "FLUSHALL"} {
		if got := spent(line, 10); got > keys {
			t.Errorf("10 of %s beside %d waited keys: %d units of work", line, keys, got)
		}
	}
	if n := len(w.waiting.ready); n > 0 {
		t.Errorf("%d keys are left to be looked at", n)
	}
}

// TestRequestsAreChargedBesideManyWaits compares what requests take of the processor alone, and
// beside many keys that others wait for and that they have nothing to do with: they are charged
// alike.
func TestRequestsAreChargedBesideManyWaits(t *testing.T) {
	detector.Skip(t)
	const keys, clients, times = 100_000, 100, 500
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := map[int]map[string]time.Duration{}
	for _, waited := range []int{0, keys} {
		took[waited] = map[string]time.Duration{}
		w := newWaitMachine(t)
		for c := range clients {
			words := []string{"BLPOP"}
			for i := range waited / clients {
				words = append(words, fmt.Sprintf("%d:%d", c, i))
			}
			if len(words) > 1 {
				w.wait("n1", uint64(c+1), strings.Join(append(words, "0"), " "))
			}
		}
		for _, line := range []string{"SWAPDB 3 4", "FLUSHDB", "FLUSHALL", "SET k v", "DEL k"} {
			var batch []byte
			for range times {
				x := lineRequest(line)
				x.DB = 5
				batch = commands.AppendRequest(batch, &x)
			}
			took[waited][line] = time.Hour
			for range 3 { // the least is what the work takes
				e := &Entry{Term: 1, ClockMs: w.clock, WallUs: w.clock * 1000,
					Batches: [][]byte{batch}}
				began := threadtime.Now()
				mustApply(t, w.Machine, w.Index()+1, e, true)
				took[waited][line] = min(took[waited][line], threadtime.Now()-began)
			}
		}
	}
	for line, alone := range took[0] {
		if beside := took[keys][line]; beside > 10*alone+5*time.Millisecond {
			t.Errorf("%d times %s: %v, and beside %d waited keys %v", times, line, alone, keys,
				beside)
		}
	}
}

// wide is a command that waits for many keys, or many times for one.
type wide struct {
	width int
	equal bool
}

// TestWideWaitsAreChargedForTheirTime compares what a unit of work takes of the processor where a
// command waits for many keys, or often for one, with a push that serves one that waits for one: to
// wait, to be served or passed over, to leave, to be dropped.
func TestWideWaitsAreChargedForTheirTime(t *testing.T) {
	detector.Skip(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	acts := []string{"wait", "serve", "pass over", "leave", "drop"}
	var unit float64 // ns
	for _, c := range []wide{{1, true}, {1000, true}, {1000, false}, {100_000, true},
		{100_000, false}} {
		took, spent := map[string]time.Duration{}, map[string]uint64{}
		over := func(act string) bool {
			return took[act] > time.Duration(4*unit*float64(spent[act]))+2*time.Millisecond
		}
		for try := range mostTries { // the least is what the work takes
			if try >= 3 && !slices.ContainsFunc(acts, over) {
				break
			}
			for _, act := range acts {
				at, units := c.runs(t, act)
				if best, known := took[act]; !known || at < best {
					took[act], spent[act] = at, units
				}
			}
			if c.width == 1 {
				unit = float64(took["serve"]) / float64(spent["serve"])
			}
		}
		for _, act := range acts {
			if over(act) {
				t.Errorf("to %s, %+v: %v for %d units of work, of which each takes %.1f ns", act, c,
					took[act], spent[act], unit)
			}
		}
	}
}

// runs applies entries in which something happens to waits of one width.
func (c wide) runs(t *testing.T, act string) (took time.Duration, spent uint64) {
	const words, most = 50_000, 500
	w := newWaitMachine(t)
	waits := max(1, min(words/c.width, most))
	line := []string{"BLPOP"}
	if act == "pass over" {
		line[0] = "BZPOPMIN"
	}
	for i := range c.width - 1 {
		if c.equal {
			i = 0
		}
		line = append(line, fmt.Sprint(i))
	}
	wait := w.waitRequest("n1", 0, strings.Join(append(line, "k", "0"), " "))
	runtime.GC()
	began := threadtime.Now()
	for range waits {
		wait.Wait.Number++
		w.apply(wait)
		spent += w.spent
	}
	if len(w.waiting.all) != waits {
		t.Fatalf("%d of %d wait", len(w.waiting.all), waits)
	}
	if act == "wait" {
		return threadtime.Now() - began, spent
	}
	var requests []commands.Request
	switch act {
	case "serve":
		for range waits {
			requests = append(requests, lineRequest("RPUSH k x"))
		}
	case "pass over":
		for range most {
			requests = append(requests, lineRequest("RPUSH k x"))
		}
	case "leave":
		for i := range waits {
			requests = append(requests,
				lineRequest(fmt.Sprint(commands.SystemLeaveWait, " ", i+1)))
		}
	case "drop":
		requests = append(requests, lineRequest(commands.SystemDropWaits+" n1"))
	}
	for i := range requests {
		requests[i].System = act == "leave" || act == "drop"
	}
	runtime.GC()
	began = threadtime.Now()
	w.apply(requests...)
	return threadtime.Now() - began, w.spent
}

// A push costs the same beside commands that wait for another type, however many keys they wait
// for.
func TestPushesPassOverOtherTypes(t *testing.T) {
	for _, c := range [][2]string{{"BZPOPMIN%s k 0", "RPUSH k x"}, {"BLPOP%s k 0", "ZADD k 1 x"},
		{"BLPOP%s k 0", "SET k x"}} {
		var spent []uint64
		for _, width := range []int{1, 1000} {
			w := newWaitMachine(t)
			w.wait("n1", 1, fmt.Sprintf(c[0], strings.Repeat(" k", width)))
			w.run(c[1])
			spent = append(spent, w.spent)
		}
		if spent[0] != spent[1] {
			t.Errorf("%s: %d units of work, and %d beside a wide one", c[1], spent[0], spent[1])
		}
	}
}
