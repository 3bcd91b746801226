// This file holds the seam to the state machine: the Machine interface, and the applier that stands between Raft and
// the machine, serialises access to it and tracks what it has applied.
package cluster

import (
	"encoding/binary"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Machine is the replicated state machine. It does its own locking: one goroutine calls Apply, Snapshot and Restore, one
// calls AppendEntry, and any number call Read, Clock, NewestUs, NextDeadline and EntryClock meanwhile. What Snapshot returned is
// persisted while Apply goes on.
type Machine interface {
	// FSM's Apply returns one reply for each batch, in order, when this node built the entry with AppendEntry, and nil otherwise. They are a
	// [][]byte, or the Outcome of what it returns: then batches at the end may be without, which means that they did not run,
	// on no node, and each of the others has its units of work. Apply must neither change nor keep a reference into log.Data beyond what it never
	// changes: the log cache shares the bytes. The replies belong to the caller.
	raft.FSM
	// AppendEntry appends to dst one log entry that carries batches, stamped with the cluster clock (ms) and the time of
	// day (µs since 1970), and returns the extended slice. batches may be empty: a tick. batches is not kept.
	AppendEntry(dst []byte, clockMs, wallUs int64, groups [][]byte) []byte
	// EntryClock peeks at the stamp of an encoded entry; ok is false when data is no entry.
	EntryClock(data []byte) (clockMs, wallUs int64, ok bool)
	// Clock returns the cluster clock of the last applied entry, in ms.
	Clock() int64
	// NewestUs returns the newest instant that an applied entry named, or one shortly before, in µs since 1970; 0 for none.
	NewestUs() int64
	// NextDeadline returns the earliest expiry deadline in ms of cluster clock. A tick is due when clock > deadline.
	NextDeadline() (clockMs int64, ok bool)
	// Read runs a batch of read-only requests against the applied state and appends the replies to dst. clockMs is the
	// present estimate of the cluster clock; wallUs the time of day in µs. next gives the instants that requests name,
	// later than lastUs, NewestUs as of the state; stampUs is the time of day that the entry has which was applied last, 0 for none in this life. Where it gives
	// none, Read stops before that request, and may then append nothing. nil: nobody else needs to know of the instants.
	Read(dst, requests []byte, clockMs, wallUs int64, next func(lastUs, stampUs int64) (us int64, ok bool)) []byte
}

// WorkReader is what a Machine may implement that counts the work of reads.
type WorkReader interface {
	// ReadWork is Read, and returns the units of work that were done besides.
	ReadWork(dst, requests []byte, clockMs, wallUs int64, next func(lastUs, stampUs int64) (us int64, ok bool)) (replies []byte, work uint64)
}

// Worker is what a Machine may implement that counts the work of applying: what a restart has to do again.
type Worker interface {
	// Worked returns the units of work that applying entries has taken since the process started. It does not block.
	Worked() uint64
}

// Replayer is what a Machine may implement to know which entries it saw in an earlier life of the process.
type Replayer interface {
	// Replaying is called by the goroutine that applies: with true before the first entry that was in this node's log
	// when it started, and once with false before the first one that was not.
	Replaying(yes bool)
}

// voided is the result of applying an entry whose stamp was read in another term than the one it was logged in.
type voided struct{}

// Entry marks travel in raft.Log.Extensions: a format byte and the term (u64 little endian).
const (
	markFormat = 1
	markLen    = 9
)

func appendMark(dst []byte, term uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, markFormat), term)
}

// isVoid reports whether a command entry is to be skipped: it was stamped under another leadership than the one that
// logged it, so its stamp could run ahead of leases granted in between. The decision uses the log alone, so every node
// takes the same one.
func isVoid(l *raft.Log) bool {
	if len(l.Extensions) != markLen || l.Extensions[0] != markFormat {
		return false
	}
	return binary.LittleEndian.Uint64(l.Extensions[1:]) != l.Term
}

// applier is the raft.FSM that Raft sees. It implements raft.ConfigurationStore too, so that configuration entries
// count as applied: raft's own AppliedIndex runs ahead of the machine.
type applier struct {
	machine   Machine
	busy      atomic.Bool // Apply, Snapshot or Restore runs
	restoring atomic.Bool // Restore runs
	logger    *slog.Logger

	worker Worker                   // the machine, if it is one
	worked func(index, work uint64) // is told the work of each entry; may be nil

	applying atomic.Uint64 // the index of the entry that the machine is applying; 0: none
	began    atomic.Int64  // when that began, in ns since made
	made     time.Time     // the applier

	appliedIndex atomic.Uint64 // the machine has seen everything up to here
	clockMs      atomic.Int64  // machine.Clock(), readable without waiting for it
	replayEnd    atomic.Uint64 // the last entry for the machine that was in the log at the start, and was not cut off since
	replaying    bool          // the machine was told so; the applying goroutine's
	awaited      atomic.Uint64 // the index that the read loop sleeps for; 0 for none
	wake         chan struct{} // kicked when awaited is reached
	restored     func(clockMs int64)
	members      atomic.Pointer[committed]
}

