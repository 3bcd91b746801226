// Client-side caching: which keys a client with CLIENT TRACKING ON has read, and who receives an
// invalidation when a key changes. A key is recorded before the read of it is sent, so that no
// later change is missed. From then on messages wait until the current replies are written
// (output.hold), so that a stale value never follows its invalidation. What the client's user may
// not read is not recorded.
//
// Applying the log only checks whether a key is in the table. The delivery goroutine finds the
// receivers. It may be behind, so a client that has read the key again meanwhile may receive one
// invalidation too many.

package server

import (
	"maps"
	"slices"
	"sync/atomic"

	radix "github.com/hashicorp/go-immutable-radix"

	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// defaultTrackedKeys is the default of tracking-table-max-keys.
	defaultTrackedKeys = 1_000_000
	// maxTrackingBytes bounds the table, whatever CONFIG SET says.
	maxTrackingBytes = 256 << 20
	// Overhead of a tracked key, and of each client that tracks it, bytes.
	trackedKeyCost    = 128
	trackedClientCost = 64
	// keyChangeCost is the overhead of a queued change, bytes.
	keyChangeCost = 40
	// lockedKeys is the number of keys processed per lock of the table.
	lockedKeys = 256
)

// tracker is how a client tracks keys. It is replaced, not changed.
type tracker struct {
	bcast, optin, optout, noloop bool
	// the number of the connection that receives invalidations; 0: the client's own
	redirect uint64
	prefixes []string // the prefixes of BCAST, sorted
	after    uint64   // the newest parcel at the start: earlier changes are not sent

	broken atomic.Bool // redirect has gone
}

// tracking holds the keys and prefixes that clients of this node track.
type tracking struct {
	on      atomic.Int64 // clients
	maxKeys atomic.Int64 // 0: no limit

	mu       lockorder.RWMutex
	clients  map[*session]struct{}
	keys     map[string]*sessionSet // keys of all databases, as in Redis
	items    int                    // clients in all of keys
	bytes    int                    // memory that keys takes
	maxBytes int
	prefixes *radix.Tree // *sessionSet by prefix
	// clients that were not told of a key, while a parcel for them is queued
	overdue map[*session]struct{}
}

func (tr *tracking) init() {
	tr.maxKeys.Store(defaultTrackedKeys)
	tr.maxBytes = maxTrackingBytes
	tr.clients, tr.keys, tr.prefixes = map[*session]struct{}{}, map[string]*sessionSet{},
		radix.New()
}

// counts returns the numbers that INFO shows.
func (tr *tracking) counts() (clients, keys, items, prefixes int) {
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	return len(tr.clients), len(tr.keys), tr.items, tr.prefixes.Len()
}

// begin starts tracking for a session.
func (tr *tracking) begin(s *session, t *tracker) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if _, known := tr.clients[s]; !known {
		tr.clients[s] = struct{}{}
		tr.on.Add(1)
	}
	if old := s.track.Swap(t); old != nil {
		s.memory.add(memoryKeys, -prefixBytes(old.prefixes))
	}
	s.memory.add(memoryKeys, prefixBytes(t.prefixes))
}

// prefixCost is the overhead of a prefix, bytes.
const prefixCost = 384

func prefixBytes(prefixes []string) int {
	n := 0
	for _, p := range prefixes {
		n += len(p) + prefixCost
	}
	return n
}

// join adds prefixes to a session, a few at a time.
func (tr *tracking) join(s *session, prefixes []string) {
	for part := range slices.Chunk(prefixes, lockedKeys) {
		tr.mu.Lock()
		for _, p := range part {
			v, known := tr.prefixes.Get([]byte(p))
			if !known {
				v = &sessionSet{}
				tr.prefixes, _, _ = tr.prefixes.Insert([]byte(p), v)
			}
			v.(*sessionSet).add(s)
		}
		tr.mu.Unlock()
	}
}

