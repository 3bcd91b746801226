// Tests of the log store's cache and of data directories.

package cluster

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/wait"
)

func TestLogCacheAgreesWithTheStore(t *testing.T) {
	inner := raft.NewInmemStore()
	s := newLogStore(inner, newArrivals(clock.System{}, newToy().EntryClock),
		func() int64 {
			return 0
		})
	next := uint64(1)
	add := func(n, size int) {
		t.Helper()
		var logs []*raft.Log
		for range n {
			logs = append(logs, &raft.Log{Index: next, Term: 1, Data: make([]byte, size)})
			next++
		}
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		bytes := 0
		for _, l := range s.ring {
			bytes += len(l.Data)
		}
		if bytes != s.bytes || bytes > cacheBytes {
			t.Errorf("%s: %d bytes cached, counted as %d", what, bytes, s.bytes)
		}
		for i := uint64(0); i <= next; i++ {
			var a, b raft.Log
			errA, errB := s.GetLog(i, &a), inner.GetLog(i, &b)
			if errA != errB || a.Index != b.Index || len(a.Data) != len(b.Data) {
				t.Fatalf("%s: entry %d is %d %v in the cache and %d %v in the store", what, i,
					a.Index, errA, b.Index, errB)
			}
		}
	}
	add(cacheEntries+100, 10)
	check("more entries than the cache holds")
	add(100, 1<<20)
	check("more bytes than the cache holds")
	if err := s.DeleteRange(next-10, next-1); err != nil {
		t.Fatal(err)
	}
	next -= 10
	check("a cut suffix")
	add(5, 20)
	check("a new suffix")
	if err := s.DeleteRange(1, 100); err != nil {
		t.Fatal(err)
	}
	check("a cut prefix")
}

// forgetful keeps no entries.
type forgetful struct{ raft.LogStore }

func (forgetful) StoreLogs([]*raft.Log) error { return nil }

// TestCacheKeepsNoReplies stores entries as Raft hands them over: as a part of what has their
// replies.
func TestCacheKeepsNoReplies(t *testing.T) {
	s := newLogStore(forgetful{raft.NewInmemStore()},
		newArrivals(clock.System{}, newToy().EntryClock),
		func() int64 { return 0 })
	freed := make(chan uint64, 1)
	func() {
		future := &struct {
			log     raft.Log
			replies []byte
		}{raft.Log{Index: 1, Data: []byte("request")}, make([]byte, 1<<20)}
		runtime.AddCleanup(future, func(index uint64) { freed <- index }, 1)
		if err := s.StoreLogs([]*raft.Log{&future.log}); err != nil {
			t.Fatal(err)
		}
	}()
	wait.For(t, 10*time.Second, "the replies are let go", func() bool {
		runtime.GC()
		return len(freed) > 0
	})
	var l raft.Log
	if err := s.GetLog(1, &l); err != nil || string(l.Data) != "request" {
		t.Error(l, err)
	}
}

