// Tests of what a node does when its log fails.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/internal/tests/logdisk"
)

// refusingLog is a log store that fails while an error is set.
type refusingLog struct {
	raft.LogStore
	cuts, stores *atomic.Pointer[error]
}

func (s refusingLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s refusingLog) StoreLogs(logs []*raft.Log) error {
	if err := s.stores.Load(); err != nil {
		return *err
	}
	return s.LogStore.StoreLogs(logs)
}

func (s refusingLog) DeleteRange(low, high uint64) error {
	if err := s.cuts.Load(); err != nil {
		return *err
	}
	return s.LogStore.DeleteRange(low, high)
}

func (s refusingLog) IsMonotonic() bool { return true }

// guardedLog returns a log store of ten entries that can be made to fail, and the error that ended
// the process.
func guardedLog(t *testing.T) (s *logStore, refuse refusingLog, ended func() error) {
	t.Helper()
	refuse = refusingLog{raft.NewInmemStore(), &atomic.Pointer[error]{}, &atomic.Pointer[error]{}}
	s = newLogStore(refuse, newArrivals(clock.System{}, newToy().EntryClock),
		func() int64 {
			return 0
		})
	var fatal error
	s.fatal = func(err error) { fatal = err }
	for i := range uint64(10) {
		if err := s.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	return s, refuse, func() error { return fatal }
}

var errFull error = syscall.ENOSPC

// If the end of the log cannot be truncated or replaced, the process ends, and nothing more is
// stored. Other failures do not end it.
func TestFailedCutEndsTheProcess(t *testing.T) {
	next := func(s *logStore, index uint64) error {
		return s.StoreLog(&raft.Log{Index: index, Term: 2, Data: []byte("y")})
	}
	for _, test := range []struct {
		name string
		run  func(s *logStore, refuse refusingLog) error
		ends string
	}{
		{"a cut that fails", func(s *logStore, refuse refusingLog) error {
			refuse.cuts.Store(&errFull)
			return s.DeleteRange(8, 10)
		}, "cannot truncate entries 8 to 10"},
		{"an entry behind a cut", func(s *logStore, refuse refusingLog) error {
			if err := s.DeleteRange(8, 10); err != nil {
				return err
			}
			refuse.stores.Store(&errFull)
			return next(s, 8)
		}, "cannot store entries 8 to 8 in place of an earlier leader's"},
		{"an entry behind one behind a cut", func(s *logStore, refuse refusingLog) error {
			if err := errors.Join(s.DeleteRange(8, 10), next(s, 8)); err != nil {
				return nil
			}
			refuse.stores.Store(&errFull)
			return next(s, 9)
		}, ""},
		{"an entry", func(s *logStore, refuse refusingLog) error {
			refuse.stores.Store(&errFull)
			return next(s, 11)
		}, ""},
		{"the beginning", func(s *logStore, refuse refusingLog) error {
			s.trailing = 1
			refuse.cuts.Store(&errFull)
			return s.DeleteRange(1, 9)
		}, ""},
		{"a snapshot in the place of a log that went further",
			func(s *logStore, refuse refusingLog) error {
				s.covered = func() uint64 { return 9 }
				return s.DeleteRange(1, 10)
			}, "to entry 10"},
		{"a log that takes no entry for long", func(s *logStore, refuse refusingLog) error {
			broken := error(syscall.EIO)
			refuse.stores.Store(&broken)
			s.failWait = 0
			return errors.Join(next(s, 11), next(s, 11))
		}, "no log entry could be stored for"},
		{"a log that a snapshot took the place of, and that cannot be dropped for long",
			func(s *logStore, refuse refusingLog) error {
				broken := error(syscall.EIO)
				refuse.cuts.Store(&broken)
				s.covered, s.failWait = func() uint64 { return 100 }, 0
				return errors.Join(next(s, 101), next(s, 101))
			}, "no log entry could be stored for"},
		{"a disk that is full for long", func(s *logStore, refuse refusingLog) error {
			refuse.stores.Store(&errFull)
			s.failWait = 0
			return errors.Join(next(s, 11), next(s, 11))
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, refuse, ended := guardedLog(t)
			if err := test.run(s, refuse); err == nil {
				t.Fatal("it was not refused")
			}
			refuse.cuts.Store(nil)
			refuse.stores.Store(nil)
			last, err := s.LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			err = next(s, last+1)
			if test.ends == "" {
				if ended() != nil || err != nil {
					t.Errorf("the process ended with %v; the next entry: %v", ended(), err)
				}
				return
			}
			if ended() == nil || !strings.Contains(ended().Error(), test.ends) ||
				strings.Contains(ended().Error(), "\n") {
				t.Errorf("the process ended with %v, want %q", ended(), test.ends)
			}
			if err == nil {
				t.Error("another entry was stored")
			}
		})
	}
}

// A log that begins after a snapshot, with an entry that another leader replaces, is replaced like
// any other: the process continues unless that fails.
func TestWholeLogIsReplaced(t *testing.T) {
	for _, test := range []struct {
		name         string
		cuts, stores *error
		ends         string
	}{
		{"it is replaced", nil, nil, ""},
		{"it cannot be cut off", &errFull, nil,
			"cannot truncate entries 1 to 10 of an earlier leader"},
		{"nothing can be stored in its place", nil, &errFull,
			"cannot store entries 1 to 1 in place of an earlier leader's"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, refuse, ended := guardedLog(t)
			// the snapshot of a cluster that was restored, say, and entries behind it
			s.covered = func() uint64 { return 0 }
			refuse.cuts.Store(test.cuts)
			refuse.stores.Store(test.stores)
			err := s.DeleteRange(1, 10)
			if err == nil {
				err = s.StoreLog(&raft.Log{Index: 1, Term: 2, Data: []byte("y")})
			}
			if test.ends == "" {
				if err != nil || ended() != nil {
					t.Errorf("%v; the process ended with %v", err, ended())
				}
				return
			}
			if err == nil || ended() == nil || !strings.Contains(ended().Error(), test.ends) {
				t.Errorf("%v; the process ended with %v", err, ended())
			}
		})
	}
}

