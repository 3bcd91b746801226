// The log store that Raft sees: a cache that also notes arrivals, and a guard of what Raft may do
// after an error.

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/metrics"
)

// The log cache holds the newest entries for replication, bounded in entries and bytes.
// raft.LogCache bounds entries alone, and an entry may have 32 MiB.
const (
	cacheEntries = 512
	cacheBytes   = 16 << 20
)

// logStore wraps the store on disk.
type logStore struct {
	raft.LogStore
	arrivals  *arrivals
	appliedMs func() int64 // the machine's clock; must not block
	trace     trace.To

	mu     lockorder.RWMutex
	ring   [cacheEntries]raft.Log // copies, by index modulo its length; index 0: none
	oldest uint64                 // every cached index is at least this
	newest uint64
	bytes  int
	// invisible are the newest runs of entries that never reach the machine (noop, barrier),
	// ascending.
	invisible []run
	cut       func(after uint64) // called when entries after an index were dropped; may be nil
	guard     *levelGuard        // may be nil

	commands atomic.Bool // an entry for the machine is, or was, in the log or a snapshot

	growth        *growth
	space         *space // may be nil
	trailing      uint64 // entries kept after a snapshot, at most
	trailingBytes int    // and their bytes

	covered func() uint64 // index of the newest snapshot; may be nil
	fatal   func(error)   // ends the process; may be nil, in tests

	// one write at a time: Raft truncates concurrently with storing; guards what follows. Whoever
	// holds it must not wait for deferred entries.
	writer lockorder.Mutex
	// the end of the log was being cut off, and nothing was stored after it yet
	cutting      bool
	failure      error // why nothing is stored any more
	writing      writing
	took         metrics.Histogram            // a write
	written      atomic.Uint64                // bytes of entries
	storeFailure atomic.Pointer[storeFailure] // nil: the newest entries were stored

	failWait time.Duration // how long the log may fail to store, except for lack of space

	// reports whether Raft leads. The goroutine in which a node begins to lead also stores entries,
	// cuts off the end of the log, and reads it for a follower: so a node does not begin within
	// these. Compaction is another goroutine's, and drops only what is applied.
	leads    func() bool
	applied  func() uint64 // the index up to which entries are applied; may be nil
	deferred deferred
}

// fail refuses every later write, and ends the process. Raft v1.7.3 continues after some errors
// with a wrong idea of its log: a follower would take entries for committed that the leader has
// never seen. The disk is right, so a restarted node continues from it.
func (s *logStore) fail(err error) error {
	s.failure = fmt.Errorf("%w; restart this node: it continues from the log on its disk", err)
	if s.fatal != nil {
		s.fatal(s.failure)
	}
	return s.failure
}

// run is entries that follow each other.
type run struct{ first, last uint64 }

// maxInvisible bounds how many runs are remembered. Only the newest entries of all are looked up.
const maxInvisible = 1024

// failWait: file descriptors and memory are back sooner, and a broken disk does not recover.
const failWait = 30 * time.Second

func newLogStore(inner raft.LogStore, a *arrivals, appliedMs func() int64) *logStore {
	s := &logStore{
		LogStore: inner, arrivals: a, appliedMs: appliedMs,
		growth: newGrowth(), trailing: defaultTrailing, trailingBytes: trailingBytes,
		failWait: failWait, leads: func() bool { return false },
	}
	s.deferred.durable.L = &s.deferred.mu
	return s
}

// IsMonotonic has Raft drop the whole log when it installs a snapshot. What it keeps otherwise, if
// the store allows a gap, may be entries of an earlier leader, which nothing would compare again.
func (s *logStore) IsMonotonic() bool { return true }

func (s *logStore) GetLog(index uint64, out *raft.Log) error {
	if err := s.flushAsFollower(); err != nil {
		return err
	}
	return s.peek(index, out)
}

// peek is GetLog for whoever must not wait for deferred entries, which it finds.
func (s *logStore) peek(index uint64, out *raft.Log) error {
	s.mu.RLock()
	l := s.ring[index%cacheEntries]
	s.mu.RUnlock()
	if l.Index == index && index > 0 {
		*out = l
		return nil
	}
	err := s.LogStore.GetLog(index, out)
	if errors.Is(err, disk.ErrDamaged) && s.fatal != nil {
		// Raft would panic, or try again for ever. A simulation's fatal returns, and the disk is
		// well from then on.
		s.fatal(err)
		err = s.LogStore.GetLog(index, out)
	}
	return err
}

