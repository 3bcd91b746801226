// The seam to the state machine: the Machine interface, and the applier between Raft and the
// machine, which serialises access and tracks what is applied.

package cluster

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/metrics"
	"github.com/coordd/coordd/internal/pulse"
)

// Machine is the replicated state machine. It does its own locking: one goroutine calls Apply,
// Snapshot and Restore, one calls AppendEntry, and any number call Read, Clock, NewestUs,
// NextDeadline and EntryClock meanwhile. What Snapshot returns is persisted while Apply continues.
type Machine interface {
	// Apply returns one reply per batch, in order, if this node built the entry with AppendEntry,
	// and nil otherwise. The result is a [][]byte, or a value with the method Outcome() (replies
	// [][]byte, work []uint64): then batches at the end may lack a reply, which means that they ran
	// on no node, and work holds the units of each that ran. Apply must neither change nor retain
	// log.Data: the log cache shares the bytes. The replies belong to the caller.
	raft.FSM
	// AppendEntry appends to dst a log entry that carries batches, stamped with the cluster clock
	// (ms) and the time of day (µs since 1970). batches may be empty: a tick. It is not retained.
	AppendEntry(dst []byte, clockMs, wallUs int64, groups [][]byte) []byte
	// EntryClock returns the stamp of an encoded entry; ok is false if data is no entry.
	EntryClock(data []byte) (clockMs, wallUs int64, ok bool)
	// Clock returns the cluster clock of the last applied entry, in ms.
	Clock() int64
	// NewestUs returns the newest instant that an applied entry named, or one shortly before, in µs
	// since 1970; 0: none.
	NewestUs() int64
	// NextDeadline returns the earliest expiry deadline on the cluster clock. A tick is due when
	// clock > deadline.
	NextDeadline() (clockMs int64, ok bool)
	// Read runs a batch of read-only requests against the applied state and appends the replies to
	// dst. clockMs estimates the cluster clock, wallUs is the time of day. next supplies the
	// instants that requests name: later than lastUs, which is NewestUs of that state; stampUs is
	// the time of day of the last applied entry, 0 if none was applied since the start. If next
	// fails, Read stops before that request and may append nothing. A nil next means that nobody
	// else needs to know of the instants. With early the first request takes an instant before it
	// runs, whether or not it will name it.
	Read(dst, requests []byte, clockMs, wallUs int64,
		next func(lastUs, stampUs int64) (us int64, ok bool), early bool) []byte
}

// Shifter is an optional interface of a Machine whose time of day an administrator can set.
type Shifter interface {
	// ShiftMs returns how far the time of day that requests see is ahead of what entries carry. It
	// must not wait for Apply: the loop that notices a lost leadership asks.
	ShiftMs() int64
}

// WorkReader is an optional interface of a Machine that counts the work of reads.
type WorkReader interface {
	// ReadWork is Read, and also returns the units of work done.
	ReadWork(dst, requests []byte, clockMs, wallUs int64,
		next func(lastUs, stampUs int64) (us int64, ok bool),
		early bool) (replies []byte, work uint64)
	// ReadWithin is ReadWork of at most that many units, with instants of which nobody else needs
	// to know. done is false if it takes more: then nothing has happened.
	ReadWithin(dst, requests []byte, clockMs, wallUs int64,
		most uint64) (replies []byte, work uint64, done bool)
}

// Worker is an optional interface of a Machine that counts the work of applying entries, which a
// restart repeats.
type Worker interface {
	// Worked returns the units of work done by applying entries since the process started. It does
	// not block.
	Worked() uint64
}

// SnapshotChecker is an optional interface of a Machine that reads snapshots without loading them.
type SnapshotChecker interface {
	// CheckSnapshot reads a snapshot as Restore would, beside Apply, and keeps nothing of it. It
	// fails if Restore would.
	CheckSnapshot(r io.Reader) error
}

// Replayer is an optional interface of a Machine that distinguishes replayed entries.
type Replayer interface {
	// Replaying is called by the goroutine that applies: with true before the first entry that was
	// in this node's log at the start, and once with false before the first that was not.
	Replaying(yes bool)
}

// voided is the result of applying a void entry, see isVoid.
type voided struct{}

// Entry marks travel in raft.Log.Extensions: a format byte and the term (u64, little endian).
const (
	markFormat = 1
	markLen    = 9
)

func appendMark(dst []byte, term uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, markFormat), term)
}

// isVoid reports whether a command entry is skipped: it was stamped under another leadership than
// the one that logged it, so its stamp could be ahead of leases granted in between. The log alone
// decides, so every node agrees.
func isVoid(l *raft.Log) bool {
	if len(l.Extensions) != markLen || l.Extensions[0] != markFormat {
		return false
	}
	return binary.LittleEndian.Uint64(l.Extensions[1:]) != l.Term
}

