// Tests of the guard before the stores: feature levels that are recorded, and those that are
// refused.

package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
)

// knows is a machine that knows levels up to its own number. An entry is its level, a byte; a
// snapshot begins with one.
type knows uint64

var errTooNew = errors.New("too new")

func (k knows) Level() uint64 { return 1 }

func (k knows) KnownLevel() uint64 { return uint64(k) }

func (k knows) CheckLevel(what string, level uint64) error {
	if level > uint64(k) {
		return fmt.Errorf("%w: %s has %d", errTooNew, what, level)
	}
	return nil
}

func (k knows) AppendRaise(dst []byte, _, _ int64, level uint64) []byte {
	return append(dst, byte(level))
}

func (k knows) EntryLevel(data []byte) uint64 { return uint64(data[0]) }

func (k knows) SnapshotLevel(head []byte) uint64 {
	if len(head) == 0 {
		return 0
	}
	return uint64(head[0])
}

func (k knows) SnapshotHead() int { return 4 }

// guarded creates a data directory and its guard.
func guarded(t *testing.T, known knows) (g *levelGuard, fatal *[]error) {
	dir := t.TempDir()
	noted, err := prepareDir(dir, "n1", LogStoreWAL, known)
	if err != nil || noted != 1 {
		t.Fatal(noted, err)
	}
	fatal = new([]error)
	return &levelGuard{levels: known, dir: dir, noted: noted, fatal: func(err error) {
		*fatal = append(*fatal, err)
	}}, fatal
}

// watched is a log store that reads the version file whenever it stores.
type watched struct {
	*raft.InmemStore
	dir    string
	levels []uint64
}

func (w *watched) StoreLogs(logs []*raft.Log) error {
	v, err := readVersion(w.dir)
	w.levels = append(w.levels, v.level)
	return errors.Join(err, w.InmemStore.StoreLogs(logs))
}

func TestLevelIsNotedBeforeTheLog(t *testing.T) {
	g, fatal := guarded(t, 5)
	inner := &watched{InmemStore: raft.NewInmemStore(), dir: g.dir}
	s := newLogStore(inner, newArrivals(clock.System{}, newToy().EntryClock),
		func() int64 {
			return 0
		})
	s.guard = g
	entries := []byte{0, 3, 2, 5}
	for i, level := range entries {
		if err := s.StoreLog(&raft.Log{Index: uint64(i + 1), Type: raft.LogCommand,
			Data: []byte{level}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.StoreLog(&raft.Log{Index: 5, Type: raft.LogConfiguration,
		Data: []byte{200}}); err != nil {
		t.Errorf("a configuration was taken for an entry with a level: %v", err)
	}
	if got := fmt.Sprint(inner.levels); got != "[1 3 3 5 5]" || len(*fatal) > 0 {
		t.Errorf("noted %s, want [1 3 3 5 5]; %v", got, *fatal)
	}
	err := s.StoreLogs([]*raft.Log{{Index: 6, Type: raft.LogCommand, Data: []byte{0}},
		{Index: 7, Type: raft.LogCommand, Data: []byte{6}}})
	if !errors.Is(err, errTooNew) || len(*fatal) != 1 ||
		(*fatal)[0].Error() != "too new: log entry 7 has 6" {
		t.Errorf("an unknown level: %v, %v", err, *fatal)
	}
	if last, _ := s.LastIndex(); last != 5 {
		t.Errorf("the log ends at %d: entries were stored beside one that is refused", last)
	}
	for known, want := range map[knows]string{5: "",
		4: "too new: data directory " + g.dir + " has 5"} {
		before := tree(t, g.dir)
		level, err := prepareDir(g.dir, "n1", LogStoreWAL, known)
		if got := fmt.Sprint(err); level != 5 || (err == nil) != (want == "") || err != nil &&
			got != want {
			t.Errorf("opened by one that knows %d: %d %v", known, level, err)
		}
		if fmt.Sprint(before) != fmt.Sprint(tree(t, g.dir)) {
			t.Error("the directory was changed")
		}
	}
}

// A directory gets no level that demands the mark of its log before there is the mark.
func TestLevelWaitsForTheMark(t *testing.T) {
	g, _ := guarded(t, markedLevel)
	was := g.noted
	g.marked = func() error { return syscall.ENOSPC }
	if err := g.pass("an entry", markedLevel); !errors.Is(err, syscall.ENOSPC) || g.noted != was {
		t.Errorf("the level is noted as %d, %v", g.noted, err)
	}
}

func TestLevelOfSnapshots(t *testing.T) {
	g, fatal := guarded(t, 5)
	logger := slog.New(slog.DiscardHandler)
	files := &snapshotFiles{filepath.Join(g.dir, snapshotsName), logger}
	if err := makeDir(files.dir); err != nil {
		t.Fatal(err)
	}
	s, err := newSnapshotStore(files, raft.NewInmemStore(), g.dir, logger)
	if err != nil {
		t.Fatal(err)
	}
	s.guard = g
	_, trans := raft.NewInmemTransport("")
	defer trans.Close()
	write := func(index uint64, parts ...string) error {
		sink, err := s.Create(1, index, 1, raft.Configuration{}, 1, trans)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if _, err := sink.Write([]byte(p)); err != nil {
				return errors.Join(err, sink.Cancel())
			}
		}
		return sink.Close()
	}
	for i, parts := range [][]string{{"\x02, at once"}, {"\x03", "in", " parts"}, {"\x04"}} {
		if err := write(uint64(i+1), parts...); err != nil {
			t.Fatal(err)
		}
		if v, err := readVersion(g.dir); err != nil || v.level != uint64(i+2) {
			t.Errorf("after a snapshot of level %d: %+v %v", i+2, v, err)
		}
	}
	for _, parts := range [][]string{{"\x06, at once"}, {"\x06", "in", " parts"}, {"\x06"}} {
		*fatal = nil
		if err := write(9, parts...); !errors.Is(err, errTooNew) || len(*fatal) != 1 {
			t.Errorf("%q: %v, %v", parts, err, *fatal)
		}
	}
	list, err := files.List()
	if err != nil || len(list) != 2 || list[0].Index != 3 {
		t.Errorf("%d snapshots are there, %v", len(list), err)
	}
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d snapshots are still being written", n)
	}
}

func TestVersionFileWithLevel(t *testing.T) {
	v := dirVersion{format: dataFormat, node: "n1", logStore: LogStoreBolt, level: 2}
	text := string(v.encode())
	if !strings.Contains(text, "log-store: bolt\nlevel: 2\nchecksum: ") {
		t.Errorf("%q", text)
	}
	if got, err := decodeVersion([]byte(text), "d"); err != nil || got != v {
		t.Errorf("%+v %v", got, err)
	}
	for _, level := range []string{"1", "0", "x", "-2", "2x", "2\nlevel: 3"} {
		damaged := strings.Replace(text, "level: 2", "level: "+level, 1)
		if got, err := decodeVersion([]byte(damaged), "d"); err == nil {
			t.Errorf("level %q is read as %+v", level, got)
		}
	}
	dir := t.TempDir()
	if err := noteLevel(dir, 2); !os.IsNotExist(err) {
		t.Errorf("a level was noted in no data directory: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Errorf("%v was made", files)
	}
}
