// Tests of many leases, or leases with many keys: they end in parts, take memory, and have bounds.

package fsm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/leases"
)

// A lease has at most 10,000 keys. Those that are stale make room.
func TestLeasesHaveABound(t *testing.T) {
	l := newLeased(t)
	id := l.grant(0, "1000")
	fill := func(script string) string {
		return l.apply(commands.Request{Cmds: [][][]byte{commandtest.Args("EVAL", script, "0",
			id)}})
	}
	const all = "for i = 1, 10000 do redis.call('SET', 'k' .. i, 'v', 'LEASE', ARGV[1]) end " +
		"return 1"
	if got := fill(all); got != ":1\r\n" {
		t.Fatal(got)
	}
	l.want("SET more v LEASE "+id, "-ERR a lease has at most 10000 keys")
	l.want("EXISTS more", ":0")
	l.want("SET k1 v LEASE "+id, "+OK")
	l.want("PERSIST k5000", ":1")
	l.want("SET more v LEASE "+id, "+OK")
	l.want("SET evenmore v LEASE "+id, "-ERR a lease has at most 10000 keys")
	if got := l.do(0, "LEASE INFO "+id); strings.Count(got, "\r\n$") < 64 ||
		!strings.Contains(got, "keys\r\n:10000\r\n$5\r\nnames\r\n*64\r\n") {
		t.Errorf("%.300q", got)
	}
	l.clockMs = 500
	l.want("LEASE KEEPALIVE "+id, "*1\r\n:1000")
	l.want("PTTL k10000", ":1000")
	other := restore(t, snapshotBytes(t, l.m.Snapshot()), testTable())
	if other.StateSum() != l.m.StateSum() {
		t.Error("a snapshot has other leases")
	}
	l.want("LEASE REVOKE "+id, ":1")
	l.want("DBSIZE", ":1")
}

// The connections of a node can have many leases with many keys: one request does a part.
func TestManyLeasesEndInParts(t *testing.T) {
	l := newLeased(t)
	for range 20 {
		id := l.grant(7, "1000 CONNECTION GRACE 100")
		script := "for i = 1, 3000 do redis.call('SET', ARGV[1] .. i, 'v', 'LEASE', ARGV[1]) " +
			"end return 1"
		l.apply(commands.Request{Cmds: [][][]byte{commandtest.Args("EVAL", script, "0",
			id)}})
	}
	l.m.SetNode("n1")
	parts := 1
	for ; l.set(commands.SystemDropHolders, "n1") == ":1\r\n"; parts++ {
	}
	if parts < 3 || len(l.m.HolderNodes()) > 0 {
		t.Errorf("dropped in %d parts, leaves %q", parts, l.m.HolderNodes())
	}
	if len(l.events) != 1 || l.events[0].Kind != commands.HoldersDropped {
		t.Errorf("the node learns %+v", l.events)
	}
	for parts = 1; l.set(commands.SystemKeepHolder, "n1", "7") == ":1\r\n"; parts++ {
	}
	if parts < 3 || len(l.m.HolderNodes()) != 1 {
		t.Errorf("kept in %d parts", parts)
	}
	for parts = 1; l.set(commands.SystemEndHolder, "n1", "7") == ":1\r\n"; parts++ {
	}
	l.clockMs = 102
	for range 10 { // two leases have as many keys as an entry forgets
		l.want("PING", "+PONG")
	}
	if n := l.m.leases.Len(); parts < 3 || n != 0 {
		t.Errorf("ended in %d parts, %d leases are left", parts, n)
	}
	l.want("DBSIZE", ":0")
}

// A user sees and changes only his own leases, unless he may do everything.
func TestLeasesBelongToUsers(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "ACL SETUSER ann on nopass ~* +@all -flushall"), "+OK")
	u.want(as("", 0, "ACL SETUSER bob on nopass ~* +@all -flushall"), "+OK")
	u.want(as("", 0, "ACL SETUSER all on nopass ~* &* +@all"), "+OK")
	ann, bob, all := u.created("ann"), u.created("bob"), u.created("all")
	id := strings.Trim(u.do(as("ann", ann, "LEASE GRANT 1000")), ":\r\n")
	u.want(as("ann", ann, "SET k v LEASE "+id), "+OK")
	const denied = "-NOPERM this lease belongs to another user"
	for _, line := range []string{"LEASE KEEPALIVE 1 " + id, "LEASE INFO " + id,
		"LEASE REVOKE " + id, "SET k v LEASE " + id} {
		u.want(as("bob", bob, line), denied)
	}
	if got := u.do(as("bob", bob, "LEASE LIST")); got != "*2\r\n$1\r\n0\r\n*0\r\n" {
		t.Errorf("bob sees %q", got)
	}
	u.want(as("ann", ann, "LEASE KEEPALIVE "+id), "*1\r\n:1000")
	u.want(as("ann", ann, "LEASE LIST"), "*2\r\n$1\r\n0\r\n*1")
	u.want(as("all", all, "LEASE KEEPALIVE "+id), "*1\r\n:1000")
	u.want(as("", 0, "LEASE INFO "+id), "*20")
	if got := u.do(as("all", all, "LEASE INFO "+id)); !strings.Contains(got, "user\r\n$3\r\nann") {
		t.Errorf("info %q", got)
	}
	own := strings.Trim(u.do(as("all", all, "LEASE GRANT 1000")), ":\r\n")
	u.want(as("bob", bob, "LEASE INFO "+own), denied)
	u.want(as("", 0, "ACL SETUSER all -flushall"), "+OK") // it is his own, with less rights
	u.want(as("all", all, "LEASE INFO "+own), "*20")
	u.want(as("all", all, "LEASE INFO "+id), denied)
	u.want(as("", 0, "ACL DELUSER ann"), ":1")
	u.want(as("", 0, "ACL SETUSER ann on nopass ~* +@all -flushall"), "+OK")
	u.want(as("ann", u.created("ann"), "LEASE INFO "+id), denied) // another ann
	u.want(as("all", all, "LEASE REVOKE "+own), ":1")
	u.want(as("", 0, "LEASE REVOKE "+id), ":1")
}

