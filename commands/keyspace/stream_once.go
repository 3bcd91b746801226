// What producers have added to a stream lately, by ids of their own: an entry that is sent again is
// not added again.

package keyspace

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/internal/wire"
	"github.com/tidwall/btree"
)

// Defaults of OnceConfig.
const (
	defaultOnceS    = 100
	defaultOnceMost = 100
)

// sentOnceSweep is how many ids that are too old an addition forgets, so that there are never many
// more than are wanted.
const sentOnceSweep = 2

// The most that OnceConfig may say.
const (
	MaxOnceS    = 86_400
	MaxOnceMost = 10_000
)

// OnceConfig says how long a stream remembers the ids of producers, and how many of each.
type OnceConfig struct{ DurationS, Most int64 }

// OnceCounts counts what a stream remembers, and what was ever added so, or not for a second time.
type OnceCounts struct {
	Producers, IDs    int
	Added, Duplicates uint64
}

// once is what a stream remembers of its producers.
type once struct {
	config            OnceConfig
	added, duplicates uint64
	nextTurn          uint64
	sum               uint64
	bytes             int // its part in what the stream counts

	byName     *btree.BTreeG[*sentOnce] // by producer and id
	byTurn     *btree.BTreeG[*sentOnce]
	byProducer *btree.BTreeG[*sentOnce] // by producer and turn
	producers  *btree.BTreeG[onceProducer]
}

type onceProducer struct {
	name string
	ids  int
}

// sentOnce is an id of a producer, and the entry that was added with it. It does not change.
type sentOnce struct {
	producer, id string
	entry        StreamID
	atMs         int64 // when, ms of the cluster clock
	turn         uint64
}

func onceByName(a, b *sentOnce) bool {
	if a.producer != b.producer {
		return a.producer < b.producer
	}
	return a.id < b.id
}

func onceByTurn(a, b *sentOnce) bool { return a.turn < b.turn }

func onceByProducer(a, b *sentOnce) bool {
	if a.producer != b.producer {
		return a.producer < b.producer
	}
	return a.turn < b.turn
}

func onceProducerLess(a, b onceProducer) bool { return a.name < b.name }

func (o *once) empty() {
	o.byName, o.byTurn, o.byProducer = newTree(onceByName), newTree(onceByTurn),
		newTree(onceByProducer)
	o.producers = newTree(onceProducerLess)
	o.sum, o.bytes = 0, 0
}

// clone returns a copy in constant time.
func (o *once) clone() *once {
	if o == nil {
		return nil
	}
	c := *o
	c.byName, c.byTurn, c.byProducer = o.byName.IsoCopy(), o.byTurn.IsoCopy(),
		o.byProducer.IsoCopy()
	c.producers = o.producers.IsoCopy()
	return &c
}

// mixed returns a hash over all that is remembered; 0 for nil.
func (o *once) mixed() uint64 {
	if o == nil {
		return 0
	}
	b := binary.AppendVarint(nil, o.config.DurationS)
	b = binary.AppendVarint(b, o.config.Most)
	b = binary.AppendUvarint(binary.AppendUvarint(b, o.added), o.duplicates)
	return pairSum(o.sum, xxhash.Sum64(b))
}

func (e *sentOnce) hash() uint64 {
	b := e.entry.appendTo(binary.AppendVarint(nil, e.atMs))
	return pairSum(xxhash.Sum64String(e.producer), xxhash.Sum64(append(b, e.id...)))
}

func (e *sentOnce) size() int {
	return onceCost + textBytes(len(e.producer)) + textBytes(len(e.id))
}

// remember returns what the stream remembers, for a change.
func (s *Stream) remember() *once {
	if s.once == nil {
		s.once = &once{config: OnceConfig{DurationS: defaultOnceS, Most: defaultOnceMost}}
		s.once.empty()
	}
	return s.once
}

// Once returns how the stream remembers its producers, and what. ok is false if it never had to.
func (s *Stream) Once() (config OnceConfig, counts OnceCounts, ok bool) {
	o := s.once
	if o == nil {
		return config, counts, false
	}
	return o.config, OnceCounts{o.producers.Len(), o.byName.Len(), o.added, o.duplicates}, true
}

// ConfigureOnce changes what is not 0 in config. If that is a change, all ids are forgotten.
func (s *Stream) ConfigureOnce(config OnceConfig) {
	o := s.remember()
	if config.DurationS == 0 {
		config.DurationS = o.config.DurationS
	}
	if config.Most == 0 {
		config.Most = o.config.Most
	}
	if config != o.config {
		s.bytes -= o.bytes
		o.empty()
		o.config = config
	}
}

