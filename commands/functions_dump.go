// The value of FUNCTION DUMP and FUNCTION RESTORE, in the RDB format of Redis, version 10, so
// libraries move between coordd and Redis in both directions. Each library is a type byte and its
// source as a string. The version (2 bytes, little-endian) and a CRC-64 of everything before it (8
// bytes) follow. Strings are written plain, and read in all forms that Redis writes, integers and
// LZF-compressed strings among them.

package commands

import (
	"encoding/binary"
	"hash/crc64"
	"iter"

	"github.com/coordd/coordd/internal/wire"
)

const (
	dumpVersion = 10
	dumpFooter  = 2 + 8  // bytes of version and checksum
	dumpLibrary = 0xf5   // starts a library
	dumpRC      = 0xf6   // started one in the release candidates of Redis 7.0
	lengthWide  = 1 << 7 // starts a length of 4 bytes; plus 1: of 8
)

// Errors of FUNCTION RESTORE on its value.
const (
	errDump        Error = "ERR DUMP payload version or checksum are wrong"
	errDumpType    Error = "ERR given type is not a function"
	errDumpRC      Error = "ERR Pre-GA function format not supported"
	errDumpLibrary Error = "ERR Failed loading library payload"
)

// dumpTable is for the CRC-64 polynomial of Redis (W. Jones), bits reversed.
var dumpTable = crc64.MakeTable(0x95ac9329ac4bc9b5)

// dumpSum returns the checksum of b. Unlike Go's, it does not invert at start and end.
func dumpSum(b []byte) uint64 { return ^crc64.Update(^uint64(0), dumpTable, b) }

// dumpLibraries encodes the value of FUNCTION DUMP.
func dumpLibraries(libraries []*Library) []byte {
	var b []byte
	for _, l := range libraries {
		b = append(b, dumpLibrary)
		switch n := len(l.Source); {
		case n < 1<<6:
			b = append(b, byte(n))
		case n < 1<<14:
			b = append(b, 1<<6|byte(n>>8), byte(n))
		default:
			b = binary.BigEndian.AppendUint32(append(b, lengthWide), uint32(n))
		}
		b = append(b, l.Source...)
	}
	b = binary.LittleEndian.AppendUint16(b, dumpVersion)
	return binary.LittleEndian.AppendUint64(b, dumpSum(b))
}

// dumpedSources iterates over the sources in a value of FUNCTION DUMP. An error comes last. It
// fails at once if the version or the checksum is wrong.
func dumpedSources(value []byte) (iter.Seq2[[]byte, error], error) {
	body := len(value) - dumpFooter
	if body < 0 || binary.LittleEndian.Uint16(value[body:]) > dumpVersion ||
		binary.LittleEndian.Uint64(value[body+2:]) != dumpSum(value[:body+2]) {
		return nil, errDump
	}
	return func(yield func([]byte, error) bool) {
		r := dumpReader{wire.NewCursor(value)} // with the footer, as on Redis
		for r.Len() > dumpFooter {
			source, err := r.library()
			if !yield(source, err) || err != nil {
				return
			}
		}
	}, nil
}

// dumpReader decodes the value of FUNCTION DUMP.
type dumpReader struct{ wire.Cursor }

// bigEndian reads a number of n bytes.
func (r *dumpReader) bigEndian(n int) (v uint64) {
	for range n {
		v = v<<8 | uint64(r.Byte())
	}
	return v
}

func (r *dumpReader) library() (source []byte, err error) {
	switch r.Byte() {
	case dumpLibrary:
	case dumpRC:
		return nil, errDumpRC
	default:
		return nil, errDumpType
	}
	if source = r.text(); r.Failed() {
		return nil, errDumpLibrary
	}
	return source, nil
}

// text reads a string. One that was encoded as an integer is no source, so it reads as empty.
func (r *dumpReader) text() []byte {
	const encoded = 3 << 6
	first := r.Byte()
	switch first {
	case encoded, encoded | 1, encoded | 2:
		r.Take(1 << (first & 3))
		return nil
	case encoded | 3:
		packed, length := r.length(r.Byte()), uint64(0)
		if !r.Failed() {
			length = r.length(r.Byte())
		}
		if length > MaxScriptBytes {
			r.Fail()
		}
		return r.unpack(r.Take(packed), int(length))
	}
	return r.Take(r.length(first))
}

// length reads a length whose first byte is first.
func (r *dumpReader) length(first byte) uint64 {
	switch {
	case first < 1<<6:
		return uint64(first)
	case first < 1<<7:
		return uint64(first&(1<<6-1))<<8 | uint64(r.Byte())
	case first == lengthWide:
		return r.bigEndian(4)
	case first == lengthWide+1:
		return r.bigEndian(8)
	}
	r.Fail()
	return 0
}

// unpack decompresses LZF. A byte below 32 is followed by that many literal bytes plus one. Any
// other byte is a copy of earlier output: its upper three bits plus 2 are the length (all set: add
// the next byte), its lower bits and the next byte the distance.
func (r *dumpReader) unpack(packed []byte, length int) []byte {
	if r.Failed() {
		return nil
	}
	in := wire.NewCursor(packed)
	out := make([]byte, 0, length)
	for in.Len() > 0 {
		control := uint64(in.Byte())
		if control < 32 {
			out = append(out, in.Take(control+1)...)
			continue
		}
		n := int(control>>5) + 2
		if n == 9 {
			n += int(in.Byte())
		}
		from := len(out) - 1 - int(control&31)<<8 - int(in.Byte())
		if from < 0 || len(out)+n > length {
			in.Fail()
			break
		}
		for range n {
			out = append(out, out[from])
			from++
		}
	}
	if in.Failed() || len(out) != length {
		r.Fail()
	}
	return out
}
