// The script cache: its bounds, its records, and concurrent reads.

package script

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

func TestScriptCache(t *testing.T) {
	e := NewEngine(testTable())
	script := func(i int) string { return fmt.Sprintf("return %d", i) }
	known := func(i int) bool { return e.Exists([]byte(shaOf(script(i)))) }
	if _, err := e.Load(newestCall(), []byte(script(-1))); err != nil {
		t.Fatal(err)
	}
	evalOn(e, script(-2), false)
	if _, err := e.Load(newestCall(), []byte(script(-2))); err != nil { // is kept from now on
		t.Fatal(err)
	}
	for i := range maxCachedScripts {
		evalOn(e, script(i), false)
	}
	if !known(0) || e.Len() != maxCachedScripts+2 {
		t.Fatalf("%d scripts, the first known: %v", e.Len(), known(0))
	}
	evalOn(e, script(0), false)
	before := e.AppendTo(nil)
	evalOn(e, script(9999), true)
	evalOn(e, script(1), true)
	if after := e.AppendTo(nil); !bytes.Equal(before, after) {
		t.Error("EVAL_RO changed the cache")
	}
	evalOn(e, "x x", false)
	if after := e.AppendTo(nil); !bytes.Equal(before, after) {
		t.Error("a script that does not compile changed the cache")
	}
	evalOn(e, script(maxCachedScripts), false)
	if !known(0) || known(1) || !known(2) || !known(-1) || !known(-2) ||
		e.Len() != maxCachedScripts+2 {
		t.Errorf("known: %v %v %v %v %v of %d", known(0), known(1), known(2), known(-1), known(-2),
			e.Len())
	}
	e.Flush()
	if e.Len() != 0 || known(-1) || !bytes.Equal(e.AppendTo(nil), []byte{0, 0}) {
		t.Error("FLUSH left something")
	}
}

// A restored cache drops the same scripts.
func TestRestoredScriptCache(t *testing.T) {
	e := NewEngine(testTable())
	script := func(i int) string { return fmt.Sprintf("return %d", i) }
	for i := range maxCachedScripts {
		evalOn(e, script(i), false)
	}
	evalOn(e, script(0), false) // used last
	restored := NewEngine(e.table)
	if err := restored.Restore(e.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restored.AppendTo(nil), e.AppendTo(nil)) || restored.Len() != e.Len() {
		t.Error("the restored cache differs")
	}
	for _, both := range []*Engine{e, restored} {
		evalOn(both, script(1), false)
		evalOn(both, script(maxCachedScripts+1), false)
	}
	known := func(i int) bool { return e.Exists([]byte(shaOf(script(i)))) }
	if !bytes.Equal(restored.AppendTo(nil), e.AppendTo(nil)) || !known(0) || !known(1) || known(2) {
		t.Error("the restored cache drops another script")
	}
}

func TestLoadedScriptsHaveALimit(t *testing.T) {
	first := newestCall()
	first.Level = commands.LevelFirst
	one, err := compileScript([]byte("return 1"), commands.FeatureLevel)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		x    *commands.Call
		most int // bytes of sources, beside one more script
	}{{first, maxLoadedBytes}, {newestCall(), 0}} {
		e := NewEngine(testTable())
		e.loadedBytes = c.most - len("return 1")
		e.loadedSize = maxLoadedSize - one.size
		if _, err := e.Load(c.x, []byte("return 1")); err != nil {
			t.Errorf("at the limit: %v", err)
		}
		if _, err := e.Load(c.x, []byte("return 1")); err != nil {
			t.Errorf("what is loaded, again: %v", err)
		}
		if _, err := e.Load(c.x, []byte("return")); err != errScriptsFull {
			t.Errorf("past the limit: %v", err)
		}
		e.Flush()
		if _, err := e.Load(c.x, []byte("return")); err != nil {
			t.Errorf("after SCRIPT FLUSH: %v", err)
		}
	}
}

// From LevelSecond on, bytes bound the cache of EVAL, too. The newest script stays, whatever its
// length.
func TestScriptCacheHasABoundInBytes(t *testing.T) {
	long := func(i, n int) string {
		return fmt.Sprintf("return %d --%s", i, bytes.Repeat([]byte("x"), n))
	}
	for _, level := range []uint64{commands.LevelFirst, commands.LevelSecond} {
		e := NewEngine(testTable())
		eval := func(source string) {
			x := newestCall()
			x.Level = level
			x.Scripts, x.Keyspace, x.Args = e, keyspace.New(), commandtest.Args("EVAL", source, "0")
			runCall(e.table, x)
		}
		const n = 100_000
		one, err := compileScript([]byte(long(100, n)), level)
		if err != nil {
			t.Fatal(err)
		}
		room := maxCachedSize / one.size
		for i := range room + 5 {
			eval(long(i, n))
		}
		want := room + 5
		if level == commands.LevelSecond {
			want = room
			if e.cachedBytes > maxCachedSize {
				t.Errorf("%d bytes", e.cachedBytes)
			}
		}
		if e.Len() != want {
			t.Errorf("level %d: %d scripts, want %d", level, e.Len(), want)
		}
		restored := NewEngine(e.table)
		if err := restored.Restore(e.AppendTo(nil)); err != nil ||
			restored.cachedBytes != e.cachedBytes || restored.cachedCount != e.cachedCount {
			t.Errorf("the restored cache has %d bytes, want %d: %v", restored.cachedBytes,
				e.cachedBytes, err)
		}
		whole := long(0, commands.MaxScriptBytes-20)
		eval(whole)
		if !e.Exists([]byte(shaOf(whole))) {
			t.Errorf("level %d: the newest is unknown, of %d", level, e.Len())
		}
		if e.cached.root.prev.source != whole {
			t.Error("the newest is not the last")
		}
	}
}

