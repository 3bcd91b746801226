package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/audit"
	"github.com/coordd/coordd/internal/discovery"
)

// TLSScheme begins an address that is dialed with TLS.
const TLSScheme = "rediss://"

const (
	joinPause = 500 * time.Millisecond // between two rounds over the members
	joinWait  = 20 * time.Second       // for one reply
)

// follow watches the node's membership: it joins a cluster if asked to, and reacts when the node is
// removed.
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
			if n.cfg.AutoID {
				n.failed <- fmt.Errorf("node %s was removed from the cluster; when it is started "+
					"again, its files are set aside and it joins under a new id", n.cfg.ID)
			}
		}
	}()
	go n.awaitUsers(ctx)
	go n.settleUsers(ctx)
	go n.refuseSlowScripts(ctx)
	if len(n.cfg.Discover) > 0 {
		return // the cluster joins by itself
	}
	if n.cluster.Status().Joining {
		go n.join(ctx)
	} else if len(n.cfg.Join) > 0 {
		n.log.Info("--join ignored: the data directory already belongs to a cluster", "data_dir",
			n.cfg.DataDir)
	}
}

// join asks the members in turn until the node is a member. A refusal ends the node.
func (n *Node) join(ctx context.Context) {
	n.log.Info("joining a cluster", "members", strings.Join(n.cfg.Join, ","))
	reported := false
	for n.cluster.Status().Joining {
		for _, addr := range n.cfg.Join {
			err := n.askToJoin(ctx, addr)
			if err == nil {
				break
			}
			var reply redis.Error
			if errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR ") &&
				ctx.Err() == nil && n.cluster.Status().Joining {
				n.failed <- fmt.Errorf("the cluster refused this node: %s",
					strings.TrimPrefix(reply.Error(), "ERR "))
				return
			}
			if ctx.Err() == nil {
				why := fmt.Sprintf("%s does not add it: %v", addr, err)
				n.refused.Store(&why)
			}
			if !reported && ctx.Err() == nil {
				n.log.Warn("cannot join yet, retrying", "asked", addr, "error", err)
			}
		}
		reported = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(joinPause):
		}
	}
	n.log.Info("joined the cluster")
}

// refusal returns why a member that was asked by --join has not added this node; empty: none was.
func (n *Node) refusal() string {
	if why := n.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// askToJoin asks the member with the client address addr, over TLS if it is a URL rediss://.
func (n *Node) askToJoin(ctx context.Context, addr string) error {
	o := &redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: joinWait,
		Username: n.cfg.JoinUser, Password: n.cfg.JoinPassword, DisableIdentity: true,
		Protocol: 2} // no push passes for the reply
	if host, secure := strings.CutPrefix(addr, TLSScheme); secure {
		o.Addr = host
		var err error
		if o.TLSConfig, err = n.cfg.TLS.Dial(); err != nil {
			return err
		}
	}
	if w := n.cfg.World; w != nil {
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.Dial(ctx, addr)
		}
	}
	client := redis.NewClient(o)
	defer client.Close()
	return client.Do(ctx, "RAFT", "ADD", n.cfg.ID, n.cluster.Status().PeerAddr).Err()
}

// chooseID gives a node with AutoID its id, once the data directory of a removed one is cleared.
func (n *Node) chooseID() error {
	if !n.cfg.AutoID {
		return nil
	}
	kept, err := cluster.SetAsideRemoved(n.cfg.DataDir)
	if err != nil {
		return err
	}
	if kept != "" {
		n.log.Warn("the node was removed from its cluster; its files are set aside, and a new one "+
			"begins", "kept", kept)
	}
	host, err := os.Hostname()
	if err == nil {
		n.cfg.ID, err = cluster.AutoID(n.cfg.DataDir, host)
	}
	return err
}

// discoverer returns the lookup of --discover, nil without.
func (c *Config) discoverer() func(context.Context) ([]string, error) {
	if len(c.Discover) == 0 {
		return nil
	}
	resolver := discovery.NewResolver(c.DiscoverDNS)
	return func(ctx context.Context) ([]string, error) {
		return discovery.Lookup(ctx, resolver, c.Discover)
	}
}

// auditAutoremove records that this node, as leader, removed a member, or tried to.
func (n *Node) auditAutoremove(id string, unreachable time.Duration, err error) {
	n.auditOwn(replyError(err), "autoremove", id, unreachable.Round(time.Second).String())
}

// auditOwn records a change that this node made by itself, or why it could not.
func (n *Node) auditOwn(err error, event string, args ...string) {
	e := audit.Event{Event: event, Args: args, Outcome: audit.OK, Change: true}
	if err != nil {
		e.Outcome, _, _ = strings.Cut(err.Error(), " ")
	}
	n.audit.Record(e)
}
