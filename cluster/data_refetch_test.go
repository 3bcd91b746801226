package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// damageSnapshots makes what is in a closed node's snapshots unreadable.
func damageSnapshots(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, snapshotsName, "*", "state.bin"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots in %s, %v", dir, err)
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("no snapshot"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefetch: a node whose snapshot cannot be read gets its state from the others again. It helps
// to elect nobody before it has what it had: here a write that the third node lacks.
func TestRefetch(t *testing.T) {
	simulated(t, func(t *testing.T) {
		for _, store := range []string{LogStoreWAL, LogStoreBolt} {
			c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs, cfg.LogStore = 1, store })
			lead := c.leader()
			ids := []string{c.followers()[0].cfg.ID, c.followers()[1].cfg.ID}
			broken, behind := ids[0], ids[1]
			for range 5 {
				c.write(lead, "w")
			}
			c.converged()
			if err := c.nodes[broken].Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.close(behind)
			c.write(lead, "only two have it")
			want := lead.applied()
			eventually(t, "the other follower has it", func() bool {
				return c.nodes[broken].applied() >= want
			})
			first := lead.cfg.ID
			c.close(broken)
			c.close(first)

			dir := filepath.Join(c.dir, broken)
			damageSnapshots(t, dir)
			if err := c.tryOpen(broken, nil); err == nil {
				t.Fatal("a node starts without its snapshot")
			}
			done, err := Refetch(dir, newToy(), testLogger())
			if err != nil || done.Node != broken || done.Owed < want {
				t.Fatalf("%+v, %v; it had entry %d", done, err, want)
			}
			c.reopen(broken)
			c.reopen(behind)
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				time.Sleep(time.Second)
				a, b := c.nodes[broken].Status(), c.nodes[behind].Status()
				if a.Role == RoleLeader || b.Role == RoleLeader || a.Ready && !a.Loading {
					t.Fatalf("without the node that has all: %+v, %+v", a, b)
				}
			}
			c.reopen(first)
			c.leader()
			c.ready(broken)
			if got := strings.Join(c.converged(), " "); got != "w w w w w only two have it" {
				t.Errorf("the list is %s", got)
			}
			c.write(c.leader(), "more")
			c.converged()
			eventually(t, "nothing is owed", func() bool { return !c.nodes[broken].owes() })
			c.close(first) // the two elect a leader
			c.ready(broken)
			c.write(c.leader(), "and more")
			c.closeAll()
		}
	})
}

// A node that gets its state again votes for who has all that it had: else it and the only other
// one that is left would never have a leader.
func TestRefetchedNodeVotes(t *testing.T) {
	simulated(t, func(t *testing.T) {
		for _, members := range []int{2, 3} {
			c := newCluster(t, members, nil)
			for range 5 {
				c.write(c.leader(), "w")
			}
			c.converged()
			broken := c.followers()[0].cfg.ID
			c.close(broken) // first: the others may have more
			c.closeAll()
			if _, err := Refetch(filepath.Join(c.dir, broken), newToy(), testLogger()); err != nil {
				t.Fatal(err)
			}
			c.reopen(broken)
			for i := range 3 {
				if id := fmt.Sprint("n", i+1); id != broken {
					c.reopen(id)
					break
				}
			}
			c.ready(broken)
			c.write(c.leader(), "more")
			c.converged()
			eventually(t, "nothing is owed", func() bool { return !c.nodes[broken].owes() })
			c.closeAll()
		}
	})
}

// A node whose log is damaged is refused, and gets its state from the others again. The mark says
// how far the log went.
func TestRefetchOfADamagedLog(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		broken := c.followers()[0].cfg.ID
		for range 5 {
			c.write(lead, "w")
		}
		c.converged()
		want := c.nodes[broken].applied()
		c.close(broken)
		dir := filepath.Join(c.dir, broken)
		if err := noteLevel(dir, markedLevel); err != nil {
			t.Fatal(err)
		}
		segment := onlySegment(t, dir)
		data, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		data[bytes.LastIndexByte(data, frameOfCommit)] ^= 0x80 // the header of the last frame
		if err := os.WriteFile(segment, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.tryOpen(broken, nil); !errors.Is(err, errDamaged) {
			t.Fatalf("a node starts on a damaged log: %v", err)
		}
		if done, err := Refetch(dir, newToy(), testLogger()); err != nil || done.Owed < want {
			t.Fatalf("%+v, %v; it had entry %d", done, err, want)
		}
		c.reopen(broken)
		c.ready(broken)
		c.write(c.leader(), "more")
		c.converged()
		eventually(t, "nothing is owed", func() bool { return !c.nodes[broken].owes() })
	})
}

