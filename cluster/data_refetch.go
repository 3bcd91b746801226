// Refetching: a node whose state cannot be read, but whose disk is well, gets it from the other
// members again, under the same id (docs/adr/0051).

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/files"
)

// owedKey is where the stable store keeps the index of the newest entry that the node may have
// acknowledged and has no more; 0: none. Members rely on it: a vote of this node for a leader that
// lacks the entry could lose it. So it does not stand for election until its log reaches that
// index, and votes only for who has what it had. Then it has all that a leader had who sent it that
// far, and so all that was committed.
var owedKey = []byte("coordd owed")

// owedTermKey is where it keeps that entry's term, or one above it; 0: unknown.
var owedTermKey = []byte("coordd owed term")

// clusterKey is where it keeps the id of the cluster that has the entry; empty: unknown. The node
// may have no configuration that says so, and belongs to that cluster all the same.
var clusterKey = []byte("coordd cluster")

// refetchKey is where it keeps the index once more while Refetch moves away what could tell it; 0:
// it does not, or has ended.
var refetchKey = []byte("coordd refetch")

// owingLevel is the first level whose releases know what a node owes. Refetch raises a directory to
// it: an earlier release would forget.
const owingLevel = 2

// refetchedPrefix begins the name of the directory to which Refetch moves what was there.
const refetchedPrefix = "before-refetch-"

// Refetched says what Refetch did.
type Refetched struct {
	Node string
	Owed uint64 // the newest entry that the node had
	Kept string // the directory with what was there, or several of interrupted calls
}

