// The snapshot store that Raft sees: it logs each finished snapshot, remembers the newest one for
// Status, tells the applier the index and members of a snapshot that it restores, and lists no old
// snapshot in place of one that cannot be read.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
)

// snapshotSeen describes a finished snapshot.
type snapshotSeen struct {
	index, term uint64
	at          time.Time
	size        int64 // bytes
}

// snapshotStore wraps the store on disk.
type snapshotStore struct {
	raft.SnapshotStore
	files   *snapshotFiles // the same store; nil in a simulation
	log     raft.LogStore
	logger  *slog.Logger
	newest  atomic.Pointer[snapshotSeen] // never nil
	open    atomic.Int32                 // snapshots being written
	written atomic.Int64                 // their bytes
	// since the start: snapshots finished and not, and the time of the finished ones, ns
	finished, failed atomic.Uint64
	took             atomic.Int64
	unopened         atomic.Pointer[error]             // error of the latest that failed to open
	opened           atomic.Pointer[raft.SnapshotMeta] // the latest that could
	arrived          atomic.Pointer[string]            // from the leader, and not restored yet
	guard            *levelGuard                       // may be nil
	growth           *growth                           // log growth since the newest snapshot
	dir              string                            // the data directory; empty in a simulation
	space            *space
	reads            readBack
	makeRoom         func() // frees what a snapshot can do without
	// once it is closed, what is being written fails; may be nil
	closing <-chan struct{}
}

func newSnapshotStore(inner raft.SnapshotStore, log raft.LogStore, dir string,
	logger *slog.Logger) (*snapshotStore, error) {
	s := &snapshotStore{SnapshotStore: inner, log: log, logger: logger, growth: newGrowth(),
		dir: dir, makeRoom: func() {}}
	s.files, _ = inner.(*snapshotFiles)
	list, err := s.List()
	s.newest.Store(seenIn(list))
	if err == nil {
		err = s.begins()
	}
	return s, err
}

// seenIn describes the newest of a list, or none.
func seenIn(list []*raft.SnapshotMeta) *snapshotSeen {
	if len(list) == 0 {
		return &snapshotSeen{}
	}
	return &snapshotSeen{list[0].Index, list[0].Term, snapshotTime(list[0].ID), list[0].Size}
}

// begins fails if nothing holds what came before the log, for which Raft would panic.
func (s *snapshotStore) begins() error {
	first, err := s.log.FirstIndex()
	if err == nil && first > s.newest.Load().index+1 {
		err = disk.Damagedf(filepath.Join(s.dir, snapshotsName),
			"no snapshot is there that leads to the log, which begins at entry %d", first)
	}
	return err
}

// unfit returns the last index of what the log holds that does not lead to the newest snapshot, 0
// if all does: the process ended while Raft installed that. Nothing would compare these entries
// again, and as a leader this node would send them.
func (s *snapshotStore) unfit() (uint64, error) {
	newest := s.newest.Load()
	first, err1 := s.log.FirstIndex()
	last, err2 := s.log.LastIndex()
	if err := errors.Join(err1, err2); err != nil || last == 0 || first > newest.index {
		return 0, err
	}
	var l raft.Log
	err := s.log.GetLog(newest.index, &l)
	missing := errors.Is(err, raft.ErrLogNotFound)
	switch {
	case err == nil && l.Term == newest.term:
		return 0, nil
	case err != nil && !missing:
		return 0, fmt.Errorf("log entry %d: %w", newest.index, err)
	case missing && last > newest.index: // a gap: what follows came after the snapshot
		last = newest.index
	}
	return last, nil
}

// fitLog drops what does not lead to the newest snapshot, if that can be read: it is all that is
// left then.
func (s *snapshotStore) fitLog() error {
	last, err := s.unfit()
	if err != nil || last == 0 {
		return err
	}
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	list, err := s.List()
	if newest := s.newest.Load(); err == nil && (len(list) == 0 || list[0].Index != newest.index) {
		err = fmt.Errorf("the snapshot of entry %d is not listed any more", newest.index)
	}
	if err == nil {
		err = s.read(list[0].ID)
	}
	if err != nil {
		return fmt.Errorf("cannot read the snapshot that replaces log entries %d to %d: %w", first,
			last, err)
	}
	return s.log.DeleteRange(first, last)
}

// laterLog hides the beginning of a log.
type laterLog struct {
	raft.LogStore
	after uint64
}

