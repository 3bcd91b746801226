package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/observe"
	"github.com/coordd/coordd/server"
)

// backend is the node as its server sees it.
type backend struct{ *Node }

// Write implements server.Backend.
func (n backend) Write(ctx context.Context, load server.Workload, batch []byte,
	count int) (commands.Replies, error) {
	c := n.loaded.Load()
	if c == nil {
		return commands.Replies{}, errLoads
	}
	b, err := c.Write(ctx, load, batch, count)
	return commands.RepliesOf(b), replyError(err)
}

// Read implements server.Backend.
func (n backend) Read(ctx context.Context, load server.Workload,
	batch []byte) (commands.Replies, error) {
	c := n.loaded.Load()
	if c == nil {
		return commands.Replies{}, errLoads
	}
	b, err := c.Read(ctx, load, batch)
	return commands.RepliesOf(b), replyError(err)
}

// DryRun implements server.Backend.
func (n backend) DryRun(ctx context.Context, load server.Workload,
	batch []byte) (commands.Replies, error) {
	c := n.loaded.Load()
	if c == nil {
		return commands.Replies{}, errLoads
	}
	b, err := c.DryRun(ctx, load, batch)
	return commands.RepliesOf(b), replyError(err)
}

// ReadLocal implements server.Backend.
func (n backend) ReadLocal(load server.Workload, batch []byte) (commands.Replies, error) {
	c := n.loaded.Load()
	if c == nil {
		return commands.Replies{}, errLoads
	}
	b, err := c.ReadLocal(load, batch)
	return commands.RepliesOf(b), replyError(err)
}

// Schedule implements server.Backend.
func (n backend) Schedule(load server.Workload, f func()) error {
	c := n.loaded.Load()
	if c == nil { // there is nothing to share the processor with
		f()
		return nil
	}
	return replyError(c.Schedule(load, f))
}

// Observe implements server.Backend.
func (n backend) Observe(wants func(db int, key string) bool) { n.adapter.SetInterest(wants) }

// Level implements server.Backend.
func (n backend) Level() uint64 { return n.adapter.Level() }

// ClockMs implements server.Backend.
func (n backend) ClockMs() int64 {
	if c := n.loaded.Load(); c != nil {
		return c.ClockMs()
	}
	return 0
}

// Waits implements server.Backend.
func (n backend) Waits(number uint64) bool { return n.adapter.Waits(number) }

// LockTokens implements server.Backend.
func (n backend) LockTokens(of []commands.HeldLock) (tokens []uint64, newest uint64) {
	return n.adapter.LockTokens(of)
}

// ScriptVerdicts implements server.Backend.
func (n backend) ScriptVerdicts() []commands.ScriptVerdict { return n.adapter.ScriptVerdicts() }

// WaitsHeld implements server.Backend.
func (n backend) WaitsHeld() bool { return n.adapter.Held() }

// WaitingNodes implements server.Backend.
func (n backend) WaitingNodes() []string { return n.adapter.WaitingNodes() }

// FirstWait implements server.Backend.
func (n backend) FirstWait() uint64 { return n.adapter.FirstWait() }

// OwnWaits implements server.Backend.
func (n backend) OwnWaits() []uint64 { return n.adapter.OwnWaits() }

// SubscribedNodes implements server.Backend.
func (n backend) SubscribedNodes() []string { return n.adapter.SubscribedNodes() }

// HolderNodes implements server.Backend.
func (n backend) HolderNodes() []string { return n.adapter.HolderNodes() }

// Watch implements server.Backend.
func (n backend) Watch(on bool) { n.adapter.Watch(on) }

// Users implements server.Backend. The users are known once the node has caught up with its leader
// for the first time. The machine of a new cluster lets everybody in, so its first users are
// awaited from the start; a node that still reads its log may have others there.
func (n backend) Users() *server.Users {
	known, users := n.usersKnown.Load(), n.adapter.Users()
	switch {
	case users.Changed == 0 && n.cfg.FirstUsers != nil && (known || !n.Status().Loading):
		return server.UsersAwaited
	case !known:
		return nil
	}
	return (*server.Users)(users)
}

// TransferLeadership implements server.Backend.
func (n backend) TransferLeadership(id string) error {
	c := n.loaded.Load()
	if c == nil {
		return errLoads
	}
	return replyError(c.TransferLeadership(id))
}

// Snapshot implements server.Backend.
func (n backend) Snapshot() error {
	c := n.loaded.Load()
	if c == nil {
		return errLoads
	}
	return c.Snapshot()
}

// ChangeMembers implements server.Backend.
func (n backend) ChangeMembers(c server.MemberChange) error {
	m := n.loaded.Load()
	if m == nil {
		return errLoads
	}
	return replyError(m.ChangeMembers(c))
}

// Found implements server.Backend.
func (n backend) Found() (string, error) {
	m := n.loaded.Load()
	if m == nil {
		return "", errLoads
	}
	cluster, err := m.Found()
	return cluster, replyError(err)
}

// FoundingUsers implements server.Backend.
func (n backend) FoundingUsers() *acl.Users {
	if m := n.loaded.Load(); m == nil || !m.CanFound() {
		return nil
	}
	return n.foundingUsers
}

// LeaderMembers implements server.Backend.
func (n backend) LeaderMembers() ([]server.Member, error) {
	m := n.loaded.Load()
	if m == nil {
		return nil, errLoads
	}
	members, err := m.LeaderMembers()
	return members, replyError(err)
}

// Replication implements server.Backend.
func (n backend) Replication(ctx context.Context) (server.Replication, error) {
	c := n.loaded.Load()
	if c == nil {
		return server.Replication{}, errLoads
	}
	r, err := c.Replication(ctx)
	return r, replyError(err)
}