func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *logStore) StoreLogs(logs []*raft.Log) error {
	if err := s.takes(logs); err != nil {
		return s.refuse(err)
	}
	later := s.mayDefer(logs)
	if !later {
		if err := s.flush(); err != nil {
			return err
		}
		if err := s.store(logs, true); err != nil {
			return err
		}
	}
	s.arrivals.stored(logs)
	s.growth.add(logs)
	s.cache(logs)
	if later { // once they are in the cache, where replication finds them
		s.deferWrite(logs)
	}
	return nil
}

// choosyLog is a log that cannot hold every entry: it would not read it back.
type choosyLog interface{ Takes(entry *raft.Log) error }

// takes returns why entries must not be stored. That is no failure of the log: a leader that wants
// to store such an entry steps down, and may lead again.
func (s *logStore) takes(logs []*raft.Log) error {
	choosy, _ := s.LogStore.(choosyLog)
	for _, l := range logs {
		if choosy != nil {
			if err := choosy.Takes(l); err != nil {
				return err
			}
		}
		if s.guard != nil {
			if err := s.guard.entry(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuse answers entries that may not be stored. In place of an earlier leader's, which were cut
// off, that ends the process: Raft still counts those.
func (s *logStore) refuse(err error) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if s.cutting {
		return s.fail(err)
	}
	return err
}

// cache notes new entries and adds them to the cache.
func (s *logStore) cache(logs []*raft.Log) {
	s.record(trace.Logs, logs)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range logs {
		if l.Type == raft.LogCommand {
			s.commands.Store(true)
		}
		if isInvisible(l) {
			s.hideLocked(l.Index)
		}
		s.cacheLocked(l)
	}
}

// hideLocked notes that the newest entry is invisible.
func (s *logStore) hideLocked(index uint64) {
	n := len(s.invisible)
	if n > 0 && s.invisible[n-1].last+1 == index {
		s.invisible[n-1].last = index
		return
	}
	if n == maxInvisible {
		s.invisible = slices.Delete(s.invisible, 0, 1)
	}
	s.invisible = append(s.invisible, run{index, index})
}

// store writes entries to the disk, if there is enough room when spare is set. Then it may fail.
func (s *logStore) store(logs []*raft.Log, spare bool) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if s.failure != nil {
		return s.failure
	}
	err := s.closeGap(logs[0].Index)
	if err == nil && spare && !s.cutting { // else a refusal would end the process
		err = s.spare(deferredSize(logs))
	}
	if err == nil {
		s.writing.begin(logs)
		err = s.LogStore.StoreLogs(logs)
		s.took.Time(s.writing.running())
		s.written.Add(uint64(s.writing.bytes.Load()))
		s.writing.end()
	}
	if err == nil {
		s.record(trace.Stores, logs)
		s.cutting = false
		s.storeFailure.Store(nil)
		return nil
	}
	r := &storeFailure{err: err, at: time.Now()}
	if r.since = r.at; s.storeFailure.Load() != nil {
		r.since = s.storeFailure.Load().since
	}
	s.storeFailure.Store(r)
	switch since := r.at.Sub(r.since); {
	case s.failure != nil: // already, by closeGap
		return s.failure
	case s.cutting:
		return s.fail(
			fmt.Errorf("cannot store entries %d to %d in place of an earlier leader's: %w",
				logs[0].Index, logs[len(logs)-1].Index, err))
	case since > s.failWait && !disk.NoSpace(err):
		return s.fail(fmt.Errorf("no log entry could be stored for %v: %w",
			since.Round(time.Second), err))
	}
	return fmt.Errorf("storing %d log entries: %w", len(logs), err)
}

// closeGap drops the whole log if the next entry does not follow its last one because a snapshot
// replaced those in between: the process ended before it was dropped, or dropping it failed. A log
// without gaps would refuse every entry.
func (s *logStore) closeGap(next uint64) error {
	if s.covered == nil {
		return nil
	}
	last, err := s.LogStore.LastIndex()
	if err != nil || last == 0 || next <= last+1 || s.covered() < next-1 {
		return err
	}
	first, err := s.LogStore.FirstIndex()
	if err != nil {
		return err
	}
	if err := s.deleteLocked(first, last, last, false); err != nil {
		return fmt.Errorf("dropping entries that a snapshot holds: %w", err)
	}
	return nil
}

// record records entries, those of a term together.
func (s *logStore) record(kind trace.Kind, logs []*raft.Log) {
	for len(logs) > 0 && trace.On {
		n := 1
		for n < len(logs) && logs[n].Term == logs[0].Term {
			n++
		}
		s.trace.Record(trace.Event{Kind: kind, First: logs[0].Index, Index: logs[n-1].Index,
			Term: logs[0].Term})
		logs = logs[n:]
	}
}

// isInvisible reports whether an entry never reaches the machine or its applier.
func isInvisible(l *raft.Log) bool { return l.Type == raft.LogNoop || l.Type == raft.LogBarrier }

// survey notes the invisible entries at the end of a log that was just opened, and returns the
// index of the last visible one, 0 if there is none.
func (s *logStore) survey() (uint64, error) {
	first, err := s.FirstIndex()
	if err != nil {
		return 0, err
	}
	index, err := s.LastIndex()
	if err != nil || index == 0 {
		return 0, err
	}
	hidden := run{index + 1, index}
	for ; index >= max(first, 1); index-- {
		var l raft.Log
		err := s.LogStore.GetLog(index, &l)
		if errors.Is(err, raft.ErrLogNotFound) {
			index = 0 // raft-boltdb keeps what a snapshot far ahead replaced: the snapshot holds it
			break
		}
		if err != nil {
			return 0, fmt.Errorf("log entry %d: %w", index, err)
		}
		if !isInvisible(&l) {
			break
		}
		hidden.first = index
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if hidden.first <= hidden.last {
		s.invisible = []run{hidden}
	}
	if index < first {
		return 0, nil // all are invisible
	}
	return index, nil
}

// measure counts the bytes of entries after an index in a log that was just opened.
func (s *logStore) measure(behind uint64) error {
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := max(first, behind+1); i <= last; i++ {
		var l raft.Log
		switch err := s.LogStore.GetLog(i, &l); {
		case errors.Is(err, raft.ErrLogNotFound): // raft-boltdb may have gaps
		case err != nil:
			return fmt.Errorf("log entry %d: %w", i, err)
		default:
			s.growth.add([]*raft.Log{&l})
		}
	}
	return nil
}

// findCommand notes whether a log that was just opened has an entry for the machine.
func (s *logStore) findCommand() error {
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := max(first, 1); i <= last && !s.commands.Load(); i++ {
		var l raft.Log
		if err := s.LogStore.GetLog(i, &l); err != nil {
			return fmt.Errorf("log entry %d: %w", i, err)
		}
		s.commands.Store(l.Type == raft.LogCommand)
	}
	return nil
}

// cacheLocked adds l as the newest entry and drops the oldest ones beyond the bounds. It keeps a
// copy: Raft's entry is part of a structure that has the replies, too.
func (s *logStore) cacheLocked(l *raft.Log) {
	slot := &s.ring[l.Index%cacheEntries]
	s.bytes += len(l.Data) - len(slot.Data)
	*slot = *l
	if s.oldest == 0 || l.Index < s.oldest {
		s.oldest = l.Index
	}
	s.newest = l.Index
	for s.bytes > cacheBytes && s.oldest < s.newest {
		slot := &s.ring[s.oldest%cacheEntries]
		if slot.Index == s.oldest {
			s.bytes -= len(slot.Data)
			*slot = raft.Log{}
		}
		s.oldest++
	}
}

// cached returns the bytes of the entries that are in memory.
func (s *logStore) cached() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes
}

// uncacheLocked drops the entries of a range. Others stay: deferred ones are nowhere else.
func (s *logStore) uncacheLocked(low, high uint64) {
	s.bytes, s.oldest, s.newest = 0, 0, 0
	for i := range s.ring {
		switch l := &s.ring[i]; {
		case l.Index == 0:
		case low <= l.Index && l.Index <= high:
			*l = raft.Log{}
		default:
			s.bytes += len(l.Data)
			if s.oldest == 0 || l.Index < s.oldest {
				s.oldest = l.Index
			}
			s.newest = max(s.newest, l.Index)
		}
	}
}

// DeleteRange drops entries: those that a snapshot holds, except for the newest, which followers
// may need. When the end of the log goes (a conflict with a new leader, or a snapshot that replaced
// the log), the newest stamp becomes that of the last remaining entry, arrived now.
func (s *logStore) DeleteRange(low, high uint64) error {
	if err := s.flush(); err != nil {
		return err
	}
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// Only another leader's entries replace what is after the newest snapshot, which may be the
	// whole log.
	conflict := high >= last && (low > first || s.covered != nil && low > s.covered())
	if high < last {
		if high = min(high, last-s.retained(low, last)); high < low {
			return nil
		}
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	if conflict && s.applied != nil && low <= s.applied() {
		return s.fail(fmt.Errorf("a leader replaces entry %d, which is applied", low))
	}
	err := s.deleteLocked(low, high, last, conflict)
	if err != nil && high >= last && s.failure == nil { // Raft goes on, with a wrong last entry
		return s.fail(fmt.Errorf("cannot drop the log that a snapshot replaces: %w", err))
	}
	return err
}

// deleteLocked is DeleteRange of a log that ends at last; the caller holds writer. conflict means
// that another leader's entries replace the deleted ones.
func (s *logStore) deleteLocked(low, high, last uint64, conflict bool) error {
	if s.failure != nil {
		return s.failure
	}
	s.mu.Lock()
	s.uncacheLocked(low, high)
	if high >= last {
		s.invisible = slices.DeleteFunc(s.invisible, func(r run) bool { return r.first >= low })
		if n := len(s.invisible); n > 0 {
			s.invisible[n-1].last = min(s.invisible[n-1].last, low-1)
		}
	}
	s.mu.Unlock()
	s.cutting = s.cutting || conflict
	s.writing.begin(nil)
	err := s.LogStore.DeleteRange(low, high)
	s.writing.end()
	switch {
	case err != nil && conflict:
		return s.fail(
			fmt.Errorf("cannot truncate entries %d to %d of an earlier leader: %w", low, high, err))
	case err != nil:
		return err
	case high >= last && !conflict && s.covered != nil && last > s.covered():
		// Raft still has that as its last one
		return s.fail(
			fmt.Errorf("a snapshot replaced a log that extended to entry %d", last))
	}
	if high >= last {
		s.trace.Record(trace.Event{Kind: trace.Cuts, Index: low - 1})
		s.resetArrival()
		if s.cut != nil {
			s.cut(low - 1)
		}
	}
	return nil
}

// resetArrival notes the last stamped entry on disk as arrived now, or the machine's clock if the
// log has none.
func (s *logStore) resetArrival() {
	const lookBack = 1024 // noops and barriers never separate a command further from the end
	first, err1 := s.LogStore.FirstIndex()
	last, err2 := s.LogStore.LastIndex()
	if err1 == nil && err2 == nil && last > 0 {
		for i := last; i >= max(first, 1) && last-i < lookBack; i-- {
			var l raft.Log
			if s.LogStore.GetLog(i, &l) != nil {
				break
			}
			if newest, ok := s.arrivals.stampOf(&l); ok {
				if appliedMs := s.appliedMs(); appliedMs > newest.ClockMs {
					newest = clock.Stamp{ClockMs: appliedMs}
				}
				s.arrivals.Reset(newest)
				return
			}
		}
	}
	s.arrivals.Reset(clock.Stamp{ClockMs: s.appliedMs()})
}

// lastVisible returns the largest index ≤ index whose entry the machine sees.
func (s *logStore) lastVisible(index uint64) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := len(s.invisible) - 1; i >= 0 && s.invisible[i].last >= index; i-- {
		if s.invisible[i].first <= index {
			return s.invisible[i].first - 1
		}
	}
	return index
}
