// Imports from a real redis-server, compared key by key.

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// startSource starts a redis-server and returns its URL and a client of one of its databases.
func startSource(t *testing.T) (url string, db func(int) *redis.Client) {
	t.Helper()
	socket := commandtest.NeedRedis(t)
	return "unix://" + socket, func(n int) *redis.Client {
		c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, DB: n, Protocol: 2})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// databaseOf returns a client of one database of a node.
func databaseOf(t *testing.T, n *process, db int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: n.addr, DB: db, Protocol: 2})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func do(t *testing.T, c *redis.Client, words ...any) any {
	t.Helper()
	v, err := c.Do(context.Background(), words...).Result()
	if err != nil && err != redis.Nil {
		t.Fatal(words, err)
	}
	return v
}

// fillSource writes keys of every type, small and large, with and without a TTL.
func fillSource(t *testing.T, c *redis.Client) {
	t.Helper()
	do(t, c, "SET", "s", "v", "PX", 5_000_000)
	do(t, c, "SET", "empty", "")
	do(t, c, "SET", "binary\x00\r\n\xff", "\x00\r\n\xff")
	do(t, c, "SET", "number", "-17")
	do(t, c, "SET", "large", strings.Repeat("0123456789", 300_000))
	do(t, c, "SETBIT", "exact", 8<<20-1, 1) // exactly as many bytes as a piece
	do(t, c, "PFADD", "hll", "a", "b", "c")
	do(t, c, "HSET", "h", "f", "v", "g", "", "", "no name")
	do(t, c, "RPUSH", "l", "a", "b", "a", "")
	do(t, c, "SADD", "ints", 3, 1, 2, -5)
	do(t, c, "SADD", "set", "a", "b", "\xff")
	do(t, c, "ZADD", "z", "1.5", "x", "-inf", "low", "inf", "high", "0.1", "tenth", "1e300", "far",
		"3", "3")
	do(t, c, "GEOADD", "geo", 13.361389, 38.115556, "Palermo")
	pipe := c.Pipeline()
	ctx := context.Background()
	big := strings.Repeat("x", 200)
	for i := range 3000 {
		pipe.HSet(ctx, "h:large", fmt.Sprint("field", i), big)
		pipe.RPush(ctx, "l:large", fmt.Sprint(i, big))
		pipe.SAdd(ctx, "set:large", fmt.Sprint(i, big))
		pipe.ZAdd(ctx, "z:large", redis.Z{Score: float64(i) / 7, Member: fmt.Sprint(i, big)})
		pipe.Do(ctx, "SET", fmt.Sprint("many:", i), i)
	}
	pipe.PExpire(ctx, "h:large", 4_000_000*time.Millisecond)
	pipe.Do(ctx, "RPUSH", "l:heavy", strings.Repeat("a", 3<<20), "b", strings.Repeat("c", 3<<20))
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	fillStreams(t, c)
}

func fillStreams(t *testing.T, c *redis.Client) {
	for i := range 250 {
		do(t, c, "XADD", "x", fmt.Sprintf("%d-%d", 1000+i/10, i%10+1), "f", i, "g", "")
	}
	do(t, c, "XDEL", "x", "1024-10", "1003-4")
	do(t, c, "XGROUP", "CREATE", "x", "idle", "$")
	do(t, c, "XGROUP", "CREATE", "x", "g", "0")
	do(t, c, "XGROUP", "CREATECONSUMER", "x", "g", "bored")
	do(t, c, "XREADGROUP", "GROUP", "g", "alice", "COUNT", 120, "STREAMS", "x", ">")
	do(t, c, "XREADGROUP", "GROUP", "g", "bob", "COUNT", 20, "STREAMS", "x", ">")
	do(t, c, "XREADGROUP", "GROUP", "g", "bob", "COUNT", 3, "STREAMS", "x", "0")
	do(t, c, "XACK", "x", "g", "1000-1", "1001-1")
	do(t, c, "XDEL", "x", "1000-2") // still pending
	do(t, c, "XADD", "x:emptied", "5-5", "a", "b")
	do(t, c, "XDEL", "x:emptied", "5-5")
	do(t, c, "XGROUP", "CREATE", "x:made", "g", "$", "MKSTREAM")
	do(t, c, "XADD", "x:last", "18446744073709551615-18446744073709551615", "a", "b")
	do(t, c, "PEXPIRE", "x:made", 3_000_000)
}

