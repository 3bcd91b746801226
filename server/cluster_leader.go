package server

// This file holds what a server knows of the leader for its clients' sake: where they reach it, who is told that it changed, and which
// commands are sent there instead of being passed on.

import (
	"time"

	"github.com/coordd/coordd/commands"
)

// Redirect says what a node that does not lead does with a command that belongs to the leader.
type Redirect string

// What Config.Redirect can be.
const (
	RedirectForward Redirect = "forward" // passes it on; what an empty Redirect means
	RedirectMoved   Redirect = "moved"   // answers MOVED where it has a key, as a node of Redis Cluster does
	RedirectNone    Redirect = "none"    // passes it on, and CLUSTER answers that there is no cluster
)

// showsCluster says whether CLUSTER answers.
func (s *Server) showsCluster() bool { return s.cfg.Redirect != RedirectNone }

// How often who follows the leader looks at the status unasked: links break and addresses become known without a change of the leader.
const (
	leaderLook  = 250 * time.Millisecond
	leaderSeek  = 50 * time.Millisecond // while there is none
	leaderPause = 10 * time.Millisecond // of a client that waits for one
)

// leaderPatience is how long a client that asks where the leader is waits while there is none. An election takes less; ioredis gives
// up after a second, and asks another node.
const leaderPatience = 900 * time.Millisecond

// leaderMissed is how long a node is without a leader before it sends away those who would be told of a new one. An election takes less.
const leaderMissed = 2 * time.Second

// leaderView is the leader as clients are told of it. It does not change.
type leaderView struct {
	self       bool
	host, port string
}

func (v *leaderView) sameAddress(o *leaderView) bool { return v.host == o.host && v.port == o.port }

// member finds a member by its id, or nil.
func (st *Status) member(id string) *Member {
	for i := range st.Members {
		if m := &st.Members[i]; m.ID == id && id != "" {
			return m
		}
	}
	return nil
}

// leader is the member that leads, nil where it, or its address for clients, is not known.
func (st *Status) leader() *Member {
	if m := st.member(st.LeaderID); m != nil && m.ClientAddr != "" {
		return m
	}
	return nil
}

// up says whether the member runs, as far as this node knows.
func (st *Status) up(m *Member) bool { return m.Connected || m.ID == st.NodeID }

// settled is the leader that clients can be sent to: one that was killed stays leader to its followers until they have missed it
// for a while, but their connections to it are gone at once.
func (st *Status) settled() *leaderView {
	m := st.leader()
	if m == nil || !st.up(m) {
		return nil
	}
	host, port := hostPort(m.ClientAddr)
	return &leaderView{self: m.ID == st.NodeID, host: host, port: port}
}

// cutOff says whether this node has no leader that it can reach. A client that it has kept waiting for one, in vain, is answered so and its
// connection closed: other nodes may have a leader, and a client that knows them looks there only when it has lost this one. Those of Sentinel
// and some of Redis Cluster would ask this node for ever, as long as it answers. sendSeekersAway is for those that only listen.
func (s *Server) cutOff() bool {
	st := s.backend.Status()
	return st.settled() == nil
}

// settledStatus is the node's status, once there is a leader that clients can be sent to, or after leaderPatience. It is for commands
// that tell where the leader is: in an election it is better to wait for the new one than to name the old one.
func (s *session) settledStatus() Status {
	st := s.srv.backend.Status()
	if st.settled() != nil || s.inExec {
		return st
	}
	if s.send() != nil { // the client sees what was answered while it waits
		s.quit = true
		return st
	}
	for deadline := time.Now().Add(leaderPatience); st.settled() == nil && time.Now().Before(deadline); {
		if !s.linger(leaderPause) {
			s.quit = true
			break
		}
		st = s.srv.backend.Status()
	}
	return st
}

// startFollowing begins to follow the leader, at the first call. The caller holds mu.
func (s *Server) startFollowing() {
	if s.following {
		return
	}
	s.following = true
	s.background.Add(1)
	go func() {
		defer s.background.Done()
		s.followLeader()
	}()
}

// followLeader keeps s.leader, tells subscribers of each new one, and sends them away where none comes, until the server ends.
func (s *Server) followLeader() {
	changes, end := s.backend.WatchLeader()
	defer end()
	var told *leaderView // the newest that was settled
	missed, away := time.Now(), false
	for {
		st := s.backend.Status()
		v := st.settled()
		s.leader.Store(v)
		look := leaderSeek
		if v != nil {
			if told != nil && !told.sameAddress(v) {
				s.tellSwitch(told, v)
			}
			told, look = v, leaderLook
			missed, away = time.Now(), false
		} else if !away && time.Since(missed) >= leaderMissed {
			away = true // once: where no node has a leader, they come back
			s.sendSeekersAway()
		}
		again := time.NewTimer(look)
		select {
		case <-changes:
		case <-again.C:
		case <-s.ctx.Done():
			again.Stop()
			return
		}
		again.Stop()
	}
}

// switchChannel is where Sentinel tells of a new master.
const switchChannel = "+switch-master"

// sendSeekersAway closes the connections of those who would be told of a new leader. A node that is cut off from the others hears of none, and
// clients that listen to one Sentinel ask another when they have lost it, not before. Sentinels of Redis are other machines than the
// master; here the deposed leader can be the one that they listen to.
func (s *Server) sendSeekersAway() {
	seekers := s.pubsub.subscribers([]byte(switchChannel))
	for c := range seekers {
		c.dismiss()
	}
	if len(seekers) > 0 {
		s.log.Warn("closed clients waiting for a leader change: no leader is known", "clients", len(seekers))
	}
}

// tellSwitch sends subscribers of this node the message by which Sentinel tells of a new master.
func (s *Server) tellSwitch(old, now *leaderView) {
	s.log.Debug("notified clients of a new leader", "address", now.host+":"+now.port)
	if s.pubsub.size.Load() == 0 {
		return
	}
	text := s.cfg.SentinelName + " " + old.host + " " + old.port + " " + now.host + " " + now.port
	s.pubsub.delivery.put(parcel{event: &commands.Event{Channel: []byte(switchChannel), Payload: []byte(text)}})
}

// elsewhere is the error that sends a client to the leader, nil where this node takes the command. Without a leader to send it to the
// command is taken, and waits for one as all do.
func (s *session) elsewhere(spec *commands.Spec, args [][]byte) error {
	moved := s.srv.cfg.Redirect == RedirectMoved
	if !moved && !s.redirects {
		return nil
	}
	v := s.srv.leader.Load()
	if v == nil || v.self || s.stale && spec.Kind == commands.Read || spec.Has(commands.PubSub) {
		return nil
	}
	if moved {
		indexes, err := spec.KeyIndexes(args)
		if err != nil || len(indexes) == 0 {
			return nil
		}
		return commands.Errorf("MOVED %d %s:%s", commands.Slot(args[indexes[0]]), v.host, v.port)
	}
	if !writes(spec) && !reads(spec) && len(spec.KeyParts()) == 0 {
		return nil
	}
	return commands.Errorf("REDIRECT %s:%s", v.host, v.port)
}

// queueElsewhere is elsewhere for what a transaction has queued.
func (s *session) queueElsewhere() error {
	for i := range s.tx.queue {
		if err := s.elsewhere(s.tx.queue[i].spec, s.tx.queue[i].args); err != nil {
			return err
		}
	}
	return nil
}