// applier is the raft.FSM that Raft sees. It also implements raft.ConfigurationStore, so that
// configuration entries count as applied: Raft's own AppliedIndex runs ahead of the machine.
type applier struct {
	machine   Machine
	busy      atomic.Bool // Apply, Snapshot or Restore runs
	restoring atomic.Bool // Restore runs
	logger    *slog.Logger

	summer Summer // the machine, if it is one
	sums   ownSums

	worker Worker                   // the machine, if it is one
	worked func(index, work uint64) // receives the work of each entry; may be nil

	// waits until this node's log is durable up to an index, false: it never will; may be nil
	durable func(index uint64) bool
	skipped error // an entry was not applied: Raft's indexes are wrong; the applying goroutine's

	trace trace.To
	term  func() uint64 // Raft's

	applying atomic.Uint64     // index of the entry being applied; 0: none
	began    atomic.Int64      // when that began, ns since processStart
	begins   [16]applyBegun    // when applying the newest entries began, by index modulo the length
	took     metrics.Histogram // applying

	appliedIndex atomic.Uint64 // the machine has applied everything up to here
	appliedTerm  uint64        // the newest entry's; the applying goroutine's
	clockMs      atomic.Int64  // machine.Clock(), readable without its lock
	// the last entry for the machine that was in the log at the start and is still there
	replayEnd atomic.Uint64
	replaying bool          // what the machine was last told; the applying goroutine's
	awaited   atomic.Uint64 // the index that the read loop waits for; 0: none
	wake      chan struct{} // kicked when awaited is reached
	restored  func(clockMs int64)
	// receives the id of each snapshot that was to be restored, and why it was not; may be nil
	loaded  func(id string, err error)
	members atomic.Pointer[committed]
}

// committed is the newest configuration at or before the applied index.
type committed struct {
	index         uint64
	configuration raft.Configuration
	retired       map[string]bool // ids of removed members
	register      register
}

func newCommitted(index uint64, c raft.Configuration) *committed {
	return &committed{index, c, retiredIDs(c), registerOf(c)}
}

func newApplier(m Machine, logger *slog.Logger) *applier {
	a := &applier{machine: m, logger: logger, wake: make(chan struct{}, 1)}
	a.members.Store(&committed{})
	a.clockMs.Store(m.Clock())
	a.worker, _ = m.(Worker)
	a.summer, _ = m.(Summer)
	return a
}

// entriesInOrder holds of what Raft has the machine apply.
var entriesInOrder = invariant.New("entries-in-order",
	"a machine applies entries in the order of the log, each once, and their terms never fall",
	"the process ends, and applies its log again when it starts")

func (a *applier) Apply(l *raft.Log) any {
	if l.Index <= a.appliedIndex.Load() || l.Term < a.appliedTerm {
		entriesInOrder.Broken("index", l.Index, "term", l.Term, "applied",
			a.appliedIndex.Load(), "applied-term", a.appliedTerm)
		panic(fmt.Sprintf("entry %d of term %d cannot follow entry %d of term %d", l.Index, l.Term,
			a.appliedIndex.Load(), a.appliedTerm))
	}
	a.appliedTerm = l.Term
	if a.durable != nil && !a.durable(l.Index) {
		a.skipped = errNotDurable // the process ends
		return nil
	}
	var out any = voided{}
	if !isVoid(l) {
		a.notifyReplay(l.Index <= a.replayEnd.Load())
		out = a.apply(l)
		a.clockMs.Store(a.machine.Clock())
	}
	if trace.On && a.trace != nil {
		a.trace.Record(trace.Event{Kind: trace.Applies, Index: l.Index, Term: l.Term,
			Now: a.term()})
	}
	a.advance(l.Index)
	return out
}

// apply applies an entry. If that ends the process, the log names the entry: it is the same on
// every node and at every start.
func (a *applier) apply(l *raft.Log) any {
	a.busy.Store(true)
	began := time.Since(processStart)
	a.began.Store(int64(began))
	a.applying.Store(l.Index)
	place := &a.begins[l.Index%uint64(len(a.begins))]
	place.at.Store(int64(began))
	place.index.Store(l.Index)
	done := false
	defer func() {
		if !done {
			a.logger.Error("a log entry cannot be applied; docs/operations.md says what to do",
				"index", l.Index)
		}
	}()
	var before uint64
	if a.worker != nil {
		before = a.worker.Worked()
	}
	out := a.machine.Apply(l)
	done = true
	if a.summer != nil {
		a.sums.note(a.summer.Sum())
	}
	a.took.Time(time.Since(processStart) - began)
	if a.worker != nil && a.worked != nil {
		a.worked(l.Index, a.worker.Worked()-before)
	}
	a.applying.Store(0)
	a.busy.Store(false)
	return out
}

// applyBegun is when applying an entry began.
type applyBegun struct {
	index atomic.Uint64
	at    atomic.Int64 // ns since processStart
}

// processStart is about when this process started.
var processStart = time.Now()