// Leases count as data, and maxmemory refuses more.
func TestLeasesTakeMemory(t *testing.T) {
	l := newLeased(t)
	before := l.m.memory()
	id := l.grant(0, "1000")
	if l.m.memory() <= before {
		t.Error("a lease counts nothing")
	}
	l.set(commands.SettingMaxMemory, "1")
	l.want("LEASE GRANT 1000", "-OOM")
	l.want("LEASE KEEPALIVE "+id, "*1\r\n:1000")
	l.want("LEASE REVOKE "+id, ":1")
	if l.m.memory() != before {
		t.Error("a lease counts after its end")
	}
}

// LIST pages through all, also while leases end.
func TestLeaseListPages(t *testing.T) {
	l := newLeased(t)
	ids := map[string]bool{}
	for n := range 25 {
		ids[l.grant(0, strconv.Itoa(1000+n))] = true
	}
	seen, cursor, pages := map[string]bool{}, "0", 0
	for cursor != "0" || pages == 0 {
		reply := l.do(0, "LEASE LIST COUNT 7 CURSOR "+cursor)
		fields := strings.Split(reply, "\r\n")
		cursor = fields[2]
		for i, f := range fields {
			if f == "id" {
				seen[fields[i+1][1:]] = true
			}
		}
		pages++
	}
	if pages != 4 || fmt.Sprint(seen) != fmt.Sprint(ids) {
		t.Errorf("%d pages with %d of %d leases", pages, len(seen), len(ids))
	}
}

// An entry forgets as many keys of leases that have ended as it has time for, and charges for them.
func TestLeasesWithManyKeysEnd(t *testing.T) {
	w := newWaitMachine(t)
	const n, keys = 6, 3968
	for l := range n {
		w.run("LEASE GRANT 1000 DELAY 1000000")
		for i := range keys / 128 {
			line := fmt.Sprintf("LOCK.ACQUIRE %d-%d me LEASE %d KEYS 127", l, i, w.leases.Last())
			for j := range 127 {
				line += fmt.Sprintf(" %d-%d-%d", l, i, j)
			}
			if got := w.run(line); strings.HasPrefix(got, "-") {
				t.Fatal(got)
			}
		}
	}
	w.clock += 1001
	for left := n; left > 0; {
		w.apply()
		now := w.leases.Len()
		if gone := left - now; gone == 0 || gone > 2 || w.spent < uint64(gone*keys*8) {
			t.Fatalf("%d leases have gone for %d units", gone, w.spent)
		}
		left = now
		if at, ok := w.NextDeadline(); !ok || (at < w.clock) != (left > 0) {
			t.Errorf("%d leases are left, and the next deadline is %d", left, at)
		}
	}
	if w.leases.Bytes() != 0 {
		t.Errorf("%d bytes are left", w.leases.Bytes())
	}
}

// Keys that a lease has already need no room in it, and taking them from a large one costs what it
// takes.
func TestRoomInLeases(t *testing.T) {
	w := newWaitMachine(t)
	w.run("LEASE GRANT 100000")
	first := w.leases.Last()
	line := func(command string, from int, lease uint64) string {
		names := ""
		for i := range 124 {
			names += fmt.Sprintf(" k%05d", from+i+1)
		}
		return fmt.Sprintf("%s k%05d me LEASE %d KEYS 124%s", command, from, lease, names)
	}
	for i := 0; i < leases.MaxItems; i += 125 {
		if got := w.run(line("LOCK.ACQUIRE", i, first)); strings.HasPrefix(got, "-") {
			t.Fatal(got)
		}
	}
	if got := w.run(line("LOCK.EXTEND", 0, first)); strings.HasPrefix(got, "-") {
		t.Errorf("keys that it has: %s", got)
	}
	few := w.spent
	if got := w.run(fmt.Sprintf("SET more x LEASE %d", first)); got != "-ERR a lease has at most "+
		"10000 keys" {
		t.Errorf("one more: %s", got)
	}
	w.run("LEASE GRANT 100000")
	w.run(line("LOCK.EXTEND", 0, w.leases.Last()))
	if moved := uint64(125 * 10_000 / 16); w.spent < few+moved {
		t.Errorf("%d units, %d for keys that it has", w.spent, few)
	}
	w.restores()
}
