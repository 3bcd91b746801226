package server

// This file holds who is subscribed to what on this node, and the delivery of messages to them.

import (
	"slices"
	"sync"

	"github.com/coordd/coordd/commands"
)

// subKind tells the three kinds of subscriptions apart.
type subKind int

const (
	subChannel subKind = iota
	subPattern
	subShard
	subKinds
)

// hub knows the subscriptions of all sessions.
type hub struct {
	mu   sync.RWMutex
	subs [subKinds]map[string]map[*session]struct{}
}

func newHub() *hub {
	h := &hub{}
	for k := range h.subs {
		h.subs[k] = map[string]map[*session]struct{}{}
	}
	return h
}

func (h *hub) add(kind subKind, name string, s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.subs[kind][name]
	if m == nil {
		m = map[*session]struct{}{}
		h.subs[kind][name] = m
	}
	m[s] = struct{}{}
}

func (h *hub) remove(kind subKind, name string, s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(kind, name, s)
}

func (h *hub) drop(kind subKind, name string, s *session) {
	m := h.subs[kind][name]
	delete(m, s)
	if len(m) == 0 {
		delete(h.subs[kind], name)
	}
}

// forget removes all subscriptions of a session.
func (h *hub) forget(s *session) {
	if !s.subscribed() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for kind := range s.subs {
		for name := range s.subs[kind] {
			h.drop(subKind(kind), name, s)
		}
		s.subs[kind] = nil
	}
}

// receivers counts the subscriptions that a message to channel reaches, as PUBLISH does.
func (h *hub) receivers(channel []byte, shard bool) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if shard {
		return len(h.subs[subShard][string(channel)])
	}
	n := len(h.subs[subChannel][string(channel)])
	for pattern, m := range h.subs[subPattern] {
		if commands.Glob([]byte(pattern), channel) {
			n += len(m)
		}
	}
	return n
}

// names returns the channels that have subscribers and match pattern (nil: all), sorted.
func (h *hub) names(kind subKind, pattern []byte) []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var names []string
	for name := range h.subs[kind] {
		if pattern == nil || commands.Glob(pattern, []byte(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// count is the number of subscribers of one channel or pattern.
func (h *hub) count(kind subKind, name []byte) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.subs[kind][string(name)])
}

// kinds is the number of different channels or patterns.
func (h *hub) kinds(kind subKind) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.subs[kind])
}

// Deliver hands a message to the subscribers of this node. It is called as entries are applied, and never blocks.
func (s *Server) Deliver(e commands.Event) {
	h := s.hub
	h.mu.RLock()
	defer h.mu.RUnlock()
	if e.Shard {
		if m := h.subs[subShard][string(e.Channel)]; len(m) > 0 {
			s.spread(m, "smessage", nil, &e)
		}
		return
	}
	if m := h.subs[subChannel][string(e.Channel)]; len(m) > 0 {
		s.spread(m, "message", nil, &e)
	}
	for pattern, m := range h.subs[subPattern] {
		if p := []byte(pattern); commands.Glob(p, e.Channel) {
			s.spread(m, "pmessage", p, &e)
		}
	}
}

// spread queues one message for several sessions.
func (s *Server) spread(to map[*session]struct{}, word string, pattern []byte, e *commands.Event) {
	var frames [2]commands.RESP // by protocol, 2 and 3
	for c := range to {
		f := &frames[c.pushProto.Load()-2]
		if f.Buf == nil {
			f.Proto = int(c.pushProto.Load())
			n := 3
			if pattern != nil {
				n = 4
			}
			f.Push(n)
			f.BulkString(word)
			if pattern != nil {
				f.Bulk(pattern)
			}
			f.Bulk(e.Channel)
			f.Bulk(e.Payload)
		}
		if c.out.push(f.Buf) {
			s.log.Warn("closed a subscriber that does not read its messages", "client", c.addr, "limit_bytes", c.out.limit)
			c.kill()
		}
	}
}
