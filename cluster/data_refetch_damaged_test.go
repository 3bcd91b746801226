// Refetch where the log is damaged: whose members and cluster are believed, and how much is owed.

package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/tests/detector"
)

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
		data[bytes.LastIndexByte(data, walCommit)] ^= 0x80 // the header of the last frame
		if err := os.WriteFile(segment, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.tryOpen(broken, nil); !errors.Is(err, disk.ErrDamaged) {
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

// tail is how many of the zeros behind a log's end stay, where a test reads it for each of its
// words: a segment has a megabyte of them.
const tail = 4096

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
		want, cluster := c.nodes[id].applied(), c.nodes[id].clusterID()
		c.close(id)
		segment := onlySegment(t, dir)
		data, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		end := len(bytes.TrimRight(data, "\x00"))
		data = data[:min(len(data), end+tail)]
		for at := walHeader; at < end; at += walFrame { // each word in turn
			old := bytes.Clone(data)
			for i := range walFrame {
				old[at+i] ^= 0xff
			}
			if err := os.WriteFile(segment, old, 0o600); err != nil {
				t.Fatal(err)
			}
			var found onDisk
			last, err := raftlog.Salvage(segment, found.noteContent)
			if err != nil || last > want+1 || last < want-1 {
				// it may be part of the last one
				t.Fatalf("byte %d: %d, %v; it had entry %d", at, last, err, want)
			}
			if at+2*walFrame > end && found.cluster() != cluster {
				t.Errorf("the end is damaged: cluster %q, it was in %s", found.cluster(), cluster)
			}
		}
	})
}

