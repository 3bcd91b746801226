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
	lookPause = 10 * time.Second       // between two looks for the cluster that --join names
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
		go n.lookForCluster(ctx)
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

// lookForCluster notes whether this node is a cluster of its own beside the one that --join names:
// it was started before it had that flag, founded a cluster, and leads it. Both would grant a lock.
func (n *Node) lookForCluster(ctx context.Context) {
	for {
		said := ""
		if len(n.cluster.Status().Members) == 1 {
			for _, addr := range n.cfg.Join {
				if lead := n.otherLeader(ctx, addr); lead != "" && said == "" {
					said = fmt.Sprintf("this node is a cluster of its own, and %s of --join is of "+
						"another one, which node %s leads", addr, lead)
				}
			}
		}
		if was := n.beside.Swap(&said); said != "" && (was == nil || *was != said) {
			n.log.Warn(said, "next", besideNext)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookPause):
		}
	}
}

// besideNext is the next act for a node beside the cluster that --join names.
const besideNext = "stop it. If nothing of its data is needed, empty its data directory and " +
	"start it: it joins. Otherwise take --join away"

// otherLeader returns the leader that the member at a client address follows; empty: it is this
// node, or is not known.
func (n *Node) otherLeader(ctx context.Context, addr string) string {
	client, err := n.memberAt(addr)
	if err != nil {
		return ""
	}
	defer client.Close()
	said, _ := client.Do(ctx, "RAFT", "STATUS").Slice() // nil if another program answers, say
	lead, at := "", ""
	for i := 0; i+1 < len(said); i += 2 {
		switch value := fmt.Sprint(said[i+1]); said[i] {
		case "leader":
			lead = value
		case "leader-address":
			at = value
		}
	}
	if own := n.cluster.Status(); lead == own.ID && at == own.ClientAddr {
		return ""
	}
	return lead
}

// isBeside returns what lookForCluster found; empty: nothing.
func (n *Node) isBeside() string {
	if said := n.beside.Load(); said != nil {
		return *said
	}
	return ""
}

// refusal returns why a member that was asked by --join has not added this node; empty: none was.
func (n *Node) refusal() string {
	if why := n.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// askToJoin asks the member with the client address addr to add this node.
func (n *Node) askToJoin(ctx context.Context, addr string) error {
	client, err := n.memberAt(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Do(ctx, "RAFT", "ADD", n.cfg.ID, n.cluster.Status().PeerAddr).Err()
}

// memberAt returns a client of the member with the client address addr, over TLS if it is a URL
// rediss://.
func (n *Node) memberAt(addr string) (*redis.Client, error) {
	o := &redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: joinWait,
		Username: n.cfg.JoinUser, Password: n.cfg.JoinPassword, DisableIdentity: true,
		Protocol: 2} // no push passes for the reply
	if host, secure := strings.CutPrefix(addr, TLSScheme); secure {
		o.Addr = host
		var err error
		if o.TLSConfig, err = n.cfg.TLS.Dial(); err != nil {
			return nil, err
		}
	}
	if w := n.cfg.World; w != nil {
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.Dial(ctx, addr)
		}
	}
	return redis.NewClient(o), nil
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
