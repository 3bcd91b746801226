// The data directory: its layout, and the version file that says whose it is and how to read it.

package cluster

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/files"
)

// DirError says why a data directory cannot be used, and what to do next.
type DirError struct {
	Next string
	err  error
}

func (e *DirError) Error() string { return e.err.Error() }

func (e *DirError) Unwrap() error { return e.err }

func dirErrorf(next, format string, args ...any) error {
	return &DirError{next, fmt.Errorf(format, args...)}
}

// nextDamaged is the act for files that cannot be believed.
const nextDamaged = "operations.md, Damaged files"

// The names in a data directory.
const (
	versionName   = "VERSION"
	stableName    = "raft.db" // what earlier releases read
	walName       = "wal"
	boltLogName   = "log.db"
	snapshotsName = "snapshots"
)

// storeNames are what a node makes beside its version file.
var storeNames = []string{promisesName, stableName, walName, boltLogName, raftlog.MarkName,
	snapshotsName}

// Log stores for Config.LogStore.
const (
	LogStoreWAL  = "wal"
	LogStoreBolt = "bolt"
)

const (
	dataFormat   = 1
	versionTitle = "coordd data directory"
	maxVersionIn = 4096 // bytes read of a version file
)

// dirVersion is the content of the version file. It names the kind of log store because opening a
// directory with the other kind would find an empty log and forget every write.
type dirVersion struct {
	format   int
	node     string
	logStore string
	level    uint64 // the feature level needed to read the directory; written from 2 on
}

// Files are private to the node.
const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// makeDir creates a missing directory, whatever the umask. It does not create the directory that it
// is in: where a volume should be mounted and is not, a node would begin with nothing.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := checkParent(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil {
		return err
	}
	return errors.Join(os.Chmod(dir, dirMode), files.SyncDir(filepath.Dir(filepath.Clean(dir))))
}

// checkParent reports whether a directory that is missing may be made.
func checkParent(dir string) error {
	parent := filepath.Dir(filepath.Clean(dir))
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return dirErrorf("mount the volume of "+parent+", or make that for a new node",
			"%s does not exist: mount its volume, or make it for a new node", parent)
	}
	return nil
}

// tighten makes a node's files in its data directory private: older versions did not, and the
// libraries that write there do not.
func tighten(dir string) error {
	var errs []error
	set := func(path string, mode fs.FileMode) {
		if info, err := os.Lstat(path); err == nil && info.Mode().Perm() != mode {
			errs = append(errs, os.Chmod(path, mode))
		}
	}
	set(dir, dirMode)
	for _, name := range append([]string{versionName, lockName}, storeNames...) {
		errs = append(errs, filepath.WalkDir(filepath.Join(dir, name),
			func(path string, e fs.DirEntry, err error) error {
				switch {
				case errors.Is(err, fs.ErrNotExist):
					return nil
				case err != nil:
					return err
				case e.IsDir():
					set(path, dirMode)
				case e.Type().IsRegular():
					set(path, fileMode)
				}
				return nil
			}))
	}
	return errors.Join(errs...)
}

// firstLevel is the level that needs no line.
const firstLevel = 1

// markedLevel is the feature level from which on a directory has the mark of its log, its promises
// and the list of its segments in files of coordd: a release that does not write them refuses the
// directory.
const markedLevel = 3

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the file's bytes: a title, a line per field, and a checksum over all before it.
func (v dirVersion) encode() []byte {
	body := fmt.Sprintf("%s\nformat: %d\nnode: %s\nlog-store: %s\n", versionTitle, v.format, v.node,
		v.logStore)
	if v.level > firstLevel {
		body += fmt.Sprintf("level: %d\n", v.level)
	}
	return fmt.Appendf(nil, "%schecksum: %08x\n", body, crc32.Checksum([]byte(body), castagnoli))
}

// decodeVersion reads a version file. It reports a newer format before it checks the checksum: such
// a file may have another layout.
func decodeVersion(data []byte, dir string) (dirVersion, error) {
	var v dirVersion
	corrupt := dirErrorf(nextDamaged, "data directory %s has a corrupt %s file", dir, versionName)
	rest, ok := strings.CutPrefix(string(data), versionTitle+"\n")
	if !ok {
		return v, corrupt
	}
	line, _, _ := strings.Cut(rest, "\n")
	if _, err := fmt.Sscanf(line, "format: %d", &v.format); err != nil {
		return v, corrupt
	}
	if v.format != dataFormat {
		return v, dirErrorf("start it with the version of coordd that wrote its directory",
			"data directory %s has format %d; this version of coordd reads format %d", dir,
			v.format, dataFormat)
	}
	if n, err := fmt.Sscanf(rest, "format: %d\nnode: %s\nlog-store: %s\n", &v.format, &v.node,
		&v.logStore); err != nil || n != 3 {
		return v, corrupt
	}
	v.level = firstLevel
	if _, after, ok := strings.Cut(rest, "\nlevel: "); ok {
		if _, err := fmt.Sscanf(after, "%d\n", &v.level); err != nil {
			return v, corrupt
		}
	}
	if string(v.encode()) != string(data) {
		return v, corrupt
	}
	return v, nil
}

