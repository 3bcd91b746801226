// What a node finds at the end of its log when it opens it: which entries are complete, and whether
// the segment was sealed.
//
// raft-wal v0.4.2 writes a segment as frames of 8 bytes and a payload, padded to 8: entries, at the
// end their index, and after each batch a commit with the CRC-32C of all bytes since the previous
// commit. It checks only the last commit, takes any index that it meets for the end of the segment,
// even one of an incomplete batch, and does nothing about a sealed segment whose metadata does not
// say so.

package raftlog

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
)

// The frames of a segment.
const (
	segmentHeaderLen = 32
	segmentFrameLen  = 8
	frameOfEntry     = 1
	frameOfIndex     = 2
	frameOfCommit    = 3
)

// castagnoli is for the checksums that raft-wal writes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scanChunk is how much of a segment is read at a time.
const scanChunk = 256 << 10

// tornBytes is the least that a power failure takes from a write: a disk writes whole sectors.
// Tests lower it.
var tornBytes = 512

// segmentEnd is the end of a segment's valid content.
type segmentEnd struct {
	at    int64  // after the last complete batch; 0: there is none
	from  int64  // where that batch begins
	last  uint64 // index of its last entry; 0: there is none
	index uint64 // where the index of entries begins, after its frame's header; 0: not sealed
}

// scanSegment reads a segment, and returns where it ends and the checksums of its entries. It
// ignores batches with entries after keep. file is its name in errors.
//
// Each batch is on disk before the next is written, over zeros. So what follows the last complete
// batch is zeros, or one batch of which the power failure took at least a sector: those bytes are
// zeros still. Anything else was changed after it was written, which is an error.
func scanSegment(f io.ReaderAt, file string, info types.SegmentInfo,
	keep uint64) (end segmentEnd, sums []uint32, err error) {
	s := segmentReader{in: bufio.NewReaderSize(io.NewSectionReader(f, 0, math.MaxInt64),
		scanChunk)}
	changed := func(at int64) error {
		return disk.Damagedf(file, "byte %d: the entries there were changed after they were "+
			"written", at)
	}
	if err := s.skip(segmentHeaderLen); err != nil {
		return end, nil, s.ended(err)
	}
	var batch []uint32
	head := frameHead{}
	index, broken := uint64(0), int64(-1)
	stop := func(err error) (segmentEnd, []uint32, error) {
		if err = s.ended(err); err == nil && head.at > 0 && head.changed(f) {
			err = changed(head.at)
		}
		return end, sums, err
	}
	for begun := int64(0); ; {
		crc := s.crc
		before := frameHead{at: s.at, crc: crc}
		kind, n, err := s.frame()
		switch {
		case errors.Is(err, errUnknownFrame):
			return end, nil, changed(before.at)
		case err != nil:
			return stop(err)
		}
		head = before
		switch kind {
		case frameOfEntry:
			sum, err := s.payload(int64(n))
			if err != nil {
				return stop(err)
			}
			batch = append(batch, sum)
		case frameOfIndex:
			index = uint64(s.at)
			if err := s.skip(padded(int64(n))); err != nil {
				return stop(err)
			}
		case frameOfCommit:
			last := info.BaseIndex + uint64(len(sums)+len(batch)) - 1
			whole := n == crc
			if !whole && broken < 0 {
				gap, err := longestZeros(f, begun, s.at)
				if err != nil || gap < tornBytes {
					return end, nil, cmp.Or(err, changed(begun))
				}
				broken = begun
			}
			switch {
			case whole && broken >= 0:
				return end, nil, changed(broken)
			case whole && len(batch) > 0 && last > keep:
				return end, sums, nil
			case whole:
				sums = append(sums, batch...)
				end = segmentEnd{at: s.at, from: begun, last: last, index: index}
				if len(sums) == 0 {
					end.last = 0
				}
				if index > 0 {
					return end, sums, nil
				}
			}
			batch, begun, head = batch[:0], s.at, frameHead{}
			s.crc = 0
		}
	}
}

// frameHead is where the header of a frame is, and the CRC of its batch before it.
type frameHead struct {
	at  int64
	crc uint32
}

// changed reports whether the batch of a frame is whole if one bit of the header is changed. A
// length with a wrong bit leads past the end of the log, as after a power failure.
func (h frameHead) changed(f io.ReaderAt) bool {
	var is [segmentFrameLen]byte
	if _, err := f.ReadAt(is[:], h.at); err != nil {
		return false
	}
	for bit := range 8 * segmentFrameLen {
		was := is
		was[bit/8] ^= 1 << (bit % 8)
		rest := io.NewSectionReader(f, h.at+segmentFrameLen, math.MaxInt64)
		s := segmentReader{crc: h.crc, in: bufio.NewReaderSize(
			io.MultiReader(bytes.NewReader(was[:]), rest), scanChunk)}
		if s.whole() {
			return true
		}
	}
	return false
}

// whole reports whether the frames that follow end in a commit that fits them.
func (s *segmentReader) whole() bool {
	for {
		crc := s.crc
		kind, n, err := s.frame()
		if err != nil || kind == frameOfCommit {
			return err == nil && n == crc
		}
		if s.skip(padded(int64(n))) != nil {
			return false
		}
	}
}

