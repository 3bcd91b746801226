// Room on the disk. Only a snapshot shortens the log, and needs room itself: the log leaves that
// alone, and on a small disk it is shortened early (docs/adr/0047).

package cluster

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/raftlog"
)

// The tests lower these.
var (
	// segmentBytes is what raft-wal reserves at a time.
	segmentBytes int64 = 64 << 20
	// earlyGrowth is the least that comes between two snapshots on a small disk, or an eighth of
	// the newest snapshot if that is more.
	earlyGrowth int64 = 16 << 20
	// shortTrailingBytes bounds the bytes of what stays at the end of the log on a small disk.
	shortTrailingBytes = 4 << 20
)

const (
	// spacePoll is how often a node looks whether its disk is short of room. After early snapshots
	// that failed it waits longer, up to earlyPause.
	spacePoll  = time.Second
	earlyPause = time.Minute
	// On a small disk, shortTrailing entries stay at the end of the log.
	shortTrailing = 1024
)

// space is the room on the disk of a data directory. nil knows nothing: there is enough.
type space struct {
	ask       func() diskSpace
	snapshots *snapshotStore
}

// kept returns the bytes that the next snapshot may need: about those of the newest one, and what
// was logged since. Of one that is being written, a part is there.
func (s *space) kept() int64 {
	in := s.snapshots
	return max(in.newest.Load().size+in.growth.bytes.Load()-in.written.Load(), 0)
}

// left returns the bytes that the log may take.
func (s *space) left() int64 {
	if s == nil {
		return math.MaxInt64
	}
	disk := s.ask()
	if disk.size == 0 {
		return math.MaxInt64
	}
	return int64(disk.free) - s.kept()
}

// short reports whether the log could soon have no room.
func (s *space) short() bool { return s.left() < 2*segmentBytes }

// fits reports whether the next snapshot is likely to find room.
func (s *space) fits() bool {
	return s == nil || int64(s.ask().free) >= s.snapshots.newest.Load().size
}

// spare fails if the log has no room for entries. What its last segment has reserved is room; how
// much that is, is unknown (0) until it is written to.
func (s *logStore) spare(bytes int64) error {
	log, ok := s.LogStore.(roomyLog)
	if !ok || s.space == nil {
		return nil
	}
	if room := log.Room(); room == 0 || room > 0 && bytes+sealReserve <= room {
		return nil
	}
	if s.space.left() < bytes {
		return fmt.Errorf("%w: %d bytes are kept for the next snapshot", syscall.ENOSPC,
			s.space.kept())
	}
	return nil
}

// trim drops entries up to an index that a snapshot holds, also those kept for followers that lag,
// except for the last ones.
func (s *logStore) trim(upTo uint64) error {
	if err := s.flush(); err != nil {
		return err
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	first, err1 := s.LogStore.FirstIndex()
	last, err2 := s.LogStore.LastIndex()
	if err := errors.Join(err1, err2); err != nil || last <= max(first, 1) {
		return err
	}
	first = max(first, 1)
	if high := min(upTo, last-max(s.retained(first, last), 1)); high >= first {
		return s.deleteLocked(first, high, last, false)
	}
	return nil
}

// dropOlder removes all finished snapshots but the newest.
func (s *snapshotStore) dropOlder() error {
	if s.files == nil {
		return nil
	}
	list, err := s.SnapshotStore.List()
	if err != nil || len(list) == 0 || list[0].Index != s.newest.Load().index {
		return err
	}
	var errs []error
	for _, old := range list[1:] {
		errs = append(errs, s.files.drop(old.ID))
	}
	return errors.Join(errs...)
}

// keepRoom has the stores leave room for snapshots.
func (n *Node) keepRoom() {
	s := n.stores
	s.space = &space{snapshots: s.snapshots,
		ask: func() diskSpace { return n.cfg.spaceOf(n.cfg.DataDir) }}
	if log, ok := s.log.(*raftlog.WAL); ok { // the file of another never shrinks, and is used again
		log.Limit(s.space.left)
		s.snapshots.space = s.space
	}
}

// spareRoom frees what a snapshot can do without, once that has been restored if it came from the
// leader.
func (n *Node) spareRoom() {
	upTo := min(n.snapshotted(), n.machine.appliedIndex.Load())
	if upTo == 0 {
		return
	}
	if err := errors.Join(n.logs.trim(upTo), n.stores.snapshots.dropOlder()); err != nil {
		n.logger.Warn("making room on a disk that is almost full failed", "error", err)
	}
}

// refused reports whether the newest entries were refused for lack of room.
func (s *logStore) refused() bool {
	r := s.storeFailure.Load()
	return r != nil && disk.NoSpace(r.err)
}
