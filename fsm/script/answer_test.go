package script

import (
	"runtime"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
)

// The reply to a table is built in one buffer of its size. A growing buffer peaks at three times
// that and allocates five times as much.
func TestRepliesOfTablesAreBuiltOnce(t *testing.T) {
	detector.Skip(t)
	long := strings.Repeat("x", 1<<20)
	for source, own := range map[string]int{ // what the script allocates, approximately; 0: unknown
		`local t = {} for i = 1, 60 do t[i] = ARGV[1] end return t`:                              2 << 20,
		`local t = {} for i = 1, 3e5 do t[i] = 1e15 + i end return t`:                            0,
		`local t = {} for i = 1, 3e4 do t[i] = {tostring(i), {ok = "fine"}, false} end return t`: 0,
		`redis.setresp(3) local t = {} for i = 1, 3e4 do t["key" .. i] = {double = i / 7} end
		 return {map = t}`: 0,
	} {
		for _, proto := range []int{2, 3} {
			n := newNode()
			n.proto = proto
			if got := n.eval(t, source, "x"); got[0] == '-' { // compiles it
				t.Fatal(got)
			}
			args := commandtest.Args("EVAL", source, "0", long)
			before := allocatedBytes()
			reply, err := n.Do(args)
			got := allocatedBytes() - before
			if err != nil || len(reply) < 1<<19 {
				t.Fatalf("%.60s: %.60q, %v", source, reply, err)
			}
			if size := n.engine.writer.measure.Size(); size != len(reply) {
				t.Errorf("%.60s, RESP%d: %d bytes, counted %d", source, proto, len(reply), size)
			}
			if spare := cap(reply) - len(reply); spare > 64<<10 {
				t.Errorf("%.60s, RESP%d: %d bytes to spare", source, proto, spare)
			}
			// A growing buffer allocates five times the reply's size.
			if own > 0 && got > own+len(reply)*11/10 {
				t.Errorf("%.60s: %d bytes allocated for a reply of %d", source, got, len(reply))
			}
		}
	}
}

// A reply that does not fit is refused before memory is reserved for it.
func TestRepliesThatDoNotFitAreNotReserved(t *testing.T) {
	x := &commands.Call{Out: &commands.RESP{Limit: 1000}}
	x.Reserve(1001)
	if out := x.Out.(*commands.RESP); cap(out.Buf) != 0 {
		t.Errorf("%d bytes", cap(out.Buf))
	}
}

func allocatedBytes() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.TotalAlloc)
}
