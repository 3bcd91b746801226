package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/detector"
)

// Who claims gets what there is, however many pending entries were deleted from the stream: these
// leave the group in parts.
func TestClaimsAmongManyDeleted(t *testing.T) {
	detector.Skip(t)
	m := newestMachine(testTable())
	do := func(words ...string) string {
		t.Helper()
		e := &Entry{ClockMs: m.ClockMs() + 1, WallUs: 1, Batches: [][]byte{request(words...)}}
		got := string(mustApply(t, m, m.Index()+1, e, true).Replies[0])
		if strings.HasPrefix(got, "-") {
			t.Fatalf("%s: %s", words[0], got)
		}
		return got
	}
	const parts, part = 10, 20_000
	do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
	for i := range parts {
		do("EVAL", fmt.Sprintf("for i = %d, %d do redis.call('xadd', 's', i .. '-1', 'f', 'v') end",
			i*part+1, (i+1)*part), "0")
		do("XREADGROUP", "GROUP", "g", "dead", "STREAMS", "s", ">")
	}
	do("XTRIM", "s", "MAXLEN", "1")
	do("XADD", "s", "999999-1", "f", "v")
	last := fmt.Sprint(parts*part, "-1")
	claim := []string{"XREADGROUP", "GROUP", "g", "c", "CLAIM", "1", "STREAMS", "s", ">"}
	first := do(claim...)
	for _, id := range []string{last, "999999-1"} {
		if !strings.Contains(first, id) {
			t.Errorf("%s is not delivered: %q", id, first)
		}
	}
	pending := func() (n int) {
		_, _ = fmt.Sscanf(do("XPENDING", "s", "g"), "*4\r\n:%d", &n)
		return n
	}
	for before := parts*part + 1; before > 2; {
		now := pending()
		if now >= before {
			t.Fatalf("%d stay pending", now)
		}
		before = now
		do(claim...)
	}
}
