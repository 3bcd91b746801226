// The blocking commands that wait in the machine. An entry that brings something to one of their
// keys serves them, in order of arrival over all nodes, before its next request: so what one moves
// can serve another, and nobody sees a state in between (docs/adr/0040).
//
// A command must not take anything for a client that is gone. So the waits of a node end when the
// leader does not reach it, and all end with the leader's term. Their nodes then send them again.

package fsm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/keyspace"
)

// waiting holds the commands that wait. It is part of the state.
type waiting struct {
	term uint64 // Raft's, of the newest entry
	// era is the index of the first entry of the term, which dropped all waits; eras those of the
	// entries that dropped the waits of one node since. See commands.Place.
	era    uint64
	eras   []nodeEra
	newest uint64 // order of the newest arrival
	bytes  int    // that the waiters count

	all     []*waiter               // in order
	counts  nodeCounts              // how many each node has
	inDB    [keyspace.Databases]int // waiters by database
	numbers map[uint64]*waiter
	queues  map[changedKey][]*waiter // in order
	ready   []changedKey             // may serve someone, in the order of their changes
	isReady map[changedKey]struct{}
	lent    lent
	// while there are any, serving is held
	returning returning
	locks     lockQueues

	// not part of the state
	node     string // this node's id: it builds the replies of its own waiters
	proposer uint64 // FirstWait of the process that proposed the running entry
	reader   commands.RequestReader
	// whose keys are all others since serveWaiting
	replaced [keyspace.Databases]bool
}

// waiter is a command that waits. It is immutable.
type waiter struct {
	order, number uint64
	node          string
	class         string // see serveKey
	request       []byte // encoded
	keys          []changedKey
	lock          *lockPlace // nil: it waits for elements
}

// woken is a command that waited and runs for one of its keys.
type woken struct {
	// admitted are its arguments with all keys, which decide whether its user may still run it:
	// rules may name the first argument.
	admitted [][]byte
	from     *source // what it takes is lent from here; nil: it moves it elsewhere
	queuedMs int64   // since when it waits for a lock
	order    uint64
}

// nodeEra is the era of a node's waits.
type nodeEra struct {
	node string
	era  uint64
}

// Bound of what waits and is lent, bytes, and the cost of a waiter and of each of its keys.
// Commands beyond it wait on their nodes.
const (
	maxWaiting = 64 << 20
	waiterCost = 512
	waitedCost = 128
)

// Work of looking at a waiter, in units of commands.Env.Work; of decoding its request; and of its
// keys, whose names are hashed and compared each time. A unit pays for so many waiters of a list
// that are moved or walked over.
const (
	lookWork      = 8
	requestBytes  = 16
	requestWord   = 2
	nameBytes     = 16
	waitedKeyWork = 16 // to wait for a key, or no more
	foundKeyWork  = 8
	movedPerUnit  = 64
	walkedPerUnit = 4
)

// work returns what something costs that is done to a waited key, besides its name.
func (k *changedKey) work(units uint64) uint64 { return units + uint64(len(k.key)/nameBytes) }

// keysWork returns the work of something that is done to all the keys of a waiter.
func keysWork(keys []changedKey, each uint64) (work uint64) {
	for i := range keys {
		work += keys[i].work(each)
	}
	return work
}

func (w *waiter) bytes() int {
	n := waiterCost + len(w.request)
	for _, k := range w.keys {
		n += waitedCost + len(k.key)
	}
	return n
}

// size counts the commands that wait, or are to wait again.
func (v *waiting) size() int64 {
	return int64(len(v.all) + v.returning.counts.sum())
}

func newWaiting() waiting {
	return waiting{numbers: map[uint64]*waiter{}, queues: map[changedKey][]*waiter{},
		isReady: map[changedKey]struct{}{}, locks: newLockQueues()}
}