// leave is the opposite of join.
func (tr *tracking) leave(s *session, prefixes []string) {
	for part := range slices.Chunk(prefixes, lockedKeys) {
		tr.mu.Lock()
		for _, p := range part {
			v, known := tr.prefixes.Get([]byte(p))
			if !known {
				continue
			}
			if v.(*sessionSet).remove(s); v.(*sessionSet).len() == 0 {
				tr.prefixes, _, _ = tr.prefixes.Delete([]byte(p))
			}
		}
		tr.mu.Unlock()
	}
}

// stop stops tracking for a session.
func (tr *tracking) stop(s *session) {
	t := s.track.Swap(nil)
	if t == nil {
		return
	}
	s.srv.lockHolds.forget(s)
	for more := true; more; {
		more = tr.forget(s)
	}
	tr.leave(s, t.prefixes)
	s.memory.add(memoryKeys, -prefixBytes(t.prefixes))
}

// forget removes a session, a few keys at a time.
func (tr *tracking) forget(s *session) (more bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	n := 0
	for key := range s.tracked {
		if n++; n > lockedKeys {
			return true
		}
		tr.drop(s, key)
	}
	s.tracked = nil
	if _, known := tr.clients[s]; known {
		delete(tr.clients, s)
		tr.on.Add(-1)
	}
	return false
}

// charge accounts for the session's tracked keys. The caller holds tracking.mu.
func (s *session) charge(bytes int) {
	s.trackedBytes += bytes
	s.memory.add(memoryKeys, bytes)
}

// firm is the value in session.tracked of a key that the client has read, or is about to. Any other
// value is the number of scripts that may read it.
const firm = 0

// note adds a key to a session. The caller holds mu.
func (tr *tracking) note(s *session, key string) {
	if _, known := s.tracked[key]; known {
		s.tracked[key] = firm
		return
	}
	tr.insert(s, key, firm)
}

// noteMaybe adds a key that a script may read, and reports whether decide must follow.
func (tr *tracking) noteMaybe(s *session, key string) bool {
	scripts, known := s.tracked[key]
	switch {
	case !known:
		tr.insert(s, key, 1)
	case scripts == firm:
		return false
	default:
		s.tracked[key]++
	}
	return true
}

func (tr *tracking) insert(s *session, key string, scripts uint32) {
	of := tr.keys[key]
	if of == nil {
		of = &sessionSet{}
		tr.keys[key] = of
		tr.bytes += len(key) + trackedKeyCost
	}
	s.tracked[key] = scripts
	s.charge(len(key) + trackedClientCost)
	of.add(s)
	tr.items++
	tr.bytes += trackedClientCost
}

// drop is the opposite of insert. The caller holds mu.
func (tr *tracking) drop(s *session, key string) {
	of := tr.keys[key]
	delete(s.tracked, key)
	s.charge(-len(key) - trackedClientCost)
	of.remove(s)
	tr.items--
	tr.bytes -= trackedClientCost
	if of.len() == 0 {
		delete(tr.keys, key)
		tr.bytes -= len(key) + trackedKeyCost
	}
}

// remember records that a session tracks keys. It passes invalidations of keys evicted for them to
// drop.
func (tr *tracking) remember(s *session, keys []string, drop func(invalidation)) {
	tr.record(keys, drop, s, func(key string) { tr.note(s, key) })
}

// rememberMaybe is remember for a script, which may not read all of the keys. It returns those that
// decide is for.
func (tr *tracking) rememberMaybe(s *session, keys []string,
	drop func(invalidation)) (maybe []string) {
	tr.record(keys, drop, s, func(key string) {
		if tr.noteMaybe(s, key) {
			maybe = append(maybe, key)
		}
	})
	return maybe
}

// decide ends what rememberMaybe began: of those keys the scripts have read some, and possibly
// others. It returns the others that are not tracked.
func (tr *tracking) decide(s *session, maybe, read []string) (untracked []string) {
	reads := make(map[string]struct{}, len(read))
	for _, key := range read {
		reads[key] = struct{}{}
	}
	for part := range slices.Chunk(maybe, lockedKeys) {
		tr.mu.Lock()
		for _, key := range part {
			_, was := reads[key]
			switch scripts, known := s.tracked[key]; {
			case !known || scripts == firm: // changed meanwhile, or read by another command
			case was:
				s.tracked[key] = firm
			case scripts == 1:
				tr.drop(s, key)
			default:
				s.tracked[key]--
			}
		}
		tr.mu.Unlock()
	}
	for _, key := range maybe {
		delete(reads, key)
	}
	for part := range slices.Chunk(read, lockedKeys) {
		tr.mu.Lock()
		for _, key := range part {
			if _, was := reads[key]; !was {
				continue
			}
			if _, known := s.tracked[key]; known {
				s.tracked[key] = firm
			} else {
				untracked = append(untracked, key)
			}
		}
		tr.mu.Unlock()
	}
	return untracked
}

