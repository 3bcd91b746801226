// Strings and keys where scenarios do not suffice: fencing tokens, iteration, clocks ahead of the
// keyspace, and the cost of SET.

package commands

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/keyspace"
)

// bench is a keyspace with a table that runs commands, each in an entry.
type bench struct {
	t     testing.TB
	table *Table
	env   *Env
	index uint64
}

func newBench(t testing.TB) *bench {
	return &bench{t: t, table: testTable(),
		env: &Env{Keyspace: keyspace.New(), ClockMs: 1000, WallUs: 1_700_000_000_000_000}}
}

// run runs a command in its own entry and returns its RESP2 reply.
func (b *bench) run(words ...string) string {
	b.index++
	b.env.Keyspace.Begin(b.env.ClockMs, keyspace.NewRevision(0, b.index, 0))
	defer b.env.Keyspace.End()
	return b.call(words...)
}

func (b *bench) call(words ...string) string {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	out := &RESP{Proto: 2}
	b.table.Run(&Call{Env: b.env, Tx: &Tx{Proto: 2}, Args: args, Out: out})
	return string(out.Buf)
}

// fence returns the key's fencing token.
func (b *bench) fence(key string) (n int64) {
	b.t.Helper()
	if _, err := fmt.Sscanf(b.run("FENCE", key), ":%d\r\n", &n); err != nil {
		b.t.Fatalf("FENCE %s: %v", key, err)
	}
	return n
}

// At the first level a holder's token stays while the key exists, whatever changes it, and the next
// holder's is larger.
func TestFence(t *testing.T) {
	b := newBench(t)
	last := int64(0)
	for _, take := range [][]string{
		{"SET", "lock", "1", "NX", "PX", "10"}, {"SET", "lock", "1"}, {"SETNX", "lock", "1"},
		{"HSET", "lock", "me", "1"}, {"INCR", "lock"},
		{"GETSET", "lock", "1"}, {"APPEND", "lock", "1"}, {"MSET", "lock", "1"},
		{"SET", "lock", "1", "IFNE", "x"}, {"SETEX", "lock", "10", "1"},
		{"RENAME", "other", "lock"}, {"COPY", "other", "lock"},
	} {
		b.run("SET", "other", "1")
		b.run(take...)
		token := b.fence("lock")
		if token <= last {
			t.Errorf("%v: token %d after %d", take, token, last)
		}
		for _, keep := range [][]string{
			{"PEXPIRE", "lock", "20"}, {"PERSIST", "lock"}, {"GET", "lock"},
			{"HINCRBY", "lock", "me", "1"}, {"APPEND", "lock", "0"}, {"INCR", "lock"},
			{"SET", "lock", "2", "XX", "KEEPTTL"}, {"SET", "lock", "3", "PX", "50"},
			{"SET", "lock", "4", "NX"}, {"GETEX", "lock", "PX", "60"},
		} {
			b.run(keep...)
			if got := b.fence("lock"); got != token {
				t.Errorf("%v then %v: token %d became %d", take, keep, token, got)
			}
		}
		last = token
		b.run("DEL", "lock")
	}
	b.run("SET", "lock", "1", "PX", "10")
	token := b.fence("lock")
	b.env.ClockMs += 11
	b.run("SET", "lock", "1", "NX", "PX", "10")
	if got := b.fence("lock"); got <= token {
		t.Errorf("the holder after an expiry has token %d, the one before had %d", got, token)
	}
	for _, take := range [][]string{{"RENAME", "other", "lock"},
		{"COPY", "other", "lock", "REPLACE"}} {
		token := b.fence("lock")
		b.run("SET", "other", "1")
		b.run(take...)
		if got := b.fence("lock"); got <= token {
			t.Errorf("%v over a key with token %d gave %d", take, token, got)
		}
	}
	for _, end := range [][]string{{"FLUSHALL"}, {"FLUSHDB"}, {"FLUSHALL", "ASYNC"},
		{"GETDEL", "lock"}} {
		b.run("SET", "lock", "1")
		token := b.fence("lock")
		b.run(end...)
		if got := b.run("EXISTS", "lock"); got != ":0\r\n" {
			t.Fatalf("%v: EXISTS %q", end, got)
		}
		b.run("SET", "lock", "2", "NX", "PX", "10")
		if got := b.fence("lock"); got <= token {
			t.Errorf("after %v the token is %d, before it was %d", end, got, token)
		}
	}
}

