// Recovery: a data directory whose cluster lost its majority becomes that of a new cluster with
// this node alone.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/files"
)

// Offline is a data directory on which no node runs.
type Offline struct {
	dir     string
	version dirVersion
	stores  *stores
	members raft.Configuration
	machine Machine
	logger  *slog.Logger
	before  uint64 // entries from here on are left out; 0: none
	locked  bool   // by lockName
}

// Contents describes what a data directory holds.
type Contents struct {
	Node      string
	Cluster   string   // the cluster's id; empty: none
	Voters    []string // their ids, sorted, by the newest configuration in the log
	Learners  []string
	Removed   []string // ids that must not be reused
	LastIndex uint64   // the last entry in the log, or the snapshot's if nothing follows it
	// term of that entry. Of two directories, the larger term, then index, has more
	LastTerm      uint64
	SnapshotIndex uint64 // 0: none
	Term, Voted   uint64 // the newest that the node knew, and in which it voted
	LastEntry     []byte // the newest entry for the machine in the log; nil: none
	// Owed is the newest entry that the node had before Refetch, if its log then was newer than it
	// is now, else 0. Kept names where that was moved; empty: it is there no more.
	Owed uint64
	Kept string
}

// OpenOffline opens a node's data directory for m, an empty machine, and locks it until Close. It
// writes nothing.
func OpenOffline(dir string, m Machine, logger *slog.Logger) (*Offline, error) {
	v, err := readNode(dir)
	if err != nil {
		return nil, err
	}
	if err := v.checkLevel(dir, levelsOf(m).CheckLevel); err != nil {
		return nil, err
	}
	lock, held, err := lockToLook(dir, v.level)
	if err != nil {
		return nil, err
	}
	s, err := lookAt(lock, dir, v, logger)
	if err != nil {
		return nil, err
	}
	o := &Offline{dir: dir, version: v, stores: s, machine: m, logger: logger, locked: held}
	unfit, err := s.snapshots.unfit()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.log = laterLog{s.log, unfit} // nothing is dropped until a node starts
	var ok bool
	switch o.members, ok, err = s.storedConfiguration(); {
	case err != nil || ok:
	case s.stable.number(owedKey) > 0:
		err = refetched(dir, v.node)
	default:
		err = dirErrorf("start it: it joins a cluster then, or says what it waits for",
			"data directory %s belongs to no cluster: node %s never joined one", dir, v.node)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return o, nil
}

// Close releases the directory.
func (o *Offline) Close() error { return o.stores.close() }

// Contents inspects the directory.
func (o *Offline) Contents() (Contents, error) {
	h := Contents{Node: o.version.node, Cluster: registerOf(o.members).cluster,
		Voters: voters(o.members), Term: o.stores.stable.number(currentTermKey),
		Voted: o.stores.stable.number(lastVoteTermKey)}
	for _, s := range o.members.Servers {
		switch {
		case isRetired(s):
			h.Removed = append(h.Removed, string(s.ID))
		case s.Suffrage != raft.Voter && !isRegister(s):
			h.Learners = append(h.Learners, string(s.ID))
		}
	}
	slices.Sort(h.Removed)
	snapshots, err := o.stores.snapshots.List()
	if err != nil {
		return h, err
	}
	if len(snapshots) > 0 {
		h.SnapshotIndex, h.LastIndex, h.LastTerm = snapshots[0].Index, snapshots[0].Index,
			snapshots[0].Term
	}
	err = o.entries(h.SnapshotIndex+1, func(l *raft.Log) {
		h.LastIndex, h.LastTerm = l.Index, l.Term
		if l.Type == raft.LogCommand {
			h.LastEntry = l.Data
		}
	})
	if had := owedIn(o.stores.stable); !(position{h.LastIndex, h.LastTerm}).reaches(had) {
		h.Owed, h.Kept = had.last, keptByRefetch(o.dir)
	}
	return h, err
}

// Owing says what the node had before Refetch and has not got again; empty: nothing.
func (h *Contents) Owing() string {
	switch {
	case h.Owed == 0:
		return ""
	case h.Kept == "":
		return fmt.Sprintf("entry %d: coordd refetch moved away what the node had, and it is not "+
			"in the data directory any more", h.Owed)
	}
	return fmt.Sprintf("entry %d: what the node had is in %s", h.Owed, h.Kept)
}

// entries calls f with the entries of the log from an index on.
func (o *Offline) entries(from uint64, f func(*raft.Log)) error {
	first, err1 := o.stores.log.FirstIndex()
	last, err2 := o.stores.log.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if last >= from && first > from {
		return dirErrorf(nextDamaged, "data directory %s lacks the log entries from %d to %d",
			o.dir, from, first-1)
	}
	for i := from; i <= last; i++ {
		var l raft.Log
		if err := o.stores.log.GetLog(i, &l); err != nil {
			return fmt.Errorf("log entry %d: %w", i, err)
		}
		f(&l)
	}
	return nil
}

// Replay brings the machine to the newest state: the snapshot and every entry after it, committed
// or not, since the majority can no longer be asked. If before is above 0, it stops before that
// entry. each is called before each entry is applied; it may be nil.
func (o *Offline) Replay(before uint64, each func(index uint64)) error {
	o.before = before
	a := newApplier(o.machine, o.logger)
	a.replayEnd.Store(^uint64(0))
	snapshots, err := o.stores.snapshots.List()
	if err != nil {
		return err
	}
	from := uint64(1)
	if len(snapshots) > 0 {
		from = snapshots[0].Index + 1
	}
	if before > 0 && before < from {
		return fmt.Errorf(
			"cannot leave out entry %d: the snapshot in data directory %s has all up to entry %d",
			before, o.dir, from-1)
	}
	if len(snapshots) > 0 {
		_, r, err := o.stores.snapshots.Open(snapshots[0].ID)
		if err != nil {
			return fmt.Errorf("cannot read the snapshot in data directory %s: %w", o.dir, err)
		}
		defer r.Close()
		if err := a.Restore(r); err != nil {
			return fmt.Errorf("cannot read the snapshot in data directory %s: %w", o.dir, err)
		}
	}
	return o.entries(from, func(l *raft.Log) {
		if l.Type != raft.LogCommand || before > 0 && l.Index >= before {
			return
		}
		if each != nil {
			each(l.Index)
		}
		a.Apply(l)
	})
}

// CheckAlone returns why the node cannot continue alone. The only voter of its cluster need not,
// unless entries are to be left out. One that never voted was recovered or restored and not
// started: that can be done again, for later fencing tokens.
func (o *Offline) CheckAlone() error {
	i := slices.IndexFunc(o.members.Servers, func(s raft.Server) bool {
		return string(s.ID) == o.version.node
	})
	switch {
	case i < 0 || isRetired(o.members.Servers[i]) || o.stores.wasRemoved():
		return fmt.Errorf("node %s was removed from its cluster", o.version.node)
	case o.before == 0 && slices.Equal(voters(o.members), []string{o.version.node}) &&
		o.stores.stable.number(lastVoteTermKey) > 0:
		return fmt.Errorf("node %s is the only voter of its cluster: no majority is lost; start it",
			o.version.node)
	}
	return nil
}

// RecoverAlone replaces the directory's content: the node becomes the only voter of a new cluster,
// with the bytes that write writes as the state at an index and in a term of the log. No id of the
// old cluster can be reused except the node's own. The old content moves to the subdirectory kept.
// If interrupted, the old content stays valid or, from OpenOffline on, the new one is.
func (o *Offline) RecoverAlone(epoch, index, term uint64,
	write func(io.Writer) error) (kept string, err error) {
	if err := o.CheckAlone(); err != nil {
		return "", err
	}
	if !o.locked { // from here on it is not only looked at
		lock, err := lockDir(o.dir)
		if err != nil {
			return "", err
		}
		o.stores.closers, o.locked = append(o.stores.closers, lock), true
		if err := o.version.unchanged(o.dir); err != nil {
			return "", err
		}
	}
	from := Origin{Cluster: NewClusterID(), Index: index, Term: term,
		Level: levelsOf(o.machine).Level(), founding: o.stores.founding()}
	cfg := Config{ID: o.version.node, LogStore: o.version.logStore, Logger: o.logger}
	for _, s := range o.members.Servers {
		switch {
		case string(s.ID) == o.version.node && CheckAddress(string(s.Address)) != nil:
			// 0.1 took any: the node announces another one when it starts
		case string(s.ID) == o.version.node:
			cfg.Members = []Member{{ID: o.version.node, PeerAddr: string(s.Address)}}
		case !isRegister(s):
			from.retired = append(from.retired,
				raft.Server{Suffrage: raft.Nonvoter, ID: s.ID,
					Address: raft.ServerAddress(retiredPrefix + string(s.ID))})
		}
	}
	x, err := newExchange(o.dir, fmt.Sprint(epoch))
	if err != nil {
		return "", err
	}
	cfg.DataDir = x.staged
	if err := Seed(cfg, from, write); err != nil {
		return "", err
	}
	return x.kept, x.run()
}

// exchange moves the content of the directory staged into dir, and what was there into kept. Both
// are in dir, which may be a mount point. The locks stay: kept has one for who looks at it.
type exchange struct{ dir, staged, kept string }

const (
	stagedPrefix = "epoch-"
	stagedSuffix = ".new"
	keptPrefix   = "before-epoch-"
)

// newExchange returns an exchange whose names nothing has yet. The data of an earlier one may have
// been put back. What was staged for one that never began goes: if this one is interrupted, only
// what it has staged may come.
func newExchange(dir, epoch string) (exchange, error) {
	if err := removeEntries(dir, stagedPrefix, stagedSuffix); err != nil {
		return exchange{}, err
	}
	for label, n := epoch, 2; ; n++ {
		x := exchangeOf(dir, label)
		_, err := os.Lstat(x.kept)
		if errors.Is(err, fs.ErrNotExist) {
			return x, nil
		}
		if err != nil {
			return x, err
		}
		label = fmt.Sprint(epoch, "-", n)
	}
}

// stagedEpoch returns the epoch in the name of a staged directory.
func stagedEpoch(name string) (string, bool) {
	epoch, begins := strings.CutPrefix(name, stagedPrefix)
	epoch, ends := strings.CutSuffix(epoch, stagedSuffix)
	return epoch, begins && ends
}

func exchangeOf(dir, epoch string) exchange {
	return exchange{dir, filepath.Join(dir, stagedPrefix+epoch+stagedSuffix),
		filepath.Join(dir, keptPrefix+epoch)}
}

// run makes the exchange. It can be repeated after an interruption: what is still in staged was not
// exchanged. Open refuses a directory without its version file, so that one goes first and comes
// last.
func (x exchange) run() error {
	if err := endSeeding(x.dir); err != nil {
		return err
	}
	if err := makeDir(x.kept); err != nil {
		return err
	}
	lock, err := lockDir(x.kept)
	if err == nil {
		err = lock.Close()
	}
	if err != nil {
		return err
	}
	for _, name := range append([]string{versionName}, storeNames...) {
		from := filepath.Join(x.staged, name)
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		err := os.Rename(filepath.Join(x.dir, name), filepath.Join(x.kept, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if name == versionName {
			err = errors.Join(files.SyncDir(x.kept), files.SyncDir(x.dir))
		} else {
			err = os.Rename(from, filepath.Join(x.dir, name))
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(files.SyncDir(x.kept), files.SyncDir(x.dir)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(x.staged, versionName),
		filepath.Join(x.dir, versionName)); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(x.staged), files.SyncDir(x.dir))
}

// FinishRecovery finishes an interrupted recovery of a data directory, and returns where the data
// is that was there before; "" if there was none. Then the caller makes it again: its fencing
// tokens are of when it began, and other copies may have been recovered since.
func FinishRecovery(dir string) (kept string, err error) {
	x, err := interrupted(dir)
	if err != nil || x == nil {
		return "", err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	kept = x.kept
	if x, err = interrupted(dir); err == nil && x != nil { // nobody else has finished it
		kept, err = x.kept, x.run()
	}
	if err != nil {
		return "", fmt.Errorf(
			"cannot finish the interrupted recovery of data directory %s: %w", dir, err)
	}
	return kept, nil
}

// recoveryInterrupted returns an error that says so, if a recovery of a data directory was.
func recoveryInterrupted(dir string) error {
	x, err := interrupted(dir)
	if err != nil || x == nil {
		return err
	}
	return dirErrorf("coordd recover --data-dir "+dir+" --accept-lost-writes, which finishes it",
		"a recovery of data directory %s was interrupted: coordd recover "+
			"--accept-lost-writes, without --before-entry, finishes it; the data from before is "+
			"in %s", dir, x.kept)
}

// interrupted returns an interrupted exchange, nil if there is none: the directory has no version
// file, a staged one has, and the one that was there is where the exchange moved it. Without that,
// something else took it away from a directory in which an exchange was staged and never began.
func interrupted(dir string) (*exchange, error) {
	if _, err := os.Stat(filepath.Join(dir, versionName)); !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		epoch, ok := stagedEpoch(e.Name())
		if !ok {
			continue
		}
		x := exchangeOf(dir, epoch)
		_, err1 := os.Stat(filepath.Join(x.staged, versionName))
		_, err2 := os.Stat(filepath.Join(x.kept, versionName))
		switch err := errors.Join(err1, err2); {
		case err == nil:
			return &x, nil
		case err1 != nil && !missing(err1), err2 != nil && !missing(err2):
			return nil, err
		}
	}
	return nil, nil
}
