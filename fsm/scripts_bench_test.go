package fsm

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// The scripts of the benchmark, in the forms that client libraries send.
const (
	slidingScript = `
local now, span, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - span)
local count = redis.call('ZCARD', KEYS[1])
if count < limit then
	redis.call('ZADD', KEYS[1], now, ARGV[4])
	redis.call('PEXPIRE', KEYS[1], span)
	return {1, limit - count - 1}
end
return {0, 0}`

	// the window of testdata/bench
	timedScript = `
local key, width, limit = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', key, 0, now - width)
if redis.call('ZCARD', key) >= limit then return 0 end
redis.call('ZADD', key, now, ARGV[3])
redis.call('PEXPIRE', key, width / 1000)
return 1`

	deleteScript = `
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("del", KEYS[1])
else
	return 0
end`

	reenterScript = `
if (redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
	redis.call('hincrby', KEYS[1], ARGV[2], 1);
	redis.call('pexpire', KEYS[1], ARGV[1]);
	return nil;
end;
return redis.call('pttl', KEYS[1]);`

	leaveScript = `
if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then
	return nil;
end;
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
if (counter > 0) then
	redis.call('pexpire', KEYS[1], ARGV[2]);
	return 0;
else
	redis.call('del', KEYS[1]);
	redis.call('publish', KEYS[2], ARGV[1]);
	return 1;
end;
return nil;`
)

// BenchmarkApplyScripts applies entries of scripts on 100 keys, as a follower does: without
// replies. An operation is one request; an entry has 24 of them.
func BenchmarkApplyScripts(b *testing.B) {
	const perEntry = 24
	newScripts := func() (m *Machine, sha func(source string) string) {
		node := newScriptNode()
		ask(b, node, "FUNCTION", "LOAD", "#!lua name=locks\nredis.register_function('release', "+
			"function(KEYS, ARGV)"+deleteScript+"\nend)")
		return node.node.machine, func(source string) string {
			return ask(b, node, "SCRIPT", "LOAD", source).Text
		}
	}
	for _, c := range []struct {
		name string
		make func(sha func(string) string) func(i int) []string
	}{
		// a window of 50 calls a key: each call removes one and adds one
		{"window", func(sha func(string) string) func(i int) []string {
			window := sha(slidingScript)
			return func(i int) []string {
				now := 1_700_000_000_000 + i/100
				return []string{"EVALSHA", window, "1", "window:" + strconv.Itoa(i%100),
					strconv.Itoa(now), "50", "100", fmt.Sprintf("%d-%016x", now, i)}
			}
		}},
		// 200 calls a second for each key, in a window of a second
		{"window by TIME", func(sha func(string) string) func(i int) []string {
			window := sha(timedScript)
			return func(i int) []string {
				return []string{"EVALSHA", window, "1", "window:" + strconv.Itoa(i*7919%100),
					"1000000", "10000", strconv.Itoa(i%50) + ":" + strconv.Itoa(i/50)}
			}
		}},
		{"lock+delete", func(sha func(string) string) func(i int) []string {
			release := sha(deleteScript)
			return func(i int) []string {
				key, owner := "lock:"+strconv.Itoa(i/2%100), fmt.Sprintf("%032x", i/2)
				if i%2 == 0 {
					return []string{"SET", key, owner, "NX", "PX", "30000"}
				}
				return []string{"EVALSHA", release, "1", key, owner}
			}
		}},
		{"lock+FCALL", func(func(string) string) func(i int) []string {
			return func(i int) []string {
				key, owner := "lock:"+strconv.Itoa(i/2%100), fmt.Sprintf("%032x", i/2)
				if i%2 == 0 {
					return []string{"SET", key, owner, "NX", "PX", "30000"}
				}
				return []string{"FCALL", "release", "1", key, owner}
			}
		}},
		{"reentrant", func(sha func(string) string) func(i int) []string {
			enter, leave := sha(reenterScript), sha(leaveScript)
			return func(i int) []string {
				key := "{lock:" + strconv.Itoa(i/2%100) + "}"
				owner := fmt.Sprintf("%08x-4af3-11ee-be56-0242ac120002:%d", i/2, i/2%100)
				if i%2 == 0 {
					return []string{"EVALSHA", enter, "1", key, "30000", owner}
				}
				return []string{"EVALSHA", leave, "2", key, "redisson_lock__channel:" + key, "0",
					"30000", owner}
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m, sha := newScripts()
			request := c.make(sha)
			entries := make([]*Entry, b.N/perEntry+1)
			for i := range entries {
				e := &Entry{ClockMs: int64(2 + i*12/10), WallUs: int64(1200 * i)}
				for j := range perEntry {
					e.Batches = append(e.Batches, commands.AppendRequest(nil, &commands.Request{
						Proto: 2,
						Cmds:  [][][]byte{commandtest.Args(request(i*perEntry + j)...)}}))
				}
				entries[i] = e
			}
			index := m.index
			b.ReportAllocs()
			b.ResetTimer()
			for _, e := range entries {
				index++
				if _, err := m.Apply(index, e, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
