// Tests that many clients, and what they do not read, cost little, and who pays for what they keep.

package server

import (
	"fmt"
	"testing"
)

// One message tells the clients of all flushes of an entry, and of what else it has changed.
func TestOneFlushAnEntry(t *testing.T) {
	n := start(t, byHand)
	const clients = 300
	for i := range clients {
		n.hearer(t, uint64(1000+i), &tracker{bcast: true, prefixes: []string{"k"}})
	}
	var changes []keyChange
	for range 2000 {
		changes = append(changes, keyChange{all: true}, keyChange{key: "k"})
	}
	told := 0
	n.tracking.changed(changes, 1<<40, func(v *invalidation) {
		if told += len(v.to); v.keys != nil || v.part.of != nil {
			t.Error("a message of some keys")
		}
	})
	if told != clients {
		t.Errorf("%d messages to %d clients", told, clients)
	}
}

// Keys that many clients track are evicted in steps too, until all is within the limits.
func TestEvictionsOfKeysThatManyTrack(t *testing.T) {
	n := start(t, byHand)
	tr := &n.tracking
	for range lockedClients + 1 {
		s := &session{srv: n.Server, tracked: map[string]uint32{}}
		tr.mu.Lock()
		for i := range 3 {
			tr.note(s, fmt.Sprint("k", i))
		}
		tr.mu.Unlock()
	}
	tr.maxKeys.Store(1)
	tr.mu.Lock()
	dropped := tr.evict()
	tr.mu.Unlock()
	if len(dropped) != 1 {
		t.Errorf("%d keys at once", len(dropped))
	}
	tr.trim(func(invalidation) {})
	if len(tr.keys) != 1 {
		t.Errorf("%d keys are left", len(tr.keys))
	}
}
