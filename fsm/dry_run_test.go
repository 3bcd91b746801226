// Dry runs: commands that may write run on a state that they do not change.

package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// dryRunMachine has applied the calls at clock 1000.
func dryRunMachine(t *testing.T, lines ...string) *Machine {
	t.Helper()
	m := newestMachine(testTable())
	r := mustApply(t, m, 1, &Entry{ClockMs: 1000, WallUs: 5_000_000,
		Batches: [][]byte{calls(lines...)}}, true)
	if text := string(r.Replies[0]); strings.Contains(text, "\r\n-") ||
		strings.HasPrefix(text, "-") {
		t.Fatalf("the state cannot be created: %q", text)
	}
	return m
}

// windowScript takes one of two slots in a sliding window of 1000 ms.
const windowScript = `local t = redis.call('time'); local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('zremrangebyscore', KEYS[1], 0, now - 1000)
if redis.call('zcard', KEYS[1]) >= 2 then return 0 end
redis.call('zadd', KEYS[1], now, ARGV[1]) return 1`

func TestDryRuns(t *testing.T) {
	script := func(words ...string) []byte {
		q := &commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(words...)}}
		return commands.AppendRequest(nil, q)
	}
	m := dryRunMachine(t, "SET lock a PX 5000", "HSET h f v", "RPUSH list x")
	for i, words := range [][]string{
		{"EVAL", windowScript, "1", "window", "a"}, {"EVAL", windowScript, "1", "window", "b"},
		{"EVAL", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', " +
			"KEYS[1]) end return 0", "1", "lock", "b"},
		{"EVAL", "return {pcall(redis.call, 'set', 'lock', 'thief'), 'caught'}", "1", "nolock"},
		{"EVAL", "local c = coroutine.wrap(function() return redis.call('set', 'lock', 'thief') " +
			"end) return pcall(c)", "0"},
		{"EVAL", "return redis.pcall('publish', 'c', 'm')", "0"},
		{"FUNCTION", "LOAD",
			"#!lua name=lib\nredis.register_function('take', function(k) return " +
				"redis.call('setnx', k[1], 'x') end)"},
		{"SCRIPT", "LOAD", "return 1"},
	} {
		mustApply(t, m, uint64(2+i), &Entry{ClockMs: 1000, WallUs: 5_000_000,
			Batches: [][]byte{script(words...)}}, true)
	}
	mustApply(t, m, 20, &Entry{ClockMs: 1000, WallUs: 5_000_000,
		Batches: [][]byte{calls("SET lock a PX 5000")}}, false)
	before := snapshotBytes(t, m.Snapshot())
	for _, c := range []struct {
		words []string
		want  string // empty: aborted
	}{
		{[]string{"SET", "lock", "b", "NX", "PX", "100"}, "$-1\r\n"},
		{[]string{"SET", "free", "b", "NX", "PX", "100"}, ""},
		{[]string{"SET", "lock", "b", "XX"}, ""},
		{[]string{"SET", "free", "b", "XX", "GET"}, "$-1\r\n"},
		{[]string{"SETNX", "lock", "b"}, ":0\r\n"},
		{[]string{"HSETNX", "h", "f", "w"}, ":0\r\n"},
		{[]string{"DEL", "nothing"}, ":0\r\n"},
		{[]string{"DELIFEQ", "lock", "b"}, ":0\r\n"},
		{[]string{"INCR", "h"},
			"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"},
		{[]string{"INCR", "lock"}, "-ERR value is not an integer or out of range\r\n"},
		{[]string{"EXPIRE", "free", "10"}, ":0\r\n"},
		{[]string{"ZADD", "nothing", "XX", "1", "m"}, ":0\r\n"},
		{[]string{"PUBLISH", "c", "m"}, ""},
		{[]string{"EVAL", windowScript, "1", "window", "c"}, ":0\r\n"},
		{[]string{"EVAL", windowScript, "1", "window2", "c"}, ""},
		{[]string{"EVAL",
			"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end " +
				"return 0", "1", "lock", "b"}, ":0\r\n"},
		{[]string{"EVAL",
			"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end " +
				"return 0", "1", "lock", "a"}, ""},
		{[]string{"EVAL", "return {pcall(redis.call, 'set', 'lock', 'thief'), 'caught'}", "1",
			"nolock"}, ""},
		{[]string{"EVAL",
			"local c = coroutine.wrap(function() return redis.call('set', 'lock', 'thief') end) " +
				"return pcall(c)", "0"}, ""},
		{[]string{"EVAL", "return redis.pcall('publish', 'c', 'm')", "0"}, ""},
		{[]string{"EVAL", "return 'new'", "0"}, ""}, // the cache would keep it for EVALSHA
		{[]string{"EVALSHA", strings.Repeat("0", 40), "0"},
			"-NOSCRIPT No matching script. Please use EVAL.\r\n"},
		{[]string{"SCRIPT", "LOAD", "return 1"},
			"$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n"},
		{[]string{"SCRIPT", "LOAD", "return 2"}, ""},
		{[]string{"FCALL", "take", "1", "lock"}, ":0\r\n"},
		{[]string{"FCALL", "take", "1", "free"}, ""},
		{[]string{"FUNCTION", "DELETE", "nolib"}, "-ERR Library not found\r\n"},
		{[]string{"FUNCTION", "DELETE", "lib"}, ""},
		{[]string{"FUNCTION", "FLUSH"}, ""},
		{[]string{"GET", "lock"}, "$1\r\na\r\n"},
	} {
		if got := string(m.Read(nil, script(c.words...), 1500, 5_500_000)); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
	if !bytes.Equal(before, snapshotBytes(t, m.Snapshot())) {
		t.Error("a dry run changed the state")
	}
	// The lock has expired by the read clock: a new owner may get it.
	if got := m.Read(nil, script("SET", "lock", "b", "NX"), 6001, 5_500_000); len(got) != 0 {
		t.Errorf("an expired lock counts as held: %q", got)
	}
	if got := m.Read(nil, script("DEL", "nothing"), 6001, 5_500_000); string(got) != ":0\r\n" {
		t.Errorf("another key beside an expired one: %q", got)
	}
	for _, words := range [][]string{{"EVAL", "return redis.call('dbsize')", "0"},
		{"EVAL", "return redis.call('keys', '*')", "0"}} {
		mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1000, WallUs: 5_000_000,
			Batches: [][]byte{script(words...)}}, true)
		if got := m.Read(nil, script(words...), 6000, 5_500_000); len(got) == 0 || got[0] == '-' {
			t.Errorf("%q in the last ms of a TTL: %q", words, got)
		}
		if got := m.Read(nil, script(words...), 6001, 5_500_000); len(got) != 0 {
			t.Errorf("%q beside an expired key: %q", words, got)
		}
	}
	if got := m.Read(nil, script("SET", "lock", "b", "NX"), 6000,
		5_500_000); string(got) != "$-1\r\n" {
		t.Errorf("a lock in the last ms of its TTL: %q", got)
	}
}

