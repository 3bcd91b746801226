package node

import (
	"errors"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/server"
)

// errLoads answers requests that arrive before the node has its data.
var errLoads = &server.Error{
	Outcome: server.NotRun, Reply: "LOADING the command did not run: this node is loading its data",
}

// replyError turns an error of the cluster into a server.Error.
func replyError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrBusy):
		return &server.Error{Outcome: server.NotRun,
			Reply: "TRYAGAIN the command did not run: " + err.Error()}
	case errors.Is(err, cluster.ErrLoading):
		return &server.Error{
			Outcome: server.NotRun,
			Reply:   "LOADING the command did not run: this node is replaying its log",
		}
	case errors.Is(err, cluster.ErrNotRun):
		return &server.Error{Outcome: server.NoLeader,
			Reply: "CLUSTERDOWN the command did not run: " + err.Error()}
	case errors.Is(err, cluster.ErrRefused):
		return &server.Error{Outcome: server.Refused, Reply: "ERR " + err.Error()}
	case errors.Is(err, cluster.ErrTooLarge):
		return &server.Error{Outcome: server.Refused,
			Reply: "ERR the command did not run: " + err.Error()}
	}
	return &server.Error{Outcome: server.Unknown,
		Reply: "UNKNOWN the command may or may not have run: " + err.Error()}
}
