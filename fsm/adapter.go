package fsm

import (
	"bufio"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/lockorder"
)

// Adapter presents the machine to hashicorp/raft and package cluster. Its lock admits either many
// readers or one entry. No other file of this package knows Raft.
type Adapter struct {
	origin  uint64
	table   *commands.Table
	deliver func([]commands.Event)
	fatal   func(error)
	alarm   func(what string) // a request panicked; nil: nobody is told
	// a script took far too long; nil: nobody is told
	slowScript func(commands.SlowScript)

	watched  atomic.Bool              // report the commands that scripts call
	interest atomic.Pointer[Interest] // in changes of keys; nil: in none

	observer Observer  // nil: none
	readers  sync.Pool // holds *commands.Witness for dry runs

	mu lockorder.RWMutex
	m  *Machine

	// replaying: entries come from this node's own log, and an earlier process sent their messages.
	// Of changes a client of this process may wait: the end of the log may not be committed yet.
	replaying bool
	applied   atomic.Uint64 // index of the newest applied entry
	level     atomic.Uint64 // the machine's
	shiftMs   atomic.Int64  // likewise
	users     atomic.Pointer[Users]
	waits     atomic.Int64 // commands that wait in the machine
	held      atomic.Bool  // nobody is served
	// the machine counts subscribers
	subscribed atomic.Bool
	holders    atomic.Bool   // connections hold leases
	refused    atomic.Int64  // scripts
	worked     atomic.Uint64 // work of the applied entries
	panics     atomic.Uint64 // requests that panicked
	slow       atomic.Uint64 // scripts
	saved      atomic.Uint64 // Machine.changes at the newest snapshot
	counted    atomic.Pointer[counted]
	lookups    lookups // what reads counted
	scripted   func(*commands.ScriptCalls)
	checked    uint64 // index of this node's newest check; only the proposer uses it
}

// lookups counts the keys that a node's reads looked up. It is no part of the state.
type lookups struct{ found, missed atomic.Uint64 }

// Observer receives what requests do to locks and windows. It is no part of the machine, which does
// not depend on it. It must not block, and keep neither the facts nor what they refer to.
type Observer interface {
	// Applied receives every entry in order, from the goroutine that applies. There are facts only
	// of entries that this process made: so just one process counts them, and none at a replay.
	Applied(at keyspace.Revision, clockMs int64, facts []commands.Fact)
	// Tried receives the facts of writes that changed nothing and were not logged. It is called
	// concurrently.
	Tried(clockMs int64, facts []commands.Fact)
	commands.Known
}

// SetObserver sets the observer, before the first entry. Reads show what it knows.
func (a *Adapter) SetObserver(o Observer) {
	a.observer, a.m.known = o, o
	a.m.Witness(true)
}

// checkEvery is the number of entries between two checks of a leader below commands.LevelSecond.
const checkEvery = 256

// NewAdapter returns an adapter around an empty machine. origin must be unique per start: it marks
// the entries whose replies are wanted here. deliver receives the events of an entry from the
// goroutine that applies, in order and before the replies are returned; it must not block or keep
// the slice. fatal is called when the machine cannot continue, and must not return.
func NewAdapter(
	table *commands.Table, origin uint64, deliver func([]commands.Event), fatal func(error),
) *Adapter {
	a := &Adapter{origin: origin, table: table, deliver: deliver, fatal: fatal,
		m: NewMachine(table)}
	a.attend(a.m)
	a.level.Store(a.m.Level())
	a.users.Store(a.m.Users())
	return a
}

// attend has a machine tell the adapter what goes wrong.
func (a *Adapter) attend(m *Machine) {
	m.alarm = a.panicked
	m.ofEntries, m.ofReads = overseer{a, false, slowRun}, overseer{a, true, slowRead}
	m.lookups, m.scripted = &a.lookups, a.scriptCalls
}

// Applied is what Apply returns for an entry that this process made.
type Applied struct {
	replies [][]byte
	work    []uint64
}

// Outcome returns the replies to each batch that ran, and its work in units of commands.Env.Work.
// The batches after them did not run.
func (a *Applied) Outcome() (replies [][]byte, work []uint64) { return a.replies, a.work }