// Who overwrites a lock with another value is its new holder, from LevelSecond on. The same value
// renews, and what edits a value keeps its holder.
func TestFenceOfTakeovers(t *testing.T) {
	for _, c := range []struct{ lock, call, token string }{
		{"SET lock a NX PX 100", "GETSET lock b", "new"},
		{"SET lock a NX PX 100", "SET lock b", "new"},
		{"SET lock a NX PX 100", "SET lock b GET", "new"},
		{"SET lock a NX PX 100", "SET lock b PX 200", "new"},
		{"SET lock a NX PX 100", "SET lock b XX KEEPTTL", "new"},
		{"SET lock a NX PX 100", "SET lock b IFEQ a PX 200", "new"},
		{"SET lock a NX PX 100", "SET lock b IFNE b PX 200", "new"},
		{"SET lock a NX PX 100", "SETEX lock 2 b", "new"},
		{"SET lock a NX PX 100", "PSETEX lock 200 b", "new"},
		{"SET lock a NX PX 100", "MSET lock b", "new"},
		{"SET lock a NX PX 100", "MSETEX 1 lock b XX PX 200", "new"},
		{"SET lock a NX PX 100", "BITOP NOT lock lock", "new"},
		{"SET lock a NX PX 100", "SORT other STORE lock", "new"},
		{"HSET lock a 1", "SET lock a", "new"},
		{"SADD lock a", "SUNIONSTORE lock other", "new"},
		{"SET lock a NX PX 100", "SET lock a XX PX 200", "same"},
		{"SET lock a NX PX 100", "SET lock a IFEQ a PX 200", "same"},
		{"SET lock a NX PX 100", "SET lock a", "same"},
		{"SET lock a NX PX 100", "GETSET lock a", "same"},
		{"SET lock a NX PX 100", "SET lock b NX PX 200", "same"},
		{"SET lock a NX PX 100", "SET lock b IFEQ b PX 200", "same"},
		{"SET lock a NX PX 100", "PEXPIRE lock 200", "same"},
		{"SET lock a NX PX 100", "PERSIST lock", "same"},
		{"SET lock a NX PX 100", "APPEND lock b", "same"},
		{"SET lock a NX PX 100", "SETRANGE lock 0 b", "same"},
		{"SET lock a NX PX 100", "SETBIT lock 0 1", "same"},
		{"SET lock 1 NX PX 100", "INCR lock", "same"},
		{"SET lock 1 NX PX 100", "INCRBYFLOAT lock 0.5", "same"},
		{"HSET lock a 1", "HINCRBY lock a 1", "same"},
		{"HSET lock a 1", "HSET lock b 1", "same"},
	} {
		for level := uint64(LevelFirst); level <= FeatureLevel; level++ {
			b := newBench(t)
			b.env.Level = level
			b.run("SADD", "other", "1")
			b.run(strings.Fields(c.lock)...)
			before := b.fence("lock")
			if reply := b.run(strings.Fields(c.call)...); reply[0] == '-' {
				if level >= LevelSecond {
					t.Errorf("%s: %s", c.call, reply)
				}
				continue // a command of a later level
			}
			after := b.fence("lock")
			if isNew := c.token == "new" && level >= LevelSecond; isNew != (after > before) ||
				!isNew && after != before {
				t.Errorf("level %d, %s, %s: token %d and then %d, want a %s one", level, c.lock,
					c.call, before, after, c.token)
			}
		}
	}
}

func TestScanGivesEveryKeyOnce(t *testing.T) {
	b := newBench(t)
	const n = 1000
	for i := range n {
		b.run("SET", fmt.Sprint("key:", i), "v")
	}
	for _, options := range [][]string{nil, {"COUNT", "1"}, {"COUNT", "7", "MATCH", "key:*"},
		{"TYPE", "string"}, {"COUNT", "100000"}} {
		cursor, seen := "0", map[string]int{}
		for steps := 0; ; steps++ {
			lines := strings.Split(b.run(append([]string{"SCAN", cursor}, options...)...), "\r\n")
			cursor = lines[2]
			for i := 5; i < len(lines); i += 2 {
				seen[lines[i]]++
			}
			if cursor == "0" {
				break
			}
			if steps > n {
				t.Fatalf("SCAN %v does not end", options)
			}
		}
		for i := range n {
			if seen[fmt.Sprint("key:", i)] != 1 {
				t.Fatalf("SCAN %v gave key %d %d times", options, i, seen[fmt.Sprint("key:", i)])
			}
		}
	}
}