// beganAt returns when applying one of the newest entries began, ns since processStart; 0: unknown.
func (a *applier) beganAt(index uint64) int64 {
	place := &a.begins[index%uint64(len(a.begins))]
	at := place.at.Load()
	if place.index.Load() != index {
		return 0
	}
	return at
}

// appliesLong reports whether an entry has been applied for longer than longApply.
func (a *applier) appliesLong() bool {
	began := time.Duration(a.began.Load())
	return a.applying.Load() != 0 && time.Since(processStart)-began > longApply
}

// slowEntry is the entry last reported as slow.
type slowEntry struct {
	index uint64
	after time.Duration // when it is reported again
}

// slowAfter is far longer than any entry should take.
const slowAfter = 5 * time.Second

// watchApply logs an entry that takes too long to apply: every node has it, at every start. It is a
// loop of its own because the others may wait for the machine.
func (n *Node) watchApply() {
	ticker := pulse.NewTicker(time.Second)
	defer ticker.Stop()
	var s slowEntry
	for {
		select {
		case <-ticker.C:
			ticker.Next()
			n.machine.report(&s)
		case <-n.stop:
			return
		}
	}
}

// report logs an entry that has been applied for long, and again each time its time doubles.
func (a *applier) report(s *slowEntry) {
	index, since := a.applying.Load(), time.Since(processStart)-time.Duration(a.began.Load())
	if index != s.index {
		*s = slowEntry{index, slowAfter}
	}
	if index != 0 && since > s.after {
		s.after = 2 * since
		a.logger.Error(
			"applying a log entry takes long; docs/operations.md says what to do if it does not "+
				"end", "index", index, "so-far", since.Round(time.Second))
	}
}

// notifyReplay notifies a Replayer of a change. It starts as false.
func (a *applier) notifyReplay(yes bool) {
	if yes == a.replaying {
		return
	}
	a.replaying = yes
	if r, ok := a.machine.(Replayer); ok {
		r.Replaying(yes)
	}
}

// cut notes that the log lost all entries after an index: what replaces them is new.
func (a *applier) cut(after uint64) {
	for {
		end := a.replayEnd.Load()
		if end <= after || a.replayEnd.CompareAndSwap(end, after) {
			return
		}
	}
}

// loading reports whether the machine has yet to apply entries that were in the log at the start.
func (a *applier) loading() bool { return a.appliedIndex.Load() < a.replayEnd.Load() }

// StoreConfiguration is called in log order, like Apply.
func (a *applier) StoreConfiguration(index uint64, c raft.Configuration) {
	a.members.Store(newCommitted(index, c))
	a.advance(index)
}

// removed reports whether the removal of a member is committed.
func (a *applier) removed(id string) bool { return a.members.Load().retired[id] }

func (a *applier) Snapshot() (raft.FSMSnapshot, error) {
	if a.skipped != nil {
		return nil, a.skipped
	}
	a.busy.Store(true)
	defer a.busy.Store(false)
	s, err := a.machine.Snapshot()
	return ownSnapshot{s}, err
}

func (a *applier) Restore(source io.ReadCloser) error {
	a.restoring.Store(true)
	defer a.restoring.Store(false)
	a.busy.Store(true)
	began := time.Now()
	err := a.machine.Restore(source)
	a.busy.Store(false)
	if a.loaded != nil {
		a.loaded(snapshotMeta(source).ID, err)
	}
	clockMs := a.machine.Clock()
	a.clockMs.Store(clockMs)
	if err == nil && a.summer != nil {
		a.sums.restart(a.summer.Sum())
	}
	if err == nil && a.restored != nil {
		a.restored(clockMs)
	}
	if err == nil {
		meta := snapshotMeta(source)
		a.members.Store(newCommitted(meta.ConfigurationIndex, meta.Configuration))
		a.logger.Info("snapshot loaded", "applied-before", a.appliedIndex.Load(), "index",
			meta.Index, "took", time.Since(began))
		a.appliedTerm = meta.Term
		a.trace.Record(trace.Event{Kind: trace.Restores, Index: meta.Index, Term: meta.Term})
		a.advance(meta.Index)
	}
	return err
}

// advance notes that everything up to index is applied, and wakes the read loop if it waits for
// that.
func (a *applier) advance(index uint64) {
	for {
		have := a.appliedIndex.Load()
		if index <= have {
			return
		}
		if a.appliedIndex.CompareAndSwap(have, index) {
			break
		}
	}
	if want := a.awaited.Load(); want != 0 && index >= want {
		kick(a.wake)
	}
}

// nextDeadline asks the machine, unless it is busy: the caller must not wait for a long script, and
// asks again soon.
func (a *applier) nextDeadline() (int64, bool) {
	if a.busy.Load() {
		return 0, false
	}
	return a.machine.NextDeadline()
}

// kick wakes the goroutine that sleeps on ch (capacity 1). Kicks coalesce.
func kick(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
