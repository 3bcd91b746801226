// Tests of what a node has promised, after failures of its disk.

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coordd/coordd/internal/tests/logdisk"
)

// reopened opens the promises on a disk as a node does, and returns them.
func reopened(t *testing.T, d *logdisk.Disk) *stableStore {
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
func newVoter(t *testing.T) (*logdisk.Disk, *stableStore) {
	d := logdisk.New(-1)
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
	d.Fail = func(_ int, what string) (error, bool) {
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
	d.Fail = nil
	next := d.Killed()
	believed := reopened(t, next).voted()
	if left := reopened(t, next.Survivor("synced", nil)).voted(); left != believed {
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
	d = d.Survivor("synced", nil)
	want := reopened(t, d).voted()
	for slot := range 2 {
		x := d.Killed()
		x.Names[promisesName].Data[slot*promisesSlot+24] ^= 1 // behind its head
		if got := reopened(t, x).voted(); got != want {
			t.Errorf("a bit of slot %d is changed: %s, not %s", slot, got, want)
		}
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
