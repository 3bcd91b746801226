// The configuration of a node: defaults and checks.

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/trace"
)

// Member is a node of the cluster's first configuration.
type Member struct {
	ID       string
	PeerAddr string // host:port of its peer port, as other members reach it
}

// Config configures Open. A zero field means its default.
type Config struct {
	ID         string // this node's id, see CheckID
	PeerListen string // host:port of the peer port; default 127.0.0.1:0
	// host:port at which others reach it; default: this node's address in Members, else PeerListen
	PeerAdvertise string
	// host:port at which clients reach this node; announced to the other members
	ClientAddr string
	TLSAddr    string // likewise, over TLS
	Version    string // version of the program; likewise
	Build      Build  // what it was built from; likewise. Default: ThisBuild
	Zone       string // the availability zone; likewise
	// Priority for leading, likewise: leadership goes to the voter with the highest one that has
	// caught up. 0: DefaultPriority
	Priority uint64
	// Learner: the node never becomes a voter. It must join a cluster.
	Learner bool
	// Discover returns the peer addresses at which nodes of the cluster may be; nil: off. A node
	// without state joins the cluster that it finds there, as with Join, and members let such nodes
	// join. Found founds a cluster if Founders empty nodes are found; 0: the node only joins.
	Discover func(context.Context) ([]string, error)
	Founders int
	// AutoremoveAfter: as leader, remove members that have been unreachable for that long; 0:
	// never. OnAutoremove, if set, learns of each attempt.
	AutoremoveAfter time.Duration
	OnAutoremove    func(id string, unreachable time.Duration, err error)
	DataDir         string
	// the first configuration, equal on every node; empty or only this node: a single node
	Members []Member
	// without state, wait to be added to a cluster (AddMember there) and ignore Members
	Join     bool
	LogStore string // LogStoreWAL (default) or LogStoreBolt

	// Answer answers the questions of other members' AskOthers, at most MaxAnswer bytes. It and its
	// answer may be nil: there is none
	Answer func(question []byte) []byte

	HeartbeatTimeout time.Duration // silence of the leader before an election; default 400 ms
	// how long a request waits for a leader; 0: the default, 2 s; negative: not at all
	LeaderWait time.Duration
	// how long a request waits for a leader that does not answer; default 10 s
	ReplyWait         time.Duration
	SnapshotThreshold uint64 // log entries between snapshots; default 8192
	// log entries kept after a snapshot, fewer if they are large; default 10240
	TrailingLogs uint64

	Clock        clock.Clock  // default clock.System
	Logger       *slog.Logger // default: nothing is logged
	TLS          *PeerTLS     // between nodes; nil: off
	PeerListener net.Listener // already bound, replaces PeerListen. Open owns it, also on failure
	// ends the process: this release cannot read what the node received, or Raft is wrong about the
	// log; default: log, and refuse whatever depends on it
	Fatal func(error)
	World *World // a simulation's network and disk; nil: the real ones
	// Trace receives what the node does that models are about, in builds that record it
	Trace trace.To

	dial     dialFunc                          // tests cut links here
	tuneRaft func(*raft.Config)                // tests shorten intervals here
	wrapLog  func(raft.LogStore) raft.LogStore // tests hang the disk here
	inFlight int                               // measurements vary maxInFlight here
	// the processor architecture; tests pretend to another one
	arch string
	// the space on the disk; tests pretend to another one
	spaceOf func(dir string) diskSpace

	preferAfter                 time.Duration // tests shorten preferAfter here
	batchReply, readReplies     int           // tests lower maxBatchReply and maxReadReplies here
	compactAfter, trailingBytes int           // and these
	replayWork                  int           // and this
}

// DefaultPriority is Config.Priority of a node that sets none.
const DefaultPriority = 100

const (
	defaultHeartbeat  = 400 * time.Millisecond
	defaultLeaderWait = 2 * time.Second
	defaultReplyWait  = 10 * time.Second
	defaultThreshold  = 8192
	snapshotInterval  = 30 * time.Second
	rpcTimeout        = 5 * time.Second
	// an AppendEntries message may hold that many entries of MaxBatchBytes, or more small ones (see
	// transport.extend), and has rpcTimeout to arrive
	maxAppendEntries   = 8
	heartbeatAtLeast   = 20 * time.Millisecond
	raftConnectionPool = 3
)

// commitTimeout is how long Raft on the leader of an idle cluster waits (up to twice this) between
// messages to a follower. They announce commits before the pipeline is open, which does so itself
// (see tellAfter), and send what it could not.
const commitTimeout = 50 * time.Millisecond

