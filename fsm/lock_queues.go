// Those who wait for locks. Unlike what waits for elements they stay while the leader changes, and
// nobody overtakes (docs/adr/0064). What they are granted they claim: see claims.go.

package fsm

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/once"
	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/wire"
)

const errQueueFull commands.Error = "ERR too much waits: no more locks can be waited for"

// lockQueues are the queues for locks, by key. They implement commands.LockQueues.
type lockQueues struct {
	byKey   map[changedKey][]*waiter // in the order of their turns; never empty
	ready   []changedKey             // may serve the first, in the order of their changes
	isReady map[changedKey]struct{}
	waits   int // commands that wait
	several int // those of them that have lockPlace.owner
	claims  claims
	// calls with the id of a request that wait, or whose grant is not claimed: the numbers of their
	// waits by callName. There is one of each.
	calls map[string]uint64
}

// lockPlace is what decides when a command gets its lock, besides its order.
type lockPlace struct {
	alone    bool // it does not get one that somebody holds
	again    bool // it need not queue for one that its owner holds
	priority int64
	sinceMs  int64  // cluster clock
	call     string // callName; "": the call has no id
	// owner is that of a command that waits for several keys and may hold some of them itself: then
	// it need not queue for these. "": it waits for one, or may not
	owner string
}

// setOwner sets owner for a request that waits for so many keys.
func (p *lockPlace) setOwner(q *commands.Request, keys int) {
	if p != nil && p.again && keys > 1 {
		p.owner = string(q.Cmds[0][2])
	}
}

// callName names the call of a user with an id.
func callName(user once.User, id []byte) string {
	name := wire.AppendBytes(nil, user.Name)
	return string(append(binary.AppendUvarint(name, user.Created), id...))
}

// count counts a wait that comes, or goes if sign is -1.
func (v *lockQueues) count(w *waiter, sign int) {
	if w.lock == nil {
		return
	}
	v.waits += sign
	if w.lock.owner != "" {
		v.several += sign
	}
	if sign > 0 {
		v.begins(w.lock.call, w.number)
	} else {
		v.ends(w.lock.call, w.number)
	}
}

// begins notes that the wait of a number has a call under way.
func (v *lockQueues) begins(call string, number uint64) {
	if call != "" {
		v.calls[call] = number
	}
}

// ends is the opposite of begins.
func (v *lockQueues) ends(call string, number uint64) {
	if call != "" && v.calls[call] == number {
		delete(v.calls, call)
	}
}

// openClaim adds a claim.
func (v *lockQueues) openClaim(c *claim) {
	v.claims.open(c)
	v.begins(c.callName(), c.number)
}

// takeClaim removes a claim.
func (v *lockQueues) takeClaim(c *claim) {
	v.ends(c.callName(), c.number)
	v.claims.take(c)
}

func newLockQueues() lockQueues {
	return lockQueues{byKey: map[changedKey][]*waiter{}, isReady: map[changedKey]struct{}{},
		calls: map[string]uint64{}}
}

// placeOf returns the place of a command of a class, with the name of its call, nil if it does not
// wait for a lock.
func placeOf(class, call string, nowMs int64) *lockPlace {
	words := strings.Fields(class)
	if len(words) == 0 || words[0] != commands.LockClass {
		return nil
	}
	p := &lockPlace{sinceMs: nowMs, call: call}
	if len(words) == 3 {
		p.alone, p.again = words[1] == "alone", words[1] == "again"
		p.priority, _ = commands.ParseInt([]byte(words[2]))
	}
	return p
}

// compareTurns orders those who wait for locks: by priority, the higher first, then as they came.
func compareTurns(a, b *waiter) int {
	return cmp.Or(cmp.Compare(b.lock.priority, a.lock.priority), compareWaiters(a, b))
}

// changed notes that a key may serve those that wait for it.
func (v *lockQueues) changed(k changedKey) {
	if _, waited := v.byKey[k]; waited {
		v.addReady(k)
	}
}

func (v *lockQueues) addReady(k changedKey) {
	if _, known := v.isReady[k]; !known {
		v.isReady[k] = struct{}{}
		v.ready = append(v.ready, k)
	}
}

// Waiting implements commands.LockQueues.
func (v *lockQueues) Waiting(db int, key []byte) int {
	if len(v.byKey) == 0 {
		return 0
	}
	return len(v.byKey[changedKey{db, string(key)}])
}

