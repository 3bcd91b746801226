// Reading back what was written: a snapshot of this node replaces entries of the log only after the
// decoder that a restore uses has read it (docs/adr/0051).

package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/invariant"
)

// snapshotsRead holds of what a node writes.
var snapshotsRead = invariant.New("snapshots-read-back",
	"a snapshot that was written can be read, record by record",
	"it is dropped, and the log that it would replace stays")

// readBack is how a store reads its snapshots back.
type readBack struct {
	check func(io.Reader) error // nil: the machine cannot
	// unreadable counts the snapshots that could not be read back since the start, and trouble is
	// why the newest could not, nil if it could.
	unreadable atomic.Uint64
	trouble    atomic.Pointer[error]
	took       atomic.Int64 // since the start, ns
}

// ownSnapshot is a snapshot of this node's machine, which Raft has written to a sink.
type ownSnapshot struct{ raft.FSMSnapshot }

// Persist implements raft.FSMSnapshot.
func (s ownSnapshot) Persist(sink raft.SnapshotSink) error {
	if k, ok := sink.(*snapshotSink); ok {
		k.own = true
	}
	return s.FSMSnapshot.Persist(sink)
}

// readBack reads a finished snapshot as a restore would. If that fails, it drops the snapshot: the
// one before and the log stay.
func (s *snapshotStore) readBack(index uint64, id string) error {
	if s.reads.check == nil {
		return nil
	}
	began := time.Now()
	err := s.read(id)
	s.reads.took.Add(int64(time.Since(began)))
	if err == nil {
		s.reads.trouble.Store(nil)
		return nil
	}
	if s.files == nil {
		s.logger.Error("a simulated snapshot cannot be read back", "index", index, "error", err)
	} else if dropped := s.files.drop(id); dropped != nil {
		s.logger.Error("a snapshot that must go stays", "index", index, "error", dropped)
	}
	select {
	case <-s.closing:
		return errStopping
	default:
	}
	snapshotsRead.Broken("index", index)
	err = fmt.Errorf("the snapshot of entry %d was written but cannot be read back: %w", index, err)
	s.reads.unreadable.Add(1)
	s.reads.trouble.Store(&err)
	s.logger.Error("a snapshot cannot be read back: the log stays; docs/operations.md says what "+
		"to do", "index", index, "error", err)
	return err
}

// read reads a finished snapshot with the machine's decoder, if it has one, and compares it with
// its checksum.
func (s *snapshotStore) read(id string) error {
	check := func(r io.Reader) error {
		if s.reads.check == nil {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		return s.reads.check(stoppable{r, s.closing})
	}
	if s.files != nil {
		return s.files.check(id, check)
	}
	_, r, err := s.SnapshotStore.Open(id)
	if err != nil {
		return err
	}
	return errors.Join(check(r), r.Close())
}

// stoppable is a reader that fails once a node is closing.
type stoppable struct {
	io.Reader
	closing <-chan struct{}
}

// Read implements io.Reader.
func (r stoppable) Read(b []byte) (int, error) {
	select {
	case <-r.closing:
		return 0, errStopping
	default:
		return r.Reader.Read(b)
	}
}
