package server

// This file holds who is subscribed to what on this node, and what each of them is sent.

import (
	"slices"
	"sync"
	"sync/atomic"

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
	delivery delivery
	deliver  func(p *parcel, number uint64)
	size     atomic.Int64 // subscriptions of all kinds

	mu   sync.RWMutex
	deaf error                            // why no messages come any more; nil: they do
	subs [subKinds]map[string]subscribers // by name
}

// subscribers of one channel or pattern, with the number of the newest message that was handed over before they came.
type subscribers map[*session]uint64

func newHub(deliver func(p *parcel, number uint64)) *hub {
	h := &hub{deliver: deliver}
	h.delivery.init()
	for k := range h.subs {
		h.subs[k] = map[string]subscribers{}
	}
	return h
}

// add returns the reason where no messages come any more.
func (h *hub) add(kind subKind, name string, s *session) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deaf != nil {
		return h.deaf
	}
	m := h.subs[kind][name]
	if m == nil {
		m = subscribers{}
		h.subs[kind][name] = m
	}
	if _, known := m[s]; !known {
		s.subscriptions.Add(1)
		h.size.Add(1) // before the number is read: from here on Deliver queues what comes
		m[s] = h.delivery.join(h.deliver)
	}
	return nil
}

// deafen takes no more subscriptions.
func (h *hub) deafen(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf = why
}

func (h *hub) deafness() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.deaf
}

func (h *hub) remove(kind subKind, name string, s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(kind, name, s)
}

func (h *hub) drop(kind subKind, name string, s *session) {
	m := h.subs[kind][name]
	if _, known := m[s]; !known {
		return
	}
	h.size.Add(-1)
	s.subscriptions.Add(-1)
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
	n := 0
	h.reached(channel, func(_ []byte, to subscribers) { n += len(to) })
	return n
}

// reached calls f with those whom a message to channel reaches: of the channel, with no pattern, and of each pattern that it matches. The
// caller holds mu.
func (h *hub) reached(channel []byte, f func(pattern []byte, to subscribers)) {
	f(nil, h.subs[subChannel][string(channel)])
	for pattern, to := range h.subs[subPattern] {
		if p := []byte(pattern); commands.Glob(p, channel) {
			f(p, to)
		}
	}
}

// subscribers are the sessions that a message to channel reaches.
func (h *hub) subscribers(channel []byte) map[*session]struct{} {
	h.mu.RLock()
	defer h.mu.RUnlock()
	found := map[*session]struct{}{}
	h.reached(channel, func(_ []byte, to subscribers) {
		for c := range to {
			found[c] = struct{}{}
		}
	})
	return found
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

// Deliver hands the events of one entry to the clients of this node, and keeps their bytes, but not the slice. It is called as entries are
// applied, and costs next to nothing: it waits only when more messages than a limit have not been given to their receivers'
// queues, and never for a client. A subscription that was confirmed before gets the messages, one that begins after does not. Where a
// snapshot took the place of entries, subscribers' connections are closed behind the messages that came before.
func (s *Server) Deliver(events []commands.Event) {
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == commands.ScriptCall:
			s.called(e)
		case e.Kind != commands.Message:
			s.waiters.changed(e)
			if e.Kind == commands.StateReplaced && s.hub.size.Load() > 0 {
				s.hub.delivery.put(parcel{Event: *e})
			}
		case s.hub.size.Load() > 0:
			s.hub.delivery.put(parcel{Event: *e})
		}
	}
	for _, v := range s.tracking.changed(events) {
		s.hub.delivery.put(parcel{invalid: v})
	}
}

// wants says whether somebody on this node waits for changes of a key, or is to be told of them.
func (s *Server) wants(db int, key string) bool {
	return s.waiters.wants(db, key) || s.tracking.wants(key)
}

// observe tells the backend whether changes of keys are to be told of. It is called after somebody came who wants to know, before what
// that one does next, and after one has left.
func (s *Server) observe() {
	s.observing.Lock()
	defer s.observing.Unlock()
	on := s.waiters.count.Load() > 0 || s.tracking.on.Load() > 0
	if on == s.observed {
		return
	}
	s.observed = on
	if on {
		s.backend.Observe(s.wants)
	} else {
		s.backend.Observe(nil)
	}
}

// spreadAll gives a message to all who wanted it when it was handed over.
func (s *Server) spreadAll(p *parcel, number uint64) {
	if p.invalid.to != nil {
		s.invalidate(&p.invalid)
		return
	}
	h, e := s.hub, &p.Event
	h.mu.RLock()
	defer h.mu.RUnlock()
	if e.Kind == commands.StateReplaced {
		s.endSubscribers(number)
		return
	}
	if e.Shard {
		if m := h.subs[subShard][string(e.Channel)]; len(m) > 0 {
			s.spread(m, number, "smessage", nil, e)
		}
		return
	}
	h.reached(e.Channel, func(pattern []byte, to subscribers) {
		word := "message"
		if pattern != nil {
			word = "pmessage"
		}
		s.spread(to, number, word, pattern, e)
	})
}

// endSubscribers closes the connections of all who subscribed before the parcel with that number. A snapshot took the place of
// entries, and with them of messages that nobody can give them any more: a subscriber who loses its connection knows that it has missed something, one
// that goes on does not. The caller holds hub.mu.
func (s *Server) endSubscribers(number uint64) {
	ended := map[*session]struct{}{}
	for _, names := range s.hub.subs {
		for _, to := range names {
			for c, after := range to {
				if number > after {
					ended[c] = struct{}{}
				}
			}
		}
	}
	for c := range ended {
		c.dismiss()
	}
	if len(ended) > 0 {
		s.log.Warn("closed the connections of subscribers: messages to them were in entries that this node got as a snapshot", "clients", len(ended))
	}
}

// spread queues one message for several sessions.
func (s *Server) spread(to subscribers, number uint64, word string, pattern []byte, e *commands.Event) {
	var frames [2]commands.RESP // by protocol, 2 and 3
	for c, after := range to {
		if number <= after {
			continue
		}
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
		s.push(c, f.Buf)
	}
}

// push queues a message for a client, which it ends where too many wait.
func (s *Server) push(c *session, message []byte) {
	if c.out.push(message) {
		s.log.Warn("closed a subscriber that does not read its messages", "client", c.addr, "limit_bytes", c.out.limit)
		c.kill()
	}
}
