// Memory of connections: an account per session, their sum, and maxmemory-clients, which closes
// the largest connections when the sum exceeds it.

package server

import (
	"cmp"
	"slices"
	"sync/atomic"
	"unsafe"
)

// minClientMemory is the smallest maxmemory-clients besides 0, as in Redis: with less, no client
// could do anything.
const minClientMemory = 128 << 10

// clientMemory is the sum of the accounts of all sessions.
type clientMemory struct {
	limit   atomic.Int64                 // maxmemory-clients, bytes; 0: none
	chosen  atomic.Pointer[ClientMemory] // … as configured
	total   atomic.Int64
	evicted atomic.Uint64
	over    chan struct{} // a token: the sum may exceed the limit
}

func (m *clientMemory) init(chosen ClientMemory) {
	m.over = make(chan struct{}, 1)
	m.choose(chosen)
}

func (m *clientMemory) choose(chosen ClientMemory) {
	limit := chosen.limit()
	if limit > 0 {
		limit = max(limit, minClientMemory)
	}
	m.chosen.Store(&chosen)
	m.limit.Store(limit)
	m.checkLimit()
}

// checkLimit wakes the evicting goroutine if the sum exceeds the limit. It never blocks.
func (m *clientMemory) checkLimit() {
	if limit := m.limit.Load(); limit > 0 && m.total.Load() > limit {
		select {
		case m.over <- struct{}{}:
		default:
		}
	}
}

// memoryPart is a part of a session's account; each part has one owner.
type memoryPart int

const (
	// held by the session's goroutine: input, batch, replies, transaction
	memorySession memoryPart = iota
	memoryOutput             // queued output; guarded by output.mu
	memoryKeys               // tables of waiters and of tracking that hold keys for the session
	memoryParts
)

// account is the memory of one session, bytes.
type account struct {
	of    *clientMemory
	parts [memoryParts]atomic.Int64
}

// set updates the size of a part. It never blocks.
func (a *account) set(part memoryPart, bytes int) {
	if d := int64(bytes) - a.parts[part].Swap(int64(bytes)); d != 0 && a.of != nil {
		a.of.total.Add(d)
		if d > 0 {
			a.of.checkLimit()
		}
	}
}

// add changes the size of a part.
func (a *account) add(part memoryPart, bytes int) {
	a.parts[part].Add(int64(bytes))
	if a.of == nil {
		return
	}
	a.of.total.Add(int64(bytes))
	if bytes > 0 {
		a.of.checkLimit()
	}
}

func (a *account) bytes() int64 {
	n := int64(0)
	for i := range a.parts {
		n += a.parts[i].Load()
	}
	return n
}

// close removes the account from the sum when its session ends.
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

// measure updates the session's own part of its account.
func (s *session) measure() {
	b := &s.batch
	names := len(s.name) + len(s.libName) + len(s.libVer)
	s.memory.set(memorySession, sessionBytes+names+s.tlsBytes+s.in.bytes()+s.tx.bytes+
		cap(s.reply.Buf)+cap(b.bytes)+cap(b.literals.Buf)+cap(b.pending)*pendingBytesEach)
}

// evict closes the largest sessions until the rest is within the limit. CLIENT NO-EVICT exempts a
// session.
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
			excess -= bytes // already ending
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
		s.warnings.Warn("closed a client: maxmemory-clients exceeded", "client", v.c.addr, "bytes",
			v.bytes, "limit_bytes", limit)
		v.c.kill()
	}
}