// record calls note with each of the keys for a session, a few at a time.
func (tr *tracking) record(keys []string, drop func(invalidation), s *session,
	note func(key string)) {
	for part := range slices.Chunk(keys, lockedKeys) {
		tr.recordSome(s, part, note)
		tr.trim(drop)
	}
}

func (tr *tracking) recordSome(s *session, keys []string, note func(key string)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if s.tracked == nil {
		s.tracked = map[string]uint32{}
	}
	for _, key := range keys {
		note(key)
	}
}

// trim evicts keys over the limits, and passes their invalidations to drop.
func (tr *tracking) trim(drop func(invalidation)) {
	for {
		tr.mu.Lock()
		dropped := tr.evict()
		tr.mu.Unlock()
		if len(dropped) == 0 {
			return
		}
		for _, v := range dropped {
			drop(v)
		}
	}
}

// evict removes keys over the limits, a few at a time. The caller holds mu.
func (tr *tracking) evict() (dropped []invalidation) {
	limit, clients := int(tr.maxKeys.Load()), 0
	for len(dropped) <= lockedKeys && clients <= lockedClients &&
		(limit > 0 && len(tr.keys) > limit || tr.bytes > tr.maxBytes) {
		for key := range tr.keys { // any key
			v := tr.untrack(key, 0)
			dropped, clients = append(dropped, v), clients+len(v.to)
			break
		}
	}
	return dropped
}

// untrack removes a key and returns the clients to notify: all that track it, except a client with
// NOLOOP that made the change. That client keeps the key: a follower may apply the change after
// the client has read the key again, and would then lose the record.
func (tr *tracking) untrack(key string, client uint64) invalidation {
	v := invalidation{keys: []string{key}}
	tr.keys[key].each(func(s *session) {
		if client != s.clientNumber() || !s.track.Load().quiet() {
			v.to = append(v.to, s)
		}
	})
	for _, s := range v.to {
		tr.drop(s, key)
	}
	return v
}

// quiet reports whether the client does not receive its own changes.
func (t *tracker) quiet() bool { return t != nil && t.noloop }

// wants reports whether a client tracks a key.
func (tr *tracking) wants(key string) bool {
	if tr.on.Load() == 0 {
		return false
	}
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	if tr.keys[key] != nil {
		return true
	}
	some := false
	if tr.prefixes.Len() > 0 {
		eachPrefix(tr.prefixes, key, func(*sessionSet) bool { some = true; return false })
	}
	return some
}

// keyChange is a change of a key, or of all keys.
type keyChange struct {
	key    string
	client uint64 // the client that made it, as in Event.Client
	all    bool
}

// invalidation is one message about keys, for several clients. No keys means all keys.
type invalidation struct {
	keys []string
	part keyPart // in place of keys, if it has any
	to   []*session
}

func (v *invalidation) bytes() int {
	n := 8 * len(v.to)
	for _, k := range v.keys {
		n += len(k)
	}
	return n
}

func (v *invalidation) message(redirected bool, nullProto int) *message {
	if v.part.of != nil {
		return v.part.message(redirected)
	}
	return invalidating(v.keys, redirected, nullProto)
}

// changed calls notify with the invalidations for the changes of one entry, delivered as parcel
// number. If all keys may have changed, one message says so, whatever else the entry has changed: a
// script can flush again and again, and there may be many clients.
func (tr *tracking) changed(changes []keyChange, number uint64, notify func(*invalidation)) {
	if slices.ContainsFunc(changes, func(c keyChange) bool { return c.all }) {
		v := tr.flush()
		notify(&v)
		return
	}
	for rest := changes; len(rest) > 0; {
		invalidations, done := tr.changedSome(rest)
		for i := range invalidations {
			notify(&invalidations[i])
		}
		rest = rest[done:]
	}
	tr.prefixesChanged(changes, number, notify)
}

