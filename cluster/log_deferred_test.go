// This file holds the tests of entries that a leader sends before they are durable on its own disk.

package cluster

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/logdisk"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/hashicorp/raft"
)

// powerLog is a log store whose writes can be held up, and then lost.
type powerLog struct {
	raft.LogStore
	*power
}

type power struct {
	held gate        // locked: writes wait
	lost atomic.Bool // the power has failed: what waited is not written
	room atomic.Int64
}

func (p powerLog) StoreLog(l *raft.Log) error { return p.StoreLogs([]*raft.Log{l}) }

func (p powerLog) StoreLogs(logs []*raft.Log) error {
	p.held.Lock()
	defer p.held.Unlock()
	if p.lost.Load() {
		return logdisk.ErrPowerless
	}
	return p.LogStore.StoreLogs(logs)
}

func (p powerLog) IsMonotonic() bool { return true }

func (p powerLog) Room() int64 { return p.room.Load() }

func newPower() *power {
	p := &power{held: newGate()}
	p.room.Store(1 << 30)
	return p
}

// A leader loses its power with an entry that one follower has and Raft counts as committed. It was
// not: the leader without the entry and the other follower go on without it, so neither a client
// nor the follower may have been told.
func TestPowerFailureOfALeaderThatSendsFirst(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var ended atomic.Bool
		c, powers := powered(t, 3, func(cfg *Config) {
			cfg.Fatal = func(error) { ended.Store(true) }
		})
		lead := c.leader()
		c.write(lead, "before")
		has, lacks, id := c.followers()[0], c.followers()[1], lead.cfg.ID
		c.net.isolate(lacks.cfg.ID)
		powers[id].held.Lock()
		release := sync.OnceFunc(powers[id].held.Unlock)
		defer release()
		answer, before := make(chan error, 1), lead.raft.LastIndex()
		go func() {
			_, err := lead.write(context.Background(), []byte("lost"), 1)
			answer <- err
		}()
		eventually(t, "Raft counts the entry as committed", func() bool {
			last := lead.raft.LastIndex()
			return last > before && has.raft.LastIndex() == last && lead.raft.CommitIndex() == last
		})
		contact := has.raft.LastContact()
		eventually(t, "the follower has heard more", func() bool {
			return has.raft.LastContact().Sub(contact) > commitTimeout
		})
		c.net.isolate(id)
		c.net.isolate(has.cfg.ID)
		powers[id].lost.Store(true)
		release()
		if err := <-answer; err == nil {
			t.Error("the lost write was acknowledged")
		}
		eventually(t, "the process would have ended", ended.Load)
		if err := c.nodes[id].Close(); !errors.Is(err, errNotDurable) {
			t.Errorf("closed with %v", err)
		}
		delete(c.nodes, id)
		if got := c.toys[id].batches(); strings.Contains(strings.Join(got, " "), "lost") {
			t.Errorf("the leader applied what was not durable: %v", got)
		}

		powers[id].lost.Store(false)
		c.reopen(id)
		c.net.heal(id)
		c.net.heal(lacks.cfg.ID)
		c.write(c.leader(), "after")
		c.net.heal(has.cfg.ID)
		list := strings.Join(c.converged(), " ")
		if strings.Contains(list, "lost") || !strings.Contains(list, "after") {
			t.Errorf("the nodes have %s", list)
		}
	})
}

// powered returns a cluster, and the power of each node.
func powered(t *testing.T, size int, change func(*Config)) (*testCluster, map[string]*power) {
	t.Helper()
	powers := map[string]*power{"n1": newPower(), "n2": newPower(), "n3": newPower()}
	return newCluster(t, size, func(cfg *Config) {
		p := powers[cfg.ID]
		cfg.wrapLog = func(s raft.LogStore) raft.LogStore { return powerLog{s, p} }
		if change != nil {
			change(cfg)
		}
	}), powers
}