// eraOf returns the era of a node's waits.
func (v *waiting) eraOf(node []byte) uint64 {
	for _, e := range v.eras {
		if e.node == string(node) {
			return e.era
		}
	}
	return v.era
}

// join keeps a command that found nothing at any of its keys, unless it belongs to an era that has
// ended, or there is no room. call is the callName of its request, "" if it has no id. The work is
// that without its keys.
func (v *waiting) join(q *commands.Request, class, call string, keys []changedKey,
	nowMs int64) (p commands.Place, work uint64) {
	p.Era = v.eraOf(q.Wait.Node)
	if q.Wait.Era != p.Era {
		return p, 0
	}
	lock := placeOf(class, call, nowMs)
	lock.setOwner(q, len(keys))
	if before := v.numbers[q.Wait.Number]; before != nil && before.lock != nil && lock != nil {
		lock.sinceMs = before.lock.sinceMs
	}
	_, work = v.leave(q.Wait.Number) // an attempt whose reply its node did not get
	waited := q.Wait.Order != 0 && q.Wait.Order <= v.newest
	if !waited {
		v.newest++
		q.Wait.Order = v.newest
	}
	w := &waiter{order: q.Wait.Order, number: q.Wait.Number, node: string(q.Wait.Node),
		class: class, request: commands.AppendRequest(nil, q), keys: keys, lock: lock}
	if v.bytes+v.lent.bytes+v.locks.claims.bytes+w.bytes() > maxWaiting {
		return p, work
	}
	work += v.add(w)
	if p.Order = w.order; len(v.returning.counts) > 0 && lock == nil {
		for _, k := range keys { // it has taken nothing, whatever is there
			v.changed(k)
		}
		v.returning.came(w.node, w.order)
	}
	return p, work
}

// add adds a waiter, and returns the work but for its keys.
func (v *waiting) add(w *waiter) (work uint64) {
	v.count(w, 1)
	v.numbers[w.number] = w
	var moved, more int
	v.all, moved = inserted(v.all, w, compareWaiters)
	queues, order := v.queuesOf(w)
	for _, k := range w.keys {
		queues[k], more = inserted(queues[k], w, order)
		moved += more
	}
	return uint64(moved / movedPerUnit)
}

// count counts a waiter that comes, or goes if sign is -1.
func (v *waiting) count(w *waiter, sign int) {
	v.bytes += sign * w.bytes()
	if len(w.keys) > 0 { // all are of one database
		v.inDB[w.keys[0].db] += sign
	}
	v.counts.add(w.node, sign)
	v.locks.count(w, sign)
}

// leave removes a command. It reports whether it was there, and the work.
func (v *waiting) leave(number uint64) (was bool, work uint64) {
	w := v.numbers[number]
	if w == nil {
		return false, 0
	}
	delete(v.numbers, number)
	v.count(w, -1)
	all, moved := removed(v.all, w, compareWaiters)
	v.all = all
	queues, order := v.queuesOf(w)
	for _, k := range w.keys {
		if w.lock != nil && queues[k][0] == w {
			v.locks.addReady(k) // the next may have waited for it alone
		}
		queue, more := removed(queues[k], w, order)
		setQueue(queues, k, queue)
		moved += more
	}
	return true, keysWork(w.keys, waitedKeyWork) + uint64(moved/movedPerUnit)
}

// queuesOf returns the queues in which a waiter is, and their order.
func (v *waiting) queuesOf(w *waiter) (queues map[changedKey][]*waiter,
	order func(a, b *waiter) int) {
	if w.lock != nil {
		return v.locks.byKey, compareTurns
	}
	return v.queues, compareWaiters
}

func setQueue(queues map[changedKey][]*waiter, k changedKey, queue []*waiter) {
	if len(queue) == 0 {
		delete(queues, k)
		return
	}
	queues[k] = queue
}

func compareWaiters(a, b *waiter) int {
	return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.number, b.number))
}