func TestLastVisible(t *testing.T) {
	s := newLogStore(raft.NewInmemStore(),
		newArrivals(clock.System{}, newToy().EntryClock), func() int64 { return 0 })
	kinds := []raft.LogType{raft.LogConfiguration, raft.LogNoop, raft.LogBarrier, raft.LogCommand,
		raft.LogNoop, raft.LogBarrier}
	for i, kind := range kinds {
		if err := s.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Type: kind,
			Data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
	}
	for index, want := range []uint64{0, 1, 1, 1, 4, 4, 4} {
		if got := s.lastVisible(uint64(index)); got != want {
			t.Errorf("lastVisible(%d) = %d, want %d", index, got, want)
		}
	}
	if err := s.DeleteRange(5, 6); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(&raft.Log{Index: 5, Term: 2, Data: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if got := s.lastVisible(5); got != 5 {
		t.Errorf("lastVisible(5) = %d after another entry took its place", got)
	}
}

// TestLastVisibleOfRandomLogs compares what a log remembers of its newest entries, cut off at the
// end and begun, and what one that is opened finds, with the entries.
func TestLastVisibleOfRandomLogs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 1))
	opened := func(inner raft.LogStore) *logStore {
		return newLogStore(inner, newArrivals(clock.System{}, newToy().EntryClock),
			func() int64 { return 0 })
	}
	for range 300 {
		inner := raft.NewInmemStore()
		s := opened(inner)
		var kinds []raft.LogType // of the entries from 1 on
		for range rnd.IntN(40) {
			last := uint64(len(kinds))
			if last > 0 && rnd.IntN(4) == 0 {
				low := last - rnd.Uint64N(min(last, 5))
				if err := s.DeleteRange(low, last); err != nil {
					t.Fatal(err)
				}
				kinds = kinds[:low-1]
				continue
			}
			kind := []raft.LogType{raft.LogCommand, raft.LogNoop, raft.LogBarrier}[rnd.IntN(3)]
			kinds = append(kinds, kind)
			if err := s.StoreLog(&raft.Log{Index: last + 1, Type: kind}); err != nil {
				t.Fatal(err)
			}
		}
		again := opened(inner)
		if _, err := again.survey(); err != nil {
			t.Fatal(err)
		}
		last := uint64(len(kinds))
		for index := range last + 1 {
			want := index
			for want > 0 && kinds[want-1] != raft.LogCommand {
				want--
			}
			if got := s.lastVisible(index); got != want {
				t.Fatalf("%v: lastVisible(%d) = %d, want %d", kinds, index, got, want)
			}
			if got := again.lastVisible(index); index == last && got != want {
				t.Fatalf("%v, opened: lastVisible(%d) = %d, want %d", kinds, index, got, want)
			}
		}
	}
}

// TestBytesThatLast compares the version file and the entry mark with those of the first release.
func TestBytesThatLast(t *testing.T) {
	const version = "coordd data directory\nformat: 1\nnode: n1\nlog-store: wal\nchecksum: " +
		"eadb4933\n"
	v := dirVersion{format: 1, node: "n1", logStore: LogStoreWAL, level: 1}
	if got := string(v.encode()); got != version {
		t.Errorf("version file %q, want %q", got, version)
	}
	if got, err := decodeVersion([]byte(version), "d"); err != nil || got != v {
		t.Errorf("the version file was read as %+v, %v", got, err)
	}
	if got := appendMark(nil, 0x0102); string(got) != "\x01\x02\x01\x00\x00\x00\x00\x00\x00" {
		t.Errorf("entry mark %x", got)
	}
}

