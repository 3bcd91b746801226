// What a node finds at the end of its log when it opens it: which entries are complete, and whether
// the segment was sealed.
//
// raft-wal v0.4.2 writes a segment as frames of 8 bytes and a payload, padded to 8: entries, at the
// end their index, and after each batch a commit with the CRC-32C of all bytes since the previous
// commit. It checks only the last commit, takes any index that it meets for the end of the segment,
// even one of an incomplete batch, and does nothing about a sealed segment whose metadata does not
// say so.

package cluster

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft-wal/types"
)

// The frames of a segment.
const (
	segmentHeaderLen = 32
	segmentFrameLen  = 8
	frameOfEntry     = 1
	frameOfIndex     = 2
	frameOfCommit    = 3
)

// scanChunk is how much of a segment is read at a time.
const scanChunk = 256 << 10

// segmentEnd is the end of a segment's valid content.
type segmentEnd struct {
	at    int64  // after the last complete batch; 0: there is none
	last  uint64 // index of its last entry; 0: there is none
	index uint64 // where the index of entries begins, after its frame's header; 0: not sealed
}

// scanSegment reads a segment of the given size. It ignores batches with entries after keep.
//
// An incomplete batch ends the log: each batch is on disk before the next is written. A complete
// one after it means that bytes on disk changed, which is an error.
func scanSegment(f io.ReaderAt, size int64, info types.SegmentInfo,
	keep uint64) (segmentEnd, error) {
	var end segmentEnd
	s := segmentReader{in: bufio.NewReaderSize(io.NewSectionReader(f, 0, size),
		int(min(size, scanChunk))), size: size}
	if err := s.skip(segmentHeaderLen); err != nil {
		return end, s.ended(err)
	}
	entries, index, broken := uint64(0), uint64(0), int64(-1)
	for begun := int64(0); ; {
		crc := s.crc
		kind, n, err := s.frame()
		if err != nil {
			return end, s.ended(err)
		}
		switch kind {
		case frameOfEntry, frameOfIndex:
			if kind == frameOfEntry {
				entries++
			} else {
				index = uint64(s.at)
			}
			if err := s.skip(padded(int64(n))); err != nil {
				return end, s.ended(err)
			}
		case frameOfCommit:
			last := info.BaseIndex + entries - 1
			switch whole := n == crc; {
			case !whole && broken < 0:
				broken = begun
			case whole && broken >= 0:
				return end, fmt.Errorf(
					"%w: the entries at byte %d of segment %s were changed after they were written",
					types.ErrCorrupt, broken, segmentName(info))
			case whole && entries > 0 && last > keep:
				return end, nil
			case whole:
				end = segmentEnd{at: s.at, last: last, index: index}
				if entries == 0 {
					end.last = 0
				}
				if index > 0 {
					return end, nil
				}
			}
			s.crc, begun = 0, s.at
		default:
			return end, nil
		}
	}
}

// segmentReader reads a segment front to back.
type segmentReader struct {
	in   *bufio.Reader
	at   int64
	size int64
	crc  uint32 // of what was read
}

var errEnd = errors.New("the segment ends")

// ended turns the end of the file into success.
func (s *segmentReader) ended(err error) error {
	if errors.Is(err, errEnd) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// frame reads a frame's header: its kind, and its length or, for a commit, the CRC.
func (s *segmentReader) frame() (kind byte, n uint32, err error) {
	var head [segmentFrameLen]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return 0, 0, err
	}
	s.at += segmentFrameLen
	s.crc = crc32.Update(s.crc, castagnoli, head[:])
	if head[1]|head[2]|head[3] != 0 {
		return 0, 0, errEnd
	}
	return head[0], binary.LittleEndian.Uint32(head[4:]), nil
}

// skip reads n bytes.
func (s *segmentReader) skip(n int64) error {
	if n > s.size-s.at {
		return errEnd
	}
	for n > 0 {
		p, err := s.in.Peek(int(min(n, int64(s.in.Size()))))
		if err != nil && len(p) == 0 {
			return err
		}
		s.crc = crc32.Update(s.crc, castagnoli, p)
		if _, err := s.in.Discard(len(p)); err != nil {
			return err
		}
		s.at += int64(len(p))
		n -= int64(len(p))
	}
	return nil
}

// padded is the length of a payload in the file.
func padded(n int64) int64 { return (n + segmentFrameLen - 1) &^ (segmentFrameLen - 1) }

// clearAfter zeroes a segment from at on.
func clearAfter(f types.WritableFile, at, size int64) error {
	buf := make([]byte, min(max(size-at, 0), scanChunk))
	wrote := false
	for at < size {
		n, err := f.ReadAt(buf[:min(size-at, int64(len(buf)))], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			break
		}
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := f.WriteAt(zeros[:n], at); err != nil {
				return err
			}
			wrote = true
		}
		at += int64(n)
	}
	if !wrote {
		return nil
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
