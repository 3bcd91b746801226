// raft-wal's metadata, which say which segments there are, and what they must agree with before
// anything of them is believed: the segments themselves, and the mark.

package raftlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
)

// walMeta is raft-wal's metadata. It stays open while the log is reopened, unless a commit failed,
// and Load never returns a sealed segment without a successor.
type walMeta struct {
	*segmentList
	log    *WAL
	keep   uint64      // entries after this one were not acknowledged; Load drops them
	first  bool        // the log is opened for the first time by this process
	failed atomic.Bool // a commit, since the file was opened
}

// Close does nothing: whoever reopens the log continues with it.
func (m *walMeta) Close() error { return nil }

// errNotCommitted is the answer of metadata of which an earlier commit failed.
var errNotCommitted = errors.New("the metadata of the log could not be committed earlier")

// CommitState replaces the metadata. After a commit that failed it refuses all until Load: what
// bbolt believes of its file may be neither the old content nor the new one, and it would panic.
func (m *walMeta) CommitState(state types.PersistentState) error {
	if m.failed.Load() {
		return errNotCommitted
	}
	err := m.segmentList.CommitState(state)
	m.failed.Store(err != nil)
	return err
}

// Load reads the metadata, drops what follows the last complete batch of entries, and finishes
// sealing a segment. After a commit that failed it opens the file again. Nothing on the disk
// changes before all segments agree with the metadata and with the mark.
func (m *walMeta) Load(dir string) (types.PersistentState, error) {
	again := m.failed.Load()
	if again {
		if err := m.segmentList.Close(); err != nil {
			return types.PersistentState{}, err
		}
	}
	state, err := m.segmentList.Load(dir)
	if again && err == nil { // what is read may not be durable
		m.failed.Store(false)
		err = m.CommitState(state)
	}
	if err != nil {
		return state, err
	}
	if err := m.checkSegments(dir, state); err != nil {
		return state, err
	}
	end, err := m.prove(dir, state)
	if err != nil || len(state.Segments) == 0 {
		return state, err
	}
	if m.first {
		if err := m.renew(); err != nil {
			return state, err
		}
		for _, s := range state.Segments {
			m.returnSpace(dir, s)
		}
	}
	tail := &state.Segments[len(state.Segments)-1]
	if tail.SealTime.IsZero() {
		if err := m.cutAfter(dir, *tail, end); err != nil {
			return state, err
		}
		if end.index == 0 {
			return state, nil
		}
		tail.SealTime, tail.MaxIndex, tail.IndexStart = time.Now(), end.last, end.index
	}
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: tail.MaxIndex + 1, MinIndex: tail.MaxIndex + 1,
		SizeLimit: tail.SizeLimit, Codec: tail.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	return state, m.CommitState(state)
}

// checkSegments checks that the segments of the metadata follow each other, and that raft-wal would
// delete no file that it cannot have begun or dropped.
func (m *walMeta) checkSegments(dir string, state types.PersistentState) error {
	meta := filepath.Join(dir, segmentsName)
	names, err := m.log.files.ListDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names { // raft-wal deletes the file of a segment that it does not know
		var base, id uint64
		if n, _ := fmt.Sscanf(name, segmentFormat, &base, &id); n == 2 &&
			id >= state.NextSegmentID {
			return disk.Damagedf(meta, "it knows nothing of %s", name)
		}
	}
	if len(state.Segments) == 0 && state.NextSegmentID > 0 {
		return disk.Damagedf(meta, "it has no segment")
	}
	for i, s := range state.Segments {
		switch {
		case s.ID >= state.NextSegmentID:
			return disk.Damagedf(meta, "segment %d is later than the next", s.ID)
		case s.Codec != wal.CodecBinaryV1 || s.SizeLimit == 0:
			return disk.Damagedf(meta, "segment %d has codec %d and size %d", s.ID, s.Codec,
				s.SizeLimit)
		case s.BaseIndex == 0 || s.MinIndex < s.BaseIndex || i > 0 && s.MinIndex > s.BaseIndex:
			return disk.Damagedf(meta, "segment %d begins at entry %d and is used from %d on", s.ID,
				s.BaseIndex, s.MinIndex)
		case i == 0:
			continue
		}
		before := state.Segments[i-1]
		if before.SealTime.IsZero() || before.MaxIndex+1 != s.BaseIndex || before.ID >= s.ID {
			return disk.Damagedf(meta, "the segment of entry %d does not follow that of entry %d",
				s.BaseIndex, before.BaseIndex)
		}
	}
	return nil
}

