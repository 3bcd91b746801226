package server

// This file holds who waits for which keys on this node, and who of them is woken when a key changed.
//
// Whoever waits for a key stands in a line: those whose commands take from it what the others of the line want too. A change wakes the
// first of the line alone; it tries its command again, and passes its turn on when it leaves, or stays at its place when there was
// nothing. So an element costs as many tries as it has takers, however many wait. Commands that take nothing (XREAD) are all woken.

import (
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/coordd/coordd/commands"
)

// waiters are the commands of this node that wait for keys, or may have to.
type waitQueues struct {
	blocked atomic.Int64 // clients that wait now
	count   atomic.Int64 // commands in lines

	mu    sync.Mutex
	byKey map[waitKey]*keyQueues
	all   [databases]map[*waiter]struct{}
	era   [databases]uint64 // rises when any key of the database may have changed
}

// place is a key of a database.
type waitKey struct {
	db  int
	key string
}

// crowd is all who wait for one key.
type keyQueues struct {
	key  waitKey
	gone bool      // the newest change that this node heard of took the key away: nobody needs to look
	era  uint64    // of the database, when gone was said
	head waitQueue // the first of the lines
}

// line is a queue in order of arrival.
type waitQueue struct {
	queues      *keyQueues
	class       string // what its commands have in common; "" for those that are all woken
	streams     bool   // its commands want to know of the key's end too
	first, last *ticket
	next        *waitQueue
}

// stand is a waiter's place in one line.
type ticket struct {
	waiter     *waiter
	queue      *waitQueue
	prev, next *ticket
	keyIndex   int32 // which of the waiter's keys it is for
	due        bool  // that is in waiter.due; guarded by waiter.mu
}

// waitedKeyCost is what waiting for a key takes besides its bytes.
const waitedKeyCost = 256

// waiter is one command that may wait.
type waiter struct {
	conn    net.Conn
	db      int
	tickets []ticket
	wakeup  chan struct{} // for one who does not read its connection
	heads   int           // how many of its stands a change wakes; guarded by waiters.mu

	mu      sync.Mutex
	asleep  bool      // reads the connection until something is to be done
	woken   bool      // a key changed since the newest try began
	due     []*ticket // for which
	dueAll  bool      // any of them
	turn    bool      // the try that is under way is due to a change
	waits   bool      // the command waits: it may be unblocked
	unblock string
}

// Why CLIENT UNBLOCK ends a wait.
const (
	unblockTimeout = "TIMEOUT"
	unblockError   = "ERROR"
)

// rivalsOf says what a command wants of its keys: commands with the same answer, waiting for the same key, find nothing if one of them
// found nothing. It is "" for a command that takes nothing away.
func classOf(spec *commands.Spec, args [][]byte) string {
	if spec.Kind == commands.Read {
		return ""
	}
	if spec.Group != groupStream {
		return spec.Group
	}
	for i := 1; i+1 < len(args); i++ {
		if is(args[i], "group") { // XREADGROUP
			return groupStream + " " + string(args[i+1])
		}
	}
	return groupStream
}

const groupStream = "stream"

