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
type waiters struct {
	blocked atomic.Int64 // clients that wait now
	count   atomic.Int64 // commands in lines

	mu     sync.Mutex
	places map[place]*crowd
	all    [databases]map[*waiter]struct{}
	era    [databases]uint64 // rises when any key of the database may have changed
}

// place is a key of a database.
type place struct {
	db  int
	key string
}

// crowd is all who wait for one key.
type crowd struct {
	place place
	gone  bool   // the newest change that this node heard of took the key away: nobody needs to look
	era   uint64 // of the database, when gone was said
	line  line   // the first of the lines
}

// line is a queue in order of arrival.
type line struct {
	crowd       *crowd
	rivals      string // what its commands have in common; "" for those that are all woken
	streams     bool   // its commands want to know of the key's end too
	first, last *stand
	next        *line
}

// stand is a waiter's place in one line.
type stand struct {
	waiter     *waiter
	line       *line
	prev, next *stand
	at         int32 // which of the waiter's keys it is for
	due        bool  // that is in waiter.due; guarded by waiter.mu
}

// waitedKeyCost is what waiting for a key takes besides its bytes.
const waitedKeyCost = 256

// waiter is one command that may wait.
type waiter struct {
	conn   net.Conn
	db     int
	stands []stand
	wake   chan struct{} // for one who does not read its connection
	heads  int           // how many of its stands a change wakes; guarded by waiters.mu

	mu      sync.Mutex
	asleep  bool     // reads the connection until something is to be done
	woken   bool     // a key changed since the newest try began
	due     []*stand // for which
	dueAll  bool     // any of them
	turn    bool     // the try that is under way is due to a change
	waits   bool     // the command waits: it may be unblocked
	unblock string
}

// Why CLIENT UNBLOCK ends a wait.
const (
	unblockTimeout = "TIMEOUT"
	unblockError   = "ERROR"
)

