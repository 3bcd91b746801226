// What can still be read in a damaged log.

package raftlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// Salvage returns the index of the last entry of a segment that may be damaged, and calls note with
// those of batches that are as they were written. Behind damage it looks for the next frame,
// wherever it is: what only seems to be an entry counts as the last one too.
func Salvage(name string, note func(*raft.Log)) (last uint64, err error) {
	var base uint64
	if _, err := fmt.Sscanf(filepath.Base(name), "%d-", &base); err != nil {
		return 0, fmt.Errorf("%s is no name of a segment", name)
	}
	b, err := os.ReadFile(name)
	var batch []raft.Log // what seems to be entries, from begun on
	for at, begun := segmentHeaderLen, 0; at+segmentFrameLen <= len(b); {
		head, rest := b[at:at+segmentFrameLen], b[at+segmentFrameLen:]
		kind, n := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
		var l raft.Log
		switch {
		case kind == frameOfEntry && int64(n) <= int64(len(rest)) &&
			decodeEntry(rest[:n], &l) == nil && l.Index >= base &&
			l.Index-base <= uint64(at/segmentFrameLen):
			last = max(last, l.Index)
			batch = append(batch, l)
			at += segmentFrameLen + int(padded(int64(n)))
			continue
		case kind == frameOfCommit && n == crc32.Checksum(b[begun:at], castagnoli):
			for _, l := range batch {
				note(&l)
			}
		case kind == frameOfIndex && int64(n) <= int64(len(rest)):
			at += segmentFrameLen + int(padded(int64(n)))
			continue
		}
		at += segmentFrameLen
		batch, begun = nil, at // a batch may begin behind damage
	}
	return last, err
}

// decodeEntry decodes what may be no entry, of which raft-wal panics.
func decodeEntry(b []byte, l *raft.Log) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return (&wal.BinaryCodec{}).Decode(b, l)
}
