// Creating a data directory from a state that comes from outside, a backup.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/files"
)

// Origin is where a seeded cluster begins.
type Origin struct {
	Cluster     string // its unique id, equal on all members: ClusterIDOf, NewClusterID
	Index, Term uint64 // the last log entry that is in the state
	Level       uint64 // the feature level of the state

	founding string        // see foundingKey; empty: to be determined
	retired  []raft.Server // ids that must not be reused
}

// Seed makes cfg.DataDir the data directory of a member that knows the members of cfg, has an empty
// log, and has one snapshot: the bytes that write writes, as the state at that origin. It uses only
// ID, DataDir, LogStore, Members, PeerAdvertise and Logger of cfg. Members seeded alike begin as if
// they had been one cluster that stopped there. Seed refuses a directory that is not empty, without
// changing it, unless an interrupted call left it; on an error it removes what it created.
//
// Every member must be seeded: one that starts with an empty directory instead counts as having
// lost its disk. The version file comes last: an unfinished directory has stores without one, which
// Open refuses.
func Seed(cfg Config, from Origin, write func(io.Writer) error) (err error) {
	if err := cfg.applyDefaults(); err != nil {
		return err
	}
	lock, made, err := claimEmpty(cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clearDir(cfg.DataDir, made))
		}
		err = errors.Join(err, lock.Close())
	}()
	if err := markSeeding(cfg.DataDir); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	if err := removeSeeded(cfg.DataDir); err != nil {
		return fmt.Errorf("cannot empty data directory %s: %w", cfg.DataDir, err)
	}
	s, err := openLocked(closers{}, cfg.DataDir, cfg.LogStore, nil, fresh, cfg.Logger)
	if err != nil {
		return err
	}
	if err = s.seed(&cfg, from, write); err == nil {
		err = demandMark(s.log, from.Level)
	}
	if err := errors.Join(err, s.close()); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	if err := writeVersion(cfg.DataDir, dirVersion{format: dataFormat, node: cfg.ID,
		logStore: cfg.LogStore, level: from.Level}, os.Link); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	if err := endSeeding(cfg.DataDir); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	return files.SyncDir(filepath.Dir(filepath.Clean(cfg.DataDir)))
}

// seedingName is an empty file in a directory that Seed has not finished. It is there before
// anything but the lock, so that only what Seed made is beside it.
const seedingName = "RESTORING"

// markSeeding creates that file, unless an interrupted call left it.
func markSeeding(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, seedingName), os.O_CREATE|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), files.SyncDir(dir))
}

// seedingBegan reports whether an interrupted call of Seed left the directory.
func seedingBegan(dir string) bool {
	_, marked := os.Stat(filepath.Join(dir, seedingName))
	_, finished := os.Stat(filepath.Join(dir, versionName))
	return marked == nil && errors.Is(finished, os.ErrNotExist)
}

// endSeeding removes that file, which Seed, if it is killed at its end, leaves in a directory that
// is finished.
func endSeeding(dir string) error {
	err := files.Remove(filepath.Join(dir, seedingName))
	if missing(err) {
		return nil
	}
	return err
}

// seed writes term and snapshot.
func (s *stores) seed(cfg *Config, from Origin, write func(io.Writer) error) error {
	err := s.stable.SetUint64(currentTermKey, from.Term)
	if err == nil && from.founding != "" {
		err = s.stable.Set(foundingKey, []byte(from.founding))
	}
	if err != nil {
		return err
	}
	_, trans := raft.NewInmemTransport("") // only encodes addresses
	defer trans.Close()
	// A single node is known by its id; its address is what it listens on.
	members := cfg.memberConfiguration(cfg.PeerListen)
	r := register{from.Cluster, map[string]string{}}
	for _, m := range members.Servers {
		r.incarnations[string(m.ID)] = seededIncarnation(from.Cluster, string(m.ID))
	}
	members.Servers = append(append(members.Servers, r.server()), from.retired...)
	sink, err := s.snapshots.Create(raft.SnapshotVersionMax, from.Index, from.Term, members,
		from.Index, trans)
	if err != nil {
		return err
	}
	if err := write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// claimEmpty takes the lock of a directory for Seed, and creates it if it is missing, which made
// reports. It refuses one that is not empty, without changing it.
func claimEmpty(dir string) (lock io.Closer, made bool, err error) {
	err = checkEmpty(dir)
	if made = missing(err); made {
		if err = makeDir(dir); err != nil {
			err = fmt.Errorf("cannot create data directory %s: %w", dir, err)
		}
	}
	if err != nil {
		return nil, made, err
	}
	if lock, err = lockDir(dir); err != nil {
		return nil, made, err
	}
	if err := checkEmpty(dir); err != nil { // another process has been first
		return nil, made, errors.Join(err, lock.Close())
	}
	return lock, made, nil
}

// checkEmpty reports why Seed refuses a directory.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read data directory %s: %w", dir, err)
	}
	for _, e := range entries {
		left := slices.ContainsFunc(unnamed, func(begin string) bool {
			return strings.HasPrefix(e.Name(), begin)
		})
		if e.Name() != lockName && !left && !ofTheVolume(e) && !seedingBegan(dir) {
			return fmt.Errorf("data directory %s is not empty: it holds %s", dir, e.Name())
		}
	}
	return nil
}

// ofTheVolume reports whether an entry is what ext4 makes at the root of a new volume.
func ofTheVolume(e os.DirEntry) bool { return e.Name() == "lost+found" && e.IsDir() }

// removeSeeded removes what is in dir, for good, except the file that says that it may.
func removeSeeded(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != seedingName && e.Name() != lockName && !ofTheVolume(e) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, files.SyncDir(dir))
}

// clearDir undoes what Seed did. The lock goes last.
func clearDir(dir string, made bool) error {
	err := removeSeeded(dir)
	if err == nil {
		err = endSeeding(dir)
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, lockName))
	}
	if err == nil && made {
		err = os.Remove(dir)
	}
	return err
}
