// The leader as clients need it: where they reach it, who is notified when it changes, and which
// commands are redirected to it instead of forwarded.

package server

import (
	"time"

	"github.com/coordd/coordd/commands"
)

// How often the leader is polled besides notifications: links break and addresses become known
// without a change of leader.
const (
	leaderPoll     = 250 * time.Millisecond
	leaderPollFast = 50 * time.Millisecond // while there is none
	leaderPause    = 10 * time.Millisecond // for a client that waits for one
)

// leaderPatience is how long a client that asks for the leader waits while there is none. An
// election takes less; ioredis gives up after a second and asks another node. On a node that is cut
// off it waits shorter: go-redis asks twice before it asks the others, and has as long for that as
// for dialing.
const (
	leaderPatience       = 900 * time.Millisecond
	leaderPatienceCutOff = 100 * time.Millisecond
)

// leaderDoubt is how long a node is without a leader before it asks clients to be patient. An
// election takes less, and is not to share the processor with a message to each of them.
const leaderDoubt = 500 * time.Millisecond

// leaderMissed is how long a node is without a leader before it takes itself for cut off, and
// disconnects clients that wait for a change. An election takes less.
const leaderMissed = 2 * time.Second

// leaderView is the leader as clients see it. It is immutable.
type leaderView struct {
	self        bool
	addr, onTLS string // host:port for clients, without and with TLS; empty: none
}

func (v *leaderView) sameAddress(o *leaderView) bool {
	return v.addr == o.addr && v.onTLS == o.onTLS
}

// seenBy returns the address that a client can use, empty if there is none.
func (v *leaderView) seenBy(s *session) string {
	if s.seesTLS {
		return v.onTLS
	}
	return v.addr
}

// member returns the member with an id, or nil.
func (st *Status) member(id string) *Member {
	for i := range st.Members {
		if m := &st.Members[i]; m.ID == id && id != "" {
			return m
		}
	}
	return nil
}

// leader returns the leading member, or nil if it or its client address is unknown.
func (st *Status) leader() *Member {
	if m := st.member(st.LeaderID); m != nil && m.ClientAddr != "" {
		return m
	}
	return nil
}

// up reports whether a member runs, as far as this node knows.
func (st *Status) up(m *Member) bool { return m.Connected || m.ID == st.ID }

// settled returns the leader that clients can be sent to. Followers of a killed leader take a
// while to miss it, but their connections to it break immediately.
func (st *Status) settled() *leaderView {
	m := st.member(st.LeaderID)
	if m == nil || m.ClientAddr == "" && m.TLSAddr == "" || !st.up(m) {
		return nil
	}
	return &leaderView{self: m.ID == st.ID, addr: m.ClientAddr, onTLS: m.TLSAddr}
}

// cutOff reports whether this node has no reachable leader. A client that waited for one in vain
// gets an error and is disconnected: another node may have a leader, and clients look there only
// after losing this one. Sentinel clients and some cluster clients would ask this node forever.
// sendSeekersAway does the same for clients that only listen.
func (s *Server) cutOff() bool {
	st := s.backend.Status()
	return st.settled() == nil
}

// settledStatus returns the status, as the client sees it, once there is a leader to send clients
// to, or after leaderPatience. During an election it is better to wait for the new leader than to
// name the old one.
func (s *session) settledStatus() Status {
	st := s.srv.backend.Status()
	if st.settled() != nil || s.inExec {
		return st.seenBy(s)
	}
	if s.send() != nil { // the client sees earlier replies while it waits
		s.quit = true
		return st.seenBy(s)
	}
	patience := leaderPatience
	for asked := time.Now(); st.settled() == nil && time.Since(asked) < patience; {
		if !s.linger(leaderPause) {
			s.quit = true
			break
		}
		st = s.srv.backend.Status()
		if s.srv.leaderlessFor(leaderMissed) {
			patience = leaderPatienceCutOff
		}
	}
	return st.seenBy(s)
}

// startFollowing starts following the leader, once. The caller holds mu.
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

