package server

// This file holds what client-side caches stand on: which keys a client that said CLIENT TRACKING ON has read, and whom a change of a
// key is told. A key is remembered before the read of it is sent, so that no change behind the read is missed. From before that on
// messages wait until the replies under way are written (output.hold), so that no value follows the word that it is out of date, not even
// one of a change between the two.

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coordd/coordd/commands"
)

// defaultTrackedKeys is how many keys are remembered on a node unless CONFIG SET tracking-table-max-keys says otherwise.
const defaultTrackedKeys = 1_000_000

// tracker is how a client is told of changes. It is replaced, not changed.
type tracker struct {
	bcast, optin, optout, noloop bool
	redirect                     uint64   // the connection that is told instead; 0: the client's own
	prefixes                     []string // of bcast, sorted

	broken atomic.Bool // redirect has gone
}

// tracking knows the keys and prefixes of which clients of this node are told.
type tracking struct {
	on      atomic.Int64 // clients
	maxKeys atomic.Int64 // 0: no limit

	mu       sync.Mutex
	clients  map[*session]struct{}
	keys     map[string]map[*session]struct{} // of all databases alike, as on Redis
	items    int                              // clients in all of keys
	prefixes map[string]map[*session]struct{}
	lengths  map[int]int // how many prefixes there are of each length
}

func (tr *tracking) init() {
	tr.maxKeys.Store(defaultTrackedKeys)
	tr.clients, tr.keys, tr.prefixes = map[*session]struct{}{}, map[string]map[*session]struct{}{}, map[string]map[*session]struct{}{}
	tr.lengths = map[int]int{}
}

// counts are the numbers that INFO shows.
func (tr *tracking) counts() (clients, keys, items, prefixes int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.clients), len(tr.keys), tr.items, len(tr.prefixes)
}

// begin makes a session one that is told.
func (tr *tracking) begin(s *session, t *tracker) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if _, known := tr.clients[s]; !known {
		tr.clients[s] = struct{}{}
		tr.on.Add(1)
	}
	for _, p := range t.prefixes {
		if tr.prefixes[p] == nil {
			tr.prefixes[p] = map[*session]struct{}{}
			tr.lengths[len(p)]++
		}
		tr.prefixes[p][s] = struct{}{}
	}
	s.track.Store(t)
}

// forgetAtOnce is how many keys a client that ends is taken out of before others may go on.
const forgetAtOnce = 1024

// end makes a session one that is not told.
func (tr *tracking) end(s *session) {
	t := s.track.Swap(nil)
	if t == nil {
		return
	}
	for more := true; more; {
		more = tr.forget(s, t)
	}
}

// forget takes a session out, step by step.
func (tr *tracking) forget(s *session, t *tracker) (more bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	n := 0
	for key := range s.tracked {
		if n++; n > forgetAtOnce {
			return true
		}
		delete(s.tracked, key)
		tr.items--
		if delete(tr.keys[key], s); len(tr.keys[key]) == 0 {
			delete(tr.keys, key)
		}
	}
	s.tracked = nil
	for _, p := range t.prefixes {
		if delete(tr.prefixes[p], s); len(tr.prefixes[p]) > 0 {
			continue
		}
		delete(tr.prefixes, p)
		if tr.lengths[len(p)]--; tr.lengths[len(p)] == 0 {
			delete(tr.lengths, len(p))
		}
	}
	if _, known := tr.clients[s]; known {
		delete(tr.clients, s)
		tr.on.Add(-1)
	}
	return false
}

// remember notes that a session is to be told of keys. It returns what is dropped for it: keys past the limit.
func (tr *tracking) remember(s *session, keys []string) (dropped []invalidation) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if s.tracked == nil {
		s.tracked = map[string]struct{}{}
	}
	for _, key := range keys {
		if _, known := s.tracked[key]; known {
			continue
		}
		s.tracked[key] = struct{}{}
		if tr.keys[key] == nil {
			tr.keys[key] = map[*session]struct{}{}
		}
		tr.keys[key][s] = struct{}{}
		tr.items++
	}
	for limit := int(tr.maxKeys.Load()); limit > 0 && len(tr.keys) > limit; {
		for key := range tr.keys { // any
			dropped = append(dropped, tr.take(key, 0))
			break
		}
	}
	return dropped
}

// take forgets a key and says whom that has to be told: all who had it, but not a client that did the change itself and
// does not want to hear of that. Such a client keeps the key: a follower may come to know of the change after the client has read the key again, and
// would then forget that it did.
func (tr *tracking) take(key string, client uint64) invalidation {
	v := invalidation{keys: []string{key}}
	for s := range tr.keys[key] {
		if client == s.askerNumber() && s.track.Load().quiet() {
			continue
		}
		v.to = append(v.to, s)
		delete(s.tracked, key)
		delete(tr.keys[key], s)
		tr.items--
	}
	if len(tr.keys[key]) == 0 {
		delete(tr.keys, key)
	}
	return v
}

