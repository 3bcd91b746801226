// Locks that clients of this node took and may lose. A client that tracks keys in RESP3 is told
// when a lock has ended that it took on its connection and has not released (docs/adr/0064).
//
// The machine says who took a lock and who gave it back, before the replies arrive or after: this
// node may apply the log later than the leader. So both are joined here by the token.

package server

import (
	"slices"
	"sync/atomic"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/resp"
)

const (
	// maxLockHolds bounds the locks that are known on a node, maxKeyHolds those of one key:
	// applying the log looks at each when the key changes. Of others nobody is told.
	maxLockHolds = 65_536
	maxKeyHolds  = 256
	// maxCrowd bounds the locks that are known beyond fewHolds of one key: then an entry that
	// changes few keys has few looked at, since the looks are not charged.
	maxCrowd, fewHolds = 4096, 8
	// lockHoldCost is what one takes besides its texts, bytes.
	lockHoldCost = 384
	// keptEnds bounds the ends that are kept of a lock for replies that have not arrived.
	keptEnds = 16
)

// heldKey names the key of a lock, heldLock a lock and an owner.
type heldKey struct {
	db  int
	key string
}

type heldLock struct {
	heldKey
	owner string
}

// lockHold is a lock that a session took, or is about to.
type lockHold struct {
	of    heldLock
	s     *session
	token uint64 // 0: the owner has none, as far as the applied log says
	// guessed: a reply for several keys brought the token, which may be that of another
	guessed bool
	// confirmed: a reply to the session has the token
	confirmed bool
	asked     int       // requests whose replies have not arrived
	ends      []lockEnd // while there are such requests
}

// lockEnd is the end of a lock.
type lockEnd struct {
	token uint64
	lost  bool // the client is to be told, and is not yet
}

// lostLock is one whose holder is to be told.
type lostLock struct {
	s     *session
	key   string
	token uint64
}

// lockHolds are the locks of a node's clients.
type lockHolds struct {
	count atomic.Int64

	mu    lockorder.RWMutex
	byKey map[heldKey][]*lockHold
	crowd int        // those beyond fewHolds of each key
	lost  []lostLock // to be told
}

// wants reports whether a client holds a lock.
func (v *lockHolds) wants(db int, key string) bool {
	if v.count.Load() == 0 {
		return false
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.byKey[heldKey{db, key}]) > 0
}

// ask notes that a session is about to take a lock.
func (v *lockHolds) ask(s *session, of heldLock) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := s.locks[of]
	if h == nil {
		same := v.byKey[of.heldKey]
		crowded := len(same) >= fewHolds
		if len(same) >= maxKeyHolds || crowded && v.crowd >= maxCrowd ||
			v.count.Load()+int64(len(v.lost)) >= maxLockHolds {
			return
		}
		if crowded {
			v.crowd++
		}
		if v.byKey == nil {
			v.byKey = map[heldKey][]*lockHold{}
		}
		if s.locks == nil {
			s.locks = map[heldLock]*lockHold{}
		}
		h = &lockHold{of: of, s: s}
		s.locks[of], v.byKey[of.heldKey] = h, append(same, h)
		v.count.Add(1)
		s.holdsLocks.Add(1)
		s.memory.add(memoryKeys, h.bytes())
	}
	h.asked++
}

func (h *lockHold) bytes() int { return lockHoldCost + len(h.of.key) + len(h.of.owner) }

// remove forgets a lock. The caller holds mu.
func (v *lockHolds) remove(h *lockHold) {
	same := v.byKey[h.of.heldKey]
	if len(same) > fewHolds {
		v.crowd--
	}
	if same = slices.DeleteFunc(same, func(o *lockHold) bool { return o == h }); len(same) == 0 {
		delete(v.byKey, h.of.heldKey)
	} else {
		v.byKey[h.of.heldKey] = same
	}
	delete(h.s.locks, h.of)
	v.count.Add(-1)
	h.s.holdsLocks.Add(-1)
	h.s.memory.add(memoryKeys, -h.bytes())
}

// answered takes the reply to what ask announced: the token, 0 for none, which is the largest of
// the keys of the call. alone says that there is one. One that was held before keeps its own. It
// reports whether clients are to be told of a lock.
func (v *lockHolds) answered(s *session, of heldLock, token uint64, alone bool) (lost bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := s.locks[of]
	if h == nil || h.asked == 0 {
		return false
	}
	h.asked--
	at := slices.IndexFunc(h.ends, func(e lockEnd) bool { return e.token == token })
	switch {
	case token == 0:
	case at < 0:
		if h.confirmed = true; alone || h.token == 0 {
			h.token, h.guessed = token, !alone
		}
	case h.ends[at].lost:
		h.ends[at].lost, lost = false, true
		v.lost = append(v.lost, lostLock{s, of.key, token})
	}
	if h.asked == 0 {
		if h.ends = nil; !h.confirmed {
			v.remove(h)
		}
	}
	return lost
}

