// This file holds feature levels: what a Machine that has them tells, the level that a data directory is noted to need, and the raise that the
// leader proposes once every member knows a later level.
package cluster

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Leveled is what a Machine may implement whose behaviour changes by feature levels: numbers from 1, of which the machine has one, which only entries
// of the log raise. A machine without is taken for one that knows no level, and its level never rises.
type Leveled interface {
	// Level is the machine's own level. It does not block.
	Level() uint64
	// KnownLevel is the newest level that it could have. Members tell it each other.
	KnownLevel() uint64
	// CheckLevel fails, with one sentence, for a level that is not known. what has that level.
	CheckLevel(what string, level uint64) error
	// AppendRaise appends an entry that raises the level to dst, stamped like AppendEntry's. Any goroutine may call it.
	AppendRaise(dst []byte, clockMs, wallUs int64, level uint64) []byte
	// EntryLevel peeks at an encoded entry: the level that it raises the machine to, 0 for none.
	EntryLevel(data []byte) uint64
	// SnapshotLevel tells the level of a snapshot by its first bytes: SnapshotHead of them, or all. 0: they do not tell.
	SnapshotLevel(head []byte) uint64
	SnapshotHead() int
}

// unleveled stands in the place of a machine without levels.
type unleveled struct{}

func (unleveled) Level() uint64                                       { return 0 }
func (unleveled) KnownLevel() uint64                                  { return 0 }
func (unleveled) CheckLevel(string, uint64) error                     { return nil }
func (unleveled) AppendRaise(dst []byte, _, _ int64, _ uint64) []byte { return dst }
func (unleveled) EntryLevel([]byte) uint64                            { return 0 }
func (unleveled) SnapshotLevel([]byte) uint64                         { return 0 }
func (unleveled) SnapshotHead() int                                   { return 0 }

// levelsOf gives a machine's levels.
func levelsOf(m any) Leveled {
	if l, ok := m.(Leveled); ok {
		return l
	}
	return unleveled{}
}

// levelGuard stands before the stores: nothing of a level gets on disk before the version file says that this level is needed, so that
// another release knows without opening anything whether it can read a data directory. What is of a level that is not known ends the node.
type levelGuard struct {
	levels Leveled
	dir    string
	fatal  func(error)

	mu    sync.Mutex
	noted uint64 // in the version file
}

// entry lets a log entry pass.
func (g *levelGuard) entry(l *raft.Log) error {
	if l.Type != raft.LogCommand {
		return nil
	}
	level := g.levels.EntryLevel(l.Data)
	if level == 0 {
		return nil
	}
	return g.pass(fmt.Sprintf("log entry %d", l.Index), level)
}

// snapshot lets a snapshot pass that begins with head.
func (g *levelGuard) snapshot(index uint64, head []byte) error {
	return g.pass(fmt.Sprintf("the snapshot of log entry %d", index), g.levels.SnapshotLevel(head))
}

func (g *levelGuard) pass(what string, level uint64) error {
	if err := g.levels.CheckLevel(what, level); err != nil {
		g.fatal(err)
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if level <= g.noted {
		return nil
	}
	if err := noteLevel(g.dir, level); err != nil {
		return fmt.Errorf("the feature level %d cannot be noted in data directory %s: %w", level, g.dir, err)
	}
	g.noted = level
	return nil
}

// commonLevel is the newest level that all members of the newest configuration know; 0 while one of them is not connected.
func (n *Node) commonLevel() uint64 {
	level := n.levels.KnownLevel()
	for _, s := range n.configuration().Servers {
		if string(s.ID) == n.cfg.ID {
			continue
		}
		l := n.link(string(s.ID))
		if l == nil {
			return 0
		}
		l.mu.Lock()
		if l.wire == nil {
			level = 0
		}
		level = min(level, l.peer.level)
		l.mu.Unlock()
	}
	return level
}

// mayRaise reports whether all members know a later level than the machine has.
func (n *Node) mayRaise() bool {
	return n.levels.Level() < n.levels.KnownLevel() && n.commonLevel() > n.levels.Level()
}

// raise is the wish for a level, which holds for the leadership under which it was found that all members know it.
type raise struct {
	lead  *leadership
	level uint64
}

// raiseLevel has the proposer raise the level to the newest that all members know, and waits for it: no member can be taken in meanwhile that
// does not know it. A member that is started with an older release meanwhile refuses the entry, and stops.
func (n *Node) raiseLevel(lead *leadership) {
	level := n.commonLevel()
	if level <= n.levels.Level() {
		return
	}
	n.logger.Info("every member knows a later feature level, which is switched on", "level", level, "before", n.levels.Level())
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	for n.levels.Level() < level && n.route.Load().lead == lead {
		// Again each time: Raft refuses the entry while leadership is being handed over. Two of them do what one does.
		n.raising.Store(&raise{lead, level})
		kick(n.writes.wake)
		select {
		case <-ticker.C:
		case <-n.stop:
			return
		}
	}
	n.raising.Store(nil)
}

// proposeRaise hands the entry that is wished for to Raft, and reports whether there was one.
func (n *Node) proposeRaise(lead *leadership) bool {
	r := n.raising.Swap(nil)
	if r == nil || r.lead != lead {
		return false
	}
	at := lead.stamp()
	data := n.levels.AppendRaise(nil, at.clockMs, at.wallUs, r.level)
	n.inFlight.Add(1)
	n.submitEntry(lead, data, &entry{stamp: at, proposed: time.Now()})
	return true
}

// checkLevelOf refuses to take a node in that does not know the machine's level. One that does not answer yet is not asked: it refuses what it
// does not know by itself.
func (n *Node) checkLevelOf(id, addr string) error {
	h, err := n.probe(addr)
	if err != nil || h.id != id || h.level >= n.levels.Level() {
		return nil
	}
	return refused(fmt.Sprintf("node %s knows feature levels up to %d, and this cluster has level %d: start a later version of coordd there", id, h.level, n.levels.Level()))
}
