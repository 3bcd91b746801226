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

// listen binds a TCP address; the error says which one.
func listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, errors.Unwrap(err))
	}
	return ln, nil
}

// node is a running node.
type node struct {
	cfg     *config
	log     *slog.Logger
	adapter *fsm.Adapter
	cluster *cluster.Node
	server  *server.Server
	client  net.Listener
	http    *http.Server
	failed  chan error // what ended the node by itself

	stopOnce sync.Once
	stop     chan struct{} // closed when a client asked the node to stop, or it was closed
}

// startNode starts a node. On an error nothing of it is left.
func startNode(cfg *config, ls listeners, log *slog.Logger) (started *node, err error) {
	n := &node{cfg: cfg, log: log, client: ls.client, failed: make(chan error, 4), stop: make(chan struct{})}
	defer func() {
		if err != nil {
			ls.close()
			_ = n.close()
		}
	}()
	// Sockets first: a port that is taken is to be known before a file is touched.
	if n.client == nil {
		if n.client, err = listen(cfg.listen); err != nil {
			return nil, err
		}
	}
	if ls.peer == nil {
		if ls.peer, err = listen(cfg.peerListen); err != nil {
			return nil, err
		}
	}
	var web net.Listener
	if cfg.httpListen != "" {
		if web, err = listen(cfg.httpListen); err != nil {
			return nil, err
		}
	}
	table := commands.NewTable(commands.Specs(), server.Specs())
	n.adapter = fsm.NewAdapter(table, newOrigin(), func(evs []commands.Event) { n.server.Deliver(evs) }, n.fatal)
	n.server = server.New(server.Config{
		Table: table, Backend: n, Logger: log, Version: versionText(),
		Redirect: server.Redirect(cfg.redirect), SentinelName: cfg.sentinelName,
		MaxClients: cfg.maxClients, MaxRequestBytes: cfg.maxRequest,
	})
	if n.cluster, err = cluster.Open(n.clusterConfig(ls.peer), n.adapter); err != nil {
		if web != nil {
			_ = web.Close()
		}
		return nil, err
	}
	n.serve(web)
	n.follow()
	log.Info("started", "id", cfg.id, "listen", n.addr(), "data_dir", cfg.dataDir, "version", versionText())
	return n, nil
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
	go func() {
		if err := n.server.Serve(n.client); err != nil {
			n.failed <- fmt.Errorf("serving clients: %w", err)
		}
	}()
	if web == nil {
		return
	}
	n.http = &http.Server{Handler: n.server.HealthHandler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := n.http.Serve(web); !errors.Is(err, http.ErrServerClosed) {
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

// Write implements server.Backend.
func (n *node) Write(ctx context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	b, err := n.cluster.WriteAs(ctx, cluster.Asker(by), run, count)
	return b, replyError(err)
}

// Read implements server.Backend.
func (n *node) Read(ctx context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	b, err := n.cluster.ReadAs(ctx, cluster.Asker(by), run)
	return b, replyError(err)
}

// Try implements server.Backend.
func (n *node) Try(ctx context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	b, err := n.cluster.TryAs(ctx, cluster.Asker(by), run)
	return b, replyError(err)
}

// ReadLocal implements server.Backend.
func (n *node) ReadLocal(by server.Asker, run []byte, count int) ([]byte, error) {
	b, err := n.cluster.ReadLocalAs(cluster.Asker(by), run)
	return b, replyError(err)
}

// Share implements server.Backend.
func (n *node) Share(by server.Asker, f func()) error {
	return replyError(n.cluster.ShareTime(cluster.Asker(by), f))
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
func (n *node) HandOver(id string) error { return replyError(n.cluster.TransferLeadershipTo(id)) }

// Snapshot implements server.Backend.
func (n *node) Snapshot() error { return n.cluster.Snapshot() }

// changeKinds are the words of the peers for the server's kinds of changes.
var changeKinds = map[server.ChangeKind]string{
	server.AddMember:      cluster.AddMember,
	server.RemoveMember:   cluster.RemoveMember,
	server.PromoteMember:  cluster.PromoteMember,
	server.TransferLeader: cluster.TransferLeader,
}

// ChangeMembers implements server.Backend.
func (n *node) ChangeMembers(c server.MemberChange) error {
	return replyError(n.cluster.Change(cluster.Change{Kind: changeKinds[c.Kind], ID: c.ID, PeerAddr: c.PeerAddr}))
}

// MembersSeen implements server.Backend.
func (n *node) MembersSeen() ([]server.Member, error) {
	members, err := n.cluster.MembersSeen()
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
	h, err := n.cluster.Holders(ctx)
	return server.Holders{Index: h.Index, Others: h.Others}, replyError(err)
}

// Backup implements server.Backend.
func (n *node) Backup(ctx context.Context) (server.Backup, error) {
	if err := n.cluster.Barrier(ctx); err != nil {
		return nil, replyError(err)
	}
	return n.adapter.Freeze(), nil
}

// Stop implements server.Backend: whoever runs the node closes it.
func (n *node) Stop() { n.stopOnce.Do(func() { close(n.stop) }) }

// WatchLeader implements server.Backend.
func (n *node) WatchLeader() (<-chan struct{}, func()) { return n.cluster.WatchLeader() }

// Role implements server.Backend. It leaves the machine alone, which counts its keys for Status.
func (n *node) Role() string { return n.cluster.Status().Role }

// Status implements server.Backend.
func (n *node) Status() server.Status {
	c, m := n.cluster.Status(), n.adapter.Stats()
	s := server.Status{
		NodeID: c.ID, Role: c.Role, LeaderID: c.LeaderID, LeaderAddr: c.LeaderAddr, Ready: c.Ready,
		Term: c.Term, Commit: c.Commit, Applied: c.Applied, LastLog: c.LastLog, ClockMs: c.ClockMs, LeaderContact: max(c.LastContact, 0),
		Expired: m.Expired, Scripts: m.Scripts, Libraries: m.Libraries, Functions: m.Functions, Notify: m.Notify, SnapshotIndex: c.SnapshotIndex, SnapshotTime: c.SnapshotTime,
		Snapshotting: c.Snapshotting, Loading: c.Loading, Level: c.Level, KnownLevel: c.KnownLevel,
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
	for i := range keyspace.Databases {
		s.Databases = append(s.Databases, server.DatabaseStatus{Keys: m.Keys[i], Volatile: m.Volatile[i]})
	}
	return s
}
