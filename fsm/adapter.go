package fsm

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/commands"
)

// Adapter is the machine as hashicorp/raft and package cluster drive it: the one file of this package that knows them. It
// admits readers beside each other and the log alone.
type Adapter struct {
	origin  uint64
	table   *commands.Table
	deliver func([]commands.Event)
	fatal   func(error)

	watched  atomic.Bool              // the commands that scripts call are told of
	interest atomic.Pointer[Interest] // in changes of keys; nil: nobody waits for any

	mu sync.RWMutex
	m  *Machine

	replaying bool          // entries come from this node's own log: their messages were sent in an earlier life
	applied   atomic.Uint64 // index of the newest applied entry
	level     atomic.Uint64 // the machine's
	worked    atomic.Uint64 // by applying entries
	checked   uint64        // index of the newest check that this node put in an entry; the proposer's own
}

// checkEvery is how many entries lie between two checks in a leader's entries.
const checkEvery = 256

// NewAdapter returns an adapter around an empty machine. origin must differ from one start of a process to the next: it tells
// the entries whose replies are wanted here. deliver is called with the events of an entry, in order, by the goroutine that
// applies, before the replies are handed out; it must not block, nor keep the slice. fatal is called when the machine cannot go on, and must not return.
func NewAdapter(table *commands.Table, origin uint64, deliver func([]commands.Event), fatal func(error)) *Adapter {
	a := &Adapter{origin: origin, table: table, deliver: deliver, fatal: fatal, m: NewMachine(table)}
	a.level.Store(a.m.Level())
	return a
}

// Applied is what Apply returns for an entry that this process made.
type Applied struct {
	replies [][]byte
	work    []uint64
}

// Outcome returns the reply to each batch that ran and its work in units of commands.Env.Work. The batches behind them did not run.
func (a *Applied) Outcome() (replies [][]byte, work []uint64) { return a.replies, a.work }

// Apply implements raft.FSM. For an entry that this process made it returns an *Applied.
func (a *Adapter) Apply(log *raft.Log) any {
	e, err := DecodeEntry(log.Data)
	if err != nil {
		a.fatal(fmt.Errorf("log entry %d cannot be applied: %w", log.Index, err))
		return nil
	}
	a.mu.Lock()
	a.m.Watch(a.watched.Load())
	a.m.Observe(a.observed()) // under the lock: who reads behind it and sees nothing of this entry had told its interest too late
	result, err := a.m.Apply(log.Index, e, e.Origin == a.origin)
	a.mu.Unlock()
	if err != nil {
		a.fatal(fmt.Errorf("log entry %d cannot be applied: %w", log.Index, err))
		return nil
	}
	a.applied.Store(log.Index)
	a.worked.Add(result.Spent)
	a.level.Store(a.m.Level()) // only this goroutine changes it
	if !a.replaying && len(result.Events) > 0 {
		a.deliver(result.Events)
	}
	if result.Replies == nil {
		return nil
	}
	return &Applied{result.Replies, result.Work}
}

// Worked is what applying entries has done since the process started, in units of commands.Env.Work.
func (a *Adapter) Worked() uint64 { return a.worked.Load() }

// Watch says whether the commands that scripts call are to be told of from now on, in requests that say who asks.
func (a *Adapter) Watch(on bool) { a.watched.Store(on) }

// SetInterest says which changes of keys are to be told of from now on: those of keys that f answers true for, none if it is nil. f is
// called while an entry is applied, and must be quick. Whoever runs a command after it returned is told of every
// change that the command did not see.
func (a *Adapter) SetInterest(f Interest) {
	if f == nil {
		a.interest.Store(nil)
		return
	}
	a.interest.Store(&f)
}

func (a *Adapter) observed() Interest {
	if f := a.interest.Load(); f != nil {
		return *f
	}
	return nil
}

// Replaying says whether the entries that come next were in this node's log when it started. The goroutine that applies calls it.
func (a *Adapter) Replaying(yes bool) { a.replaying = yes }

// AppendEntry appends one entry with the batches to dst.
func (a *Adapter) AppendEntry(dst []byte, clockMs, wallUs int64, batches [][]byte) []byte {
	return AppendEntry(dst, &Entry{Origin: a.origin, ClockMs: clockMs, WallUs: wallUs, Check: a.nextCheck(), Batches: batches})
}