// followLeader keeps s.leader current, notifies subscribers of each new leader, and disconnects
// them if none appears, until the server ends.
func (s *Server) followLeader() {
	changes, end := s.backend.WatchLeader()
	defer end()
	var told *leaderView // the newest settled one
	away := false
	for {
		st := s.backend.Status()
		v := st.settled()
		s.leader.Store(v)
		if v != nil {
			s.leaderless.Store(nil)
		} else if s.leaderless.Load() == nil {
			now := time.Now()
			s.leaderless.Store(&now)
		}
		s.maintenance.leaderChanged(s.leaderlessFor(leaderDoubt))
		look := leaderPollFast
		if v != nil {
			if told != nil && !told.sameAddress(v) {
				s.announceSwitch(told, v)
			}
			told, look, away = v, leaderPoll, false
		} else if !away && s.leaderlessFor(leaderMissed) {
			away = true // once: if no node has a leader, they come back
			s.sendSeekersAway()
			s.dropCaches()
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

// leaderlessFor reports whether this node has had no leader for so long.
func (s *Server) leaderlessFor(d time.Duration) bool {
	since := s.leaderless.Load()
	return since != nil && time.Since(*since) >= d
}

// switchChannel is where Sentinel announces a new master.
const switchChannel = "+switch-master"

// dropCaches has clients that track keys drop all that they cache: what is changed elsewhere, this
// node does not learn.
func (s *Server) dropCaches() {
	if s.tracking.on.Load() > 0 {
		s.pubsub.delivery.put(parcel{changes: []keyChange{{all: true}}})
	}
}

// sendSeekersAway disconnects clients that wait for a change of leader. An isolated node learns of
// none, and a client that listens to one Sentinel tries another only after losing it. Redis's
// Sentinels run apart from the master; here a client may be listening to the deposed leader.
func (s *Server) sendSeekersAway() {
	seekers := s.pubsub.subscribers([]byte(switchChannel))
	for c := range seekers {
		c.dismiss()
	}
	if len(seekers) > 0 {
		s.log.Warn("closed clients waiting for a leader change: no leader is known", "clients",
			len(seekers))
	}
}

// announceSwitch sends this node's subscribers the message by which Sentinel announces a new
// master, with the addresses that each can use.
func (s *Server) announceSwitch(old, now *leaderView) {
	s.log.Debug("notified clients of a new leader", "address", now.addr, "tls", now.onTLS)
	if s.pubsub.size.Load() == 0 {
		return
	}
	for _, to := range []struct {
		old, now string
		audience audience
	}{{old.addr, now.addr, withoutTLS}, {old.onTLS, now.onTLS, withTLS}} {
		if to.now == "" {
			continue
		}
		from, fromPort := hostPort(to.old)
		host, port := hostPort(to.now)
		text := s.cfg.SentinelName + " " + from + " " + fromPort + " " + host + " " + port
		s.pubsub.delivery.put(parcel{audience: to.audience, events: []commands.Event{{
			Channel: []byte(switchChannel), Payload: []byte(text)}}})
	}
}

// elsewhere returns the error that redirects a client to the leader, or nil if this node takes the
// command. Without a known leader it takes the command, which then waits for one.
func (s *session) elsewhere(spec *commands.Spec, args [][]byte) error {
	moved := s.srv.cfg.PresentAs == PresentCluster
	if !moved && (!s.redirects || s.srv.alone()) {
		return nil
	}
	v := s.srv.leader.Load()
	if v == nil || v.self || s.stale && spec.Kind == commands.Read || spec.Has(commands.PubSub) {
		return nil
	}
	addr := v.seenBy(s)
	if addr == "" {
		return nil
	}
	host, port := hostPort(addr)
	indexes, err := spec.KeyIndexes(args)
	switch keys := err == nil && len(indexes) > 0; {
	case moved && keys:
		return commands.Errorf("MOVED %d %s:%s", commands.Slot(args[indexes[0]]), host, port)
	case moved, spec.Kind == commands.Session && !keys: // EXEC may have some
	case spec.Writes() || spec.Reads() || len(spec.KeyParts()) > 0:
		return commands.Errorf("REDIRECT %s:%s", host, port)
	}
	return nil
}

// queueElsewhere is elsewhere for the commands queued in a transaction.
func (s *session) queueElsewhere() error {
	for i := range s.tx.queue {
		if err := s.elsewhere(s.tx.queue[i].spec, s.tx.queue[i].args); err != nil {
			return err
		}
	}
	return nil
}
