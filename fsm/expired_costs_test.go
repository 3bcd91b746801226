//go:build linux

// What commands take where elements have expired and are not swept yet, and where collections that
// are copied get their large form.

package fsm

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
)

// expiringData makes sets of many members, and many sets and hashes, of which all but a few have
// expired in the second entry from then on.
func expiringData() (data [][]string) {
	const batches, source = 20, `local members = {}
for i = 1, 2000 do members[i] = ARGV[1] .. ':' .. i end
for _, key in ipairs({'s1', 's2'}) do
	redis.call('saddex', key, 'px', 1, 'members', 2000, unpack(members))
	redis.call('sadd', key, key, 'stays')
end
for i = 1, 500 do
	redis.call('saddex', 's' .. members[i], 'px', 1, 'members', 1, 'm')
	redis.call('hsetex', 'h' .. members[i], 'px', 1, 'fields', 1, 'f', 'v')
end`
	for i := range batches {
		data = append(data, []string{"EVAL", source, "0", strconv.Itoa(i)})
	}
	return data
}

// growingData makes collections of the small form, as large as they may be.
const growingData = `for i = 1, 512 do
	redis.call('sadd', 'integers', i) redis.call('hset', 'hash', i, 'v')
	if i <= 128 then redis.call('sadd', 'names', 'n' .. i) redis.call('zadd', 'scores', i, i) end
end`

// TestWhatDoesNotShowIsChargedForItsTime measures commands whose time neither their arguments nor
// their replies show.
func TestWhatDoesNotShowIsChargedForItsTime(t *testing.T) {
	detector.Skip(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sets := strings.Repeat("|s1|s2", 4000)
	loop := func(times, calls string) string {
		return "EVAL|for i = 1, " + times + " do " + calls + " end|0"
	}
	copied := func(key, change string) string {
		return loop("500", "redis.call('copy', '"+key+"', 'd', 'replace') redis.call("+change+")")
	}
	for _, state := range []struct {
		data  [][]string
		lines []string
	}{
		{expiringData(), []string{
			"SINTERCARD|8000" + sets, "SDIFFCARD|8000" + sets,
			"SUNIONCARD|8000" + sets + "|LIMIT|1",
			loop("20", "redis.call('dbsize')"), loop("20", "redis.call('keys', 'none')"),
			loop("20", "redis.call('randomkey')"), loop("9000", "redis.call('scard', 's1')"),
		}},
		{[][]string{{"EVAL", growingData, "0"}}, []string{
			copied("integers", "'sadd', 'd', 'x'"), copied("names", "'sadd', 'd', 'x'"),
			copied("hash", "'hset', 'd', 'x', ('v'):rep(65)"),
			copied("scores", "'zadd', 'd', 1, ('v'):rep(65)"),
		}},
	} {
		c := newCostsMachine(t, shortestCall, state.data)
		for _, line := range state.lines {
			c.renew()
			price, took := c.price(commandtest.Args(strings.Split(line, "|")...))
			t.Logf("%5.1f times its charge, %v: %.80s", price, took, line)
			if price > mostOfUnit && took >= c.shortest {
				t.Errorf("%.1f times its charge, %v: %.80s", price, took, line)
			}
		}
	}
}
