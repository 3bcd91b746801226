// Ids of stream entries.

package keyspace

import (
	"encoding/binary"
	"math"
	"strconv"
)

// StreamID is the id of a stream entry: a time, and a number that distinguishes entries of the same
// time. Ids in a stream rise.
type StreamID struct{ Ms, Seq uint64 }

// MaxStreamID is the highest possible id.
var MaxStreamID = StreamID{math.MaxUint64, math.MaxUint64}

// Less reports whether id comes before other.
func (id StreamID) Less(other StreamID) bool {
	if id.Ms != other.Ms {
		return id.Ms < other.Ms
	}
	return id.Seq < other.Seq
}

// IsZero reports whether id is 0-0, which no entry has.
func (id StreamID) IsZero() bool { return id == StreamID{} }

// Next returns the id right after id, false if there is none.
func (id StreamID) Next() (next StreamID, ok bool) {
	switch {
	case id.Seq < math.MaxUint64:
		return StreamID{id.Ms, id.Seq + 1}, true
	case id.Ms < math.MaxUint64:
		return StreamID{id.Ms + 1, 0}, true
	}
	return StreamID{}, false
}

// Prev returns the id right before id, false if there is none.
func (id StreamID) Prev() (prev StreamID, ok bool) {
	switch {
	case id.Seq > 0:
		return StreamID{id.Ms, id.Seq - 1}, true
	case id.Ms > 0:
		return StreamID{id.Ms - 1, math.MaxUint64}, true
	}
	return MaxStreamID, false
}

// String formats the id as commands do: 1526919030474-55.
func (id StreamID) String() string {
	var buf [41]byte
	dst := strconv.AppendUint(buf[:0], id.Ms, 10)
	dst = append(dst, '-')
	return string(strconv.AppendUint(dst, id.Seq, 10))
}

// bigEndian returns bytes that sort like ids.
func (id StreamID) bigEndian() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], id.Ms)
	binary.BigEndian.PutUint64(b[8:], id.Seq)
	return b
}

func (id StreamID) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, id.Ms)
	return binary.AppendUvarint(dst, id.Seq)
}

func readStreamID(r *reader) StreamID { return StreamID{r.Uvarint(), r.Uvarint()} }
