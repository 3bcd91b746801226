package fsm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// Waiters whose requests are large, at a key that has nothing for them, must not stop the machine.
func TestLargeWaitersThatFindNothing(t *testing.T) {
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
				Cmds: [][][]byte{commandtest.Args("PING")}})}}
		e.Batches[0] = commands.AppendRequest(nil, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("SET", "other", "1")}})
		if r := mustApply(t, w.Machine, w.Index()+1, e, true); r.Ran == 1 {
			return
		}
	}
	t.Error("20 entries ran no request")
}

// A flush costs work for each key that is waited for.
func TestFlushesWithManyWaitedKeys(t *testing.T) {
	w := newWaitMachine(t)
	words := []string{"BLPOP"}
	for i := range 300_000 {
		words = append(words, fmt.Sprint(i))
	}
	q := commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(append(words, "0")...)}}
	q.Wait = &commands.Wait{Node: []byte("n1"), Era: w.eras["n1"], Number: 1}
	w.place(w.apply(q))
	for _, line := range []string{"FLUSHDB", "SWAPDB 0 1"} {
		var batch []byte
		for range 50 {
			x := lineRequest(line)
			batch = commands.AppendRequest(batch, &x)
		}
		e := &Entry{Term: 1, ClockMs: w.clock, WallUs: w.clock * 1000, Batches: [][]byte{batch}}
		start := time.Now()
		r := mustApply(t, w.Machine, w.Index()+1, e, true)
		took := time.Since(start)
		t.Logf("50 %s: %v, work %d", line, took, r.Spent)
		if r.Spent < 1_000_000 {
			t.Errorf("50 %s over 300000 waited keys: %v for %d units of work", line, took, r.Spent)
		}
	}
	x := lineRequest("EVAL - 0")
	x.Cmds[0][1] = []byte("for i=1,100 do redis.call('FLUSHDB') end")
	start := time.Now()
	w.apply(x)
	took := time.Since(start)
	t.Logf("script of 100 FLUSHDB: %v", took)
	if took > 2*time.Second {
		t.Errorf("a script of 100 FLUSHDB took %v", took)
	}
}
