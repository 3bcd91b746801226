// The value of FUNCTION DUMP and FUNCTION RESTORE, in the format of Redis's RDB files, version 10, so that libraries move between coordd and Redis
// in both directions: for each library a byte that says so, its source as a string, and at the end the format's version (2 bytes,
// little-endian) and a CRC-64 of all that (8 bytes). Strings are written as they are, and read in all ways that Redis writes
// them: integers, and compressed ones (LibLZF's format), among them.

package commands

import (
	"encoding/binary"
	"hash/crc64"
	"iter"
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

// dumpedSources gives the sources in a value of FUNCTION DUMP, and last an error where what follows is none. It fails at once where version
// or checksum are wrong.
func dumpedSources(value []byte) (iter.Seq2[[]byte, error], error) {
	body := len(value) - dumpFooter
	if body < 0 || binary.LittleEndian.Uint16(value[body:]) > dumpVersion || binary.LittleEndian.Uint64(value[body+2:]) != dumpSum(value[:body+2]) {
		return nil, errDump
	}
	return func(yield func([]byte, error) bool) {
		r := dumpReader{b: value} // as Redis does: what is cut goes on in the footer
		for len(r.b) > dumpFooter {
			source, err := r.library()
			if !yield(source, err) || err != nil {
				return
			}
		}
	}, nil
}

// dumpReader takes a value apart. After the first thing that is not there, or not as it has to be, it is bad.
type dumpReader struct {
	b   []byte
	bad bool
}

func (r *dumpReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return make([]byte, min(n, 8)) // for the numbers
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *dumpReader) library() (source []byte, err error) {
	switch r.take(1)[0] {
	case dumpLibrary:
	case dumpRC:
		return nil, errDumpRC
	default:
		return nil, errDumpType
	}
	if source = r.text(); r.bad {
		return nil, errDumpLibrary
	}
	return source, nil
}

// text reads a string. One that was written as an integer is no library's source, whichever integer it is: it is read as empty.
func (r *dumpReader) text() []byte {
	const encoded = 3 << 6
	first := r.take(1)[0]
	switch first {
	case encoded, encoded | 1, encoded | 2:
		r.take(1 << (first & 3))
		return nil
	case encoded | 3:
		packed, length := r.length(r.take(1)[0]), uint64(0)
		if !r.bad {
			length = r.length(r.take(1)[0])
		}
		if length > MaxScriptBytes {
			r.bad = true
		}
		return r.unpack(r.take(packed), int(length))
	}
	return r.take(r.length(first))
}

// length reads a length that begins with the byte first.
func (r *dumpReader) length(first byte) uint64 {
	switch {
	case first < 1<<6:
		return uint64(first)
	case first < 1<<7:
		return uint64(first&(1<<6-1))<<8 | uint64(r.take(1)[0])
	case first == lengthWide:
		return uint64(binary.BigEndian.Uint32(r.take(4)))
	case first == lengthWide+1:
		return binary.BigEndian.Uint64(r.take(8))
	}
	r.bad = true
	return 0
}

// unpack undoes LZF's compression: a byte below 32 is followed by that many bytes and one more; any other one repeats what came before, its upper
// three bits with 2 added are how many bytes (all set: the next byte is added), its lower ones and the next byte how far back.
func (r *dumpReader) unpack(packed []byte, length int) []byte {
	if r.bad {
		return nil
	}
	in := dumpReader{b: packed}
	out := make([]byte, 0, length)
	for len(in.b) > 0 && !in.bad {
		control := uint64(in.take(1)[0])
		if control < 32 {
			out = append(out, in.take(control+1)...)
			continue
		}
		n := int(control>>5) + 2
		if n == 9 {
			n += int(in.take(1)[0])
		}
		from := len(out) - 1 - int(control&31)<<8 - int(in.take(1)[0])
		if from < 0 || len(out)+n > length {
			in.bad = true
			break
		}
		for range n {
			out = append(out, out[from])
			from++
		}
	}
	r.bad = in.bad || len(out) != length
	return out
}