// Refetch prepares a node's data directory, on which no node runs, for getting its state from the
// other members: it moves log and snapshots away and keeps the node's identity, cluster, term and
// vote. If interrupted, it can be repeated.
func Refetch(dir string, m Machine, logger *slog.Logger) (done Refetched, err error) {
	v, err := readNode(dir)
	if err == nil {
		err = levelsOf(m).CheckLevel("data directory "+dir, v.level)
	}
	if err != nil {
		return done, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	done.Node = v.node
	again := false
	if done.Owed, again, err = beginRefetch(dir, v, logger); err != nil {
		return done, err
	}
	v.level = max(v.level, owingLevel)
	s, err := openPromisesOf(dir, v)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if done.Kept, err = moveState(dir); err != nil {
		return done, err
	}
	if again {
		done.Kept = keptByRefetch(dir)
	}
	log, err := openLog(dir, v.logStore, fresh, logger) // with its mark
	if err == nil {
		err = errors.Join(demandMark(log, v.level), log.Close())
	}
	if err != nil {
		return done, err
	}
	return done, s.stable.SetUint64(refetchKey, 0)
}

// beginRefetch stores and returns what the node will owe: from then on nothing else has to tell it.
// The caller has the lock. again: an earlier call, which was interrupted, has stored it.
func beginRefetch(dir string, v dirVersion, logger *slog.Logger) (owed uint64, again bool,
	err error) {
	s, err := openPromisesOf(dir, v)
	if err != nil {
		return 0, false, err
	}
	begun, term := s.stable.number(refetchKey), s.stable.number(currentTermKey)
	before := owedIn(s.stable)
	if err := s.close(); err != nil || begun > 0 {
		return begun, begun > 0, err
	}
	found, err := lookOnDisk(dir, v, logger)
	if err != nil {
		return 0, false, err
	}
	last := found.last
	switch have := voters(found.members.is); {
	case len(have) == 0 && before.last > 0 && last.last == 0:
		return 0, false, refetched(dir, v.node)
	case len(have) == 0:
		return 0, false, fmt.Errorf("it cannot be told who the members of the node in data "+
			"directory %s are: RAFT REMOVE it, and --join an empty one under a new id", dir)
	case slices.Equal(have, []string{v.node}) && found.salvaged:
		return 0, false, fmt.Errorf("node %s is the only voter in the newest configuration that "+
			"can be read, of entry %d; a later one may be damaged or gone. If its cluster has "+
			"others, RAFT REMOVE it there, and --join an empty node under a new id; else no "+
			"other has its data", v.node, found.members.at.last)
	case slices.Equal(have, []string{v.node}):
		return 0, false, fmt.Errorf("node %s is the only voter of its cluster: no other has its "+
			"data", v.node)
	}
	if last.term > 0 && (before.last == 0 || before.term > 0) {
		term = last.term
	}
	if owed = max(before.last, last.last); owed == 0 {
		return 0, false, fmt.Errorf("data directory %s holds no log and no snapshot", dir)
	}
	if err := noteLevel(dir, owingLevel); err != nil {
		return 0, false, err
	}
	v.level = max(v.level, owingLevel)
	if s, err = openPromisesOf(dir, v); err != nil {
		return 0, false, err
	}
	changes := []change{numberChange(owedKey, owed),
		numberChange(owedTermKey, max(before.term, term)), numberChange(refetchKey, owed)}
	if id := found.cluster(); id != "" { // else an earlier refetch may have known it
		changes = append(changes, change{clusterKey, []byte(id)})
	}
	err = s.stable.setAll(changes...)
	return owed, false, errors.Join(err, s.close())
}

// ErrRefetched says what to do with a directory in which Refetch has run, and no node since.
var ErrRefetched = errors.New("start it, and it gets its state from the other members")

// refetched returns it, and what to do if that fails.
func refetched(dir, node string) error {
	return fmt.Errorf("coordd refetch has moved the state of node %s away: %w; if none of them "+
		"has it any more, move what it had back into %s first, which is in %s", node, ErrRefetched,
		dir, keptByRefetch(dir))
}

// keptByRefetch names the directories to which Refetch has moved what was there: an interrupted
// call leaves a part in each.
func keptByRefetch(dir string) string {
	all, _ := entriesOf(dir, refetchedPrefix, "") // its names are all that is asked
	return strings.Join(all, ", ")
}

// checkRefetched refuses a directory whose refetching was interrupted.
func (s *stableStore) checkRefetched(dir string) error {
	if s.number(refetchKey) == 0 {
		return nil
	}
	return dirErrorf("coordd refetch --data-dir "+dir+", again",
		"coordd refetch was interrupted in data directory %s: run it again", dir)
}

// position is the end of a log: the index and the term of its last entry; term 0: unknown.
type position struct{ last, term uint64 }

// reaches reports whether a log that ends here is at least as new as one that ends there. It
// compares as Raft does, but by the index alone where the term there is unknown.
func (p position) reaches(there position) bool {
	if there.term == 0 || p.term == there.term {
		return p.last >= there.last
	}
	return p.term > there.term
}

// owedIn returns what the node of a stable store owes; term 0: unknown.
func owedIn(s *stableStore) position { return position{s.number(owedKey), s.number(owedTermKey)} }

// newestMembers is the newest of the configurations that it was told of, in whatever order their
// sources were read.
type newestMembers struct {
	at position // the newest entry at which it is known to hold
	is raft.Configuration
}

// note notes a configuration that holds at an entry: its own, or the last one of a snapshot.
func (m *newestMembers) note(at position, is raft.Configuration) {
	if at.reaches(m.at) {
		m.at, m.is = at, is
	}
}

// onDisk is what a data directory shows of the node that ran there.
type onDisk struct {
	last     position // the newest entry that it had; term 0 where that cannot be told
	members  newestMembers
	commands bool // there is an entry for the machine, or a snapshot
	salvaged bool // the members are those that can be read; there may be newer ones
}

// cluster returns the id of the cluster that the node belonged to for certain, as clusterID does.
func (d *onDisk) cluster() string {
	if !d.commands {
		return ""
	}
	return registerOf(d.members.is).cluster
}

// lookOnDisk looks through the log and the snapshots, which may be damaged.
func lookOnDisk(dir string, v dirVersion, logger *slog.Logger) (d onDisk, err error) {
	if err := d.noteSnapshots(dir, logger); err != nil {
		return d, err
	}
	s, err := lookAtLog(closers{}, dir, v, logger)
	if errors.Is(err, disk.ErrDamaged) {
		return d, d.noteDamaged(dir, v.logStore)
	}
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	first, err1 := s.log.FirstIndex()
	last, err2 := s.log.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return d, err
	}
	if last == 0 {
		first = d.last.last + 1
	}
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := s.log.GetLog(i, &l); err != nil {
			return d, fmt.Errorf("log entry %d: %w", i, err)
		}
		d.note(&l)
	}
	if d.members.at.last+1 < first || len(voters(d.members.is)) == 0 {
		was := d.last // a segment may still have what the log begins behind
		err = d.salvageAll(dir)
		d.last = was
	}
	return d, err
}

