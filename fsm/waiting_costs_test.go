// What waiting costs the machine is bounded.

package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/detector"
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

// A flush costs work for each key that is waited for, and a request for all its flushes once.
func TestFlushesWithManyWaitedKeys(t *testing.T) {
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
	for _, line := range []string{"FLUSHDB", "SWAPDB 0 1"} {
		x := lineRequest(line)
		e := &Entry{Term: 1, ClockMs: w.clock, WallUs: w.clock * 1000,
			Batches: [][]byte{commands.AppendRequest(nil, &x)}}
		r := mustApply(t, w.Machine, w.Index()+1, e, true)
		if r.Spent < lookWork*keys {
			t.Errorf("%s over %d waited keys: %d units of work", line, keys, r.Spent)
		}
	}
	v := &w.waiting
	v.swept = [keyspace.Databases]bool{}
	for i, want := range []int{keys, 0} {
		v.changedAll(0)
		if len(v.ready) != want {
			t.Errorf("flush %d: %d keys are looked at, want %d", i, len(v.ready), want)
		}
		v.ready = nil
		clear(v.isReady)
	}
}