// committed is the newest configuration of the cluster that the machine's place in the log has come to.
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
	a := &applier{machine: m, logger: logger, made: time.Now(), wake: make(chan struct{}, 1)}
	a.members.Store(&committed{})
	a.clockMs.Store(m.Clock())
	a.worker, _ = m.(Worker)
	return a
}

func (a *applier) Apply(l *raft.Log) any {
	var out any = voided{}
	if !isVoid(l) {
		a.notifyReplay(l.Index <= a.replayEnd.Load())
		out = a.apply(l)
		a.clockMs.Store(a.machine.Clock())
	}
	a.advance(l.Index)
	return out
}

// apply has the machine apply an entry. One that ends the process is named: it is the same on every node and at every start.
func (a *applier) apply(l *raft.Log) any {
	a.busy.Store(true)
	a.began.Store(int64(time.Since(a.made)))
	a.applying.Store(l.Index)
	done := false
	defer func() {
		if !done {
			a.logger.Error("a log entry cannot be applied; docs/operations.md says what to do", "index", l.Index)
		}
	}()
	var before uint64
	if a.worker != nil {
		before = a.worker.Worked()
	}
	out := a.machine.Apply(l)
	done = true
	if a.worker != nil && a.worked != nil {
		a.worked(l.Index, a.worker.Worked()-before)
	}
	a.applying.Store(0)
	a.busy.Store(false)
	return out
}

// slowEntry is the newest entry that was reported for the time that applying it takes.
type slowEntry struct {
	index uint64
	after time.Duration // when it is reported again
}

// slowAfter is far more than any entry may take to apply.
const slowAfter = 5 * time.Second

// watchApply is the loop that names an entry which the machine does not get past: every node has it, at every start. It is a loop of its own, since
// the others may wait for the machine.
func (n *Node) watchApply() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var s slowEntry
	for {
		select {
		case <-ticker.C:
			n.machine.report(&s)
		case <-n.stop:
			return
		}
	}
}

// report logs that an entry has been applied for long, and again each time that this has taken twice as long.
func (a *applier) report(s *slowEntry) {
	index, since := a.applying.Load(), time.Since(a.made)-time.Duration(a.began.Load())
	if index != s.index {
		*s = slowEntry{index, slowAfter}
	}
	if index != 0 && since > s.after {
		s.after = 2 * since
		a.logger.Error("applying a log entry takes long; docs/operations.md says what to do if it does not end", "index", index, "so-far", since.Round(time.Second))
	}
}

// notifyReplay tells a machine that wants to know, when it changes. It starts as false.
func (a *applier) notifyReplay(yes bool) {
	if yes == a.replaying {
		return
	}
	a.replaying = yes
	if r, ok := a.machine.(Replayer); ok {
		r.Replaying(yes)
	}
}

// cut notes that the log lost all entries behind an index: what comes in their place is new.
func (a *applier) cut(after uint64) {
	for {
		end := a.replayEnd.Load()
		if end <= after || a.replayEnd.CompareAndSwap(end, after) {
			return
		}
	}
}

// loading reports whether the machine has yet to apply what was in the log at the start.
func (a *applier) loading() bool { return a.appliedIndex.Load() < a.replayEnd.Load() }

// StoreConfiguration is called in the order of the log, like Apply.
func (a *applier) StoreConfiguration(index uint64, c raft.Configuration) {
	a.members.Store(newCommitted(index, c))
	a.advance(index)
}

// removed reports whether the removal of a member is committed.
func (a *applier) removed(id string) bool { return a.members.Load().retired[id] }

func (a *applier) Snapshot() (raft.FSMSnapshot, error) {
	a.busy.Store(true)
	defer a.busy.Store(false)
	return a.machine.Snapshot()
}

func (a *applier) Restore(source io.ReadCloser) error {
	a.restoring.Store(true)
	defer a.restoring.Store(false)
	a.busy.Store(true)
	err := a.machine.Restore(source)
	a.busy.Store(false)
	clockMs := a.machine.Clock()
	a.clockMs.Store(clockMs)
	if err == nil && a.restored != nil {
		a.restored(clockMs)
	}
	if err == nil {
		meta := snapshotMeta(source)
		a.members.Store(newCommitted(meta.ConfigurationIndex, meta.Configuration))
		a.advance(meta.Index)
	}
	return err
}

// advance notes that the machine has applied everything up to index and wakes the read loop if it waits for that.
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

// nextDeadline asks the machine, unless it is busy: the caller must not wait for a long script, and asks again soon.
func (a *applier) nextDeadline() (int64, bool) {
	if a.busy.Load() {
		return 0, false
	}
	return a.machine.NextDeadline()
}

// kick wakes the one goroutine that sleeps on ch (capacity 1); a kick that is already pending is enough.
func kick(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
