//go:build linux

// What commands take whose names are long: of a key, a group, or a consumer, which every entry of a
// stream that is pending may copy, compare and hash.

package fsm

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/tier"
)

// longNameCalls are calls with placeholders: key, group and consumer are names, ids many entries
// that are pending, count their number. What follows "…" is repeated as often.
const longNameCalls = `
XADD key MAXLEN 9 DELREF * f v
XADD key MAXLEN 9 ACKED * f v
XTRIM key MAXLEN 9 DELREF
XTRIM key MINID 999999 ACKED
XDEL key ids
XDELEX key DELREF IDS count ids
XDELEX key ACKED IDS count ids
XACK key group ids
XACKDEL key group DELREF IDS count ids
XACKDEL key group ACKED IDS count ids
XNACK key group FAIL IDS count ids
XCLAIM key group consumer 0 ids
XCLAIM key group consumer 0 ids JUSTID
XCLAIM key group other 0 ids
XAUTOCLAIM key group consumer 0 0 COUNT count
XAUTOCLAIM key group other 0 0 COUNT count
XREADGROUP GROUP group consumer STREAMS key >
XREADGROUP GROUP group consumer NOACK STREAMS key >
XREADGROUP GROUP group consumer STREAMS key 0
XREADGROUP GROUP group consumer STREAMS keys zeros
XREADGROUP GROUP group consumer COUNT 1 STREAMS keys news
XPENDING key group - + count consumer
XPENDING key group IDLE 999999 - + count consumer
XINFO STREAM key FULL COUNT 0
XGROUP DELCONSUMER key group consumer
DUMP key
RESTORE d 0 dump
BITFIELD bits … SET u8 9 200 SET u8 9 100
BITFIELD bits … INCRBY i64 #9 1
`

// TestLongNamesAreCharged makes one kind of name long at a time.
func TestLongNamesAreCharged(t *testing.T) {
	detector.Skip(t)
	size, count := 128<<10, 200
	if tier.Checking() {
		size, count = 1<<20, 600
	}
	for _, long := range []string{"key", "group", "consumer"} {
		t.Run(long, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			names := map[string][]string{"key": {"k"}, "bits": {"b"}, "group": {"g"},
				"consumer": {"c"}, "count": {strconv.Itoa(count)}}
			names[long] = []string{strings.Repeat("n", size)}
			if long == "key" {
				names["bits"] = []string{strings.Repeat("m", size)}
			}
			for i := range count {
				names["ids"] = append(names["ids"], fmt.Sprint(i+1, "-1"))
			}
			for range min(count, 16<<20/len(names["key"][0])) {
				names["keys"] = append(names["keys"], names["key"]...)
				names["zeros"] = append(names["zeros"], "0")
				names["news"] = append(names["news"], ">")
			}
			fill := func(line string) (words []string) {
				line, repeated, _ := strings.Cut(line, " … ")
				line += strings.Repeat(" "+repeated, count)
				for _, w := range strings.Fields(line) {
					if named, ok := names[w]; ok {
						words = append(words, named...)
					} else {
						words = append(words, w)
					}
				}
				return words
			}
			script := fmt.Sprintf("for i = 1, %d do "+
				"redis.call('xadd', 's', i .. '-1', 'f', 'v') end", 2*count)
			data := [][]string{{"EVAL", script, "0"}}
			for _, line := range []string{"XGROUP CREATE s group 0", "XGROUP CREATE s z 0",
				"XREADGROUP GROUP group consumer COUNT count STREAMS s >",
				"RENAME s key", "SETRANGE bits 9999 x"} {
				data = append(data, fill(line))
			}
			c := newCostsMachine(t, shortestLong, data)
			reply := mustApply(t, c.Machine, c.Index()+1, &Entry{ClockMs: c.ClockMs() + 1,
				WallUs: 1, Batches: [][]byte{request(fill("DUMP key")...)}}, true).Replies[0]
			_, payload, _ := bytes.Cut(reply, []byte("\r\n"))
			names["dump"] = []string{string(bytes.TrimSuffix(payload, []byte("\r\n")))}
			for line := range strings.Lines(strings.TrimSpace(longNameCalls)) {
				c.renew()
				line = strings.TrimSpace(line)
				price, took := c.price(commandtest.Args(fill(line)...))
				t.Logf("%5.1f times its charge, %v: %s", price, took, line)
				if price > mostOfUnit && took >= c.shortest {
					t.Errorf("%.1f times its charge, %v: %s", price, took, line)
				}
			}
		})
	}
}

// TestTrimsOfManyGroups trims nothing, or one entry, of a stream with many groups: each walks them.
func TestTrimsOfManyGroups(t *testing.T) {
	detector.Skip(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	data := [][]string{{"EVAL", `redis.call('xadd', 'x', '1-1', 'f', 'v')
for i = 1, 5000 do redis.call('xgroup', 'create', 'x', 'g' .. i, '$')
	redis.call('xgroup', 'create', 'empty', 'g' .. i, '$', 'mkstream') end`, "0"}}
	c := newCostsMachine(t, shortestLong, data)
	for _, line := range []string{
		"XADD x MAXLEN 99 ACKED * f v", "XADD x MAXLEN 99 DELREF * f v",
		"XADD x MINID 0 ACKED * f v", "XADD x MAXLEN 1 ACKED * f v",
		"XADD empty MAXLEN 0 ACKED * f v", "XADD empty MAXLEN 9 DELREF * f v",
		"XTRIM x MAXLEN 99 ACKED", "XTRIM x MINID 0 DELREF",
	} {
		c.renew()
		price, took := c.price(commandtest.Args(strings.Fields(line)...))
		t.Logf("%5.1f times its charge, %v: %s", price, took, line)
		if price > mostOfUnit && took >= c.shortest {
			t.Errorf("%.1f times its charge, %v: %s", price, took, line)
		}
	}
}
