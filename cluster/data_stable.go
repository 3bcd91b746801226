// What a node has promised, and who it is: Raft's term and vote, the directory's incarnation, and
// what else it keeps beside the log. All of it is one record with a checksum, so that it is written
// at once, and no changed byte is taken for a promise.

package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/wire"
)

// Where hashicorp/raft keeps a node's term, and its newest vote.
var (
	currentTermKey  = []byte("CurrentTerm")
	lastVoteTermKey = []byte("LastVoteTerm")
	lastVoteCandKey = []byte("LastVoteCand")
)

// promisesName is the file of the record. Releases before markedLevel keep each value under its own
// key in a file of bbolt, and so does this one too until none of them can open the directory.
const (
	promisesName = "promises"
	promisesSlot = 64 << 10
	promisesForm = 1
)

var stableKeys = [][]byte{currentTermKey, lastVoteTermKey, lastVoteCandKey, incarnationKey,
	foundingKey, removedKey, owedKey, owedTermKey, clusterKey, refetchKey}

// stableStore is that record. Raft panics if it cannot write the term, and a node that cannot write
// either must not take part in an election: the process ends, with a reason.
type stableStore struct {
	level   func() uint64    // the data directory's feature level
	earlier raft.StableStore // what earlier releases read; nil: they never did
	fatal   func(error)
	trace   trace.To

	took atomic.Int64 // ns of the newest write

	mu     lockorder.Mutex
	slots  *disk.Slots
	values map[string][]byte
	voting []byte // the term of a vote whose candidate Raft has not named yet
}

// openStable opens the record in a directory.
func openStable(files disk.Files, dir string, earlier raft.StableStore,
	level func() uint64) (*stableStore, error) {
	s := &stableStore{level: level, earlier: earlier, fatal: func(error) {},
		values: map[string][]byte{}}
	slots, content, err := disk.OpenSlots(files, dir, promisesName, promisesSlot)
	if err != nil && !missing(err) {
		return nil, err
	}
	s.slots = slots
	if level() >= markedLevel || earlier == nil && content != nil {
		if s.values, err = valuesOf(content, err); err != nil {
			return nil, errors.Join(disk.Damagedf(filepath.Join(dir, promisesName), "%v", err),
				slots.Close())
		}
		return s, nil
	}
	for _, key := range stableKeys {
		if earlier == nil {
			break
		}
		value, err := lookUp(earlier, key)
		if err != nil {
			return nil, errors.Join(err, slots.Close())
		}
		if value != nil {
			s.values[string(key)] = value
		}
	}
	switch now := s.encode(); {
	case bytes.Equal(now, content):
		return s, nil
	case s.slots == nil:
		s.slots, err = disk.MakeSlots(files, dir, promisesName, promisesSlot, now)
	default:
		err = s.slots.Commit(now)
	}
	if err != nil {
		return nil, errors.Join(err, slots.Close())
	}
	return s, nil
}

// checkPromises reports why a node would not start with the record in a directory of a level. It
// writes nothing, and a node may run there.
func checkPromises(dir string, level uint64) error {
	content, err := disk.ReadSlots(disk.NewSystem(), dir, promisesName, promisesSlot)
	switch {
	case level < markedLevel && (missing(err) || err == nil && content == nil):
		return nil
	case err != nil && !missing(err):
		return err
	}
	values, err := valuesOf(content, err)
	if err != nil {
		return disk.Damagedf(filepath.Join(dir, promisesName), "%v", err)
	}
	return (&stableStore{values: values}).checkRefetched(dir)
}

// valuesOf decodes the record, which must be there, after it was read.
func valuesOf(content []byte, err error) (map[string][]byte, error) {
	switch {
	case missing(err):
		return nil, errors.New("the file is missing")
	case err != nil:
		return nil, err
	case content == nil:
		return nil, errors.New("it says nothing that can be read")
	}
	return decodeRecord(content)
}

// renew writes the record again, see slotFile.
func (s *stableStore) renew() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.Renew()
}

// Close closes the file.
func (s *stableStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.Close()
}

// lookUp returns a value of Raft's stores, nil if there is none: they have no error value for it.
func lookUp(s raft.StableStore, key []byte) ([]byte, error) {
	b, err := s.Get(key)
	if err != nil && err.Error() == raftboltdb.ErrKeyNotFound.Error() {
		return nil, nil
	}
	return b, err
}

