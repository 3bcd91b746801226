// CLIENT MAINT_NOTIFICATIONS: clients that ask for it are told to be patient while there is no
// leader, and those known to do it well to move to another node before this one stops. The messages
// are those of Redis's managed services, which go-redis, redis-py and node-redis understand.

package server

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// A client is told that it has movingTime to move. One that is not given an address moves after
// half of it.
const (
	movingTime = 6 * time.Second
	movingWait = movingTime/2 + time.Second // the longest wait for clients that move
	// A client that sent nothing for movingIdle is not waited for: it may not have read the
	// message.
	movingIdle = 300 * time.Millisecond
	movingPoll = 20 * time.Millisecond
)

// mover is the library, as its LIB-NAME begins, whose clients are told to move. Others are not: two
// goroutines may use one connection of go-redis 9.23 after it has moved, and receive each other's
// replies (ADR 0046).
const mover = "node-redis"

// patience is how long clients are asked to be patient while there is no leader.
const patience = 10 * time.Second

var (
	errMaintProto = commands.Error("ERR maintenance notifications need RESP3: " +
		"send HELLO 3 first")
	errMaintEndpoint = commands.Error("ERR the endpoint type must be internal-ip, internal-fqdn, " +
		"external-ip, external-fqdn or none")
)

// maintenance knows the clients that asked for maintenance notifications.
type maintenance struct {
	mu         lockorder.Mutex
	clients    map[*session]*maintained
	moving     bool // the node is about to stop
	leaderless bool
	sequence   int64 // number of the newest message
	joined     atomic.Bool
}

// maintained is what a client asked for, and what it was told.
type maintained struct {
	noAddress bool // it reconnects to where it connected before
	moves     bool // its library is the mover
	told      bool
	beats     uint32 // beats of the session when it was last active
	active    time.Time
}

func clientMaintNotifications(s *session, _ *commands.Spec, args [][]byte) {
	noAddress := false
	switch {
	case is(args[2], "off") && len(args) == 3:
		s.srv.maintenance.leave(s)
		s.w.Status("OK")
		return
	case is(args[2], "on") && len(args) == 3:
	case is(args[2], "on") && len(args) == 5 && is(args[3], "moving-endpoint-type"):
		switch noAddress = is(args[4], "none"); {
		case noAddress, is(args[4], "internal-ip"), is(args[4], "internal-fqdn"),
			is(args[4], "external-ip"), is(args[4], "external-fqdn"):
		default:
			s.fail(errMaintEndpoint)
			return
		}
	default:
		s.fail(commands.ErrSyntax)
		return
	}
	if s.proto != 3 {
		s.fail(errMaintProto)
		return
	}
	s.srv.maintenance.join(s, noAddress)
	s.w.Status("OK")
}

// join adds a client, and tells it at once if there is no leader, or the node waits for clients to
// move.
func (m *maintenance) join(s *session, noAddress bool) {
	s.srv.mu.Lock()
	s.srv.startFollowing()
	s.srv.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients == nil {
		m.clients = map[*session]*maintained{}
	}
	m.clients[s] = &maintained{noAddress: noAddress || s.srv.alone()}
	m.joined.Store(true)
	if m.leaderless {
		_ = s.out.hold(&s.srv.wg) // what it is told follows the reply
		m.tellLeaderless(s, true)
	}
	m.named(s)
}

// libNamed notes that a client has named its library: go-redis and redis-py do so after they have
// asked for notifications.
func (m *maintenance) libNamed(s *session) {
	if !m.joined.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.named(s)
}

// named notes whether the client of a session moves, and tells it to if the node waits for that.
// The session runs it, and holds mu.
func (m *maintenance) named(s *session) {
	c := m.clients[s]
	if c == nil {
		return
	}
	c.moves = strings.HasPrefix(s.libName, mover)
	if m.moving && c.moves && !c.told {
		_ = s.out.hold(&s.srv.wg) // what it is told follows the reply
		st := s.srv.backend.Status()
		m.tellMoving(s, c, &st)
	}
}

// leave removes a client.
func (m *maintenance) leave(s *session) {
	if !m.joined.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clients, s)
}

// tellMoving sends MOVING to a client that moves, unless there is nowhere to go. The caller holds
// mu.
func (m *maintenance) tellMoving(s *session, c *maintained, st *Status) {
	if !c.moves {
		return
	}
	var others []string
	for _, other := range st.seenBy(s).Members {
		if other.ID != st.ID && other.Connected && other.ClientAddr != "" {
			others = append(others, other.ClientAddr)
		}
	}
	if len(others) == 0 {
		return
	}
	f := commands.RESP{Proto: 3}
	f.Int(int64(movingTime / time.Second))
	if c.noAddress {
		f.Null()
	} else {
		f.BulkString(others[s.id%uint64(len(others))])
	}
	m.send(s, "MOVING", 4, f.Buf)
	c.told, c.beats, c.active = true, s.beats.Load(), time.Now()
}

// send pushes a message: its name, a number, and n-2 encoded elements. The caller holds mu.
func (m *maintenance) send(s *session, name string, n int, rest []byte) {
	m.sequence++
	f := commands.RESP{Proto: 3}
	f.Int(m.sequence)
	s.out.open(&s.srv.wg)
	_, over := s.out.push(&message{resp3Only: true, total: &s.srv.pubsub.backlog,
		resp3: ">" + strconv.Itoa(n) + "\r\n" + bulkText(name), body: append(f.Buf, rest...)})
	if over {
		s.kill()
		return
	}
	s.out.flushQueued()
}

// leaderChanged tells the clients to be patient while there is no leader.
func (m *maintenance) leaderChanged(none bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaderless == none {
		return
	}
	m.leaderless = none
	for s := range m.clients {
		m.tellLeaderless(s, none)
	}
}

// tellLeaderless tells a client whether there is no leader. The caller holds mu.
func (m *maintenance) tellLeaderless(s *session, none bool) {
	var f commands.RESP
	name, n := "FAILED_OVER", 3
	if none {
		name, n = "FAILING_OVER", 4
		f.Int(int64(patience / time.Second))
	}
	f.Array(0) // no shards: the message is about all
	m.send(s, name, n, f.Buf)
}

// MoveClients tells clients that asked for it and do it well to move to other nodes, and waits
// until they have, but for those that are idle, and not for long. Meanwhile the node serves as
// before, and is not ready.
func (s *Server) MoveClients() {
	s.leaving.Store(true)
	m := &s.maintenance
	if !m.joined.Load() {
		return
	}
	m.mu.Lock()
	m.moving = true
	st := s.backend.Status()
	for c, told := range m.clients {
		m.tellMoving(c, told, &st)
	}
	m.mu.Unlock()
	tick := time.NewTicker(movingPoll)
	defer tick.Stop()
	for limit := time.Now().Add(movingWait); time.Now().Before(limit); {
		select {
		case now := <-tick.C:
			if !m.moves(now) {
				return
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// moves reports whether there are clients that were told to move and are still in use.
func (m *maintenance) moves(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, c := range m.clients {
		if beats := s.beats.Load(); beats != c.beats {
			c.beats, c.active = beats, now
		}
		if c.told && (c.noAddress || now.Sub(c.active) < movingIdle) {
			return true
		}
	}
	return false
}