// nextCheck is the running hash for an entry to carry, none if the last is not long ago.
func (a *Adapter) nextCheck() Check {
	if a.applied.Load() < a.checked+checkEvery {
		return Check{}
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	c := a.m.Sum()
	a.checked = c.Index
	return c
}

// EnterEpoch is the machine's.
func (a *Adapter) EnterEpoch(epoch uint64) (index, term uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.EnterEpoch(epoch)
}

// Epoch is the machine's.
func (a *Adapter) Epoch() uint64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.Epoch()
}

// EntryClock reads the stamp of an encoded entry.
func (a *Adapter) EntryClock(data []byte) (clockMs, wallUs int64, ok bool) { return entryClock(data) }

// Level is the machine's feature level.
func (a *Adapter) Level() uint64 { return a.level.Load() }

// KnownLevel is the newest feature level that this release knows.
func (a *Adapter) KnownLevel() uint64 { return FeatureLevel }

// CheckLevel fails for a level that this release does not know. what has that level.
func (a *Adapter) CheckLevel(what string, level uint64) error { return CheckLevel(what, level) }

// AppendRaise appends an entry that raises the feature level, and does nothing else, to dst.
func (a *Adapter) AppendRaise(dst []byte, clockMs, wallUs int64, level uint64) []byte {
	return AppendEntry(dst, &Entry{Origin: a.origin, ClockMs: clockMs, WallUs: wallUs, Level: level})
}

// EntryLevel reads the feature level that an encoded entry raises the machine to; 0: none.
func (a *Adapter) EntryLevel(data []byte) uint64 { return entryLevel(data) }

// SnapshotLevel reads the feature level of a snapshot off the first SnapshotHead bytes of its file, or all where there are fewer; 0: they do not tell.
func (a *Adapter) SnapshotLevel(head []byte) uint64 { return snapshotLevel(head) }

// SnapshotHead is how many bytes SnapshotLevel wants.
func (a *Adapter) SnapshotHead() int { return snapshotHead }

// Clock is the cluster clock of the newest applied entry, ms.
func (a *Adapter) Clock() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.ClockMs()
}

// NewestUs is the machine's.
func (a *Adapter) NewestUs() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.NewestUs()
}

// NextDeadline is the earliest deadline of any key, ms of the cluster clock.
func (a *Adapter) NextDeadline() (clockMs int64, ok bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.NextDeadline()
}

// Read runs requests that change nothing against the applied state and appends their replies to dst.
func (a *Adapter) Read(dst, run []byte, clockMs, wallUs int64, next Instants) []byte {
	replies, _ := a.ReadWork(dst, run, clockMs, wallUs, next)
	return replies
}

// ReadWork is Read, and returns what the requests did in units of commands.Env.Work besides.
func (a *Adapter) ReadWork(dst, run []byte, clockMs, wallUs int64, next Instants) (replies []byte, work uint64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.ReadWork(dst, run, clockMs, wallUs, next)
}

// Stats counts what the machine holds.
func (a *Adapter) Stats() Stats {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.Stats()
}

// ValueBytes estimates what the values of keys take. It waits for nobody: ok is false while entries are applied.
func (a *Adapter) ValueBytes(db int, keys [][]byte) (bytes int, ok bool) {
	if !a.mu.TryRLock() {
		return 0, false
	}
	defer a.mu.RUnlock()
	return a.m.ValueBytes(db, keys), true
}

// Snapshot implements raft.FSM.
func (a *Adapter) Snapshot() (raft.FSMSnapshot, error) { return frozen{a.Freeze()}, nil }

// Freeze takes the state as it is now; the pause does not depend on the number of keys.
func (a *Adapter) Freeze() *Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.Snapshot()
}

// Restore implements raft.FSM: the machine is replaced only by a snapshot that was read whole.
func (a *Adapter) Restore(from io.ReadCloser) error {
	defer from.Close()
	m, err := ReadSnapshot(bufio.NewReader(from), a.table)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.m = m
	a.applied.Store(m.Index())
	a.level.Store(m.Level())
	a.mu.Unlock()
	a.deliver([]commands.Event{{Kind: commands.StateReplaced}}) // what the entries in between changed nobody was told
	return nil
}

// frozen is a Snapshot as raft.FSMSnapshot.
type frozen struct{ s *Snapshot }

// Persist implements raft.FSMSnapshot.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if _, err := f.s.WriteTo(sink); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (frozen) Release() {}
