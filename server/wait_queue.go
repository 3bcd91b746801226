// The commands that wait for keys on this node.
//
// Each key has wait queues; the commands of one queue compete for the same elements. A change
// wakes the first waiter of a queue alone. It retries its command and passes its turn on when it
// leaves, or keeps its position if it found nothing. So an element costs one retry per taker,
// however many commands wait. Commands that take nothing (XREAD) are all woken.

package server

import (
	"net"
	"slices"
	"sync/atomic"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// waitQueues holds the commands of this node that wait for keys, or may come to wait.
type waitQueues struct {
	blocked atomic.Int64 // waiting clients
	count   atomic.Int64 // queued commands

	mu    lockorder.Mutex
	byKey map[waitKey]*keyQueues
	all   [databases]map[*waiter]struct{}
	era   [databases]uint64 // rises when any key of the database may have changed
}

// waitKey names a key of a database.
type waitKey struct {
	db  int
	key string
}

// keyQueues holds the wait queues of one key.
type keyQueues struct {
	key  waitKey
	gone bool      // the newest known change deleted the key: no need to retry
	era  uint64    // era of the database when gone was set
	head waitQueue // the first queue
}

// waitQueue is a queue of competing commands, in order of arrival.
type waitQueue struct {
	queues      *keyQueues
	class       string // what its commands have in common; "" for those that are all woken
	streams     bool   // deletion of the key wakes its commands too
	first, last *ticket
	next        *waitQueue
}

// ticket is a waiter's position in one queue.
type ticket struct {
	waiter     *waiter
	queue      *waitQueue
	prev, next *ticket
	keyIndex   int32 // the waiter's key that it is for
	due        bool  // in waiter.due; guarded by waiter.mu
}

// waitedKeyCost is the overhead of waiting for a key, bytes.
const waitedKeyCost = 256

// waiter is one command that may wait.
type waiter struct {
	number  uint64   // number of its wait in the machine; 0: it waits in the queues of this node
	order   uint64   // its place in the machine; 0: it has had none; its session's own
	session *session // set for a wait in the machine
	conn    net.Conn
	db      int
	tickets []ticket
	wakeup  chan struct{} // for a waiter that does not read its connection
	heads   int           // tickets that a change wakes; guarded by waitQueues.mu

	mu      lockorder.Mutex
	asleep  bool      // reads the connection until woken
	woken   bool      // a key has changed since the newest attempt began
	due     []*ticket // the changed keys
	dueAll  bool      // all keys may have changed
	turn    bool      // a change caused the current attempt
	waits   bool      // the command waits: it can be unblocked
	unblock string
	news    waitNews // what became of a wait in the machine
}

// Reasons of CLIENT UNBLOCK.
const (
	unblockTimeout = "TIMEOUT"
	unblockError   = "ERROR"
)

// classOf returns the class of commands that a command competes with: if one of a class finds
// nothing at a key, neither do the others. It is "" for a command that takes nothing.
func classOf(spec *commands.Spec, args [][]byte) string {
	if spec.Kind == commands.Read {
		return ""
	}
	if spec.Group != groupStream {
		return spec.WaitClass(args)
	}
	does, group := " reads ", ""
	for i := 1; i+1 < len(args) && !is(args[i], "streams"); i++ {
		switch {
		case is(args[i], "group"):
			group = string(args[i+1])
			i += 2
		case is(args[i], "claim"):
			does = " claims " + string(args[i+1]) + " " // what is idle for some is not for others
			i++
		case !is(args[i], "noack"):
			i++
		}
	}
	return groupStream + does + group
}

const groupStream = "stream"

// join appends a command to the queues of its keys, a few at a time. behind reports that others
// are ahead of it in all of them.
func (ws *waitQueues) join(conn net.Conn, db int, keys [][]byte, spec *commands.Spec,
	args [][]byte) (w *waiter, behind bool) {
	w = &waiter{conn: conn, db: db, tickets: make([]ticket, 0, len(keys)),
		wakeup: make(chan struct{}, 1)}
	class := classOf(spec, args)
	behind = class != ""
	ws.count.Add(1)
	for from := 0; from < len(keys); from += lockedKeys {
		ws.mu.Lock()
		if ws.byKey == nil {
			ws.byKey = map[waitKey]*keyQueues{}
		}
		if ws.all[db] == nil {
			ws.all[db] = map[*waiter]struct{}{}
		}
		ws.all[db][w] = struct{}{}
		for i := from; i < min(from+lockedKeys, len(keys)); i++ {
			q := ws.queuesOf(waitKey{db, string(keys[i])}).queueFor(class)
			q.streams = spec.Group == groupStream
			behind = !q.append(w, int32(i)) && behind
		}
		ws.mu.Unlock()
	}
	return w, behind
}

// queuesOf returns the queues of a key, created if missing.
func (ws *waitQueues) queuesOf(p waitKey) *keyQueues {
	c := ws.byKey[p]
	if c == nil {
		c = &keyQueues{key: p}
		c.head.queues = c
		ws.byKey[p] = c
	}
	return c
}

// queueFor returns the queue of a class, created if missing.
func (c *keyQueues) queueFor(class string) *waitQueue {
	if c.head.first == nil {
		c.head.class = class // empty: just created
		return &c.head
	}
	q := &c.head
	for q.class != class {
		if q.next == nil {
			q.next = &waitQueue{queues: c, class: class}
		}
		q = q.next
	}
	return q
}

// append adds a waiter to the queue and reports whether it is the only one. A key may be named
// twice.
func (q *waitQueue) append(w *waiter, at int32) (alone bool) {
	if q.last != nil && q.last.waiter == w {
		return q.first.waiter == w
	}
	w.tickets = append(w.tickets, ticket{waiter: w, queue: q, prev: q.last, keyIndex: at})
	t := &w.tickets[len(w.tickets)-1] // never reallocated: join reserves room for all
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
	if t.prev == nil || q.class == "" {
		w.heads++
	}
	return t.prev == nil
}

// leave removes a command from its queues, a few at a time. If its newest attempt may have left
// elements behind, it wakes the next waiter, which has not looked yet.
func (ws *waitQueues) leave(w *waiter) {
	for part := range slices.Chunk(w.tickets, lockedKeys) {
		ws.mu.Lock()
		w.mu.Lock()
		owes := w.turn || w.woken || !w.waits // checked for each part: a key of it may have changed
		w.mu.Unlock()
		for i := range part {
			ws.remove(&part[i], owes)
		}
		ws.mu.Unlock()
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all[w.db], w)
	ws.count.Add(-1)
}

func (ws *waitQueues) remove(t *ticket, owes bool) {
	q, wasFirst := t.queue, t.prev == nil
	q.remove(t)
	if q.first == nil {
		ws.drop(q)
		return
	}
	if !wasFirst || q.class == "" {
		return
	}
	q.first.waiter.heads++
	if owes && (q.streams || !ws.gone(q.queues)) {
		q.first.wake()
	}
}

// drop removes an empty queue, and with the last one its keyQueues.
func (ws *waitQueues) drop(q *waitQueue) {
	c := q.queues
	switch {
	case q != &c.head:
		before := &c.head
		for before.next != q {
			before = before.next
		}
		before.next = q.next
	case q.next != nil: // the next queue takes its position
		second := q.next
		c.head = *second
		for t := c.head.first; t != nil; t = t.next {
			t.queue = &c.head
		}
	default:
		delete(ws.byKey, c.key)
		if len(ws.byKey) == 0 {
			ws.byKey = nil // frees the map
		}
	}
}

func (q *waitQueue) remove(t *ticket) {
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
}

// wants reports whether a command waits for a key.
func (ws *waitQueues) wants(db int, key string) bool {
	if ws.count.Load() == 0 {
		return false
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.byKey[waitKey{db, key}] != nil
}

// gone reports whether the newest change of the key deleted it.
func (ws *waitQueues) gone(c *keyQueues) bool { return c.gone && c.era == ws.era[c.key.db] }

// changed wakes the waiters that events concern. It never blocks.
func (ws *waitQueues) changed(events []commands.Event) {
	if ws.count.Load() == 0 {
		return
	}
	var flushed [databases]bool
	some, raised := false, false
	for i := range events {
		switch e := &events[i]; e.Kind {
		case commands.KeyChanged:
			ws.keyChanged(e)
		case commands.DBChanged:
			flushed[e.DB], some = true, true
			ws.forgetGone(e.DB)
		case commands.StateReplaced, commands.LevelRaised:
			raised = true
			for db := range flushed {
				flushed[db], some = true, true
				ws.forgetGone(db)
			}
		}
	}
	for db := 0; some && db < databases; db++ {
		if flushed[db] {
			ws.wakeDB(db, raised)
		}
	}
}

func (ws *waitQueues) keyChanged(e *commands.Event) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	c := ws.byKey[waitKey{e.DB, e.Key}]
	if c == nil {
		return
	}
	c.gone, c.era = e.Gone, ws.era[e.DB]
	for q := &c.head; q != nil; q = q.next {
		switch {
		case c.gone && !q.streams:
		case q.class != "":
			q.first.wake()
		default:
			q.wakeAll()
		}
	}
}

// forgetGone forgets which keys of a database are deleted.
func (ws *waitQueues) forgetGone(db int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.era[db]++
}

// wakeDB wakes the first waiter of every queue of a database, and every waiter that takes nothing;
// all of them if the machine may keep them now.
func (ws *waitQueues) wakeDB(db int, raised bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var asleep []*waiter
	for w := range ws.all[db] {
		if raised {
			w.note(func(n *waitNews) { n.raised = true })
		}
		if (w.heads > 0 || raised) && w.markDue(nil) {
			asleep = append(asleep, w)
		}
	}
	wakeWaiters(asleep)
}

// wakeAll wakes every waiter of a queue.
func (q *waitQueue) wakeAll() {
	var asleep []*waiter
	for t := q.first; t != nil; t = t.next {
		if t.waiter.markDue(t) {
			asleep = append(asleep, t.waiter)
		}
	}
	wakeWaiters(asleep)
}

// inlineWakes is the number of waiters woken on the goroutine that applies the log; more would
// delay it.
const inlineWakes = 16

func wakeWaiters(asleep []*waiter) {
	if len(asleep) > inlineWakes {
		go interruptAll(asleep)
		return
	}
	interruptAll(asleep)
}

func interruptAll(all []*waiter) {
	for _, w := range all {
		w.interrupt()
	}
}

// wake makes the waiter retry with the ticket's key.
func (t *ticket) wake() {
	if t.waiter.markDue(t) {
		t.waiter.interrupt()
	}
}

// maxDue is the number of changed keys that a waiter records. Beyond that it retries with all
// keys.
const maxDue = 64

// markDue records that a key changed, or any key if t is nil, and reports whether the waiter must
// be woken.
func (w *waiter) markDue(t *ticket) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.dueAll || t != nil && t.due:
	case t == nil || len(w.due) == maxDue:
		w.dueAll = true
	default:
		t.due = true
		w.due = append(w.due, t)
	}
	w.woken = true
	return w.asleep
}

// takeDue moves the changed keys to keys; all reports that all keys may have changed. The caller
// holds mu.
func (w *waiter) takeDue(keys map[int]struct{}) (all bool) {
	for _, t := range w.due {
		keys[int(t.keyIndex)] = struct{}{}
		t.due = false
	}
	all, w.due, w.dueAll = w.dueAll, w.due[:0], false
	return all
}

// wake ends the waiter's sleep. The caller holds mu.
func (w *waiter) wake() {
	if w.asleep {
		_ = w.conn.SetReadDeadline(past)
	}
	w.signal()
}

// signal wakes a waiter that does not read its connection.
func (w *waiter) signal() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// interrupt makes the waiter check whether its session ends.
func (w *waiter) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake()
}

// unblock ends the wait of the session's command and reports whether there was one.
func (s *session) unblock(reason string) bool {
	w := s.waiter.Load()
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.waits || w.unblock != "" {
		return false
	}
	w.unblock = reason
	w.wake()
	return true
}
