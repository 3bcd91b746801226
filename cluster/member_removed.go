// This file holds the end of a member's part in the cluster: what a node does when it learns that it was removed.
package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// removedKey is where the stable store notes that the node was removed.
var removedKey = []byte("coordd removed")

// removal is what a node knows of its own removal.
type removal struct {
	once    sync.Once
	removed atomic.Bool
	err     error      // what requests are answered; set before is
	notify  chan error // gets it then
}

// markRemoved makes the node serve nothing any more, for ever: its removal is committed, as it learnt from its own log or from a member that
// refuses it. Requests that are under way at the leader are still answered.
func (n *Node) markRemoved() {
	n.removal.once.Do(func() {
		n.removal.err = notRun(fmt.Sprintf("node %s was removed from the cluster, use another one", n.cfg.ID))
		n.removal.removed.Store(true)
		if err := n.stores.stable.Set(removedKey, []byte("1")); err != nil {
			n.logger.Warn("the removal of this node cannot be noted", "error", err) // then the members tell again
		}
		n.logger.Error("this node was removed from the cluster, for ever: its id is not used again", "id", n.cfg.ID)
		n.mux.mute()
		n.writes.close(n.removal.err)
		n.reads.close(n.removal.err)
		n.removal.notify <- n.removal.err
	})
}

// Removed returns a channel that gets an ErrNotRun when the node was removed from its cluster. It answers every request with it from then on, also when
// it is started again.
func (n *Node) Removed() <-chan error { return n.removal.notify }