// inserted returns the queue with w, and how many it moved.
func inserted(queue []*waiter, w *waiter, order func(a, b *waiter) int) (with []*waiter,
	moved int) {
	at, _ := slices.BinarySearchFunc(queue, w, order)
	return slices.Insert(queue, at, w), len(queue) - at
}

// removed returns the queue without w, and how many it moved.
func removed(queue []*waiter, w *waiter, order func(a, b *waiter) int) (without []*waiter,
	moved int) {
	at, there := slices.BinarySearchFunc(queue, w, order)
	switch {
	case !there:
		return queue, 0
	case at == 0: // most leave as the first
		queue[0] = nil
		return queue[1:], 0
	}
	return slices.Delete(queue, at, at+1), len(queue) - at
}

// enter begins an entry: the first of a term drops all waits but those for locks, whose grants are
// claimed.
func (v *waiting) enter(term, index uint64) (dropped bool) {
	if term == v.term {
		return false
	}
	var stay, end []*waiter
	for _, w := range v.all {
		if w.lock != nil {
			stay = append(stay, w)
		} else {
			end = append(end, w)
		}
	}
	v.returning.expect(end)
	v.term, v.era, v.eras = term, index, nil
	v.all, v.counts, v.ready, v.bytes = nil, nil, nil, 0
	v.inDB = [keyspace.Databases]int{}
	clear(v.numbers)
	clear(v.queues)
	clear(v.isReady)
	v.locks.waits, v.locks.several = 0, 0
	v.all = stay
	for _, w := range stay {
		v.count(w, 1)
		v.numbers[w.number] = w
	}
	return true
}

// drop ends the waits of a node, and returns the work.
func (v *waiting) drop(node string, index uint64) (work uint64) {
	v.eras = append(slices.DeleteFunc(v.eras, func(e nodeEra) bool { return e.node == node }),
		nodeEra{node, index})
	goes := func(w *waiter) bool { return w.node == node }
	done := map[droppedFrom]bool{}
	walked := len(v.all)
	for _, w := range v.all {
		if !goes(w) {
			continue
		}
		work += lookWork + keysWork(w.keys, waitedKeyWork)
		delete(v.numbers, w.number)
		v.count(w, -1)
		queues, _ := v.queuesOf(w)
		for _, k := range w.keys {
			if w.lock != nil {
				v.locks.addReady(k)
			}
			if place := (droppedFrom{k, w.lock != nil}); !done[place] {
				done[place] = true // each queue once: many may wait for one key
				walked += len(queues[k])
				setQueue(queues, k, slices.DeleteFunc(queues[k], goes))
			}
		}
	}
	v.all = slices.DeleteFunc(v.all, goes)
	return work + uint64(walked/walkedPerUnit)
}

// droppedFrom names a queue.
type droppedFrom struct {
	changedKey
	lock bool
}

// observe learns of a change of the keyspace.
func (v *waiting) observe(db int, e *keyspace.Entry, c keyspace.Change) {
	v.lent.changed(db, e, c)
	switch {
	case c == keyspace.Flushed:
		v.changedAll(db)
	case len(v.all) == 0:
	case c == keyspace.Modified:
		v.changed(changedKey{db, e.Key()})
		v.locks.changed(changedKey{db, e.Key()})
	case c == keyspace.Removed || c == keyspace.Expired || c == keyspace.ElementsExpired:
		v.locks.changed(changedKey{db, e.Key()})
	}
}

// changed notes that a key may serve those that wait for it.
func (v *waiting) changed(k changedKey) {
	if _, waited := v.queues[k]; waited {
		v.addReady(k)
	}
}

func (v *waiting) addReady(k changedKey) {
	if _, known := v.isReady[k]; !known {
		v.isReady[k] = struct{}{}
		v.ready = append(v.ready, k)
	}
}

// changedAll is changed for all keys of a database, which serveWaiting looks at once, and only if
// there are any.
func (v *waiting) changedAll(db int) { v.replaced[db] = true }