// each sends one request for every key, all before the first reply is read: a request that waits
// for the reply before it waits for a busy machine's scheduler, too.
func each(t *testing.T, c *redis.Client, keys []string, words func(i int) []any) []any {
	t.Helper()
	pipe := c.Pipeline()
	for i := range keys {
		pipe.Do(t.Context(), words(i)...)
	}
	cmds, _ := pipe.Exec(t.Context()) // each has its own error
	replies := make([]any, len(keys))
	for i, cmd := range cmds {
		v, err := cmd.(*redis.Cmd).Result()
		if err != nil && err != redis.Nil {
			t.Fatal(cmd, err)
		}
		replies[i] = v
	}
	return replies
}

// views returns, for each key, all that a client sees of it, in an order that does not depend on
// the server.
func views(t *testing.T, c *redis.Client, keys []string) [][]any {
	t.Helper()
	kinds := each(t, c, keys, func(i int) []any { return []any{"TYPE", keys[i]} })
	values := each(t, c, keys, func(i int) []any {
		k := keys[i]
		switch kinds[i] {
		case "hash":
			return []any{"HGETALL", k}
		case "list":
			return []any{"LRANGE", k, 0, -1}
		case "set":
			return []any{"SMEMBERS", k}
		case "zset":
			return []any{"ZRANGE", k, 0, -1, "WITHSCORES"}
		case "string":
			return []any{"GET", k}
		}
		return []any{"EXISTS", k}
	})
	sorted := func(v any, width int) any {
		list, _ := v.([]any)
		all := slices.Collect(slices.Chunk(list, width))
		slices.SortFunc(all, func(a, b []any) int {
			return strings.Compare(fmt.Sprint(a[0]), fmt.Sprint(b[0]))
		})
		return all
	}
	seen := make([][]any, len(keys))
	for i, v := range values {
		switch kinds[i] {
		case "hash":
			v = sorted(v, 2)
		case "set":
			v = sorted(v, 1)
		case "stream":
			v = streamView(t, c, keys[i])
		}
		seen[i] = []any{kinds[i], v}
	}
	return seen
}

