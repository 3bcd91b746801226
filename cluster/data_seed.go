// Creating a data directory from a state that comes from outside, a backup.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/files"
)

// Origin is where a seeded cluster begins.
type Origin struct {
	Cluster     string // its unique id, equal on all members: ClusterIDOf, NewClusterID
	Index, Term uint64 // of the last log entry in the state
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
	made, err := claimEmpty(cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clearDir(cfg.DataDir, made))
		}
	}()
	if err := markSeeding(cfg.DataDir); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	s, err := openStores(cfg.DataDir, cfg.LogStore, fresh, cfg.Logger)
	if err != nil {
		return err
	}
	if err := errors.Join(s.seed(&cfg, from, write), s.close()); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	if err := writeVersion(cfg.DataDir, dirVersion{format: dataFormat, node: cfg.ID,
		logStore: cfg.LogStore, level: from.Level}, os.Link); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	if err := files.Remove(filepath.Join(cfg.DataDir, seedingName)); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", cfg.DataDir, err)
	}
	return files.SyncDir(filepath.Dir(filepath.Clean(cfg.DataDir)))
}

// seedingName is an empty file in a directory that Seed has not finished. It is there before
// anything else, so that only what Seed made is beside it.
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

// claimEmpty creates dir unless it exists and is empty, or empties what an interrupted call of Seed
// left. made reports whether it created it.
func claimEmpty(dir string) (made bool, err error) {
	files, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := makeDir(dir); err != nil {
			return false, fmt.Errorf("cannot create data directory %s: %w", dir, err)
		}
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot read data directory %s: %w", dir, err)
	case len(files) > 0 && seedingBegan(dir):
		if err := removeSeeded(dir); err != nil {
			return false, fmt.Errorf("cannot empty data directory %s: %w", dir, err)
		}
	case len(files) > 0:
		return false, fmt.Errorf("data directory %s is not empty: it holds %s", dir,
			files[0].Name())
	}
	return false, nil
}

// removeSeeded removes what is in dir, for good, except the file that says that it may.
func removeSeeded(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != seedingName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, files.SyncDir(dir))
}

// clearDir undoes what claimEmpty allowed.
func clearDir(dir string, made bool) error {
	if err := removeSeeded(dir); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(dir, seedingName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if made {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}