// Apply implements raft.FSM. For an entry that this process made it returns an *Applied.
func (a *Adapter) Apply(log *raft.Log) any {
	e, err := DecodeEntry(log.Data)
	if err != nil {
		a.fatal(fmt.Errorf("log entry %d cannot be applied: %w", log.Index, err))
		return nil
	}
	e.Term = log.Term
	a.mu.Lock()
	a.m.Watch(a.watched.Load())
	// Under the lock: a client whose read misses this entry has set its interest by now.
	a.m.Observe(a.observed())
	result, err := a.m.Apply(log.Index, e, e.Origin == a.origin)
	clockMs, revision := a.m.ClockMs(), a.m.Revision()
	a.mu.Unlock()
	if err != nil {
		a.fatal(fmt.Errorf("log entry %d cannot be applied: %w", log.Index, err))
		return nil
	}
	a.applied.Store(log.Index)
	a.worked.Add(result.Spent)
	a.shiftMs.Store(a.m.ShiftMs())
	a.level.Store(a.m.Level()) // only this goroutine changes it
	a.users.Store(a.m.Users())
	a.waits.Store(a.m.waiting.size())
	a.subscribed.Store(a.m.subscribers.Bytes() > 0)
	a.holders.Store(a.m.leases.Bound())
	a.held.Store(a.m.Held())
	a.refused.Store(int64(a.m.engine.Refused()))
	if a.observer != nil {
		a.observer.Applied(revision, clockMs, result.Facts)
	}
	events := result.Events
	if a.replaying {
		events = slices.DeleteFunc(events, func(e commands.Event) bool {
			return e.Kind != commands.KeyChanged && e.Kind != commands.DBChanged
		})
	}
	if len(events) > 0 {
		a.deliver(events)
	}
	if result.Replies == nil {
		return nil
	}
	return &Applied{result.Replies, result.Work}
}

// SetAlarm sets the function that gets each panic of a request, with its stack, before the first
// entry. It is called while an entry or a read runs, also concurrently.
func (a *Adapter) SetAlarm(alarm func(what string)) { a.alarm = alarm }

func (a *Adapter) panicked(p any) {
	a.panics.Add(1)
	if a.alarm != nil {
		a.alarm(fmt.Sprintf("%v\n%s", p, debug.Stack()))
	}
}

// SetSlowScript sets the function that receives each script that took far longer than its work
// should, before the first entry. It must not block, and is called while an entry or a read runs,
// also concurrently. It is not called for entries that were in this node's log when it started.
func (a *Adapter) SetSlowScript(f func(commands.SlowScript)) { a.slowScript = f }

// SetScriptCalls sets the function that receives how often scripts called commands, before the
// first entry. It must not block, nor keep the counts, and is called while an entry or a read runs,
// also concurrently. Of the nodes of a cluster, the one that answers the script's request counts.
func (a *Adapter) SetScriptCalls(f func(*commands.ScriptCalls)) { a.scripted = f }

func (a *Adapter) scriptCalls(calls *commands.ScriptCalls) {
	if a.scripted != nil {
		a.scripted(calls)
	}
}

// SlowScripts returns how many such scripts there were since the process started.
func (a *Adapter) SlowScripts() uint64 { return a.slow.Load() }

// RefusedScripts returns how many scripts are refused. It never blocks.
func (a *Adapter) RefusedScripts() int64 { return a.refused.Load() }

// ScriptVerdicts returns the scripts that are refused, or were and are allowed, oldest first.
func (a *Adapter) ScriptVerdicts() []commands.ScriptVerdict {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.ScriptVerdicts()
}

// Panics returns how many requests panicked since the process started.
func (a *Adapter) Panics() uint64 { return a.panics.Load() }

// Worked returns the work of the entries applied since the process started, in units of
// commands.Env.Work.
func (a *Adapter) Worked() uint64 { return a.worked.Load() }

// Watch sets whether the next entries report the commands that scripts call, see Machine.Watch.
func (a *Adapter) Watch(on bool) { a.watched.Store(on) }

// SetInterest sets the filter of keys whose changes the next entries report; nil: none. f is called
// while an entry is applied, and must be quick. A client that runs a command after SetInterest
// returned is notified of every change that the command did not see.
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

