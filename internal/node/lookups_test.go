package node

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestLookupsAreCountedAsByRedis runs reads on this server and on a real one, and compares what
// they count.
func TestLookupsAreCountedAsByRedis(t *testing.T) {
	real := redis.NewClient(&redis.Options{Network: "unix", Addr: commandtest.NeedRedis(t)})
	defer real.Close()
	_, own := startSingle(t, filepath.Join(t.TempDir(), "data"))
	counts := func(c *redis.Client) (hits, misses string) {
		text := c.Info(t.Context(), "stats").Val()
		_, hits, _ = strings.Cut(text, "keyspace_hits:")
		_, misses, _ = strings.Cut(text, "keyspace_misses:")
		hits, _, _ = strings.Cut(hits, "\r\n")
		misses, _, _ = strings.Cut(misses, "\r\n")
		return hits, misses
	}
	if err := real.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"SET a 1", "GET a", "GET no", "MGET a no a", "EXISTS a no a",
		"TTL a", "TYPE no", "OBJECT ENCODING a", "STRLEN a", "HSET h f v", "HGET h f",
		"HGET h no", "HGETALL no", "ZADD z 1 m", "ZRANGE z 0 -1", "ZSCORE no m", "RPUSH l x",
		"LRANGE l 0 -1", "LLEN no", "SADD s m", "SMEMBERS s", "SISMEMBER s no", "SINTER s no",
		"SUNION s s", "KEYS *", "SCAN 0", "DBSIZE", "DUMP a", "XADD x * f v", "XLEN x",
		"XRANGE x - +", "BITCOUNT a", "GETRANGE a 0 -1", "PFCOUNT p", "SET a 2", "DEL no", "INCR a",
		"GET l", "EVAL_RO return{redis.call('get',KEYS[1]),redis.call('get',KEYS[2])} 2 a no"} {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		// either may be an error reply, which both give
		_, wantErr := real.Do(t.Context(), args...).Result()
		_, err := own.Do(t.Context(), args...).Result()
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, want %v", line, err, wantErr)
		}
		hits, misses := counts(own)
		if wantHits, wantMisses := counts(real); hits != wantHits || misses != wantMisses {
			t.Fatalf("%s: %s hits and %s misses, want %s and %s", line, hits, misses, wantHits,
				wantMisses)
		}
	}
}

// TestMeanTTL reads the average time to live of keys.
func TestMeanTTL(t *testing.T) {
	_, c := startSingle(t, filepath.Join(t.TempDir(), "data"))
	for _, line := range []string{"SET a 1", "SET b 1 PX 100000", "SET c 1 PX 300000",
		"SET d 1 PX 1", "SET e 1 PX 5000000", "DEL e", "SET f 1 PX 9000000", "PERSIST f"} {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(line, err)
		}
	}
	wait.For(t, 10*time.Second, "d to expire", func() bool {
		v := c.InfoMap(t.Context(), "keyspace").Item("Keyspace", "db0")
		text, ok := strings.CutPrefix(v, "keys=4,expires=2,avg_ttl=")
		if ttl, err := strconv.Atoi(text); ok && (err != nil || ttl <= 150_000 || ttl > 200_000) {
			t.Error(v)
		}
		return ok
	})
}

// TestScriptCallsAreCountedAsByRedis runs scripts on this server and on a real one, and compares
// what they count of the commands called. Repeated scripts that change nothing run dry.
func TestScriptCallsAreCountedAsByRedis(t *testing.T) {
	real := redis.NewClient(&redis.Options{Network: "unix", Addr: commandtest.NeedRedis(t)})
	defer real.Close()
	_, own := startSingle(t, filepath.Join(t.TempDir(), "data"))
	times := regexp.MustCompile(`usec=\d+,usec_per_call=\d+\.\d\d,`)
	stats := func(c *redis.Client) string {
		var lines []string
		text := times.ReplaceAllString(c.Info(t.Context(), "commandstats").Val(), "")
		for line := range strings.SplitSeq(text, "\r\n") {
			for _, ours := range []string{"ev", "fu", "get", "in", "lpush", "object", "se", "su"} {
				if strings.HasPrefix(line, "cmdstat_"+ours) && !strings.Contains(line, "_info") {
					lines = append(lines, line)
				}
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if err := real.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	check := func(script string, keys ...string) {
		t.Helper()
		for _, c := range []*redis.Client{real, own} {
			args := []any{"EVAL", script, len(keys)}
			for _, k := range keys {
				args = append(args, k)
			}
			_ = c.Do(t.Context(), args...).Err() // either may be an error reply
		}
		if got, want := stats(own), stats(real); got != want {
			t.Fatalf("%s:\n%s\nwant\n%s", script, got, want)
		}
	}
	check("redis.call('set', KEYS[1], 1) return redis.call('get', KEYS[1])", "a")
	check("redis.pcall('get') redis.pcall('lpush', KEYS[1], 'x') redis.pcall('subscribe', 'a')",
		"a")
	check("redis.pcall('nosuch') redis.pcall('object', 'encoding', KEYS[1])", "a")
	check("redis.call('incr', KEYS[1]) redis.call('lpush', KEYS[1], 1)", "a")
	check("#!lua flags=no-writes\nreturn redis.pcall('set', KEYS[1], 1)", "a")
	lock := "if redis.call('set', KEYS[1], 1, 'nx') then return 1 end " +
		"return redis.call('get', KEYS[1])"
	for range 10 {
		check(lock, "a")
	}
	check("redis.call('setex', KEYS[1], 100, 1) for i = 1, 100 do redis.call('get', KEYS[1]) end",
		"b")
	if took := own.Info(t.Context(), "commandstats").Val(); !regexp.MustCompile(
		`cmdstat_get:calls=\d+,usec=[1-9]`).MatchString(took) {
		t.Errorf("no time: %s", took)
	}
	own.ConfigResetStat(t.Context())
	if got := stats(own); got != "" {
		t.Errorf("after CONFIG RESETSTAT: %s", got)
	}
}
