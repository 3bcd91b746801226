// Backups: a check of a snapshot file without loading it, and where the revisions of a restored or
// recovered state go on.

package fsm

import (
	"fmt"
	"io"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// BackupInfo describes a snapshot file.
type BackupInfo struct {
	Index   uint64 // index of the last log entry in it
	Epoch   uint64
	ClockMs int64 // the cluster clock
	Keys    int   // including expired ones that were not swept
	Bytes   int64
	Memory  int64 // what all of it counts, as used_memory_dataset in INFO
}

// CheckSnapshot checks that ReadSnapshot would accept a snapshot file. It decodes each record and
// keeps none, so it needs the memory of one record of the keyspace at a time. The errors are those
// of ReadSnapshot.
func CheckSnapshot(r io.Reader, table *commands.Table) (BackupInfo, error) {
	counted := &countingReader{r: r}
	in := newSnapshotReader(counted)
	m, err := in.machine(table)
	if err != nil {
		return BackupInfo{}, err
	}
	info := BackupInfo{Index: m.index, Epoch: m.epoch, ClockMs: m.ks.Now()}
	checker := keyspace.NewChecker(m.level >= commands.LevelSecond)
	err = in.keys(func(record []byte) error {
		if keyspace.IsKey(record) {
			info.Keys++
		}
		return checker.Check(record)
	})
	info.Bytes, info.Memory = counted.n, m.memory()+checker.Size()
	return info, err
}

// ReadBackupInfo reads the beginning of a snapshot file, and returns what that says: not how many
// keys and bytes there are.
func ReadBackupInfo(r io.Reader) (info BackupInfo, err error) {
	in := newSnapshotReader(r)
	var h header
	if err = in.begin(); err == nil {
		h, err = in.header()
	}
	if err == nil {
		info.Index, info.Epoch, info.ClockMs = h.index, h.epoch, h.clockMs
	}
	return info, err
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Epoch returns the high bits of the revisions.
func (m *Machine) Epoch() uint64 { return m.epoch }

// CountTypes returns how many keys there are of each type.
func (m *Machine) CountTypes() map[string]int {
	counts := map[string]int{}
	for i := range keyspace.Databases {
		m.ks.DB(i).Each(func(e *keyspace.Entry) bool {
			counts[e.Kind().String()]++
			return true
		})
	}
	return counts
}

// Revisions of a state that is restored or recovered go on at the time of day: its seconds since
// 1970, shifted. Since a cluster makes fewer than 2^19 entries a second, its revisions never reach
// those of the present, so what begins now is above all that began before, on whatever data
// (docs/adr/0057).
const secondBits = 31

// MaxStart bounds where revisions can go on, in the year 2105. One epoch remains above it.
var MaxStart = keyspace.NewRevision(keyspace.MaxEpoch, 0, 0)

// startAt returns the first revision of a time of day, µs since 1970.
func startAt(us int64) keyspace.Revision {
	const second = 1_000_000
	us = min(max(us, 0), 1<<32*second-1)
	return keyspace.Revision(us/second<<secondBits | us%second<<secondBits/second)
}

// NextStart returns where revisions go on when the state is restored or recovered at a time of day,
// µs since 1970. If behindUs is not 0 that time is wrong, because the state is later by as much:
// its newest entry, or its revisions. Then the result is merely above what the state's own cluster
// can have reached.
func (m *Machine) NextStart(nowUs int64) (start keyspace.Revision, behindUs int64) {
	newest := m.newestRevision()
	knownUs := max(m.time.lastUs, m.time.stampUs) + m.time.shiftMs*1000
	known := max(newest, startAt(knownUs))
	if start = startAt(nowUs); start > known && nowUs > knownUs {
		return start, 0
	}
	const afterBackup = 1 << 31 // entries: five days of 5,000 a second
	epoch, index := known.Entry()
	seconds := int64(known>>secondBits) + 1
	return keyspace.NewRevision(epoch, index+afterBackup, 0), max(seconds*1_000_000-nowUs, 1)
}

// newestRevision returns the last revision that the newest entry can have used.
func (m *Machine) newestRevision() keyspace.Revision {
	return keyspace.NewRevision(m.epoch, m.index, keyspace.MaxPosition)
}

// ContinueAbove makes all later revisions larger than start, and returns the index and term of
// Raft's log to continue from. It fails if start is not above the revisions of the state.
//
// The term exceeds what the cluster of the state reaches. If one of its nodes still runs, or
// restarts with its old data, the restored nodes' log is newer and that node adopts their state.
// The index is never 0, at which Raft knows no snapshot: it would send a new member the log alone.
func (m *Machine) ContinueAbove(start keyspace.Revision) (index, term uint64, err error) {
	if newest := m.newestRevision(); start <= newest || start > MaxStart {
		return 0, 0, fmt.Errorf("must be from %d to %d", newest+1, MaxStart)
	}
	m.epoch, m.index = start.Entry()
	m.index = max(m.index, 1)
	return m.index, epochTerms + uint64(start)/(keyspace.MaxPosition+1), nil
}

// epochTerms is more elections than there can be in a cluster that was never restored.
const epochTerms = 1 << 32

// Size returns the length of the file that WriteTo writes. It takes as long as WriteTo.
func (s *Snapshot) Size() int64 {
	n, _ := s.WriteTo(io.Discard) // never fails there
	return n
}