// tree returns the names and contents of all files under dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestDataDirectoryRefusals(t *testing.T) {
	made := t.TempDir()
	n, err := Open(Config{ID: "n1", DataDir: made}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{ID: "n1", DataDir: made}, newToy()); err == nil ||
		!strings.Contains(err.Error(), "is in use by another process") {
		t.Errorf("a directory in use: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	version, err := os.ReadFile(filepath.Join(made, versionName))
	if err != nil {
		t.Fatal(err)
	}
	edit := func(from, to string) func(string) {
		return func(dir string) {
			changed := strings.Replace(string(version), from, to, 1)
			if changed == string(version) {
				t.Fatalf("%q is not in the version file", from)
			}
			if err := os.WriteFile(filepath.Join(dir, versionName), []byte(changed),
				0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(dir string)
		cfg    Config
		want   string
	}{
		{"another node", nil, Config{ID: "n2"}, `belongs to node "n1", not to "n2"`},
		{"another log store", nil, Config{ID: "n1", LogStore: LogStoreBolt},
			`uses log store "wal", not "bolt"`},
		{"a newer format", edit("format: 1", "format: 2"), Config{ID: "n1"},
			"has format 2; this version of coordd reads format 1"},
		{"a changed id", edit("node: n1", "node: n2"), Config{ID: "n2"},
			"has a corrupt VERSION file"},
		{"a cut file", edit("\nchecksum", ""), Config{ID: "n1"}, "has a corrupt VERSION file"},
		{"an empty file", edit(string(version), ""), Config{ID: "n1"},
			"has a corrupt VERSION file"},
		{"no version file", func(dir string) {
			os.Remove(filepath.Join(dir, versionName))
		}, Config{ID: "n1"}, "but no VERSION file: its node is unknown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(dir)
			}
			before := tree(t, dir)
			test.cfg.DataDir = dir
			n, err := Open(test.cfg, newToy())
			if err == nil {
				n.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want %q in one line", err, test.want)
			}
			after := tree(t, dir)
			if len(before) != len(after) {
				t.Errorf("%d files before, %d after", len(before), len(after))
			}
			for path, data := range before {
				if after[path] != data {
					t.Errorf("%s was changed", path)
				}
			}
		})
	}
}

// Opening removes snapshots that a killed process left unfinished; complete ones stay.
func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d[1]*")
	n, err := Open(Config{ID: "n1", DataDir: dir}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready", func() bool { return n.Status().Ready })
	if _, err := n.write(context.Background(), []byte("a"), 1); err != nil {
		t.Error(err)
	}
	if err := errors.Join(n.Snapshot(), n.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadDir(filepath.Join(dir, snapshotsName))
	if err != nil || len(whole) != 1 {
		t.Fatal(whole, err)
	}
	begun := filepath.Join(dir, snapshotsName, "2-9-1790000000000.tmp")
	if err := errors.Join(os.Mkdir(begun, dirMode),
		os.WriteFile(filepath.Join(begun, "state.bin"), make([]byte, 1<<20),
			fileMode)); err != nil {
		t.Fatal(err)
	}
	if n, err = Open(Config{ID: "n1", DataDir: dir}, newToy()); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	left, err := os.ReadDir(filepath.Join(dir, snapshotsName))
	if err != nil || len(left) != 1 || left[0].Name() != whole[0].Name() {
		t.Error(left, err)
	}
}

// A new store appears under its name when it is complete: power may fail at any time, and bbolt
// never opens a partial file.
func TestStoresAppearWhole(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		path := filepath.Join(dir, stableName)
		seen := make(chan int64)
		go func() {
			for {
				if info, err := os.Stat(path); err == nil {
					seen <- info.Size()
					return
				}
			}
		}()
		store, err := makeBolt(path)
		if err != nil {
			t.Fatal(err)
		}
		size := received(t, "its name", seen)
		if size < int64(4*os.Getpagesize()) { // what bbolt begins with
			t.Fatalf("%s had %d bytes when it appeared", stableName, size)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Error(left, err)
		}
	}
}

// refusingStable is a stable store whose writes fail.
type refusingStable struct{ raft.StableStore }

func (refusingStable) Set([]byte, []byte) error { return syscall.EIO }

// A term or vote that cannot be written ends the process with a reason. Raft reports one that
// cannot be read.
func TestTermThatCannotBeWrittenEndsTheProcess(t *testing.T) {
	var ended []error
	s := stableStore{earlier: refusingStable{}, level: fresh,
		fatal: func(err error) { ended = append(ended, err) }, values: map[string][]byte{}}
	for _, err := range []error{s.Set([]byte("LastVoteCand"), nil),
		s.SetUint64([]byte("CurrentTerm"), 8)} {
		if !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	}
	for _, err := range ended {
		if got := err.Error(); got != "cannot write Raft's term or vote: input/output error" {
			t.Error(got)
		}
	}
	if len(ended) != 2 {
		t.Error(ended)
	}
}

// The error for an unreadable store names it and its directory.
func TestUnreadableStore(t *testing.T) {
	dir := t.TempDir()
	n, err := Open(Config{ID: "n1", DataDir: dir}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, stableName), make([]byte, 64<<10),
		fileMode); err != nil {
		t.Fatal(err)
	}
	want := "cannot open " + stableName + " in data directory " + dir + ": "
	if n, err := Open(Config{ID: "n1", DataDir: dir}, newToy()); err == nil {
		n.Close()
		t.Error("it was opened")
	} else if !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestConfigRefusals(t *testing.T) {
	members := []Member{{"n1", "127.0.0.1:1"}, {"n2", "127.0.0.1:2"}}
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, `invalid node id ""`},
		{Config{ID: "a b"}, `invalid node id "a b"`},
		{Config{ID: strings.Repeat("x", maxWordLen+1)}, "invalid node id"},
		{Config{ID: "n1", LogStore: "tape"}, `unknown log store "tape"`},
		{Config{ID: "n3", Members: members}, `this node, "n3", is not among the members`},
		{Config{ID: "n1", Members: append(members, members[1])}, `member "n2" is named twice`},
		{Config{ID: "n1", Members: []Member{{"n1", "host"}}}, "must be host:port"},
		{Config{ID: "n1", Members: []Member{{"n1", "h:1"}, {"n2", "h:1"}}},
			"have the same peer address"},
		{Config{ID: "n1", HeartbeatTimeout: 1}, "is too short"},
		{Config{ID: "n1", ReplyWait: -1}, "is negative"},
		{Config{ID: "n1", PeerListen: "256.0.0.1:1"}, "cannot listen on the peer port"},
	} {
		test.cfg.DataDir = t.TempDir()
		if n, err := Open(test.cfg, newToy()); err == nil {
			n.Close()
			t.Errorf("%+v was opened", test.cfg)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %q, want %q", err, test.want)
		}
	}
	if _, err := Open(Config{ID: "n1"}, newToy()); err == nil ||
		!strings.Contains(err.Error(), "no data directory is configured") {
		t.Errorf("no data directory: %v", err)
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "Z", "0", "n-1.dc_2", strings.Repeat("x", 64)} {
		if err := CheckID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "a:b", "a b", "ä", "a/b", "a\n", strings.Repeat("x", 65)} {
		if CheckID(id) == nil {
			t.Errorf("%q is an id", id)
		}
	}
}

