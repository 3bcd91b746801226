// Machines that apply the same entries stay equal, whether they were restored from a snapshot
// half-way, built replies, or served reads in between ("Determinism" in docs/architecture.md).

package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// agreementEntries is the length of a log; one machine is restored half-way, and again after every
// few entries. agreementLogs is the number of logs.
const (
	agreementEntries = 600
	agreementLogs    = 10
)

func TestMachinesAgree(t *testing.T) {
	detector.Skip(t)
	seed := seeds.Of(t)
	for i := range uint64(agreementLogs) {
		t.Run(fmt.Sprint("log", i), func(t *testing.T) { machinesAgree(t, seed+i) })
	}
}

func machinesAgree(t *testing.T, seed uint64) {
	table := testTable()
	g := random.NewCalls(table, seed)
	g.OddCase = true
	answering, silent, restored := newestMachine(table), newestMachine(table), (*Machine)(nil)
	answering.SetNode("n1")
	silent.SetNode("n1")
	// The state depends on nobody who is connected to a node: no client of the others wants to know
	// anything, those of this one all that there is.
	watching := newestMachine(table)
	watching.SetNode("n2")
	watching.Observe(func(int, string) bool { return true })
	watching.Watch(true)
	watching.Witness(true)
	replies := newReplyCount(table)
	waits := randomWaits{}
	events, served, keys := 0, 0, 0 // keys: the maximum, since a log may end with a FLUSHALL
	var half *Snapshot
	var halfBytes []byte
	for index := uint64(1); index <= agreementEntries; index++ {
		if index == agreementEntries/2 {
			half = answering.Snapshot()
			halfBytes = snapshotBytes(t, half)
			restored = restore(t, halfBytes, table)
			restored.SetNode("n1")
		}
		if restored != nil && g.IntN(4) == 0 {
			restored = restore(t, snapshotBytes(t, restored.Snapshot()), table)
			restored.SetNode("n1")
		}
		e := randomEntry(g)
		if index%10 == 0 {
			setRandomLimit(g, answering, e)
		}
		if index%30 == 0 {
			refuseRandomScript(g, e)
		}
		if index > agreementEntries/3 {
			waits.add(g, answering, e)
		}
		if index > 1 {
			e.Check = answering.Sum()
		}
		decoded, err := DecodeEntry(AppendEntry(nil, e))
		if err != nil {
			t.Fatal(err)
		}
		decoded.Term = e.Term
		a := mustApply(t, answering, index, decoded, true)
		b := mustApply(t, silent, index, decoded, false)
		if len(b.Replies) != 0 {
			t.Fatalf("entry %d: unwanted replies", index)
		}
		sameEvents(t, index, a, b)
		sameState(t, index, decoded, answering, silent, a, b)
		c := mustApply(t, watching, index, decoded, true)
		sameReplies(t, index, decoded, a, c)
		sameState(t, index, decoded, answering, watching, a, c)
		events += len(a.Events)
		for i := range a.Events {
			if a.Events[i].Kind == commands.Served {
				served++
			}
		}
		keys = max(keys, answering.ks.Len())
		replies.add(t, decoded, a)
		if restored != nil {
			c := mustApply(t, restored, index, decoded, true)
			sameReplies(t, index, decoded, a, c)
			sameEvents(t, index, a, c)
			sameState(t, index, decoded, answering, restored, a, c)
		}
		// Only one of the machines is read from.
		answering.Read(nil, g.Reads(), decoded.ClockMs+g.Int64N(50), decoded.WallUs)
		if answering.Sum() != silent.Sum() {
			t.Fatalf("entry %d: a read changed the state", index)
		}
		waits.count(t, a)
	}
	want := snapshotBytes(t, silent.Snapshot())
	if !bytes.Equal(want, snapshotBytes(t, answering.Snapshot())) ||
		!bytes.Equal(want, snapshotBytes(t, watching.Snapshot())) ||
		!bytes.Equal(want, snapshotBytes(t, restored.Snapshot())) {
		t.Error("equal machines give different snapshots")
	}
	again := restore(t, want, table)
	if !bytes.Equal(want, snapshotBytes(t, again.Snapshot())) {
		t.Error("a restored machine gives another snapshot")
	}
	sameState(t, again.Index(), &Entry{}, silent, again, Result{}, Result{})
	if !bytes.Equal(halfBytes, snapshotBytes(t, half)) {
		t.Error("a snapshot changed while the machine went on")
	}
	t.Logf("at most %d keys, %d at the end, %d events, %d served, %d of %d loans given back", keys,
		answering.ks.Len(), events, served, waits.back, waits.back+waits.late)
	if keys == 0 || events == 0 || served == 0 || waits.back == 0 || waits.late == 0 {
		t.Error("nothing to compare")
	}
	replies.judge(t)
}

