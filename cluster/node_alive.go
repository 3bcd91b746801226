// Liveness: whether Raft answers, for a watchdog.

package cluster

import (
	"context"
	"errors"
)

// CheckAlive asks Raft's main loop for an answer, and fails if ctx ends first. It passes while the
// node knows why the loop may be busy: it receives a snapshot, or its disk hangs. A restart would
// mend neither.
func (n *Node) CheckAlive(ctx context.Context) error {
	if s := n.Status(); s.Loading || s.Snapshotting || s.LogTrouble != "" {
		return nil
	}
	answered := make(chan struct{})
	go func() {
		_ = n.raft.VerifyLeader().Error() // any answer will do, also that it does not lead
		close(answered)
	}()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return errors.New("Raft does not answer")
	}
}
