// Refetching: a node whose state cannot be read, but whose disk is well, gets it from the other
// members again, under the same id (docs/adr/0051).

package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"

	"github.com/coordd/coordd/internal/files"
)

// owedKey is where the stable store keeps the index of the newest entry that the node may have
// acknowledged and has no more; 0: none. Members rely on it: a vote of this node for a leader that
// lacks the entry could lose it. So it takes no part in elections until its log reaches that index.
// Then it has all that a leader had who sent it that far, and so all that was committed.
var owedKey = []byte("coordd owed")

// refetchedPrefix begins the name of the directory to which Refetch moves what was there.
const refetchedPrefix = "before-refetch-"

// Refetched says what Refetch did.
type Refetched struct {
	Node string
	Owed uint64 // the newest entry that the node had
	Kept string // the directory with what was there
}

// Refetch prepares a node's data directory, on which no node runs, for getting its state from the
// other members: it moves log and snapshots away and keeps the node's identity, term and vote. If
// interrupted, it can be repeated.
func Refetch(dir string, m Machine, logger *slog.Logger) (done Refetched, err error) {
	v, err := readVersion(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return done, fmt.Errorf("%s is not a data directory: it has no %s file", dir, versionName)
	}
	if err == nil {
		err = levelsOf(m).CheckLevel("data directory "+dir, v.level)
	}
	if err != nil {
		return done, err
	}
	done.Node = v.node
	last, members, err := lastOnDisk(dir, v, logger)
	if err != nil {
		return done, err
	}
	s, err := openPromises(dir, func() uint64 { return v.level })
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if slices.Equal(voters(members), []string{v.node}) {
		return done, fmt.Errorf("node %s is the only voter of its cluster: no other has its data",
			v.node)
	}
	if done.Owed = max(s.stable.number(owedKey), last); done.Owed == 0 {
		return done, fmt.Errorf("data directory %s holds no log and no snapshot", dir)
	}
	if err := s.stable.SetUint64(owedKey, done.Owed); err != nil {
		return done, err
	}
	if done.Kept, err = moveState(dir); err != nil {
		return done, err
	}
	log, err := openLog(dir, v.logStore, fresh, logger) // with its mark
	if err != nil {
		return done, err
	}
	return done, log.Close()
}

// lastOnDisk returns the index of the newest entry that the node had, and the newest members that
// can be read.
func lastOnDisk(dir string, v dirVersion, logger *slog.Logger) (last uint64,
	members raft.Configuration, err error) {
	s, err := lookAt(dir, v, logger)
	if errors.Is(err, errDamaged) && v.logStore == LogStoreWAL {
		return lastOfDamaged(dir, logger)
	}
	if err != nil {
		return 0, members, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	first, err1 := s.log.FirstIndex()
	last, err2 := s.log.LastIndex()
	_, newest, _, err3 := s.snapshots.files.newest()
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, members, err
	}
	members = s.snapshots.files.newestMembers()
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		if err := s.log.GetLog(i, &l); err != nil {
			return 0, members, fmt.Errorf("log entry %d: %w", i, err)
		}
		if l.Type == raft.LogConfiguration {
			members = raft.DecodeConfiguration(l.Data)
		}
	}
	return max(last, newest), members, nil
}

// lastOfDamaged is lastOnDisk of a directory whose log is damaged. The mark says how far it went.
func lastOfDamaged(dir string, logger *slog.Logger) (last uint64, members raft.Configuration,
	err error) {
	walDir := filepath.Join(dir, walName)
	content, err := readSlots(osFiles{walfs.New()}, walDir, markName, markSlot)
	is, ok := decodeMark(content)
	if err != nil || !ok {
		return 0, members, errors.Join(err, fmt.Errorf("it cannot be told how far the log in data "+
			"directory %s went: RAFT REMOVE the node, and --join an empty one under a new id", dir))
	}
	snapshots := &snapshotFiles{filepath.Join(dir, snapshotsName), logger}
	_, newest, _, err := snapshots.newest()
	if err != nil {
		return 0, members, err
	}
	members, last = snapshots.newestMembers(), max(is.last, newest)
	names, err := filepath.Glob(filepath.Join(walDir, "*.wal"))
	if err != nil {
		return 0, members, err
	}
	for _, name := range names { // in order
		err := readEntries(name, func(l *raft.Log) {
			if last = max(last, l.Index); l.Type == raft.LogConfiguration {
				members = raft.DecodeConfiguration(l.Data)
			}
		})
		if err != nil {
			return 0, members, err
		}
	}
	if len(members.Servers) == 0 {
		return 0, members, fmt.Errorf("it cannot be told who the members of the node in data "+
			"directory %s are: RAFT REMOVE it, and --join an empty one under a new id", dir)
	}
	return last, members, nil
}

// readEntries reads the entries at the beginning of a segment, as far as they can be read.
func readEntries(name string, each func(*raft.Log)) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	s := segmentReader{in: bufio.NewReaderSize(f, scanChunk)}
	for err = s.skip(segmentHeaderLen); err == nil; {
		var kind byte
		var n uint32
		if kind, n, err = s.frame(); err != nil || kind == frameOfCommit {
			continue
		}
		var data bytes.Buffer
		err = s.read(padded(int64(n)), func(p []byte) { data.Write(p) })
		var l raft.Log
		if err != nil || kind != frameOfEntry ||
			(&wal.BinaryCodec{}).Decode(data.Bytes()[:n], &l) != nil {
			continue
		}
		each(&l)
	}
	return nil
}

// moveState moves log and snapshots into a new directory. The snapshots go last: without them a
// node would start on the end of a log.
func moveState(dir string) (kept string, err error) {
	for n := 1; ; n++ {
		kept = filepath.Join(dir, fmt.Sprint(refetchedPrefix, n))
		if err = os.Mkdir(kept, dirMode); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	for _, name := range []string{walName, boltLogName, snapshotsName} {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(kept, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return kept, err
		}
		if err := errors.Join(files.SyncDir(kept), files.SyncDir(dir)); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// owes reports whether this node's log does not reach what it owes.
func (n *Node) owes() bool {
	owed := n.owed.Load()
	if owed == 0 {
		return false
	}
	if n.raft.LastIndex() < owed {
		return true
	}
	if n.owed.Swap(0) != 0 {
		n.logger.Info("the node has again what it had", "index", owed)
		if err := n.stores.stable.SetUint64(owedKey, 0); err != nil { // the next start tries again
			n.logger.Warn("cannot write what the node owes", "error", err)
		}
	}
	return false
}
