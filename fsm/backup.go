package fsm

// This file holds what a backup needs of the machine besides its snapshot, which a backup is: a check of a file that is too large to
// be loaded, and the step into a new epoch.

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/coordd/coordd/commands/keyspace"
)

// BackupInfo is what a snapshot file says of itself.
type BackupInfo struct {
	Index   uint64 // of the last log entry that it holds
	Epoch   uint64
	ClockMs int64 // the cluster clock
	Keys    int   // that had not been found expired
	Bytes   int64
}

// CheckSnapshot reads a snapshot file to its end without loading it: that it is whole, and of a version that can be read. What its
// records hold is not looked at. It needs the memory of one record at a time. The errors are those of ReadSnapshot.
func CheckSnapshot(r io.Reader) (BackupInfo, error) {
	counted := &countingReader{r: r}
	in := &snapshotReader{r: bufio.NewReaderSize(counted, 1<<16), sum: crc32.New(crcTable)}
	var info BackupInfo
	if err := in.begin(); err != nil {
		return info, err
	}
	h, err := in.header()
	if err != nil {
		return info, err
	}
	info.Index, info.Epoch, info.ClockMs = h.index, h.epoch, h.clockMs
	in.record() // scripts
	for {
		record := in.record()
		if len(record) == 0 {
			break
		}
		if keyspace.IsKey(record) {
			info.Keys++
		}
	}
	if err := in.finish(); err != nil {
		return info, err
	}
	info.Bytes = counted.n
	return info, nil
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

// Epoch is the number of the present epoch: how often the state was restored from a backup.
func (m *Machine) Epoch() uint64 { return m.epoch }

// EnterEpoch makes every later revision larger than all of the epochs before, and returns the place in Raft's log that the machine goes
// on from. It fails for an epoch that is not later than the present, or that revisions have no room for.
//
// Index and term are beyond those that the cluster which made the backup reaches: should one of its nodes still run, or be started
// again with its old data, then the restored nodes' log is newer than its, and it takes their state.
func (m *Machine) EnterEpoch(epoch uint64) (index, term uint64, err error) {
	if epoch <= m.epoch || epoch > keyspace.MaxEpoch {
		return 0, 0, fmt.Errorf("it has to be from %d to %d", m.epoch+1, keyspace.MaxEpoch)
	}
	m.epoch = epoch
	m.index += epochEntries
	return m.index, epoch * epochTerms, nil
}

// How far a cluster is thought to go after a backup of it: five days of 5,000 entries a second, of which an epoch each fits into a
// revision's index; and more elections than there can be.
const (
	epochEntries = 1 << 31
	epochTerms   = 1 << 32
)

// Size is the length of the file that WriteTo writes, in bytes. It takes as long as writing it does.
func (s *Snapshot) Size() int64 {
	n, _ := s.WriteTo(io.Discard) // never fails there
	return n
}
