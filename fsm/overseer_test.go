package fsm

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/threadtime"
	"github.com/coordd/coordd/server"
)

// unchargedTable has a command that works for so many ms and is charged for less than one, and one
// that sleeps.
func unchargedTable() *commands.Table {
	spec := func(name string, run func(d time.Duration)) commands.Spec {
		return commands.Spec{Name: name, Kind: commands.Read, Arity: 2, Group: "string",
			Since: "next", Syntax: "ms", Summary: "s", Complexity: "O(1)",
			Handler: func(x *commands.Call) error {
				ms, err := strconv.Atoi(string(x.Args[1]))
				run(time.Duration(ms) * time.Millisecond)
				x.Spend(40_000)
				x.Out.Status("OK")
				return err
			}}
	}
	return commands.NewTable(commands.Specs(), server.Specs(), []commands.Spec{
		spec("uncharged", func(d time.Duration) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for until := threadtime.Now() + d; threadtime.Now() < until; {
			}
		}),
		spec("pause", time.Sleep),
	})
}

// TestSlowScriptsByTheClock has scripts of reads and entries work, and sleep, for far longer than
// what they are charged.
func TestSlowScriptsByTheClock(t *testing.T) {
	const loop = `local n=0 while n<10 do n=n+1 pcall(redis.call,'%s','%d') end return n`
	for _, c := range []struct {
		command, kind string
		ms            int // of each of 10 calls
		reply         string
		told          bool
	}{
		{"uncharged", "EVAL_RO", 70, "script stopped: it ran for much longer", true},
		{"uncharged", "EVAL", 70, ":10", true},
		{"pause", "EVAL_RO", 70, ":10", false},
	} {
		t.Run(c.command+" "+c.kind, func(t *testing.T) {
			t.Parallel()
			a := NewAdapter(unchargedTable(), 7, func([]commands.Event) {},
				func(err error) { t.Fatal(err) })
			const most = 300 * time.Millisecond // instead of seconds
			a.m.ofEntries, a.m.ofReads = overseer{a, false, most}, overseer{a, true, most}
			var told []commands.SlowScript
			a.SetSlowScript(func(s commands.SlowScript) { told = append(told, s) })
			source := fmt.Sprintf(loop, c.command, c.ms)
			batch := commands.AppendRequest(nil, &commands.Request{Proto: 2,
				Cmds: [][][]byte{commandtest.Args(c.kind, source, "0")}})
			var got []byte
			if c.kind == "EVAL" {
				e := AppendEntry(nil, &Entry{Origin: 7, ClockMs: 1, Batches: [][]byte{batch}})
				replies, _ := a.Apply(&raft.Log{Index: 1, Data: e}).(*Applied).Outcome()
				got = replies[0]
			} else {
				got = a.Read(nil, batch, 1, 1000, nil, false)
			}
			if !strings.Contains(string(got), c.reply) {
				t.Errorf("reply %.200q, want %q", got, c.reply)
			}
			if !c.told {
				if len(told) > 0 || a.SlowScripts() != 0 {
					t.Errorf("who only waits is called slow: %+v", told)
				}
				return
			}
			if len(told) != 1 || told[0].Source != source || len(told[0].ID) != 40 ||
				told[0].TookMs < most.Milliseconds() || told[0].Ended != (c.kind != "EVAL") {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// lookCounter is an overseer whose stopwatch says that the script is slow at its third look.
type lookCounter struct {
	ends  bool
	looks int
	told  []commands.SlowScript
}

func (c *lookCounter) Watch() commands.Stopwatch { c.looks = 0; return c }

func (c *lookCounter) Look() bool { c.looks++; return c.ends && c.looks >= 3 }

func (c *lookCounter) Stop() int64 {
	if c.looks >= 3 {
		return 1234
	}
	return 0
}

func (c *lookCounter) Slow(s commands.SlowScript) { c.told = append(c.told, s) }

// overseen is a machine whose slow scripts are those that work much.
type overseen struct {
	*Machine
	t              *testing.T
	entries, reads lookCounter
}

func newOverseen(t *testing.T) *overseen {
	o := &overseen{t: t, Machine: newestMachine(testTable()), reads: lookCounter{ends: true}}
	o.ofEntries, o.ofReads = &o.entries, &o.reads
	return o
}

func request(words ...string) []byte {
	return commands.AppendRequest(nil, &commands.Request{Proto: 2,
		Cmds: [][][]byte{commandtest.Args(words...)}})
}

func (o *overseen) apply(batch []byte) string {
	o.t.Helper()
	r := mustApply(o.t, o.Machine, o.Index()+1, &Entry{ClockMs: 1, WallUs: 1,
		Batches: [][]byte{batch}}, true)
	return string(r.Replies[0])
}

func (o *overseen) entry(words ...string) string { o.t.Helper(); return o.apply(request(words...)) }

func (o *overseen) setting(words ...string) string {
	o.t.Helper()
	return o.apply(settingOf("", 0, words...))
}

const (
	longLoop  = `for i=1,300000 do end `
	refusedIs = "-ERR this script is refused"
)

// longReply works little, but for its reply.
const longReply = `local t,r={},{} for i=1,300 do t[i]=i r[i]=t end return r`

// TestSlowReplies: a script whose reply takes long is slow.
func TestSlowReplies(t *testing.T) {
	o := newOverseen(t)
	if got := o.entry("EVAL", longReply, "0"); !strings.HasPrefix(got, "*300\r\n*300\r\n:1\r\n") {
		t.Fatalf("%.200q", got)
	}
	if len(o.entries.told) != 1 || o.entries.told[0].Source != longReply {
		t.Errorf("told %+v", o.entries.told)
	}
}

// TestRefusedScripts: what was slow in an entry does not run again, in whichever way it is called,
// until it is allowed.
func TestRefusedScripts(t *testing.T) {
	o := newOverseen(t)
	source := longLoop + `return redis.call('INCR', 'n')`
	if got := o.entry("EVAL", source, "0"); got != ":1\r\n" {
		t.Fatal(got)
	}
	if len(o.entries.told) != 1 || o.entries.told[0].TookMs != 1234 {
		t.Fatalf("told %+v", o.entries.told)
	}
	id := o.entries.told[0].ID
	if got := o.setting(commands.SystemAllowScript, id); got != "-"+
		commands.ErrNotRefused.Error()+"\r\n" {
		t.Errorf("allowed too early: %s", got)
	}
	for _, words := range [][]string{{id, "x"}, {id, "0"}, {id}, {strings.Repeat("a", 200), "1"}} {
		got := o.setting(append([]string{commands.SystemRefuseScript}, words...)...)
		if got[0] != '-' {
			t.Errorf("refused %q: %s", words, got)
		}
	}
	for range 2 { // several nodes send it
		if got := o.setting(commands.SystemRefuseScript, id, "1234"); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	for _, words := range [][]string{{"EVAL", source, "0"}, {"EVALSHA", id, "0"},
		{"EVALSHA", strings.ToUpper(id), "0"}, {"EVAL_RO", source, "0"}, {"EVALSHA_RO", id, "0"}} {
		if got := o.entry(words...); !strings.HasPrefix(got, refusedIs) ||
			!strings.Contains(got, "ALLOW-SCRIPT "+id) {
			t.Errorf("%s in an entry: %s", words[0], got)
		}
		got := string(o.Read(nil, request(words...), 1, 1000))
		if !strings.HasPrefix(got, refusedIs) {
			t.Errorf("%s as a read or dry: %q", words[0], got)
		}
	}
	multi := commands.AppendRequest(nil, &commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{
		commandtest.Args("SET", "a", "1"), commandtest.Args("EVALSHA", id, "0")}})
	if got := o.apply(multi); !strings.HasPrefix(got, "*2\r\n+OK\r\n"+refusedIs) {
		t.Errorf("in a transaction: %s", got)
	}
	if got := o.entry("EVAL", source+" ", "0"); got != ":2\r\n" {
		t.Errorf("another script: %s", got)
	}
	again := restore(t, snapshotBytes(t, o.Snapshot()), testTable())
	if fmt.Sprint(again.ScriptVerdicts()) != fmt.Sprint(o.ScriptVerdicts()) ||
		!bytes.Equal(snapshotBytes(t, again.Snapshot()), snapshotBytes(t, o.Snapshot())) {
		t.Errorf("restored: %v", again.ScriptVerdicts())
	}
	if got := o.setting(commands.SystemAllowScript, id); got != "+OK\r\n" {
		t.Fatal(got)
	}
	// a node that is behind finds it slow
	if got := o.setting(commands.SystemRefuseScript, id, "99"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := o.entry("EVALSHA", id, "0"); got != ":3\r\n" {
		t.Errorf("allowed: %s", got)
	}
}

// TestRefusedFunctions: a function is refused with the library whose code it is, and the code of a
// library by itself.
func TestRefusedFunctions(t *testing.T) {
	o := newOverseen(t)
	library := "#!lua name=l\nredis.register_function('f', function() " + longLoop +
		" return 1 end) redis.register_function('g', function() return 2 end)"
	o.entry("FUNCTION", "LOAD", library)
	o.entry("FCALL", "f", "0")
	slow := "#!lua name=m\n" + longLoop + " redis.register_function('h', function() end)"
	if got := o.entry("FUNCTION", "LOAD", slow); got != "$1\r\nm\r\n" {
		t.Fatal(got)
	}
	if len(o.entries.told) != 2 {
		t.Fatalf("told %+v", o.entries.told)
	}
	for _, s := range o.entries.told {
		o.setting(commands.SystemRefuseScript, s.ID, "1234")
	}
	for want, calls := range map[string][][]string{
		refusedIs: {{"FCALL", "f", "0"}, {"FUNCTION", "LOAD", "REPLACE", slow}},
		":2\r\n":  {{"FCALL", "g", "0"}},
	} {
		for _, words := range calls {
			if got := o.entry(words...); !strings.HasPrefix(got, want) {
				t.Errorf("%q: %s", words, got)
			}
		}
	}
	o.entry("FUNCTION", "LOAD", "REPLACE", strings.Replace(library, "300000", "3", 1))
	if got := o.entry("FCALL", "f", "0"); got != ":1\r\n" {
		t.Errorf("mended: %s", got)
	}
}

// TestLateReadsEnd: a read that is late is ended, whatever it catches.
func TestLateReadsEnd(t *testing.T) {
	o := newOverseen(t)
	for _, source := range []string{longLoop, `while true do pcall(function() ` + longLoop +
		` end) end`, `local t={} for i=1,300000 do t[i%10]=tostring(i) end`, longReply} {
		o.reads.told = nil
		got := string(o.Read(nil, request("EVAL_RO", source, "0"), 1, 1000))
		if !strings.Contains(got, "script stopped: it ran for much longer") ||
			len(o.reads.told) != 1 {
			t.Errorf("%s: %q, told %+v", source, got, o.reads.told)
		}
		if got := o.entry("EVAL_RO", source, "0"); strings.Contains(got, "much longer") {
			t.Errorf("the clock ends it in an entry: %s", got)
		}
	}
}

// TestVerdictsAreBounded: the oldest verdict goes first.
func TestVerdictsAreBounded(t *testing.T) {
	o := newOverseen(t)
	for i := range 300 {
		o.setting(commands.SystemRefuseScript, fmt.Sprint("script", i), "1")
	}
	v := o.ScriptVerdicts()
	if len(v) != 128 || v[0].ID != "script172" || v[127].ID != "script299" {
		t.Errorf("%d verdicts: %v", len(v), v)
	}
}