// A read on a leader whose disk is slow waits for the disk no more than its answer needs, and tells
// followers of no commit that is not durable.
func TestReadsDoNotWaitForTheDisk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, powers := powered(t, 3, func(cfg *Config) {
			cfg.HeartbeatTimeout = 2 * time.Second // a busy machine keeps its leader
		})
		lead := c.leader()
		c.write(lead, "before")
		c.converged()
		powers[lead.cfg.ID].held.Lock()
		release := sync.OnceFunc(powers[lead.cfg.ID].held.Unlock)
		defer release()
		last := lead.raft.LastIndex()
		answer := make(chan error, 1)
		go func() {
			_, err := lead.write(context.Background(), []byte("later"), 1)
			answer <- err
		}()
		eventually(t, "Raft counts the entry as committed", func() bool {
			return lead.raft.CommitIndex() > last
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for batch, want := range map[string]string{"before": "1", "later": "0"} {
			if got, err := lead.read(ctx, []byte(batch)); string(got) != want || err != nil {
				t.Errorf("%s: %q, %v", batch, got, err)
			}
		}
		for _, f := range c.followers() {
			if s := f.Status(); s.Behind > 0 {
				t.Errorf("%s lags by %d entries", f.cfg.ID, s.Behind)
			}
		}
		release()
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
}

// Leaders lose their power, with entries that their disks have not written and Raft counts as
// committed, while others cannot be reached. What was acknowledged stays, and no node has applied
// what the others have not.
func TestPowerFailures(t *testing.T) {
	simulated(t, func(t *testing.T) {
		seed := seeds.Of(t)
		rnd := rand.New(rand.NewPCG(seed, 0))
		c, powers := powered(t, 3, nil)
		l := c.startLoad(2)
		for range *powerFailures {
			l.advance(20, "before a power failure")
			lead, others := c.leader(), c.followers()
			rnd.Shuffle(2, func(i, j int) { others[i], others[j] = others[j], others[i] })
			away, near, victim := others[0].cfg.ID, others[1].cfg.ID, lead.cfg.ID
			if rnd.IntN(2) == 0 {
				c.net.isolate(away)
			}
			powers[victim].held.Lock()
			last := lead.raft.LastIndex()
			eventually(t, "Raft counts an entry as committed", func() bool {
				return lead.raft.CommitIndex() > last || !lead.leads()
			})
			c.net.isolate(victim)
			powers[victim].lost.Store(true)
			powers[victim].held.Unlock()
			_ = lead.Close() // its log has failed
			delete(c.nodes, victim)
			powers[victim].lost.Store(false)
			if rnd.IntN(2) == 0 {
				c.net.isolate(near) // which has the entries that the victim lost
			}
			c.net.heal(away)
			c.reopen(victim)
			l.on(c.nodes[victim], 2)
			c.net.heal(victim)
			l.advance(20, "of two nodes")
			c.net.heal(near)
		}
		l.finish()
	})
}

var powerFailures = flag.Int("power-failures", 3, "power failures of TestPowerFailures")

// heldLog is a leader's log store over a disk that can be held up.
type heldLog struct {
	*logStore
	*power
	leads atomic.Bool
	ended chan error // what ended the process
}

func newHeldLog() *heldLog {
	h := &heldLog{power: newPower(), ended: make(chan error, 9)}
	h.logStore = newLogStore(powerLog{raft.NewInmemStore(), h.power},
		newArrivals(clock.System{}, newToy().EntryClock),
		func() int64 { return 0 })
	h.leads.Store(true)
	h.logStore.leads = h.leads.Load
	h.fatal = func(err error) { h.ended <- err }
	return h
}

// add stores commands of one byte.
func (h *heldLog) add(t *testing.T, first, last uint64) {
	t.Helper()
	for i := first; i <= last; i++ {
		if err := h.StoreLogs(command(i)); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
}

func command(index uint64) []*raft.Log {
	return []*raft.Log{{Index: index, Term: 1, Type: raft.LogCommand, Data: []byte("x")}}
}

// waits fails the test if do returns before release is called, or not after it. It needs a bubble.
func waits(t *testing.T, what string, release func(), do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		t.Errorf("%s does not wait for the disk", what)
	case <-time.After(time.Hour):
	}
	release()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s waits for ever", what)
	}
}

// What a node does with its log when it does not lead, and what a leader appends besides commands,
// waits until everything before is durable.
func TestWhatWaitsForTheDisk(t *testing.T) {
	fail := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	one := func(_ uint64, err error) { fail(err) }
	var out raft.Log
	for what, test := range map[string]struct {
		leads bool
		do    func(h *heldLog)
	}{
		"applying":                  {true, func(h *heldLog) { h.awaitDurable(2) }},
		"a leader's noop":           {true, func(h *heldLog) { fail(h.StoreLog(noop(3))) }},
		"a leader's large entry":    {true, func(h *heldLog) { fail(h.StoreLogs(large(3))) }},
		"truncating":                {true, func(h *heldLog) { fail(h.DeleteRange(1, 1)) }},
		"a follower's entry":        {false, func(h *heldLog) { fail(h.StoreLogs(command(3))) }},
		"a follower's duplicate":    {false, func(h *heldLog) { fail(h.GetLog(2, &out)) }},
		"a follower's cut":          {false, func(h *heldLog) { fail(h.DeleteRange(2, 2)) }},
		"the end of a follower's":   {false, func(h *heldLog) { one(h.LastIndex()) }},
		"the start of a follower's": {false, func(h *heldLog) { one(h.FirstIndex()) }},
		"closing":                   {false, func(h *heldLog) { fail(h.flush()) }},
	} {
		runSimulated(t, strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			h := newHeldLog()
			h.add(t, 1, 1)
			fail(h.flush())
			h.held.Lock()
			h.add(t, 2, 2)
			if got := h.durableTo(); got != 1 {
				t.Errorf("durable up to %d", got)
			}
			if err := h.GetLog(2, &out); err != nil || out.Index != 2 {
				t.Errorf("the leader cannot send its entry: %v", err)
			}
			h.leads.Store(test.leads)
			waits(t, what, h.held.Unlock, func() { test.do(h) })
			if len(h.ended) > 0 {
				t.Error(<-h.ended)
			}
		})
	}
}