// If the process is killed, or dropping the log fails, when a snapshot arrives, the log ends before
// the snapshot. The next entry is stored all the same.
func TestLogGoesOnBehindASnapshot(t *testing.T) {
	d := logdisk.New(-1)
	log, err := openOnDisk(d, logdisk.Segment)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := newLogStore(log, newArrivals(clock.System{}, newToy().EntryClock),
		func() int64 {
			return 0
		})
	snapshot := uint64(0)
	s.covered = func() uint64 { return snapshot }
	if err := s.StoreLogs(logdisk.Entries(1, "a", 10, 10, 10, 10, 10)); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLogs(logdisk.Entries(101, "b", 10)); err == nil {
		t.Fatal("the log has a gap that no snapshot covers")
	}
	snapshot = 100
	if err := s.StoreLogs(logdisk.Entries(101, "b", 10, 10)); err != nil {
		t.Fatal(err)
	}
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if first != 101 || last != 102 || err1 != nil || err2 != nil {
		t.Errorf("the log has entries %d to %d, %v, %v", first, last, err1, err2)
	}
}

// A deposed leader cannot truncate an entry that no other node has. It never applies that entry,
// however often its successor sends its own, and it follows after a restart.
func TestDivergentEntryIsNeverApplied(t *testing.T) {
	simulated(t, func(t *testing.T) {
		cuts, stores := map[string]*atomic.Pointer[error]{}, &atomic.Pointer[error]{}
		fatal := map[string]*atomic.Pointer[error]{}
		for _, id := range []string{"n1", "n2", "n3"} {
			cuts[id], fatal[id] = &atomic.Pointer[error]{}, &atomic.Pointer[error]{}
		}
		c := newCluster(t, 3, func(cfg *Config) {
			refuse, told := cuts[cfg.ID], fatal[cfg.ID]
			cfg.wrapLog = func(s raft.LogStore) raft.LogStore {
				return refusingLog{s, refuse, stores}
			}
			cfg.Fatal = func(err error) { told.Store(&err) }
			// a refusal later the leader sends what comes before the divergent entry
			cfg.tuneRaft = func(rc *raft.Config) { rc.MaxAppendEntries = 1 }
		})
		old := c.leader()
		c.write(old, "before")
		eventually(t, "all of its log is committed", func() bool {
			return old.raft.LastIndex() == old.raft.CommitIndex()
		})
		cuts[old.cfg.ID].Store(&errFull)
		c.net.isolate(old.cfg.ID)
		last := old.raft.LastIndex()
		if _, err := old.write(context.Background(), []byte("divergent"), 1); !errors.Is(err,
			ErrUnknown) || old.raft.LastIndex() == last {
			t.Fatalf("no entry is in its log alone: %v", err)
		}
		lead := c.leader()
		for i := range 20 {
			c.write(lead, fmt.Sprint(i))
		}
		c.net.heal(old.cfg.ID)
		eventually(t, "the process would have ended", func() bool {
			return fatal[old.cfg.ID].Load() != nil
		})
		contact := old.raft.LastContact()
		for i := range 100 { // Raft would go on: with each refusal the leader sends earlier entries
			c.write(lead, fmt.Sprint(20+i))
		}
		eventually(t, "it still hears the leader", func() bool {
			return old.raft.LastContact().After(contact)
		})
		if got := c.toys[old.cfg.ID].Read(nil, []byte("divergent"), 0, 0, nil,
			false); string(got) != "0" {
			t.Errorf("the divergent entry was applied: %q", got)
		}
		c.close(old.cfg.ID)
		cuts[old.cfg.ID].Store(nil)
		c.reopen(old.cfg.ID)
		for _, g := range c.converged() {
			if g == "divergent" {
				t.Error("the divergent entry was applied")
			}
		}
	})
}

