// Feature levels: the Leveled interface, the level noted in the data directory, and the raise that
// the leader proposes once every member knows a later level.

package cluster

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/lockorder"
)

// Leveled is an optional interface of a Machine whose behaviour changes by feature level: a number
// from 1 that only log entries raise. A machine without it has no level.
type Leveled interface {
	// Level is the machine's current level. It does not block.
	Level() uint64
	// KnownLevel is the newest level that this release knows. Members announce it to each other.
	KnownLevel() uint64
	// CheckLevel returns an error for an unknown level. what names the thing that has the level.
	CheckLevel(what string, level uint64) error
	// AppendRaise appends to dst an entry that raises the level, stamped like AppendEntry's. Any
	// goroutine may call it.
	AppendRaise(dst []byte, clockMs, wallUs int64, level uint64) []byte
	// EntryLevel returns the level that an encoded entry raises the machine to, 0 for none.
	EntryLevel(data []byte) uint64
	// SnapshotLevel returns the level of a snapshot from its first SnapshotHead bytes (all, if it
	// is shorter); 0: unknown.
	SnapshotLevel(head []byte) uint64
	SnapshotHead() int
}

// unleveled stands in for a machine without levels.
type unleveled struct{}

func (unleveled) Level() uint64                                       { return 0 }
func (unleveled) KnownLevel() uint64                                  { return 0 }
func (unleveled) CheckLevel(string, uint64) error                     { return nil }
func (unleveled) AppendRaise(dst []byte, _, _ int64, _ uint64) []byte { return dst }
func (unleveled) EntryLevel([]byte) uint64                            { return 0 }
func (unleveled) SnapshotLevel([]byte) uint64                         { return 0 }
func (unleveled) SnapshotHead() int                                   { return 0 }

// levelsOf returns the machine's levels.
func levelsOf(m any) Leveled {
	if l, ok := m.(Leveled); ok {
		return l
	}
	return unleveled{}
}

// levelGuard guards the stores: nothing of a level reaches the disk before the version file records
// that level, so that another release can tell whether it reads a data directory without opening
// anything. An unknown level ends the node.
type levelGuard struct {
	levels Leveled
	dir    string
	world  *World // in place of dir; nil: none
	fatal  func(error)

	marked func() error // makes sure that the log has its mark; may be nil
	held   func() error // see stores; may be nil

	mu    lockorder.Mutex
	noted uint64 // in the version file
}

// open reads the noted level, and checks that the directory is that of node with that kind of log
// store.
func (g *levelGuard) open(node, logStore string) (err error) {
	if g.world != nil {
		g.noted = g.world.Level
		return g.levels.CheckLevel("the disk", g.noted)
	}
	g.noted, err = prepareDir(g.dir, node, logStore, g.levels)
	return err
}

// level returns the noted level.
func (g *levelGuard) level() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.noted
}

// note records that what is stored needs a level.
func (g *levelGuard) note(level uint64) error {
	if g.world != nil {
		return g.world.NoteLevel(level)
	}
	if err := noteLevel(g.dir, level); err != nil {
		return fmt.Errorf("cannot record feature level %d in data directory %s: %w", level,
			g.dir, err)
	}
	return nil
}

// entry admits a log entry.
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

// snapshot admits a snapshot that begins with head.
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
	if level >= markedLevel && g.marked != nil {
		if err := g.marked(); err != nil {
			return fmt.Errorf("%s needs the file %s: %w", what, raftlog.MarkName, err)
		}
	}
	if err := g.holds(); err != nil {
		return err
	}
	if err := g.note(level); err != nil {
		return err
	}
	g.noted = level
	return nil
}

// holds ends the node if its directory is no longer the one whose lock it has.
func (g *levelGuard) holds() error {
	if g == nil || g.held == nil {
		return nil
	}
	err := g.held()
	if err != nil {
		g.fatal(err)
	}
	return err
}

// commonLevel is the newest level that all members know; 0 while one of them is not connected.
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

// mayRaise reports whether all members know a later level than the machine's.
func (n *Node) mayRaise() bool {
	return n.levels.Level() < n.levels.KnownLevel() && n.commonLevel() > n.levels.Level()
}

// raise is a level to propose. It is valid only for the leadership that found all members ready.
type raise struct {
	lead  *leadership
	level uint64
}

// raiseLevel has the proposer raise the level to the newest that all members know, and waits for
// it: meanwhile no node that does not know it can be added. A member that restarts with an older
// release refuses the entry and stops.
func (n *Node) raiseLevel(lead *leadership) {
	level := n.commonLevel()
	if level <= n.levels.Level() {
		return
	}
	n.logger.Info("raising the feature level", "level", level, "before", n.levels.Level())
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	for n.levels.Level() < level && n.route.Load().lead == lead {
		// Retried: the entry may be lost with a leadership. Raising twice is harmless.
		if !n.raiseProposed.Load() {
			n.raising.Store(&raise{lead, level})
			kick(n.writes.wake)
		}
		select {
		case <-ticker.C:
		case <-n.stop:
			return
		}
	}
	n.raising.Store(nil)
}

// raiseFirst has a leadership begin at the newest level that all members know, before anybody asks
// it for anything. Otherwise the first requests of a new cluster would be refused.
func (n *Node) raiseFirst(lead *leadership) {
	select {
	case n.changing <- struct{}{}: // nobody can be added meanwhile
		defer func() { <-n.changing }()
	default:
		return
	}
	level := n.commonLevel()
	if level <= n.levels.Level() {
		return
	}
	n.proposeFirst(&raise{lead, level})
	// If the entry was not logged, raiseLevel tries again.
	for n.levels.Level() < level && n.inFlight.Load() > 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-n.stop:
			return
		}
	}
}

// proposeFirst proposes a raise beside the proposer, which may not have noticed yet who leads.
func (n *Node) proposeFirst(r *raise) {
	n.pause.mu.Lock()
	defer n.pause.mu.Unlock()
	if !n.pause.on {
		n.logger.Info("raising the feature level", "level", r.level, "before", n.levels.Level())
		n.raising.Store(r)
		n.proposeRaise(r.lead)
	}
}

// proposeRaise hands the requested raise to Raft, and reports whether there was one.
func (n *Node) proposeRaise(lead *leadership) bool {
	r := n.raising.Swap(nil)
	if r == nil || r.lead != lead {
		return false
	}
	at := lead.Stamp()
	data := n.levels.AppendRaise(nil, at.ClockMs, at.WallUs, r.level)
	n.inFlight.Add(1)
	n.raiseProposed.Store(true)
	n.submitEntry(lead, data, &entry{stamp: at, proposed: time.Now(), raises: true})
	return true
}
