// Tests of messages about what a snapshot holds.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/membership"
)

// noRoomLog is a log that has no room while refuse is set.
type noRoomLog struct {
	raft.LogStore
	refuse atomic.Bool
	cut    atomic.Bool // the end of the log was dropped
}

func (*noRoomLog) IsMonotonic() bool { return true }

func (l *noRoomLog) StoreLogs(logs []*raft.Log) error {
	if l.refuse.Load() {
		return syscall.ENOSPC
	}
	return l.LogStore.StoreLogs(logs)
}

// GetLog finds nothing before the first entry, where raft-wal has what is in the same file.
func (l *noRoomLog) GetLog(index uint64, out *raft.Log) error {
	if first, err := l.FirstIndex(); err != nil || index < first {
		return raft.ErrLogNotFound
	}
	return l.LogStore.GetLog(index, out)
}

func (l *noRoomLog) DeleteRange(low, high uint64) error {
	if last, err := l.LastIndex(); err != nil || high >= last {
		l.cut.Store(true)
	}
	return l.LogStore.DeleteRange(low, high)
}

// snapshotted returns three nodes with 25 entries, of which a snapshot on each holds the first 20,
// and their logs the rest.
func snapshotted(t *testing.T) (*testCluster, map[string]*noRoomLog) {
	logs := map[string]*noRoomLog{}
	c := openCluster(t, 3, func(cfg *Config) {
		cfg.TrailingLogs = 1
		cfg.wrapLog = func(inner raft.LogStore) raft.LogStore {
			logs[cfg.ID] = &noRoomLog{LogStore: inner}
			return logs[cfg.ID]
		}
	})
	for id := range c.nodes {
		c.ready(id)
	}
	for i := range 25 {
		c.write(c.leader(), fmt.Sprint("a", i))
		if i != 19 {
			continue
		}
		c.converged()
		for _, n := range c.nodes {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.converged()
	return c, logs
}

// A follower refuses entries for lack of room until the leader, which goes back by one entry each
// time, sends its snapshot. The follower keeps what it has acknowledged, and goes on.
func TestSnapshotOfWhatIsThere(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, logs := snapshotted(t)
		leader, f := c.leader(), c.followers()[0]
		log := logs[f.cfg.ID]
		log.cut.Store(false)
		log.refuse.Store(true)
		leader.stores.snapshots.opened.Store(nil)
		c.write(leader, "c")
		eventually(t, "the leader sends its snapshot", func() bool {
			return leader.stores.snapshots.opened.Load() != nil
		})
		log.refuse.Store(false)
		c.write(leader, "d")
		if got := len(c.converged()); got != 27 || log.cut.Load() {
			t.Errorf("%d entries are there; the end of the log was dropped: %t", got,
				log.cut.Load())
		}
	})
}

// A follower that has the snapshot, and refuses what follows, asks for it again as soon as it came.
func TestRepeatedSnapshotIsPaced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, logs := snapshotted(t)
		leader, f := c.leader(), c.followers()[0]
		index := leader.stores.snapshots.newest.Load().index
		logs[f.cfg.ID].refuse.Store(true)
		again := &leader.link(f.cfg.ID).repeats
		c.write(leader, "c")
		began := time.Now()
		eventually(t, "the pause grows", func() bool {
			again.mu.Lock()
			defer again.mu.Unlock()
			return again.index == index && again.pause == longestRepeat
		})
		if took := time.Since(began); took < 3*firstRepeat {
			t.Errorf("it was sent three times in %v", took)
		}
		logs[f.cfg.ID].refuse.Store(false)
		c.write(leader, "d")
		if got := len(c.converged()); got != 27 {
			t.Errorf("%d entries are there", got)
		}
	})
}

// A leader that does not know how much a follower has may begin before the follower's log.
func TestEntriesOfASnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, _ := snapshotted(t)
		leader, f := c.leader(), c.followers()[0]
		end, term := f.stores.snapshots.newest.Load().index, f.raft.CurrentTerm()
		if first, err := f.logs.FirstIndex(); err != nil || first+1 < end {
			t.Fatalf("the log begins at %d, %v; the snapshot ends at %d", first, err, end)
		}
		for _, entries := range [][]*raft.Log{nil, {{Index: end - 2, Term: term},
			{Index: end - 1, Term: term}}} {
			answer := make(chan raft.RPCResponse, 1)
			f.transport.deliver(raft.RPC{RespChan: answer,
				Command: &raft.AppendEntriesRequest{RPCHeader: headerOf(leader), Term: term,
					PrevLogEntry: end - 3, PrevLogTerm: term, Entries: entries}})
			select {
			case r := <-answer:
				if a, ok := r.Response.(*raft.AppendEntriesResponse); !ok || !a.Success {
					t.Errorf("%d entries: %+v, %v", len(entries), r.Response, r.Error)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no answer")
			}
		}
	})
}

