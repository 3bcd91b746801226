// The mark of the log, as a node keeps it and a data directory demands it.

package cluster

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/pulse"
)

// markSync is how often the mark is synced. After a power failure it may be so much older than the
// log; after a kill it is exact.
const markSync = time.Second

// syncMark is the loop that syncs the mark of the log.
func (n *Node) syncMark() {
	ticker := pulse.NewTicker(markSync)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			ticker.Next()
			n.mark.SyncMark()
		case <-n.stop:
			return
		}
	}
}

// demandMark makes sure that a log has its mark before a command says that a directory of a level
// is ready: from markedLevel on no node starts on it else.
func demandMark(log raft.LogStore, level uint64) error {
	if level < markedLevel {
		return nil
	}
	if err := log.(raftlog.Marked).EnsureMark(); err != nil {
		return fmt.Errorf("cannot write the file %s, without which no node starts here; make "+
			"room and run this again: %w", raftlog.MarkName, err)
	}
	return nil
}