// refusingCluster is a cluster of three whose logs can be made to refuse entries.
func refusingCluster(t *testing.T) (*testCluster, map[string]*atomic.Pointer[error]) {
	stores := map[string]*atomic.Pointer[error]{}
	return newCluster(t, 3, func(cfg *Config) {
		refuse := &atomic.Pointer[error]{}
		stores[cfg.ID] = refuse
		cfg.wrapLog = func(s raft.LogStore) raft.LogStore {
			return refusingLog{s, &atomic.Pointer[error]{}, refuse}
		}
	}), stores
}

// A member whose log refuses entries reports so at once, and lets others lead.
func TestNodeThatRefusesStandsBack(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, stores := refusingCluster(t)
		lead, other := c.leader(), c.followers()[1]
		full := c.followers()[0] // would look first whether the leader is silent
		if why := full.Status().LogTrouble; why != "" || !full.fitToLead() {
			t.Errorf("it may stand: %t, trouble: %q", full.fitToLead(), why)
		}
		stores[full.cfg.ID].Store(&errFull)
		eventually(t, "the other one has as much", func() bool {
			return other.raft.LastIndex() >= full.raft.LastIndex()
		})
		c.net.isolate(other.cfg.ID)
		written := make(chan error, 1)
		go func() {
			_, err := lead.write(context.Background(), []byte("nobody stores it"), 1)
			written <- err
		}()
		eventually(t, "it says what is wrong", func() bool {
			return strings.Contains(full.Status().LogTrouble,
				"it cannot store log entries: no space left")
		})
		if full.fitToLead() {
			t.Error("it would ask for votes")
		}
		var led atomic.Bool
		full.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
			if o.Data == raft.Leader {
				led.Store(true)
			}
			return false
		}))
		c.net.isolate(lead.cfg.ID)
		c.net.heal(other.cfg.ID)
		eventually(t, "the other one leads",
			func() bool { return other.raft.State() == raft.Leader })
		if led.Load() {
			t.Error("it has led")
		}
		stores[full.cfg.ID].Store(nil)
		eventually(t, "it stores what it is sent", func() bool {
			return full.Status().LogTrouble == "" && full.fitToLead()
		})
		if err := <-written; !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		c.write(c.leader(), "after")
	})
}

