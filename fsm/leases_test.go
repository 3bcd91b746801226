package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/leases"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// leased is a machine whose clock a test moves. Each request is an entry of its own.
type leased struct {
	t       *testing.T
	m       *Machine
	clockMs int64
	events  []commands.Event // of the newest entry
}

func newLeased(t *testing.T) *leased {
	l := &leased{t: t, m: newestMachine(testTable()), clockMs: 1}
	l.m.Observe(func(int, string) bool { return true })
	return l
}

func (l *leased) apply(q commands.Request) string {
	l.t.Helper()
	q.Proto = 2
	r := mustApply(l.t, l.m, l.m.Index()+1, &Entry{ClockMs: l.clockMs, WallUs: l.clockMs * 1000,
		Batches: [][]byte{commands.AppendRequest(nil, &q)}}, true)
	l.events = r.Events
	return string(bytes.Join(r.Replies, nil))
}

// do runs a call that a connection of a node sends, none if it has no number.
func (l *leased) do(conn uint64, line string) string {
	l.t.Helper()
	q := commands.Request{Cmds: [][][]byte{commandtest.Args(strings.Fields(line)...)}}
	if conn != 0 {
		q.Holder = &commands.Holder{Node: []byte("n1"), ID: conn}
	}
	return l.apply(q)
}

func (l *leased) set(words ...string) string {
	l.t.Helper()
	return l.apply(commands.Request{System: true, Cmds: [][][]byte{commandtest.Args(words...)}})
}

func (l *leased) want(line, want string) {
	l.t.Helper()
	if got := l.do(0, line); !strings.HasPrefix(got, want) {
		l.t.Errorf("%d ms: %s: %q, want %q", l.clockMs, line, got, want)
	}
}

// grant returns the id of a lease.
func (l *leased) grant(conn uint64, terms string) string {
	l.t.Helper()
	reply := l.do(conn, "LEASE GRANT "+terms)
	id := strings.Trim(reply, ":\r\n")
	if n, err := strconv.ParseInt(id, 10, 64); err != nil || n == 0 {
		l.t.Fatalf("granted %q", reply)
	}
	return id
}

// notes makes the machine notify of what happens to keys, and returns of what it has, in the newest
// entry.
func (l *leased) notes() (notes []string) {
	for _, e := range l.events {
		if e.Kind == commands.Message {
			notes = append(notes, string(e.Channel[strings.IndexByte(string(e.Channel), ':')+1:]))
		}
	}
	return notes
}

// hash makes a hash whose field is attached to a lease, as a lock with several owners is.
func (l *leased) hash(id, key, field string) {
	l.t.Helper()
	l.want("HSET "+key+" "+field+" 1", ":")
	n, _ := strconv.ParseUint(id, 10, 64)
	e := l.m.ks.DB(0).Find([]byte(key))
	at := l.m.leases.Find(n, l.m.ks.Now()).DeadlineMs()
	l.want(fmt.Sprintf("HPEXPIREAT %s %d FIELDS 1 %s", key, at, field), "*1\r\n:1")
	l.m.leases.Attach(n, leases.Item{Key: key, Member: field, Created: uint64(e.Created())})
}

// All that is attached to a lease goes at one instant, and a renewal moves that.
func TestLeasedKeysEndTogether(t *testing.T) {
	l := newLeased(t)
	id := l.grant(0, "1000")
	for _, key := range []string{"a", "b"} {
		l.want("SET "+key+" v NX LEASE "+id, "+OK")
		l.clockMs += 100
	}
	l.hash(id, "h", "one")
	l.want("HSET h two 2", ":1")
	l.clockMs = 901
	l.want("LEASE KEEPALIVE "+id, "*1\r\n:1000\r\n")
	l.clockMs = 1901
	for line, want := range map[string]string{"EXISTS a b": ":2", "HLEN h": ":2",
		"PTTL a": ":0", "HPTTL h FIELDS 1 one": "*1\r\n:0", "LEASE KEEPALIVE 1": "*1\r\n:0"} {
		l.want(line, want)
	}
	l.clockMs++
	for line, want := range map[string]string{"EXISTS a b": ":0", "HKEYS h": "*1\r\n$3\r\ntwo",
		"LEASE KEEPALIVE " + id: "*1\r\n:0", "LEASE INFO " + id: "-NOLEASE",
		"LEASE REVOKE " + id: ":0", "SET a v LEASE " + id: "-NOLEASE",
		"LEASE LIST": "*2\r\n$1\r\n0\r\n*0"} {
		l.want(line, want)
	}
	if l.m.leases.Len() != 0 || l.m.leases.Bytes() != 0 {
		t.Error("the lease is still there")
	}
}

