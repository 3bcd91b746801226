// The leader writes entries while it sends them to its followers (Raft thesis, section 10.2.1). To
// Raft they are stored as soon as StoreLogs returns, so what counts on that waits until they are
// durable: applying them, telling followers that they are committed, and everything that a node
// does with its log when it does not lead. docs/adr/0019 has the argument.

package cluster

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// maxDeferred bounds the bytes of deferred entries: the log cache holds them all, of which
	// there are cacheEntries at most.
	maxDeferred = 8 << 20
	// deferredOverhead is more than what an entry takes on disk besides its data, in the index too.
	deferredOverhead = 256
	// sealReserve is more than what sealing a segment adds to it, except for the index.
	sealReserve = 1 << 20
)

// roomyLog is a log on disk that knows how many bytes can be appended for sure, besides the index
// of the entries that it has: the space is reserved, and no file has to be created.
type roomyLog interface{ Room() int64 }

// deferred holds the entries that Raft takes for stored and that are not durable yet, in order.
type deferred struct {
	first atomic.Uint64 // index of the first one; 0: none

	mu      lockorder.Mutex
	durable sync.Cond // first has changed, or failed
	queue   []*raft.Log
	last    uint64 // index of the newest one there ever was
	bytes   int64
	failed  bool // those that there are never become durable
}

func deferredSize(logs []*raft.Log) (size int64) {
	for _, l := range logs {
		size += int64(len(l.Data)) + deferredOverhead
	}
	return size
}

// mayDefer reports whether entries may be written after StoreLogs has returned: only for a leader,
// which appends nothing but commands, and only if the write cannot fail for lack of space. Another
// failure ends the process.
func (s *logStore) mayDefer(logs []*raft.Log) bool {
	log, ok := s.LogStore.(roomyLog)
	if !ok || !s.leads() {
		return false
	}
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			return false
		}
	}
	d := &s.deferred
	d.mu.Lock()
	defer d.mu.Unlock()
	first, last := logs[0].Index, logs[len(logs)-1].Index
	if oldest := d.first.Load(); oldest != 0 {
		first = oldest
	}
	size := d.bytes + deferredSize(logs)
	return !d.failed && last-first < cacheEntries && size <= maxDeferred &&
		size+sealReserve <= log.Room()
}

// deferWrite has entries written by another goroutine.
func (s *logStore) deferWrite(logs []*raft.Log) {
	d := &s.deferred
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, logs...)
	d.bytes += deferredSize(logs)
	d.last = logs[len(logs)-1].Index
	if d.first.Load() == 0 {
		d.first.Store(logs[0].Index)
		go s.writeDeferred()
	}
}

// writeDeferred writes the deferred entries until there are none, or a write fails.
func (s *logStore) writeDeferred() {
	d := &s.deferred
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.first.Load() != 0 && !d.failed {
		logs := d.queue
		d.queue = nil
		d.mu.Unlock()
		err := s.store(logs, false) // mayDefer has looked for room
		if err != nil {
			s.failDeferred(logs, err)
		}
		d.mu.Lock()
		if d.failed = err != nil; !d.failed {
			d.bytes -= deferredSize(logs)
			if len(d.queue) == 0 {
				d.first.Store(0)
			} else {
				d.first.Store(d.queue[0].Index)
			}
		}
		d.durable.Broadcast()
	}
}

// failDeferred ends the process: Raft takes the entries for stored.
func (s *logStore) failDeferred(logs []*raft.Log, err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if s.failure == nil { // else store has ended it
		_ = s.fail(fmt.Errorf("cannot store entries %d to %d, which were sent to other members: %w",
			logs[0].Index, logs[len(logs)-1].Index, err))
	}
}

var errNotDurable = errors.New("the newest log entries could not be stored")

// flush waits until everything that is deferred now is durable.
func (s *logStore) flush() error {
	d := &s.deferred
	if d.first.Load() == 0 {
		return nil
	}
	d.mu.Lock()
	last := d.last
	d.mu.Unlock()
	if !s.awaitDurable(last) {
		return errNotDurable
	}
	return nil
}

// flushAsFollower is flush for a node that does not lead: Raft acts on what its log holds.
func (s *logStore) flushAsFollower() error {
	if s.deferred.first.Load() == 0 || s.leads() {
		return nil
	}
	return s.flush()
}

// awaitDurable waits until the log is durable up to an index. It returns false if it will not be.
func (s *logStore) awaitDurable(index uint64) bool {
	if s.durableTo() >= index {
		return true
	}
	d := &s.deferred
	d.mu.Lock()
	defer d.mu.Unlock()
	for s.durableTo() < index && !d.failed {
		d.durable.Wait()
	}
	return s.durableTo() >= index
}

// durableTo returns an index up to which the log is durable.
func (s *logStore) durableTo() uint64 {
	if first := s.deferred.first.Load(); first != 0 {
		return first - 1
	}
	return math.MaxUint64
}

// FirstIndex returns the index of the first entry, 0 if there is none.
func (s *logStore) FirstIndex() (uint64, error) {
	if err := s.flushAsFollower(); err != nil {
		return 0, err
	}
	return s.LogStore.FirstIndex()
}

// LastIndex returns the index of the last entry that is durable, 0 if there is none.
func (s *logStore) LastIndex() (uint64, error) {
	if err := s.flushAsFollower(); err != nil {
		return 0, err
	}
	return s.LogStore.LastIndex()
}
