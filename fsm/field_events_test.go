// Notifications that the scenarios' redis-server does not have: about the TTLs of hash fields and
// set members, and about keys that are overwritten.

package fsm

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// expiryCall is a call some time after the one before, with the notifications that it causes.
type expiryCall struct {
	afterMs int64
	call    string
	want    string
}

func TestNotificationsOfFields(t *testing.T) {
	testNotifications(t, []expiryCall{
		{0, "HSET h a 1 b 2 c 3", "new h,hset h"},
		{0, "HEXPIRE h 10 FIELDS 2 a none", "hexpire h"},
		{0, "HEXPIRE h 10 NX FIELDS 1 a", ""},
		{0, "HPERSIST h FIELDS 2 a b", "hpersist h"},
		{0, "HPERSIST h FIELDS 1 a", ""},
		{0, "HGETEX h FIELDS 1 a", ""},
		{0, "HGETEX h PX 50 FIELDS 2 a none", "hexpire h"},
		{0, "HGETEX h PERSIST FIELDS 2 a b", "hpersist h"},
		{0, "HGETEX h PX 0 FIELDS 1 a", "hdel h"},
		{0, "HGETDEL h FIELDS 2 b none", "hdel h"},
		{0, "HPEXPIRE h 0 FIELDS 1 c", "hdel h,del h"},
		{0, "HSETEX h FIELDS 1 a 1", "new h,hset h"},
		{0, "HSETEX h PX 50 FIELDS 2 a 1 b 2", "hset h,hexpire h"},
		{0, "HSETEX h FNX FIELDS 1 a 1", ""},
		{0, "HSETEX h KEEPTTL FIELDS 1 c 1", "hset h"},
		{0, "HSETEX h PX 0 FIELDS 1 c 1", "hset h,hdel h"},
		{0, "HSETEX g PX 0 FIELDS 1 c 1", "new g,hset g,hdel g,del g"},
		{0, "HPEXPIRE h 100 FIELDS 1 b", "hexpire h"},
		{51, "PING", "hexpired h"},
		{50, "HSET h x 1", "hexpired h,del h,new h,hset h"},
		{0, "HPEXPIRE h 20 FIELDS 1 x", "hexpire h"},
		{0, "PEXPIRE h 10", "expire h"},
		{30, "PING", "expired h"},
	})
}

func TestNotificationsOfMembers(t *testing.T) {
	testNotifications(t, []expiryCall{
		{0, "SADD s a b c d", "new s,sadd s"},
		{0, "SEXPIRE s 10 MEMBERS 2 a none", "sexpire s"},
		{0, "SEXPIRE s 10 NX MEMBERS 1 a", ""},
		{0, "SPERSIST s MEMBERS 2 a b", "spersist s"},
		{0, "SPERSIST s MEMBERS 1 a", ""},
		{0, "STTL s MEMBERS 1 a", ""},
		{0, "SEXPIREAT s 1 MEMBERS 2 a none", "srem s"},
		{0, "SPEXPIRE s 0 MEMBERS 3 b c d", "srem s,del s"},
		{0, "SADDEX s MEMBERS 1 a", "new s,sadd s"},
		{0, "SADDEX s PX 50 MEMBERS 2 a b", "sadd s,sexpire s"},
		{0, "SADDEX s MNX MEMBERS 1 a", ""},
		{0, "SADDEX s KEEPTTL MEMBERS 1 c", "sadd s"},
		{0, "SADDEX s PX 0 MEMBERS 2 c none", "srem s"},
		{0, "SADDEX s PX 0 MEMBERS 1 none", ""},
		{0, "SADDEX none PX 0 MEMBERS 1 c", ""},
		{0, "SADDEX s PX 0 MEMBERS 2 a b", "srem s,del s"},
		{0, "SADDEX s PX 50 MEMBERS 2 a b", "new s,sadd s,sexpire s"},
		{0, "SPEXPIRE s 100 MEMBERS 1 b", "sexpire s"},
		{51, "PING", "sexpired s"},
		{50, "SADD s x", "sexpired s,del s,new s,sadd s"},
		{0, "SPEXPIRE s 20 MEMBERS 1 x", "sexpire s"},
		{0, "PEXPIRE s 10", "expire s"},
		{30, "PING", "expired s"},
		// the deadline moves with the member
		{0, "SADD src a c w y z", "new src,sadd src"},
		{0, "SADD dst w y z", "new dst,sadd dst"},
		{0, "SEXPIRE src 30 MEMBERS 2 a y", "sexpire src"},
		{0, "SEXPIRE dst 20 MEMBERS 2 w y", "sexpire dst"},
		{0, "SMOVE src dst a", "srem src,sadd dst,sexpire dst"},
		{0, "SMOVE src dst c", "srem src,sadd dst"},
		{0, "SMOVE src dst y", "srem src,sexpire dst"},
		{0, "SMOVE src dst w", "srem src,spersist dst"},
		{0, "SMOVE src dst z", "srem src,del src"},
	})
}

