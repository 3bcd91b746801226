package cluster

import (
	"testing"
	"time"
)

func TestLag(t *testing.T) {
	var l lag
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	check := func(ms int, applied, entries uint64, age int) {
		t.Helper()
		if n, d := l.behind(applied, at(ms)); n != entries ||
			d != time.Duration(age)*time.Millisecond {
			t.Errorf("at %d ms, applied %d: %d entries and %v behind, want %d and %d ms", ms,
				applied, n, d, entries, age)
		}
	}
	check(0, 7, 0, 0)
	l.note(1, 100, 10, at(0))
	check(500, 50, 50, 500)
	l.note(1, 200, 90, at(1000)) // what was committed at 0 is not there yet
	check(1500, 99, 101, 1500)
	// it is; what is missing is known to be committed for no longer than this
	check(1600, 150, 50, 0)
	check(1700, 150, 50, 100)
	l.note(1, 150, 160, at(1800)) // an old word
	check(1900, 160, 40, 300)
	check(2000, 200, 0, 0)
	l.note(0, 900, 200, at(2100)) // of a leader that was deposed
	check(2100, 200, 0, 0)
}

func TestConfirmFrameTellsTheCommit(t *testing.T) {
	for _, payload := range [][]byte{nil, {1}, {0xff}} {
		if _, _, ok := decodeCommit(payload); ok {
			t.Errorf("%v is taken", payload)
		}
	}
	payload := appendCommit(nil, 3, 1<<40)
	if term, commit, ok := decodeCommit(append(payload, 1, 2)); !ok || term != 3 ||
		commit != 1<<40 {
		t.Error(term, commit, ok)
	}
	if most := appendCommit(nil, 1<<64-1, 1<<64-1); len(most) > maxSmallFrame {
		t.Errorf("%d bytes", len(most))
	}
}
