// The toy machine of the tests: a list of the batches that ran, in order.

package cluster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/internal/wire"
	"github.com/hashicorp/raft"
)

// toy is a Machine. A batch is text; its reply is "<position>:<batch>". A batch "ttl:<ms>" sets the
// deadline to the entry's stamp plus ms; the reply to "time" is the instant that it names. A batch
// "work:<units>:…" counts as so much work; an entry that has done quantum runs no further batch.
// Reads are answered with the list, its batches joined by spaces, or for "clock" with the clock,
// for "wall" with the distance of the time of day from it, for "seen" with the instant that the
// read names and the newest of the state.
type toy struct {
	id    uint64
	built atomic.Uint64
	asked atomic.Uint64 // calls of NextDeadline
	work  atomic.Uint64 // units: toyWork a batch
	cut   atomic.Uint64 // entries of which batches did not run
	// units of work of reads that count them
	readWork atomic.Uint64
	mine     sync.Map // sequence numbers of entries that this machine built and has not applied
	apply    gate     // locked: no entry is applied

	mu       sync.Mutex // the tests look in from outside
	List     []string
	ClockMs  int64
	Deadline int64
	Expired  []int64 // stamps at which the deadline was seen to be past
	Stamps   []int64
	Replays  []string // what Replaying was told, each with the length of the list then
	Decrease bool     // a stamp lower than the one before was applied
	LastUs   int64    // the newest instant
	At, Hash uint64   // what Sum returns
	stampUs  int64    // of the newest applied entry
	runs     int      // of "seen"

	persist func(io.Writer) error // what a snapshot writes first; may be nil
	check   func(io.Reader) error // reads a snapshot back; may be nil
}

var toyIDs atomic.Uint64

func newToy() *toy { return &toy{id: toyIDs.Add(1), apply: newGate()} }

const (
	toyHeader = 8 * 4
	toyWork   = 1000
)

func (t *toy) Worked() uint64 { return t.work.Load() }

func (t *toy) AppendEntry(dst []byte, clockMs, wallUs int64, batches [][]byte) []byte {
	seq := t.built.Add(1)
	t.mine.Store(seq, true)
	for _, v := range []uint64{t.id, seq, uint64(clockMs), uint64(wallUs)} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return wire.AppendList(dst, batches)
}

func (t *toy) EntryClock(data []byte) (clockMs, wallUs int64, ok bool) {
	if len(data) < toyHeader {
		return 0, 0, false
	}
	return int64(binary.LittleEndian.Uint64(data[16:])),
		int64(binary.LittleEndian.Uint64(data[24:])), true
}

func (t *toy) NewestUs() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.LastUs
}

func (t *toy) Apply(l *raft.Log) any {
	id, seq := binary.LittleEndian.Uint64(l.Data), binary.LittleEndian.Uint64(l.Data[8:])
	stampMs, wallUs, _ := t.EntryClock(l.Data)
	t.apply.Lock()
	defer t.apply.Unlock()
	c := wire.NewCursor(l.Data[toyHeader:])
	batches := c.List(maxEntryBatches)
	t.mu.Lock()
	defer t.mu.Unlock()
	if stampMs < t.ClockMs {
		t.Decrease = true
	}
	t.ClockMs = max(t.ClockMs, stampMs)
	t.At = l.Index
	t.stampUs, t.LastUs = wallUs, max(t.LastUs, wallUs-1)
	t.Stamps = append(t.Stamps, stampMs)
	if t.Deadline != 0 && t.ClockMs > t.Deadline {
		t.Deadline, t.Expired = 0, append(t.Expired, t.ClockMs)
	}
	out := &toyOutcome{replies: [][]byte{}}
	total := uint64(0)
	for _, g := range batches {
		if total >= fair.Quantum {
			t.cut.Add(1)
			break
		}
		work := workOf(g)
		total += work
		t.work.Add(toyWork)
		t.List = append(t.List, string(g))
		t.mix(string(g))
		var ttl int64
		if _, err := fmt.Sscanf(string(g), "ttl:%d", &ttl); err == nil {
			t.Deadline = t.ClockMs + ttl
		}
		out.replies, out.work = append(out.replies, fmt.Appendf(nil, "%d:%s", len(t.List), g)),
			append(out.work, work)
		if string(g) == "time" {
			t.LastUs++
			out.replies[len(out.replies)-1] = fmt.Append(nil, t.LastUs)
		}
	}
	if _, ok := t.mine.LoadAndDelete(seq); !ok || id != t.id {
		return [][]byte(nil)
	}
	return out
}

