//go:build linux

package fsm

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/threadtime"
)

// The first write into a string after a snapshot copies it. That is charged though the same request
// has changed something else of the key before.
func TestCopiesOfStringsAreCharged(t *testing.T) {
	detector.Skip(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const size = 17_000_000
	fill := "for i = 1, 17 do redis.call('append', 'k', string.rep('x', 1000000)) end"
	for _, before := range []string{"EXISTS k", "SETRANGE k 1 z", "APPEND k z", "PEXPIRE k 9",
		"PERSIST k", "GETEX k PERSIST"} {
		m := newestMachine(testTable())
		run := func(script string) Result {
			return mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1,
				Batches: [][]byte{request("EVAL", script, "0")}}, true)
		}
		run(fill)
		least, work := time.Hour, uint64(0)
		for range 3 {
			_ = m.Snapshot()
			run("redis.call('pexpire', 'k', 50000)") // another deadline than before's
			script := "redis.call('" + strings.ReplaceAll(before, " ", "', '") + "') " +
				"return redis.call('setrange', 'k', 5, 'y')"
			from := threadtime.Now()
			r := run(script)
			least, work = min(least, threadtime.Now()-from), r.Spent
			if r.Replies[0][0] != ':' {
				t.Fatalf("%s: %.100q", before, r.Replies[0])
			}
		}
		t.Logf("%s: %v for %d units", before, least, work)
		if work < size/64 {
			t.Errorf("behind %s, %d bytes are copied in %v for %d units", before, size, least, work)
		}
	}
}