func (l laterLog) FirstIndex() (uint64, error) {
	last, err := l.LastIndex()
	if err != nil || last == 0 {
		return 0, err
	}
	first, err := l.LogStore.FirstIndex()
	return max(first, l.after+1), err
}

func (l laterLog) LastIndex() (uint64, error) {
	last, err := l.LogStore.LastIndex()
	if last <= l.after {
		last = 0
	}
	return last, err
}

// List returns the finished snapshots, newest first. Raft passes over those that it cannot read, if
// only for lack of a file descriptor, and continues from an older one, or from nothing. So a
// snapshot other than the newest is listed only if the log has all that came after it.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	name, newest, term, err := s.files.newest() // before the list, which then has it
	if err != nil {
		return nil, err
	}
	list, err := s.SnapshotStore.List()
	if err != nil {
		return nil, err
	}
	for i, is := range list {
		if is.Index < newest && !s.logged(is.Index+1, newest, term) {
			list = list[:i]
			break
		}
	}
	if len(list) == 0 && newest > 0 && !s.logged(1, newest, term) {
		_, err := s.files.describe(name)
		return nil, fmt.Errorf("the snapshot %s cannot be read: %w", filepath.Join(s.dir,
			snapshotsName, name), err)
	}
	return list, nil
}

// logged reports whether the log holds all entries from one to another, which has a term: what a
// snapshot replaced may have another.
func (s *snapshotStore) logged(from, to, term uint64) bool {
	first, err1 := s.log.FirstIndex()
	last, err2 := s.log.LastIndex()
	if err1 != nil || err2 != nil || first > from || last < to {
		return false
	}
	var l raft.Log
	if s.log.GetLog(to, &l) != nil || l.Term != term {
		return false
	}
	if log, ok := s.log.(raft.MonotonicLogStore); ok && log.IsMonotonic() {
		return true
	}
	for i := from; i <= to; i++ {
		if s.log.GetLog(i, &l) != nil {
			return false
		}
	}
	return true
}

// snapshotTime reads the time at which a snapshot was begun from its id, which ends with it in ms;
// zero if it does not.
func snapshotTime(id string) time.Time {
	ms, err := strconv.ParseInt(id[strings.LastIndexByte(id, '-')+1:], 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Create begins a snapshot, of this node's machine or from the leader.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	began := time.Now()
	if err := s.guard.holds(); err != nil {
		s.failed.Add(1)
		return nil, err
	}
	if s.space.short() {
		s.makeRoom()
	}
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex,
		trans)
	if err != nil {
		s.failed.Add(1)
		return nil, s.checked(err)
	}
	s.open.Add(1)
	return &snapshotSink{SnapshotSink: sink, s: s, index: index, term: term, began: began}, nil
}

// checked returns the error of a snapshot that could not be written. If there was no room, the next
// one finds more.
func (s *snapshotStore) checked(err error) error {
	if disk.NoSpace(err) {
		s.makeRoom()
	}
	return err
}

// Open returns a snapshot for reading. The reader knows its metadata.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.SnapshotStore.Open(id)
	if err != nil {
		s.unopened.Store(&err)
		s.restored(id, err)
		return nil, nil, err
	}
	s.opened.Store(meta)
	if s.files != nil && meta.Index >= s.newest.Load().index { // it can be read
		if err := s.files.reap(); err != nil {
			s.logger.Warn("removing old snapshots failed", "error", err)
		}
	}
	return meta, describedSnapshot{r, meta}, nil
}

// restored notes whether a snapshot could be restored. One from the leader that could not goes: it
// has replaced nothing, and this node has promised nothing by it. Left there, the next start would
// have nothing else.
func (s *snapshotStore) restored(id string, err error) {
	arrived := s.arrived.Load()
	if arrived == nil || *arrived != id {
		return
	}
	s.arrived.Store(nil)
	if err == nil || s.files == nil {
		return
	}
	s.logger.Error("a snapshot from the leader cannot be restored: it is dropped, and comes again",
		"snapshot", id, "error", err)
	list := []*raft.SnapshotMeta{}
	if err = s.files.drop(id); err == nil {
		list, err = s.files.List()
	}
	if err != nil {
		s.logger.Error("a snapshot that must go stays", "snapshot", id, "error", err)
		return
	}
	s.newest.Store(seenIn(list))
}

// started notes which snapshot Raft has started from, if it could not open the newest: nothing that
// a later one holds may be dropped.
func (s *snapshotStore) started() {
	var opened []*raft.SnapshotMeta
	if m := s.opened.Load(); m != nil {
		opened = append(opened, m)
	}
	from := seenIn(opened)
	if s.newest.Load().index > from.index {
		s.newest.Store(from)
	}
}

