package fsm

import (
	"bytes"
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

// The golden snapshot has what requests may do, and consumers of which one was never active.
func TestGoldenRequestWorkAndConsumers(t *testing.T) {
	u := newUsersTest(t)
	u.want(settingOf("", 0, commands.SettingRequestWork, "3"), "+OK")
	u.want(call("XADD x 1-1 f v"), "$3\r\n1-1")
	u.want(call("XGROUP CREATE x g 0"), "+OK")
	u.want(call("XREADGROUP GROUP g busy STREAMS x >"), "*1")
	u.want(call("XGROUP CREATECONSUMER x g idle"), ":1")
	path := goldenFiles + "work-consumers-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, u.m.Snapshot()))
	file := readGolden(t, path)
	m := restore(t, file, testTable())
	if m.times != 3 {
		t.Errorf("requests may do the work %d times", m.times)
	}
	ask := call("XINFO CONSUMERS x g")
	got, want := string(m.Read(nil, ask, 1, 1)), string(u.m.Read(nil, ask, 1, 1))
	if got != want || strings.Count(got, ":-1\r\n") != 1 {
		t.Errorf("its consumers are\n%q, not\n%q", got, want)
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
}