// What a compiled script counts is about its memory, also if its functions use many variables of
// each other, and a source that makes too many of them does not compile.
func TestNestedFunctionsCountTheirMemory(t *testing.T) {
	nested := func(depth, variables, times int) string {
		names, uses := make([]string, variables), make([]string, variables)
		for i := range names {
			names[i] = fmt.Sprintf("a%d", i)
			uses[i] = names[i] + "()"
		}
		return "local " + strings.Join(names, ",") + strings.Repeat(
			strings.Repeat(" f(function()", depth)+" "+strings.Join(uses, " ")+
				strings.Repeat(" end)", depth), times)
	}
	for _, source := range []string{nested(100, 60, 10), nested(10, 2, 300), nested(1, 1, 3000),
		strings.Repeat("a.b.c() x = {1, 2, 'text'} ", 2000)} {
		before := heapInUse()
		p, err := compileScript([]byte(source), commands.FeatureLevel)
		if err != nil {
			t.Fatal(err)
		}
		took := int(heapInUse()-before) + len(source)
		runtime.KeepAlive(p)
		if took > p.size*4/3 || took < p.size/3 {
			t.Errorf("%.60s: %d bytes, and %d were counted", source, took, p.size)
		}
	}
	e := NewEngine(testTable())
	hostile := nested(450, 190, 100)
	x := newestCall()
	if _, err := e.Load(x, []byte(hostile)); err == nil ||
		!strings.Contains(err.Error(), "too many tokens") {
		t.Errorf("error %v", err)
	}
	if x.Work < commands.MaxRequestWork/2 || x.Work > commands.MaxRequestWork {
		t.Errorf("work %d", x.Work)
	}
	x.Level = commands.LevelFirst
	if _, err := e.compile(x, []byte(nested(450, 190, 1))); err != nil {
		t.Errorf("at the first level: %v", err)
	}
}

// A request pays for compiling its source, but not for a cached script, whether or not that is
// already compiled.
func TestCompilingIsPaidFor(t *testing.T) {
	var source bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&source, "if x then x(%d) end ", i)
	}
	body := "local x " + source.String() + "return 1"
	work := func(e *Engine, level uint64, args ...string) uint64 {
		x := newestCall()
		x.Level, x.Scripts, x.Keyspace, x.Args = level, e, keyspace.New(), commandtest.Args(args...)
		out := &commands.RESP{Proto: 2}
		x.Out = out
		runCall(e.table, x)
		if !bytes.HasPrefix(out.Buf, []byte(":1")) && !bytes.HasPrefix(out.Buf, []byte("$40")) {
			t.Fatalf("%.100q", out.Buf)
		}
		return x.Work
	}
	const least = 5000 * 8 * tokenWork
	e := NewEngine(testTable())
	eval := []string{"EVAL", body, "0"}
	brought := work(e, commands.LevelSecond, eval...)
	if brought < least {
		t.Errorf("work %d for compiling, want %d at least", brought, least)
	}
	cached := work(e, commands.LevelSecond, eval...)
	restored := NewEngine(e.table)
	if err := restored.Restore(e.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if again := work(restored, commands.LevelSecond, eval...); again != cached ||
		cached > least/2 {
		t.Errorf("work %d for a cached script, %d on a restored node", cached,
			again)
	}
	if first := work(NewEngine(e.table), commands.LevelFirst, eval...); first > cached {
		t.Errorf("work %d below level %d, %d for a cached script", first,
			commands.LevelSecond, cached)
	}
	e = NewEngine(testTable())
	if one, two := work(e, commands.LevelSecond, "EVAL_RO", body, "0"),
		work(e, commands.LevelSecond, "EVAL_RO", body, "0"); one < least || two != one {
		t.Errorf("EVAL_RO: work %d, then %d, want %d at least", one, two, least)
	}
	if loaded := work(NewEngine(testTable()), commands.LevelSecond, "SCRIPT", "LOAD",
		body); loaded < least {
		t.Errorf("SCRIPT LOAD: work %d", loaded)
	}
}

