//go:build coordd_lockorder

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Checked reports whether this build checks the order of locks.
const Checked = true

// Mutex is a sync.Mutex that checks the order of locks.
type Mutex struct {
	mu   sync.Mutex
	kind kind
}

// Lock locks m.
func (m *Mutex) Lock() {
	m.kind.before()
	m.mu.Lock()
	m.kind.locked()
}

// TryLock locks m if that needs no waiting, so in any order.
func (m *Mutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.kind.locked()
	return true
}

// Unlock unlocks m.
func (m *Mutex) Unlock() {
	m.kind.unlocked()
	m.mu.Unlock()
}

// RWMutex is a sync.RWMutex that checks the order of locks. Reading counts as locking: a reader
// waits for a writer that waits for a reader.
type RWMutex struct {
	mu   sync.RWMutex
	kind kind
}

// Lock locks m for writing.
func (m *RWMutex) Lock() {
	m.kind.before()
	m.mu.Lock()
	m.kind.locked()
}

// Unlock unlocks m for writing.
func (m *RWMutex) Unlock() {
	m.kind.unlocked()
	m.mu.Unlock()
}

// RLock locks m for reading.
func (m *RWMutex) RLock() {
	m.kind.before()
	m.mu.RLock()
	m.kind.locked()
}

// TryRLock locks m for reading if that needs no waiting, so in any order.
func (m *RWMutex) TryRLock() bool {
	if !m.mu.TryRLock() {
		return false
	}
	m.kind.locked()
	return true
}

// RUnlock unlocks m for reading.
func (m *RWMutex) RUnlock() {
	m.kind.unlocked()
	m.mu.RUnlock()
}

// kind is that of one mutex: what it stands for in the order. The zero value was never locked.
type kind struct{ of atomic.Pointer[node] }

// node is a kind of mutexes, or was one before it was found to be the same as another.
type node struct {
	is    *node // the same kind; nil: this one
	where string
	after map[*node]string // kinds that were locked while this one was held, and where
}

var (
	mu    sync.Mutex // guards what follows
	sites = map[uintptr]*node{}
	held  = map[string][]*kind{} // by goroutine, in the order of locking
)

func (n *node) root() *node {
	for n.is != nil {
		n = n.is
	}
	return n
}

// site returns the kind of the mutexes that the caller's caller's caller locks.
func site() *node {
	var pc [1]uintptr
	runtime.Callers(4, pc[:])
	n := sites[pc[0]]
	if n == nil {
		frame, _ := runtime.CallersFrames(pc[:]).Next()
		n = &node{after: map[*node]string{}}
		n.where = fmt.Sprintf("%s:%d", frame.Function, frame.Line)
		sites[pc[0]] = n
	}
	return n
}

// become notes that mutexes locked at two places are of one kind.
func (n *node) become(other *node) {
	a, b := n.root(), other.root()
	if a == b {
		return
	}
	b.is = a
	for to, where := range b.after {
		a.after[to] = where
	}
}

// before checks that the goroutine may lock a mutex while it holds what it holds.
func (k *kind) before() {
	mu.Lock()
	defer mu.Unlock()
	n := k.note(site())
	for _, other := range held[goroutine()] {
		from := other.of.Load().root()
		if other == k {
			panic("lockorder: locked twice at " + n.where)
		}
		if _, known := from.after[n]; known && from != n {
			continue
		}
		if path := n.reaches(from, map[*node]bool{}); path != "" {
			panic(fmt.Sprintf("lockorder: %s is locked while %s is held, and elsewhere %s",
				n.where, from.where, path))
		}
		from.after[n] = n.where
	}
}

// note has a mutex be of the kind of a place. The caller holds mu.
func (k *kind) note(place *node) *node {
	if of := k.of.Load(); of != nil {
		of.become(place)
	} else {
		k.of.Store(place)
	}
	return k.of.Load().root()
}

// reaches returns how mutexes of the kind other come to be locked while n is held, empty if they do
// not. A kind reaches itself: two of its mutexes are held at once.
func (n *node) reaches(other *node, seen map[*node]bool) string {
	if n == other {
		return "two of " + n.where
	}
	if seen[n] {
		return ""
	}
	seen[n] = true
	for to, where := range n.after {
		if to = to.root(); to == other {
			return fmt.Sprintf("%s while %s", where, n.where)
		}
		if path := to.reaches(other, seen); path != "" {
			return fmt.Sprintf("%s while %s; %s", where, n.where, path)
		}
	}
	return ""
}

// locked notes that the goroutine holds a mutex.
func (k *kind) locked() {
	mu.Lock()
	defer mu.Unlock()
	if k.of.Load() == nil {
		k.note(site())
	}
	g := goroutine()
	held[g] = append(held[g], k)
}

// unlocked notes that a mutex is free. Whoever frees it need not have locked it.
func (k *kind) unlocked() {
	mu.Lock()
	defer mu.Unlock()
	if g := goroutine(); !drop(g, k) {
		for g := range held {
			if drop(g, k) {
				break
			}
		}
	}
}

func drop(g string, k *kind) bool {
	list := held[g]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == k {
			if list = append(list[:i:i], list[i+1:]...); len(list) == 0 {
				delete(held, g)
			} else {
				held[g] = list
			}
			return true
		}
	}
	return false
}

// goroutine returns the number of the running goroutine: the second word of its stack trace.
func goroutine() string {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	return string(fields[1])
}
