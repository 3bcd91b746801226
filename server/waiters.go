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
}

// place is a key of a database.
type place struct {
	db  int
	key string
}

// crowd is all who wait for one key.
type crowd struct {
	gone  bool // the newest change that this node heard of took the key away: nobody needs to look
	lines []*line
}

// line is a queue in order of arrival.
type line struct {
	rivals      string // what its commands have in common; "" for those that are all woken
	streams     bool   // its commands want to know of the key's end too
	first, last *stand
}

// stand is a waiter's place in one line.
type stand struct {
	waiter     *waiter
	place      place
	crowd      *crowd
	line       *line
	prev, next *stand
}

// waiter is one command that may wait.
type waiter struct {
	conn   net.Conn
	stands []stand
	wake   chan struct{} // for one who does not read its connection

	mu      sync.Mutex
	asleep  bool // reads the connection until something is to be done
	woken   bool // a key changed since the newest try began
	turn    bool // the try that is under way is due to a change
	waits   bool // the command waits: it may be unblocked
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

// join puts a command at the end of the lines of its keys. behind says that in all of them others stand before it.
func (ws *waiters) join(conn net.Conn, db int, keys [][]byte, spec *commands.Spec, args [][]byte) (w *waiter, behind bool) {
	w = &waiter{conn: conn, stands: make([]stand, 0, len(keys)), wake: make(chan struct{}, 1)}
	rivals := rivalsOf(spec, args)
	behind = rivals != ""
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.places == nil {
		ws.places = map[place]*crowd{}
	}
	for _, key := range keys {
		p := place{db, string(key)}
		c := ws.places[p]
		if c == nil {
			c = &crowd{}
			ws.places[p] = c
		}
		l := c.line(rivals)
		l.streams = spec.Group == groupStream
		if l.last != nil && l.last.waiter == w {
			continue // the key was named twice
		}
		w.stands = append(w.stands, stand{waiter: w, place: p, crowd: c, line: l, prev: l.last})
		at := &w.stands[len(w.stands)-1] // stays: there is room for all
		if l.last == nil {
			l.first, behind = at, false
		} else {
			l.last.next = at
		}
		l.last = at
	}
	ws.count.Add(1)
	return w, behind
}

func (c *crowd) line(rivals string) *line {
	for _, l := range c.lines {
		if l.rivals == rivals {
			return l
		}
	}
	l := &line{rivals: rivals}
	c.lines = append(c.lines, l)
	return l
}

// leave takes a command out of its lines. Where its newest try may have left something to the next, that one is woken: who came behind
// it has not looked.
func (ws *waiters) leave(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.count.Add(-1)
	w.mu.Lock()
	owes := w.turn || w.woken || !w.waits
	w.mu.Unlock()
	for i := range w.stands {
		at := &w.stands[i]
		l, wasFirst := at.line, at.prev == nil
		l.remove(at)
		switch {
		case l.first == nil:
			at.crowd.lines = slices.DeleteFunc(at.crowd.lines, func(other *line) bool { return other == l })
			if len(at.crowd.lines) == 0 {
				delete(ws.places, at.place)
			}
		case owes && wasFirst && l.rivals != "" && (!at.crowd.gone || l.streams):
			l.first.waiter.rouse()
		}
	}
}

func (l *line) remove(at *stand) {
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.prev = at.prev
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

// changed wakes those whom a change concerns. It does not wait.
func (ws *waiters) changed(e *commands.Event) {
	if ws.count.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch e.Kind {
	case commands.KeyChanged:
		if c := ws.places[place{e.DB, e.Key}]; c != nil {
			c.gone = e.Gone
			c.rouse()
		}
	case commands.DBChanged, commands.StateReplaced:
		for p, c := range ws.places {
			if e.Kind == commands.StateReplaced || p.db == e.DB {
				c.gone = false
				c.rouse()
			}
		}
	}
}

// rouse wakes the first of every line whom the key's state may concern, and all of the line in which all are woken.
func (c *crowd) rouse() {
	for _, l := range c.lines {
		switch {
		case c.gone && !l.streams:
		case l.rivals != "":
			l.first.waiter.rouse()
		default:
			for at := l.first; at != nil; at = at.next {
				at.waiter.rouse()
			}
		}
	}
}

// rouse makes the waiter try again.
func (w *waiter) rouse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = true
	w.poke()
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