// findReady is changed for the keys that a database has got from another one, and for those of the
// locks that it had. It returns its work.
func (v *waiting) findReady(db int) (work uint64) {
	work = uint64(len(v.all) / walkedPerUnit)
	for _, w := range v.all {
		if len(w.keys) > 0 && w.keys[0].db == db {
			work += keysWork(w.keys, foundKeyWork)
			for _, k := range w.keys {
				if w.lock != nil {
					v.locks.addReady(k)
				} else {
					v.changed(k)
				}
			}
		}
	}
	return work
}

// wait keeps a command that found nothing, if its request asks for that, and adds its place to the
// reply, which begins at start.
func (r *runner) wait(q *commands.Request, start int) {
	switch {
	case q.Wait == nil || !r.tx.Blocked || r.m.level < commands.LevelSecond:
		return
	case r.readOnly:
		r.env.Aborted = true
		return
	}
	spec, err := r.m.table.ResolveAt(r.m.level, q.Cmds[0])
	if err != nil {
		return
	}
	var keys []changedKey
	known := map[changedKey]bool{}
	for _, i := range spec.WaitedKeys(q.Cmds[0]) {
		if k := (changedKey{q.DB, string(q.Cmds[0][i])}); !known[k] {
			known[k] = true
			keys = append(keys, k)
		}
	}
	v := &r.m.waiting
	class := spec.WaitClass(q.Cmds[0])
	call := ""
	if id, err := r.call.RequestID(spec, q.Cmds[0]); id != nil && err == nil && spec.Claims() {
		call = callName(r.m.onceUser(q.User), id)
	}
	place, work := v.join(q, class, call, keys, r.m.ks.Now())
	r.env.Work += keysWork(keys, waitedKeyWork) + work
	if place.Order == 0 && place.Era == q.Wait.Era && spec.Claims() {
		r.resp.Buf = r.resp.Buf[:start] // unlike others it has no place beside the machine
		r.call.Out.Error(errQueueFull.Error())
		r.tx.Blocked = false
		r.room -= headBytes
		return
	}
	if len(r.resp.Buf) > start {
		r.resp.Buf = append(r.resp.Buf[:start], place.AddTo(r.resp.Buf[start:])...)
	}
	r.room -= headBytes
}

// waitsNoMore ends the wait of a command that its node has sent again, once it has a reply: one for
// a lock stays while the leader changes. Left in its queue it would be granted what its client does
// not ask for any more.
func (r *runner) waitsNoMore(q *commands.Request) {
	v := &r.m.waiting
	switch {
	case q.Wait == nil || r.tx.Blocked || v.numbers[q.Wait.Number] == nil:
	case r.readOnly:
		r.env.Aborted = true
	default:
		_, work := v.leave(q.Wait.Number)
		r.env.Work += work
	}
}

// source returns from where a command that is sent again takes, if it need not wait any more, nil
// if from nowhere: what it takes is lent, as its client may have gone before that was there.
func (r *runner) source(q *commands.Request) *source {
	if r.woken != nil {
		return r.woken.from
	}
	if q.Wait == nil || q.Wait.Order == 0 || r.readOnly || r.m.level < commands.LevelSecond {
		return nil
	}
	spec, err := r.m.table.ResolveAt(r.m.level, q.Cmds[0])
	if err != nil {
		return nil
	}
	indexes := spec.WaitedKeys(q.Cmds[0])
	if !takes(spec, q.Cmds[0], len(indexes)) {
		return nil
	}
	for _, i := range indexes {
		r.env.Work += lookWork
		if e := r.m.ks.DB(q.DB).Find(q.Cmds[0][i]); e != nil {
			return &source{q.Wait.Number, changedKey{q.DB, string(q.Cmds[0][i])}, spec.Group,
				e.Deadline()}
		}
	}
	return nil
}