// A dry run covers a whole transaction, and a batch up to the first request that would write.
// What a dry run cost is what it did until it ended: its batch is not taken for a heavy one.
func TestWorkOfDryRuns(t *testing.T) {
	const write = `redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], '1')`
	script := commands.AppendRequest(nil, &commands.Request{Proto: 2,
		Cmds: [][][]byte{commandtest.Args("EVAL", write, "1", "k")}})
	m := dryRunMachine(t)
	r := mustApply(t, m, 2, &Entry{ClockMs: 1001, WallUs: 5_001_000, Batches: [][]byte{script}},
		true)
	reply, work := m.ReadWork(nil, script, 1002, 5_002_000, nil, false)
	if len(reply) > 0 || work == 0 || work > r.Work[0] {
		t.Errorf("reply %q, work %d; the entry did %d", reply, work, r.Work[0])
	}
}

func TestDryRunOfBatches(t *testing.T) {
	m := dryRunMachine(t, "SET lock a")
	multi := func(watched uint64, lines ...string) []byte {
		q := &commands.Request{Proto: 2, Multi: true}
		for _, l := range lines {
			q.Cmds = append(q.Cmds, commandtest.Args(strings.Fields(l)...))
		}
		if watched > 0 {
			q.Watch = []commands.WatchedKey{{Key: []byte("lock"), Changed: 1}}
		}
		return commands.AppendRequest(nil, q)
	}
	for _, c := range []struct {
		run  []byte
		want string
	}{
		{multi(0, "GET lock", "SETNX lock b"), "*2\r\n$1\r\na\r\n:0\r\n"},
		{multi(0, "GET lock", "SETNX lock b", "SETNX free b", "GET free"), ""},
		{multi(1, "SET lock b"), "*-1\r\n"}, // lock changed after revision 1
		{append(calls("SETNX lock b", "GET lock", "SETNX free b", "GET free"),
			multi(0, "SETNX lock b")...), ":0\r\n$1\r\na\r\n"},
	} {
		if got := string(m.Read(nil, c.run, 0, 0)); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A command that changes nothing but sends a notification is no read: an entry sends it everywhere.
func TestDryRunNotifiesNobody(t *testing.T) {
	m := dryRunMachine(t, "SET other a")
	// already expired: it sends set, expire and expired, and changes nothing
	past := calls("SET dead v PXAT 1")
	if got := string(m.Read(nil, past, 1000, 5_000_000)); got != "+OK\r\n" {
		t.Fatalf("without notifications: %q", got)
	}
	m.events.notify, _ = commands.ParseNotifyFlags("KEA")
	if got := string(m.Read(nil, past, 1000, 5_000_000)); got != "" {
		t.Errorf("notifications are lost: %q", got)
	}
}

// TestDryRunsOfFadingScripts: a dry run does not count as a use. So once the cache may drop
// scripts, only the one used last runs dry.
func TestDryRunsOfFadingScripts(t *testing.T) {
	m := newestMachine(testTable())
	eval := func(i int) []byte {
		return commands.AppendRequest(nil, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("EVAL", fmt.Sprint("return ", i), "0")}})
	}
	const half = 250 // of the scripts that EVAL keeps
	for i := range half {
		mustApply(t, m, uint64(i+1), &Entry{Batches: [][]byte{eval(i)}}, false)
	}
	if got := string(m.Read(nil, eval(0), 0, 0)); got != ":0\r\n" {
		t.Fatalf("half of the cache is free: %q", got)
	}
	last := half
	mustApply(t, m, uint64(last+1), &Entry{Batches: [][]byte{eval(last)}}, false)
	if got := string(m.Read(nil, eval(0), 0, 0)); got != "" {
		t.Errorf("a script ran without counting as used: %q", got)
	}
	if got := string(m.Read(nil, eval(last), 0, 0)); got != fmt.Sprintf(":%d\r\n", last) {
		t.Errorf("the script that was used last: %q", got)
	}
}