// TestRefetchGoesByTheNewestMembers: wherever a log is damaged, no older configuration is believed
// than that of a snapshot. Without one the newest counts that can be read, also behind the damage.
func TestRefetchGoesByTheNewestMembers(t *testing.T) {
	detector.Skip(t)
	for _, is := range []struct {
		name     string
		size     int // of the cluster at first
		change   func(c *testCluster)
		snapshot bool
	}{
		{"as founded", 3, func(*testCluster) {}, true},
		{"grown", 1, grow, true},
		{"grown, no snapshot", 1, grow, false},
		{"shrunk", 3, shrink, true},
		{"shrunk, no snapshot", 3, shrink, false},
	} {
		runSimulated(t, is.name, func(t *testing.T) {
			c := newCluster(t, is.size, nil)
			lead := c.leader()
			c.write(lead, "w")
			is.change(c)
			c.write(lead, "changed")
			if is.snapshot {
				if err := lead.Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			c.write(lead, "more")
			cluster, want := lead.clusterID(), voters(lead.configuration())
			c.closeAll()
			dir := lockedDir(t, c, lead.cfg.ID, markedLevel, true)
			v, err := readVersion(dir)
			if err != nil {
				t.Fatal(err)
			}
			segment := onlySegment(t, dir)
			whole, err := os.ReadFile(segment)
			if err != nil {
				t.Fatal(err)
			}
			end := len(bytes.TrimRight(whole, "\x00"))
			whole = whole[:min(len(whole), end+tail)]
			from, to := 0, 0
			if !is.snapshot { // the only place that tells it
				from, to = batchAt(whole, bytes.LastIndex(whole, []byte(clusterPrefix)))
			}
			damage := func(at int) {
				t.Helper()
				now := bytes.Clone(whole)
				for i := range walFrame {
					now[at+i] ^= 0xff
				}
				if err := os.WriteFile(segment, now, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for at := walHeader; at < end; at += walFrame { // each word in turn
				if at >= from && at < to {
					continue
				}
				damage(at)
				found, err := lookOnDisk(dir, v, testLogger())
				if have := voters(found.members.is); err != nil || !slices.Equal(have, want) ||
					found.cluster() != cluster {
					t.Fatalf("byte %d is damaged: voters %v of cluster %q, want %v of %q; %v", at,
						have, found.cluster(), want, cluster, err)
				}
			}
			damage(walHeader + walFrame)
			_, err = Refetch(dir, newToy(), testLogger())
			if alone := len(want) == 1; alone != (err != nil) ||
				alone && !strings.Contains(err.Error(), "the only voter in the newest") {
				t.Errorf("voters %v: %v", want, err)
			}
		})
	}
}

// TestRefetchGoesByASnapshotThatReplacedTheLog: the node was killed as it had installed a snapshot,
// and the whole log that this replaced is still there. It ends before it, or behind it in an
// earlier term.
func TestRefetchGoesByASnapshotThatReplacedTheLog(t *testing.T) {
	for name, back := range map[string]uint64{"before": 0, "behind": 20} {
		runSimulated(t, name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			for range 10 {
				c.write(c.leader(), "w")
			}
			c.converged()
			dir := filepath.Join(c.dir, "n1")
			c.close("n1")
			v, err := readVersion(dir)
			if err != nil {
				t.Fatal(err)
			}
			before, err := lookOnDisk(dir, v, testLogger())
			if err != nil {
				t.Fatal(err)
			}
			is := position{before.last.last + 10 - min(back, before.last.last+9),
				before.last.term + 1}
			alone := raft.Configuration{Servers: before.members.is.Servers[:1]}
			snapshots := &snapshotFiles{filepath.Join(dir, snapshotsName), testLogger()}
			sink, err := snapshots.Create(1, is.last, is.term, alone, is.last, nil)
			if err == nil {
				err = sink.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			found, err := lookOnDisk(dir, v, testLogger())
			if have := voters(found.members.is); err != nil || len(have) != 1 || found.last != is {
				t.Errorf("%v of %+v, %v; the snapshot is of %+v", have, found.last, err, is)
			}
		})
	}
}

// TestRefetchSalvagesWhatLeadsToTheLog: the newest snapshot cannot be described, and the log begins
// behind it. The older one knows less than the segments still do.
func TestRefetchSalvagesWhatLeadsToTheLog(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
		n := c.leader()
		c.write(n, "w")
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		grow(c)
		for range 5 {
			c.write(n, "w")
		}
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		c.closeAll()
		dir := filepath.Join(c.dir, "n1")
		snapshots := &snapshotFiles{filepath.Join(dir, snapshotsName), testLogger()}
		newest, _, _, err := snapshots.newest()
		if err == nil {
			err = os.Remove(filepath.Join(snapshots.dir, newest, snapshotMetaName))
		}
		if err != nil {
			t.Fatal(err)
		}
		if list, err := snapshots.List(); err != nil || len(list) != 1 {
			t.Fatalf("%d snapshots can be described, %v", len(list), err)
		}
		v, err := readVersion(dir)
		if err != nil {
			t.Fatal(err)
		}
		found, err := lookOnDisk(dir, v, testLogger())
		if have := voters(found.members.is); err != nil || len(have) != 3 {
			t.Errorf("voters %v, %v", have, err)
		}
	})
}

// grow lets n2 and n3 join n1.
func grow(c *testCluster) {
	for _, id := range []string{"n2", "n3"} {
		err := c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: id,
			PeerAddr: c.joiner(id, true).Status().PeerAddr})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.awaitVoters("n1", "n2", "n3")
}

// shrink removes all but the leader.
func shrink(c *testCluster) {
	for _, n := range c.followers() {
		err := c.leader().ChangeMembers(membership.Change{Kind: membership.Remove, ID: n.cfg.ID})
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// raft-wal's segments: after a header there are frames of 8 bytes and a payload, padded to 8.
const (
	walHeader = 32
	walFrame  = 8
	walEntry  = 1
	walCommit = 3 // has no payload
)

func walPadded(n int) int { return (n + walFrame - 1) / walFrame * walFrame }

// batchAt returns where the batch in a segment begins and ends that has a byte.
func batchAt(segment []byte, at int) (from, to int) {
	for next := walHeader; to <= at; {
		from = next
		for to = 0; to == 0; {
			n := int(binary.LittleEndian.Uint32(segment[next+4:]))
			switch segment[next] {
			case walCommit:
				next += walFrame
				to = next
			default:
				next += walFrame + walPadded(n)
			}
		}
	}
	return from, to
}
