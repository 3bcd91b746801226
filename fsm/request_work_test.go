package fsm

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/detector"
)

// What a request may do is state: a script, a command and a transaction that are stopped run once
// it is raised, in entries and reads, on a restored machine too, and are stopped again after that.
func TestRequestWorkIsState(t *testing.T) {
	detector.Skip(t)
	u := newUsersTest(t)
	script := commands.AppendRequest(nil, &commands.Request{Proto: 2, Cmds: [][][]byte{{
		[]byte("EVAL"), []byte("for i = 1, 1.2e7 do local x = i end return os.clock() > 0.5"),
		[]byte("0")}}})
	u.want(call("SET s "+strings.Repeat("x", 16<<20)), "+OK")
	var scans [][][]byte
	for range 40 {
		scans = append(scans, [][]byte{[]byte("BITCOUNT"), []byte("s")})
	}
	transaction := commands.AppendRequest(nil,
		&commands.Request{Proto: 2, Multi: true, Cmds: scans})
	check := func(m *Machine, may bool) {
		t.Helper()
		for name, batch := range map[string][]byte{"script": script, "transaction": transaction} {
			e := &Entry{ClockMs: 1, Batches: [][]byte{batch}}
			got := string(mustApply(t, m, m.Index()+1, e, true).Replies[0])
			read := string(m.Read(nil, batch, 1, 1))
			if got != read {
				t.Errorf("%s: an entry answers %.100q, a read %.100q", name, got, read)
			}
			if stopped := strings.Contains(got, commands.SettingRequestWork); stopped == may {
				t.Errorf("%s: %.100q, although it may: %v", name, got, may)
			}
		}
	}
	check(u.m, false)
	for _, wrong := range []string{"0", "11", "-1", "x", "1.5", ""} {
		u.want(settingOf("", 0, commands.SettingRequestWork, wrong), "-ERR")
	}
	u.want(settingOf("", 0, commands.SettingRequestWork, "10"), "+OK")
	check(u.m, true)
	restored := restore(t, snapshotBytes(t, u.m.Snapshot()), testTable())
	if a, b := restored.Sum(), u.m.Sum(); a != b {
		t.Error("the running hashes differ")
	}
	check(restored, true)
	u.want(settingOf("", 0, commands.SettingRequestWork, "1"), "+OK")
	check(u.m, false)
	if times := restore(t, snapshotBytes(t, u.m.Snapshot()), testTable()).times; times > 1 {
		t.Errorf("%d times after it was taken back", times)
	}
}
