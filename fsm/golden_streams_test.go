// Streams that release 0.1 could write but not read (docs/adr/0051).

package fsm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// looseCalls returns the calls that made the golden snapshot, and those that follow.
func looseCalls(t *testing.T) (made, then [][][]byte) {
	t.Helper()
	parts := strings.SplitN(string(readGolden(t, goldenFiles+"loose-streams.txt")), "# then\n", 2)
	calls := [2][][][]byte{}
	for i, part := range parts {
		path := filepath.Join(t.TempDir(), "calls.txt")
		if err := os.WriteFile(path, []byte(part), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := commandtest.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range files[0].Steps {
			calls[i] = append(calls[i], s.Args)
		}
	}
	return calls[0], calls[1]
}

// TestGoldenLooseStreams reads a snapshot of release 0.1 that it refused itself. The machine equals
// one that made the calls, and stays so: below LevelSecond, and after an entry that raises it.
func TestGoldenLooseStreams(t *testing.T) {
	table := testTable()
	made, then := looseCalls(t)
	replayed := NewMachine(table)
	index := uint64(99)
	call := func(m *Machine, index uint64, args [][]byte) []byte {
		q := commands.Request{Proto: 2, Cmds: [][][]byte{args}}
		e := &Entry{ClockMs: 900 + int64(index), WallUs: 1_700_000_000_000_000,
			Batches: [][]byte{commands.AppendRequest(nil, &q)}}
		return mustApply(t, m, index, e, true).Replies[0]
	}
	for _, args := range made {
		index++
		if r := call(replayed, index, args); r[0] == '-' {
			t.Fatalf("%q: %q", args, r)
		}
	}
	restored := restore(t, readGolden(t, goldenFiles+"loose-streams-v0.1.bin"), table)
	again := restore(t, sameMachines(t, "the snapshot of 0.1", replayed, restored), table)
	sameMachines(t, "a snapshot", replayed, again)
	machines := []*Machine{replayed, restored, again}
	for _, args := range then {
		index++
		want := call(replayed, index, args)
		for _, m := range machines[1:] {
			if got := call(m, index, args); !bytes.Equal(got, want) {
				t.Errorf("%q is answered by\n%q, a restored machine says\n%q", args, want, got)
			}
		}
		if want[0] == '-' {
			t.Errorf("%q: %q", args, want)
		}
		machines = append(machines, restore(t, sameMachines(t, string(args[0]), replayed,
			machines[len(machines)-1]), table))
	}
	index++
	for _, m := range machines {
		e := &Entry{ClockMs: 5000, WallUs: 1, Level: commands.FeatureLevel}
		mustApply(t, m, index, e, false)
		sameMachines(t, "a raised level", replayed, m)
	}
}

// sameMachines compares two machines and returns their snapshot.
func sameMachines(t *testing.T, when string, a, b *Machine) []byte {
	t.Helper()
	content := snapshotBytes(t, a.Snapshot())
	if got := snapshotBytes(t, b.Snapshot()); !bytes.Equal(got, content) {
		t.Fatalf("after %s the machines differ:\n%q\n%q", when, content, got)
	}
	if a.memory() != b.memory() {
		t.Fatalf("after %s one machine counts %d bytes, the other %d", when, a.memory(), b.memory())
	}
	return content
}

// The golden snapshot has a stream that remembers what its producers added.
func TestGoldenSentOnce(t *testing.T) {
	u := newUsersTest(t)
	u.want(call("XADD x IDMP p 1 * f v"), "$")
	u.want(call("XCFGSET x IDMP-DURATION 9 IDMP-MAXSIZE 2"), "+OK")
	for _, line := range []string{"XADD x IDMP p 1 * f v", "XADD x IDMP p 2 * f v",
		"XADD x IDMPAUTO q * f v", "XADD x IDMP p 3 * f v", "XADD x IDMP p 3 * f v"} {
		u.want(call(line), "$")
	}
	path := goldenFiles + "sent-once-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, u.m.Snapshot()))
	file := readGolden(t, path)
	m := restore(t, file, testTable())
	ask := call("XINFO STREAM x")
	got, want := string(m.Read(nil, ask, 1, 1)), string(u.m.Read(nil, ask, 1, 1))
	if got != want || !strings.Contains(got, "iids-tracked\r\n:3\r\n") {
		t.Errorf("it remembers\n%q, not\n%q", got, want)
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
}