// A snapshot is written while entries change all that it holds, for the race detector.
func TestSnapshotBesideEntries(t *testing.T) {
	table := testTable()
	g := random.NewCalls(table, seeds.Of(t))
	m := newestMachine(table)
	index := uint64(0)
	apply := func(entries int) {
		for range entries {
			index++
			mustApply(t, m, index, randomEntry(g), false)
		}
	}
	apply(200)
	for range 3 {
		s := m.Snapshot()
		want := snapshotBytes(t, s)
		var writing sync.WaitGroup
		writing.Go(func() {
			for range 3 {
				var got bytes.Buffer
				if _, err := s.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("a snapshot changed while the machine went on: %v", err)
				}
			}
		})
		apply(50)
		writing.Wait()
	}
}

// A machine whose state differs from the leader's stops at the leader's check, below LevelSecond.
func TestDivergenceIsSeen(t *testing.T) {
	table := testTable()
	set := func(value string) *Entry {
		q := &commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args("SET", "k", value)}}
		return &Entry{ClockMs: 1, Batches: [][]byte{commands.AppendRequest(nil, q)}}
	}
	leader, follower := NewMachine(table), NewMachine(table)
	mustApply(t, leader, 1, set("a"), true)
	mustApply(t, follower, 1, set("b"), true)
	_, err := follower.Apply(2, &Entry{ClockMs: 1, Check: leader.Sum()}, true)
	var diverged *DivergedError
	if !errors.As(err, &diverged) || diverged.Index != 1 {
		t.Errorf("%v, want a divergence at entry 1", err)
	}
	if _, err := leader.Apply(2, &Entry{ClockMs: 1, Check: leader.Sum()}, true); err != nil {
		t.Errorf("the leader's own check: %v", err)
	}
}

func mustApply(t testing.TB, m *Machine, index uint64, e *Entry, answer bool) Result {
	t.Helper()
	m.alarm = func(p any) { t.Errorf("entry %d: a request panicked: %v", index, p) }
	r, err := m.Apply(index, e, answer)
	if err != nil {
		t.Fatalf("entry %d: %v", index, err)
	}
	// later entries overwrite the machine's own
	r.Events = append([]commands.Event(nil), r.Events...)
	return r
}

