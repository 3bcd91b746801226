package fsm

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/commands"
)

// calls encodes commands, given as words, as one batch.
func calls(lines ...string) []byte {
	var batch []byte
	for _, l := range lines {
		var args [][]byte
		for _, w := range strings.Fields(l) {
			args = append(args, []byte(w))
		}
		batch = commands.AppendRequest(batch, &commands.Request{Proto: 2, Cmds: [][][]byte{args}})
	}
	return batch
}

// A malformed batch gets an error reply. The machine and the other batches of its entry go on.
func TestCorruptBatchIsAnswered(t *testing.T) {
	m := newestMachine(testTable())
	broken := append(calls("SET a 1"), 0xff, 0xff, 0xff)
	result, err := m.Apply(1, &Entry{ClockMs: 1, Batches: [][]byte{broken, calls("GET a")}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(result.Replies[0]); got != "+OK\r\n-ERR commands: corrupt request\r\n" {
		t.Errorf("the broken batch: %q", got)
	}
	if got := string(result.Replies[1]); got != "$1\r\n1\r\n" {
		t.Errorf("the batch after it: %q", got)
	}
}

// Below LevelSecond a machine whose running hash is not the leader's must not go on, as in 0.1.
func TestDivergenceIsFound(t *testing.T) {
	m := NewMachine(testTable())
	if _, err := m.Apply(1, &Entry{ClockMs: 1, Batches: [][]byte{calls("SET a 1")}},
		false); err != nil {
		t.Fatal(err)
	}
	right := m.Sum()
	if _, err := m.Apply(2, &Entry{ClockMs: 2, Check: right}, false); err != nil {
		t.Fatal("its own hash:", err)
	}
	right.Sum++
	_, err := m.Apply(3, &Entry{ClockMs: 3, Check: right}, false)
	var diverged *DivergedError
	if !errors.As(err, &diverged) || diverged.Index != 1 {
		t.Fatalf("another hash: %v", err)
	}
}

// A wrong hash in the log ends no machine of the newest level, which writes none.
func TestWrongCheckIsReplayed(t *testing.T) {
	a := NewAdapter(testTable(), 7, func([]commands.Event) {}, func(err error) { t.Fatal(err) })
	apply := func(e *Entry) {
		index, _ := a.Sum()
		a.Apply(&raft.Log{Index: index + 1, Data: AppendEntry(nil, e)})
	}
	apply(&Entry{ClockMs: 1, Level: commands.LevelSecond})
	apply(&Entry{ClockMs: 2, Batches: [][]byte{calls("SET a 1")}})
	apply(&Entry{ClockMs: 3, Check: Check{Index: 2, Sum: 5}})
	for range 2 * checkEvery {
		apply(&Entry{ClockMs: 4, Batches: [][]byte{calls("INCR a")}})
	}
	e, err := DecodeEntry(a.AppendEntry(nil, 5, 5, nil))
	if err != nil || e.Check != (Check{}) {
		t.Errorf("an entry of the newest level carries %+v, %v", e.Check, err)
	}
}

// The hash that machines compare shows what the running hash of changes does not.
func TestStateSum(t *testing.T) {
	sums := map[uint64]string{}
	for name, steps := range map[string][]string{
		"nothing": {}, "a key": {"SET a 1"}, "another value": {"SET a 2"},
		"an instant": {"TIME"}, "a script": {"SCRIPT LOAD a=1"},
		"a script that is counted otherwise": {"EVAL a=1 0"},
	} {
		for range 2 {
			m := newestMachine(testTable())
			for _, step := range steps {
				e := &Entry{ClockMs: 1, Batches: [][]byte{calls(step)}}
				mustApply(t, m, m.Index()+1, e, false)
			}
			c := restore(t, snapshotBytes(t, m.Snapshot()), testTable()).StateSum()
			if c != m.StateSum() {
				t.Errorf("%s: a restored machine has another sum", name)
			}
			if other := sums[c.Sum]; other != "" && other != name {
				t.Errorf("%s and %s have one sum", name, other)
			}
			sums[c.Sum] = name
		}
	}
}

// A restarting node finds entries in its own log whose messages were sent before: it does not send
// them again.
func TestReplaySendsNoMessages(t *testing.T) {
	var sent []string
	a := NewAdapter(testTable(), 7, func(evs []commands.Event) {
		for _, ev := range evs {
			sent = append(sent, string(ev.Payload))
		}
	}, func(err error) { t.Fatal(err) })
	apply := func(index uint64, line string) {
		a.Apply(&raft.Log{Index: index, Data: AppendEntry(nil,
			&Entry{ClockMs: int64(index), Batches: [][]byte{calls(line)}})})
	}
	a.Replaying(true)
	apply(1, "PUBLISH c old")
	a.Replaying(false)
	apply(2, "PUBLISH c new")
	if len(sent) != 1 || sent[0] != "new" {
		t.Fatalf("sent %q", sent)
	}
}

// bufferSink is a snapshot's file in memory; full fails its end.
type bufferSink struct {
	bytes.Buffer
	full bool
}

func (*bufferSink) ID() string    { return "" }
func (*bufferSink) Cancel() error { return nil }
func (s *bufferSink) Close() error {
	if s.full {
		return errors.New("no space left")
	}
	return nil
}

// What changed nothing is no change, and a snapshot starts the count again once it is written.
func TestChangesSinceTheSnapshot(t *testing.T) {
	a := NewAdapter(testTable(), 7, func([]commands.Event) {}, func(err error) { t.Fatal(err) })
	index := uint64(0)
	want := func(n uint64, lines ...string) {
		t.Helper()
		index++
		a.Apply(&raft.Log{Index: index, Data: AppendEntry(nil,
			&Entry{ClockMs: int64(index), Batches: [][]byte{calls(lines...)}})})
		if got := a.Stats().Changes; got != n {
			t.Errorf("after %q: %d changes, want %d", lines, got, n)
		}
	}
	want(0)
	want(2, "SET a 1 PX 100000", "SADD s x y z")
	want(2, "SET a 2 NX", "DEL none", "SADD s x", "EXPIRE none 10", "GET a", "SREM s none")
	want(3, "MSET b 1 c 2")
	early, _ := a.Snapshot()
	want(4, "DEL b")
	var sink bufferSink
	sink.full = true
	if err := early.Persist(&sink); err == nil || a.Stats().Changes != 4 {
		t.Errorf("a snapshot that failed: %v, %d", err, a.Stats().Changes)
	}
	sink = bufferSink{}
	if err := early.Persist(&sink); err != nil || a.Stats().Changes != 1 {
		t.Errorf("a snapshot that was written: %v, %d", err, a.Stats().Changes)
	}
	want(2, "DEL c")
	if err := a.Restore(io.NopCloser(&sink)); err != nil || a.Stats().Changes != 0 {
		t.Errorf("a snapshot that was read: %v, %d", err, a.Stats().Changes)
	}
	want(1, "DEL c")
}
