//go:build coordd_lockorder

package lockorder

import (
	"strings"
	"testing"
)

type pair struct{ a, b Mutex }

func (p *pair) lockA() { p.a.Lock() }
func (p *pair) lockB() { p.b.Lock() }

// order locks two mutexes of a pair, and returns what that panics with.
func order(first, second, unlockFirst, unlockSecond func()) (found any) {
	defer func() {
		found = recover()
		unlockFirst()
	}()
	first()
	second()
	unlockSecond()
	return nil
}

// TestContradictionIsFound locks in two orders, each in a pair of its own: nothing deadlocks.
func TestContradictionIsFound(t *testing.T) {
	var x, y pair
	if found := order(x.lockA, x.lockB, x.a.Unlock, x.b.Unlock); found != nil {
		t.Fatal(found)
	}
	found := order(y.lockB, y.lockA, y.b.Unlock, y.a.Unlock)
	text, _ := found.(string)
	if !strings.Contains(text, "lockA") || !strings.Contains(text, "lockB") {
		t.Fatal("found: ", found)
	}
	if found := order(x.lockA, y.lockA, x.a.Unlock, y.a.Unlock); found == nil {
		t.Fatal("two mutexes of a kind are held at once")
	}
	if found := order(x.lockA, x.lockA, x.a.Unlock, x.a.Unlock); found == nil {
		t.Fatal("a mutex is locked twice")
	}
}

// TestTryLockMayBreakTheOrder: what does not wait deadlocks nobody, and what it holds counts.
func TestTryLockMayBreakTheOrder(t *testing.T) {
	var x pair
	x.a.Lock()
	x.b.Lock()
	x.b.Unlock()
	x.a.Unlock()
	x.b.Lock()
	if !x.a.TryLock() {
		t.Fatal("it is free")
	}
	done := make(chan bool)
	go func() { done <- x.a.TryLock() }()
	if <-done {
		t.Fatal("it is locked")
	}
	x.a.Unlock()
	x.b.Unlock()
}
