package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/server"
)

// What lives here: one node put together from the machine, the cluster and the server.

// listeners are sockets that are bound before a node starts; those that are nil the node binds itself.
type listeners struct{ client, peer net.Listener }

func (l listeners) close() {
	for _, ln := range []net.Listener{l.client, l.peer} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}

// node is a running node.
type node struct {
	cfg     *config
	log     *slog.Logger
	adapter *fsm.Adapter
	cluster *cluster.Node
	server  *server.Server
	client  net.Listener   // the first that clients come by
	others  []net.Listener // the other ones
	http    *http.Server
	failed  chan error // what ended the node by itself

	opened chan struct{}                // closed when there is a cluster: until then the node loads its data
	loaded atomic.Pointer[cluster.Node] // cluster, for those who may ask before

	stopOnce sync.Once
	stop     chan struct{} // closed when a client asked the node to stop, or it was closed
}

// startNode starts a node. On an error nothing of it is left. Clients and probes are answered while it loads its data.
func startNode(cfg *config, ls listeners, log *slog.Logger) (started *node, err error) {
	n := &node{cfg: cfg, log: log, client: ls.client, failed: make(chan error, 8), stop: make(chan struct{}), opened: make(chan struct{})}
	var web net.Listener
	defer func() {
		if err != nil {
			ls.close()
			if web != nil {
				_ = web.Close()
			}
			_ = n.close()
		}
	}()
	most, err := clientFiles(len(cfg.cluster))
	if err != nil {
		return nil, err
	}
	// Sockets first: a port that is taken is to be known before a file is touched.
	if err = n.listenForClients(); err != nil {
		return nil, err
	}
	if ls.peer == nil {
		if ls.peer, err = listen(cfg.peerListen); err != nil {
			return nil, err
		}
	}
	if cfg.httpListen != "" {
		if web, err = listen(cfg.httpListen); err != nil {
			return nil, err
		}
	}
	warnOfFiles(log, cfg.maxClients, most)
	table := commands.NewTable(commands.Specs(), server.Specs())
	n.adapter = fsm.NewAdapter(table, newOrigin(), func(evs []commands.Event) { n.server.Deliver(evs) }, n.fatal)
	n.server = server.New(server.Config{
		Table: table, Backend: n, Logger: log, Version: versionText(),
		Redirect: server.Redirect(cfg.redirect), SentinelName: cfg.sentinelName,
		MaxClients: cfg.maxClients, MostClients: most, MaxRequestBytes: cfg.maxRequest, MaxClientMemory: cfg.clientMemory,
		MaxSubscriberBytes: cfg.maxSubscriber, MaxReplyBytes: int64(cfg.maxReply), IdleTimeout: cfg.idleTimeout, DrainTimeout: cfg.drainTimeout,
		UnixSocket: cfg.unixSocket, UnixSocketPerm: uint32(cfg.unixPerm),
	})
	n.serve(web)
	if n.cluster, err = cluster.Open(n.clusterConfig(ls.peer), n.adapter); err != nil {
		return nil, err
	}
	n.loaded.Store(n.cluster)
	close(n.opened)
	n.follow()
	log.Info("started", "id", cfg.id, "listen", n.addr(), "data_dir", cfg.dataDir, "version", versionText())
	return n, nil
}

// listenForClients binds what clients come by and is not bound yet.
func (n *node) listenForClients() (err error) {
	if n.client == nil {
		if n.client, err = listen(n.cfg.listen); err != nil {
			return err
		}
	}
	for _, addr := range n.cfg.listenToo {
		ln, err := listen(addr)
		if err != nil {
			return err
		}
		n.others = append(n.others, ln)
	}
	if n.cfg.unixSocket != "" {
		ln, err := listenUnix(n.cfg.unixSocket, n.cfg.unixPerm)
		if err != nil {
			return err
		}
		n.others = append(n.others, ln)
	}
	return nil
}

func (n *node) clusterConfig(peer net.Listener) cluster.Config {
	c := cluster.Config{
		ID: n.cfg.id, Members: n.cfg.cluster, PeerListener: peer, PeerListen: n.cfg.peerListen, PeerAdvertise: n.cfg.peerAdvertise, ClientAddr: n.cfg.advertise,
		DataDir: n.cfg.dataDir, LogStore: n.cfg.logStore, HeartbeatTimeout: n.cfg.heartbeat, LeaderWait: n.cfg.leaderWait,
		SnapshotThreshold: n.cfg.snapshotAfter, Join: len(n.cfg.join) > 0, Clock: n.cfg.clock, Logger: n.log, Fatal: n.fatal,
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise = peer.Addr().String()
	}
	if c.LeaderWait == 0 {
		c.LeaderWait = -1 // the cluster's word for none
	}
	return c
}

