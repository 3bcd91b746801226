package keyspace

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/coordd/coordd/internal/tests/detector"
)

// TestSetLastKeepsNodesInOrder: a last id below that of a deleted entry leaves nodes in order, and
// what was a record that nobody could read is one.
func TestSetLastKeepsNodesInOrder(t *testing.T) {
	small := [][]byte{[]byte("a"), []byte("1")}
	large := [][]byte{[]byte("a"), bytes.Repeat([]byte("v"), nodeBytes)}
	s := NewStream()
	s.Add(StreamID{1, 1}, small)
	s.Add(StreamID{5, 5}, small)
	s.Delete(StreamID{5, 5})
	s.SetLast(StreamID{1, 1})
	checkRecord(t, s)
	// As on Redis, ~ goes by the id of the deleted entry.
	if n, _ := s.Trim(StreamTrim{MinID: StreamID{4, 0}, Approx: true}); n != 0 {
		t.Errorf("%d entries removed", n)
	}
	s.Add(StreamID{2, 1}, large)
	s.Add(StreamID{3, 1}, small)
	s.Add(StreamID{9, 1}, small)
	s.Delete(StreamID{9, 1})
	s.SetLast(StreamID{4, 1})
	s.Add(StreamID{5, 1}, large)
	if checkRecord(t, s); s.loose || !s.tight() {
		t.Error("the nodes are not in order")
	}
	s.Delete(StreamID{5, 1})
	s.Trim(StreamTrim{MinID: StreamID{4, 0}}) // the node of 9-1 stays, with nothing in it
	s.SetLast(StreamID{0, 1})
	if checkRecord(t, s); s.Nodes() != 0 {
		t.Errorf("%d nodes after the last id fell below all of them", s.Nodes())
	}
}

// looseSteps makes random calls with few ids, as a machine below commands.LevelSecond does them.
type looseSteps struct {
	*rand.Rand
	ks *Keyspace
}

func (g *looseSteps) step(s *Stream) {
	switch g.IntN(6) {
	case 0, 1:
		value := bytes.Repeat([]byte("v"), 1+g.IntN(2)*nodeBytes/3)
		s.Add(StreamID{s.last.Ms + uint64(g.IntN(2)), s.last.Seq + 1}, [][]byte{[]byte("a"), value})
	case 2, 3:
		if top, ok := s.Top(); ok {
			s.Delete(StreamID{top.ID.Ms - min(top.ID.Ms, uint64(g.IntN(3))), top.ID.Seq -
				min(top.ID.Seq, uint64(g.IntN(4)))})
		}
	case 4:
		trim := StreamTrim{ByLength: g.IntN(2) == 0, MaxLen: g.Int64N(8),
			MinID: StreamID{g.Uint64N(s.last.Ms + 2), g.Uint64N(s.last.Seq + 2)}}
		if trim.Approx = g.IntN(2) == 0; g.IntN(3) == 0 {
			trim.MinID = s.last // of a deleted entry, maybe: its node stays
		}
		s.Trim(trim)
	case 5:
		top, _ := s.Top()
		if low := top.ID; low.Less(s.last) && s.last.Ms == low.Ms {
			low.Seq += g.Uint64N(s.last.Seq - low.Seq)
			g.ks.SetLastLoosely(s, low)
		} else if low.Less(s.last) {
			g.ks.SetLastLoosely(s, low)
		}
	}
}

// firstRecord is the record of a stream as release 0.1 wrote it.
func firstRecord(s *Stream) []byte {
	dst := s.last.appendTo(nil)
	dst = s.tombstone.appendTo(dst)
	dst = binary.AppendUvarint(dst, s.added)
	dst = s.appendNodes(dst)
	return binary.AppendUvarint(dst, 0)
}

// manyNodes is the record of a stream of n nodes without entries.
func manyNodes(n int) []byte {
	last := StreamID{Ms: uint64(n + 1)}
	record := binary.AppendUvarint(StreamID{}.appendTo(last.appendTo(nil)), 0)
	record = binary.AppendUvarint(record, uint64(n))
	for i := range n {
		id := StreamID{Ms: uint64(i + 1)}
		record = append(id.appendTo(id.appendTo(record)), 0, 0, 0, 0)
	}
	return append(record, 0)
}

// A record with as many nodes as bytes for them takes memory in proportion, and no stack. One that
// cannot be of release 0.1 is not searched for overlapping nodes.
func TestRecordOfManyNodes(t *testing.T) {
	detector.Skip(t)
	const nodes = 1_000_000
	record := manyNodes(nodes)
	r := newReader(record, New(), false)
	if s := readStream(r); !r.Done() || s.Len() != 0 {
		t.Errorf("%d bytes of %d are left", r.Len(), len(record))
	}
	r = newReader(record, New(), true)
	if readStream(r); r.Done() {
		t.Error("a record with marks passes for one of 0.1")
	}
}

// TestLooseStreams: a loose stream and what is read from its record stay equal, whatever is done to
// them, and the same holds for the record that release 0.1 wrote, if that had all.
func TestLooseStreams(t *testing.T) {
	g := looseSteps{dbRand(t), New()}
	loose, lacking := 0, 0
	for range 300 {
		s := NewStream()
		for range 60 {
			g.step(s)
			checkRecord(t, s)
			if !s.loose {
				continue
			}
			record := firstRecord(s)
			r := newReader(record, nil, false)
			first := readStream(r)
			if !r.Done() {
				t.Fatalf("the record of 0.1 is refused: %+v, %+v", s.nodes.Items(),
					s.entries.Items())
			}
			if first.Len() != s.Len() || s.surplus() != 0 {
				lacking++
				continue
			}
			if first.Sum() != s.Sum() || len(s.nodes.Items())+len(first.nodes.Items()) > 0 &&
				!reflect.DeepEqual(first.nodes.Items(), s.nodes.Items()) {
				t.Fatalf("the record of 0.1 gives %+v instead of %+v", first.nodes.Items(),
					s.nodes.Items())
			}
			if !s.tight() {
				loose++
			}
			if countsRight(t, first); g.IntN(3) == 0 {
				s = first
			}
		}
		entries := s.entries.Items()
		s.mend()
		if checkRecord(t, s); s.loose || !s.tight() || !reflect.DeepEqual(entries,
			s.entries.Items()) {
			t.Fatal("a mended stream is not what it was, in order")
		}
	}
	t.Logf("%d loose records, of %d the old one lacked something", loose, lacking)
	if loose == 0 || lacking == 0 {
		t.Error("nothing to compare")
	}
}
