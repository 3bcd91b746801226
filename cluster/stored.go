// This file holds the check of a data directory's own cluster against the members that the node is started with.
package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// storedConfiguration returns the newest configuration in the stores: the last one in the log, as Raft uses it from
// the moment that it is logged, else that of the newest snapshot. ok is false when there is none.
func (s *stores) storedConfiguration() (c raft.Configuration, ok bool, err error) {
	snapshots, err := s.snapshots.List()
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
	for i := last; i >= max(first, 1); i-- {
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

// checkStored refuses to start on the state of another cluster than the configured one. A node that had once been
// started alone would otherwise lead alone and acknowledge writes that its supposed fellows never see.
func (n *Node) checkStored() error {
	stored, ok, err := n.stores.storedConfiguration()
	if err != nil {
		return fmt.Errorf("the configuration in data directory %s cannot be read: %w", n.cfg.DataDir, err)
	}
	if !ok {
		return nil
	}
	have, want := voters(stored), voters(n.firstConfiguration())
	if slices.Equal(have, want) {
		return nil
	}
	return fmt.Errorf("data directory %s belongs to a cluster of the nodes %s, and this node is started with the nodes %s",
		n.cfg.DataDir, strings.Join(have, ", "), strings.Join(want, ", "))
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