// toyOutcome is what Apply returns on the node that built the entry.
type toyOutcome struct {
	replies [][]byte
	work    []uint64
}

func (o *toyOutcome) Outcome() ([][]byte, []uint64) { return o.replies, o.work }

func workOf(batch []byte) (units uint64) {
	_, _ = fmt.Sscanf(string(batch), "work:%d:", &units)
	return units
}

func (t *toy) ReadWork(dst, requests []byte, clockMs, wallUs int64,
	next func(lastUs, stampUs int64) (us int64, ok bool), early bool) ([]byte, uint64) {
	t.readWork.Add(workOf(requests))
	return t.Read(dst, requests, clockMs, wallUs, next, early), workOf(requests)
}

func (t *toy) ReadWithin(dst, requests []byte, clockMs, wallUs int64,
	most uint64) ([]byte, uint64, bool) {
	if workOf(requests) > most {
		t.readWork.Add(most + 1)
		return nil, most + 1, false
	}
	reply, work := t.ReadWork(dst, requests, clockMs, wallUs, nil, false)
	return reply, work, true
}

// mix folds a batch into the hash. The caller holds mu.
func (t *toy) mix(batch string) {
	h := fnv.New64a()
	fmt.Fprint(h, t.Hash, batch)
	t.Hash = h.Sum64()
}

func (t *toy) Sum() (index, sum uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.At, t.Hash
}

// flip makes the state wrong, as a bit that flips in memory. what tells one flip from another.
func (t *toy) flip(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mix(what)
}

func (t *toy) Replaying(yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Replays = append(t.Replays, fmt.Sprint(yes, len(t.List)))
}

func (t *toy) Clock() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ClockMs
}

func (t *toy) NextDeadline() (int64, bool) {
	t.asked.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Deadline, t.Deadline != 0
}

func (t *toy) Read(dst, requests []byte, clockMs, wallUs int64,
	next func(lastUs, stampUs int64) (int64, bool), early bool) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch string(requests) {
	case "clock":
		return fmt.Append(dst, clockMs)
	case "wall":
		return fmt.Append(dst, wallUs/1000-clockMs)
	case "seen":
		us, ok := int64(0), true
		if early {
			us, ok = next(t.LastUs, t.stampUs)
		}
		if !ok {
			return dst
		}
		if t.runs++; !early {
			us, ok = next(t.LastUs, t.stampUs)
		}
		if !ok {
			return dst
		}
		return fmt.Append(dst, us, " ", t.LastUs)
	case "len":
		return fmt.Append(dst, len(t.List))
	case "all":
		return append(dst, strings.Join(t.List, " ")...)
	}
	n := 0
	for _, g := range t.List {
		if g == string(requests) {
			n++
		}
	}
	return fmt.Append(dst, n)
}

type toyState struct {
	List              []string
	ClockMs, Deadline int64
	LastUs            int64
	At, Hash          uint64
}

func (t *toy) Snapshot() (raft.FSMSnapshot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return toySnapshot{toyState{append([]string(nil), t.List...), t.ClockMs, t.Deadline, t.LastUs,
		t.At, t.Hash}, t.persist}, nil
}

func (t *toy) Restore(r io.ReadCloser) error {
	var s toyState
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.List, t.ClockMs, t.Deadline, t.LastUs, t.stampUs = s.List, s.ClockMs, s.Deadline, s.LastUs, 0
	t.At, t.Hash = s.At, s.Hash
	return nil
}

func (t *toy) CheckSnapshot(r io.Reader) error {
	t.mu.Lock()
	check, whole := t.check, t.persist == nil
	t.mu.Unlock()
	if check != nil {
		return check(r)
	}
	var err error
	if whole {
		err = json.NewDecoder(r).Decode(&toyState{})
	}
	_, err2 := io.Copy(io.Discard, r)
	return errors.Join(err, err2)
}

func (t *toy) batches() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.List...)
}

type toySnapshot struct {
	s     toyState
	first func(io.Writer) error
}

func (s toySnapshot) Persist(sink raft.SnapshotSink) error {
	if s.first != nil {
		if err := s.first(sink); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(sink).Encode(s.s); err != nil {
		return err
	}
	return sink.Close()
}

func (toySnapshot) Release() {}
