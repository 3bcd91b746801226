package server

// This file holds what connections take of the node's memory: each session's account, the sum of all of them, and maxmemory-clients,
// which closes the connections that take most when the sum passes it.

import (
	"cmp"
	"slices"
	"sync/atomic"
	"unsafe"
)

// leastClientMemory is what maxmemory-clients is at least where it is not 0, as on Redis: below it nobody could say a word.
const leastClientMemory = 128 << 10

// clientMemory is the sum of the accounts of a server's sessions.
type clientMemory struct {
	limit   atomic.Int64                 // maxmemory-clients, bytes; 0: none
	chosen  atomic.Pointer[ClientMemory] // … as it was given
	total   atomic.Int64
	evicted atomic.Uint64
	over    chan struct{} // a token: the sum may be above the limit
}

func (m *clientMemory) init(chosen ClientMemory) {
	m.over = make(chan struct{}, 1)
	m.choose(chosen)
}

func (m *clientMemory) choose(chosen ClientMemory) {
	limit := chosen.limit()
	if limit > 0 {
		limit = max(limit, leastClientMemory)
	}
	m.chosen.Store(&chosen)
	m.limit.Store(limit)
	m.look()
}

// look wakes who evicts if the sum is above the limit. It never blocks.
func (m *clientMemory) look() {
	if limit := m.limit.Load(); limit > 0 && m.total.Load() > limit {
		select {
		case m.over <- struct{}{}:
		default:
		}
	}
}

// What a session holds is accounted for in parts, each of which one owner sets.
type memoryPart int

const (
	memorySession memoryPart = iota // what the session's goroutine holds: input, the run, replies, the transaction
	memoryOutput                    // what waits for the client; guarded by output.mu
	memoryKeys                      // tables outside of the session that name keys for it: of waiters, of tracking
	memoryParts
)

// account is what one session holds, in bytes.
type account struct {
	of    *clientMemory
	parts [memoryParts]atomic.Int64
}

// set says what a part takes now. It never blocks.
func (a *account) set(part memoryPart, bytes int) {
	if d := int64(bytes) - a.parts[part].Swap(int64(bytes)); d != 0 && a.of != nil {
		a.of.total.Add(d)
		if d > 0 {
			a.of.look()
		}
	}
}

// add says that a part takes so many bytes more, or less.
func (a *account) add(part memoryPart, bytes int) {
	a.parts[part].Add(int64(bytes))
	if a.of == nil {
		return
	}
	a.of.total.Add(int64(bytes))
	if bytes > 0 {
		a.of.look()
	}
}

func (a *account) bytes() int64 {
	n := int64(0)
	for i := range a.parts {
		n += a.parts[i].Load()
	}
	return n
}

// close takes the account out of the sum, at the end of its session.
func (a *account) close() {
	for i := range a.parts {
		a.set(memoryPart(i), 0)
	}
}

const (
	argBytesEach     = int(unsafe.Sizeof([]byte(nil)))
	pendingBytesEach = int(unsafe.Sizeof(pending{}))
	sessionBytes     = int(unsafe.Sizeof(session{}))
)

// measure brings the session's own part of its account up to date.
func (s *session) measure() {
	b := &s.batch
	s.memory.set(memorySession, sessionBytes+s.in.bytes()+s.tx.bytes+
		cap(s.reply.Buf)+cap(b.bytes)+cap(b.literals.Buf)+cap(b.pending)*pendingBytesEach)
}

// evict closes the sessions that take most until the others are within the limit. Those that said CLIENT NO-EVICT stay.
func (s *Server) evict() {
	m := &s.clientMemory
	limit := m.limit.Load()
	excess := m.total.Load() - limit
	if limit == 0 || excess <= 0 {
		return
	}
	type sized struct {
		c     *session
		bytes int64
	}
	var all []sized
	for _, c := range s.all() {
		switch bytes := c.memory.bytes(); {
		case c.killed.Load():
			excess -= bytes // it ends already
		case !c.noEvict.Load():
			all = append(all, sized{c, bytes})
		}
	}
	slices.SortFunc(all, func(a, b sized) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, v := range all {
		if excess <= 0 {
			return
		}
		excess -= v.bytes
		m.evicted.Add(1)
		s.warnings.Warn("closed a client: maxmemory-clients exceeded", "client", v.c.addr, "bytes", v.bytes, "limit_bytes", limit)
		v.c.kill()
	}
}