func testNotifications(t *testing.T, all []expiryCall) {
	m := newestMachine(testTable())
	var err error
	if m.events.notify, err = commands.ParseNotifyFlags("EAn"); err != nil {
		t.Fatal(err)
	}
	index, clockMs := uint64(0), int64(1000)
	for _, c := range all {
		index, clockMs = index+1, clockMs+c.afterMs
		if got := notified(t, m, index, clockMs, calls(c.call)); got != c.want {
			t.Errorf("%s after %d ms: notified of %q, want %q", c.call, c.afterMs, got, c.want)
		}
	}
}

// notified applies a call, and returns the keyevent notifications that it causes.
func notified(t *testing.T, m *Machine, index uint64, clockMs int64, call []byte) string {
	t.Helper()
	result := mustApply(t, m, index, &Entry{ClockMs: clockMs, WallUs: clockMs * 1000,
		Batches: [][]byte{call}}, true)
	if len(result.Replies[0]) == 0 || result.Replies[0][0] == '-' {
		t.Fatalf("%q: %q", call, result.Replies[0])
	}
	var all []string
	for _, e := range result.Events {
		event := strings.TrimPrefix(string(e.Channel), "__keyevent@0__:")
		all = append(all, event+" "+string(e.Payload))
	}
	return strings.Join(all, ",")
}

// A move between sorted sets is told as what leaves and what comes.
func TestNotificationsOfScoredMoves(t *testing.T) {
	m := newestMachine(testTable())
	mustApply(t, m, 1, &Entry{ClockMs: 1000,
		Batches: [][]byte{setting("notify-keyspace-events", "Egz")}}, true)
	for i, c := range []struct{ call, want string }{
		{"ZADD z 1 a 2 b 3 c 4 d", "zadd z"},
		{"ZMOVE z to MIN", "zrem z,zadd to"},
		{"ZMOVE z to BYSCORE 8 9", ""},
		{"BZMOVE z to MAX 0 COUNT 2", "zrem z,zadd to"},
		{"ZADD to 2 b", "zadd to"},
		{"ZMOVEMEMBER z to NX MEMBERS 1 b", ""},
		{"ZMOVEMEMBER z to XX MEMBERS 1 b", "zrem z,del z"}, // it has that score there
		{"ZMOVEMEMBER to z MEMBERS 2 d a", "zrem to,zadd z"},
		{"ZMOVE z to BYSCORE -inf inf", "zrem z,del z,zadd to"},
	} {
		if got := notified(t, m, uint64(i+2), 1000, calls(c.call)); got != c.want {
			t.Errorf("%s: notified of %q, want %q", c.call, got, c.want)
		}
	}
}

