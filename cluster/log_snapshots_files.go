// The files of snapshots, as hashicorp/raft's store writes them: a directory for each, named by its
// term, index and time, with the state and a description. That store has no checksum over the
// description, which says where the log goes on and who the members are; it passes over what it
// cannot read, and lets everybody read the rest.

package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/files"
)

const (
	snapshotMetaName  = "meta.json"
	snapshotStateName = "state.bin"
	unfinishedSuffix  = ".tmp"
	retainedSnapshots = 2
)

// snapshotFiles are the snapshots in a directory.
type snapshotFiles struct {
	dir    string
	logger *slog.Logger
}

// snapshotDescription is the content of meta.json.
type snapshotDescription struct {
	raft.SnapshotMeta
	CRC []byte // CRC-64 (ECMA) of the state
	// Sum is the CRC-32C of the text without this field, its last; nil: an older release wrote it.
	Sum *uint32 `json:",omitempty"`
}

// sumField returns the end of a description's text: the checksum.
func sumField(sum uint32) string { return fmt.Sprintf(`,"Sum":%d}`, sum) }

// encode returns the text of a description, with its checksum.
func (d snapshotDescription) encode() ([]byte, error) {
	d.Sum = nil
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return append(text[:len(text)-1], sumField(crc32.Checksum(text, castagnoli))...), nil
}

// whole reports whether a text is the one that was written. Its bytes decide: encoded once more, a
// description may have others, as JSON replaces what is no UTF-8.
func (d snapshotDescription) whole(text []byte) bool {
	if d.Sum == nil {
		return true
	}
	rest, ok := bytes.CutSuffix(text, []byte(sumField(*d.Sum)))
	return ok && crc32.Checksum(append(bytes.Clone(rest), '}'), castagnoli) == *d.Sum
}

// snapshotNameOf returns the name of a snapshot.
func snapshotNameOf(term, index uint64, at time.Time) string {
	return fmt.Sprintf("%d-%d-%d", term, index, at.UnixMilli())
}

// parseSnapshotName reads such a name.
func parseSnapshotName(name string) (term, index uint64, ok bool) {
	var ms uint64
	_, err := fmt.Sscanf(name+"\n", "%d-%d-%d\n", &term, &index, &ms)
	return term, index, err == nil
}

// names returns the finished snapshots, newest first.
func (s *snapshotFiles) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if _, _, ok := parseSnapshotName(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		termA, indexA, _ := parseSnapshotName(a)
		termB, indexB, _ := parseSnapshotName(b)
		return -cmp.Or(cmp.Compare(termA, termB), cmp.Compare(indexA, indexB), cmp.Compare(a, b))
	})
	return names, err
}

// newest returns the name of the newest finished snapshot, and the index and term that are part of
// it; 0 if there is none, or no files.
func (s *snapshotFiles) newest() (name string, index, term uint64, err error) {
	if s == nil {
		return "", 0, 0, nil
	}
	names, err := s.names()
	for _, is := range names {
		if t, i, _ := parseSnapshotName(is); i > index {
			name, index, term = is, i, t
		}
	}
	return name, index, term, err
}

// describe reads a snapshot's description.
func (s *snapshotFiles) describe(name string) (d snapshotDescription, err error) {
	path := filepath.Join(s.dir, name, snapshotMetaName)
	text, err := os.ReadFile(path)
	switch {
	case missing(err):
		return d, disk.Damagedf(path, "the file is missing")
	case err != nil:
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, disk.Damagedf(path, "%v", err)
	}
	term, index, _ := parseSnapshotName(name)
	if d.ID != name || d.Term != term || d.Index != index || !d.whole(text) ||
		len(d.CRC) != crc64.Size {
		return d, disk.Damagedf(path, "it is not as it was written")
	}
	return d, nil
}

// List returns the finished snapshots that can be described, newest first.
func (s *snapshotFiles) List() ([]*raft.SnapshotMeta, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var list []*raft.SnapshotMeta
	for _, name := range names {
		d, err := s.describe(name)
		if err != nil {
			s.logger.Error("a snapshot cannot be read", "snapshot", name, "error", err)
			continue
		}
		if list = append(list, &d.SnapshotMeta); len(list) == retainedSnapshots {
			break
		}
	}
	return list, nil
}

// snapshotReader is the state of a snapshot.
type snapshotReader struct {
	*bufio.Reader
	io.Closer
}