func (s *stableStore) encode() []byte {
	b := binary.AppendUvarint(nil, promisesForm)
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		b = wire.AppendBytes(wire.AppendBytes(b, key), s.values[key])
	}
	return b
}

func decodeRecord(b []byte) (map[string][]byte, error) {
	c := wire.NewCursor(b)
	if form := c.Uvarint(); form != promisesForm {
		return nil, fmt.Errorf("it has form %d", form)
	}
	values := map[string][]byte{}
	for c.Len() > 0 && !c.Failed() {
		key := c.Text()
		values[key] = bytes.Clone(c.Bytes())
	}
	if c.Failed() {
		return nil, errors.New("it is cut off")
	}
	return values, nil
}

// Get answers like raft-boltdb, whose error Raft knows by its text.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.values[string(key)]; ok {
		return v, nil
	}
	return nil, raftboltdb.ErrKeyNotFound
}

func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%s has %d bytes", key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// number returns the number of a key, 0 if there is none.
func (s *stableStore) number(key []byte) uint64 {
	n, err := s.GetUint64(key)
	if err != nil {
		return 0
	}
	return n
}

// text returns the value of a key, empty if there is none.
func (s *stableStore) text(key []byte) string {
	b, err := s.Get(key)
	if err != nil {
		return ""
	}
	return string(b)
}

// Set writes a value. With the candidate of a vote it writes the term that came before it: after a
// crash in between, the node would have voted in that term for whom it voted for before.
func (s *stableStore) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(key, lastVoteCandKey) && s.voting != nil {
		voting := s.voting
		s.voting = nil
		return s.writeLocked(change{lastVoteTermKey, voting}, change{key, value})
	}
	return s.writeLocked(change{key, value})
}

// SetUint64 writes a number. A term never falls: whoever says so would vote in it again.
func (s *stableStore) SetUint64(key []byte, value uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := binary.BigEndian.AppendUint64(nil, value)
	switch {
	case bytes.Equal(key, currentTermKey), bytes.Equal(key, lastVoteTermKey):
		if was, ok := s.values[string(key)]; ok && bytes.Compare(now, was) < 0 {
			err := fmt.Errorf("Raft's term would fall from %d to %d", binary.BigEndian.Uint64(was),
				value)
			s.fatal(err)
			return err
		}
	}
	if bytes.Equal(key, lastVoteTermKey) {
		s.voting = now
		return nil
	}
	return s.writeLocked(change{key, now})
}

// setAll writes several values at once.
func (s *stableStore) setAll(changes ...change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(changes...)
}

// resetTerm undoes the first term.
func (s *stableStore) resetTerm() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(change{currentTermKey, make([]byte, 8)})
}

// change is a new value of a key.
type change struct{ key, value []byte }

func numberChange(key []byte, value uint64) change {
	return change{key, binary.BigEndian.AppendUint64(nil, value)}
}

func (s *stableStore) writeLocked(changes ...change) error {
	before := maps.Clone(s.values)
	var err error
	for _, c := range changes {
		s.values[string(c.key)] = bytes.Clone(c.value)
		if err == nil && s.earlier != nil && s.level() < markedLevel {
			err = s.earlier.Set(c.key, c.value)
		}
	}
	if err == nil {
		began := time.Now()
		err = s.slots.Commit(s.encode())
		s.took.Store(int64(time.Since(began)))
	}
	if err != nil {
		s.values = before
		err = fmt.Errorf("cannot write Raft's term or vote: %w", err)
		s.fatal(err)
	} else if trace.On {
		s.record(changes)
	}
	return err
}

// record records what changes have written of the term and the vote.
func (s *stableStore) record(changes []change) {
	for _, c := range changes {
		switch {
		case bytes.Equal(c.key, currentTermKey):
			s.trace.Record(trace.Event{Kind: trace.Enters, Term: binary.BigEndian.Uint64(c.value)})
		case bytes.Equal(c.key, lastVoteCandKey):
			s.trace.Record(trace.Event{Kind: trace.Votes,
				Term: binary.BigEndian.Uint64(s.values[string(lastVoteTermKey)])})
		}
	}
}
