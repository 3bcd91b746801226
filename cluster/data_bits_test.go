package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/logdisk"
)

// stoppedNode is the data directory of a node that was stopped: it has voted, has a snapshot, and
// entries in the log after it.
func stoppedNode(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "n1")
	toy := newToy()
	n, err := Open(Config{ID: "n1", DataDir: dir, Logger: testLogger(), TrailingLogs: 1}, toy)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", func() bool { return n.Status().Ready })
	for i := range 20 {
		batch := []byte(fmt.Sprint("w", i))
		if _, err := n.Write(t.Context(), fair.Workload{}, batch, 1); err != nil {
			t.Fatal(err)
		}
		if i == 12 {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	tear(t, dir)
	// as a level of this release would have it
	if err := noteLevel(dir, markedLevel); err != nil {
		t.Fatal(err)
	}
	return dir
}

// onlySegment returns the file of a log that has one segment.
func onlySegment(t *testing.T, dir string) string {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, walName, "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	return segments[0]
}

// tear leaves the beginning of a batch at the end of the log, as a power failure does.
func tear(t *testing.T, dir string) {
	t.Helper()
	segment := onlySegment(t, dir)
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	end := walPadded(len(bytes.TrimRight(data, "\x00")))
	copy(data[end:], []byte{walEntry, 0, 0, 0, 200, 0, 0, 0, 1, 2, 3})
	if err := os.WriteFile(segment, data, fileMode); err != nil {
		t.Fatal(err)
	}
}

// found is what a data directory holds.
type found struct {
	Contents Contents
	Batches  []string
	Values   map[string][]byte
	Version  dirVersion
}

// look reads a data directory to the end, without writing. Its machine knows each level.
func look(dir string) (f found, err error) {
	machine := newToy()
	m := struct {
		*toy
		knows
	}{machine, markedLevel}
	o, err := OpenOffline(dir, m, slog.New(slog.DiscardHandler))
	if err != nil {
		return f, err
	}
	defer o.Close()
	if f.Contents, err = o.Contents(); err == nil {
		err = o.Replay(0, nil)
	}
	f.Batches, f.Values, f.Version = machine.batches(), o.stores.stable.values, o.version
	return f, err
}

// tree returns the bytes of all files.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Each bit of each file of a stopped node is changed in turn. Either it holds what it held, or it
// is refused in one line.
func TestEachBitOfADataDirectory(t *testing.T) {
	detector.Skip(t)
	dir := stoppedNode(t)
	before := filesOf(t, dir)
	want, err := look(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Batches) != 20 {
		t.Fatalf("%+v", want)
	}
	from := logdisk.FirstBit(t)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if base := filepath.Base(name); base == stableName || base == walMetaName {
			continue // of earlier releases
		}
		path := filepath.Join(dir, name)
		data := []byte(before[name])
		refused, tried := 0, 0
		began := time.Now()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, bit := range logdisk.Bits(before[name], from) {
			at := int64(bit / 8)
			if _, err := f.WriteAt([]byte{data[at] ^ 1<<(bit%8)}, at); err != nil {
				t.Fatal(err)
			}
			got, err := look(dir)
			tried++
			if err != nil {
				refused++
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("bit %d of byte %d of %s: %q", bit%8, at, name, err)
				}
			} else if !reflect.DeepEqual(got, want) {
				a, _ := json.Marshal(got)
				b, _ := json.Marshal(want)
				t.Errorf("bit %d of byte %d of %s: %s, not %s", bit%8, at, name, a, b)
			}
			if _, err := f.WriteAt(data[at:at+1], at); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bits tried in %v, %d are found", name, tried, time.Since(began), refused)
	}
	if after := filesOf(t, dir); !maps.Equal(before, after) {
		t.Error("looking has changed the directory")
	}
}