// An entry whose bytes have changed on the disk of a node that runs ends the node: it is neither
// sent nor applied.
func TestChangedEntryEndsTheNode(t *testing.T) {
	dir := t.TempDir()
	log, err := openLog(dir, LogStoreWAL, fresh, testLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := newLogStore(log, &arrivals{}, nil)
	var ended error
	s.fatal = func(err error) { ended = err }
	for i := range uint64(5) {
		err := log.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: []byte("an entry")})
		if err != nil {
			t.Fatal(err)
		}
	}
	segment := onlySegment(t, dir)
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.LastIndex(data, []byte("an entry"))] ^= 1
	if err := os.WriteFile(segment, data, fileMode); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := s.GetLog(4, &l); err != nil || ended != nil {
		t.Error(err, ended)
	}
	err = s.GetLog(5, &l)
	if !errors.Is(err, disk.ErrDamaged) || !errors.Is(ended, disk.ErrDamaged) {
		t.Errorf("%v, the node ends with %v", err, ended)
	}
}

// Entries that the guard refuses in place of an earlier leader's, which were cut off, end the
// process: Raft still counts those.
func TestRefusalAfterACutEndsTheProcess(t *testing.T) {
	s, _, ended := guardedLog(t)
	g, _ := guarded(t, 3)
	s.guard = g
	if err := s.DeleteRange(8, 10); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(g.dir, g.dir+".away"); err != nil { // no level can be noted
		t.Fatal(err)
	}
	err := s.StoreLogs([]*raft.Log{{Index: 8, Term: 2, Type: raft.LogNoop},
		{Index: 9, Term: 2, Data: []byte{3}}})
	if err == nil || ended() == nil {
		t.Errorf("the process goes on: %v", err)
	}
}

// choosy is a log that takes no entry of more than ten bytes.
type choosy struct{ *raft.InmemStore }

func (choosy) Takes(l *raft.Log) error {
	if len(l.Data) > 10 {
		return errors.New("it is too large")
	}
	return nil
}

// An entry that the log does not take is no failure of the log: the next one is stored.
func TestEntriesThatTheLogDoesNotTake(t *testing.T) {
	store := newLogStore(choosy{raft.NewInmemStore()}, newArrivals(clock.System{}, nil),
		func() int64 { return 0 })
	small, large := &raft.Log{Index: 1, Type: raft.LogNoop, Data: make([]byte, 10)},
		&raft.Log{Index: 2, Type: raft.LogNoop, Data: make([]byte, 11)}
	if err := store.StoreLogs([]*raft.Log{small, large}); err == nil {
		t.Fatal("it was stored")
	}
	if store.storeFailure.Load() != nil {
		t.Fatal("it counts as a failure of the log")
	}
	if err := store.StoreLog(small); err != nil {
		t.Fatal(err)
	}
}
