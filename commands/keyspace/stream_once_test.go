package keyspace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// sentModel is what a stream must remember: ids in order of age.
type sentModel struct {
	config OnceConfig
	sent   []sentOnce
}

func (m *sentModel) find(producer, id string, nowMs int64) int {
	return slices.IndexFunc(m.sent, func(e sentOnce) bool {
		return e.producer == producer && e.id == id && e.atMs > nowMs-1000*m.config.DurationS
	})
}

// What a stream remembers of producers is what a list remembers, over restores and copies.
func TestOnceAgainstModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		s := NewStream()
		model := sentModel{config: OnceConfig{100, 100}}
		nowMs, last := int64(1000), StreamID{}
		for range 300 {
			nowMs += int64(rnd.IntN(400))
			producer, id := fmt.Sprint("p", rnd.IntN(3)), fmt.Sprint(rnd.IntN(20))
			at := model.find(producer, id, nowMs)
			got, known := s.FindOnce([]byte(producer), []byte(id), nowMs)
			switch {
			case known != (at >= 0) || known && got != model.sent[at].entry:
				t.Fatalf("%s %s: %v, %v, want %d of %v", producer, id, got, known, at, model.sent)
			case !known:
				last, _ = last.Next()
				s.Add(last, [][]byte{[]byte("f"), []byte("v")})
				s.AddOnce([]byte(producer), []byte(id), last, nowMs)
				model.add(producer, id, last, nowMs)
			default:
				s.CountDuplicate()
			}
			switch rnd.IntN(40) {
			case 0:
				model.config = OnceConfig{int64(1 + rnd.IntN(3)), int64(1 + rnd.IntN(9))}
				if old, _, ok := s.Once(); !ok || old != model.config {
					model.sent = nil
				}
				s.ConfigureOnce(model.config)
			case 1:
				before := s.Sum()
				c := s.Clone().(*Stream)
				c.AddOnce([]byte("p0"), []byte("of the copy"), last, nowMs)
				c.CountDuplicate()
				if s.Sum() != before || c.Sum() == before {
					t.Fatal("a copy is not one of its own")
				}
			case 2:
				s = reloaded(t, s)
			}
		}
	}
}

func (m *sentModel) add(producer, id string, entry StreamID, nowMs int64) {
	m.sent = slices.DeleteFunc(m.sent, func(e sentOnce) bool {
		return e.producer == producer && e.id == id
	})
	m.sent = append(m.sent, sentOnce{producer: producer, id: id, entry: entry, atMs: nowMs})
	ids := 0
	for _, e := range m.sent {
		if e.producer == producer && e.atMs > nowMs-1000*m.config.DurationS {
			ids++
		}
	}
	if int64(ids) > m.config.Most {
		m.sent = slices.Delete(m.sent, m.first(producer, nowMs), m.first(producer, nowMs)+1)
	}
}

func (m *sentModel) first(producer string, nowMs int64) int {
	return slices.IndexFunc(m.sent, func(e sentOnce) bool {
		return e.producer == producer && e.atMs > nowMs-1000*m.config.DurationS
	})
}

// reloaded returns a stream as its record says it, which must be the same.
func reloaded(t *testing.T, s *Stream) *Stream {
	t.Helper()
	r := newReader(s.appendTo(nil), nil, true)
	c := readStream(r)
	if !r.Done() {
		t.Fatal("the record cannot be read")
	}
	if c.Sum() != s.Sum() || c.bytes != s.bytes ||
		string(c.appendTo(nil)) != string(s.appendTo(nil)) {
		t.Fatalf("restored: sum %x, %d bytes; before: %x, %d", c.Sum(), c.bytes, s.Sum(), s.bytes)
	}
	return c
}

// Ids that are too old do not gather, whoever comes after them, and what is forgotten counts for
// nothing.
func TestOnceForgets(t *testing.T) {
	s := NewStream()
	empty := s.bytes
	s.ConfigureOnce(OnceConfig{DurationS: 1})
	for i := range 1000 {
		s.AddOnce(fmt.Append(nil, "producer", i), []byte("1"), StreamID{1, 1}, int64(i))
	}
	if _, counts, _ := s.Once(); counts.Producers != 1000 || counts.IDs != 1000 {
		t.Errorf("%+v", counts)
	}
	for i := range 1000 {
		s.AddOnce([]byte("other"), fmt.Append(nil, i), StreamID{1, 1}, 10_000+int64(i))
	}
	if _, counts, _ := s.Once(); counts.Producers != 1 || counts.IDs != 100 {
		t.Errorf("%+v", counts)
	}
	s.ConfigureOnce(OnceConfig{DurationS: 2})
	if _, counts, _ := s.Once(); counts.IDs != 0 || s.bytes != empty || counts.Added != 2000 {
		t.Errorf("%+v, %d bytes, %d before", counts, s.bytes, empty)
	}
}

// A record that lies about what is remembered is refused.
func TestOnceRecordsAreChecked(t *testing.T) {
	good := NewStream()
	good.AddOnce([]byte("p"), []byte("i"), StreamID{1, 1}, 5)
	for name, spoil := range map[string]func(s *Stream){
		"duration": func(s *Stream) { s.once.config.DurationS = MaxOnceS + 1 },
		"no size":  func(s *Stream) { s.once.config.Most = 0 },
		"twice": func(s *Stream) {
			s.once.byTurn.Set(&sentOnce{producer: "p", id: "i", turn: 9})
		},
	} {
		s := good.Clone().(*Stream)
		spoil(s)
		if r := newReader(s.appendTo(nil), nil, true); !readFails(r) {
			t.Errorf("%s: accepted", name)
		}
	}
	if r := newReader(append(good.appendTo(nil), 0), nil, true); !readFails(r) {
		t.Error("more behind it: accepted")
	}
}

func readFails(r *reader) bool {
	readStream(r)
	return r.Failed() || !r.Done()
}
