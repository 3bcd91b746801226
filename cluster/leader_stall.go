// Nodes that cannot make progress: one that cannot store entries does not stand for election; a
// leader that cannot have entries committed stops sending, so that another is elected.
//
// Raft's heartbeats continue beside a log that hangs, and beside followers that answer heartbeats
// and store nothing. Such a leader would lead, and acknowledge nothing, for as long as that lasts.

package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/pulse"
)

const (
	// stallBeats is how many heartbeat timeouts one log write may take on a leader, besides what
	// its bytes take on a slow disk.
	stallBeats = 5
	slowDisk   = 16 << 20 // bytes per second
	watchDen   = 2        // checks per heartbeat timeout
)

var errStalled = errors.New("this leader is stalled and sends nothing, so that another is elected")

// writing tracks the current operation on the log.
type writing struct {
	since atomic.Int64 // ns since processStart; 0: none
	took  atomic.Int64 // ns of the newest that has ended
	bytes atomic.Int64
	pace  pace
}

func (w *writing) begin(logs []*raft.Log) {
	bytes := int64(0)
	for _, l := range logs {
		bytes += int64(len(l.Data))
	}
	w.bytes.Store(bytes)
	w.since.Store(int64(time.Since(processStart)))
}

func (w *writing) end() {
	took := w.running()
	w.took.Store(int64(took))
	w.pace.note(w.beyondBytes(took))
	w.since.Store(0)
}

// running returns how long the current operation has taken; 0 if there is none.
func (w *writing) running() time.Duration {
	since := w.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(processStart) - time.Duration(since)
}

// overdue reports whether the current operation exceeds patience plus what a slow disk needs.
func (w *writing) overdue(patience time.Duration) bool {
	return w.beyondBytes(w.running()) > patience
}

// beyondBytes returns how much longer an operation takes than its bytes do on a slow disk.
func (w *writing) beyondBytes(took time.Duration) time.Duration {
	return max(0, took-time.Duration(w.bytes.Load())*time.Second/slowDisk)
}

// storeFailure is why the newest entries could not be stored.
type storeFailure struct {
	err   error
	since time.Time // no entry was stored since then
	at    time.Time // when the newest attempt failed
}

// logTrouble is why a node stores no entries, as members tell each other. Later versions may have
// more kinds.
type logTrouble byte

const (
	noTrouble logTrouble = iota // it stores them, as far as it was asked to
	logFails
	diskFull
	diskHangs
)

// String returns what members are told; the node itself says more.
func (t logTrouble) String() string {
	switch t {
	case noTrouble:
		return ""
	case diskFull:
		return "it stores no log entries: its disk is full"
	case diskHangs:
		return "it stores no log entries: its disk hangs"
	}
	return "it stores no log entries"
}

// troubleOfLog returns the kind of what logTrouble says.
func (n *Node) troubleOfLog() logTrouble {
	switch r := n.logs.storeFailure.Load(); {
	case r != nil && disk.NoSpace(r.err):
		return diskFull
	case r != nil:
		return logFails
	case n.logs.writing.overdue(hangTime):
		return diskHangs
	}
	return noTrouble
}

// logTrouble says why this node stores no entries at present; empty: it does, as far as it was
// asked to.
func (n *Node) logTrouble() string {
	if r := n.logs.storeFailure.Load(); r != nil {
		return "it cannot store log entries: " + strings.ReplaceAll(r.err.Error(), "\n", "; ")
	}
	if n.logs.writing.overdue(hangTime) {
		return fmt.Sprintf("its disk hangs: a log write has taken %v so far",
			n.logs.writing.running().Round(time.Second))
	}
	return ""
}

// logLogTrouble logs that the log's trouble begins or ends, and returns what it is now. Raft's own
// lines come with each entry.
func (n *Node) logLogTrouble(was string) string {
	now := n.logTrouble()
	switch {
	case was == "" && now != "":
		n.logger.Error("this node stores no entries", "reason", now)
	case was != "" && now == "":
		n.logger.Info("this node stores entries again")
	}
	return now
}

// storeFailing reports whether this node failed to store entries a moment ago: as a leader it would
// do no better. It expires: if no member can store anything, one must try again once there is room.
func (n *Node) storeFailing() bool {
	r := n.logs.storeFailure.Load()
	return r != nil && time.Since(r.at) < stallBeats*n.cfg.HeartbeatTimeout
}

