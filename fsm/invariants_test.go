package fsm

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/tests/detector"
)

// Tests of the machine alone have a clock that falls.
func init() {
	invariant.Ends = func(name string) bool { return name != clockNeverFalls.Name }
}

// breaks reports whether act breaks a rule, which ends it in tests.
func breaks(r *invariant.Rule, act func()) (broken bool) {
	defer func() { broken = recover() == r.Name+" does not hold" }()
	act()
	return false
}

func TestInvariantsCanFail(t *testing.T) {
	m := newestMachine(testTable())
	at := func(index uint64, clockMs int64) {
		if _, err := m.Apply(index, &Entry{ClockMs: clockMs}, false); err != nil {
			t.Fatal(err)
		}
	}
	at(1, 1000)
	at(2, 1000)
	before := clockNeverFalls.Times()
	at(3, 999)
	if clockNeverFalls.Times() != before+1 || m.ClockMs() != 1000 {
		t.Errorf("an earlier stamp is not seen: %d ms", m.ClockMs())
	}
	m.positions.next = 1
	m.ks.SetRevision(keyspace.NewRevision(m.epoch, m.index, 1))
	if !breaks(revisionsRise, func() { m.nextPosition(&commands.Env{}) }) {
		t.Error("two requests with one revision are not seen")
	}
}

// Who waits for what is free is seen.
func TestForgottenWaitsAreSeen(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	w.wait("n1", 1, "LOCK.ACQUIRE l a PX 1000 WAIT 0")
	if w.waitsForFree() != nil {
		t.Error("the lock is held")
	}
	w.ks.Begin(w.ks.Now(), w.ks.CurrentRevision())
	w.ks.DB(0).Delete([]byte("l"))
	w.ks.End()
	w.waiting.locks.ready = nil // as if the change had not told
	if w.waitsForFree() == nil {
		t.Error("a wait for a free lock is not seen")
	}
}

// Looking for such waits does not hold up a snapshot, however many locks each waits for.
func TestForgottenWaitsAreSought(t *testing.T) {
	detector.Skip(t)
	w := newWaitMachine(t)
	w.run("SET held x")
	for i := range 3000 {
		line := "LOCK.ACQUIRE k" + strconv.Itoa(i) + " a PX 1000 WAIT 0 KEYS 127"
		for j := range 126 {
			line += " k" + strconv.Itoa(i) + ":" + strconv.Itoa(j)
		}
		w.wait("n1", uint64(i+1), line+" held")
	}
	least := time.Hour
	for range 5 {
		from := time.Now()
		if w.waitsForFree() != nil {
			t.Fatal("each waits for what is held")
		}
		least = min(least, time.Since(from))
	}
	if t.Log(least); least > 20*time.Millisecond {
		t.Errorf("looking at waits for 381,000 locks takes %v", least)
	}
}

// A counter that drifts is seen at the next snapshot, whatever it counts.
func TestDriftingCountsAreSeen(t *testing.T) {
	a := NewAdapter(testTable(), 7, func([]commands.Event) {}, func(err error) { t.Fatal(err) })
	for i, lines := range [][]string{{}, {"SET a 1 PX 100000", "SADD s x y z", "ZADD z 1 a 2 b",
		"RPUSH l a b", "HSET h f v g w", "HPEXPIRE h 100 FIELDS 1 f", "XADD x 1 f v",
		"XGROUP CREATE x g 0", "PFADD p a b", "LEASE GRANT 1000", "LOCK.ACQUIRE k o PX 1000",
		"IDEMPOTENT r INCR n", "WINDOW.HIT w 3 PX 100", "EVAL return(1) 0"},
		{"SREM s x", "ZREM z a", "LPOP l", "HDEL h g", "XDEL x 1", "DEL a", "LOCK.RELEASE k o"}} {
		a.Apply(&raft.Log{Index: uint64(i + 1), Data: AppendEntry(nil,
			&Entry{ClockMs: int64(i * 60), Level: commands.FeatureLevel,
				Batches: [][]byte{calls(lines...)}})})
	}
	broken := func(drift counted) bool {
		var sink bufferSink
		taken, err := a.Snapshot()
		now := a.counted.Load()
		a.counted.Store(&counted{now.index, now.memory + drift.memory, now.keys + drift.keys})
		if err := errors.Join(err, taken.Persist(&sink)); err != nil {
			t.Fatal(err)
		}
		return breaks(countsEqual, func() {
			if err := a.CheckSnapshot(&sink); err != nil {
				t.Error(err)
			}
		})
	}
	if broken(counted{}) {
		t.Error("counters that are right do not agree")
	}
	if !broken(counted{memory: -1}) || !broken(counted{keys: 1}) {
		t.Error("a counter that is wrong is not seen")
	}
}

// More keys expire at once than an entry sweeps: what is left of them is no drift, and who waits
// for a lock among them was not forgotten.
func TestExpiredKeysBreakNoInvariant(t *testing.T) {
	a := NewAdapter(testTable(), 7, func([]commands.Event) {}, func(err error) { t.Fatal(err) })
	many := make([]string, 3*entrySweep)
	for i := range many {
		many[i] = "SET k" + strconv.Itoa(i) + " v PX 10"
	}
	wait := lineRequest("LOCK.ACQUIRE l a PX 1000 WAIT 0")
	wait.Wait = &commands.Wait{Node: []byte("n1"), Number: 1}
	for i, batch := range [][]byte{nil, calls(append(many, "SET l x PX 20")...),
		commands.AppendRequest(nil, &wait), calls("SET other x")} {
		a.Apply(&raft.Log{Index: uint64(i + 1), Data: AppendEntry(nil, &Entry{Term: 1,
			ClockMs: int64(i/3) * 100, Level: commands.FeatureLevel, Batches: [][]byte{batch}})})
	}
	db := a.m.ks.DB(0)
	if db.Size() == db.Len() || db.Find([]byte("l")) != nil || a.m.waiting.locks.waits != 1 {
		t.Fatalf("%d keys, %d exist, %d wait", db.Size(), db.Len(), a.m.waiting.locks.waits)
	}
	var sink bufferSink
	if breaks(freeLocksGranted, func() {
		taken, err := a.Snapshot()
		if err := errors.Join(err, taken.Persist(&sink)); err != nil {
			t.Fatal(err)
		}
	}) {
		t.Error("a lock that is not swept yet is taken for a free one")
	}
	if breaks(countsEqual, func() {
		if err := a.CheckSnapshot(&sink); err != nil {
			t.Error(err)
		}
	}) {
		t.Error("keys that are not swept yet are taken for drift")
	}
}