// streamView omits internals (radix trees) and what depends on the moment (idle times).
func streamView(t *testing.T, c *redis.Client, key string) []any {
	info, err := c.XInfoStream(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	info.RadixTreeKeys, info.RadixTreeNodes = 0, 0
	seen := []any{*info, do(t, c, "XRANGE", key, "-", "+")}
	groups, _ := do(t, c, "XINFO", "GROUPS", key).([]any)
	for _, g := range groups {
		name := g.([]any)[1]
		seen = append(seen, g)
		consumers, _ := do(t, c, "XINFO", "CONSUMERS", key, name).([]any)
		for _, consumer := range consumers {
			seen = append(seen, consumer.([]any)[:4]) // name and number of pending entries
		}
		pending, _ := do(t, c, "XPENDING", key, name, "-", "+", 1000).([]any)
		for _, p := range pending {
			e := p.([]any)
			seen = append(seen, []any{e[0], e[1], e[3]})
		}
	}
	return seen
}

// compareDatabases compares every key of two databases.
func compareDatabases(t *testing.T, want, got *redis.Client) {
	t.Helper()
	ctx := context.Background()
	keys := want.Keys(ctx, "*").Val()
	if n := got.DBSize(ctx).Val(); int(n) != len(keys) {
		t.Errorf("%d keys, the source has %d", n, len(keys))
	}
	ttls := func(i int) []any { return []any{"PTTL", keys[i]} }
	gs, ws := views(t, got, keys), views(t, want, keys)
	gotTTL, wantTTL := each(t, got, keys, ttls), each(t, want, keys, ttls)
	for i, k := range keys {
		if w, g := ws[i], gs[i]; !reflect.DeepEqual(w, g) {
			t.Errorf("%q:\n%.300s\nin the source\n%.300s", k, fmt.Sprint(g...), fmt.Sprint(w...))
		}
		g, w := gotTTL[i].(int64), wantTTL[i].(int64)
		if (w < 0) != (g < 0) || w > 0 && (g > w+5_000 || g < w-30_000) {
			t.Errorf("%q has a TTL of %d ms, in the source %d", k, g, w)
		}
	}
	if len(keys) == 0 {
		t.Error("no keys: the test proves nothing")
	}
}

func TestImport(t *testing.T) {
	url, source := startSource(t)
	fillSource(t, source(0))
	// Otherwise the groups differ by what cannot be copied.
	do(t, source(0), "XACK", "x", "g", "1000-2")
	do(t, source(3), "SET", "three", "3", "PX", 9_000_000)
	do(t, source(15), "HSET", "fifteen", "a", 1)
	n, c := startSingle(t, filepath.Join(t.TempDir(), "data"))
	said := succeed(t, "import", "--from", url, "--to", n.addr)
	for _, line := range []string{"3024 keys of ", "  hash     3\n", "  list     3\n",
		"  set      3\n", "  stream   4\n", "  string   3008\n", "  zset     3\n"} {
		if !strings.Contains(said, line) {
			t.Errorf("output lacks %q: %s", line, said)
		}
	}
	for _, db := range []int{0, 3, 15} {
		compareDatabases(t, source(db), databaseOf(t, n, db))
	}
	// Again: nothing changes, and the target keeps what it has.
	do(t, c, "SET", "s", "mine")
	do(t, c, "DEL", "h:large", "z")
	said = succeed(t, "import", "--from", url, "--to", n.addr)
	if !strings.Contains(said, "2 keys of ") || !strings.Contains(said, "left as they are") ||
		do(t, c, "GET", "s") != "mine" {
		t.Error(said)
	}
	// Now replace existing keys, also of other types.
	do(t, c, "DEL", "x", "set:large", "h")
	do(t, c, "SET", "set:large", "no set")
	do(t, c, "SET", "h", "no hash")
	said = succeed(t, "import", "--from", url, "--to", n.addr, "--replace")
	if strings.Contains(said, "left as they are") {
		t.Error(said)
	}
	compareDatabases(t, source(0), databaseOf(t, n, 0))
}

// TestImportFunctions copies libraries, keeps existing ones, and reports those that cannot be
// loaded.
func TestImportFunctions(t *testing.T) {
	url, source := startSource(t)
	library := func(name string, answer int) string {
		return fmt.Sprintf(
			"#!lua name=%s\nredis.register_function{function_name='%s_f', callback=function() "+
				"return %d end, flags={'no-writes'}}", name, name, answer)
	}
	do(t, source(0), "FUNCTION", "LOAD", library("one", 1))
	do(t, source(0), "FUNCTION", "LOAD", library("two", 2))
	n, c := startSingle(t, filepath.Join(t.TempDir(), "data"))
	do(t, c, "FUNCTION", "LOAD", library("two", 22))
	answers := func(one, two any) {
		t.Helper()
		if got, gotTwo := do(t, c, "FCALL_RO", "one_f", 0),
			do(t, c, "FCALL_RO", "two_f", 0); got != one || gotTwo != two {
			t.Errorf("the functions return %v and %v, want %v and %v", got, gotTwo, one, two)
		}
	}
	said := succeed(t, "import", "--from", url, "--to", n.addr)
	if !strings.Contains(said,
		"1 function libraries copied\n1 function libraries left as they are") {
		t.Error(said)
	}
	answers(int64(1), int64(22))
	if said = succeed(t, "import", "--from", url, "--to", n.addr,
		"--replace"); !strings.Contains(said, "2 function libraries copied\n") {
		t.Error(said)
	}
	answers(int64(1), int64(2))
	do(t, c, "FUNCTION", "FLUSH")
	if said = succeed(t, "import", "--from", url+"?db=0", "--to", n.addr) +
		succeed(t, "import", "--from", url, "--match", "x*", "--to", n.addr); strings.Contains(said,
		"function") {
		t.Error("functions were copied with a part of the keys:", said)
	}
	// the name of another's function
	do(t, c, "FUNCTION", "LOAD", strings.ReplaceAll(library("three", 3), "three_f", "one_f"))
	code, out, errs := command(t, "import", "--from", url, "--to", n.addr)
	if code != 1 ||
		!strings.Contains(out,
			"1 function libraries copied\nfunction library \"one\" not copied: ERR Function "+
				"one_f already exists") || !strings.Contains(errs,
		"function libraries were not copied") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
}

func TestImportSelection(t *testing.T) {
	url, source := startSource(t)
	do(t, source(0), "MSET", "a:1", 1, "a:2", 2, "b:1", 3)
	do(t, source(2), "MSET", "a:3", 1, "b:2", 2)
	for _, c := range []struct {
		from string
		args []string
		keys map[int][]string
	}{
		{url, nil, map[int][]string{0: {"a:1", "a:2", "b:1"}, 2: {"a:3", "b:2"}}},
		{url, []string{"--match", "a:*"}, map[int][]string{0: {"a:1", "a:2"}, 2: {"a:3"}}},
		{url + "?db=2", nil, map[int][]string{2: {"a:3", "b:2"}}},
	} {
		n, _ := startSingle(t, filepath.Join(t.TempDir(), "data"))
		succeed(t, append([]string{"import", "--from", c.from, "--to", n.addr}, c.args...)...)
		for db := range 16 {
			keys := databaseOf(t, n, db).Keys(t.Context(), "*").Val()
			slices.Sort(keys)
			if !slices.Equal(keys, c.keys[db]) {
				t.Errorf("%s %v: database %d has %v, want %v", c.from, c.args, db, keys, c.keys[db])
			}
		}
	}
}

var nameInReply = regexp.MustCompile(`\$\d+\r\n([ks]\d+)\r\n`)

// TestImportWhileKeysGo reads from a source whose keys vanish and change their types: a third after
// SCAN returned their names, and a third after it returned their types.
func TestImportWhileKeysGo(t *testing.T) {
	url, source := startSource(t)
	c := source(0)
	pipe := c.Pipeline()
	var numbers, sets []string
	for i := range 1000 {
		numbers, sets = append(numbers, fmt.Sprint("k", i)), append(sets, fmt.Sprint("s", i))
		pipe.Set(t.Context(), numbers[i], i, 0)
		pipe.SAdd(t.Context(), sets[i], i, "x")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	change := func(keys []string) {
		_, err := c.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
			for _, k := range keys {
				tx.Del(t.Context(), k)
				if k[0] == 's' {
					tx.RPush(t.Context(), k, "now a list")
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	var mu sync.Mutex
	var later []string // changed with the next reply
	addr := proxy(t, "unix", strings.TrimPrefix(url, "unix://"), asItIs,
		func(to io.Writer, b []byte) {
			mu.Lock()
			defer mu.Unlock()
			now := later
			later = nil
			for i, name := range nameInReply.FindAllSubmatch(b, -1) {
				switch i % 3 {
				case 0:
					now = append(now, string(name[1]))
				case 1:
					later = append(later, string(name[1]))
				}
			}
			if len(now) > 0 {
				change(now)
			}
			asItIs(to, b)
		})
	n, d := startSingle(t, filepath.Join(t.TempDir(), "data"))
	said := succeed(t, "import", "--from", "redis://"+addr, "--to", n.addr)
	t.Log(said)
	if !strings.Contains(said, " keys expired or were deleted meanwhile\n") {
		t.Error("no key was deleted meanwhile: the test proves nothing")
	}
	kinds := map[string]int{}
	for i, got := range views(t, d, sets) {
		kinds[fmt.Sprint(got[0])]++
		if g := fmt.Sprint(got); g != fmt.Sprintf("[set [[%d] [x]]]", i) &&
			g != "[list [now a list]]" {
			t.Errorf("%s: %s", sets[i], g)
		}
	}
	there := each(t, c, numbers, func(i int) []any { return []any{"EXISTS", numbers[i]} })
	for i, got := range views(t, d, numbers) {
		kinds[fmt.Sprint(got[0])]++
		if g := fmt.Sprint(got); g != fmt.Sprintf("[string %d]", i) &&
			(g != "[none 0]" || there[i] != int64(0)) {
			t.Errorf("%s: %s", numbers[i], g)
		}
	}
	for _, kind := range []string{"string", "set", "list", "none"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s in the target: the test proves nothing", kind)
		}
	}
}

// lying is a proxy in front of a redis-server. It renames the type of sorted sets to an unknown
// one.
func lying(t *testing.T, socket string) string {
	return proxy(t, "unix", socket, asItIs, func(to io.Writer, b []byte) {
		asItIs(to, bytes.ReplaceAll(b, []byte("+zset\r\n"), []byte("+tree\r\n")))
	})
}

func TestImportNamesWhatItCannotCopy(t *testing.T) {
	url, source := startSource(t)
	do(t, source(0), "SET", "s", "v")
	do(t, source(0), "ZADD", "z:1", 1, "a")
	do(t, source(0), "ZADD", "z:2", 1, "a")
	do(t, source(0), "SET", "huge", strings.Repeat("x", 100<<10))
	do(t, source(0), "RPUSH", "huge:element", strings.Repeat("x", 33<<20))
	n, c := startSingle(t, filepath.Join(t.TempDir(), "data"))
	addr := lying(t, strings.TrimPrefix(url, "unix://"))
	code, out, errs := command(t, "import", "--from", "redis://"+addr, "--to", n.addr)
	for _, want := range []string{"2 keys of ", "3 keys not copied",
		`database 0, "z:1": coordd has no type "tree"`, `database 0, "z:2"`,
		`database 0, "huge:element"`} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("exit %d, output lacks %q: %s%s", code, want, out, errs)
		}
	}
	if !strings.Contains(errs, "3 keys were not copied") {
		t.Error(errs)
	}
	if keys := c.Keys(t.Context(), "*").Val(); len(keys) != 2 {
		t.Error(keys)
	}
}

// TestImportThroughFailover kills the target's leader during an import, and repeats the import
// until it reports that everything is copied.
func TestImportThroughFailover(t *testing.T) {
	tier.Check(t)
	url, source := startSource(t)
	fillSource(t, source(0))
	do(t, source(0), "XACK", "x", "g", "1000-2")
	ps := startProcesses(t, 3)
	lead, rest := leader(t, ps)
	look := rest[1].client()
	var there atomic.Int64 // keys when the leader was killed
	to := proxy(t, "tcp", rest[0].addr, func(to io.Writer, b []byte) {
		keys := int64(0)
		if there.Load() == 0 {
			keys = look.DBSize(context.Background()).Val()
		}
		asItIs(to, b) // and so it may be under way when the leader dies
		if keys >= 500 && there.CompareAndSwap(0, keys) {
			lead.kill()
		}
	}, asItIs)
	runs := 1
	for ; runs <= 5; runs++ {
		code, out, errs := command(t, "import", "--from", url, "--to", to)
		t.Logf("exit %d, %s%s", code, out, errs)
		if n, all := there.Load(), source(0).DBSize(t.Context()).Val(); n == 0 || n >= all {
			t.Fatalf("the leader was killed when %d of %d keys were there (0: it was not)", n, all)
		}
		if code == 0 {
			break
		}
	}
	if runs > 5 {
		t.Fatal("no import succeeded")
	}
	c := redis.NewClient(&redis.Options{Addr: rest[1].addr, Protocol: 2})
	defer c.Close()
	// what a broken run left expires
	for _, k := range c.Keys(t.Context(), "coordd:import:*").Val() {
		if c.PTTL(t.Context(), k).Val() <= 0 {
			t.Errorf("%s is never removed", k)
		}
		c.Del(t.Context(), k)
	}
	compareDatabases(t, source(0), c)
}

// TestImportFromCoordd copies what only coordd, or a newer Redis than Debian's, has: fields and
// members with a TTL, pending entries that XNACK released, and how long a stream remembers its
// producers.
func TestImportFromCoordd(t *testing.T) {
	from, c := startSingle(t, filepath.Join(t.TempDir(), "from"))
	do(t, c, "HSET", "h", "a", 1, "b", 2, "c", 3)
	do(t, c, "HPEXPIRE", "h", 600_000, "FIELDS", 2, "a", "c")
	do(t, c, "HSET", "plain", "a", 1)
	do(t, c, "SADD", "s", "a", "b", "c")
	do(t, c, "SPEXPIRE", "s", 600_000, "MEMBERS", 2, "a", "c")
	do(t, c, "XADD", "x", "1-1", "a", "b")
	do(t, c, "XGROUP", "CREATE", "x", "g", "0")
	do(t, c, "XREADGROUP", "GROUP", "g", "me", "STREAMS", "x", ">")
	do(t, c, "XDEL", "x", "1-1")
	for id := range 3 {
		do(t, c, "XADD", "given", fmt.Sprint(id+1, "-1"), "a", "b")
	}
	do(t, c, "XGROUP", "CREATE", "given", "g", "0")
	do(t, c, "XREADGROUP", "GROUP", "g", "me", "STREAMS", "given", ">")
	do(t, c, "XNACK", "given", "g", "FAIL", "IDS", 2, "1-1", "3-1", "RETRYCOUNT", 7)
	do(t, c, "XDEL", "given", "3-1")
	do(t, c, "XCFGSET", "given", "IDMP-MAXSIZE", 500)
	to, d := startSingle(t, filepath.Join(t.TempDir(), "to"))
	said := succeed(t, "import", "--from", "redis://"+from.addr+"/0", "--to", to.addr)
	if !strings.Contains(said, "2 pending entries of consumer groups left out") {
		t.Error(said)
	}
	pending := fmt.Sprint(do(t, d, "XPENDING", "given", "g", "-", "+", 9))
	if !strings.HasPrefix(pending, "[[1-1  -1 7] [2-1 me ") || strings.Contains(pending, "3-1") {
		t.Error(pending)
	}
	consumers := do(t, d, "XINFO", "CONSUMERS", "given", "g").([]any)
	info := fmt.Sprint(do(t, d, "XINFO", "STREAM", "given"))
	if len(consumers) != 1 || !strings.Contains(info, "idmp-maxsize:500") {
		t.Error(consumers, info)
	}
	for _, ask := range [][]any{{"HPTTL", "h", "FIELDS"}, {"SPTTL", "s", "MEMBERS"}} {
		lives := do(t, d, append(ask, 3, "a", "b", "c")...).([]any)
		if a, c := lives[0].(int64), lives[2].(int64); a <= 0 || a > 600_000 || c <= 0 ||
			c > 600_000 || lives[1] != int64(-1) {
			t.Error(ask, lives)
		}
	}
	if v := d.SMembers(t.Context(), "s").Val(); len(v) != 3 {
		t.Error(v)
	}
	if v := d.HGetAll(t.Context(), "h").Val(); !maps.Equal(v,
		map[string]string{"a": "1", "b": "2", "c": "3"}) {
		t.Error(v)
	}
	if v := do(t, d, "TYPE", "x"); v != "stream" {
		t.Error(v)
	}
}

// TestImportWhileElementsExpire reads from a source whose elements vanish after a scan returned
// them, or are in their last millisecond when it is asked for their TTLs.
func TestImportWhileElementsExpire(t *testing.T) {
	from, c := startSingle(t, filepath.Join(t.TempDir(), "from"))
	do(t, c, "SADD", "s", "member", "stays")
	do(t, c, "HSET", "h", "field", 1, "stays", 2)
	do(t, c, "SADDEX", "all", "PX", 600_000, "MEMBERS", 1, "only")
	do(t, c, "SADDEX", "brief", "PX", 123_456_789, "MEMBERS", 1, "m")
	last := regexp.MustCompile(`\*1\r\n:1234\d{5}\r\n`)
	var lasts atomic.Int32
	addr := proxy(t, "tcp", from.addr, asItIs, func(to io.Writer, b []byte) {
		switch {
		case bytes.Contains(b, []byte("member")):
			c.SRem(t.Context(), "s", "member")
		case bytes.Contains(b, []byte("field")):
			c.HDel(t.Context(), "h", "field")
		case bytes.Contains(b, []byte("only")):
			c.SRem(t.Context(), "all", "only")
		case last.Match(b) && lasts.Add(1) == 1:
			b = last.ReplaceAllLiteral(b, []byte("*1\r\n:0\r\n"))
		}
		asItIs(to, b)
	})
	to, d := startSingle(t, filepath.Join(t.TempDir(), "to"))
	said := succeed(t, "import", "--from", "redis://"+addr+"/0", "--to", to.addr)
	if n := lasts.Load(); n != 2 {
		t.Errorf("%d answers of a last millisecond: the test proves nothing", n)
	}
	if !strings.Contains(said, "1 keys expired or were deleted meanwhile") {
		t.Error(said)
	}
	if v := d.SMembers(t.Context(), "s").Val(); !slices.Equal(v, []string{"stays"}) {
		t.Error(v)
	}
	if v := d.HGetAll(t.Context(), "h").Val(); !maps.Equal(v, map[string]string{"stays": "2"}) {
		t.Error(v)
	}
	if keys := d.Keys(t.Context(), "*").Val(); len(keys) != 3 {
		t.Error(keys)
	}
}

// A node of a Redis Cluster has a part of the keys, and a Sentinel none: neither may look like
// success.
func TestImportFromClusterAndSentinel(t *testing.T) {
	tier.Check(t)
	to, c := startSingle(t, filepath.Join(t.TempDir(), "to"))
	var first *redis.Client
	for i, port := range freePorts(t, 2) {
		bus := freePorts(t, 1)[0]
		socket := commandtest.NeedRedis(t, "--cluster-enabled", "yes", "--bind", "127.0.0.1",
			"--port", fmt.Sprint(port), "--cluster-port", fmt.Sprint(bus),
			"--cluster-require-full-coverage", "no")
		node := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: 2})
		t.Cleanup(func() { _ = node.Close() })
		do(t, node, "CLUSTER", "ADDSLOTSRANGE", 8192*i, 8192*i+8191)
		do(t, node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		says := func(line string) {
			wait.For(t, 20*time.Second, line, func() bool {
				return strings.Contains(node.ClusterInfo(t.Context()).Val(), line)
			})
		}
		says("cluster_state:ok")
		if i == 0 {
			first = node
			do(t, node, "SET", "{06S}", "slot 0")
			said := succeed(t, "import", "--from", "unix://"+socket, "--to", to.addr)
			if strings.Contains(said, "each of its masters") {
				t.Errorf("the only node: %s", said)
			}
			continue
		}
		do(t, first, "CLUSTER", "MEET", "127.0.0.1", port, bus)
		says("cluster_size:2")
		said := succeed(t, "import", "--from", "unix://"+socket, "--to", to.addr)
		if !strings.Contains(said, "is a node of a Redis Cluster: import each of its masters") {
			t.Errorf("one of two nodes: %s", said)
		}
	}
	if got := do(t, c, "GET", "{06S}"); got != "slot 0" {
		t.Error(got)
	}

	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(conf, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePorts(t, 1)[0]
	sentinel := exec.CommandContext(t.Context(), "redis-server", conf, "--sentinel", "--bind",
		"127.0.0.1", "--port", fmt.Sprint(port))
	if err := sentinel.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sentinel.Wait() })
	addr := loopback(port)
	asked := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = asked.Close() })
	wait.For(t, 20*time.Second, "the Sentinel to answer", func() bool {
		return asked.Ping(t.Context()).Err() == nil
	})
	code, _, errs := command(t, "import", "--from", addr, "--to", to.addr)
	if code != 1 || !strings.Contains(errs, "a Sentinel has no keys") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestImportRefusals(t *testing.T) {
	n, _ := startSingle(t, filepath.Join(t.TempDir(), "data"))
	free := loopback(freePorts(t, 1)[0])
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--from", "redis://" + n.addr}, 2, "requires --from and --to"},
		{[]string{"--from", "http://x", "--to", n.addr}, 1, "must be"},
		{[]string{"--from", "redis://" + n.addr, "--to", "x"}, 1, "--to x: must be host:port"},
		{[]string{"--from", "redis://" + free, "--to", n.addr}, 1, "connection refused"},
		{[]string{"--from", "redis://" + n.addr, "--to", n.addr, "stray"}, 2,
			"unexpected argument"},
	} {
		code, _, errs := command(t, append([]string{"import"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %s", c.args, code, errs)
		}
	}
}