// join puts a command at the end of the lines of its keys, some at a time. behind says that in all of them others stand before it.
func (ws *waitQueues) join(conn net.Conn, db int, keys [][]byte, spec *commands.Spec, args [][]byte) (w *waiter, behind bool) {
	w = &waiter{conn: conn, db: db, tickets: make([]ticket, 0, len(keys)), wakeup: make(chan struct{}, 1)}
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

// crowd returns the crowd of a key, made if there is none.
func (ws *waitQueues) queuesOf(p waitKey) *keyQueues {
	c := ws.byKey[p]
	if c == nil {
		c = &keyQueues{key: p}
		c.head.queues = c
		ws.byKey[p] = c
	}
	return c
}

// lineOf returns the line of those who compete for the same, made if there is none.
func (c *keyQueues) queueFor(class string) *waitQueue {
	if c.head.first == nil {
		c.head.class = class // nobody stands in it: it has just been made
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

// append puts a waiter at the end of the line, and says whether nobody else stands before it. A key may be named twice.
func (q *waitQueue) append(w *waiter, at int32) (alone bool) {
	if q.last != nil && q.last.waiter == w {
		return q.first.waiter == w
	}
	w.tickets = append(w.tickets, ticket{waiter: w, queue: q, prev: q.last, keyIndex: at})
	t := &w.tickets[len(w.tickets)-1] // stays: there is room for all
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

// leave takes a command out of its lines, some at a time. Where its newest try may have left something to the next, that one is woken: who came behind
// it has not looked.
func (ws *waitQueues) leave(w *waiter) {
	for part := range slices.Chunk(w.tickets, lockedKeys) {
		ws.mu.Lock()
		w.mu.Lock()
		owes := w.turn || w.woken || !w.waits // asked with every part: a key of it may have changed meanwhile
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

// drop takes out a line that nobody stands in, and the crowd with the last one.
func (ws *waitQueues) drop(q *waitQueue) {
	c := q.queues
	switch {
	case q != &c.head:
		before := &c.head
		for before.next != q {
			before = before.next
		}
		before.next = q.next
	case q.next != nil: // another takes the first one's place
		second := q.next
		c.head = *second
		for t := c.head.first; t != nil; t = t.next {
			t.queue = &c.head
		}
	default:
		delete(ws.byKey, c.key)
		if len(ws.byKey) == 0 {
			ws.byKey = nil // its room goes with the last
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

// wants says whether somebody waits for a key.
func (ws *waitQueues) wants(db int, key string) bool {
	if ws.count.Load() == 0 {
		return false
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.byKey[waitKey{db, key}] != nil
}

// gone says whether the newest change of a key took it away.
func (ws *waitQueues) gone(c *keyQueues) bool { return c.gone && c.era == ws.era[c.key.db] }

// changed wakes those whom changes concern. It does not wait.
func (ws *waitQueues) changed(events []commands.Event) {
	if ws.count.Load() == 0 {
		return
	}
	var flushed [databases]bool
	some := false
	for i := range events {
		switch e := &events[i]; e.Kind {
		case commands.KeyChanged:
			ws.keyChanged(e)
		case commands.DBChanged:
			flushed[e.DB], some = true, true
			ws.forgetGone(e.DB)
		case commands.StateReplaced:
			for db := range flushed {
				flushed[db], some = true, true
				ws.forgetGone(db)
			}
		}
	}
	for db := 0; some && db < databases; db++ {
		if flushed[db] {
			ws.wakeDB(db)
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

// renew forgets which keys of a database are gone.
func (ws *waitQueues) forgetGone(db int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.era[db]++
}

// rouseAll wakes whoever is the first in any line of a database, and all of the lines in which all are woken.
func (ws *waitQueues) wakeDB(db int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var asleep []*waiter
	for w := range ws.all[db] {
		if w.heads > 0 && w.markDue(nil) {
			asleep = append(asleep, w)
		}
	}
	wakeWaiters(asleep)
}

// rouseEach wakes all of a line.
func (q *waitQueue) wakeAll() {
	var asleep []*waiter
	for t := q.first; t != nil; t = t.next {
		if t.waiter.markDue(t) {
			asleep = append(asleep, t.waiter)
		}
	}
	wakeWaiters(asleep)
}

// fewAsleep are woken by who applies the log. More of them would hold it up.
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

// rouse makes the waiter try again, with the key that it stands for.
func (t *ticket) wake() {
	if t.waiter.markDue(t) {
		t.waiter.interrupt()
	}
}

// maxDue is for how many keys a waiter notes that they changed. Past that it looks at all of them.
const maxDue = 64

// mark notes that a key changed, or any where st is nil, and says whether the waiter has to be told.
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

// takeDue moves what is due into a set of keys; all says that it is all of them. The caller holds mu.
func (w *waiter) takeDue(keys map[int32]struct{}) (all bool) {
	for _, t := range w.due {
		keys[t.keyIndex] = struct{}{}
		t.due = false
	}
	all, w.due, w.dueAll = w.dueAll, w.due[:0], false
	return all
}

// poke ends the waiter's sleep. The caller holds mu.
func (w *waiter) wake() {
	if w.asleep {
		_ = w.conn.SetReadDeadline(past)
	}
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// interrupt makes the waiter look around: its session is to end.
func (w *waiter) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake()
}

// clientUnblock ends the wait of another client.
func clientUnblock(s *session, _ *commands.Spec, args [][]byte) {
	reason := unblockTimeout
	switch {
	case len(args) > 4:
		s.fail(subcommandSyntax(args))
		return
	case len(args) == 4:
		reason = strings.ToUpper(string(args[3]))
		if reason != unblockTimeout && reason != unblockError {
			s.fail(commands.Error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"))
			return
		}
	}
	id, ok := commands.ParseInt(args[2])
	if !ok {
		s.fail(commands.ErrNotInteger)
		return
	}
	if c := s.srv.session(uint64(id)); c != nil && c.unblock(reason) {
		s.w.Int(1)
		return
	}
	s.w.Int(0)
}

// unblock ends the wait of the session's command and says whether there was one.
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