// If all members refuse, one of them tries again in the end: the cluster continues by itself when
// there is room.
func TestClusterWithoutRoomGoesOn(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, stores := refusingCluster(t)
		c.write(c.leader(), "before")
		c.converged() // each of them can be elected
		for _, refuse := range stores {
			refuse.Store(&errFull)
		}
		if _, err := c.leader().write(context.Background(), []byte("no room"), 1); err == nil {
			t.Error("it was written")
		}
		eventually(t, "all have refused", func() bool {
			for _, n := range c.nodes {
				if n.Status().LogTrouble == "" {
					return false
				}
			}
			return true
		})
		for _, refuse := range stores {
			refuse.Store(nil)
		}
		c.write(c.leader(), "after")
		for id, n := range c.nodes {
			eventually(t, id+" has no trouble", func() bool { return n.Status().LogTrouble == "" })
		}
	})
}

// testTransport is the transport of a node that does not run.
func testTransport() *transport {
	return &transport{n: &Node{setup: setup{logs: newLogStore(nil, nil, nil)}}}
}

// A message announces no commit index past its own last entry, and none that is not durable here.
func TestCommitIndexIsThatOfTheMessage(t *testing.T) {
	tr := testTransport()
	for _, test := range []struct{ prev, entries, deferred, commit, want uint64 }{
		{10, 8, 0, 5, 5}, {10, 8, 0, 18, 18}, {10, 8, 0, 19, 18}, {10, 0, 0, 12, 10},
		{0, 0, 0, 0, 0}, {0, 0, 0, 7, 0}, {10, 8, 18, 18, 17}, {10, 8, 12, 18, 11},
		{10, 8, 12, 10, 10}, {10, 8, 19, 18, 18},
	} {
		tr.n.logs.deferred.first.Store(test.deferred)
		req := &raft.AppendEntriesRequest{PrevLogEntry: test.prev,
			Entries: make([]*raft.Log, test.entries), LeaderCommitIndex: test.commit}
		if got := tr.verified(req); got.LeaderCommitIndex != test.want ||
			req.LeaderCommitIndex != test.commit {
			t.Errorf("%+v: %d, and %d in Raft's own", test, got.LeaderCommitIndex,
				req.LeaderCommitIndex)
		}
	}
}

// Only its own user can read what a node writes, including older files, whatever the umask.
func TestDataDirectoryIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "data")
	for _, kind := range []string{LogStoreWAL, LogStoreBolt} {
		dir := dir + kind
		for start := range 2 {
			n, err := Open(Config{ID: "n1", DataDir: dir, LogStore: kind}, newToy())
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is ready", func() bool { return n.Status().Ready })
			if start == 0 { // the next one only opens what it finds
				if _, err := n.write(context.Background(), []byte("a"), 1); err != nil {
					t.Error(err)
				}
				if err := n.Snapshot(); err != nil {
					t.Error(err)
				}
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			files := 0
			err = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
				want := fileMode
				if err == nil && info.IsDir() {
					want = dirMode
				}
				if err == nil && info.Mode().Perm() != want {
					t.Errorf("start %d: %s has mode %o", start, path, info.Mode().Perm())
				}
				files++
				if err == nil && start == 0 { // as the first release left it
					err = os.Chmod(path, want|0o055)
				}
				return err
			})
			if err != nil || files < 8 {
				t.Fatal(files, err)
			}
		}
	}
}