// Ahead implements commands.LockQueues.
func (v *lockQueues) Ahead(db int, key []byte, priority int64, order uint64) bool {
	if len(v.byKey) == 0 {
		return false
	}
	queue := v.byKey[changedKey{db, string(key)}]
	if len(queue) == 0 {
		return false
	}
	first := queue[0]
	switch {
	case first.lock.priority != priority:
		return first.lock.priority > priority
	case order == 0:
		return true
	}
	return first.order < order
}

// Each implements commands.LockQueues.
func (v *lockQueues) Each(db int, key []byte, f func(q *commands.Request, sinceMs int64) bool) {
	var reader commands.RequestReader
	for _, w := range v.byKey[changedKey{db, string(key)}] {
		reader.Reset(w.request)
		q, err := reader.Next()
		if err != nil || !f(q, w.lock.sinceMs) {
			return
		}
	}
}

// serveEarlier serves those who wait for what earlier entries, or the time, have freed. Of locks it
// does so with half of the entry's work, and returns the keys that are left to the next entry: many
// that are freed at once hold up neither the requests nor whom these free a lock for.
func (m *Machine) serveEarlier(env *commands.Env, limit uint64) (later []changedKey) {
	half := env.Work + (limit-min(limit, env.Work))/2
	m.giveUpLate(env, half)
	m.positions.last = keyspace.MaxPosition / 2
	m.serveLocks(env, half)
	m.positions.last = keyspace.MaxPosition
	v := &m.waiting.locks
	later, v.ready = v.ready, nil
	m.serveWaiting(env, limit)
	return later
}

// readyAgain puts keys before those that are ready.
func (v *lockQueues) readyAgain(later []changedKey) {
	if len(later) > 0 {
		v.ready = append(later, v.ready...)
	}
}

// serveLocks serves those who wait for locks whose keys have changed. What is beyond the work of an
// entry, or its positions, waits for the next.
func (m *Machine) serveLocks(env *commands.Env, limit uint64) {
	v := &m.waiting.locks
	for len(v.ready) > 0 && env.Work < limit && m.morePositions() {
		key := v.ready[0]
		env.Work += key.work(lookWork)
		if m.serveLock(env, key, limit) {
			return
		}
		delete(v.isReady, key)
		if v.ready = v.ready[1:]; len(v.ready) == 0 {
			v.ready = nil
		}
	}
}

// serveLock serves those who wait for a lock, until the first does not get it. more reports that it
// stopped at the limit.
func (m *Machine) serveLock(env *commands.Env, key changedKey, limit uint64) (more bool) {
	served := false // an entry that stopped before would be followed by others like it, for ever
	for len(m.waiting.locks.byKey[key]) > 0 {
		if served && env.Work >= limit || !m.morePositions() {
			return true
		}
		w := m.waiting.locks.byKey[key][0]
		if !m.mayServe(env, w) || !m.serve(env, w, key) {
			return m.serveOwners(env, key, limit)
		}
		served = true
	}
	return false
}

// serveOwners serves those behind the first in the queue for a lock whose owners hold it by now,
// and who wait for others too. more reports that it stopped at the limit.
func (m *Machine) serveOwners(env *commands.Env, key changedKey, limit uint64) (more bool) {
	v, e := &m.waiting.locks, m.ks.DB(key.db).Find([]byte(key.key))
	if v.several == 0 || e == nil || e.Kind() != keyspace.KindHash {
		return false
	}
	served := false // as in serveLock
	queue := v.byKey[key]
	for i, tries := 1, 0; tries < mostVain && i < len(queue); {
		w := queue[i]
		env.Work++
		switch {
		case w.lock.owner == "" || !m.mayEnter(env, w) || !m.mayServe(env, w):
			i++
		case served && env.Work >= limit || !m.morePositions():
			return true
		case m.serve(env, w, key):
			served = true
			queue = v.byKey[key]
		default: // it wants the lock in another form than it has it
			tries++
			i++
		}
	}
	return false
}

const (
	// mostVain is how many behind the first are tried in vain. These are tried with each change,
	// and an entry must get past them.
	mostVain = 8
	// a small hash of owners has so many at most, of which a unit of work compares so many
	searchedOwners = 512
	ownersPerUnit  = 16
)