// Replaying sets whether the next entries were in this node's log when it started. The goroutine
// that applies calls it.
func (a *Adapter) Replaying(yes bool) { a.replaying = yes }

// AppendEntry appends one entry with the batches to dst.
func (a *Adapter) AppendEntry(dst []byte, clockMs, wallUs int64, batches [][]byte) []byte {
	return AppendEntry(dst, &Entry{
		Origin: a.origin, ClockMs: clockMs, WallUs: wallUs, Check: a.nextCheck(), Batches: batches,
	})
}

// Sum is Machine.StateSum.
func (a *Adapter) Sum() (index, sum uint64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	c := a.m.StateSum()
	return c.Index, c.Sum
}

// nextCheck returns the running hash for an entry to carry, none if the last was recent, or if
// members compare their states beside the log.
func (a *Adapter) nextCheck() Check {
	if a.level.Load() >= commands.LevelSecond || a.applied.Load() < a.checked+checkEvery {
		return Check{}
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	c := a.m.Sum()
	a.checked = c.Index
	return c
}

// NextStart is Machine.NextStart.
func (a *Adapter) NextStart(nowUs int64) (start keyspace.Revision, behindUs int64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.NextStart(nowUs)
}

// ContinueAbove is Machine.ContinueAbove.
func (a *Adapter) ContinueAbove(start keyspace.Revision) (index, term uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.ContinueAbove(start)
}

// Epoch is Machine.Epoch.
func (a *Adapter) Epoch() uint64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.Epoch()
}

// EntryClock reads the stamp of an encoded entry.
func (a *Adapter) EntryClock(data []byte) (clockMs, wallUs int64, ok bool) {
	return entryClock(data)
}

// Users returns the users as of the newest applied entry. It does not block.
func (a *Adapter) Users() *Users { return a.users.Load() }

// Level returns the machine's feature level.
func (a *Adapter) Level() uint64 { return a.level.Load() }

// KnownLevel returns the newest feature level that this release knows.
func (a *Adapter) KnownLevel() uint64 { return commands.FeatureLevel }

// CheckLevel fails if this release does not know the level of what.
func (a *Adapter) CheckLevel(what string, level uint64) error { return CheckLevel(what, level) }

// AppendRaise appends an entry that only raises the feature level to dst.
func (a *Adapter) AppendRaise(dst []byte, clockMs, wallUs int64, level uint64) []byte {
	return AppendEntry(dst, &Entry{Origin: a.origin, ClockMs: clockMs, WallUs: wallUs,
		Level: level})
}

// EntryLevel reads the feature level that an encoded entry raises the machine to; 0: none.
func (a *Adapter) EntryLevel(data []byte) uint64 { return entryLevel(data) }

// SnapshotLevel reads the feature level of a snapshot from the first SnapshotHead bytes of its
// file, or from all if there are fewer; 0: unknown.
func (a *Adapter) SnapshotLevel(head []byte) uint64 { return snapshotLevel(head) }

// SnapshotHead returns how many bytes SnapshotLevel needs.
func (a *Adapter) SnapshotHead() int { return snapshotHead }

// Clock returns the cluster clock of the newest applied entry, ms.
func (a *Adapter) Clock() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.ClockMs()
}

// ShiftMs is Machine.ShiftMs. It never blocks.
func (a *Adapter) ShiftMs() int64 { return a.shiftMs.Load() }

// NewestUs is Machine.NewestUs.
func (a *Adapter) NewestUs() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.NewestUs()
}

// NextDeadline returns the earliest deadline of any key, ms of the cluster clock.
func (a *Adapter) NextDeadline() (clockMs int64, ok bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.NextDeadline()
}

// Read is Machine.ReadAt.
func (a *Adapter) Read(
	dst, batch []byte, clockMs, wallUs int64, next Instants, early bool,
) []byte {
	replies, _ := a.ReadWork(dst, batch, clockMs, wallUs, next, early)
	return replies
}

// ReadWork is Machine.ReadWork.
func (a *Adapter) ReadWork(
	dst, batch []byte, clockMs, wallUs int64, next Instants, early bool,
) (replies []byte, work uint64) {
	return a.read(dst, batch, clockMs, wallUs, 0, next, early)
}

