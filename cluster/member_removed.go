// What a node does when it learns that it was removed from the cluster.

package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// removedKey is where the stable store notes that the node was removed.
var removedKey = []byte("coordd removed")

// wasRemoved reports whether the stable store notes that the node was removed from its cluster.
func (s *stores) wasRemoved() bool { return s.stable.text(removedKey) != "" }

// removal is what a node knows of its own removal.
type removal struct {
	once    sync.Once
	removed atomic.Bool
	err     error      // answers requests; set before removed
	notify  chan error // receives err
}

// markRemoved makes the node refuse all requests for good: its removal is committed, as it learned
// from its own log or from a member that refuses it. Requests in flight at the leader are still
// answered.
func (n *Node) markRemoved() {
	n.removal.once.Do(func() {
		n.removal.err = notRun(fmt.Sprintf("node %s was removed from the cluster; use another node",
			n.cfg.ID))
		n.removal.removed.Store(true)
		if err := n.stores.stable.Set(removedKey, []byte("1")); err != nil {
			// then the members tell again
			n.logger.Warn("recording the removal of this node failed", "error", err)
		}
		n.logger.Error("this node was removed from the cluster; its id is never reused", "id",
			n.cfg.ID)
		n.mux.mute()
		n.writes.close(n.removal.err)
		n.reads.close(n.removal.err)
		n.removal.notify <- n.removal.err
	})
}

// Removed returns a channel that receives an ErrNotRun when the node was removed from its cluster.
// From then on it is the answer to every request, also after a restart.
func (n *Node) Removed() <-chan error { return n.removal.notify }
