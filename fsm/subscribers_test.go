package fsm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

// The counts of subscribers are state: entries, reads and scripts see them, and a restored machine.
func TestSubscribersAreState(t *testing.T) {
	u := newUsersTest(t)
	u.want(call("PUBLISH a x"), ":0")
	for _, wrong := range []string{"n1", "n1 1", "n1 1 1 ca", "n1 1 1 xa 1", "n1 1 1  1",
		"n1 1 1 ca -1", "n1 1 1 ca x", "n1 x 1 ca 1", "n1 1 x ca 1"} {
		u.want(settingOf("", 0, append([]string{commands.SystemSubscribers},
			strings.Split(wrong, " ")...)...), "-ERR no such setting")
	}
	tell := func(era string, words ...string) []byte {
		return settingOf("", 0, append([]string{commands.SystemSubscribers, "n1", era},
			words...)...)
	}
	drop := settingOf("", 0, commands.SystemDropSubscribers, "n1")
	u.want(tell("7", "1", "ca", "9"), ":") // of no era
	if got := u.m.subscribers.Era("n1"); got != u.m.Index() {
		t.Errorf("era %d begins at %d", got, u.m.Index())
	}
	u.want(drop, ":")
	era := resp.AppendHead(nil, resp.Int, int64(u.m.Index()))
	u.want(drop, ":")
	u.want(tell(string(era[1:len(era)-2]), "1", "ca", "9"), ":") // of an era that is over
	u.want(call("PUBLISH a x"), ":0")
	u.want(drop, ":")
	era = resp.AppendHead(nil, resp.Int, int64(u.m.Index()))
	now := string(era[1 : len(era)-2])
	u.want(tell(now, "2", "ca", "3", "pa*", "2", "sa", "1"), ":0")
	u.want(tell(now, "1", "ca", "7"), ":0") // it was sent before
	check := func(m *Machine) {
		t.Helper()
		for question, want := range map[string]string{
			"PUBLISH a x": ":5", "SPUBLISH a x": ":1", "PUBLISH ab x": ":2",
			"PUBSUB NUMSUB a": "*2\r\n$1\r\na\r\n:3", "PUBSUB NUMPAT": ":1",
			"EVAL return{redis.call('PUBLISH','a','x'),redis.call('PUBSUB','NUMPAT')} 0": "*2\r\n" +
				":5\r\n:1",
		} {
			e := &Entry{ClockMs: 1, Batches: [][]byte{call(question)}}
			got := string(mustApply(t, m, m.Index()+1, e, true).Replies[0])
			if got != want+"\r\n" {
				t.Errorf("%s: %q, want %q", question, got, want)
			}
		}
		if got := string(m.Read(nil, call("PUBSUB CHANNELS"), 1, 1)); got != "*1\r\n$1\r\na\r\n" {
			t.Errorf("channels %q", got)
		}
	}
	u.want(settingOf("", 0, commands.SystemClientIDs), ":4294967296")
	path := goldenFiles + "subscribers-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, u.m.Snapshot()))
	check(u.m)
	file := readGolden(t, path)
	m := restore(t, file, testTable())
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
	check(m)
	if a, b := m.StateSum().Sum, u.m.StateSum().Sum; a != b {
		t.Errorf("the hashes of the states differ: %x, %x", a, b)
	}
	ids := settingOf("", 0, commands.SystemClientIDs)
	for i, m := range []*Machine{m, u.m} {
		e := &Entry{ClockMs: 1, Batches: [][]byte{ids, ids}}
		got := string(bytes.Join(mustApply(t, m, m.Index()+1, e, true).Replies, nil))
		if want := ":4296015872\r\n:4297064448\r\n"; got != want {
			t.Errorf("machine %d gives the ids %q, want %q", i, got, want)
		}
	}
	m = restore(t, file, testTable())
	other := restore(t, file, testTable())
	mustApply(t, other, other.Index()+1, &Entry{ClockMs: 1,
		Batches: [][]byte{tell(now, "3", "ca", "0")}}, true)
	mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1}, true)
	if other.StateSum().Sum == m.StateSum().Sum {
		t.Error("other subscribers have the same hash")
	}
}

// A script of level 1 may not ask, as on release 0.1, and nothing is counted.
func TestSubscribersBelowTheSecondLevel(t *testing.T) {
	m := NewMachine(testTable())
	for question, want := range map[string]string{
		"EVAL return(redis.pcall('PUBSUB','NUMPAT').err) 0": "$49\r\nERR This Redis command is " +
			"not allowed from script",
		"PUBSUB NUMPAT": "-ERR 'pubsub|numpat' cannot be run here",
		"PUBLISH a x":   ":0",
	} {
		got := string(mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1,
			Batches: [][]byte{call(question)}}, true).Replies[0])
		if got != want+"\r\n" {
			t.Errorf("%s: %q, want %q", question, got, want)
		}
	}
	for _, setting := range [][]byte{settingOf("", 0, commands.SystemDropSubscribers, "n1"),
		settingOf("", 0, commands.SystemSubscribers, "n1", "0", "1", "ca", "1"),
		settingOf("", 0, commands.SystemClientIDs)} {
		got := mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1, Batches: [][]byte{setting}}, true)
		if !strings.HasPrefix(string(got.Replies[0]), "-ERR no such setting") {
			t.Errorf("%q", got.Replies[0])
		}
	}
}