// serveWaiting serves those that wait for keys that may have something for them. What is beyond the
// work of an entry, or its positions, waits for the next.
func (m *Machine) serveWaiting(env *commands.Env, limit uint64) {
	v := &m.waiting
	for db := range v.replaced {
		if v.replaced[db] && v.inDB[db] > 0 &&
			(m.ks.DB(db).Size() > 0 || len(v.locks.byKey) > 0) {
			env.Work += v.findReady(db)
		}
	}
	v.replaced = [keyspace.Databases]bool{}
	m.serveLocks(env, limit)
	for len(v.ready) > 0 && !m.Held() && env.Work < limit && m.morePositions() {
		key := v.ready[0]
		if len(v.queues[key]) > 0 {
			env.Work += key.work(lookWork)
		}
		if m.serveKey(env, key, limit) {
			return
		}
		delete(v.isReady, key)
		if v.ready = v.ready[1:]; len(v.ready) == 0 {
			v.ready = nil
		}
		m.serveLocks(env, limit) // what was served may have had the key of a lock
	}
}

// serveKey serves those that wait for a key, in order, until it has nothing for any of them; more
// reports that it stopped at the limit. Who takes from another type is not even decoded.
func (m *Machine) serveKey(env *commands.Env, key changedKey, limit uint64) (more bool) {
	served := false // an entry that stopped before would be followed by others like it, for ever
	name := []byte(key.key)
	queue, e := m.waiting.queues[key], m.ks.DB(key.db).Find(name)
	for i := 0; i < len(queue) && e != nil; {
		if served && env.Work >= limit || !m.morePositions() {
			return true
		}
		w := queue[i]
		env.Work += lookWork
		if !mayTake(w.class, e) || !m.serve(env, w, key) {
			i++
			continue
		}
		served = true
		env.Work += key.work(0)
		queue, e = m.waiting.queues[key], m.ks.DB(key.db).Find(name)
	}
	return false
}

// mayTake reports whether commands of a class may take from a key: of their type, with as many
// elements as they need. Those that need many would otherwise all run at each push.
func mayTake(class string, e *keyspace.Entry) bool {
	group, least, several := strings.Cut(class, " ")
	switch group {
	case "list":
		if e.Kind() != keyspace.KindList {
			return false
		}
	case "sorted-set":
		return e.Kind() == keyspace.KindZSet
	}
	if n, err := strconv.ParseInt(least, 10, 64); several && err == nil {
		return int64(e.Collection().Len()) >= n
	}
	return true // they are asked
}

// serve runs a command that waits, for one key. It reports whether the command has its reply, and
// waits no more.
func (m *Machine) serve(env *commands.Env, w *waiter, key changedKey) (served bool) {
	v := &m.waiting
	defer func() {
		if p := recover(); p != nil { // nobody must wait behind a command that cannot run
			m.panicked(p)
			_, work := v.leave(w.number)
			env.Work += work
			m.events.list = append(m.events.list, commands.Event{Kind: commands.WaitEnded,
				Wait: w.number})
			served = true
		}
	}()
	env.Work += uint64(len(w.request) / requestBytes)
	v.reader.Reset(w.request)
	q, err := v.reader.Next()
	if err != nil {
		panic(err) // never: the machine wrote it
	}
	env.Work += requestWord * uint64(len(q.Cmds[0]))
	q.Woken, q.Wait = true, nil
	r := runner{m: m, env: env, woken: &woken{admitted: q.Cmds[0], order: w.order}}
	if w.lock != nil {
		r.woken.queuedMs = w.lock.sinceMs
	}
	if spec, err := m.table.ResolveAt(m.level, q.Cmds[0]); err == nil {
		indexes := spec.WaitedKeys(q.Cmds[0])
		if takes(spec, q.Cmds[0], len(indexes)) {
			r.woken.from = &source{w.number, key, w.class,
				m.ks.DB(key.db).Find([]byte(key.key)).Deadline()}
		}
		at := slices.IndexFunc(indexes, func(i int) bool {
			return string(q.Cmds[0][i]) == key.key
		})
		q.Cmds[0] = spec.OnlyKeys(q.Cmds[0], indexes, []int{at})
	}
	m.events.client = q.Client
	defer func(deny func(string, acl.Denial)) { env.Deny = deny }(env.Deny)
	env.Deny = r.deny
	r.begin(nil, commands.MaxRequestWork)
	r.run(q, w.node == v.node)
	if r.tx.Blocked {
		return false
	}
	m.witness.Judge()
	_, work := v.leave(w.number)
	env.Work += work
	claimed := r.tx.Undo != nil && r.openClaim(w.number, w.node, q.DB)
	if w.node == v.node {
		m.events.list = append(m.events.list, commands.Event{Kind: commands.Served,
			Wait: w.number, Payload: r.resp.Buf, Claimed: claimed, ClockMs: m.ks.Now()})
	}
	return true
}