// forget forgets the locks of a session.
func (v *lockHolds) forget(s *session) {
	if s.holdsLocks.Load() == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range s.locks {
		v.remove(h)
	}
}

// end ends a lock. The caller holds mu.
func (v *lockHolds) end(h *lockHold, lost bool) {
	told := h.confirmed && lost
	if told {
		v.lost = append(v.lost, lostLock{h.s, h.of.key, h.token})
	}
	if h.asked > 0 {
		h.ends = append(h.ends, lockEnd{h.token, lost && !told})
		h.ends = h.ends[max(len(h.ends)-keptEnds, 0):]
	}
	if h.token, h.guessed, h.confirmed = 0, false, false; h.asked == 0 {
		v.remove(h)
	}
}

// lockChange is who changed a key, or all of a database, in an entry. A script can do so a hundred
// thousand times.
type lockChange struct {
	some    bool
	client  uint64              // the first who did
	others  bool                // others did too
	deleted map[uint64]struct{} // who did so that it was gone
}

func (c *lockChange) add(client uint64, gone bool) {
	if !c.some {
		c.some, c.client = true, client
	}
	c.others = c.others || client != c.client
	if !gone {
		return
	}
	if c.deleted == nil {
		c.deleted = map[uint64]struct{}{}
	}
	c.deleted[client] = struct{}{}
}

// alone reports whether nobody but a client made the change, if there was one.
func (c *lockChange) alone(client uint64) bool {
	return !c.some || !c.others && c.client == client
}

// ended reports whether a session ended its lock itself, without LOCK.RELEASE, by changes of the
// key, nil for none, or of its database: it deleted the key, or nobody else has changed it.
func ended(s *session, key, db *lockChange) bool {
	own := s.clientNumber()
	_, deleted := db.deleted[own]
	if key != nil && !deleted {
		_, deleted = key.deleted[own]
	}
	return deleted || db.alone(own) && (key == nil || key.alone(own))
}

// lockChanges are the changes of an entry that may end locks.
type lockChanges struct {
	keys  map[heldKey]*lockChange
	order []heldKey // in which keys changed
	dbs   [databases]lockChange
	all   bool // some databases may have changed as a whole
}

// changes takes the events of an entry. The caller holds mu.
func (v *lockHolds) changes(events []commands.Event) *lockChanges {
	c := &lockChanges{keys: map[heldKey]*lockChange{}}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case commands.LockTaken, commands.LockGivenBack:
			v.tell(e)
		case commands.KeyChanged:
			k := heldKey{e.DB, e.Key}
			if len(v.byKey[k]) == 0 {
				continue
			}
			if c.keys[k] == nil {
				c.keys[k], c.order = &lockChange{}, append(c.order, k)
			}
			c.keys[k].add(e.Client, e.Gone)
		case commands.DBChanged:
			c.all = true
			c.dbs[e.DB].add(e.Client, true)
		case commands.StateReplaced:
			c.all = true
			for db := range c.dbs {
				c.dbs[db].add(e.Client, true)
			}
		}
	}
	return c
}

// touched returns the locks that changes may have ended. The caller holds mu.
func (v *lockHolds) touched(c *lockChanges) (holds []*lockHold) {
	add := func(k heldKey) {
		for _, h := range v.byKey[k] {
			if h.token != 0 {
				holds = append(holds, h)
			}
		}
	}
	for _, k := range c.order {
		add(k)
	}
	if c.all { // once, however often: there may be many locks
		for k := range v.byKey {
			if c.dbs[k.db].some && c.keys[k] == nil {
				add(k)
			}
		}
	}
	return holds
}

// applied takes the events of an entry. It reports whether clients are to be told of locks.
func (v *lockHolds) applied(srv *Server, events []commands.Event) bool {
	if v.count.Load() == 0 {
		return false
	}
	v.mu.Lock()
	before := len(v.lost)
	changes := v.changes(events)
	holds := v.touched(changes)
	asked, tokens := make([]commands.HeldLock, len(holds)), make([]uint64, len(holds))
	for i, h := range holds {
		asked[i] = commands.HeldLock{DB: h.of.db, Key: h.of.key, Owner: h.of.owner}
		tokens[i] = h.token
	}
	v.mu.Unlock() // the machine asks wants with its own lock held
	if len(asked) > 0 {
		now, at := srv.backend.LockTokens(asked)
		v.mu.Lock()
		for i, h := range holds {
			// a reply may have brought a token of an entry that is not applied here
			if h.token == tokens[i] && now[i] != h.token && h.token <= at &&
				h.s.locks[h.of] == h {
				v.end(h, !ended(h.s, changes.keys[h.of.heldKey], &changes.dbs[h.of.db]))
			}
		}
		v.mu.Unlock()
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.lost) > before
}