// ReadWithin is ReadWork of at most that many units, for a read that is not to hold up Apply for
// long. done is false if it takes more: then nothing has happened.
func (a *Adapter) ReadWithin(
	dst, batch []byte, clockMs, wallUs int64, most uint64,
) (replies []byte, work uint64, done bool) {
	replies, work = a.read(dst, batch, clockMs, wallUs, most, nil, false)
	return replies, work, work <= most
}

func (a *Adapter) read(
	dst, batch []byte, clockMs, wallUs int64, most uint64, next Instants, early bool,
) (replies []byte, work uint64) {
	if a.observer == nil {
		return a.readWitnessed(dst, batch, clockMs, wallUs, most, next, early, nil)
	}
	w, _ := a.readers.Get().(*commands.Witness)
	if w == nil {
		w = &commands.Witness{}
	}
	replies, work = a.readWitnessed(dst, batch, clockMs, wallUs, most, next, early, w)
	if facts := w.Facts(); len(facts) > 0 {
		a.observer.Tried(clockMs, facts)
	}
	a.readers.Put(w)
	return replies, work
}

func (a *Adapter) readWitnessed(
	dst, batch []byte, clockMs, wallUs int64, most uint64, next Instants, early bool,
	w *commands.Witness,
) (replies []byte, work uint64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.readWitnessed(dst, batch, clockMs, wallUs, most, next, early, w)
}

// SetNode is Machine.SetNode, before the first entry.
func (a *Adapter) SetNode(id string) { a.m.SetNode(id) }

// Waits is Machine.Waits.
func (a *Adapter) Waits(number uint64) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.Waits(number)
}

// LockTokens is Machine.LockTokens.
func (a *Adapter) LockTokens(of []commands.HeldLock) (tokens []uint64, newest uint64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.LockTokens(of)
}

// Held is Machine.Held. It never blocks.
func (a *Adapter) Held() bool { return a.held.Load() }