// rivalsOf says what a command wants of its keys: commands with the same answer, waiting for the same key, find nothing if one of them
// found nothing. It is "" for a command that takes nothing away.
func rivalsOf(spec *commands.Spec, args [][]byte) string {
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
func (ws *waiters) join(conn net.Conn, db int, keys [][]byte, spec *commands.Spec, args [][]byte) (w *waiter, behind bool) {
	w = &waiter{conn: conn, db: db, stands: make([]stand, 0, len(keys)), wake: make(chan struct{}, 1)}
	rivals := rivalsOf(spec, args)
	behind = rivals != ""
	ws.count.Add(1)
	for from := 0; from < len(keys); from += atOnce {
		ws.mu.Lock()
		if ws.places == nil {
			ws.places = map[place]*crowd{}
		}
		if ws.all[db] == nil {
			ws.all[db] = map[*waiter]struct{}{}
		}
		ws.all[db][w] = struct{}{}
		for i := from; i < min(from+atOnce, len(keys)); i++ {
			l := ws.crowd(place{db, string(keys[i])}).lineOf(rivals)
			l.streams = spec.Group == groupStream
			behind = !l.append(w, int32(i)) && behind
		}
		ws.mu.Unlock()
	}
	return w, behind
}

// crowd returns the crowd of a key, made if there is none.
func (ws *waiters) crowd(p place) *crowd {
	c := ws.places[p]
	if c == nil {
		c = &crowd{place: p}
		c.line.crowd = c
		ws.places[p] = c
	}
	return c
}

// lineOf returns the line of those who compete for the same, made if there is none.
func (c *crowd) lineOf(rivals string) *line {
	if c.line.first == nil {
		c.line.rivals = rivals // nobody stands in it: it has just been made
		return &c.line
	}
	l := &c.line
	for l.rivals != rivals {
		if l.next == nil {
			l.next = &line{crowd: c, rivals: rivals}
		}
		l = l.next
	}
	return l
}

// append puts a waiter at the end of the line, and says whether nobody else stands before it. A key may be named twice.
func (l *line) append(w *waiter, at int32) (alone bool) {
	if l.last != nil && l.last.waiter == w {
		return l.first.waiter == w
	}
	w.stands = append(w.stands, stand{waiter: w, line: l, prev: l.last, at: at})
	st := &w.stands[len(w.stands)-1] // stays: there is room for all
	if l.last == nil {
		l.first = st
	} else {
		l.last.next = st
	}
	l.last = st
	if st.prev == nil || l.rivals == "" {
		w.heads++
	}
	return st.prev == nil
}

// leave takes a command out of its lines, some at a time. Where its newest try may have left something to the next, that one is woken: who came behind
// it has not looked.
func (ws *waiters) leave(w *waiter) {
	for part := range slices.Chunk(w.stands, atOnce) {
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

func (ws *waiters) remove(st *stand, owes bool) {
	l, wasFirst := st.line, st.prev == nil
	l.remove(st)
	if l.first == nil {
		ws.drop(l)
		return
	}
	if !wasFirst || l.rivals == "" {
		return
	}
	l.first.waiter.heads++
	if owes && (l.streams || !ws.gone(l.crowd)) {
		l.first.rouse()
	}
}

// drop takes out a line that nobody stands in, and the crowd with the last one.
func (ws *waiters) drop(l *line) {
	c := l.crowd
	switch {
	case l != &c.line:
		before := &c.line
		for before.next != l {
			before = before.next
		}
		before.next = l.next
	case l.next != nil: // another takes the first one's place
		second := l.next
		c.line = *second
		for st := c.line.first; st != nil; st = st.next {
			st.line = &c.line
		}
	default:
		delete(ws.places, c.place)
		if len(ws.places) == 0 {
			ws.places = nil // its room goes with the last
		}
	}
}

func (l *line) remove(st *stand) {
	if st.prev == nil {
		l.first = st.next
	} else {
		st.prev.next = st.next
	}
	if st.next == nil {
		l.last = st.prev
	} else {
		st.next.prev = st.prev
	}
}

// wants says whether somebody waits for a key.
func (ws *waiters) wants(db int, key string) bool {
	if ws.count.Load() == 0 {
		return false
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.places[place{db, key}] != nil
}

// gone says whether the newest change of a key took it away.
func (ws *waiters) gone(c *crowd) bool { return c.gone && c.era == ws.era[c.place.db] }

// changed wakes those whom changes concern. It does not wait.
func (ws *waiters) changed(events []commands.Event) {
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
			ws.renew(e.DB)
		case commands.StateReplaced:
			for db := range flushed {
				flushed[db], some = true, true
				ws.renew(db)
			}
		}
	}
	for db := 0; some && db < databases; db++ {
		if flushed[db] {
			ws.rouseAll(db)
		}
	}
}

func (ws *waiters) keyChanged(e *commands.Event) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	c := ws.places[place{e.DB, e.Key}]
	if c == nil {
		return
	}
	c.gone, c.era = e.Gone, ws.era[e.DB]
	for l := &c.line; l != nil; l = l.next {
		switch {
		case c.gone && !l.streams:
		case l.rivals != "":
			l.first.rouse()
		default:
			l.rouseEach()
		}
	}
}

// renew forgets which keys of a database are gone.
func (ws *waiters) renew(db int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.era[db]++
}

// rouseAll wakes whoever is the first in any line of a database, and all of the lines in which all are woken.
func (ws *waiters) rouseAll(db int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var asleep []*waiter
	for w := range ws.all[db] {
		if w.heads > 0 && w.mark(nil) {
			asleep = append(asleep, w)
		}
	}
	pokeAll(asleep)
}

// rouseEach wakes all of a line.
func (l *line) rouseEach() {
	var asleep []*waiter
	for st := l.first; st != nil; st = st.next {
		if st.waiter.mark(st) {
			asleep = append(asleep, st.waiter)
		}
	}
	pokeAll(asleep)
}

// fewAsleep are woken by who applies the log. More of them would hold it up.
const fewAsleep = 16

func pokeAll(asleep []*waiter) {
	if len(asleep) > fewAsleep {
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
func (st *stand) rouse() {
	if st.waiter.mark(st) {
		st.waiter.interrupt()
	}
}

// maxDue is for how many keys a waiter notes that they changed. Past that it looks at all of them.
const maxDue = 64

// mark notes that a key changed, or any where st is nil, and says whether the waiter has to be told.
func (w *waiter) mark(st *stand) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.dueAll || st != nil && st.due:
	case st == nil || len(w.due) == maxDue:
		w.dueAll = true
	default:
		st.due = true
		w.due = append(w.due, st)
	}
	w.woken = true
	return w.asleep
}

// takeDue moves what is due into a set of keys; all says that it is all of them. The caller holds mu.
func (w *waiter) takeDue(keys map[int32]struct{}) (all bool) {
	for _, st := range w.due {
		keys[st.at] = struct{}{}
		st.due = false
	}
	all, w.due, w.dueAll = w.dueAll, w.due[:0], false
	return all
}

// poke ends the waiter's sleep. The caller holds mu.
func (w *waiter) poke() {
	if w.asleep {
		_ = w.conn.SetReadDeadline(past)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// interrupt makes the waiter look around: its session is to end.
func (w *waiter) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poke()
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
	w.poke()
	return true
}
