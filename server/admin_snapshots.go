package server

// This file holds the snapshots that clients ask for.

import (
	"sync"
	"time"
)

// saving is what is known of the snapshots that clients asked for.
type saving struct {
	mu      sync.Mutex
	busy    bool
	since   time.Time     // when the one under way began
	took    time.Duration // the newest one that ended
	saves   int
	failure error // of the newest one
}

// begin says whether a snapshot may begin now; then end has to follow.
func (v *saving) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy {
		return false
	}
	v.busy, v.since = true, time.Now()
	return true
}

func (v *saving) end(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy, v.failure, v.took = false, err, time.Since(v.since)
	if err == nil {
		v.saves++
	}
}

// savingState is a copy of what saving knows.
type savingState struct {
	saves   int
	failure error
	now     int64 // seconds that the one under way has taken; -1: none is
	last    int64 // seconds that the newest one took; -1: there was none
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

// snapshot writes a snapshot, which begin allowed.
func (s *Server) snapshot() error {
	err := s.backend.Snapshot()
	s.saving.end(err)
	if err != nil {
		s.log.Error("requested snapshot failed", "error", err)
	}
	return err
}

// snapshotLater begins a snapshot. It returns false where one is under way.
func (s *Server) snapshotLater() bool {
	if !s.saving.begin() {
		return false
	}
	go func() { _ = s.snapshot() }() // the error is logged, and in INFO
	return true
}