// tell takes that a lock was taken or given back. The caller holds mu.
func (v *lockHolds) tell(e *commands.Event) {
	for _, h := range slices.Clone(v.byKey[heldKey{e.DB, e.Key}]) {
		switch {
		case h.of.owner != string(e.Payload):
		case h.guessed && h.token > e.Wait && e.Kind == commands.LockTaken:
			h.token, h.guessed = e.Wait, false // the owner has had it for longer
		case h.token > e.Wait:
		case e.Kind == commands.LockGivenBack:
			if h.token == e.Wait {
				v.end(h, false)
			}
		case h.token == e.Wait:
			h.guessed = false
		default:
			if h.token != 0 {
				v.end(h, e.Client != h.s.clientNumber())
			}
			if h.asked > 0 {
				h.token, h.confirmed = e.Wait, false
			}
		}
	}
}

// take returns the locks whose holders are to be told.
func (v *lockHolds) take() (all []lostLock) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, v.lost = v.lost, nil
	return all
}

// tellLost tells holders that their locks have ended.
func (t *parcelDelivery) tellLost() {
	for _, l := range t.srv.lockHolds.take() {
		if l.s.track.Load() != nil {
			t.push(l.s, lockLost(l.key, l.token))
		}
	}
	t.breathe()
}

// lockLost encodes the message that a lock has ended.
func lockLost(key string, token uint64) *message {
	f := commands.RESP{Proto: 3}
	f.Push(3)
	f.BulkString(commands.EventLockLost)
	f.BulkString(key)
	f.Int(int64(token))
	return &message{body: f.Buf, resp3Only: true}
}

// expectLocks notes the locks that a request may take, before it is sent. It reports whether
// lockReply must follow.
func (s *session) expectLocks(p *pending) (expects bool) {
	if s.proto != 3 || s.track.Load() == nil {
		return false
	}
	s.eachTaking(p, func(_ int, of heldLock, _ bool) {
		expects = true
		s.srv.lockHolds.ask(s, of)
	})
	return expects
}

// eachTaking calls f with the locks that the commands of a request may take, the number of the
// command among those that the machine answers, and whether it takes no other.
func (s *session) eachTaking(p *pending, f func(at int, of heldLock, alone bool)) {
	each := func(at, db int, spec *commands.Spec, args [][]byte) {
		owner, keys := spec.TakesLocks(args)
		for _, k := range keys {
			f(at, heldLock{heldKey{db, string(k)}, string(owner)}, len(keys) == 1)
		}
	}
	if p.step != executed {
		each(0, p.db, p.spec, p.args)
		return
	}
	at, db := 0, p.db
	for i := range p.block {
		q := &p.block[i]
		if len(q.args) == 2 && is(q.args[0], "select") {
			if n, ok := commands.ParseInt(q.args[1]); ok {
				db = int(n)
			}
		}
		if q.inMachine() {
			each(at, db, q.spec, q.args)
			at++
		}
	}
}

// lockReply takes the reply to a request that expectLocks was asked about, nil if it has none.
func (s *session) lockReply(p *pending, reply []byte) {
	if !p.locks {
		return
	}
	replies := [][]byte{reply}
	if p.step == executed {
		_, rest, ok := resp.Elements(reply)
		for replies = nil; ok && len(rest) > 0; {
			n := resp.Len(rest)
			if n <= 0 {
				break
			}
			replies, rest = append(replies, rest[:n]), rest[n:]
		}
	}
	lost := false
	s.eachTaking(p, func(at int, of heldLock, alone bool) {
		token := uint64(0)
		if at < len(replies) {
			token = grantedToken(replies[at])
		}
		lost = s.srv.lockHolds.answered(s, of, token, alone) || lost
	})
	if lost {
		s.srv.pubsub.delivery.put(parcel{locks: true})
	}
}

// grantedToken returns the token that a reply grants a lock by, 0 if it grants none.
func grantedToken(reply []byte) uint64 {
	n, rest, ok := resp.Elements(reply)
	if !ok || n != 4 || len(rest) < 4 || rest[0] != ':' {
		return 0
	}
	size := resp.Len(rest)
	if size < 4 {
		return 0
	}
	token, _ := commands.ParseInt(rest[1 : size-2])
	return uint64(token)
}