// mayEnter reports whether a command is the first for each of its locks whose owner does not hold
// it.
func (m *Machine) mayEnter(env *commands.Env, w *waiter) bool {
	for _, k := range w.keys {
		env.Work += k.work(lookWork)
		if m.waiting.locks.byKey[k][0] == w {
			continue
		}
		db := m.ks.DB(k.db)
		if e := db.Find([]byte(k.key)); e != nil && e.Kind() == keyspace.KindHash {
			env.Work += uint64(min(e.Collection().Len(), searchedOwners) / ownersPerUnit)
		}
		if commands.FindLock(db, []byte(k.key)).Token([]byte(w.lock.owner)) == 0 {
			return false
		}
	}
	return true
}

// mayServe reports whether a command may get all its locks, as far as that shows without running
// it: it is the first for each, or may hold it already, and nobody holds one that it wants for
// itself.
func (m *Machine) mayServe(env *commands.Env, w *waiter) bool {
	for _, k := range w.keys {
		env.Work += k.work(lookWork)
		e := m.ks.DB(k.db).Find([]byte(k.key))
		first := m.waiting.locks.byKey[k][0] == w
		switch {
		case !first && (e == nil || !w.lock.again),
			e != nil && (w.lock.alone || e.Kind() != keyspace.KindHash):
			return false
		}
	}
	return true
}

// freeLocksGranted holds between entries. It is looked at with each snapshot, for as many
// commands as wait for sampledKeys.
var freeLocksGranted = invariant.New("free-locks-granted",
	"nobody waits for locks that are free, unless somebody is before it",
	"who waits goes on waiting until one of these locks changes")

const sampledKeys = 8192

// waitsForFree returns a command that waits for locks that nobody has, and is the first for each.
func (m *Machine) waitsForFree() *waiter {
	v := &m.waiting
	if len(v.locks.ready) > 0 || m.Held() || v.locks.waits == 0 {
		return nil // they are served with the next entries
	}
	if atMs, some := m.ks.NextDeadline(); some && atMs < m.ks.Now() {
		return nil // likewise those who wait for what expired and is not swept yet
	}
	from := int(m.index % uint64(len(v.all)))
	for i, left := 0, sampledKeys; i < len(v.all) && left > 0; i++ {
		w := v.all[(from+i)%len(v.all)]
		if w.lock != nil && m.mayHave(w) {
			return w
		}
		left -= 1 + len(w.keys)
	}
	return nil
}

// mayHave reports whether a command is the first for each of its locks, and nobody has any.
func (m *Machine) mayHave(w *waiter) bool {
	return !slices.ContainsFunc(w.keys, func(k changedKey) bool {
		return m.waiting.locks.byKey[k][0] != w || m.ks.DB(k.db).Find([]byte(k.key)) != nil
	})
}

// empty reports whether nobody waits for a lock, and nothing is to be claimed.
func (v *lockQueues) empty() bool {
	return len(v.byKey) == 0 && len(v.ready) == 0 && v.claims.empty()
}

// freezeLocks returns what appendLocks needs, while the machine goes on.
func (v *waiting) freezeLocks() *waiting {
	return &waiting{all: slices.Clone(v.all), locks: lockQueues{ready: slices.Clone(v.locks.ready),
		claims: v.locks.claims.freeze()}}
}

var errLocksCorrupt = errors.New("what waits for locks is invalid")

// appendLocks appends the encoding for a snapshot of what freezeLocks returned: since when each
// waits, and the name of its call, in the order of all that wait, the keys that are ready, and the
// claims.
func (v *waiting) appendLocks(dst []byte) []byte {
	for _, w := range v.all {
		if w.lock != nil {
			dst = binary.AppendVarint(dst, w.lock.sinceMs)
			dst = wire.AppendBytes(dst, w.lock.call)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(v.locks.ready)))
	for _, k := range v.locks.ready {
		dst = append(dst, byte(k.db))
		dst = wire.AppendBytes(dst, k.key)
	}
	return v.locks.claims.appendTo(dst)
}

// restoreLocks reads what appendLocks wrote, after the waits.
func (v *waiting) restoreLocks(record []byte) error {
	c := wire.NewCursor(record)
	for _, w := range v.all {
		if w.lock != nil {
			w.lock.sinceMs, w.lock.call = c.Varint(), c.Text()
			if _, twice := v.locks.calls[w.lock.call]; twice {
				c.Fail()
			}
			v.locks.begins(w.lock.call, w.number)
		}
	}
	for range c.Count(2) {
		k := changedKey{int(c.Byte()), c.Text()}
		if k.db >= keyspace.Databases {
			c.Fail()
		}
		v.locks.addReady(k)
	}
	v.locks.restoreClaims(&c)
	if !c.Done() {
		return errLocksCorrupt
	}
	return nil
}
