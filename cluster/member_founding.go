// Whether a node founds a cluster, joins one or continues in its own: its data directory checked
// against the members that it is started with.

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// storedConfiguration returns the newest configuration in the stores: the last one in the log,
// which Raft uses as soon as it is logged, else that of the newest snapshot. ok is false if there
// is none.
func (s *stores) storedConfiguration() (c raft.Configuration, ok bool, err error) {
	snapshots, err := s.snapshots.List()
	if err != nil {
		return c, false, err
	}
	replaced, err := s.snapshots.unfit()
	if err != nil {
		return c, false, err
	}
	first, err := s.log.FirstIndex()
	if err != nil {
		return c, false, err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return c, false, err
	}
	if len(snapshots) > 0 {
		c, ok = snapshots[0].Configuration, true
		first = max(first, snapshots[0].Index+1)
	}
	for i := last; i >= max(first, replaced+1); i-- {
		var l raft.Log
		if err := s.log.GetLog(i, &l); err != nil {
			return c, false, fmt.Errorf("log entry %d: %w", i, err)
		}
		if l.Type == raft.LogConfiguration {
			return raft.DecodeConfiguration(l.Data), true, nil
		}
	}
	return c, ok, nil
}

// foundingKey is where the stable store keeps how the node began: "1 join", or "1 " and the ids of
// its first configuration. The leading number is the version of this form.
var foundingKey = []byte("coordd founding")

const foundedByJoin = "1 join"

// founding returns the value of foundingKey, empty if there is none.
func (s *stores) founding() string { return s.stable.text(foundingKey) }

// undoFounding undoes a founding that was interrupted after Raft had stored the first term, and
// before it had stored the first configuration: with the one and without the other, it would wait
// for a leader and found nothing. The node has promised nothing, since the first vote is given in
// term 2.
func (s *stores) undoFounding() error {
	if s.stable.number(currentTermKey) != 1 || s.stable.number(lastVoteTermKey) > 0 ||
		s.stable.number(owedKey) > 0 { // Refetch has moved the configuration away
		return nil
	}
	last, err1 := s.log.LastIndex()
	snapshots, err2 := s.snapshots.List()
	if err := errors.Join(err1, err2); err != nil || last > 0 || len(snapshots) > 0 {
		return err
	}
	return s.stable.resetTerm()
}

// checkFounding decides whether this node founds a cluster, joins one or continues in its own. It
// refuses to start on the state of a cluster unrelated to the configured members: a node that once
// ran alone would otherwise lead alone and acknowledge writes that the others never see. It
// compares the given members with the cluster as founded (its members change while the flags stay)
// and as it is now.
func (n *Node) checkFounding(existing bool) error {
	founding := n.stores.founding()
	given := voters(n.firstConfiguration())
	wanted := "1 " + strings.Join(given, ",")
	if !existing {
		// once it has asked, a cluster may count on it
		n.joining = n.cfg.Join || n.cfg.Discover != nil ||
			founding == foundedByJoin
		if n.joining {
			wanted = foundedByJoin
		}
		if n.joining && !n.cfg.Join && n.cfg.Discover == nil {
			n.logger.Warn("this node was started with --join and has not been added to a cluster: "+
				"it waits for one and founds none; start it with --join, or empty its data "+
				"directory", "data-dir", n.cfg.DataDir)
		}
		return n.recordFounding(wanted)
	}
	stored, ok, err := n.stores.storedConfiguration()
	if err != nil {
		return fmt.Errorf("cannot read the configuration in data directory %s: %w",
			n.cfg.DataDir, err)
	}
	have := voters(stored)
	switch {
	case !ok:
		n.joining = founding == foundedByJoin && n.owed.Load() == 0 // else it is a member
		return nil
	case founding == "": // an earlier version did not record it
		founding = "1 " + strings.Join(have, ",")
		if err := n.recordFounding(founding); err != nil {
			return err
		}
	}
	if n.cfg.Join || n.cfg.Discover != nil ||
		founding == foundedByJoin && len(n.cfg.Members) == 0 {
		return nil
	}
	return checkMembers(n.cfg.DataDir, founding, have, given)
}

// checkMembers compares the given members with those of a data directory, as they were when its
// node began and as they are now.
func checkMembers(dir, founding string, have, given []string) error {
	if founding == "1 "+strings.Join(given, ",") || slices.Equal(have, given) {
		return nil
	}
	return dirErrorf("if it was started before its flags were complete and nothing of its data is "+
		"needed: empty "+dir+", and start it. Otherwise start it with the members that it has, "+
		"and have others --join them",
		"data directory %s belongs to a cluster of the nodes %s, not of the configured nodes %s",
		dir, strings.Join(have, ", "), strings.Join(given, ", "))
}

// CheckMembers returns why the node would not start with the given members; none: alone.
func (o *Offline) CheckMembers(given []Member) error {
	have, founding := voters(o.members), o.stores.founding()
	if len(have) == 0 || founding == foundedByJoin && len(given) == 0 {
		return nil
	}
	c := Config{ID: o.version.node, Members: given}
	return checkMembers(o.dir, founding, have, voters(c.memberConfiguration("")))
}

// recordFounding stores how the node began.
func (n *Node) recordFounding(how string) error {
	if err := n.stores.stable.Set(foundingKey, []byte(how)); err != nil {
		return fmt.Errorf("cannot write data directory %s: %w", n.cfg.DataDir, err)
	}
	return nil
}

// voters returns the ids of the voters, sorted.
func voters(c raft.Configuration) []string {
	var ids []string
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	slices.Sort(ids)
	return ids
}
