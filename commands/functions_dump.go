// The value of FUNCTION DUMP and FUNCTION RESTORE, in the format of Redis's RDB files, version 10,
// so that libraries move between coordd and Redis in both directions: for each library a byte that
// says so, its source as a string, and at the end the format's version (2 bytes, little-endian) and
// a CRC-64 of all that (8 bytes). Strings are written as they are, and read in all ways that Redis
// writes them: integers, and compressed ones (LibLZF's format), among them.

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
	dumpLibrary = 0xf5   // begins a library
	dumpRC      = 0xf6   // began one in the release candidates of Redis 7.0
	lengthWide  = 1 << 7 // begins a length of 4 bytes, with 1 added of 8
)

// Errors of FUNCTION RESTORE about its value.
const (
	errDump        Error = "ERR DUMP payload version or checksum are wrong"
	errDumpType    Error = "ERR given type is not a function"
	errDumpRC      Error = "ERR Pre-GA function format not supported"
	errDumpLibrary Error = "ERR Failed loading library payload"
)

// dumpTable is for the polynomial that Redis uses (W. Jones), bits reversed.
var dumpTable = crc64.MakeTable(0x95ac9329ac4bc9b5)

// dumpSum is the checksum of b, which unlike Go's begins and ends without inverting.
func dumpSum(b []byte) uint64 { return ^crc64.Update(^uint64(0), dumpTable, b) }

// dumpLibraries is the value of FUNCTION DUMP.
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

// dumpedSources gives the sources in a value of FUNCTION DUMP, and last an error where what follows
// is none. It fails at once where version or checksum are wrong.
func dumpedSources(value []byte) (iter.Seq2[[]byte, error], error) {
	body := len(value) - dumpFooter
	if body < 0 || binary.LittleEndian.Uint16(value[body:]) > dumpVersion ||
		binary.LittleEndian.Uint64(value[body+2:]) != dumpSum(value[:body+2]) {
		return nil, errDump
	}
	return func(yield func([]byte, error) bool) {
		r := dumpReader{wire.NewCursor(value)} // as Redis does: what is cut goes on in the footer
		for r.Len() > dumpFooter {
			source, err := r.library()
			if !yield(source, err) || err != nil {
				return
			}
		}
	}, nil
}

// dumpReader reads the value of FUNCTION DUMP.
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

// text reads a string. One that was written as an integer is no library's source, whichever integer
// it is: it is read as empty.
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

// length reads a length that begins with the byte first.
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

// unpack undoes LZF's compression: a byte below 32 is followed by that many bytes and one more; any
// other one repeats what came before, its upper three bits with 2 added are how many bytes (all
// set: the next byte is added), its lower ones and the next byte how far back.
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