// Who gives a key another value is told as overwritten, and type_changed, as by Redis 8.2.
func TestNotificationsOfOverwrittenKeys(t *testing.T) {
	m := newestMachine(testTable())
	index := uint64(1)
	set := func(m *Machine, flags string) string {
		index++
		r := mustApply(t, m, index, &Entry{ClockMs: 1000,
			Batches: [][]byte{setting("notify-keyspace-events", flags)}}, true)
		return string(r.Replies[0])
	}
	if got := set(m, "E$slhzgtoc"); got != "+OK\r\n" || m.Notify().String() != "g$lshztEoc" {
		t.Fatalf("%q: %s", got, m.Notify())
	}
	for _, c := range []struct{ call, want string }{
		{"SET a 1", "set a"},
		{"SET a 2", "overwritten a,set a"},
		{"SET a 2 GET", "overwritten a,set a"},
		{"SET a 2 NX", ""},
		{"SETNX a 2", ""},
		{"GETSET a 1", "overwritten a,set a"},
		{"INCR a", "incrby a"},
		{"APPEND a 1", "append a"},
		{"SETRANGE a 0 1", "setrange a"},
		{"RPUSH l x", "rpush l"},
		{"RPUSH l y", "rpush l"},
		{"SET l 1", "overwritten l,type_changed l,set l"},
		{"SETEX l 100 1", "overwritten l,set l,expire l"},
		{"MSET l 1 n 1 n 2", "overwritten l,set l,set n,overwritten n,set n"},
		{"SADD s x", "sadd s"},
		{"SADD u y", "sadd u"},
		{"SUNIONSTORE a s u", "overwritten a,type_changed a,sunionstore a"},
		{"SUNIONSTORE a s u", "overwritten a,sunionstore a"},
		{"SUNIONSTORE new s u", "sunionstore new"},
		{"SINTERSTORE a s u", "del a"},
		{"ZADD z 1 x", "zadd z"},
		{"ZUNIONSTORE s 1 z", "overwritten s,type_changed s,zunionstore s"},
		{"ZRANGESTORE s z 0 -1", "overwritten s,zrangestore s"},
		{"SORT z BY nosort STORE s", "overwritten s,type_changed s,sortstore s"},
		{"BITOP NOT l l", "overwritten l,set l"},
		{"BITOP NOT s l", "overwritten s,type_changed s,set s"},
		{"RENAME z new", "rename_from z,rename_to new,overwritten new,type_changed new"},
		{"RENAME new z", "rename_from new,rename_to z"},
		{"RENAMENX z y", "rename_from z,rename_to y"},
		{"COPY y z", "copy_to z"},
		{"COPY y z REPLACE", "copy_to z,overwritten z"},
		{"COPY y l REPLACE", "copy_to l,overwritten l,type_changed l"},
		{"GEOADD geo 1 1 x", "zadd geo"},
		{"GEOSEARCHSTORE y geo FROMMEMBER x BYRADIUS 1 m", "overwritten y,geosearchstore y"},
	} {
		index++
		if got := notified(t, m, index, 1000, calls(c.call)); got != c.want {
			t.Errorf("%s: notified of %q, want %q", c.call, got, c.want)
		}
	}
	_, dump, _ := strings.Cut(string(m.Read(nil, calls("DUMP n"), 1000, 1_000_000)), "\r\n")
	for i, want := range []string{"overwritten y,type_changed y,restore y",
		"overwritten y,restore y"} {
		call := request("RESTORE", "y", "0", strings.TrimSuffix(dump, "\r\n"), "REPLACE")
		if got := notified(t, m, index+1+uint64(i), 1000, call); got != want {
			t.Errorf("RESTORE: notified of %q, want %q", got, want)
		}
	}
	index += 2
	set(m, "Ec")
	if got := notified(t, m, index+1, 1000, calls("RENAME u y")); got != "type_changed y" {
		t.Errorf("%q", got)
	}
	restored := restore(t, snapshotBytes(t, m.Snapshot()), testTable()).Notify()
	if got := restored.String(); got != "Ec" {
		t.Errorf("restored as %q", got)
	}
	first := NewMachine(testTable())
	for _, flags := range []string{"Ko", "Kc"} {
		if got := set(first, flags); !strings.HasPrefix(got, "-ERR Invalid event class") {
			t.Errorf("%s at level 1: %q", flags, got)
		}
	}
}
