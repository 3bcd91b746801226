// The data directories of every release, in testdata/datadirs, which every later release must open,
// and how they are made.

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/binaries"
)

var makeDataDirs = flag.String("make-datadirs", "",
	"make testdata/datadirs/NAME of this release; files that are there stay as they are")

const dataDirs = "../../../testdata/datadirs/"

// The data directories of a release, each with either log store: what their node did before it
// stopped.
const (
	onlyLog      = "log"      // its log holds everything
	onlySnapshot = "snapshot" // it was restored from a backup, and its log is empty
	bothOfThem   = "both"     // a snapshot was written half-way
)

// All directories of a release: each kind with each log store.
var (
	dirStores = []string{"wal", "bolt"}
	dirKinds  = []string{onlyLog, bothOfThem, onlySnapshot}
)

// dirArchive is the file that holds one of them.
func dirArchive(release, store, kind string) string {
	return filepath.Join(release, store, kind+".tar.gz")
}

// TestDataDirectoriesOfReleases opens the data directories of all releases, and reads everything in
// them.
func TestDataDirectoriesOfReleases(t *testing.T) {
	if *makeDataDirs != "" {
		(&dirMaker{t: t, dir: dataDirs + *makeDataDirs}).run()
	}
	entries, err := os.ReadDir(dataDirs)
	if err != nil {
		t.Fatal(err)
	}
	releases := 0
	for _, release := range entries {
		if !release.IsDir() {
			continue
		}
		releases++
		for _, store := range dirStores {
			for _, kind := range dirKinds {
				t.Run(release.Name()+"/"+store+"/"+kind, func(t *testing.T) {
					openDir(t, filepath.Join(dataDirs, release.Name()), store, kind)
				})
			}
		}
	}
	if releases == 0 {
		t.Fatal("no release is there")
	}
}

// openDir starts a node on one data directory and reads its data.
func openDir(t *testing.T, release, store, kind string) {
	f := newFleet(t)
	p := f.prepare("n1")
	p.args = append(p.args, "--log-store", store)
	unpackDir(t, dirArchive(release, store, kind), p.dataDir())
	p.start()
	p.waitReady()
	p.checkContent(release)
	p.checkRevisions()
	if kind != onlySnapshot {
		p.refusedRaft("node n2 was removed from this cluster", "ADD", "n2", "127.0.0.1:1")
	}
}

// checkContent compares the node's data with content.txt.
func (p *process) checkContent(release string) {
	commandtest.Run(p.t, filepath.Join(release, "content.txt"), commandtest.Server{
		Reset: func() error { return nil },
		Open:  func() (commandtest.Target, error) { return commandtest.Dial("tcp", p.addr) },
	})
	c := p.client()
	ctx := context.Background()
	if v := c.ConfigGet(ctx, "notify-keyspace-events").Val()["notify-keyspace-events"]; v != "xKE" {
		p.t.Errorf("notifications: %q", v)
	}
	if level := p.level(); level > int64(commands.FeatureLevel) || level < 1 {
		p.t.Errorf("feature level %d", level)
	}
	if got := p.members(); !slices.Equal(got, []string{"n1 voter"}) {
		p.t.Errorf("members: %v", got)
	}
}

// checkRevisions fails unless a new key has a larger revision than an existing one.
func (p *process) checkRevisions() {
	c := p.client()
	ctx := context.Background()
	before, err := c.Do(ctx, "FENCE", "lock").Uint64()
	if err != nil || before == 0 {
		p.t.Fatalf("FENCE lock: %d %v", before, err)
	}
	if err := c.Set(ctx, "made now", 1, 0).Err(); err != nil {
		p.t.Fatal(err)
	}
	if after, err := c.Do(ctx, "FENCE", "made now").Uint64(); err != nil || after <= before {
		p.t.Errorf("FENCE: %d after %d, %v", after, before, err)
	}
}

// unpackDir unpacks an archive. Blocks of zeros, as in preallocated segments of a log, become
// holes.
func unpackDir(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = unpackFile(filepath.Join(dir, filepath.FromSlash(h.Name)), h.Size, in)
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
	}
}

func unpackFile(path string, size int64, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	block, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); at < size && err == nil; {
		var n int
		n, err = io.ReadFull(from, block[:min(int64(len(block)), size-at)])
		if err == nil && !bytes.Equal(block[:n], zero[:n]) {
			_, err = f.WriteAt(block[:n], at)
		}
		at += int64(n)
	}
	return errors.Join(err, f.Close())
}