func (c *Config) applyDefaults() error {
	if err := CheckID(c.ID); err != nil {
		return err
	}
	if c.DataDir == "" && c.World == nil {
		return fmt.Errorf("no data directory is configured")
	}
	switch c.LogStore {
	case "":
		c.LogStore = LogStoreWAL
	case LogStoreWAL, LogStoreBolt:
	default:
		return fmt.Errorf("unknown log store %q: use %q or %q", c.LogStore, LogStoreWAL,
			LogStoreBolt)
	}
	setDefault(&c.PeerListen, "127.0.0.1:0")
	setDefault(&c.HeartbeatTimeout, defaultHeartbeat)
	setDefault(&c.LeaderWait, defaultLeaderWait)
	setDefault(&c.Priority, DefaultPriority)
	setDefault(&c.preferAfter, preferAfter)
	setDefault(&c.ReplyWait, defaultReplyWait)
	setDefault(&c.SnapshotThreshold, defaultThreshold)
	setDefault(&c.TrailingLogs, defaultTrailing)
	setDefault(&c.inFlight, maxInFlight)
	setDefault(&c.arch, runtime.GOARCH)
	setDefault(&c.Build, ThisBuild())
	setDefault(&c.batchReply, maxBatchReply)
	setDefault(&c.readReplies, maxReadReplies)
	if c.spaceOf == nil {
		c.spaceOf = spaceOf
	}
	setDefault(&c.compactAfter, compactAfter)
	setDefault(&c.replayWork, replayWork)
	setDefault(&c.trailingBytes, trailingBytes)
	if c.HeartbeatTimeout < heartbeatAtLeast {
		return fmt.Errorf("heartbeat timeout %v is too short, the minimum is %v",
			c.HeartbeatTimeout, heartbeatAtLeast)
	}
	c.LeaderWait = max(c.LeaderWait, 0)
	if c.ReplyWait < 0 {
		return fmt.Errorf("reply wait %v is negative", c.ReplyWait)
	}
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) { c.Logger.Error("this node cannot continue", "error", err) }
	}
	switch {
	case c.dial != nil:
	case c.World != nil:
		c.dial = c.World.Dial
	default:
		c.dial = dialTCP
	}
	for _, addr := range []string{c.PeerAdvertise, c.ClientAddr, c.TLSAddr} {
		if addr == "" {
			continue
		}
		if err := CheckAddress(addr); err != nil {
			return fmt.Errorf("the address %.100q: %w", addr, err)
		}
	}
	return c.checkMembers()
}

func (c *Config) checkMembers() error {
	if len(c.Members) == 0 {
		return nil
	}
	ids, addrs := map[string]bool{}, map[string]string{}
	for _, m := range c.Members {
		if err := CheckID(m.ID); err != nil {
			return err
		}
		if ids[m.ID] {
			return fmt.Errorf("member %q is named twice", m.ID)
		}
		ids[m.ID] = true
		if err := CheckAddress(m.PeerAddr); err != nil {
			return fmt.Errorf("the peer address of member %q, %.100q: %w", m.ID, m.PeerAddr, err)
		}
		if other, ok := addrs[m.PeerAddr]; ok {
			return fmt.Errorf("members %q and %q have the same peer address %s", other, m.ID,
				m.PeerAddr)
		}
		addrs[m.PeerAddr] = m.ID
	}
	if !ids[c.ID] {
		return fmt.Errorf("this node, %q, is not among the members", c.ID)
	}
	return nil
}

// advertise returns this node's peer address for others, given its listener.
func (c *Config) advertise(ln net.Listener) string {
	if c.PeerAdvertise != "" {
		return c.PeerAdvertise
	}
	for _, m := range c.Members {
		if m.ID == c.ID {
			return m.PeerAddr
		}
	}
	return ln.Addr().String()
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// raftConfig translates the configuration for hashicorp/raft.
func (c *Config) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(c.ID)
	rc.HeartbeatTimeout = c.HeartbeatTimeout
	rc.ElectionTimeout = c.HeartbeatTimeout
	rc.LeaderLeaseTimeout = c.HeartbeatTimeout * 3 / 4
	rc.CommitTimeout = commitTimeout
	rc.MaxAppendEntries = maxAppendEntries
	// The proposer keeps fewer entries in flight than the channel holds, so ApplyLog never blocks.
	rc.BatchApplyCh = true
	rc.SnapshotInterval = snapshotInterval
	rc.SnapshotThreshold = c.SnapshotThreshold
	rc.TrailingLogs = raftTrailing
	rc.ShutdownOnRemove = false // only Close shuts Raft down: a shutdown loses futures
	rc.NoLegacyTelemetry = true
	rc.Logger = newRaftLogger(c.Logger)
	if c.tuneRaft != nil {
		c.tuneRaft(rc)
	}
	return rc
}