func TestRandomKeyGoesOnInOneEntry(t *testing.T) {
	picks := func(seed uint64) []string {
		b := newBench(t)
		for i := range 100 {
			b.run("SET", fmt.Sprint("key:", i), "v")
		}
		b.env.Seed = seed
		var got []string
		for range 20 {
			got = append(got, b.call("RANDOMKEY")) // a read: not in an entry
		}
		return got
	}
	first := picks(1)
	if !slices.Equal(first, picks(1)) {
		t.Error("the same seed gives other keys")
	}
	if slices.Equal(first, picks(2)) {
		t.Error("another seed gives the same keys")
	}
	if slices.Sort(first); len(slices.Compact(first)) < 10 {
		t.Errorf("twenty picks of a hundred keys gave %d", len(slices.Compact(first)))
	}
}

// A read's clocks may be later than what the keyspace has seen, and the wall may have jumped
// against the cluster clock.
func TestTTLSeenByOtherClocks(t *testing.T) {
	b := newBench(t)
	b.run("SET", "a", "1", "PX", "100")
	b.run("SET", "end", "1", "PXAT", fmt.Sprint(int64(math.MaxInt64)))
	for _, c := range []struct {
		clockMs, wallUs int64
		call, want      string
	}{
		{1040, 1_700_000_000_040_000, "PTTL a", ":60\r\n"},
		{1040, 1_700_000_000_040_000, "PEXPIRETIME a", ":1700000000100\r\n"},
		{1100, 0, "PTTL a", ":0\r\n"},
		{9999, 0, "PTTL a", ":0\r\n"},
		{9999, 0, "TTL a", ":0\r\n"},
		{9999, 0, "GET a", "$1\r\n1\r\n"}, // it exists until an entry says otherwise
		{9999, 0, "PEXPIRETIME a", ":0\r\n"},
		{9999, 0, "EXPIRETIME a", ":0\r\n"},
		{1000, 1_700_000_000_000_000, "PEXPIRETIME end", ":9223372036854775807\r\n"},
		{1000, 1_800_000_000_000_000, "PEXPIRETIME end", ":9223372036854775807\r\n"},
		{1000, 1_800_000_000_000_000, "EXPIRETIME end", ":9223372036854776\r\n"},
		{1000, 1_800_000_000_000_000, "PEXPIRETIME a", ":1800000000100\r\n"},
	} {
		b.env.ClockMs, b.env.WallUs = c.clockMs, c.wallUs
		if got := b.call(strings.Fields(c.call)...); got != c.want {
			t.Errorf("clock %d wall %d: %s is %q, want %q", c.clockMs, c.wallUs, c.call, got,
				c.want)
		}
	}
}

// setNXPX returns the call that takes a lock, to be run repeatedly.
func setNXPX(b *bench, key string) *Call {
	args := [][]byte{[]byte("SET"), []byte(key), []byte("owner"), []byte("NX"), []byte("PX"),
		[]byte("10000")}
	b.env.Keyspace.Begin(b.env.ClockMs, keyspace.NewRevision(0, 1, 0))
	return &Call{Env: b.env, Tx: &Tx{Proto: 2}, Args: args, Out: Discard{}}
}

// Refusing a lock allocates nothing; granting one allocates its key, entry and value.
func TestSetAllocatesWhatItKeeps(t *testing.T) {
	b := newBench(t)
	x := setNXPX(b, "lock")
	b.table.Run(x)
	if n := testing.AllocsPerRun(100, func() { b.table.Run(x) }); n != 0 {
		t.Errorf("a refused SET NX PX allocates %v times", n)
	}
	var o setOptions
	if n := testing.AllocsPerRun(100, func() { _ = o.parse(x.Args[3:]) }); n != 0 {
		t.Errorf("parsing allocates %v times", n)
	}
	// Besides: the nodes of two trees that are made and emptied again.
	if n := testing.AllocsPerRun(100, func() {
		b.env.Keyspace.DB(0).Delete(x.Args[1])
		b.table.Run(x)
	}); n > 8 {
		t.Errorf("a SET NX PX that is done allocates %v times", n)
	}
}

func BenchmarkSetNXPXTaken(b *testing.B) {
	h := newBench(b)
	x := setNXPX(h, "lock:000000")
	for i := 0; b.Loop(); i++ {
		copy(x.Args[1][5:], fmt.Appendf(nil, "%06d", i%1_000_000))
		h.env.Keyspace.DB(0).Delete(x.Args[1])
		h.table.Run(x)
	}
}

func BenchmarkSetNXPXRefused(b *testing.B) {
	h := newBench(b)
	x := setNXPX(h, "lock")
	for b.Loop() {
		h.table.Run(x)
	}
}