// dryRunEntries is the length of the log whose requests run dry before they are applied.
const dryRunEntries = 6000

// TestDryRunsAgreeWithEntries runs random requests dry before it applies them. If there was a
// reply, the entry gives the same one and changes nothing. A machine without dry runs stays equal.
func TestDryRunsAgreeWithEntries(t *testing.T) {
	detector.Skip(t)
	table := testTable()
	seed := seeds.Of(t)
	g := random.NewCalls(table, seed)
	m, twin := newestMachine(table), newestMachine(table)
	aborted, answered := 0, 0
	for index := uint64(1); index <= dryRunEntries; index++ {
		e := randomEntry(g)
		if index%3 > 0 { // two thirds of the entries run dry first
			e.Batches = [][]byte{commands.AppendRequest(nil, g.Request())}
			sum := m.Sum()
			reply := m.Read(nil, e.Batches[0], e.ClockMs, e.WallUs)
			deadlineMs, some := m.NextDeadline()
			// the entry sweeps something, but nothing that the request saw
			due := some && deadlineMs < e.ClockMs
			again := m.Read(nil, e.Batches[0], e.ClockMs, e.WallUs+1)
			if m.Sum() != sum {
				t.Fatalf("entry %d: a dry run changed the state: %s", index, entryText(e))
			}
			a := mustApply(t, m, index, e, true)
			switch {
			case !mayWrite(table, e.Batches[0]):
			case len(reply) == 0:
				aborted++
			default:
				answered++
				if !due && m.Sum().Sum != sum.Sum || messages(a) > 0 {
					t.Fatalf("entry %d: the dry run replied, but the entry changes something: %s",
						index, entryText(e))
				}
				random := !bytes.Equal(reply, again) ||
					strings.Contains(strings.ToLower(entryText(e)), "rand")
				if !random && !bytes.Equal(reply, a.Replies[0]) {
					t.Fatalf("entry %d: dry run %q, applied %q: %s", index, reply, a.Replies[0],
						entryText(e))
				}
			}
		} else {
			if index%30 == 0 {
				setRandomLimit(g, m, e)
			}
			mustApply(t, m, index, e, false)
		}
		mustApply(t, twin, index, e, false)
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), snapshotBytes(t, twin.Snapshot())) {
		t.Error("dry runs changed the state")
	}
	t.Logf("%d requests would write, %d were answered", aborted, answered)
	if aborted < 100 || answered < 100 {
		t.Errorf("too few to prove anything")
	}
}