// FindOnce returns the entry that a producer added with an id of its own, if that is remembered.
func (s *Stream) FindOnce(producer, id []byte, nowMs int64) (entry StreamID, ok bool) {
	if s.once == nil {
		return entry, false
	}
	e, ok := s.once.byName.Get(&sentOnce{producer: view(producer), id: view(id)})
	if !ok || s.once.old(e, nowMs) {
		return entry, false
	}
	return e.entry, true
}

func (o *once) old(e *sentOnce, nowMs int64) bool { return e.atMs <= nowMs-1000*o.config.DurationS }

// CountDuplicate counts an entry that was not added for a second time.
func (s *Stream) CountDuplicate() { s.remember().duplicates++ }

// AddOnce remembers that a producer added an entry with an id of its own, which FindOnce does not
// find. It forgets the producer's oldest one if there are too many, and some that are too old.
func (s *Stream) AddOnce(producer, id []byte, entry StreamID, nowMs int64) {
	o := s.remember()
	o.added++
	e := &sentOnce{producer: string(producer), id: string(id), entry: entry, atMs: nowMs}
	if before, ok := o.byName.Get(e); ok { // too old
		s.forgetOnce(before)
	}
	for range sentOnceSweep {
		if first, ok := o.byTurn.Min(); ok && o.old(first, nowMs) {
			s.forgetOnce(first)
		}
	}
	s.putOnce(e)
	if p, _ := o.producers.Get(onceProducer{name: e.producer}); int64(p.ids) > o.config.Most {
		o.byProducer.Ascend(&sentOnce{producer: e.producer}, func(first *sentOnce) bool {
			e = first
			return false
		})
		s.forgetOnce(e)
	}
}

// putOnce adds an id, the newest.
func (s *Stream) putOnce(e *sentOnce) {
	o := s.once
	p, known := o.producers.Get(onceProducer{name: e.producer})
	if known {
		e.producer = p.name // share one copy
	} else {
		p.name = e.producer
	}
	p.ids++
	o.producers.Set(p)
	e.turn = o.nextTurn
	o.nextTurn++
	o.byName.Set(e)
	o.byTurn.Set(e)
	o.byProducer.Set(e)
	o.sum ^= e.hash()
	o.bytes += e.size()
	s.bytes += e.size()
}

func (s *Stream) forgetOnce(e *sentOnce) {
	o := s.once
	o.byName.Delete(e)
	o.byTurn.Delete(e)
	o.byProducer.Delete(e)
	p, _ := o.producers.Get(onceProducer{name: e.producer})
	if p.ids--; p.ids == 0 {
		o.producers.Delete(p)
	} else {
		o.producers.Set(p)
	}
	o.sum ^= e.hash()
	o.bytes -= e.size()
	s.bytes -= e.size()
}

// appendTo appends the part of the record, in order of age. There is none for nil.
func (o *once) appendTo(dst []byte) []byte {
	if o == nil {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(o.config.DurationS))
	dst = binary.AppendUvarint(dst, uint64(o.config.Most))
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, o.added), o.duplicates)
	dst = binary.AppendUvarint(dst, uint64(o.byTurn.Len()))
	o.byTurn.Scan(func(e *sentOnce) bool {
		dst = wire.AppendBytes(wire.AppendBytes(dst, e.producer), e.id)
		dst = binary.AppendVarint(e.entry.appendTo(dst), e.atMs)
		return true
	})
	return dst
}

// readOnce reads what appendTo wrote.
func (s *Stream) readOnce(r *reader) {
	o := s.remember()
	o.config = OnceConfig{DurationS: int64(r.Uvarint()), Most: int64(r.Uvarint())}
	o.added, o.duplicates = r.Uvarint(), r.Uvarint()
	if o.config.DurationS < 1 || o.config.DurationS > MaxOnceS || o.config.Most < 1 ||
		o.config.Most > MaxOnceMost {
		r.Fail()
	}
	for range r.Count(5) {
		e := &sentOnce{producer: string(r.Bytes()), id: string(r.Bytes()), entry: readStreamID(r),
			atMs: r.Varint()}
		if _, twice := o.byName.Get(e); twice {
			r.Fail()
			return
		}
		s.putOnce(e)
	}
}