// dirMaker makes the data directories of this release.
type dirMaker struct {
	t   *testing.T
	dir string
}

func (m *dirMaker) run() {
	m.t.Helper()
	for _, store := range dirStores {
		for _, kind := range dirKinds {
			archive := dirArchive(m.dir, store, kind)
			if _, err := os.Stat(archive); err == nil {
				m.t.Logf("%s is there, and stays", archive)
				continue
			}
			m.pack(m.make(store, kind), archive)
			m.t.Logf("made %s", archive)
		}
	}
}

// make returns a data directory whose node has stopped.
func (m *dirMaker) make(store, kind string) (dir string) {
	f := newFleet(m.t)
	p := f.prepare("n1")
	p.args = append(p.args, "--log-store", store)
	if kind == onlySnapshot {
		m.restore(store, m.make(store, onlyLog), p.dataDir())
		return p.dataDir()
	}
	p.start()
	p.waitReady()
	other := f.start("n2", p)
	p.waitVoters("n1", "n2")
	p.mustRaft("REMOVE", "n2")
	other.stop()
	steps := m.load("calls.txt")
	c := m.dial(p)
	defer c.Close()
	for i, s := range steps {
		if i == len(steps)/2 && kind == bothOfThem {
			p.mustRaft("SNAPSHOT")
		}
		if v := m.do(c, s); v.IsError() {
			m.t.Fatalf("%s: %s", s.Text, v)
		}
	}
	m.fillContent(c)
	p.stop()
	return p.dataDir()
}

// restore makes target from a backup of the node whose data directory is source.
func (m *dirMaker) restore(store, source, target string) {
	f := newFleet(m.t)
	p := f.prepare("n1")
	p.args = append(p.args, "--log-store", store)
	p.setFlag("--data-dir", source)
	p.start()
	p.waitReady()
	path, err := binaries.Coordd()
	if err != nil {
		m.t.Fatal(err)
	}
	file := filepath.Join(m.t.TempDir(), "backup")
	for _, args := range [][]string{{"backup", "--from", p.addr, file},
		{"restore", file, "--id", "n1", "--log-store", store, "--data-dir", target}} {
		if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
			m.t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	p.stop()
}

func (m *dirMaker) load(name string) []commandtest.Step {
	files, err := commandtest.Load(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return files[0].Steps
}

func (m *dirMaker) dial(p *process) *commandtest.Conn {
	c, err := commandtest.Dial("tcp", p.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// do runs a step and returns its reply.
func (m *dirMaker) do(c *commandtest.Conn, s commandtest.Step) commandtest.Value {
	args := s.Args
	if s.Directive == "db" {
		args = commandtest.Args("SELECT", fmt.Sprint(s.Number))
	}
	raw, err := c.Do(args)
	if err != nil {
		m.t.Fatalf("%s: %v", s.Text, err)
	}
	v, err := commandtest.Parse(raw)
	if err != nil {
		m.t.Fatalf("%s: %v", s.Text, err)
	}
	return v
}

// fillContent adds the replies that lines of content.txt lack, for a person to review.
func (m *dirMaker) fillContent(c *commandtest.Conn) {
	path := filepath.Join(m.dir, "content.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	changed := false
	for _, s := range m.load("content.txt") {
		if s.Want != nil {
			continue
		}
		var replies []string
		for _, proto := range []string{"2", "3"} {
			m.do(c, commandtest.Step{Args: commandtest.Args("HELLO", proto), Text: "HELLO"})
			replies = append(replies, m.do(c, s).String())
		}
		if s.Directive == "" {
			lines[s.Line-1], changed = s.Text+" => "+strings.Join(slices.Compact(replies), " | "),
				true
		}
	}
	if !changed {
		return
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// pack writes the files under dir as an archive.
func (m *dirMaker) pack(dir, archive string) {
	m.t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		m.t.Fatal(err)
	}
	out := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			err = out.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644,
				Size: int64(len(content))})
		}
		if err == nil {
			_, err = out.Write(content)
		}
		return err
	})
	err = errors.Join(err, out.Close(), z.Close(), os.MkdirAll(filepath.Dir(archive), 0o755))
	if err == nil {
		err = os.WriteFile(archive, b.Bytes(), 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}