// snapshotSink is a snapshot being written.
type snapshotSink struct {
	raft.SnapshotSink
	s     *snapshotStore
	index uint64
	term  uint64
	began time.Time
	ended sync.Once
	head  []byte // the first bytes written, until the guard has seen them
	seen  bool
	size  int64 // bytes written

	own    bool // made by this node's machine
	closed bool
}

// Write writes a part of the snapshot, after the guard has admitted its beginning. It fails on a
// closing node, which would otherwise wait for the rest: then Raft drops the snapshot and leaves
// the log alone.
func (k *snapshotSink) Write(p []byte) (int, error) {
	select {
	case <-k.s.closing:
		return 0, errStopping
	default:
	}
	if g := k.s.guard; g != nil && !k.seen {
		missing := g.levels.SnapshotHead() - len(k.head)
		k.head = append(k.head, p[:min(len(p), missing)]...)
		if len(p) >= missing {
			if err := k.showHead(); err != nil {
				return 0, err
			}
		}
	}
	n, err := k.SnapshotSink.Write(p)
	k.size += int64(n)
	k.s.written.Add(int64(n))
	if disk.NoSpace(err) {
		k.s.makeRoom()
	}
	return n, err
}

// showHead shows the guard the beginning, whole or not.
func (k *snapshotSink) showHead() error {
	if k.s.guard == nil || k.seen {
		return nil
	}
	k.seen = true
	return k.s.guard.snapshot(k.index, k.head)
}

// count counts the snapshot once, however often it is closed or canceled.
func (k *snapshotSink) count(counter *atomic.Uint64) {
	k.ended.Do(func() {
		k.s.open.Add(-1)
		k.s.written.Add(-k.size)
		counter.Add(1)
	})
}

// Cancel drops the snapshot.
func (k *snapshotSink) Cancel() error {
	err := k.SnapshotSink.Cancel()
	k.count(&k.s.failed)
	return k.s.checked(err)
}

// Close finishes the snapshot; only now does it count.
func (k *snapshotSink) Close() error {
	if k.closed { // by Persist, before Raft does it
		return nil
	}
	k.closed = true
	// Raft would take it for the newest that there is, and as a leader send it again and again.
	if newest := k.s.newest.Load().index; k.own && k.index < newest {
		return errors.Join(fmt.Errorf("the snapshot of entry %d was overtaken by that of entry %d",
			k.index, newest), k.Cancel())
	}
	if err := k.showHead(); err != nil { // shorter than the guard's head
		return errors.Join(err, k.Cancel())
	}
	if err := k.SnapshotSink.Close(); err != nil {
		k.count(&k.s.failed)
		return k.s.checked(err)
	}
	if k.own {
		if err := k.s.readBack(k.index, k.ID()); err != nil {
			k.count(&k.s.failed)
			return err
		}
	}
	if k.own && k.s.files != nil {
		if err := k.s.files.reap(); err != nil {
			k.s.logger.Warn("removing old snapshots failed", "error", err)
		}
	}
	if !k.own {
		id := k.ID()
		k.s.arrived.Store(&id)
	}
	k.s.seen(&snapshotSeen{k.index, k.term, k.began, k.size})
	k.s.growth.covered(k.index)
	took := time.Since(k.began)
	k.s.took.Add(int64(took))
	k.count(&k.s.finished)
	k.s.logger.Info("snapshot written", "index", k.index, "took", took)
	return nil
}

// seen notes a finished snapshot, unless one that was begun later has overtaken it.
func (s *snapshotStore) seen(is *snapshotSeen) {
	for {
		newest := s.newest.Load()
		if is.index < newest.index || s.newest.CompareAndSwap(newest, is) {
			return
		}
	}
}

// describedSnapshot is the content of a snapshot with its metadata.
type describedSnapshot struct {
	io.ReadCloser
	meta *raft.SnapshotMeta
}

// snapshotMeta finds the metadata below Raft's wrappers of the reader; it is empty if it cannot.
func snapshotMeta(r io.ReadCloser) *raft.SnapshotMeta {
	for {
		switch in := r.(type) {
		case describedSnapshot:
			return in.meta
		case raft.ReadCloserWrapper:
			r = in.WrappedReadCloser()
		default:
			return &raft.SnapshotMeta{}
		}
	}
}
