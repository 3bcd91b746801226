package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/once"
)

// call is a request of the default user; args with spaces are not possible.
func call(line string) []byte { return as("", 0, line) }

const refused = "-OOM command not allowed"

// The limit is state: it decides in entries, reads and dry runs, comes back from a snapshot, and
// replaying the entries gives the same replies.
func TestMaxMemoryIsState(t *testing.T) {
	u := newUsersTest(t)
	u.want(settingOf("", 0, commands.SettingMaxMemory, "x"), "-ERR maxmemory must be")
	u.want(settingOf("", 0, commands.SettingMaxMemory, "-1"), "-ERR maxmemory must be")
	u.want(settingOf("", 0, commands.SettingMaxMemory, "1"), "+OK")
	u.want(call("SET a 1"), refused)
	if got := string(u.m.Read(nil, call("SET a 1"), 1, 1)); !strings.HasPrefix(got, refused) {
		t.Errorf("a dry run answers %q", got)
	}
	u.want(settingOf("", 0, commands.SettingMaxMemory, "20000"), "+OK")
	u.want(call("SET a 1"), "+OK")
	u.want(call("SET large "+strings.Repeat("x", 20000)), "+OK") // it exceeds the limit only now
	u.want(call("SET b 1"), refused)
	u.want(call("GET a"), "$1\r\n1")
	if s := u.m.Stats(); s.MaxMemory != 20000 || s.Memory < 20000 {
		t.Errorf("%d bytes of %d", s.Memory, s.MaxMemory)
	}

	table := testTable()
	restored := restore(t, snapshotBytes(t, u.m.Snapshot()), table)
	if a, b := restored.Stats(), u.m.Stats(); a.Memory != b.Memory || a.MaxMemory != b.MaxMemory {
		t.Errorf("%d bytes of %d, restored %d of %d", b.Memory, b.MaxMemory, a.Memory, a.MaxMemory)
	}
	for _, m := range []*Machine{u.m, restored} {
		at := m.Index() + 1
		e := &Entry{ClockMs: 1, Batches: [][]byte{call("SET b 1"), call("DEL large"),
			call("SET b 1")}}
		got := mustApply(t, m, at, e, true).Replies
		if !strings.HasPrefix(string(got[0]), refused) || string(got[2]) != "+OK\r\n" {
			t.Errorf("%q", got)
		}
	}
	if restored.Sum() != u.m.Sum() {
		t.Error("the running hashes differ")
	}
	again := NewMachine(table)
	for i, e := range u.entries {
		mustApply(t, again, uint64(i+1), e, false)
	}
	if a, b := again.Stats(), u.m.Stats(); a.MaxMemory != b.MaxMemory {
		t.Errorf("at replay the limit is %d, was %d", a.MaxMemory, b.MaxMemory)
	}
}

