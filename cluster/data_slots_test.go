// Tests of what a node has promised, after failures of its disk.

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// reopened opens the promises on a disk as a node does, and returns them.
func reopened(t *testing.T, d *crashDisk) *stableStore {
	t.Helper()
	s, err := openStable(d, "", nil, func() uint64 { return markedLevel })
	if err == nil {
		err = s.renew()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// vote stores a vote as Raft does.
func (s *stableStore) vote(term uint64, candidate string) error {
	for _, key := range [][]byte{currentTermKey, lastVoteTermKey} {
		if err := s.SetUint64(key, term); err != nil {
			return err
		}
	}
	return s.Set(lastVoteCandKey, []byte(candidate))
}

func (s *stableStore) voted() string {
	return fmt.Sprint(s.number(currentTermKey), s.number(lastVoteTermKey), s.text(lastVoteCandKey))
}

// newVoter returns the promises of a node that voted in term 5, and their disk.
func newVoter(t *testing.T) (*crashDisk, *stableStore) {
	d := newCrashDisk(-1)
	s, err := openStable(d, "", nil, func() uint64 { return firstLevel })
	if err == nil {
		err = s.vote(5, "A")
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, s
}

// What could not be synced looks written to the next process, which counts on it.
func TestVoteThatCouldNotBeSynced(t *testing.T) {
	d, s := newVoter(t)
	syncs := 0
	d.fail = func(_ int, what string) (error, bool) {
		if what != "sync "+promisesName {
			return nil, false
		}
		if syncs++; syncs == 2 { // that of the vote, after that of the term
			return syscall.EIO, false
		}
		return nil, false
	}
	if err := s.vote(6, "B"); err == nil {
		t.Fatal("the vote was stored")
	}
	d.fail = nil
	next := d.killed()
	believed := reopened(t, next).voted()
	if left := reopened(t, next.survivor("synced", nil)).voted(); left != believed {
		t.Errorf("%s was believed, and after a power failure it is %s", believed, left)
	}
}

// After a power failure one slot may be older. Opening makes both the same: a changed bit brings
// back no earlier vote.
func TestSlotsAreEqualAfterAPowerFailure(t *testing.T) {
	d, s := newVoter(t)
	if err := s.vote(6, "B"); err != nil {
		t.Fatal(err)
	}
	d = d.survivor("synced", nil)
	want := reopened(t, d).voted()
	for slot := range 2 {
		x := d.killed()
		x.names[promisesName].data[slot*promisesSlot+slotHead] ^= 1
		if got := reopened(t, x).voted(); got != want {
			t.Errorf("a bit of slot %d is changed: %s, not %s", slot, got, want)
		}
	}
}

// Entries that an earlier process could not sync are written again before they count as stored.
func TestEntriesThatCouldNotBeSynced(t *testing.T) {
	d := newCrashDisk(-1)
	log, err := openWAL("wal", d, nil, crashSegment, d.level, testLogger())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.StoreLogs(entriesFrom(1, "e", 100)); err != nil {
		t.Fatal(err)
	}
	var segment string
	for name := range d.names {
		if strings.HasSuffix(name, ".wal") {
			segment = name
		}
	}
	d.fail = func(_ int, what string) (error, bool) {
		if what == "sync "+segment {
			return syscall.EIO, false
		}
		return nil, false
	}
	if err := log.StoreLogs(entriesFrom(2, "e", 2000)); err == nil {
		t.Fatal("they were stored")
	}
	d.fail = nil
	next := d.killed()
	log, err = openWAL("wal", next, nil, crashSegment, next.level, testLogger())
	if err != nil {
		t.Fatal(err)
	}
	last, err := log.LastIndex()
	if err == nil {
		err = log.StoreLogs(entriesFrom(last+1, "e", 300))
	}
	if err != nil {
		t.Fatal(err)
	}
	left := next.survivor("synced", nil)
	log, err = openWAL("wal", left, nil, crashSegment, left.level, testLogger())
	if err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := log.GetLog(last+1, &l); err != nil {
		t.Errorf("entry %d was stored: %v", last+1, err)
	}
}

// Who opens a directory reads its level before it has the lock. Another process may raise it in
// between: then other files count.
func TestLevelRaisedBeforeTheLock(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.write(c.leader(), "a")
	c.close("n1")
	dir := filepath.Join(c.dir, "n1")
	v, err := readVersion(dir)
	if err == nil {
		err = noteLevel(dir, markedLevel)
	}
	if err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() (*stores, error){
		"opened": func() (*stores, error) {
			return openPromisesOf(dir, v)
		},
		"looked at": func() (*stores, error) {
			return lookAt(closers{}, dir, v, testLogger())
		},
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), "try again") {
			t.Errorf("it is %s as if the level were lower: %v", what, err)
		}
	}
}

// A mark that was written although the disk said that it was not, or that could not be written
// again, is lowered before the end of the log goes, or that fails: the log would count as damaged.
func TestMarkIsLoweredBeforeACut(t *testing.T) {
	for what, fails := range map[string]struct {
		err    error
		lands  bool
		reopen bool
	}{
		"written all the same": {syscall.EIO, true, false},
		"not written again":    {syscall.ENOSPC, false, true},
	} {
		t.Run(what, func(t *testing.T) {
			d := newCrashDisk(-1)
			open := func() *walLog {
				t.Helper()
				log, err := openWAL("wal", d, nil, crashSegment, d.level, testLogger())
				if err != nil {
					t.Fatal(err)
				}
				return log
			}
			log := open()
			store := func(index uint64) {
				t.Helper()
				if err := log.StoreLogs(entriesFrom(index, "e", 1)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range uint64(5) {
				store(1 + i)
			}
			d.raised.Store(true)
			failing := func(_ int, what string) (error, bool) {
				if strings.HasPrefix(what, "write "+markName) {
					return fails.err, fails.lands
				}
				return nil, false
			}
			if fails.reopen {
				store(6)
				d = d.killed()
				d.raised.Store(true)
				d.fail = failing
				log = open()
			} else {
				d.fail = failing
				store(6)
				d.fail = nil
			}
			if log.DeleteRange(5, 6) != nil {
				return
			}
			d = d.killed()
			d.raised.Store(true)
			open()
		})
	}
}