func noop(index uint64) *raft.Log { return &raft.Log{Index: index, Term: 1, Type: raft.LogNoop} }

func large(index uint64) []*raft.Log {
	l := command(index)
	l[0].Data = bytes.Repeat([]byte("x"), maxDeferred)
	return l
}

// While the disk writes one entry, the next ones gather, and are written at once and in order.
func TestDeferredEntriesGather(t *testing.T) {
	simulated(t, func(t *testing.T) {
		h := newHeldLog()
		h.held.Lock()
		const last = 100
		h.add(t, 1, last)
		if got, err := h.LastIndex(); got != 0 || err != nil {
			t.Errorf("%d entries are on disk, %v", got, err)
		}
		h.held.Unlock()
		if !h.awaitDurable(last) {
			t.Fatal("they do not become durable")
		}
		for i := range uint64(last) {
			var l raft.Log
			if err := h.LogStore.GetLog(i+1, &l); err != nil || l.Index != i+1 {
				t.Fatalf("entry %d: %+v, %v", i+1, l, err)
			}
		}
	})
}

// A snapshot that drops the beginning of the log leaves alone what only the cache has: replication
// would send followers the snapshot instead, in place of a log that is longer.
func TestCompactionKeepsDeferredEntries(t *testing.T) {
	simulated(t, func(t *testing.T) {
		h := newHeldLog()
		h.add(t, 1, 3)
		if err := h.flush(); err != nil {
			t.Fatal(err)
		}
		h.held.Lock()
		h.add(t, 4, 4) // after DeleteRange has flushed
		if err := h.deleteLocked(1, 2, 3, false); err != nil {
			t.Error(err)
		}
		for index, there := range []bool{2: false, 3: true, 4: true} {
			if err := h.GetLog(uint64(index), &raft.Log{}); (err == nil) != there {
				t.Errorf("entry %d: %v", index, err)
			}
		}
		if h.oldest != 3 || h.newest != 4 || h.logStore.bytes != 2 {
			t.Errorf("cached: %d bytes of %d to %d", h.logStore.bytes, h.oldest, h.newest)
		}
		h.held.Unlock()
		if err := h.flush(); err != nil {
			t.Error(err)
		}
	})
}

// No more entries are deferred than the cache holds, however small they are.
func TestCacheHoldsDeferredEntries(t *testing.T) {
	simulated(t, func(t *testing.T) {
		h := newHeldLog()
		h.held.Lock()
		h.add(t, 1, cacheEntries)
		for i := range uint64(cacheEntries) {
			if err := h.GetLog(i+1, &raft.Log{}); err != nil {
				t.Fatalf("entry %d: %v", i+1, err)
			}
		}
		waits(t, "one entry more", h.held.Unlock, func() {
			h.add(t, cacheEntries+1, cacheEntries+1)
		})
	})
}

// Entries that cannot be written end the process, and count for nothing until then.
func TestFailedDeferredWriteEndsTheProcess(t *testing.T) {
	simulated(t, func(t *testing.T) {
		for _, failWait := range []time.Duration{failWait, -1} { // or another bound is reached too
			h := newHeldLog()
			h.failWait = failWait
			h.held.Lock()
			h.add(t, 1, 1)
			h.lost.Store(true)
			waits(t, "applying", h.held.Unlock, func() {
				if h.awaitDurable(1) {
					t.Error("the entry is durable")
				}
			})
			if err := <-h.ended; !errors.Is(err, logdisk.ErrPowerless) || len(h.ended) > 0 {
				t.Errorf("the process ends with %v, and %d more", err, len(h.ended))
			}
			h.lost.Store(false)
			if err := h.StoreLogs(command(2)); err == nil {
				t.Error("an entry is stored after those that were lost")
			}
			if err := h.GetLog(1, &raft.Log{}); err != nil {
				t.Errorf("a leader cannot read: %v", err)
			}
			h.leads.Store(false)
			if err := h.GetLog(1, &raft.Log{}); err == nil {
				t.Error("a follower takes the lost entry for stored")
			}
		}
	})
}

