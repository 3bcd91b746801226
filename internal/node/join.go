package node

// What lives here: how a node with --join asks a cluster to take it in, and what a node does when it is removed.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	joinPause = 500 * time.Millisecond // between two rounds of asking
	joinWait  = 20 * time.Second       // for one answer
)

// follow starts what follows the node's place in its cluster.
func (n *Node) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-n.stop:
		case err := <-n.cluster.Failed():
			n.failed <- err
		case err := <-n.cluster.Removed():
			n.server.DropWaiting(replyError(err))
		}
	}()
	if n.cluster.Status().Joining {
		go n.join(ctx)
	} else if len(n.cfg.Join) > 0 {
		n.log.Info("the data directory belongs to a cluster already, --join is not used", "data_dir", n.cfg.DataDir)
	}
}

// join asks the members in turn until this node has heard of the cluster that took it in. A refusal ends the node.
func (n *Node) join(ctx context.Context) {
	n.log.Info("asks to be taken in", "members", strings.Join(n.cfg.Join, ","))
	reported := false
	for n.cluster.Status().Joining {
		for _, addr := range n.cfg.Join {
			err := n.askToJoin(ctx, addr)
			if err == nil {
				break
			}
			var reply redis.Error
			if errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR ") && ctx.Err() == nil && n.cluster.Status().Joining {
				n.failed <- fmt.Errorf("the cluster did not take this node in: %s", strings.TrimPrefix(reply.Error(), "ERR "))
				return
			}
			if !reported && ctx.Err() == nil {
				n.log.Warn("not taken in yet, asks again", "asked", addr, "error", err)
			}
		}
		reported = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(joinPause):
		}
	}
	n.log.Info("taken in by the cluster")
}

// askToJoin asks the member whose clients' address is addr.
func (n *Node) askToJoin(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: joinWait, DisableIdentity: true})
	defer client.Close()
	return client.Do(ctx, "RAFT", "ADD", n.cfg.ID, n.cluster.Status().PeerAddr).Err()
}