func headerOf(n *Node) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.cfg.ID)}
}

// A snapshot whose end is in the log, or was applied, is answered by Raft's judgement of its term.
func TestDeclinedSnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		leader, f := c.leader(), c.followers()[0]
		for i := range 5 {
			c.write(leader, fmt.Sprint("a", i))
		}
		c.converged()
		last, err := f.logs.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		term := f.raft.CurrentTerm()
		content := "no snapshot"
		send := func(term, index, lastTerm uint64, size int) *raft.InstallSnapshotResponse {
			t.Helper()
			answer := make(chan raft.RPCResponse, 1)
			f.transport.deliver(raft.RPC{RespChan: answer,
				Reader: strings.NewReader(content),
				Command: &raft.InstallSnapshotRequest{RPCHeader: headerOf(leader), Term: term,
					SnapshotVersion: 1, LastLogIndex: index, LastLogTerm: lastTerm,
					Configuration: raft.EncodeConfiguration(raft.Configuration{}),
					Size:          int64(size)}})
			select {
			case r := <-answer:
				resp, _ := r.Response.(*raft.InstallSnapshotResponse)
				return resp
			case <-time.After(20 * time.Second):
				t.Fatal("no answer")
				return nil
			}
		}
		if r := send(term, last, term, len(content)); r == nil || !r.Success || r.Term != term {
			t.Errorf("what is applied: %+v", r)
		}
		if r := send(term-1, last, term, len(content)); r == nil || r.Success || r.Term != term {
			t.Errorf("of an earlier term: %+v", r)
		}
		for _, index := range []uint64{last, last + 1} { // not all of it comes
			if r := send(term, index, term, len(content)+1); r != nil && r.Success {
				t.Errorf("a part of snapshot %d: %+v", index, r)
			}
		}
		c.write(c.leader(), "b")
		if got := len(c.converged()); got != 6 {
			t.Errorf("%d entries are there", got)
		}
	})
}

// Raft starts from a snapshot and a log that leads to it.
func TestLogThatDoesNotLeadToTheSnapshot(t *testing.T) {
	for _, x := range []struct {
		first, last uint64 // entries of the log, of term 3
		gap         uint64 // an entry that is missing
		index, term uint64 // of the snapshot
		want        string // the entries after
	}{
		{0, 0, 0, 5, 3, "0 0"},
		{1, 9, 0, 0, 0, "1 9"},
		{1, 9, 0, 5, 3, "1 9"},
		{1, 9, 0, 9, 3, "1 9"},
		{1, 9, 0, 5, 4, "0 0"},
		{1, 9, 0, 10, 3, "0 0"},
		{6, 9, 0, 5, 4, "6 9"},
		{1, 9, 5, 5, 4, "6 9"},
	} {
		log := raft.NewInmemStore()
		for i := x.first; i <= x.last && i > 0; i++ {
			if i == x.gap {
				continue
			}
			if err := log.StoreLog(&raft.Log{Index: i, Term: 3}); err != nil {
				t.Fatal(err)
			}
		}
		s := &snapshotStore{log: log}
		s.newest.Store(&snapshotSeen{index: x.index, term: x.term})
		unfit, err := s.unfit()
		first, _ := laterLog{log, unfit}.FirstIndex()
		last, _ := laterLog{log, unfit}.LastIndex()
		if got := fmt.Sprint(first, last); err != nil || got != x.want {
			t.Errorf("%+v: %s, %v", x, got, err)
		}
	}
}

