// Backups: a check of a snapshot file without loading it, and the step into a new epoch.

package fsm

import (
	"fmt"
	"io"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// BackupInfo describes a snapshot file.
type BackupInfo struct {
	Index   uint64 // of the last log entry in it
	Epoch   uint64
	ClockMs int64 // the cluster clock
	Keys    int   // including expired ones that were not swept
	Bytes   int64
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
	checker := keyspace.NewChecker(m.level >= commands.LevelUsers)
	err = in.keys(func(record []byte) error {
		if keyspace.IsKey(record) {
			info.Keys++
		}
		return checker.Check(record)
	})
	info.Bytes = counted.n
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

// Epoch returns the current epoch: how many times the state was restored from a backup.
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

// EnterEpoch makes every later revision larger than those of earlier epochs, and returns the index
// and term of Raft's log to continue from. It fails if epoch is not later than the current one, or
// does not fit into a revision.
//
// Index and term exceed what the cluster that made the backup reaches. If one of its nodes still
// runs, or restarts with its old data, the restored nodes' log is newer and that node adopts their
// state.
func (m *Machine) EnterEpoch(epoch uint64) (index, term uint64, err error) {
	if epoch <= m.epoch || epoch > keyspace.MaxEpoch {
		return 0, 0, fmt.Errorf("must be from %d to %d", m.epoch+1, keyspace.MaxEpoch)
	}
	m.epoch = epoch
	m.index += epochEntries
	return m.index, epoch * epochTerms, nil
}

// The margin after a backup: five days of 5,000 entries a second, which leaves room for the epochs
// in a revision's index, and more elections than there can be.
const (
	epochEntries = 1 << 31
	epochTerms   = 1 << 32
)

// Size returns the length of the file that WriteTo writes. It takes as long as WriteTo.
func (s *Snapshot) Size() int64 {
	n, _ := s.WriteTo(io.Discard) // never fails there
	return n
}