func snapshotBytes(t testing.TB, s *Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("snapshot: %d bytes announced, %d written, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

func restore(t testing.TB, snapshot []byte, table *commands.Table) *Machine {
	t.Helper()
	m, err := ReadSnapshot(bytes.NewReader(snapshot), table)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sameReplies(t *testing.T, index uint64, e *Entry, a, b Result) {
	t.Helper()
	for i := range a.Replies {
		if !bytes.Equal(a.Replies[i], b.Replies[i]) {
			t.Fatalf("entry %d: replies differ\n%q\n%q\n%s", index, a.Replies[i], b.Replies[i],
				entryText(e))
		}
	}
}

func sameEvents(t *testing.T, index uint64, a, b Result) {
	t.Helper()
	if !reflect.DeepEqual(a.Events, b.Events) {
		t.Fatalf("entry %d: events differ\n%v\n%v", index, a.Events, b.Events)
	}
}

// sameState compares two machines that applied an entry, and what it took them.
func sameState(t *testing.T, index uint64, e *Entry, a, b *Machine, ra, rb Result) {
	t.Helper()
	state := func(m *Machine, r Result) string {
		return fmt.Sprintf("hashes %+v %+v, %d bytes, scripts %d, %d and %d of waits and loans "+
			"%x; %d batches took %d", m.Sum(), m.StateSum(), m.memory(), m.engine.Counts(),
			m.waiting.bytes, m.waiting.lent.bytes, m.waiting.freeze().appendTo(nil), r.Ran, r.Spent)
	}
	if a, b := state(a, ra), state(b, rb); a != b {
		t.Fatalf("entry %d: the machines differ:\n%s\n%s%s", index, a, b, entryText(e))
	}
}

// entryText shows the calls of an entry.
func entryText(e *Entry) string {
	var s strings.Builder
	var r commands.RequestReader
	for _, run := range e.Batches {
		r.Reset(run)
		for r.More() {
			q, err := r.Next()
			if err != nil {
				return err.Error()
			}
			fmt.Fprintf(&s, "\n  db %d RESP%d multi %v: %q", q.DB, q.Proto, q.Multi, q.Cmds)
		}
	}
	return s.String()
}

// replyCount counts how the random calls outside of transactions ended: calls that all fail would
// prove nothing.
type replyCount struct {
	table       *commands.Table
	calls, good map[string]int
}

func newReplyCount(table *commands.Table) *replyCount {
	return &replyCount{table: table, calls: map[string]int{}, good: map[string]int{}}
}

// add counts the replies of an entry. An internal error is a bug in a handler, whatever the call.
func (c *replyCount) add(t *testing.T, e *Entry, result Result) {
	t.Helper()
	var r commands.RequestReader
	for i, run := range e.Batches {
		if bytes.Contains(result.Replies[i], []byte("ERR internal error")) {
			t.Fatalf("%q%s", result.Replies[i], entryText(e))
		}
		replies, err := commandtest.ParseAll(result.Replies[i])
		if err != nil {
			t.Fatal(err)
		}
		r.Reset(run)
		for r.More() {
			q, err := r.Next()
			if err != nil || len(replies) == 0 {
				t.Fatalf("a reply is missing, %v%s", err, entryText(e))
			}
			if spec, err := c.table.Resolve(firstCall(q)); err == nil {
				c.calls[spec.FullName()]++
				if !replies[0].IsError() {
					c.good[spec.FullName()]++
				}
			}
			replies = replies[1:]
		}
		if len(replies) != 0 {
			t.Fatalf("%d replies too many%s", len(replies), entryText(e))
		}
	}
}

// firstCall returns the call of a request that is not a transaction.
func firstCall(q *commands.Request) [][]byte {
	if q.Multi {
		return commandtest.Args("")
	}
	return q.Cmds[0]
}

// judge fails if too few calls succeeded.
func (c *replyCount) judge(t *testing.T) {
	t.Helper()
	calls, good := 0, 0
	var never []string
	for name, n := range c.calls {
		calls += n
		good += c.good[name]
		if c.good[name] == 0 {
			never = append(never, name)
		}
	}
	slices.Sort(never)
	t.Logf("%d of %d single calls succeeded; none of %v", good, calls, never)
	if good*5 < calls*2 {
		t.Errorf("only %d of %d calls succeeded", good, calls)
	}
}

// randomEntry makes an entry of random requests.
func randomEntry(g *random.Calls) *Entry {
	e := &Entry{}
	e.ClockMs, e.WallUs = g.Stamps()
	e.Origin, e.Batches = g.Uint64(), g.Batches()
	return e
}

// refuseRandomScript adds the refusal of a script to an entry, or lets it run again, or sets the
// time.
func refuseRandomScript(g *random.Calls, e *Entry) {
	words := []string{commands.SystemRefuseScript, g.Pick(random.SHAPool), "1234"}
	switch g.IntN(3) {
	case 0:
		words = []string{commands.SystemAllowScript, g.Pick(random.SHAPool)}
	case 1:
		words = []string{commands.SettingTime, fmt.Sprint(e.WallUs/1000 + g.Int64N(7200) - 3600)}
	}
	e.Batches = append(e.Batches, settingOf("", 0, words...))
}

// setRandomLimit adds a change of maxmemory to an entry: to none, to less than m holds, to that, or
// to more.
func setRandomLimit(g *random.Calls, m *Machine, e *Entry) {
	limit := fmt.Sprint(g.Int64N(8) * m.memory() / 2)
	e.Batches = append(e.Batches, settingOf("", 0, commands.SettingMaxMemory, limit))
}