// The end of a lease is a deadline, though it has no keys, or they stay for longer: else reads find
// it until somebody writes, and it gets idle time back when all nodes restart.
func TestEndsOfLeasesAreDeadlines(t *testing.T) {
	l := newLeased(t)
	id := l.grant(0, "1000")
	delayed := l.grant(0, "2000 DELAY 5000")
	l.want("SET k v LEASE "+delayed, "+OK")
	restored := restore(t, snapshotBytes(t, l.m.Snapshot()), testTable())
	for _, want := range []int64{l.clockMs + 1000, l.clockMs + 2000, l.clockMs + 7000} {
		for _, m := range []*Machine{l.m, restored} {
			if at, ok := m.NextDeadline(); !ok || at != want {
				t.Errorf("the next deadline is %d %v, want %d", at, ok, want)
			}
		}
		l.clockMs = want + 1
		l.want("PING", "+PONG")
		restored = restore(t, snapshotBytes(t, l.m.Snapshot()), testTable())
	}
	if at, ok := l.m.NextDeadline(); ok || id == delayed {
		t.Errorf("there is a deadline, %d", at)
	}
}

// A lease that has ended is none for any command, though an entry drops only some.
func TestEndedLeasesAreInvisible(t *testing.T) {
	l := newLeased(t)
	var last string
	for range entryLeases + 10 {
		last = l.grant(0, "1000")
	}
	l.want("SET k v LEASE "+last, "+OK")
	l.clockMs = 1002
	l.want("PING", "+PONG")
	if n := l.m.leases.Len(); n != 10 {
		t.Fatalf("%d leases are left after an entry", n)
	}
	read := func(line, want string) {
		t.Helper()
		got := string(l.m.Read(nil, call(line), l.clockMs, 1))
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("read of %s: %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{"LEASE INFO " + last, "SET k v LEASE " + last,
		"SET k v NX LEASE " + last} {
		read(line, "-NOLEASE no such lease\r\n")
	}
	read("LEASE KEEPALIVE "+last, "*1\r\n:0\r\n")
	read("LEASE REVOKE "+last, ":0\r\n")
	read("LEASE LIST COUNT 100", "*2\r\n$1\r\n0\r\n*0\r\n")
	if l.m.leases.Len() != 10 {
		t.Fatal("reads have dropped leases")
	}
	other := restore(t, snapshotBytes(t, l.m.Snapshot()), testTable())
	if other.leases.Len() != 10 || other.StateSum() != l.m.StateSum() {
		t.Error("a snapshot has other leases")
	}
	l.want("LEASE KEEPALIVE "+last, "*1\r\n:0\r\n")
	if l.m.leases.Len() != 0 {
		t.Error("the rest is not dropped")
	}
}

// A dry run changes no lease, and does not answer what an entry would answer otherwise.
func TestDryRunsLeaveLeases(t *testing.T) {
	l := newLeased(t)
	id := l.grant(0, "1000 DELAY 5000")
	l.want("SET k v LEASE "+id, "+OK")
	before := snapshotBytes(t, l.m.Snapshot())
	for _, line := range []string{"LEASE GRANT 1000", "LEASE KEEPALIVE " + id,
		"LEASE REVOKE " + id, "SET k2 v LEASE " + id} {
		if got := string(l.m.Read(nil, call(line), 1, 1)); got != "" {
			t.Errorf("a dry run of %s: %q", line, got)
		}
	}
	if got := string(l.m.Read(nil, call("SET k v NX LEASE "+id), 1, 1)); got != "$-1\r\n" {
		t.Errorf("a dry run that changes nothing: %q", got)
	}
	if got := string(l.m.Read(nil, call("SET k v NX LEASE "+id), 1002, 1)); got != "" {
		t.Errorf("a dry run after the end: %q", got)
	}
	if !bytes.Equal(snapshotBytes(t, l.m.Snapshot()), before) {
		t.Error("the state has changed")
	}
}

// A renewal is no change of the keys: WATCH does not see it, nobody is notified of it, and none who
// waits is served.
func TestKeepaliveIsQuiet(t *testing.T) {
	l := newLeased(t)
	l.set(commands.SettingNotify, "KEA")
	id := l.grant(0, "1000")
	l.want("SET k v LEASE "+id, "+OK")
	l.hash(id, "h", "f")
	watched := []commands.WatchedKey{}
	for _, key := range []string{"k", "h"} {
		watched = append(watched, commands.WatchedKey{Key: []byte(key),
			Changed: l.m.ks.DB(0).LastChange([]byte(key))})
	}
	l.clockMs = 500
	l.want("LEASE KEEPALIVE "+id, "*1\r\n:1000\r\n")
	if len(l.events) > 0 {
		t.Errorf("events %+v", l.events)
	}
	l.want("PTTL k", ":1000")
	l.want("HPTTL h FIELDS 1 f", "*1\r\n:1000")
	q := commands.Request{Multi: true, Watch: watched, Cmds: [][][]byte{commandtest.Args("PING")}}
	if got := l.apply(q); got != "*1\r\n+PONG\r\n" {
		t.Errorf("WATCH has seen it: %q", got)
	}
	sum := l.m.Sum().Sum
	l.clockMs++
	l.want("LEASE KEEPALIVE "+id, "*1")
	if l.m.Sum().Sum == sum {
		t.Error("the running hash does not show a renewal")
	}
}

// REVOKE deletes what is attached in one entry, as DEL and HDEL do.
func TestRevokeDeletes(t *testing.T) {
	l := newLeased(t)
	l.set(commands.SettingNotify, "KA")
	id := l.grant(0, "1000 DELAY 5000")
	l.want("SET a v LEASE "+id, "+OK")
	l.want("SET b v LEASE "+id, "+OK")
	l.want("SET b other", "+OK") // not attached any more
	l.hash(id, "g", "f")
	l.hash(id, "h", "f")
	l.want("HSET h other 1", ":1")
	l.apply(commands.Request{DB: 3, Cmds: [][][]byte{commandtest.Args("SET", "a", "v", "LEASE",
		id)}})
	l.want("LEASE REVOKE "+id, ":1")
	want := []string{"a", "g", "g", "h", "a"}
	if got := l.notes(); !slicesEqual(got, want) {
		t.Errorf("notifications for %q, want %q", got, want)
	}
	for line, want := range map[string]string{"EXISTS a g": ":0", "GET b": "$5\r\nother",
		"HKEYS h": "*1\r\n$5\r\nother", "LEASE REVOKE " + id: ":0"} {
		l.want(line, want)
	}
}

func slicesEqual(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// What is set otherwise is attached no more, and a key belongs to one lease.
func TestStaleItems(t *testing.T) {
	l := newLeased(t)
	a, b := l.grant(0, "1000"), l.grant(0, "1000")
	for _, key := range []string{"value", "ttl", "persist", "del", "again", "rename", "moved",
		"stays"} {
		l.want("SET "+key+" v LEASE "+a, "+OK")
	}
	l.hash(a, "h", "f")
	for _, line := range []string{"SET value other KEEPTTL", "PEXPIRE ttl 500", "PERSIST persist",
		"DEL del", "DEL again", "RENAME rename renamed", "SET moved v LEASE " + b, "HDEL h f",
		"SET stays v KEEPTTL"} {
		l.do(0, line)
	}
	l.want("SET again v PX 1000", "+OK")
	l.want("LEASE INFO "+b, "*20")
	l.clockMs = 101
	l.want("LEASE KEEPALIVE "+a, "*1\r\n:1000\r\n")
	for key, want := range map[string]string{"value": ":900", "ttl": ":400", "persist": ":-1",
		"again": ":900", "renamed": ":900", "moved": ":900", "stays": ":1000"} {
		l.want("PTTL "+key, want)
	}
	l.want("LEASE KEEPALIVE "+b, "*1\r\n:1000\r\n")
	l.want("PTTL moved", ":1000")
	if n := len(l.m.leases.Find(mustParse(a), 0).Items()); n != 1 {
		t.Errorf("%d items after a renewal, want 1", n)
	}
	l.want("LEASE REVOKE "+a, ":1")
	l.want("EXISTS value ttl persist again renamed moved stays", ":6")
}

func mustParse(id string) uint64 {
	n, _ := strconv.ParseUint(id, 10, 64)
	return n
}

// With DELAY what is attached stays after the end, and also after a renewal.
func TestDelayedEnd(t *testing.T) {
	l := newLeased(t)
	id := l.grant(7, "1000 DELAY 300 CONNECTION GRACE 200")
	l.want("SET k v LEASE "+id, "+OK")
	l.want("PTTL k", ":1300")
	l.clockMs = 401
	l.want("LEASE KEEPALIVE "+id, "*1\r\n:1000")
	l.want("PTTL k", ":1300")
	l.set(commands.SystemEndHolder, "n1", "7")
	l.want("PTTL k", ":500")
	l.clockMs = 602
	l.want("LEASE KEEPALIVE "+id, "*1\r\n:0")
	l.want("PTTL k", ":299")
	l.clockMs = 902
	l.want("EXISTS k", ":0")
}

// A lease ends with its connection, unless another takes it over.
func TestLeasesEndWithTheirConnection(t *testing.T) {
	const ttl = 10_000
	left := func(l *leased, id string) string {
		text := l.do(0, "LEASE INFO "+id)
		if _, behind, ok := strings.Cut(text, "left-ms\r\n:"); ok {
			return behind[:strings.IndexByte(behind, '\r')]
		}
		return text
	}
	for name, c := range map[string]struct {
		steps string
		want  string
	}{
		"closed":                      {"end 7", "5000"},
		"another":                     {"end 8", "10000"},
		"another node":                {"end 7 of n2", "10000"},
		"renewed before":              {"keepalive 8, end 7", "10000"},
		"taken over":                  {"end 7, keepalive 8", "10000"},
		"taken over by one that ends": {"end 7, keepalive 8, end 8", "5000"},
		"renewed by nobody":           {"end 7, keepalive 0", "5000"},
		"renewed too late":            {"end 7, keepalive 7", "5000"},
		"node is lost":                {"drop n1", "5000"},
		"another node is lost":        {"drop n2", "10000"},
		"node comes back":             {"drop n1, keep 7", "10000"},
		"node renews":                 {"drop n1, keepalive 7", "10000"},
		"another comes back":          {"drop n1, keep 8", "5000"},
		"closed while lost":           {"drop n1, end 7, keep 7", "5000"},
		"does not come back":          {"end 7, keep 7", "5000"},
		"closed and lost":             {"end 7, drop n1, keep 7", "5000"},
		"later process":               {"below 7", "10000"},
		"earlier process":             {"below 8, keep 7", "5000"},
	} {
		l := newLeased(t)
		id := l.grant(7, strconv.Itoa(ttl)+" CONNECTION")
		l.want("SET k v LEASE "+id, "+OK")
		for _, step := range strings.Split(c.steps, ", ") {
			words := append(strings.Fields(step), "of", "n1")
			var got string
			switch words[0] {
			case "end":
				got = l.set(commands.SystemEndHolder, words[3], words[1])
			case "keep":
				got = l.set(commands.SystemKeepHolder, "n1", words[1])
			case "drop":
				got = l.set(commands.SystemDropHolders, words[1])
			case "below":
				got = l.set(commands.SystemDropHolders, "n1", words[1])
			case "keepalive":
				n, _ := strconv.ParseUint(words[1], 10, 64)
				l.do(n, "LEASE KEEPALIVE "+id)
				continue
			}
			if got != ":0\r\n" {
				t.Errorf("%s: %s: %q", name, step, got)
			}
		}
		if got := left(l, id); got != c.want {
			t.Errorf("%s: %s ms are left, want %s", name, got, c.want)
		}
		l.want("PTTL k", ":"+c.want)
		other := restore(t, snapshotBytes(t, l.m.Snapshot()), testTable())
		if other.StateSum() != l.m.StateSum() || fmt.Sprint(other.HolderNodes()) !=
			fmt.Sprint(l.m.HolderNodes()) {
			t.Errorf("%s: a restored machine differs", name)
		}
	}
	l := newLeased(t)
	id := l.grant(7, "1000 CONNECTION GRACE 100")
	l.set(commands.SystemDropHolders, "n1")
	l.clockMs = 102
	for range entryLeases { // they end earlier, so that the entry leaves the other
		l.m.leases.Grant(0, leases.Lease{TTLMs: 1, UntilMs: 50})
	}
	if got := l.set(commands.SystemKeepHolder, "n1", "7"); got != ":0\r\n" {
		t.Error(got)
	}
	l.want("LEASE INFO "+id, "-NOLEASE")
	for _, wrong := range [][]string{{commands.SystemEndHolder, "n1"},
		{commands.SystemEndHolder, "n1", "0"}, {commands.SystemEndHolder, "n1", "x"},
		{commands.SystemEndHolder, "", "1"}, {commands.SystemKeepHolder, "n1", "1", "2"},
		{commands.SystemDropHolders}, {commands.SystemDropHolders, ""},
		{commands.SystemDropHolders, "n1", "n2"}, {commands.SystemDropHolders, "n1", "0"},
		{commands.SystemDropHolders, "n1", "1", "2"}} {
		if got := l.set(wrong...); got != "-ERR no such setting\r\n" {
			t.Errorf("%q: %q", wrong, got)
		}
	}
}

// Machines agree whatever happens, and one that was restored in between goes on alike.
func TestLeasesAgree(t *testing.T) {
	g := rand.New(rand.NewPCG(seeds.Of(t), 0))
	table := testTable()
	m, other := newestMachine(table), newestMachine(table)
	clock := int64(1)
	ids := []string{"1"}
	for n := range 3000 {
		clock += int64(g.IntN(40))
		pick := func() string { return ids[max(0, len(ids)-1-g.IntN(8))] }
		key := "k" + strconv.Itoa(g.IntN(12))
		conn := strconv.Itoa(1 + g.IntN(3))
		q := commands.Request{Proto: 2}
		words := ""
		switch g.IntN(12) {
		case 0, 1:
			words = fmt.Sprintf("LEASE GRANT %d DELAY %d", 1+g.IntN(600), g.IntN(2)*g.IntN(50))
			if g.IntN(2) == 0 {
				words += " CONNECTION GRACE " + strconv.Itoa(g.IntN(200))
			}
		case 2, 3, 4:
			words = "SET " + key + " v LEASE " + pick()
		case 5:
			words = "LEASE KEEPALIVE " + pick() + " " + pick()
		case 6:
			words = "LEASE REVOKE " + pick()
		case 7:
			words = "PERSIST " + key
		case 8:
			words = "RENAME " + key + " k1"
		case 9:
			words = commands.SystemEndHolder + " n1 " + conn
			q.System = true
		case 10:
			words = commands.SystemDropHolders + " n1"
			q.System = true
		case 11:
			words = commands.SystemKeepHolder + " n1 " + conn
			q.System = true
		}
		q.Cmds = [][][]byte{commandtest.Args(strings.Fields(words)...)}
		if id, _ := strconv.ParseUint(conn, 10, 64); !q.System {
			q.Holder = &commands.Holder{Node: []byte("n1"), ID: id}
		}
		e := &Entry{ClockMs: clock, WallUs: clock * 1000,
			Batches: [][]byte{commands.AppendRequest(nil, &q)}}
		a := mustApply(t, m, m.Index()+1, e, true)
		b := mustApply(t, other, other.Index()+1, e, n%2 == 0)
		if m.StateSum() != other.StateSum() || a.Spent != b.Spent {
			t.Fatalf("after %d entries, at %s, the machines differ", n, words)
		}
		if reply := string(a.Replies[0]); strings.HasPrefix(words, "LEASE GRANT") &&
			reply[0] == ':' {
			ids = append(ids, strings.Trim(reply, ":\r\n"))
		}
		if n%100 == 99 {
			file := snapshotBytes(t, m.Snapshot())
			if !bytes.Equal(file, snapshotBytes(t, other.Snapshot())) {
				t.Fatalf("after %d entries the snapshots differ", n)
			}
			other = restore(t, file, table)
		}
		checkLeases(t, m)
	}
	if len(ids) < 100 {
		t.Errorf("only %d leases", len(ids))
	}
}

// checkLeases fails unless no key outlives its lease.
func checkLeases(t *testing.T, m *Machine) {
	t.Helper()
	m.leases.After(0, func(l *leases.Lease) bool {
		for _, i := range l.Items() {
			e := m.ks.DB(i.DB).Find([]byte(i.Key))
			if e != nil && uint64(e.Created()) == i.Created && e.Deadline() > l.DeadlineMs() {
				t.Fatalf("%s ends at %d, its lease at %d", i.Key, e.Deadline(), l.DeadlineMs())
			}
		}
		return true
	})
}

// The format of leases in snapshots: every state that they can have.
func TestLeasesInAGoldenSnapshot(t *testing.T) {
	l := newLeased(t)
	for conn := range uint64(4) {
		terms := "60000 DELAY 7"
		if conn > 0 {
			terms += " CONNECTION GRACE 9"
		}
		id := l.grant(conn, terms)
		l.want("SET k"+strconv.FormatUint(conn, 10)+" v LEASE "+id, "+OK")
		if conn == 1 {
			l.set(commands.SystemDropHolders, "n1")
		}
	}
	l.set(commands.SystemEndHolder, "n1", "2")
	path := goldenFiles + "leases-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, l.m.Snapshot()))
	file := readGolden(t, path)
	m := restore(t, file, testTable())
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) ||
		!bytes.Equal(snapshotBytes(t, l.m.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
	if m.StateSum() != l.m.StateSum() {
		t.Error("the hashes of the states differ")
	}
	for n := range len(file) { // a snapshot that ends in the middle
		if _, err := ReadSnapshot(bytes.NewReader(file[:n]), testTable()); err == nil {
			t.Errorf("the first %d bytes are accepted", n)
		}
	}
}

// A hold that is as long as a lease by chance does not depend on it, though an earlier one did.
func TestLaterHoldsAreNotTheLeases(t *testing.T) {
	for _, form := range []string{"SHARED", "PERMITS 1 OF 5"} {
		w := newWaitMachine(t)
		w.run("LOCK.ACQUIRE l other PX 90000 " + form)
		w.run("LEASE GRANT 10000")
		lease := w.leases.Last()
		empty := w.leases.Bytes()
		for _, between := range []string{"LOCK.RELEASE l me", "LOCK.EXTEND l me PX 5000"} {
			w.run(fmt.Sprintf("LOCK.ACQUIRE l me LEASE %d %s", lease, form))
			if got := w.run(between); got == ":0" {
				t.Fatal(got)
			}
			if got := w.leases.Bytes(); got != empty {
				t.Errorf("%s: the lease counts %d bytes, %d before", between, got, empty)
			}
			w.run("LOCK.RELEASE l me")
		}
		w.run("LOCK.ACQUIRE l me PX 10000 " + form)
		w.run(fmt.Sprint("LEASE REVOKE ", lease))
		if got := w.run("HGET l me"); got == "$-1" {
			t.Errorf("%s: its end took a lock that was not its own", form)
		}
	}
}
