// Callers of a limit at many nodes never get more than it allows, whatever the stamps of their
// entries, even if the machine is restored from a snapshot in between.

package fsm

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// limitedCall is a call that takes one token from a limit.
type limitedCall struct {
	args   []string
	passed func(reply []int64) bool
	grants []int64 // clock of each granted call, ms
}

func TestConcurrentCallersStayWithinLimits(t *testing.T) {
	detector.Skip(t)
	seed := seeds.Of(t)
	for round := range uint64(20) {
		g := rand.New(rand.NewPCG(seed, round))
		limit, windowMs := 1+g.Int64N(20), 1000*(1+g.Int64N(5))
		count, seconds := 1+g.Int64N(30), fmt.Sprint(windowMs/1000)
		open := func(reply []int64) bool { return reply[0] == 0 }
		calls := []*limitedCall{
			{args: []string{"INCREX", "w", "UBOUND", fmt.Sprint(limit), "PX", fmt.Sprint(windowMs),
				"ENX"}, passed: func(reply []int64) bool {
				return reply[1] == 1
			}},
			{args: []string{"CL.THROTTLE", "t", fmt.Sprint(limit - 1), fmt.Sprint(count), seconds},
				passed: open},
			{args: []string{"GCRA", "g", fmt.Sprint(limit - 1), fmt.Sprint(count), seconds},
				passed: open},
		}
		compete(t, g, calls)
		for i, c := range calls {
			if len(c.grants) < int(limit) {
				t.Errorf("round %d: %q let through %d", round, c.args, len(c.grants))
			}
			if i == 0 {
				fixedWindows(t, c.grants, limit, windowMs)
			} else {
				everyWindow(t, c.grants, limit, count, windowMs)
			}
		}
	}
}

// compete applies entries with the calls of many clients of three nodes. A new leader's stamps may
// be behind those of the previous one.
func compete(t *testing.T, g *rand.Rand, calls []*limitedCall) {
	t.Helper()
	const entries = 400
	table := testTable()
	m := newestMachine(table)
	clockMs := int64(1)
	for index := uint64(1); index <= entries; index++ {
		if index == entries/2 {
			m = restore(t, snapshotBytes(t, m.Snapshot()), table)
		}
		clockMs += g.Int64N(120) * g.Int64N(2)
		e := &Entry{ClockMs: max(clockMs-g.Int64N(300)*g.Int64N(2), 0), WallUs: g.Int64N(1 << 50)}
		var asked [3][]*limitedCall
		for node := range asked {
			var run []byte
			for range g.IntN(12) {
				c := calls[g.IntN(len(calls))]
				args := c.args
				if g.IntN(4) == 0 { // the same from a script
					args = append([]string{"EVAL", "return redis.call(unpack(ARGV))", "1", args[1]},
						args...)
				}
				run = commands.AppendRequest(run,
					&commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(args...)}})
				asked[node] = append(asked[node], c)
			}
			e.Batches = append(e.Batches, run)
		}
		result := mustApply(t, m, index, e, true)
		for node, reply := range result.Replies {
			lines := strings.Split(string(reply), "\r\n")
			for _, c := range asked[node] {
				if c.passed(numbers(t, &lines)) {
					c.grants = append(c.grants, m.ClockMs())
				}
			}
		}
	}
}

// numbers reads a reply that is an array of integers from the lines.
func numbers(t *testing.T, lines *[]string) (reply []int64) {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix((*lines)[0], "*"))
	if err != nil {
		t.Fatalf("reply %q", (*lines)[0])
	}
	for _, line := range (*lines)[1 : n+1] {
		i, err := strconv.ParseInt(strings.TrimPrefix(line, ":"), 10, 64)
		if err != nil {
			t.Fatalf("element %q", line)
		}
		reply = append(reply, i)
	}
	*lines = (*lines)[n+1:]
	return reply
}

// fixedWindows checks windows that begin with the first call granted after the previous window.
func fixedWindows(t *testing.T, grants []int64, limit, windowMs int64) {
	t.Helper()
	startMs, n := int64(-1), int64(0)
	for _, at := range grants {
		if startMs < 0 || at > startMs+windowMs {
			startMs, n = at, 0
		}
		if n++; n > limit {
			t.Fatalf("%d calls in the window of %d ms from %d on, with a limit of %d", n, windowMs,
				startMs, limit)
		}
	}
}

// everyWindow checks windows of any length: at most the limit, plus the tokens that came back
// meanwhile.
func everyWindow(t *testing.T, grants []int64, limit, count, periodMs int64) {
	t.Helper()
	for from := range grants {
		for to := from; to < len(grants); to++ {
			lengthMs := grants[to] - grants[from]
			if n := int64(to - from + 1); n > limit+lengthMs*count/periodMs {
				t.Fatalf("%d calls in %d ms, with a limit of %d and %d in %d ms", n, lengthMs,
					limit, count, periodMs)
			}
		}
	}
}