// AskOthers implements server.Backend.
func (n backend) AskOthers(question []byte) (answers [][]byte, silent []string) {
	c := n.loaded.Load()
	if c == nil {
		return nil, nil
	}
	return c.AskOthers(context.Background(), question)
}

// Barrier implements server.Backend.
func (n backend) Barrier(ctx context.Context) error {
	c := n.loaded.Load()
	if c == nil {
		return errLoads
	}
	if err := c.Barrier(ctx); err != nil {
		return replyError(err)
	}
	return nil
}

// Backup implements server.Backend.
func (n backend) Backup() server.Backup { return n.adapter.Freeze() }

// Stop implements server.Backend. Whoever runs the node closes it.
func (n backend) Stop() { n.requestStop() }

// WatchLeader implements server.Backend.
func (n backend) WatchLeader() (<-chan struct{}, func()) {
	if c := n.loaded.Load(); c != nil {
		return c.WatchLeader()
	}
	changes, end := make(chan struct{}, 1), make(chan struct{})
	go func() {
		select {
		case <-n.opened:
		case <-end:
			return
		}
		inner, stop := n.cluster.WatchLeader()
		defer stop()
		for {
			select { // the first token: the cluster is open now
			case changes <- struct{}{}:
			default:
			}
			select {
			case <-inner:
			case <-end:
				return
			}
		}
	}()
	return changes, sync.OnceFunc(func() { close(end) })
}

// Role implements server.Backend.
func (n backend) Role() string {
	if c := n.loaded.Load(); c != nil {
		return c.Status().Role
	}
	return membership.Follower
}

// Stats implements server.Backend.
func (n backend) Stats() commands.Stats { return n.adapter.Stats() }

// ValueBytes implements server.Backend.
func (n backend) ValueBytes(db int, keys [][]byte) (int, bool) {
	return n.adapter.ValueBytes(db, keys)
}

// ScriptFlags implements server.Backend.
func (n backend) ScriptFlags(s commands.Script) (commands.FunctionFlags, bool) {
	return n.adapter.ScriptFlags(s)
}

// Status implements server.Backend.
func (n backend) Status() server.Status {
	open := n.loaded.Load()
	if open == nil {
		return server.Status{
			Status:   membership.Status{ID: n.cfg.ID, Role: membership.Follower, Loading: true},
			NotReady: "LOADING: this node is loading its data",
			Next:     "wait: it reads its snapshot and its log"}
	}
	c := open.Status()
	open.AskMembers() // who looks at the node looks again, and at its members after it
	c.LastContact = max(c.LastContact, 0)
	s := server.Status{Status: c}
	switch {
	case c.Removed:
		s.NotReady = "this node was removed from the cluster"
		s.Next = "stop it; to have it as a member again, give it an empty data directory and a " +
			"new --id"
	case c.Joining:
		s.NotReady = "this node is waiting to join a cluster"
		if why := cmp.Or(c.Awaits, n.refusal()); why != "" {
			s.NotReady += ": " + why
		}
		s.Next = cmp.Or(c.AwaitsNext, "look at the member that refuses it, and whether the "+
			"addresses of --join answer")
	case c.Stranger != "":
		s.NotReady = c.Stranger
		s.Next = "stop the nodes of the wrong cluster, or take them out of --discover"
	case n.isBeside() != "":
		s.NotReady, s.Next = n.isBeside(), besideNext
	case !c.Ready && c.Unreached:
		s.NotReady = "no member reaches this node at " + c.PeerAddr
		s.Next = "set --peer-advertise to where they reach it, or open the way to there"
	case !c.Ready && c.Owing != "":
		s.NotReady = c.Owing
		s.Next = "start a majority of the other voters, or mend the network to them"
	case !c.Ready && c.Loading && c.LeaderID != "":
		s.NotReady = "LOADING: this node is loading its data"
		s.Next = "wait: it reads its snapshot and its log"
	case !c.Ready:
		s.NotReady = "no leader is reachable, or the leader has not committed an entry of its term"
		s.Next = toLead(c.Members)
	}
	return s
}

// toLead says what has to be done for a cluster to have a leader, as one of its members sees it.
func toLead(members []server.Member) string {
	voters, away, elsewhere, full := 0, []string{}, []string{}, []string{}
	for _, m := range members {
		if m.Voter {
			voters++
			if observe.Away(m.Connected, m.LastContact) {
				away = append(away, m.ID)
			} else if m.LogTrouble != "" {
				full = append(full, m.ID)
			}
			if m.Elsewhere {
				elsewhere = append(elsewhere, m.ID)
			}
		}
	}
	missing := voters/2 + 1 - (voters - len(away))
	switch { // none of those elsewhere comes back by being started
	case missing > len(away)-len(elsewhere):
		return fmt.Sprintf("%s answer for another cluster: stop the nodes of the wrong one. After "+
			"a restore: restore all again, from one file and with one --tokens-above: "+
			"operations.md, Restore", strings.Join(elsewhere, ", "))
	case missing > 0:
		return fmt.Sprintf("start %d of %s on their data directories, again if they hang, or mend "+
			"the network to them. If those are lost for good: operations.md, A lost majority",
			missing, strings.Join(away, ", "))
	case missing+len(full) > 0:
		return fmt.Sprintf("make room on the disks of %s, or mend them, for these store no "+
			"entries: operations.md, Disk space", strings.Join(full, ", "))
	}
	return "a majority is reachable: wait for an election of at most a few seconds; if there is " +
		"none, look in the logs of all voters"
}