// serve starts to take clients and, if web is given, to answer on HTTP.
func (n *node) serve(web net.Listener) {
	for _, ln := range append([]net.Listener{n.client}, n.others...) {
		go func() {
			if err := n.server.Serve(ln); err != nil {
				n.failed <- fmt.Errorf("serving clients: %w", err)
			}
		}()
	}
	if web == nil {
		return
	}
	n.http = newWeb(n.server.HealthHandler(), n.log)
	go func() {
		if err := n.http.Serve(&webListener{Listener: web, most: webConnections}); !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
}

// fatal ends the process: the machine cannot go on, and wrong answers are worse than none.
func (n *node) fatal(err error) {
	n.log.Error("this node cannot go on and stops", "error", err)
	os.Exit(1)
}

// close stops the node, so that its clients lose nothing. It accepts no more of them, then hands leadership over, while those that are there
// are served: their requests wait for the next leader and are passed on to it. Then it ends their connections, where a reply was the last
// thing on them, and leaves the cluster. It may be called again.
func (n *node) close() error {
	n.Stop()
	if n.server != nil {
		n.server.Retire()
		if n.cluster != nil {
			n.cluster.StepAside()
		}
		n.server.Close()
	}
	if n.http != nil {
		_ = n.http.Close()
	}
	if n.client != nil {
		_ = n.client.Close()
	}
	for _, ln := range n.others {
		_ = ln.Close()
	}
	if n.cluster != nil {
		return n.cluster.Close()
	}
	return nil
}

// addr is where clients reach the node.
func (n *node) addr() string { return n.client.Addr().String() }

// waitReady waits until the node serves.
func (n *node) waitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !n.cluster.Status().Ready {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// newOrigin names this start of the process in log entries.
func newOrigin() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// errLoads answers what comes before the node has its data.
const errLoads commands.Error = "LOADING the command did not run: this node loads its data"

// Write implements server.Backend.
func (n *node) Write(ctx context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	c := n.loaded.Load()
	if c == nil {
		return nil, errLoads
	}
	b, err := c.WriteAs(ctx, cluster.Asker(by), run, count)
	return b, replyError(err)
}

// Read implements server.Backend.
func (n *node) Read(ctx context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	c := n.loaded.Load()
	if c == nil {
		return nil, errLoads
	}
	b, err := c.ReadAs(ctx, cluster.Asker(by), run)
	return b, replyError(err)
}

// Try implements server.Backend.
func (n *node) Try(ctx context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	c := n.loaded.Load()
	if c == nil {
		return nil, errLoads
	}
	b, err := c.TryAs(ctx, cluster.Asker(by), run)
	return b, replyError(err)
}

// ReadLocal implements server.Backend.
func (n *node) ReadLocal(by server.Asker, run []byte, count int) ([]byte, error) {
	c := n.loaded.Load()
	if c == nil {
		return nil, errLoads
	}
	b, err := c.ReadLocalAs(cluster.Asker(by), run)
	return b, replyError(err)
}

// Share implements server.Backend.
func (n *node) Share(by server.Asker, f func()) error {
	c := n.loaded.Load()
	if c == nil { // nothing to share the processor with but the loading
		f()
		return nil
	}
	return replyError(c.ShareTime(cluster.Asker(by), f))
}

// Observe implements server.Backend.
func (n *node) Observe(wants func(db int, key string) bool) { n.adapter.SetInterest(wants) }

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

// Watch implements server.Backend.
func (n *node) Watch(on bool) { n.adapter.Watch(on) }

// HandOver implements server.Backend.
func (n *node) HandOver(id string) error {
	c := n.loaded.Load()
	if c == nil {
		return errLoads
	}
	return replyError(c.TransferLeadershipTo(id))
}

// Snapshot implements server.Backend.
func (n *node) Snapshot() error {
	c := n.loaded.Load()
	if c == nil {
		return errLoads
	}
	return c.Snapshot()
}

// changeKinds are the words of the peers for the server's kinds of changes.
var changeKinds = map[server.ChangeKind]string{
	server.AddMember:      cluster.AddMember,
	server.RemoveMember:   cluster.RemoveMember,
	server.PromoteMember:  cluster.PromoteMember,
	server.TransferLeader: cluster.TransferLeader,
}

// ChangeMembers implements server.Backend.
func (n *node) ChangeMembers(c server.MemberChange) error {
	m := n.loaded.Load()
	if m == nil {
		return errLoads
	}
	return replyError(m.Change(cluster.Change{Kind: changeKinds[c.Kind], ID: c.ID, PeerAddr: c.PeerAddr}))
}

// MembersSeen implements server.Backend.
func (n *node) MembersSeen() ([]server.Member, error) {
	m := n.loaded.Load()
	if m == nil {
		return nil, errLoads
	}
	members, err := m.MembersSeen()
	return serverMembers(members), replyError(err)
}

func serverMembers(members []cluster.MemberStatus) []server.Member {
	var out []server.Member
	for _, p := range members {
		out = append(out, server.Member{
			ID: p.ID, PeerAddr: p.PeerAddr, ClientAddr: p.ClientAddr, Voter: p.Voter, Connected: p.Connected, Match: p.LastLog, Applied: p.Applied, LastContact: p.LastContact,
			KnownLevel: p.KnownLevel,
		})
	}
	return out
}

// Holders implements server.Backend.
func (n *node) Holders(ctx context.Context) (server.Holders, error) {
	c := n.loaded.Load()
	if c == nil {
		return server.Holders{}, errLoads
	}
	h, err := c.Holders(ctx)
	return server.Holders{Index: h.Index, Others: h.Others}, replyError(err)
}

// Backup implements server.Backend.
func (n *node) Backup(ctx context.Context) (server.Backup, error) {
	c := n.loaded.Load()
	if c == nil {
		return nil, errLoads
	}
	if err := c.Barrier(ctx); err != nil {
		return nil, replyError(err)
	}
	return n.adapter.Freeze(), nil
}

// Stop implements server.Backend: whoever runs the node closes it.
func (n *node) Stop() { n.stopOnce.Do(func() { close(n.stop) }) }

// WatchLeader implements server.Backend.
func (n *node) WatchLeader() (<-chan struct{}, func()) {
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
			select { // the first token: there is a cluster now
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
func (n *node) Role() string {
	if c := n.loaded.Load(); c != nil {
		return c.Status().Role
	}
	return cluster.RoleFollower
}

// Stats implements server.Backend.
func (n *node) Stats() server.Stats {
	m := n.adapter.Stats()
	s := server.Stats{Expired: m.Expired, Scripts: m.Scripts, Libraries: m.Libraries, Functions: m.Functions, Notify: m.Notify}
	for i := range keyspace.Databases {
		s.Databases = append(s.Databases, server.DatabaseStatus{Keys: m.Keys[i], Volatile: m.Volatile[i]})
	}
	return s
}

// ValueBytes implements server.Backend.
func (n *node) ValueBytes(db int, keys [][]byte) (int, bool) { return n.adapter.ValueBytes(db, keys) }

// Status implements server.Backend.
func (n *node) Status() server.Status {
	open := n.loaded.Load()
	if open == nil {
		return server.Status{NodeID: n.cfg.id, Role: cluster.RoleFollower, Loading: true, NotReady: "LOADING: this node loads its data"}
	}
	c := open.Status()
	s := server.Status{
		NodeID: c.ID, Role: c.Role, LeaderID: c.LeaderID, LeaderAddr: c.LeaderAddr, Ready: c.Ready,
		Term: c.Term, Commit: c.Commit, Applied: c.Applied, LastLog: c.LastLog, ClockMs: c.ClockMs, LeaderContact: max(c.LastContact, 0),
		SnapshotIndex: c.SnapshotIndex, SnapshotTime: c.SnapshotTime, Snapshotting: c.Snapshotting, Loading: c.Loading,
		Level: c.Level, KnownLevel: c.KnownLevel, Behind: c.Behind, BehindFor: c.BehindFor, LogTrouble: c.LogTrouble,
	}
	s.Removed, s.Joining = c.Removed, c.Joining
	switch {
	case c.Removed:
		s.NotReady = "this node was removed from the cluster"
	case c.Joining:
		s.NotReady = "this node waits to be taken into the cluster"
	case !c.Ready:
		s.NotReady = "no leader is reachable, or it is not established yet"
	}
	s.Members = serverMembers(c.Members)
	return s
}