// A refetch that was interrupted anywhere is finished by another one, which owes as much, and until
// then the node says so.
func TestInterruptedRefetch(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		id := c.followers()[0].cfg.ID
		dir := filepath.Join(c.dir, id)
		for _, moved := range [][]string{{}, {walName}, {walName, snapshotsName}} {
			c.write(c.leader(), "w")
			c.converged()
			eventually(t, "nothing is owed", func() bool { return !c.nodes[id].owes() })
			if err := c.nodes[id].Snapshot(); err != nil {
				t.Fatal(err)
			}
			want := c.nodes[id].applied()
			c.close(id)
			v, err := readVersion(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := beginRefetch(dir, v, testLogger()); err != nil {
				t.Fatal(err)
			}
			kept := filepath.Join(dir, "moved")
			if err := os.MkdirAll(kept, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range moved {
				err := os.Rename(filepath.Join(dir, name), filepath.Join(kept, name))
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := c.tryOpen(id, nil); err == nil || !strings.Contains(err.Error(), "again") {
				t.Fatalf("%v is moved, and the node starts: %v", moved, err)
			}
			if done, err := Refetch(dir, newToy(), testLogger()); err != nil || done.Owed < want {
				t.Fatalf("%v is moved: %+v, %v; it had entry %d", moved, done, err, want)
			}
			if err := os.RemoveAll(kept); err != nil {
				t.Fatal(err)
			}
			c.reopen(id)
			c.ready(id)
		}
		c.converged()
	})
}

// What a damaged log still has counts, also behind the damage: the mark may be older, as after a
// power failure, or from before a downgrade.
func TestRefetchSalvages(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		id := c.followers()[0].cfg.ID
		dir := filepath.Join(c.dir, id)
		for range 20 {
			c.write(c.leader(), "w")
		}
		c.converged()
		want := c.nodes[id].applied()
		c.close(id)
		segment := onlySegment(t, dir)
		data, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		end := len(bytes.TrimRight(data, "\x00"))
		for at := segmentHeaderLen; at < end; at += segmentFrameLen { // each word in turn
			old := bytes.Clone(data)
			for i := range segmentFrameLen {
				old[at+i] ^= 0xff
			}
			if err := os.WriteFile(segment, old, 0o600); err != nil {
				t.Fatal(err)
			}
			last, _, err := salvage(segment)
			if err != nil || last > want+1 || last < want-1 { // it may be part of the last one
				t.Fatalf("byte %d: %d, %v; it had entry %d", at, last, err, want)
			}
		}
	})
}

// A snapshot of which a file is missing is refused like a damaged one, and so is a log to which no
// snapshot leads. Refetching helps: a segment still names the members.
func TestSnapshotsWithoutFiles(t *testing.T) {
	for _, lost := range []string{"*/" + snapshotStateName, "*/" + snapshotMetaName, "*"} {
		runSimulated(t, lost, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 1 })
			id := c.followers()[0].cfg.ID
			for range 5 {
				c.write(c.leader(), "w")
			}
			c.converged()
			if err := c.nodes[id].Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.close(id)
			dir := filepath.Join(c.dir, id)
			paths, err := filepath.Glob(filepath.Join(dir, snapshotsName, lost))
			if err != nil || len(paths) == 0 {
				t.Fatalf("%v, %v", paths, err)
			}
			for _, path := range paths {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.tryOpen(id, nil); !errors.Is(err, errDamaged) {
				t.Fatalf("it starts: %v", err)
			}
			if _, err = Refetch(dir, newToy(), testLogger()); err != nil {
				t.Fatal(err)
			}
			c.reopen(id)
			c.ready(id)
			c.converged()
		})
	}
}

// TestRefetchRefuses what would lose data.
func TestRefetchRefuses(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.write(c.leader(), "w")
		dir := filepath.Join(c.dir, "n1")
		if _, err := Refetch(dir, newToy(), testLogger()); err == nil ||
			!strings.Contains(err.Error(), "in use") {
			t.Errorf("a directory in use: %v", err)
		}
		c.close("n1")
		if _, err := Refetch(dir, newToy(), testLogger()); err == nil ||
			!strings.Contains(err.Error(), "only voter") {
			t.Errorf("the only voter: %v", err)
		}
		if _, err := Refetch(t.TempDir(), newToy(), testLogger()); err == nil ||
			!strings.Contains(err.Error(), "not a data directory") {
			t.Errorf("another directory: %v", err)
		}
		c.reopen("n1")
		c.leader()
		if got := strings.Join(c.converged(), " "); got != "w" {
			t.Errorf("the list is %s", got)
		}
	})
}

