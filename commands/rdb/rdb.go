package rdb

import (
	"encoding/binary"
	"hash/crc64"
	"math"
	"strconv"

	"github.com/coordd/coordd/internal/wire"
)

const (
	footer     = 2 + 8  // bytes of version and checksum
	lengthWide = 1 << 7 // starts a length of 4 bytes; plus 1: of 8

	encoded    = 3 << 6 // starts a string in another form: plus
	encodedLZF = 3      // this, or 0 to 2 for an integer of 1, 2 or 4 bytes
)

// table is for the CRC-64 polynomial of Redis (W. Jones), bits reversed.
var table = crc64.MakeTable(0x95ac9329ac4bc9b5)

// sum returns the checksum of b. Unlike Go's, it does not invert at start and end.
func sum(b []byte) uint64 { return ^crc64.Update(^uint64(0), table, b) }

// Seal appends the footer: the version of the format and a checksum.
func Seal(b []byte, version uint16) []byte {
	b = binary.LittleEndian.AppendUint16(b, version)
	return binary.LittleEndian.AppendUint64(b, sum(b))
}

// Open returns what Seal was given. ok is false if the version is newer than newest, or the
// checksum wrong.
func Open(value []byte, newest uint16) (body []byte, ok bool) {
	n := len(value) - footer
	if n < 0 || binary.LittleEndian.Uint16(value[n:]) > newest ||
		binary.LittleEndian.Uint64(value[n+2:]) != sum(value[:n+2]) {
		return nil, false
	}
	return value[:n], true
}

// AppendLength appends a length or another number.
func AppendLength(b []byte, n uint64) []byte {
	switch {
	case n < 1<<6:
		return append(b, byte(n))
	case n < 1<<14:
		return append(b, 1<<6|byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, lengthWide), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, lengthWide+1), n)
}

// AppendText appends a string as it is.
func AppendText[S ~string | ~[]byte](b []byte, text S) []byte {
	return append(AppendLength(b, uint64(len(text))), text...)
}

// Reader reads what the functions above wrote, and what Redis writes.
type Reader struct {
	wire.Cursor
	// Room is how many bytes compressed strings may have in all.
	Room int
	// Unpacks, if set, is called before a string of so many bytes is decompressed.
	Unpacks func(bytes int)
}

// NewReader returns a Reader of the body of a value.
func NewReader(body []byte, room int) *Reader {
	return &Reader{Cursor: wire.NewCursor(body), Room: room}
}

// Length reads a length or another number.
func (r *Reader) Length() uint64 { return r.length(r.Byte()) }

// Items reads the number of items that follow, which have at least so many bytes each.
func (r *Reader) Items(bytes int) int {
	n := r.Length()
	if n > uint64(r.Len()/bytes) {
		r.Fail()
		return 0
	}
	return int(n)
}

// length reads a length whose first byte is first.
func (r *Reader) length(first byte) uint64 {
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

// bigEndian reads a number of n bytes.
func (r *Reader) bigEndian(n int) (v uint64) {
	for range n {
		v = v<<8 | uint64(r.Byte())
	}
	return v
}

// Text reads a string in any form.
func (r *Reader) Text() []byte {
	first := r.Byte()
	if first < encoded {
		return r.Take(r.length(first))
	}
	if first > encoded+encodedLZF {
		r.Fail()
	}
	if first != encoded+encodedLZF {
		n, _ := integer(r.Take(1 << (first & 3)))
		return strconv.AppendInt(nil, n, 10)
	}
	packed, length := r.Length(), r.Length()
	if r.Failed() || length > uint64(r.Room) {
		r.Fail()
		return nil
	}
	r.Room -= int(length)
	if r.Unpacks != nil {
		r.Unpacks(int(length))
	}
	return r.unpack(r.Take(packed), int(length))
}

// integer reads a little-endian number with a sign.
func integer(b []byte) (n int64, ok bool) {
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | int64(b[i])
	}
	shift := 64 - 8*len(b)
	return n << shift >> shift, len(b) > 0
}

// mostUnpacked is how many bytes one byte of LZF becomes at most: 3 make a copy of 264.
const mostUnpacked = 88

// unpack decompresses LZF. A byte below 32 is followed by that many literal bytes plus one. Any
// other byte is a copy of earlier output: its upper three bits plus 2 are the length (all set: add
// the next byte), its lower bits and the next byte the distance.
func (r *Reader) unpack(packed []byte, length int) []byte {
	if r.Failed() {
		return nil
	}
	in := wire.NewCursor(packed)
	out := make([]byte, 0, min(length, mostUnpacked*len(packed))) // the length is only claimed
	for in.Len() > 0 && len(out) <= length {
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

// Double reads a score in the form of 8 bytes.
func (r *Reader) Double() float64 { return math.Float64frombits(r.Uint64()) }

// OldDouble reads a score in the form of old versions: text after its length.
func (r *Reader) OldDouble() float64 {
	n := r.Byte()
	switch n {
	case 253:
		return math.NaN()
	case 254:
		return math.Inf(1)
	case 255:
		return math.Inf(-1)
	}
	f, err := strconv.ParseFloat(string(r.Take(uint64(n))), 64)
	if err != nil {
		r.Fail()
	}
	return f
}

// AppendInt appends a string that is a number, as such.
func AppendInt(b []byte, n int32) []byte {
	switch {
	case n == int32(int8(n)):
		return append(b, encoded, byte(n))
	case n == int32(int16(n)):
		return binary.LittleEndian.AppendUint16(append(b, encoded|1), uint16(n))
	}
	return binary.LittleEndian.AppendUint32(append(b, encoded|2), uint32(n))
}