// segmentReader reads a segment front to back.
type segmentReader struct {
	in  *bufio.Reader
	at  int64
	crc uint32 // CRC-32C of the current batch as far as it was read
}

// errUnknownFrame is an error for bytes that are no frame, and not zeros.
var errUnknownFrame = errors.New("not a frame")

// ended turns the end of the file, or of what is not zeros, into success.
func (s *segmentReader) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// frame reads a frame's header: its kind, and its length or, for a commit, the CRC. It fails with
// io.EOF at zeros.
func (s *segmentReader) frame() (kind byte, n uint32, err error) {
	var head [segmentFrameLen]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return 0, 0, err
	}
	s.seen(head[:])
	kind, n = head[0], binary.LittleEndian.Uint32(head[4:])
	switch {
	case head == [segmentFrameLen]byte{}:
		return 0, 0, io.EOF
	case head[1]|head[2]|head[3] != 0, kind < frameOfEntry, kind > frameOfCommit,
		kind != frameOfCommit && n > segment.MaxEntrySize:
		return 0, 0, errUnknownFrame
	}
	return kind, n, nil
}

// seen counts bytes that were read.
func (s *segmentReader) seen(p []byte) {
	s.at += int64(len(p))
	s.crc = crc32.Update(s.crc, castagnoli, p)
}

// longestZeros returns the most zeros in a row in a part of a file.
func longestZeros(f io.ReaderAt, from, to int64) (most int, err error) {
	in := bufio.NewReaderSize(io.NewSectionReader(f, from, to-from), scanChunk)
	for run := 0; ; {
		switch c, err := in.ReadByte(); {
		case errors.Is(err, io.EOF):
			return most, nil
		case err != nil:
			return most, err
		case c != 0:
			run = 0
		default:
			run++
			most = max(most, run)
		}
	}
}

// payload reads the payload of an entry, and returns its checksum.
func (s *segmentReader) payload(n int64) (sum uint32, err error) {
	err = s.read(n, func(p []byte) { sum = crc32.Update(sum, castagnoli, p) })
	if err == nil {
		err = s.skip(padded(n) - n)
	}
	return sum, err
}

// skip reads n bytes.
func (s *segmentReader) skip(n int64) error { return s.read(n, func([]byte) {}) }

func (s *segmentReader) read(n int64, each func([]byte)) error {
	for n > 0 {
		p, err := s.in.Peek(int(min(n, int64(s.in.Size()))))
		if err != nil && len(p) == 0 {
			return err
		}
		s.seen(p)
		each(p)
		if _, err := s.in.Discard(len(p)); err != nil {
			return err
		}
		n -= int64(len(p))
	}
	return nil
}

// padded is the length of a payload in the file.
func padded(n int64) int64 { return (n + segmentFrameLen - 1) &^ (segmentFrameLen - 1) }

// lastByte returns the end of what is not zero in a file, at the least from.
func lastByte(f io.ReaderAt, from, size int64) (int64, error) {
	buf := make([]byte, scanChunk)
	last := from
	for at := from; at < size; {
		n, err := f.ReadAt(buf[:min(size-at, scanChunk)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if n == 0 {
			break
		}
		if used := usedLen(buf[:n]); used > 0 {
			last = at + int64(used)
		}
		at += int64(n)
	}
	return last, nil
}

// usedLen is the length of b without the zeros at its end. Most of a segment is zeros, so it
// compares blocks: the race detector, which checks each access, makes a loop over bytes very long.
func usedLen(b []byte) int {
	const block = 4096
	for len(b) >= block && bytes.Equal(b[len(b)-block:], zeros[:block]) {
		b = b[:len(b)-block]
	}
	return len(bytes.TrimRight(b, "\x00"))
}

// copyRange copies bytes of a segment to a place in a file, durably.
func copyRange(to types.WritableFile, from io.ReaderAt, at, end, place int64) error {
	buf := make([]byte, scanChunk)
	for begin := at - place; at < end; {
		n, err := from.ReadAt(buf[:min(end-at, scanChunk)], at)
		if n == 0 {
			return err
		}
		if _, err := to.WriteAt(buf[:n], at-begin); err != nil {
			return err
		}
		at += int64(n)
	}
	return to.Sync()
}

// clearRange zeroes bytes of a segment, durably.
func clearRange(f types.WritableFile, at, end int64) error {
	for at < end {
		n, err := f.WriteAt(zeros[:min(end-at, int64(len(zeros)))], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return f.Sync()
}

// endOfSealed returns where a sealed segment with this index position ends.
func endOfSealed(f io.ReaderAt, index uint64) (int64, error) {
	var head [segmentFrameLen]byte
	if _, err := f.ReadAt(head[:], int64(index)-segmentFrameLen); err != nil {
		return 0, err
	}
	if head[0] != frameOfIndex {
		return 0, fmt.Errorf("%w: byte %d is not where an index begins", types.ErrCorrupt, index)
	}
	end := int64(index) + padded(int64(binary.LittleEndian.Uint32(head[4:]))) + segmentFrameLen
	if _, err := f.ReadAt(head[:], end-segmentFrameLen); err != nil {
		return 0, err
	}
	if head[0] != frameOfCommit {
		return 0, fmt.Errorf("%w: no commit after the index at byte %d", types.ErrCorrupt,
			index)
	}
	return end, nil
}