func mayWrite(table *commands.Table, run []byte) bool {
	var r commands.RequestReader
	r.Reset(run)
	q, err := r.Next()
	if err != nil {
		return false
	}
	for _, cmd := range q.Cmds {
		if spec, err := table.Resolve(cmd); err == nil && spec.Kind == commands.Write {
			return true
		}
	}
	return false
}

func messages(r Result) int {
	n := 0
	for i := range r.Events {
		if r.Events[i].Kind == commands.Message {
			n++
		}
	}
	return n
}

// TestDryRunsBesideEntries runs scripts dry in several goroutines while entries are applied, for
// the race detector.
func TestDryRunsBesideEntries(t *testing.T) {
	a := NewAdapter(testTable(), 1, func([]commands.Event) {}, func(err error) { t.Error(err) })
	apply := func(index uint64, lines ...string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		mustApply(t, a.m, index, &Entry{ClockMs: int64(index), Batches: [][]byte{calls(lines...)}},
			false)
	}
	// Each is one word, because calls splits at spaces.
	const held, taken = "return(redis.call('setnx',KEYS[1],'x'))",
		"return(redis.call('append',KEYS[1],'x'))"
	apply(1, "SET lock a", "EVAL "+held+" 1 lock", "EVAL "+taken+" 1 log")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 300 {
				if got := string(a.Read(nil, calls("EVAL "+held+" 1 lock", "EVAL "+taken+" 1 log"),
					0, 0, nil, false)); got != ":0\r\n" {
					t.Errorf("%q", got)
					return
				}
			}
		})
	}
	for i := range 300 {
		apply(uint64(2+i), "EVAL "+taken+" 1 log")
	}
	wg.Wait()
}