// owe notes clients that are to drop all that they cache. first reports that a parcel must be
// queued for that.
func (tr *tracking) owe(to []*session) (first bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if first = tr.overdue == nil && len(to) > 0; first {
		tr.overdue = map[*session]struct{}{}
	}
	for _, s := range to {
		tr.overdue[s] = struct{}{}
	}
	return first
}

// takeOverdue returns the message for the clients that owe has noted.
func (tr *tracking) takeOverdue() (v invalidation) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	v.to = slices.Collect(maps.Keys(tr.overdue))
	tr.overdue = nil
	return v
}

// lockedClients is the number of clients collected per lock of the table, besides those of one key:
// applying the log waits for it.
const lockedClients = 4096

// changedSome processes the first changes, and returns how many.
func (tr *tracking) changedSome(changes []keyChange) (invalidations []invalidation, done int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	clients := 0
	for _, c := range changes[:min(len(changes), lockedKeys)] {
		if clients > lockedClients {
			break
		}
		done++
		if tr.keys[c.key] != nil {
			v := tr.untrack(c.key, c.client)
			if clients += len(v.to); len(v.to) > 0 {
				invalidations = append(invalidations, v)
			}
		}
	}
	return invalidations, done
}

// flush forgets every key and notifies all clients.
func (tr *tracking) flush() invalidation {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	v := invalidation{to: make([]*session, 0, len(tr.clients))}
	for s := range tr.clients {
		s.tracked = nil
		s.charge(-s.trackedBytes)
		v.to = append(v.to, s)
	}
	tr.keys, tr.items, tr.bytes = map[string]*sessionSet{}, 0, 0
	tr.overdue = nil
	return v
}

// invalidate queues the message for each of its clients, encoded once per form.
func (t *parcelDelivery) invalidate(v *invalidation) {
	var forms [2][2]*message // by redirection, and by the protocol of null
	form := func(redirected, three int) *message {
		if v.keys != nil || v.part.of != nil {
			three = 0 // there is no null
		}
		m := &forms[redirected][three]
		if *m == nil {
			*m = v.message(redirected == 1, 2+three)
		}
		return *m
	}
	for _, c := range v.to {
		switch tracked := c.track.Load(); {
		case tracked == nil: // tracking has ended meanwhile
		case tracked.redirect == 0:
			t.push(c, form(0, 1))
		default:
			target := t.srv.receiver(tracked.redirect)
			if target == nil || !c.maySendTo(target) {
				tracked.broken.Store(true)
				id, _ := t.srv.clientIDs.of(tracked.redirect)
				t.push(c, redirectBroken(id))
				continue
			}
			// as in Redis: null in the protocol of the redirecting client
			t.push(target, form(1, int(c.pushProto.Load())-2))
		}
	}
	t.breathe()
}

// sessionSet is a set of sessions, usually few.
type sessionSet struct {
	few  []*session
	many map[*session]struct{} // replaces few when there are many
}

const fewSessions = 8

func (v *sessionSet) len() int { return len(v.few) + len(v.many) }

func (v *sessionSet) add(s *session) {
	switch {
	case v.many != nil:
		v.many[s] = struct{}{}
	case slices.Contains(v.few, s):
	case len(v.few) < fewSessions:
		v.few = append(v.few, s)
	default:
		v.many = map[*session]struct{}{s: {}}
		for _, other := range v.few {
			v.many[other] = struct{}{}
		}
		v.few = nil
	}
}

func (v *sessionSet) remove(s *session) {
	delete(v.many, s)
	if i := slices.Index(v.few, s); i >= 0 {
		v.few = slices.Delete(v.few, i, i+1)
	}
}

func (v *sessionSet) each(f func(*session)) {
	for _, s := range v.few {
		f(s)
	}
	for s := range v.many {
		f(s)
	}
}