// A leader must not replace what is applied.
func TestAppliedEntriesStay(t *testing.T) {
	log, applied := raft.NewInmemStore(), uint64(4)
	s := newLogStore(log, &arrivals{}, func() int64 { return 0 })
	s.applied = func() uint64 { return applied }
	for i := range uint64(9) {
		if err := log.StoreLog(&raft.Log{Index: i + 1, Term: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteRange(4, 9); err == nil || s.failure == nil {
		t.Error("an applied entry was dropped")
	}
	if last, err := log.LastIndex(); err != nil || last != 9 {
		t.Errorf("the log ends at %d, %v", last, err)
	}
}

// A snapshot that was begun before another, and ends after it, is not the newest.
func TestNewestSnapshotStays(t *testing.T) {
	s := &snapshotStore{}
	s.newest.Store(&snapshotSeen{})
	for _, index := range []uint64{3, 7, 5} {
		s.seen(&snapshotSeen{index: index})
	}
	if got := s.newest.Load().index; got != 7 {
		t.Errorf("the newest ends at %d", got)
	}
}

func TestCutAppend(t *testing.T) {
	for _, x := range []struct {
		prev    uint64
		entries []uint64
		upTo    uint64
		want    string // previous entry and entries
	}{
		{0, nil, 5, "0 []"}, // a heartbeat
		{0, []uint64{1, 2}, 0, "0 [1 2]"},
		{0, []uint64{1, 2}, 1, "0 [2]"},
		{0, []uint64{1, 2}, 5, "0 []"},
		{3, []uint64{4, 5, 6}, 5, "0 [6]"},
		{5, []uint64{6}, 5, "0 [6]"},
		{5, nil, 5, "0 []"},
		{6, []uint64{7}, 5, "6 [7]"},
	} {
		req := &raft.AppendEntriesRequest{PrevLogEntry: x.prev, PrevLogTerm: min(x.prev, 1)}
		for _, i := range x.entries {
			req.Entries = append(req.Entries, &raft.Log{Index: i})
		}
		cutAppend(req, x.upTo)
		left := []uint64{}
		for _, l := range req.Entries {
			left = append(left, l.Index)
		}
		if got := fmt.Sprint(req.PrevLogEntry, left); got != x.want ||
			(req.PrevLogTerm == 0) != (req.PrevLogEntry == 0) {
			t.Errorf("%d %d cut to %d: %s, not %s", x.prev, x.entries, x.upTo, got, x.want)
		}
	}
	entries := []*raft.Log{{Index: 1}, {Index: 2}}
	cutAppend(&raft.AppendEntriesRequest{Entries: entries}, 1)
	if !slices.EqualFunc(entries, []uint64{1, 2}, func(l *raft.Log, i uint64) bool {
		return l.Index == i
	}) {
		t.Error("the slice of another was changed")
	}
}

// meteredConn calls before with the bytes that were written to it, before each write.
type meteredConn struct {
	net.Conn
	before  func(written int64)
	written atomic.Int64
}

func (c *meteredConn) Write(p []byte) (int, error) {
	c.before(c.written.Add(int64(len(p))) - int64(len(p)))
	return c.Conn.Write(p)
}

// half is where a snapshot of behind is on its way: its head and a part of it were sent.
const half = 256 << 10

// behind returns three nodes of which one follower, id, which is closed, needs a snapshot of a
// megabyte. It calls before as a meteredConn does, for connections to that one.
func behind(t *testing.T, before func(written int64)) (c *testCluster, lead *Node, id string) {
	var to atomic.Value // its address
	c = openCluster(t, 3, func(cfg *Config) {
		cfg.TrailingLogs = 1
		cfg.wrapLog = func(inner raft.LogStore) raft.LogStore { return &noRoomLog{LogStore: inner} }
		dial := cfg.dial
		cfg.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			return &meteredConn{Conn: conn, before: func(written int64) {
				if addr == to.Load() {
					before(written)
				}
			}}, nil
		}
	})
	for id := range c.nodes {
		c.ready(id)
	}
	lead, id = c.leader(), c.followers()[0].cfg.ID
	to.Store(c.nodes[id].cfg.PeerListen)
	c.close(id)
	for i := range 16 {
		c.write(lead, fmt.Sprint(i, strings.Repeat("x", half/4)))
	}
	c.have(16)
	if err := lead.Snapshot(); err != nil {
		t.Fatal(err)
	}
	return c, lead, id
}

// have waits until all open nodes have applied so many batches.
func (c *testCluster) have(batches int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d batches", batches), func() bool {
		for id := range c.nodes {
			if len(c.toys[id].batches()) != batches {
				return false
			}
		}
		return true
	})
}

// TestVoterGetsHalfASnapshot: the leader hangs while it sends a snapshot. The member that gets it
// votes for another leader all the same.
func TestVoterGetsHalfASnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		hang := func() {}
		var armed atomic.Bool
		c, lead, id := behind(t, func(written int64) {
			if written >= half && armed.CompareAndSwap(true, false) {
				hang()
			}
		})
		hang = func() { c.net.pause(lead.cfg.ID) }
		armed.Store(true)
		c.reopen(id)
		eventually(t, "the leader hangs", func() bool { return !armed.Load() })
		var next *Node
		eventually(t, "another leader", func() bool {
			for _, n := range c.nodes {
				if n != lead && n.Status().Role == membership.Leader {
					next = n
				}
			}
			return next != nil
		})
		c.write(next, "b")
		c.net.resume(lead.cfg.ID)
		c.write(next, "c")
		c.have(18)
	})
}

