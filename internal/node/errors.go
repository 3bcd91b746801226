package node

import (
	"errors"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
)

// errLoads answers what comes before the node has its data.
const errLoads commands.Error = "LOADING the command did not run: this node loads its data"

// replyError makes of the cluster's certainties what clients are told.
func replyError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrBusy):
		return commands.Errorf("TRYAGAIN the command did not run: %v", err)
	case errors.Is(err, cluster.ErrLoading):
		return commands.Errorf("LOADING the command did not run: this node replays its log")
	case errors.Is(err, cluster.ErrNotRun):
		return commands.Errorf("CLUSTERDOWN the command did not run: %v", err)
	case errors.Is(err, cluster.ErrRefused):
		return commands.Errorf("ERR %v", err)
	case errors.Is(err, cluster.ErrTooLarge):
		return commands.Errorf("ERR the command did not run: %v", err)
	}
	return commands.Errorf("UNKNOWN the command may or may not have run: %v", err)
}