// What a script declares decides whether maxmemory refuses it. Reading that takes no time for a
// cached script, restored or not, and is charged for a source that the request brings.
func TestWhatAScriptDeclaresIsPaidFor(t *testing.T) {
	line := "#!lua flags=" + strings.Repeat("allow-stale,", 10_000) + "allow-oom\n"
	source := line + "return 1 --" + strings.Repeat("x", 100_000)
	live, restored := NewEngine(testTable()), NewEngine(testTable())
	sha, err := live.Load(newestCall(), []byte(source))
	if err == nil {
		err = restored.Restore(live.AppendTo(nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	const want = commands.AllowOOM | commands.AllowStale
	for _, e := range []*Engine{live, restored} {
		x, known := newestCall(), commands.Script{SHA: []byte(sha)}
		flags, declared := e.Flags(x, known)
		if flags != want || !declared || x.Work != 0 {
			t.Errorf("a cached script declares %b, %v, with %d units", flags, declared, x.Work)
		}
		if n := testing.AllocsPerRun(10, func() { e.Flags(x, known) }); n != 0 {
			t.Errorf("%v allocations for a cached script", n)
		}
		flags, declared = e.Flags(x, commands.Script{Source: []byte(source)})
		if most := uint64(len(line)); flags != want || !declared ||
			x.Work < most/bytesPerWork-1 || x.Work > most {
			t.Errorf("a source declares %b, %v, with %d units", flags, declared, x.Work)
		}
		long := append([]byte(source), make([]byte, commands.MaxScriptBytes)...)
		if _, declared = e.Flags(x, commands.Script{Source: long}); declared {
			t.Error("a source that is too long to run declares flags")
		}
	}
}

// From LevelSecond on, a source with more tokens than a request may compile is refused everywhere.
func TestSourcesOfManyTokensAreRefused(t *testing.T) {
	source := []byte("return {" + string(bytes.Repeat([]byte("1,"), maxTokens/2)) + "}")
	for level, want := range map[uint64]string{commands.LevelFirst: "",
		commands.LevelSecond: "ERR Error compiling script (new function): user_script:1: chunk " +
			"has too many tokens"} {
		x := newestCall()
		x.Level = level
		got := ""
		if err := NewEngine(testTable()).Eval(x, commands.Script{Source: source}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("level %d: %q, want %q", level, got, want)
		}
	}
}

func TestCorruptScriptRecords(t *testing.T) {
	e := NewEngine(testTable())
	evalOn(e, "return 1", false)
	if _, err := e.Load(newestCall(), []byte("return 2")); err != nil {
		t.Fatal(err)
	}
	whole := e.AppendTo(nil)
	for n := range whole {
		if NewEngine(e.table).Restore(whole[:n]) == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(whole))
		}
	}
	twice := append([]byte{0, 2}, whole[2:11]...)
	for _, b := range [][]byte{append(whole[:len(whole):len(whole)], 0),
		append(twice, whole[2:11]...), {255, 255, 255, 255, 15, 0}, {0, 255, 255, 3}} {
		if NewEngine(e.table).Restore(b) == nil {
			t.Errorf("%q was accepted", b)
		}
	}
	if err := NewEngine(e.table).Restore(whole); err != nil {
		t.Error(err)
	}
}

// Reads may run scripts concurrently.
func TestConcurrentReads(t *testing.T) {
	n := newNode()
	n.eval(t, `redis.call("set", "a", "1") return 1`)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				source := fmt.Sprintf(
					`local t = {} for i = 1, 50 do t[i] = redis.call("get", "a") end return #t + %d`, i%7+g)
				args := commandtest.Args("EVAL_RO", source, "0")
				got, want := string(n.run(n.engine.DryRun(), args)),
					fmt.Sprintf(":%d\r\n", 50+i%7+g)
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
	wg.Wait()
}

// A node that starts from a snapshot compiles each script once, also for concurrent reads: the
// cache may hold more scripts than reads keep besides. The limit of tokens applies to new sources.
func TestReadsCompileCachedScriptsOnce(t *testing.T) {
	e := NewEngine(testTable())
	source := "return {" + strings.Repeat("1,", maxTokens/2) + "}" // an earlier release accepted it
	old := newestCall()
	old.Level = commands.LevelFirst
	sha, err := e.Load(old, []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	restored := NewEngine(e.table)
	if err := restored.Restore(e.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	s := restored.bySHA[sha]
	read := func() string {
		out := &commands.RESP{Proto: 2}
		x := newestCall()
		x.Out, x.Scripts, x.Keyspace, x.Args = out, restored, keyspace.New(),
			commandtest.Args("EVALSHA_RO", sha, "0")
		runCall(restored.table, x)
		return string(out.Buf)[:8]
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if got := read(); got != "*200000\r"[:8] {
				t.Errorf("%q", got)
			}
		})
	}
	both.Wait()
	p := s.program
	if read(); p == nil || s.program != p {
		t.Error("the script was compiled again")
	}
}