// noteSnapshots notes what the snapshots say, which may be damaged.
func (d *onDisk) noteSnapshots(dir string, logger *slog.Logger) error {
	snapshots := &snapshotFiles{filepath.Join(dir, snapshotsName), logger}
	_, index, term, err := snapshots.newest()
	if err != nil {
		return err
	}
	d.last, d.commands = position{index, term}, index > 0
	list, err := snapshots.List()
	for _, is := range list {
		d.members.note(position{is.Index, is.Term}, is.Configuration)
	}
	return err
}

// note notes an entry of the log.
func (d *onDisk) note(l *raft.Log) {
	d.noteContent(l)
	if at := (position{l.Index, l.Term}); at.reaches(d.last) {
		d.last = at
	}
}

// noteContent notes what an entry says.
func (d *onDisk) noteContent(l *raft.Log) {
	switch l.Type {
	case raft.LogConfiguration:
		d.members.note(position{l.Index, l.Term}, raft.DecodeConfiguration(l.Data))
	case raft.LogCommand:
		d.commands = true
	}
}

// noteDamaged notes what a damaged log still says. The mark says how far it went.
func (d *onDisk) noteDamaged(dir, kind string) error {
	marked := filepath.Join(dir, walName)
	if kind == LogStoreBolt {
		marked = dir
	}
	far, ok, err := raftlog.ReadMark(disk.NewSystem(), marked)
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("it cannot be told how far the log in "+
			"data directory %s went: RAFT REMOVE the node, and --join an empty one under a new id",
			dir))
	}
	d.last = position{last: max(far, d.last.last)}
	return d.salvageAll(dir)
}

// salvageAll notes what can still be read in all segments in a data directory.
func (d *onDisk) salvageAll(dir string) error {
	d.salvaged = true
	names, err := entriesOf(filepath.Join(dir, walName), "", ".wal")
	if err != nil && !missing(err) {
		return err
	}
	for _, name := range names {
		last, err := raftlog.Salvage(name, d.noteContent)
		d.last.last = max(d.last.last, last)
		if err != nil {
			return err
		}
	}
	return nil
}

// moveState moves log and snapshots into a new directory. The snapshots go last: without them a
// node would start on the end of a log.
func moveState(dir string) (kept string, err error) {
	for n := 1; ; n++ {
		kept = filepath.Join(dir, fmt.Sprint(refetchedPrefix, n))
		if err = os.Mkdir(kept, dirMode); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	for _, name := range []string{walName, boltLogName, raftlog.MarkName, snapshotsName} {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(kept, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return kept, err
		}
		if err := errors.Join(files.SyncDir(kept), files.SyncDir(dir)); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// resumeOwing reads what the node owes, and to which cluster.
func (n *Node) resumeOwing() {
	n.owed.Store(n.stores.stable.number(owedKey))
	if id := n.stores.stable.text(clusterKey); id != "" && n.owed.Load() > 0 {
		n.identity.Store(&id)
	}
}

// owing says what a node that owes waits for, empty if it does not.
func (n *Node) owing() string {
	owed := n.owed.Load()
	if !n.owes() {
		return ""
	}
	return fmt.Sprintf("coordd refetch has run on this node: it waits for its cluster's leader, "+
		"which sends it what it had, up to entry %d", owed)
}

// owes reports whether this node's log does not reach what it owes.
func (n *Node) owes() bool {
	owed := n.owed.Load()
	if owed == 0 {
		return false
	}
	if n.raft.LastIndex() < owed {
		return true
	}
	if n.owed.Swap(0) != 0 {
		n.logger.Info("the node has again what it had", "index", owed)
		err := n.stores.stable.setAll(numberChange(owedKey, 0), numberChange(owedTermKey, 0))
		if err != nil { // the next start tries again
			n.logger.Warn("cannot write what the node owes", "error", err)
		}
	}
	return false
}

// mayVote returns why this node may not vote for a candidate whose log ends so; nil: it may. It
// compares as Raft does, but with the log that this node has no more.
func (n *Node) mayVote(candidate string, ends position) error {
	if !n.owes() {
		return nil
	}
	owed := position{n.owed.Load(), n.stores.stable.number(owedTermKey)}
	if owed.term > 0 && ends.reaches(owed) {
		return nil
	}
	n.mux.warnings.Warn("a candidate may lack what this node had and has not got again: it gets "+
		"no vote", "candidate", candidate, "last entry", ends.last, "term", ends.term,
		"owed entry", owed.last, "owed term", owed.term)
	return errOwes
}

// errOwes refuses votes.
var errOwes = errors.New("this node has not got its state again, and votes only for who has all " +

	"that it had")