// prove checks the segments, and that the log reaches the mark. It returns where the last segment
// ends, if that is not sealed.
func (m *walMeta) prove(dir string, state types.PersistentState) (end segmentEnd, err error) {
	last, file := uint64(0), filepath.Join(dir, segmentsName)
	for i, s := range state.Segments {
		file = filepath.Join(dir, segmentName(s))
		if !s.SealTime.IsZero() {
			if err := m.proveSealed(dir, s); err != nil {
				return end, err
			}
			last = s.MaxIndex
			continue
		}
		if end, err = m.scan(dir, s, m.keep); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return end, err // raft-wal creates a file that is missing
		}
		if end.last > 0 || i == 0 {
			last = end.last
		}
	}
	if m.first && m.marked() {
		return end, CheckMark(m.log.files, dir, file, last)
	}
	return end, nil
}

// proveSealed checks a sealed segment, once.
func (m *walMeta) proveSealed(dir string, s types.SegmentInfo) error {
	if m.log.sums.has(s.ID) {
		return nil
	}
	end, err := m.scan(dir, s, math.MaxUint64)
	file := filepath.Join(dir, segmentName(s))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return disk.Damagedf(file, "the file is missing")
	case err != nil:
		return err
	case end.index == 0 || end.index != s.IndexStart:
		return disk.Damagedf(file, "byte %d: it is not where it should end", end.at)
	case end.last < s.MaxIndex:
		return disk.Damagedf(file, "it ends at entry %d, and entries up to %d were stored",
			end.last, s.MaxIndex)
	}
	return nil
}

// scan reads a segment, and notes the checksums of its entries. It changes nothing.
func (m *walMeta) scan(dir string, s types.SegmentInfo, keep uint64) (segmentEnd, error) {
	f, err := m.log.files.OpenReader(dir, segmentName(s))
	if err != nil {
		return segmentEnd{}, err
	}
	end, sums, err := scanSegment(f, filepath.Join(dir, segmentName(s)), s, keep)
	if err == nil {
		m.log.sums.set(s.ID, sums)
	}
	return end, errors.Join(err, f.Close())
}

// cutAfter clears what follows the end of the last segment: a batch that was not written whole.
// Its bytes are set aside first. The last whole batch is written again: if an earlier process could
// not sync it, Linux would sync nothing now.
func (m *walMeta) cutAfter(dir string, tail types.SegmentInfo, end segmentEnd) error {
	w, err := (&walFiles{Files: m.log.files}).OpenWriter(dir, segmentName(tail))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, at := w.(*walFile), end.at
	last, err := lastByte(f, at, f.size)
	if err == nil && m.first && end.from < at {
		err = copyRange(f.File, f, end.from, at, end.from)
	}
	if err == nil && last > at {
		if m.first { // a write of this process that failed is known to be none
			err = m.setAside(dir, tail, f, at, last)
		}
		if err == nil {
			err = clearRange(f.File, at, last)
		}
	}
	return errors.Join(err, f.Close())
}

// cutSuffix ends the names of files with bytes that were cut off the end of the log.
const cutSuffix = ".cut"

// setAside copies bytes of a segment that are to be cleared. Without room for them it goes on: they
// are a batch that was not whole. Those of earlier times go.
func (m *walMeta) setAside(dir string, tail types.SegmentInfo, f io.ReaderAt, at,
	end int64) error {
	files, l := m.log.files, m.log
	names, err := files.ListDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, cutSuffix) {
			if err := files.Delete(dir, name); err != nil {
				return err
			}
		}
	}
	name := fmt.Sprintf("%s-%d%s", strings.TrimSuffix(segmentName(tail), ".wal"), at, cutSuffix)
	to, err := files.Create(dir, name, 0)
	if err == nil {
		err = copyRange(to, f, at, end, 0)
		err = errors.Join(err, to.Close())
	}
	if disk.NoSpace(err) {
		name, err = "", nil
	}
	l.logger.Info("the end of the log was not written whole, as at a power failure; it is cut off",
		"segment", segmentName(tail), "at", at, "bytes", end-at, "kept", name)
	return err
}

// returnSpace returns space reserved after the end of a sealed segment, which another version or a
// killed process may have left.
func (m *walMeta) returnSpace(dir string, s types.SegmentInfo) {
	if s.SealTime.IsZero() || s.IndexStart == 0 {
		return
	}
	w, err := m.log.files.OpenWriter(dir, segmentName(s))
	if err != nil {
		return // raft-wal reports it
	}
	defer w.Close()
	f := w.(disk.File)
	end, err1 := endOfSealed(f, s.IndexStart)
	size, err2 := f.Size()
	if err1 == nil && err2 == nil && size > end {
		_ = f.Truncate(end)
	}
}

// segmentFormat is that of the name of a segment's file: the first entry and the segment's id.
const segmentFormat = "%020d-%016x.wal"

func segmentName(s types.SegmentInfo) string { return segment.FileName(s) }