// SetNode sets the id of this node, whose clients get the replies of what waits.
func (m *Machine) SetNode(id string) { m.waiting.node = id }

// Waits reports whether the machine has the wait of that number.
func (m *Machine) Waits(number uint64) bool { return m.waiting.numbers[number] != nil }

// WaitingNodes returns the ids of the nodes with commands that wait, or are to wait again.
func (m *Machine) WaitingNodes() (ids []string) {
	for _, c := range slices.Concat(m.waiting.counts, m.waiting.returning.counts) {
		if !slices.Contains(ids, c.node) {
			ids = append(ids, c.node)
		}
	}
	return ids
}

// waitNumbers is how many numbers a process has for its waits.
const waitNumbers = 1 << 40

// FirstWait returns the number that comes before those of the waits of a process, which its entries
// name as their origin. Few processes share them.
func FirstWait(origin uint64) uint64 { return (origin>>1 | 1<<62) &^ (waitNumbers - 1) }

// sentBy reports whether a wait has a number of the process whose FirstWait is first.
func sentBy(first, number uint64) bool { return number-first < waitNumbers }

// OwnWaits returns the numbers of this node's waits, also of those that earlier processes have
// sent.
func (m *Machine) OwnWaits() (numbers []uint64) {
	for _, w := range m.waiting.all {
		if w.node == m.waiting.node {
			numbers = append(numbers, w.number)
		}
	}
	return numbers
}

// leaveWait ends the wait of a number in decimal.
func (c *systemCall) leaveWait() error {
	m := c.m
	n, ok := commands.ParseInt(c.args[0])
	had, work := false, uint64(0)
	if ok {
		had, work = m.waiting.leave(uint64(n))
		had = m.giveUp(c.env, uint64(n)) || had
	}
	c.env.Work += work
	m.events.list = append(m.events.list, commands.Event{Kind: commands.WaitEnded,
		Wait: uint64(n)})
	if !had {
		return commands.ErrNotWaiting
	}
	return nil
}

// dropWaits ends the waits of a node.
func (c *systemCall) dropWaits() error {
	node := string(c.args[0])
	c.env.Work += c.m.waiting.drop(node, c.m.index)
	c.m.giveUpNode(c.env, node)
	err := c.forgetWaits()
	c.m.tellDropped(node)
	return err
}

// forgetWaits expects no dropped waits of a node back.
func (c *systemCall) forgetWaits() error {
	c.env.Work += uint64(c.m.waiting.returning.forget(string(c.args[0])) / walkedPerUnit)
	return nil
}

// tellDropped tells this node that its waits were dropped.
func (m *Machine) tellDropped(node string) {
	if v := &m.waiting; node == v.node {
		m.events.list = append(m.events.list, commands.Event{Kind: commands.WaitsDropped,
			Wait: v.eraOf([]byte(node))})
	}
}

// empty reports whether the state is that of a new machine.
func (v *waiting) empty() bool { return v.term == 0 && v.newest == 0 }