// prepareDir checks that dir is the data directory of node with that kind of log store, or creates
// it, and that its feature level, which it returns, is known. It changes nothing in a directory
// that it refuses.
func prepareDir(dir, node, logStore string, levels Leveled) (level uint64, err error) {
	want := dirVersion{format: dataFormat, node: node, logStore: logStore, level: firstLevel}
	have, err := readVersion(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeVersion(dir, want); err != nil {
			return 0, err
		}
		have, err = readVersion(dir) // another process may have been first
	}
	if err != nil {
		return 0, err
	}
	return have.level, have.check(dir, node, logStore, levels.CheckLevel)
}

// makeVersion creates the version file of a new directory under its lock: a process that restores
// or recovers there has not ended else.
func makeVersion(dir string, v dirVersion) (err error) {
	if err := refuseForeign(dir); err != nil { // nothing is changed there
		return err
	}
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := readVersion(dir); !missing(err) {
		return err
	}
	if err := refuseForeign(dir); err != nil {
		return err
	}
	if err := writeVersion(dir, v, os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create data directory %s: %w", dir, err)
	}
	return nil
}

// check reports why the directory is not that of node with that kind of log store, at a level that
// checkLevel knows.
func (v *dirVersion) check(dir, node, logStore string,
	checkLevel func(what string, level uint64) error) error {
	switch {
	case v.node != node:
		return fmt.Errorf("data directory %s belongs to node %q, not to %q", dir, v.node, node)
	case v.logStore != logStore:
		return fmt.Errorf("data directory %s uses log store %q, not %q", dir, v.logStore, logStore)
	}
	return v.checkLevel(dir, checkLevel)
}

// checkLevel reports why a process that knows some levels cannot read the directory.
func (v *dirVersion) checkLevel(dir string,
	known func(what string, level uint64) error) error {
	if err := known("data directory "+dir, v.level); err != nil {
		return dirErrorf("upgrade coordd on this machine: operations.md, Feature levels", "%w", err)
	}
	return nil
}

// CheckDir reports why Open would refuse a data directory. It changes nothing; a directory that is
// missing is not refused.
func CheckDir(dir, node, logStore string,
	checkLevel func(what string, level uint64) error) error {
	have, err := readVersion(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(checkParent(dir), refuseForeign(dir))
	}
	if err != nil {
		return err
	}
	if err := have.check(dir, node, logStore, checkLevel); err != nil {
		return err
	}
	return checkPromises(dir, have.level)
}

// noteLevel records in the version file that the directory needs a feature level.
func noteLevel(dir string, level uint64) error {
	v, err := readVersion(dir)
	if err != nil || v.level >= level {
		return err
	}
	v.level = level
	return writeVersion(dir, v, os.Rename)
}

// Begun describes the file that a node makes first in a data directory, whose owner is who runs it.
func Begun(dir string) (fs.FileInfo, error) { return os.Lstat(filepath.Join(dir, versionName)) }

func readVersion(dir string) (dirVersion, error) {
	f, err := os.Open(filepath.Join(dir, versionName))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return dirVersion{}, err
		}
		return dirVersion{}, fmt.Errorf("cannot read data directory %s: %w", dir, err)
	}
	defer f.Close()
	buf := make([]byte, maxVersionIn)
	n, err := f.Read(buf)
	if err != nil && n == 0 {
		return dirVersion{}, dirErrorf(nextDamaged, "data directory %s has a corrupt %s file", dir,
			versionName)
	}
	return decodeVersion(buf[:n], dir)
}

// ErrNoData means that no node has written to a directory.
var ErrNoData = errors.New("it has no " + versionName + " file")

// readNode reads the version file for a command that needs a node's directory.
func readNode(dir string) (dirVersion, error) {
	v, err := readVersion(dir)
	if !missing(err) {
		return v, err
	}
	if err := refuseForeign(dir); err != nil {
		return v, err
	}
	return v, fmt.Errorf("%s is not a data directory: %w", dir, ErrNoData)
}

// unfinished returns an error that says what was interrupted in a directory without version file.
func unfinished(dir string) error {
	if err := recoveryInterrupted(dir); err != nil {
		return err
	}
	if seedingBegan(dir) {
		return dirErrorf("coordd restore, again with the same backup and flags",
			"data directory %s was not restored to the end: run coordd restore again", dir)
	}
	return nil
}

// refuseForeign refuses a directory that holds stores but no version file.
func refuseForeign(dir string) error {
	if err := unfinished(dir); err != nil {
		return err
	}
	for _, name := range storeNames {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return dirErrorf(nextDamaged, "data directory %s holds %s but no %s file: its node is "+
				"unknown", dir, name, versionName)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot read data directory %s: %w", dir, err)
		}
	}
	return nil
}

// writeVersion makes the version file appear atomically by place: os.Link fails if it exists
// (fs.ErrExist), os.Rename replaces it.
func writeVersion(dir string, v dirVersion, place func(from, to string) error) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, versionName+unnamedSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(v.encode())
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := place(tmp.Name(), filepath.Join(dir, versionName)); err != nil {
		return err
	}
	return files.SyncDir(dir)
}

// missing reports whether an error says that there is no file.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