// Without room, entries are written before StoreLogs returns: the disk may refuse them.
func TestNothingIsDeferredWithoutRoom(t *testing.T) {
	simulated(t, func(t *testing.T) {
		h := newHeldLog()
		h.room.Store(sealReserve)
		h.lost.Store(true)
		if err := h.StoreLogs(command(1)); !errors.Is(err, logdisk.ErrPowerless) {
			t.Errorf("%v", err)
		}
		if len(h.ended) > 0 {
			t.Error(<-h.ended)
		}
	})
}

// openOnDisk opens a log on a disk in memory.
func openOnDisk(d *logdisk.Disk, segment int) (*raftlog.WAL, error) {
	return raftlog.OpenWAL("wal", raftlog.Options{Files: d, SegmentSize: segment, Marked: d.Marked,
		Logger: testLogger(), LibLogger: newRaftLogger(testLogger())})
}

// An append for which there is room creates no file and uses only space that is reserved.
func TestRoomOfTheLog(t *testing.T) {
	detector.Skip(t) // it works much
	t.Parallel()     // in memory, beside each other
	const segment, size = 2 << 20, 100 << 10
	for _, disk := range []string{"", "full", "sparse"} {
		creations, full := 0, disk == "full"
		d := logdisk.New(-1)
		d.Sparse = disk == "sparse"
		d.Fail = func(_ int, what string) (error, bool) {
			if !strings.HasPrefix(what, "create") || !strings.HasSuffix(what, ".wal") {
				return nil, false
			}
			if creations++; full && creations%2 == 1 { // a whole segment does not fit
				return syscall.ENOSPC, false
			}
			return nil, false
		}
		log, err := openOnDisk(d, segment)
		if err != nil {
			t.Fatal(err)
		}
		roomy, created := 0, 0
		for i := range uint64(100) {
			room, before := log.Room() >= size+deferredOverhead+sealReserve, creations
			if err := log.StoreLogs(logdisk.Entries(i+1, "x", size)); err != nil {
				t.Fatal(err)
			}
			// which waits for the next segment, if one is due
			_ = log.DeleteRange(1<<40, 1<<40)
			if room {
				roomy++
			}
			if creations > before {
				created++
			}
			if room && creations > before {
				t.Fatalf("entry %d: there was room, and a segment was created", i+1)
			}
		}
		if created == 0 || (disk != "") != (roomy == 0) {
			t.Errorf("%s: %d entries had room, %d created a segment", disk, roomy, created)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Sealing a segment of small entries adds a large index, for which the space is reserved too.
func TestRoomCountsTheIndex(t *testing.T) {
	detector.Skip(t) // it works much
	t.Parallel()     // in memory, beside each other
	const segment, many, few = 16 << 20, 4000, 100
	d := logdisk.New(-1)
	log, err := openOnDisk(d, segment)
	if err != nil {
		t.Fatal(err)
	}
	for next := uint64(1); next == 1 || log.Room() > 0; {
		count := few
		if next == 1 || log.Room() > 3<<20 {
			count = many
		}
		logs := logdisk.Entries(next, "x", slices.Repeat([]int{1}, count)...)
		next += uint64(count)
		roomy := deferredSize(logs)+sealReserve <= log.Room()
		if err := log.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		_ = log.DeleteRange(1<<40, 1<<40) // which waits for the next segment
		for name, f := range d.Names {
			if roomy && len(f.Data) > segment {
				t.Errorf("entry %d: there was room, and %s has %d bytes", next, name, len(f.Data))
			}
		}
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

// After an entry that could not be applied no snapshot is taken: Raft would name it as covered.
func TestNoSnapshotWithoutAnEntry(t *testing.T) {
	a := newApplier(newToy(), testLogger())
	durable := true
	a.durable = func(uint64) bool { return durable }
	entry := &raft.Log{Index: 1, Data: newToy().AppendEntry(nil, 1, 0, [][]byte{[]byte("w")})}
	a.Apply(entry)
	if _, err := a.Snapshot(); err != nil {
		t.Error(err)
	}
	durable, entry.Index = false, 2
	if got := a.Apply(entry); got != nil || a.appliedIndex.Load() != 1 {
		t.Errorf("applied: %v, up to %d", got, a.appliedIndex.Load())
	}
	if _, err := a.Snapshot(); !errors.Is(err, errNotDurable) {
		t.Errorf("a snapshot: %v", err)
	}
}
