package halfopen

import (
	"container/list"
	"net"
	"net/netip"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// Limits are those of a Set.
type Limits struct {
	Most    int // connections
	Waiting int // further ones that wait for room
	// Grace is how long a connection may stay before one of its own host displaces it. When all
	// clients of a host come at once, the first ones are about to identify themselves.
	Grace time.Duration
}

// Set holds connections that have not identified themselves. At its bound, the oldest connection of
// the host with the most goes, so that a host that opens connections and says nothing cannot lock
// others out. A connection that would displace one of its own host waits until there is room, or
// the other is no longer young, in turn. So crowds cost little at a time, and a host's clients that
// come together all get in.
type Set struct {
	Limits

	mu        lockorder.Mutex
	byAge     *list.List // holds *held, oldest first
	held      map[net.Conn]*list.Element
	waiting   *list.List           // holds *held, in order of arrival
	displaced time.Time            // when the newest one was that had waited
	count     map[netip.Prefix]int // connections of each host
	hosts     map[int]int          // count → hosts that have so many
	top       int                  // the largest count
	closed    bool
}

// held is a connection and its host.
type held struct {
	conn   net.Conn
	host   netip.Prefix
	placed time.Time     // zero: it waits
	woken  chan struct{} // a token: it is placed, or the first that waits, or the set is closed
}

// New returns an empty set.
func New(l Limits) *Set {
	return &Set{Limits: l, byAge: list.New(), held: map[net.Conn]*list.Element{},
		waiting: list.New(), count: map[netip.Prefix]int{}, hosts: map[int]int{}}
}

// Add adds a connection, perhaps after a wait. It returns the one to close for it, or nil. If there
// is no room to wait, or the set is closed, that is conn.
func (s *Set) Add(conn net.Conn) (evicted net.Conn) {
	h := &held{conn: conn, host: Host(conn)}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return conn
	case len(s.held) < s.Most:
		s.place(h)
		return nil
	}
	if s.oldestOfMost().host == h.host {
		if s.waiting.Len() >= s.Waiting {
			return conn
		}
		s.await(h)
		switch {
		case s.closed:
			return conn
		case !h.placed.IsZero():
			return nil
		}
	}
	oldest := s.oldestOfMost()
	s.remove(oldest.conn)
	s.place(h)
	return oldest.conn
}

// await waits until a connection is placed or may displace another, or the set is closed. The
// caller holds mu.
func (s *Set) await(h *held) {
	h.woken = make(chan struct{}, 1)
	e := s.waiting.PushBack(h)
	for !s.closed && h.placed.IsZero() {
		var timer <-chan time.Time // nil: others come first
		if s.waiting.Front() == e {
			left := s.patience(h)
			if left <= 0 {
				s.waiting.Remove(e)
				s.displaced = time.Now()
				s.wakeFirst()
				return
			}
			timer = time.After(left)
		}
		s.mu.Unlock()
		select {
		case <-h.woken:
		case <-timer:
		}
		s.mu.Lock()
	}
}

// patience returns how long the first that waits does so before it displaces another. The caller
// holds mu.
func (s *Set) patience(h *held) time.Duration {
	oldest := s.oldestOfMost()
	if oldest.host != h.host {
		return 0
	}
	pace := s.Grace / time.Duration(s.Most)
	return max(s.Grace-time.Since(oldest.placed), pace-time.Since(s.displaced))
}

// wakeFirst tells the first that waits that it is. The caller holds mu.
func (s *Set) wakeFirst() {
	if e := s.waiting.Front(); e != nil {
		e.Value.(*held).wake()
	}
}

func (h *held) wake() {
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// Remove removes a connection that was identified or has ended, and gives its place to the next
// that waits. It reports whether it was there: it may have been evicted.
func (s *Set) Remove(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.remove(conn)
	if e := s.waiting.Front(); there && e != nil {
		next := s.waiting.Remove(e).(*held)
		s.place(next)
		next.wake()
		s.wakeFirst()
	}
	return there
}

// Len returns how many connections the set holds.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Close empties the set and returns what it held, oldest first, for the caller to close. Later
// connections are refused.
func (s *Set) Close() (conns []net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.byAge.Front(); e != nil; e = e.Next() {
		conns = append(conns, e.Value.(*held).conn)
	}
	for e := s.waiting.Front(); e != nil; e = e.Next() {
		e.Value.(*held).wake() // Add returns it
	}
	s.byAge.Init()
	s.waiting.Init()
	s.top, s.closed = 0, true
	clear(s.held)
	clear(s.count)
	clear(s.hosts)
	return conns
}

// place adds a connection for which there is room. The caller holds mu.
func (s *Set) place(h *held) {
	h.placed = time.Now()
	s.held[h.conn] = s.byAge.PushBack(h)
	s.recount(h.host, 1)
}

// remove leaves a connection's place empty. It reports whether it was there. The caller holds mu.
func (s *Set) remove(conn net.Conn) bool {
	e := s.held[conn]
	if e == nil {
		return false
	}
	delete(s.held, conn)
	s.recount(s.byAge.Remove(e).(*held).host, -1)
	return true
}

// recount changes the count of a host by one. The caller holds mu.
func (s *Set) recount(host netip.Prefix, by int) {
	before := s.count[host]
	after := before + by
	if s.hosts[before]--; s.hosts[before] <= 0 {
		delete(s.hosts, before)
	}
	if after == 0 {
		delete(s.count, host)
	} else {
		s.count[host] = after
		s.hosts[after]++
	}
	if after > s.top || before == s.top && s.hosts[before] == 0 {
		s.top = after
	}
}

// oldestOfMost returns the oldest connection of the host with the most. The caller holds mu.
func (s *Set) oldestOfMost() *held {
	e := s.byAge.Front()
	for s.count[e.Value.(*held).host] != s.top {
		e = e.Next()
	}
	return e.Value.(*held)
}