// TestSlowSnapshotIsAwaited: a part of a snapshot comes late, and heartbeats come meanwhile.
func TestSlowSnapshotIsAwaited(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var armed atomic.Bool
		c, lead, id := behind(t, func(written int64) {
			if written >= half && armed.CompareAndSwap(true, false) {
				time.Sleep(3 * stallBeats * defaultHeartbeat)
			}
		})
		armed.Store(true)
		c.reopen(id)
		c.write(lead, "b")
		c.have(17)
		if armed.Load() {
			t.Error("no part was late")
		}
		if failed := c.nodes[id].stores.snapshots.failed.Load(); failed != 0 {
			t.Errorf("%d snapshots were given up", failed)
		}
	})
}

// TestFormerLeaderSendsNoSnapshot: who has handed leadership over while it sends a snapshot, which
// takes long, sends no more of it.
func TestFormerLeaderSendsNoSnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var armed, sends atomic.Bool
		c, lead, id := behind(t, func(written int64) {
			if written >= half && armed.Load() {
				sends.Store(true)
				time.Sleep(10 * time.Second)
			}
		})
		next := c.followers()[0]
		armed.Store(true)
		c.reopen(id)
		eventually(t, "a part of the snapshot", sends.Load)
		if err := lead.TransferLeadership(next.cfg.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the member follows the next leader", func() bool {
			return c.nodes[id].Status().LeaderID == next.cfg.ID
		})
		armed.Store(false)
		c.write(next, "b")
		c.have(17)
	})
}

// TestSnapshotThatCannotBeRestored: a snapshot changes on its way, and the member that gets it is
// restarted before it comes again. It has what it had, and gets the next one.
func TestSnapshotThatCannotBeRestored(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, lead, id := behind(t, func(int64) {})
		c.machine = func(y *toy) Machine { return refusing{y} }
		c.reopen(id)
		snapshots := c.nodes[id].stores.snapshots
		eventually(t, "a snapshot is refused", func() bool {
			return snapshots.finished.Load() > 0 && snapshots.arrived.Load() == nil
		})
		if got := snapshots.newest.Load().index; got != 0 {
			t.Errorf("the snapshot of entry %d counts, which was refused", got)
		}
		c.net.isolate(id)
		c.close(id)
		c.net.heal(id)
		c.machine = nil
		c.reopen(id)
		c.write(lead, "b")
		c.have(17)
	})
}

// refusing is a machine that restores nothing.
type refusing struct{ *toy }

func (refusing) Restore(io.ReadCloser) error { return errors.New("it is no snapshot") }

// TestDamagedArrivalGoes: a snapshot from the leader cannot be opened, and the one before counts.
func TestDamagedArrivalGoes(t *testing.T) {
	s := listed(t, nil, 3)
	sink, err := s.Create(raft.SnapshotVersionMax, 9, 2, raft.Configuration{}, 1, nil)
	if err == nil {
		_, err = sink.Write([]byte("state"))
	}
	if err == nil {
		err = sink.Close()
	}
	if err != nil || s.newest.Load().index != 9 {
		t.Fatalf("entry %d, %v", s.newest.Load().index, err)
	}
	path := filepath.Join(s.dir, snapshotsName, sink.ID(), snapshotStateName)
	if err := os.WriteFile(path, []byte("damaged"), fileMode); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open(sink.ID()); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("%v", err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || s.newest.Load().index != 3 {
		t.Errorf("%d are listed, the newest of entry %d, %v", len(list), s.newest.Load().index, err)
	}
}

// TestRoomBesideAnArrival: what the log has stays until a snapshot from the leader is restored.
func TestRoomBesideAnArrival(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
		n := c.leader()
		for range 20 {
			c.write(n, "a")
		}
		before, err := n.logs.FirstIndex()
		n.stores.snapshots.newest.Store(&snapshotSeen{index: n.applied() + 10})
		n.spareRoom()
		if after, err2 := n.logs.FirstIndex(); after != before || err != nil || err2 != nil {
			t.Errorf("the log began at %d, and begins at %d; %v, %v", before, after, err, err2)
		}
	})
}