// WaitingNodes is Machine.WaitingNodes. It blocks only if there are any.
func (a *Adapter) WaitingNodes() []string {
	if a.waits.Load() == 0 {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.WaitingNodes()
}

// FirstWait returns the number that comes before those of the waits of this process.
func (a *Adapter) FirstWait() uint64 { return FirstWait(a.origin) }

// OwnWaits is Machine.OwnWaits. It blocks only if there are any waits.
func (a *Adapter) OwnWaits() []uint64 {
	if a.waits.Load() == 0 {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.OwnWaits()
}

// SubscribedNodes is Machine.SubscribedNodes. It blocks only if there are any.
func (a *Adapter) SubscribedNodes() []string {
	if !a.subscribed.Load() {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.SubscribedNodes()
}

// HolderNodes is Machine.HolderNodes. It blocks only if there are any.
func (a *Adapter) HolderNodes() []string {
	if !a.holders.Load() {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.HolderNodes()
}

// Stats counts what the machine holds.
func (a *Adapter) Stats() commands.Stats {
	a.mu.RLock()
	defer a.mu.RUnlock()
	s := a.m.Stats()
	s.Changes -= min(s.Changes, a.saved.Load())
	s.Found, s.Missed = a.lookups.found.Load(), a.lookups.missed.Load()
	return s
}

// ValueBytes estimates the memory of the values of keys. It does not wait: ok is false while an
// entry is applied.
func (a *Adapter) ValueBytes(db int, keys [][]byte) (bytes int, ok bool) {
	if !a.mu.TryRLock() {
		return 0, false
	}
	defer a.mu.RUnlock()
	return a.m.ValueBytes(db, keys), true
}

// ScriptFlags returns the flags that a script declares, if it does.
func (a *Adapter) ScriptFlags(s commands.Script) (flags commands.FunctionFlags, declared bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.ScriptFlags(s)
}

// Snapshot implements raft.FSM.
func (a *Adapter) Snapshot() (raft.FSMSnapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changes := a.m.changes
	a.counted.Store(a.m.countedNow())
	if w := a.m.waitsForFree(); w != nil {
		freeLocksGranted.Broken("index", a.m.index, "node", w.node, "wait", w.number)
	}
	return frozen{a.m.Snapshot(), func() { a.saved.Store(changes) }}, nil
}

// Freeze is Machine.Snapshot.
func (a *Adapter) Freeze() *Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.Snapshot()
}

// Restore implements raft.FSM. It replaces the machine only after reading the whole snapshot.
func (a *Adapter) Restore(from io.ReadCloser) error {
	defer from.Close()
	m, err := ReadSnapshot(bufio.NewReader(from), a.table)
	if err != nil {
		return err
	}
	a.mu.Lock()
	if a.observer != nil {
		m.known = a.observer
		m.Witness(true)
	}
	m.SetNode(a.m.waiting.node)
	a.attend(m)
	a.m = m
	a.applied.Store(m.Index())
	a.shiftMs.Store(m.ShiftMs())
	a.level.Store(m.Level())
	a.users.Store(m.Users())
	a.waits.Store(m.waiting.size())
	a.subscribed.Store(m.subscribers.Bytes() > 0)
	a.holders.Store(m.leases.Bound())
	a.held.Store(m.Held())
	a.refused.Store(int64(m.engine.Refused()))
	a.saved.Store(0)
	a.mu.Unlock()
	// Clients were not notified of the changes that came with the snapshot.
	a.deliver([]commands.Event{{Kind: commands.StateReplaced}})
	return nil
}

// frozen is a Snapshot as raft.FSMSnapshot.
type frozen struct {
	s     *Snapshot
	saved func() // called when it is written
}

// Persist implements raft.FSMSnapshot. It leaves at least half of the time to requests.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if _, err := f.s.WriteTo(&restingWriter{sink, rests{time.Now()}}); err != nil {
		_ = sink.Cancel()
		return err
	}
	err := sink.Close()
	if err == nil {
		f.saved()
	}
	return err
}

// CheckSnapshot reads a snapshot as Restore does, beside Apply, and keeps nothing of it. Like
// Persist it leaves at least half of the time to requests.
func (a *Adapter) CheckSnapshot(r io.Reader) error {
	has, err := CheckSnapshot(&restingReader{r, rests{time.Now()}}, a.table)
	if was := a.counted.Load(); err == nil && was != nil && was.index == has.Index &&
		(was.memory != has.Memory || was.keys != has.Keys) {
		countsEqual.Broken("index", has.Index, "keys", has.Keys, "before", was.keys, "bytes",
			has.Memory, "before-bytes", was.memory)
	}
	return err
}

// countsEqual holds of what changes count up and down, entry by entry.
var countsEqual = invariant.New("counts-equal",
	"a snapshot has as many keys, and counts as much memory, as the machine that wrote it",
	"a node that starts from it may refuse what others take, and ends, as states-equal says")

// counted is what a machine counted when a snapshot was taken.
type counted struct {
	index  uint64
	memory int64
	keys   int
}

// countedNow returns what the machine counts; nil below commands.LevelSecond, where nothing is
// compared with it.
func (m *Machine) countedNow() *counted {
	if m.level < commands.LevelSecond {
		return nil
	}
	c := &counted{index: m.index, memory: m.memory()}
	for i := range keyspace.Databases {
		c.keys += m.ks.DB(i).Size() // a snapshot has those that are not swept yet, too
	}
	return c
}

// rests is when a goroutine that works for long has rested. With one that never sleeps, Go looks
// for requests on sockets only every 10 ms.
type rests struct{ at time.Time }

// rest rests for as long as its caller has worked, if that was workBeforeRest.
func (r *rests) rest() {
	if worked := time.Since(r.at); worked >= workBeforeRest {
		time.Sleep(min(worked, longestRest))
		r.at = time.Now()
	}
}

// restingWriter and restingReader let their caller rest.
type restingWriter struct {
	io.Writer
	rests
}

type restingReader struct {
	io.Reader
	rests
}

const (
	// workBeforeRest is longer than what a rest takes besides: timers are late by a millisecond.
	workBeforeRest = 2 * time.Millisecond
	// longestRest bounds the rest after a slow disk.
	longestRest = 10 * time.Millisecond
)

func (w *restingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.rest()
	return n, err
}

func (r *restingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.rest()
	return n, err
}

// Release implements raft.FSMSnapshot.
func (frozen) Release() {}