// TestGoldenMaxMemory: the header of a snapshot ends with the limit, once it was set.
func TestGoldenMaxMemory(t *testing.T) {
	u := newUsersTest(t)
	u.want(call("SET k v"), "+OK")
	u.want(settingOf("", 0, commands.SettingMaxMemory, "123456789"), "+OK")
	path := goldenFiles + "maxmemory-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, u.m.Snapshot()))
	file := readGolden(t, path)
	m := restore(t, file, testTable())
	if m.limit.bytes != 123456789 || !m.limit.set {
		t.Errorf("its limit is %+v", m.limit)
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
}

// Users, scripts and libraries count too.
func TestWhatCounts(t *testing.T) {
	u := newUsersTest(t)
	last := u.m.Stats().Memory
	grows := func(request []byte) {
		t.Helper()
		if reply := u.do(request); reply[0] == '-' {
			t.Fatal(reply)
		}
		now := u.m.Stats().Memory
		if now <= last {
			t.Errorf("%d bytes, before %d", now, last)
		}
		last = now
		if r := restore(t, snapshotBytes(t, u.m.Snapshot()), testTable()); r.memory() != now {
			t.Errorf("%d bytes, restored %d", now, r.memory())
		}
	}
	empty := last
	grows(call("SET k v"))
	grows(call("PEXPIRE k 1000"))
	grows(call("EVAL return(1) 0"))
	grows(call("SCRIPT LOAD return(2)"))
	grows(call("ACL SETUSER bob on ~a*"))
	grows(call("ACL SETUSER bob ~b*"))
	library := commands.Request{Cmds: [][][]byte{{[]byte("FUNCTION"), []byte("LOAD"),
		[]byte("#!lua name=l\nredis.register_function('f', function() end)")}}}
	grows(commands.AppendRequest(nil, &library))
	for _, c := range []string{"FLUSHALL", "FUNCTION FLUSH", "SCRIPT FLUSH", "ACL DELUSER bob"} {
		u.do(call(c))
	}
	if now := u.m.Stats().Memory; now != empty {
		t.Errorf("%d bytes are left, an empty machine has %d", now, empty)
	}
}

// Whoever may not change the configuration does not set the limit, and the limit that a node has
// for a new cluster does not replace the one that somebody has set.
func TestWhoSetsMaxMemory(t *testing.T) {
	u := newUsersTest(t)
	limit := func(want int64) {
		t.Helper()
		if got := u.m.Stats().MaxMemory; got != want {
			t.Errorf("the limit is %d, want %d", got, want)
		}
	}
	u.want(settingOf("", 0, commands.SettingFirstMaxMemory, "5"), "+OK")
	limit(5)
	u.want(settingOf("", 0, commands.SettingMaxMemory, "0"), "+OK")
	u.want(settingOf("", 0, commands.SettingFirstMaxMemory, "5"), "+OK")
	limit(0)
	u.want(call("ACL SETUSER bob on nopass +@all -@admin ~*"), "+OK")
	u.want(settingOf("bob", u.created("bob"), commands.SettingMaxMemory, "7"), "-NOPERM")
	limit(0)
	r := restore(t, snapshotBytes(t, u.m.Snapshot()), testTable())
	if !r.limit.set {
		t.Error("a snapshot forgets that the limit was set")
	}

	old := NewMachine(testTable())
	e := &Entry{ClockMs: 1, Batches: [][]byte{
		settingOf("", 0, commands.SettingMaxMemory, "1"), call("SET k v")}}
	got := mustApply(t, old, 1, e, true).Replies
	if string(got[0]) != "-ERR no such setting\r\n" || string(got[1]) != "+OK\r\n" {
		t.Errorf("below level %d: %q", commands.LevelSecond, got)
	}
}

// A dry run leaves to the log what the entry may decide otherwise: it sweeps first.
func TestDryRunAtTheLimitWaitsForTheSweep(t *testing.T) {
	u := newUsersTest(t)
	u.want(call("SET large "+strings.Repeat("x", 20000)+" PX 100"), "+OK")
	u.want(settingOf("", 0, commands.SettingMaxMemory, "20000"), "+OK")
	for _, request := range [][]byte{call("SET b 1"), as("", 0, "SET b 1", "SET c 1"),
		call("EVAL return(redis.pcall('SET','k','v')) 0")} {
		u.do(call("EVAL return(redis.pcall('SET','k','v')) 0")) // cached
		if got := u.m.Read(nil, request, 50, 50_000); !strings.Contains(string(got), "OOM") {
			t.Errorf("before the deadline: %q", got)
		}
		if got := u.m.Read(nil, request, 102, 102_000); len(got) != 0 {
			t.Errorf("after the deadline: %q", got)
		}
	}
	got := u.entry(&Entry{ClockMs: 102, Batches: [][]byte{call("SET b 1")}})
	if got[0] != "+OK\r\n" {
		t.Errorf("%q", got)
	}
}

// Nor does it say that the data exceeds its limit by what is remembered of requests whose time is
// over: no entry would come that forgets them, if all that comes is refused so.
func TestDryRunAtTheLimitWaitsForRepeats(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "IDEMPOTENT r1 PUBLISH channel message"), ":0")
	limit := strconv.FormatInt(u.m.memory()-1, 10)
	u.want(settingOf("", 0, commands.SettingMaxMemory, limit), "+OK")
	over := u.m.ClockMs() + once.LifeMs
	if got := u.m.Read(nil, call("SET b 1"), over, over*1000); !strings.Contains(string(got),
		"OOM") {
		t.Errorf("before its time is over: %q", got)
	}
	over++
	if got := u.m.Read(nil, call("SET b 1"), over, over*1000); len(got) != 0 {
		t.Errorf("after that: %q", got)
	}
	got := u.entry(&Entry{ClockMs: over, Batches: [][]byte{call("SET b 1")}})
	if got[0] != "+OK\r\n" {
		t.Errorf("%q", got)
	}
}

// Nothing that a script or a transaction does first makes room for more than one of them.
func TestTransactionsAtTheLimit(t *testing.T) {
	u := newUsersTest(t)
	u.want(call("SET k v"), "+OK")
	u.want(settingOf("", 0, commands.SettingMaxMemory, "1"), "+OK")
	u.want(as("", 0, "GET k", "SET new v"), "-EXECABORT Transaction discarded because of: OOM")
	u.want(as("", 0, "SET k w", "GET k"), "*2\r\n+OK\r\n$1\r\nw")
	// which database a command has is known only when it runs
	u.want(as("", 0, "SELECT 1", "SET k v"), "*2\r\n+OK\r\n-OOM command")
	u.want(as("", 0, "DEL k", "SET k v"), "*2\r\n:1\r\n-OOM command")
	u.want(as("", 0, "FLUSHALL", "GET k"), "*2\r\n+OK\r\n$-1")
}

// A refused transaction has been looked at: that is charged, whichever of its commands decides.
func TestRefusedTransactionsAreCharged(t *testing.T) {
	u := newUsersTest(t)
	const fields = 5000
	hash, zset := []string{"HSET", "h"}, []string{"ZADD", "z"}
	for i := range fields {
		hash = append(hash, fmt.Sprint("field:", i), "v")
		zset = append(zset, "1", fmt.Sprint("member:", i))
	}
	small := []string{"HSET", "small", "f", "v"}
	calls := map[string]commands.Request{
		"hash": userCall(hash...), "zset": userCall(zset...),
		"small hash": userCall(append(small, slices.Repeat(small[2:], fields)...)...),
		"short":      userCall("GET", "nokey"),
	}
	calls["short"] = commands.Request{Cmds: slices.Repeat(calls["short"].Cmds, fields)}
	run := func(q commands.Request) Result {
		return userEntry(t, u.m, u.m.Index()+1, q)
	}
	for _, q := range calls {
		q.Multi = len(q.Cmds) > 1
		run(q)
	}
	limit := userCall(commands.SettingMaxMemory, "1")
	limit.System = true
	run(limit)
	for what, q := range calls {
		q.Multi = true
		q.Cmds = append(slices.Clip(q.Cmds), commandtest.Args("SET", "new", "v"))
		r := run(q)
		if !bytes.HasPrefix(r.Replies[0], []byte("-EXECABORT")) {
			t.Errorf("%s: %.100q", what, r.Replies[0])
		}
		least := uint64(resolveWork * fields)
		if len(q.Cmds) == 2 {
			least = 8 * 2 * fields // for each argument that is looked up
		}
		if r.Spent < least {
			t.Errorf("%s: %d units, want %d", what, r.Spent, least)
		}
	}
}