// quiet says whether the client's own changes are not told to it.
func (t *tracker) quiet() bool { return t != nil && t.noloop }

// wants says whether somebody is to be told of a key.
func (tr *tracking) wants(key string) bool {
	if tr.on.Load() == 0 {
		return false
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.keys[key]) > 0 {
		return true
	}
	some := false
	tr.eachPrefix(key, func(string) { some = true })
	return some
}

// eachPrefix calls f with every prefix that a key begins with. It takes a step for each length that prefixes have: they may be as many as
// clients, and who applies the log waits.
func (tr *tracking) eachPrefix(key string, f func(prefix string)) {
	for n := range tr.lengths {
		if n > len(key) {
			continue
		}
		if _, known := tr.prefixes[key[:n]]; known {
			f(key[:n])
		}
	}
}

// invalidation is one message about keys, for several clients. Without keys all keys are meant.
type invalidation struct {
	keys []string
	to   []*session
}

func (v *invalidation) bytes() int {
	n := 8 * len(v.to)
	for _, k := range v.keys {
		n += len(k)
	}
	return n
}

// changed says what is to be told of the changes of one entry.
func (tr *tracking) changed(events []commands.Event) (told []invalidation) {
	if tr.on.Load() == 0 {
		return nil
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	flushed := false
	var changes []*commands.Event // for clients with prefixes
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case commands.KeyChanged:
			if len(tr.keys[e.Key]) > 0 {
				if v := tr.take(e.Key, e.Client); len(v.to) > 0 {
					told = append(told, v)
				}
			}
			changes = append(changes, e)
			flushed = false
		case commands.DBChanged, commands.StateReplaced:
			if !flushed {
				told = append(told, tr.flush())
			}
			flushed = true
		}
	}
	if len(tr.prefixes) > 0 && len(changes) > 0 {
		told = append(told, tr.broadcast(changes)...)
	}
	return told
}

// flush forgets every key and tells all.
func (tr *tracking) flush() invalidation {
	v := invalidation{to: make([]*session, 0, len(tr.clients))}
	for s := range tr.clients {
		s.tracked = nil
		v.to = append(v.to, s)
	}
	tr.keys, tr.items = map[string]map[*session]struct{}{}, 0
	return v
}

// broadcast tells of the keys that begin with a prefix, in one message for all who have it.
func (tr *tracking) broadcast(changes []*commands.Event) (told []invalidation) {
	byPrefix := map[string][]*commands.Event{}
	for _, e := range changes {
		tr.eachPrefix(e.Key, func(p string) { byPrefix[p] = append(byPrefix[p], e) })
	}
	for _, p := range slices.Sorted(maps.Keys(byPrefix)) {
		all := invalidation{keys: keysOf(byPrefix[p], 0)}
		for s := range tr.prefixes[p] {
			if !s.track.Load().quiet() {
				all.to = append(all.to, s)
				continue
			}
			if keys := keysOf(byPrefix[p], s.askerNumber()); len(keys) > 0 {
				told = append(told, invalidation{keys: keys, to: []*session{s}})
			}
		}
		if len(all.to) > 0 {
			told = append(told, all)
		}
	}
	return told
}

// keysOf gives the keys that changed, sorted, without those that one client alone (0: none) changed.
func keysOf(changes []*commands.Event, without uint64) []string {
	var keys []string
	for _, e := range changes {
		if without == 0 || e.Client != without {
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// invalidate queues the message for each of its clients.
func (s *Server) invalidate(v *invalidation) {
	for _, c := range v.to {
		t := c.track.Load()
		if t == nil {
			continue // it has ended tracking meanwhile
		}
		target := c
		if t.redirect != 0 {
			if target = s.session(t.redirect); target == nil {
				t.broken.Store(true)
				if c.pushProto.Load() == 3 {
					f := commands.RESP{Proto: 3}
					f.Push(2)
					f.BulkString("tracking-redir-broken")
					f.Int(int64(t.redirect))
					s.push(c, f.Buf)
				}
				continue
			}
		}
		if frame := v.frame(c, target, t.redirect != 0); frame != nil {
			s.push(target, frame)
		}
	}
}

// frame writes the message as target reads it; nil where it reads none: with RESP2 it has to be the one that c redirects to, be it c itself, and subscribed.
func (v *invalidation) frame(c, target *session, redirected bool) []byte {
	f := commands.RESP{Proto: int(target.pushProto.Load())}
	switch {
	case f.Proto == 3:
		f.Push(2)
		f.BulkString("invalidate")
	case !redirected || target.subscriptions.Load() == 0:
		return nil
	default:
		f.Push(3)
		f.BulkString("message")
		f.BulkString("__redis__:invalidate")
	}
	if v.keys == nil {
		f.Proto = int(c.pushProto.Load()) // so does Redis: in the protocol of the client that is told by another
		f.Null()
		return f.Buf
	}
	f.Array(len(v.keys))
	for _, k := range v.keys {
		f.BulkString(k)
	}
	return f.Buf
}