// progress is how far a leader and its followers are.
type progress struct {
	term, commit uint64
	// what the other voters have stored of the entries up to wanted, the newest one when the commit
	// index advanced: what comes later may reach some of them and no majority for ever
	wanted, stored uint64
	at             time.Time // when one of these last advanced
}

// watchProgress is the loop that stops a stalled leader from sending, and lets it resume when the
// cause is gone: it then learns of its successor, if there is one.
func (n *Node) watchProgress() {
	ticker := pulse.NewTicker(n.cfg.HeartbeatTimeout / watchDen)
	defer ticker.Stop()
	var p progress
	trouble := ""
	for {
		select {
		case now := <-ticker.C:
			ticker.Next()
			trouble = n.logLogTrouble(trouble)
			why := ""
			if n.raft.State() == raft.Leader {
				why = n.stalled(&p, now)
			}
			n.setStalled(why)
		case <-n.stop:
			return
		}
	}
}

// stalled returns what keeps this leader from acknowledging anything; empty: nothing.
func (n *Node) stalled(p *progress, now time.Time) string {
	if n.logs.writing.overdue(stallBeats * n.cfg.HeartbeatTimeout) {
		return "a log write hangs"
	}
	seen := progress{term: n.raft.CurrentTerm(), commit: n.raft.CommitIndex(), wanted: p.wanted,
		at: now}
	last := n.raft.LastIndex()
	advances := seen.term != p.term || seen.commit != p.commit || last <= seen.commit
	if advances {
		seen.wanted = max(last, seen.commit+1)
	}
	seen.stored = n.storedByOthers(seen.wanted)
	if advances || seen.stored != p.stored || n.sending.Load() > 0 {
		*p = seen
	} else {
		n.askAll() // nobody else asks while a new leader waits for its first entry
	}
	if now.Sub(p.at) > max(n.cfg.ReplyWait, stallBeats*n.cfg.HeartbeatTimeout) {
		return "no majority stores its entries: " + n.lacking(seen.wanted)
	}
	return ""
}

// lacking says what each other voter has of the entries up to an index, or why it gets none.
func (n *Node) lacking(wanted uint64) string {
	var all []string
	for _, id := range voters(n.configuration()) {
		l := n.link(id)
		if l == nil {
			continue
		}
		l.mu.Lock()
		up, fault, has := l.wire != nil, l.fault, l.lastIndex
		l.mu.Unlock()
		switch {
		case !up:
			all = append(all, fmt.Sprintf("%s is not connected: %s", id, fault))
		case !n.admitted(id):
			all = append(all, id+" is not registered")
		default:
			all = append(all, fmt.Sprintf("%s has entry %d of %d", id, min(has, wanted), wanted))
		}
	}
	return strings.Join(all, ", ")
}

// storedByOthers changes when another voter has stored more of the entries up to an index.
func (n *Node) storedByOthers(wanted uint64) (sum uint64) {
	for _, id := range voters(n.configuration()) {
		if l := n.link(id); l != nil {
			l.mu.Lock()
			sum += min(l.lastIndex, wanted)
			l.mu.Unlock()
		}
	}
	return sum
}

// askAll asks each member how far its log is. storedByOthers has the answers.
func (n *Node) askAll() {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for _, l := range n.links {
		l.ask(0)
	}
}

// setStalled stops this node from sending as a leader, for a reason, or lets it resume. Entries in
// flight become unknown.
func (n *Node) setStalled(why string) {
	silent := why != ""
	if n.stalledLeader.Swap(silent) == silent {
		return
	}
	if silent {
		n.logger.Error("this leader is stalled and lets another take over", "reason", why)
		finishAll(n.pendingEntries.abandon(time.Now()), errNoAnswer)
	}
	kick(n.routeWake)
	n.roles.notify() // replication waits at the gate
}

// leadsIn reports whether this node is Raft's leader of a term.
func (n *Node) leadsIn(term uint64) bool {
	return n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}

// leadsRaft reports whether this node is Raft's leader and not stalled.
func (n *Node) leadsRaft() bool { return n.raft.State() == raft.Leader && !n.stalledLeader.Load() }
