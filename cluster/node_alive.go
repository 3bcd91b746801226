// Liveness: whether Raft answers, for a watchdog.

package cluster

import (
	"context"
	"errors"

	"github.com/hashicorp/raft"
)

// CheckAlive asks Raft's main loop for an answer, and fails if ctx ends first. It asks to bootstrap
// a cluster of nobody, which the loop refuses in every state, and nothing else follows.
// VerifyLeader would have each follower asked, and one that hangs denies it: that deposes a leader
// that is well. It passes while the node knows why the loop may be busy: it receives a snapshot, or
// its disk hangs. A restart would mend neither.
func (n *Node) CheckAlive(ctx context.Context) error {
	if s := n.Status(); s.Loading || s.Snapshot.Writing || s.LogTrouble != "" {
		return nil
	}
	answered := make(chan struct{})
	go func() {
		_ = n.raft.BootstrapCluster(raft.Configuration{}).Error()
		close(answered)
	}()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return errors.New("Raft does not answer")
	}
}
