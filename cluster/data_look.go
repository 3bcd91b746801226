// Looking at a data directory on which no node runs, without changing a byte of it: what opens a
// log or a store for a node cleans it first.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
	"go.etcd.io/bbolt"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/lockorder"
)

// lookAt opens the stores in a data directory for reading. Until they are closed no node starts on
// it. lock is the directory's.
func lookAt(lock io.Closer, dir string, v dirVersion, logger *slog.Logger) (*stores, error) {
	s, err := lookAtLog(lock, dir, v, logger)
	if err != nil {
		return nil, err
	}
	s.snapshots, err = newSnapshotStore(&snapshotFiles{filepath.Join(dir, snapshotsName), logger},
		s.log, dir, logger)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// lookAtLog is lookAt without the snapshots.
func lookAtLog(lock io.Closer, dir string, v dirVersion, logger *slog.Logger) (s *stores,
	err error) {
	s = &stores{closers: closers{lock}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	level := func() uint64 { return v.level }
	var earlierStable raft.StableStore
	var earlierMeta types.MetaStore
	if v.level < markedLevel {
		copies, err := s.copyBolt(dir)
		if err != nil {
			return s, err
		}
		bolt, err := openBolt(filepath.Join(copies, stableName), dir)
		if err != nil {
			return s, err
		}
		s.closers = append(s.closers, bolt)
		earlierStable, earlierMeta = bolt, metaCopy{&metadb.BoltMetaDB{}, copies}
	}
	if err := v.unchanged(dir); err != nil { // an earlier release has the lock of its file alone
		return s, err
	}
	files := &lookFiles{System: disk.NewSystem()}
	s.closers = append(s.closers, files)
	if s.stable, err = openStable(files, dir, earlierStable, level); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.stable)
	if err := s.stable.checkRefetched(dir); err != nil {
		return s, err
	}
	if v.logStore == LogStoreBolt {
		path := filepath.Join(dir, boltLogName)
		if err := boltFile(path); err != nil {
			return s, err
		}
		bolt, err := raftboltdb.New(raftboltdb.Options{Path: path,
			BoltOptions: &bbolt.Options{Timeout: time.Second, ReadOnly: true}})
		if err != nil {
			return s, fmt.Errorf("cannot read the log in data directory %s: %w", dir, err)
		}
		s.log, s.closers = bolt, append(s.closers, bolt)
		if v.level >= markedLevel {
			if err := boltReached(bolt, dir); err != nil {
				return s, err
			}
		}
	} else {
		log, err := raftlog.OpenWAL(filepath.Join(dir, walName), raftlog.Options{Files: files,
			Earlier: earlierMeta, Marked: marked(level), SegmentSize: segmentSize, Logger: logger,
			LibLogger: newRaftLogger(logger)})
		if err != nil {
			return s, fmt.Errorf("cannot read the log in data directory %s: %w", dir, err)
		}
		s.log, s.closers = log, append(s.closers, log)
	}
	return s, nil
}

// copyBolt copies the files of earlier releases to a directory, which bbolt writes to when it opens
// them, and takes the lock that a node of such a release has.
func (s *stores) copyBolt(dir string) (copies string, err error) {
	lock, err := lockFile(dir, stableName, os.O_RDWR)
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, lock)
	if copies, err = os.MkdirTemp("", "coordd-look-"); err != nil {
		return "", err
	}
	s.closers = append(s.closers, temporary(copies))
	if err := copyFile(filepath.Join(copies, stableName),
		filepath.Join(dir, stableName)); err != nil {
		return "", err
	}
	err = copyFile(filepath.Join(copies, walMetaName), filepath.Join(dir, walName, walMetaName))
	if missing(err) {
		err = nil
	}
	return copies, err
}

// temporary is a directory that is removed when it is closed.
type temporary string

func (t temporary) Close() error { return os.RemoveAll(string(t)) }

// closers are closed from the last on.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range slices.Backward(c) {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, fileMode)
}

// metaCopy is raft-wal's metadata in another directory than its segments.
type metaCopy struct {
	*metadb.BoltMetaDB
	dir string
}

func (m metaCopy) Load(string) (types.PersistentState, error) { return m.BoltMetaDB.Load(m.dir) }

// lookFiles is the file system, of which nothing changes: what is written stays in memory.
type lookFiles struct {
	disk.System
	mu      lockorder.Mutex
	written map[string]*lookFile
}

func (v *lookFiles) file(dir, name string, create bool) (*lookFile, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.written[name]; f != nil {
		return f, nil
	}
	f := &lookFile{}
	if !create {
		below, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		info, err := below.Stat()
		if err != nil {
			return nil, errors.Join(err, below.Close())
		}
		f.below, f.size = below, info.Size()
	}
	if v.written == nil {
		v.written = map[string]*lookFile{}
	}
	v.written[name] = f
	return f, nil
}

func (v *lookFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.file(dir, name, true)
	if err == nil {
		f.size = int64(size)
	}
	return f, err
}

func (v *lookFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.file(dir, name, false)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (v *lookFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	v.mu.Lock()
	f := v.written[name]
	v.mu.Unlock()
	if f != nil {
		return f, nil
	}
	return v.System.OpenReader(dir, name)
}

// Close closes the files, for good.
func (v *lookFiles) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, f := range v.written {
		if f.below != nil {
			errs = append(errs, f.below.Close())
		}
	}
	return errors.Join(errs...)
}

func (*lookFiles) Delete(string, string) error { return nil }
func (*lookFiles) SyncDir(string) error        { return nil }

// lookFile is a file, and what was written over it. It stays open until lookFiles is closed.
type lookFile struct {
	mu     lockorder.Mutex
	below  *os.File // nil: there is none
	size   int64
	writes []lookWrite
}

type lookWrite struct {
	at   int64
	data []byte
}

func (f *lookFile) ReadAt(p []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := int(max(min(int64(len(p)), f.size-at), 0))
	clear(p[:n])
	if f.below != nil {
		if _, err := f.below.ReadAt(p[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	for _, w := range f.writes {
		if from, to := max(at, w.at), min(at+int64(n), w.at+int64(len(w.data))); from < to {
			copy(p[from-at:to-at], w.data[from-w.at:])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *lookFile) WriteAt(p []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, lookWrite{at, append([]byte(nil), p...)})
	f.size = max(f.size, at+int64(len(p)))
	return len(p), nil
}

func (f *lookFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = size
	return nil
}

func (f *lookFile) Size() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size, nil
}

func (*lookFile) Close() error    { return nil }
func (*lookFile) Sync() error     { return nil }
func (*lookFile) SyncData() error { return nil }
func (*lookFile) Reserved() bool  { return true }
