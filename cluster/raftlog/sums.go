// The checksum of each entry in the log, kept in memory: raft-wal checks nothing when it reads one,
// and a leader would send what a disk has changed.

package raftlog

import (
	"errors"
	"hash/crc32"
	"io/fs"

	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/lockorder"
)

// segmentSums are the CRC-32C of the entries of segments, by the segment's id, in order.
type segmentSums struct {
	mu lockorder.RWMutex
	of map[uint64][]uint32
}

func (s *segmentSums) set(id uint64, sums []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[uint64][]uint32{}
	}
	s.of[id] = sums
}

func (s *segmentSums) has(id uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.of[id] != nil
}

func (s *segmentSums) drop(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

// add adds entries that follow each other, in place of those that a write brought that failed.
func (s *segmentSums) add(of types.SegmentInfo, entries []types.LogEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := s.of[of.ID]
	if at := entries[0].Index - of.BaseIndex; at < uint64(len(sums)) {
		sums = sums[:at]
	}
	for _, e := range entries {
		sums = append(sums, crc32.Checksum(e.Data, castagnoli))
	}
	if s.of == nil {
		s.of = map[uint64][]uint32{}
	}
	s.of[of.ID] = sums
}

// checked returns what passes on an entry that was read from a segment, if it is as it was written.
// What was found in a segment and then cannot be read, where a changed length points beyond the
// file perhaps, is not: Raft would end the process without a word. A segment that is being deleted
// has no entry any more: raft-wal does not keep it for who has just begun to read.
func (s *segmentSums) checked(of types.SegmentInfo, index uint64) func(*types.PooledBuffer,
	error) (*types.PooledBuffer, error) {
	return func(b *types.PooledBuffer, err error) (*types.PooledBuffer, error) {
		s.mu.RLock()
		sums, there := s.of[of.ID]
		at := index - of.BaseIndex
		same := err == nil && at < uint64(len(sums)) &&
			sums[at] == crc32.Checksum(b.Bs, castagnoli)
		s.mu.RUnlock()
		if same {
			return b, nil
		}
		if err == nil {
			b.Close()
		}
		switch {
		case !there:
			return nil, types.ErrNotFound
		case err == nil:
			return nil, disk.Damagedf(segmentName(of), "entry %d was changed after it was written",
				index)
		case errors.Is(err, types.ErrNotFound), errors.Is(err, types.ErrClosed),
			errors.Is(err, fs.ErrClosed):
			return nil, err
		}
		return nil, disk.Damagedf(segmentName(of), "entry %d cannot be read: %v", index, err)
	}
}