// TestScriptsOfConcurrentReads runs scripts in several goroutines that a snapshot brought, so that
// nobody has compiled them yet, and others, for the race detector.
func TestScriptsOfConcurrentReads(t *testing.T) {
	m := newestMachine(testTable())
	const script = "return redis.call('GET', KEYS[1])"
	load := [][]string{{"SET", "k", "v"}, {"SCRIPT", "LOAD", script}}
	sha := strings.Fields(string(mustApply(t, m, 1, &Entry{ClockMs: 1,
		Batches: [][]byte{requestsOf(load...)}}, true).Replies[0]))[2]
	a := NewAdapter(testTable(), 1, func([]commands.Event) {}, func(err error) { t.Error(err) })
	a.m = restore(t, snapshotBytes(t, m.Snapshot()), testTable())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 50 {
				own := fmt.Sprintf("return redis.call('GET', KEYS[1]) .. %d", i+j%7)
				batch := requestsOf([]string{"EVALSHA_RO", sha, "1", "k"},
					[]string{"EVAL_RO", own, "1", "k"})
				want := fmt.Sprintf("$1\r\nv\r\n$%d\r\nv%[2]d\r\n",
					len(fmt.Sprint("v", i+j%7)), i+j%7)
				if got := string(a.Read(nil, batch, 1, 0, nil, false)); got != want {
					t.Errorf("%q, want %q", got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestDryRunOfTransactionSeesOneState runs a transaction dry that reads a key past its deadline,
// not swept yet, before its first command that may write. It goes into the log, whose entry sweeps
// first.
func TestDryRunOfTransactionSeesOneState(t *testing.T) {
	m := newestMachine(testTable())
	mustApply(t, m, 1, &Entry{ClockMs: 1000, Batches: [][]byte{calls("SET k v PX 10")}}, false)
	if got := m.Read(nil, transactionOf([]string{"GET", "k"}, []string{"DEL", "none"}), 2000,
		0); len(got) > 0 {
		t.Errorf("replied without the log: %q", got)
	}
	watching := commands.Request{Proto: 2, Multi: true,
		Watch: []commands.WatchedKey{{Key: []byte("k"), Changed: 1}},
		Cmds:  [][][]byte{commandtest.Args("DEL", "none")}}
	if got := m.Read(nil, commands.AppendRequest(nil, &watching), 2000, 0); len(got) > 0 {
		t.Errorf("a watched key: replied without the log: %q", got)
	}
}

// TestDryRunsTogether has dry runs copy, combine and store large values at the same time, and
// others read them: the race detector sees what one of them writes before it is aborted.
func TestDryRunsTogether(t *testing.T) {
	m := newWaitMachine(t)
	var requests []commands.Request
	add := func(words ...string) {
		requests = append(requests,
			commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(words...)}})
	}
	const members = 600
	for i := range members {
		n := fmt.Sprint(i)
		add("ZADD", "z", n, "m"+n)
		add("SADD", "s", "m"+n)
		add("HSET", "h", "f"+n, n)
		add("RPUSH", "l", n)
		add("XADD", "x", fmt.Sprint(i+1, "-1"), "f", n)
	}
	add("GEOADD", "g", "13", "52", "a")
	add("XGROUP", "CREATE", "x", "group", "0")
	add("HPEXPIRE", "h", "100000", "FIELDS", "2", "f1", "f2")
	add("SET", "t", strings.Repeat("long", 1000))
	for i, reply := range m.applyAll(requests...) {
		if reply.Kind == '-' {
			t.Fatalf("%q: %v", requests[i].Cmds, reply)
		}
	}
	calls := []string{"ZRANGESTORE to z 0 -1", "ZRANGESTORE to z 5 500", "ZUNIONSTORE to 1 z",
		"ZINTERSTORE to 2 z s", "ZDIFFSTORE to 1 z", "SUNIONSTORE to s", "SINTERSTORE to s s",
		"SDIFFSTORE to s", "COPY z to", "COPY s to", "COPY h to", "COPY l to", "COPY x to",
		"COPY t to", "RENAME z to", "MOVE z 1", "SORT l STORE to",
		"GEOSEARCHSTORE to g FROMMEMBER a BYRADIUS 1 km",
		"LMOVE l to LEFT RIGHT", "SMOVE s to m1", "SWAPDB 0 1",
		"XREADGROUP GROUP group c STREAMS x >", "XAUTOCLAIM x group c 0 0", "BITOP NOT to t",
		"APPEND t x", "SETRANGE t 5 x", "ZREMRANGEBYRANK z 1 -1", "LTRIM l 5 10", "SPOP s 300",
		"HGETDEL h FIELDS 1 f1", "GETDEL t", "FLUSHALL", "DUMP z", "ZRANGE z 0 5", "HGETALL h",
		"LRANGE l 0 5", "XRANGE x - + COUNT 5", "SORT l", "PFMERGE to to"}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				for _, line := range calls {
					q := lineRequest(line)
					m.Read(nil, commands.AppendRequest(nil, &q), m.clock, m.clock*1000)
				}
			}
		})
	}
	all.Wait()
}

