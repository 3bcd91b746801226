// Snapshots that clients request.

package server

import (
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// saving is the state of the requested snapshots.
type saving struct {
	mu      lockorder.Mutex
	busy    bool
	since   time.Time     // start of the current one
	took    time.Duration // duration of the newest finished one
	saves   int
	failure error // why the newest one failed; nil: it did not
}

// begin reports whether a snapshot may start now; if so, the caller must call finished.
func (v *saving) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy {
		return false
	}
	v.busy, v.since = true, time.Now()
	return true
}

func (v *saving) finished(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy, v.failure, v.took = false, err, time.Since(v.since)
	if err == nil {
		v.saves++
	}
}

// savingState is a copy of the state of saving.
type savingState struct {
	saves   int
	failure error
	now     int64 // seconds since the start of the current one; -1: none
	last    int64 // duration of the newest one in seconds; -1: none
}

func (v *saving) state() savingState {
	v.mu.Lock()
	defer v.mu.Unlock()
	st := savingState{saves: v.saves, failure: v.failure, now: -1, last: -1}
	if v.busy {
		st.now = int64(time.Since(v.since).Seconds())
	}
	if v.saves > 0 || v.failure != nil {
		st.last = int64(v.took.Seconds())
	}
	return st
}

// snapshot writes a snapshot after a successful begin.
func (s *Server) snapshot() error {
	err := s.backend.Snapshot()
	s.saving.finished(err)
	if err != nil {
		s.log.Error("requested snapshot failed", "error", err)
	}
	return err
}

// snapshotLater starts a snapshot in the background. It returns false if one is in progress.
func (s *Server) snapshotLater() bool {
	if !s.saving.begin() {
		return false
	}
	go func() { _ = s.snapshot() }() // the error is logged, and in INFO
	return true
}
