package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/coordd/coordd/internal/wire"
)

// entryVersion is the format of the entries that this release writes, the first byte of each.
const entryVersion = 1

// Entry is one entry of the log: the batches that the proposer gathered, stamped with the cluster
// clock.
//
// Encoding: version (1 byte), flags (1 byte), origin (8 bytes), clock (uvarint), wall (varint);
// with flagCheck the check's index (uvarint) and sum (8 bytes); with flagLevel the level (uvarint);
// the number of batches (uvarint), each batch after its length (uvarint); and a CRC-32C of all that
// (4 bytes). Fixed-width numbers are little-endian.
type Entry struct {
	Origin  uint64 // the process that proposed the entry and wants its replies
	ClockMs int64  // cluster clock
	WallUs  int64  // the time of day at ClockMs, µs since 1970
	Check   Check  // Index 0: none
	Level   uint64 // the feature level that the machine rises to; 0: no change
	Batches [][]byte
	// Term is that of Raft's log entry. It is not part of the encoding.
	Term uint64
}

// Check is the running hash that the leader had after applying the entry at Index. Entries carry it
// below commands.LevelSecond.
type Check struct{ Index, Sum uint64 }

const (
	flagCheck = 1 << iota
	flagLevel

	entryFlags = flagCheck | flagLevel
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// Errors of DecodeEntry.
var (
	ErrEntryCorrupt = errors.New("log entry is corrupt")
	ErrEntryVersion = errors.New("log entry has a newer format")
)

// AppendEntry appends the encoding of e to dst.
func AppendEntry(dst []byte, e *Entry) []byte {
	start := len(dst)
	var flags byte
	if e.Check.Index != 0 {
		flags |= flagCheck
	}
	if e.Level != 0 {
		flags |= flagLevel
	}
	dst = append(dst, entryVersion, flags)
	dst = binary.LittleEndian.AppendUint64(dst, e.Origin)
	dst = binary.AppendUvarint(dst, uint64(e.ClockMs))
	dst = binary.AppendVarint(dst, e.WallUs)
	if flags&flagCheck != 0 {
		dst = binary.AppendUvarint(dst, e.Check.Index)
		dst = binary.LittleEndian.AppendUint64(dst, e.Check.Sum)
	}
	if flags&flagLevel != 0 {
		dst = binary.AppendUvarint(dst, e.Level)
	}
	dst = wire.AppendList(dst, e.Batches)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], crcTable))
}

// DecodeEntry reads an entry. Its batches share memory with b.
func DecodeEntry(b []byte) (*Entry, error) {
	if len(b) <= crc32.Size {
		return nil, ErrEntryCorrupt
	}
	body := b[:len(b)-crc32.Size]
	if crc32.Checksum(body, crcTable) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, ErrEntryCorrupt
	}
	if body[0] != entryVersion {
		return nil, fmt.Errorf("%w: version %d, this release reads %d", ErrEntryVersion, body[0],
			entryVersion)
	}
	e, c := &Entry{}, wire.NewCursor(body)
	flags := e.readHead(&c)
	e.Batches = c.List(len(body))
	if !c.Done() || flags&^entryFlags != 0 {
		return nil, ErrEntryCorrupt
	}
	return e, nil
}

// readHead reads what precedes the batches. The caller refuses flags that this release does not
// know: their fields follow the known ones.
func (e *Entry) readHead(c *wire.Cursor) (flags byte) {
	if c.Byte() != entryVersion {
		c.Fail()
	}
	flags = c.Byte()
	e.Origin, e.ClockMs, e.WallUs = c.Uint64(), int64(c.Uvarint()), c.Varint()
	if flags&flagCheck != 0 {
		e.Check = Check{Index: c.Uvarint(), Sum: c.Uint64()}
	}
	if flags&flagLevel != 0 {
		if e.Level = c.Uvarint(); e.Level == 0 {
			c.Fail()
		}
	}
	if e.ClockMs < 0 {
		c.Fail()
	}
	return flags
}

// entryHead reads an encoded entry up to its batches, without checking the rest.
func entryHead(b []byte) (head Entry, ok bool) {
	c := wire.NewCursor(b)
	head.readHead(&c)
	return head, !c.Failed()
}

// entryClock reads the stamp of an encoded entry without checking the rest.
func entryClock(b []byte) (clockMs, wallUs int64, ok bool) {
	head, ok := entryHead(b)
	return head.ClockMs, head.WallUs, ok
}