// What scripts call counts once: in the entry on the process that answers it, or in the dry run
// that finishes.
func TestScriptCallsCountOnce(t *testing.T) {
	m := dryRunMachine(t, "SET lock a PX 5000")
	eval := func(script string) []byte {
		q := &commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args("EVAL", script, "0")}}
		return commands.AppendRequest(nil, q)
	}
	reads := eval("return redis.call('get', 'lock')")
	writes := eval("redis.call('get', 'lock') redis.pcall('lpush', 'lock', 'x') " +
		"return redis.call('append', 'lock', 'b')")
	mustApply(t, m, 2, &Entry{ClockMs: 1000, WallUs: 5_000_000, Batches: [][]byte{reads, writes}},
		true)
	var told []string
	m.scripted = func(calls *commands.ScriptCalls) {
		for _, n := range calls.Counts {
			told = append(told, fmt.Sprintf("%s %d %d %d %t", n.Spec.Name, n.Calls, n.Failed,
				n.Rejected, n.Work > 0))
		}
		for word, n := range calls.Errors {
			told = append(told, fmt.Sprintf("%s %d", word, n))
		}
	}
	want := func(how string, counts ...string) {
		t.Helper()
		if !slices.Equal(told, counts) {
			t.Errorf("%s: %q, want %q", how, told, counts)
		}
		told = nil
	}
	m.Read(nil, reads, 1001, 5_001_000)
	want("a dry run that finishes", "get 1 0 0 true")
	m.Read(nil, append(bytes.Clone(reads), writes...), 1001, 5_001_000)
	want("a dry run that stops at the second request", "get 1 0 0 true")
	m.Read(nil, writes, 1001, 5_001_000)
	want("a dry run that stops")
	entry := &Entry{ClockMs: 1001, WallUs: 5_001_000, Batches: [][]byte{writes, reads}}
	mustApply(t, m, 3, entry, false)
	want("an entry of another process")
	mustApply(t, m, 4, entry, true)
	want("an entry", "get 2 0 0 true", "lpush 1 1 0 true", "append 1 0 0 true",
		"WRONGTYPE 1")
	mustApply(t, m, 5, &Entry{ClockMs: 1002, WallUs: 5_002_000, Batches: [][]byte{reads}}, true)
	want("the next entry", "get 1 0 0 true")
	mustApply(t, m, 6, &Entry{ClockMs: 1002, WallUs: 5_002_000,
		Batches: [][]byte{settingOf("", 0, commands.SettingMaxMemory, "1")}}, true)
	told = nil
	full := eval("return redis.call('set', 'other', 'value')")
	mustApply(t, m, 7, &Entry{ClockMs: 1002, WallUs: 5_002_000, Batches: [][]byte{full}}, true)
	want("past maxmemory", "set 0 0 1 false")
	returned := eval("return redis.pcall('set', 'other', 'value')")
	mustApply(t, m, 8, &Entry{ClockMs: 1002, WallUs: 5_002_000, Batches: [][]byte{returned}}, true)
	want("an error that is the reply", "set 0 0 1 false")
	caught := eval("redis.pcall('set', 'other', 'value') redis.pcall('set', 'x') " +
		"return redis.error_reply('ERR own')")
	mustApply(t, m, 9, &Entry{ClockMs: 1002, WallUs: 5_002_000, Batches: [][]byte{caught}}, true)
	slices.Sort(told)
	want("errors that are caught", "ERR 1", "OOM 1", "set 0 0 2 false")
}