// A directory that only 0.1 has known has no mark. Its log is whole, and tells what the node owes,
// which 0.1 would forget: it cannot open the directory from then on.
func TestRefetchWhereOnlyAnEarlierReleaseWas(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 1 })
		id := c.followers()[0].cfg.ID
		for range 5 {
			c.write(c.leader(), "w")
		}
		c.converged()
		if err := c.nodes[id].Snapshot(); err != nil {
			t.Fatal(err)
		}
		c.write(c.leader(), "w")
		c.converged()
		want := c.nodes[id].applied()
		c.close(id)
		dir := filepath.Join(c.dir, id)
		damageSnapshots(t, dir)
		for _, name := range []string{filepath.Join(walName, markName), promisesName, lockName} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if done, err := Refetch(dir, newToy(), testLogger()); err != nil || done.Owed < want {
			t.Fatalf("%+v, %v; it had entry %d", done, err, want)
		}
		if v, err := readVersion(dir); err != nil || v.level < owingLevel {
			t.Errorf("0.1 opens it: %+v, %v", v, err)
		}
		c.reopen(id)
		c.ready(id)
		c.converged()
		eventually(t, "nothing is owed", func() bool { return !c.nodes[id].owes() })
	})
}

// TestWhatWasInterruptedSaysSo: each command names what was interrupted, and what to do next.
func TestWhatWasInterruptedSaysSo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		c.converged()
		id := c.followers()[0].cfg.ID
		dir := filepath.Join(c.dir, id)
		c.close(id)
		says := func(when, look, refetch string) {
			t.Helper()
			o, err := OpenOffline(dir, newToy(), testLogger())
			if err == nil {
				_ = o.Close()
			}
			if err == nil || !strings.Contains(err.Error(), look) {
				t.Errorf("%s, recover: %v", when, err)
			}
			if _, err = Refetch(dir, newToy(), testLogger()); refetch != "" &&
				(err == nil || !strings.Contains(err.Error(), refetch)) ||
				refetch == "" && err != nil {
				t.Errorf("%s, refetch: %v", when, err)
			}
		}
		v, err := readVersion(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := beginRefetch(dir, v, testLogger()); err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(dir, refetchedPrefix+"1")
		if err := os.Mkdir(first, dirMode); err != nil {
			t.Fatal(err)
		}
		err = os.Rename(filepath.Join(dir, walName), filepath.Join(first, walName))
		if err != nil {
			t.Fatal(err)
		}
		interrupted := "coordd refetch was interrupted"
		err = CheckDir(dir, id, LogStoreWAL, levelsOf(newToy()).CheckLevel)
		if err == nil || !strings.Contains(err.Error(), interrupted) {
			t.Errorf("a refetch, check-config: %v", err)
		}
		says("a refetch", interrupted, "")
		if err := CheckDir(dir, id, LogStoreWAL, levelsOf(newToy()).CheckLevel); err != nil {
			t.Errorf("a refetch that was repeated, check-config: %v", err)
		}
		moved := "has moved the state of node " + id + " away: start it"
		says("a refetch that was repeated", moved, moved)
		both := first + ", " + filepath.Join(dir, refetchedPrefix+"2")
		says("a refetch that was repeated", both, moved)

		x := exchangeOf(dir, "7")
		err = errors.Join(os.Mkdir(x.staged, dirMode), os.Mkdir(x.kept, dirMode),
			os.Link(filepath.Join(dir, versionName), filepath.Join(x.staged, versionName)),
			os.Rename(filepath.Join(dir, versionName), filepath.Join(x.kept, versionName)))
		if err != nil {
			t.Fatal(err)
		}
		again := "--accept-lost-writes, without --before-entry, finishes it"
		says("a recovery", again, again)
		if err := c.tryOpen(id, nil); err == nil || !strings.Contains(err.Error(), again) {
			t.Errorf("a recovery, a node: %v", err)
		}
		if err := os.RemoveAll(x.staged); err != nil {
			t.Fatal(err)
		}
		if err := markSeeding(dir); err != nil {
			t.Fatal(err)
		}
		says("a restore", "run coordd restore again", "run coordd restore again")
	})
}