// Open opens a snapshot, whose state it has read once to compare it with its checksum.
func (s *snapshotFiles) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	d, err := s.describe(id)
	if err == nil {
		err = s.check(id, func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err })
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(filepath.Join(s.dir, id, snapshotStateName))
	if err != nil {
		return nil, nil, err
	}
	return &d.SnapshotMeta, snapshotReader{bufio.NewReader(f), f}, nil
}

// check reads the state of a snapshot once, by read, and compares it with its checksum.
func (s *snapshotFiles) check(id string, read func(io.Reader) error) error {
	d, err := s.describe(id)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, id, snapshotStateName)
	f, err := os.Open(path)
	switch {
	case missing(err):
		return disk.Damagedf(path, "the file is missing")
	case err != nil:
		return err
	}
	defer f.Close()
	sum := newStateSum()
	if err := read(io.TeeReader(f, sum)); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), d.CRC) {
		return disk.Damagedf(path, "its checksum does not match")
	}
	return nil
}

func newStateSum() hash.Hash64 { return crc64.New(crc64.MakeTable(crc64.ECMA)) }

// Create begins a snapshot.
func (s *snapshotFiles) Create(version raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration, configurationIndex uint64,
	_ raft.Transport) (raft.SnapshotSink, error) {
	if version != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("unsupported snapshot version %d", version)
	}
	name := snapshotNameOf(term, index, time.Now())
	k := &snapshotFile{of: s, path: filepath.Join(s.dir, name+unfinishedSuffix), sum: newStateSum(),
		is: snapshotDescription{SnapshotMeta: raft.SnapshotMeta{Version: version, ID: name,
			Index: index, Term: term, Configuration: configuration,
			ConfigurationIndex: configurationIndex}}}
	err := os.Mkdir(k.path, dirMode)
	if err == nil {
		k.f, err = os.OpenFile(filepath.Join(k.path, snapshotStateName),
			os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(k.path))
	}
	k.out = bufio.NewWriter(io.MultiWriter(k.f, k.sum))
	return k, nil
}

// snapshotFile is a snapshot that is being written.
type snapshotFile struct {
	of     *snapshotFiles
	path   string
	is     snapshotDescription
	f      *os.File
	out    *bufio.Writer
	sum    hash.Hash64
	closed bool
}

func (k *snapshotFile) ID() string { return k.is.ID }

func (k *snapshotFile) Write(b []byte) (int, error) {
	n, err := k.out.Write(b)
	k.is.Size += int64(n)
	return n, err
}

// Close finishes the snapshot. What fails leaves nothing.
func (k *snapshotFile) Close() error {
	if k.closed {
		return nil
	}
	k.closed = true
	err := k.out.Flush()
	if err == nil {
		err = k.f.Sync()
	}
	if err = errors.Join(err, k.f.Close()); err == nil {
		k.is.CRC = k.sum.Sum(nil)
		err = k.describe()
	}
	if err == nil {
		err = os.Rename(k.path, filepath.Join(k.of.dir, k.is.ID))
	}
	if err != nil {
		return errors.Join(err, k.remove())
	}
	return files.SyncDir(k.of.dir)
}

// describe writes the description.
func (k *snapshotFile) describe() error {
	text, err := k.is.encode()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(k.path, snapshotMetaName),
		os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), files.SyncDir(k.path))
}

// Cancel drops the snapshot.
func (k *snapshotFile) Cancel() error {
	if k.closed {
		return nil
	}
	k.closed = true
	return errors.Join(k.f.Close(), k.remove())
}

// remove removes what was written. Whoever still reads it finds nothing, and the blocks are free.
func (k *snapshotFile) remove() error {
	err := os.Truncate(filepath.Join(k.path, snapshotStateName), 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(k.path))
}

// reap removes all but the newest snapshots, once the newest can be read.
func (s *snapshotFiles) reap() error {
	names, err := s.names()
	if err != nil || len(names) <= retainedSnapshots {
		return err
	}
	for _, name := range names[retainedSnapshots:] {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	return errors.Join(err, files.SyncDir(s.dir))
}

// drop removes a finished snapshot.
func (s *snapshotFiles) drop(name string) error {
	return errors.Join(os.RemoveAll(filepath.Join(s.dir, name)), files.SyncDir(s.dir))
}

// removeUnfinished removes the snapshots that a killed process began. Each may be as large as the
// state.
func (s *snapshotFiles) removeUnfinished() {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinishedSuffix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	if err != nil {
		s.logger.Warn("removing an unfinished snapshot failed", "error", err)
	}
}
