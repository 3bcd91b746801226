// This file holds the tests of the intake queue.

package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/fair"
)

func queuedUnits(q *queue, sizes ...int) []*call {
	var calls []*call
	for _, size := range sizes {
		c := newLocalCall(make([]byte, size), 1, time.Now().Add(time.Hour))
		q.push(c)
		calls = append(calls, c)
	}
	return calls
}

func TestQueueTakesWithinLimits(t *testing.T) {
	const mb = 1 << 20
	for _, test := range []struct {
		name    string
		units   []call
		batches []int // calls in each batch
	}{
		{"all at once", []call{{count: 1, size: 10}, {count: 1, size: 10}}, []int{2}},
		{"bytes at the limit", []call{{count: 1, size: mb - 1}, {count: 1, size: 1},
			{count: 1, size: 1}}, []int{2, 1}},
		{"a large one alone", []call{{count: 1, size: 1}, {count: 1, size: 9 * mb},
			{count: 1, size: 1}}, []int{1, 1, 1}},
		{"requests at the limit", []call{{count: 4000}, {count: 96}, {count: 1}}, []int{2, 1}},
	} {
		q := newQueue(&fair.Costs{})
		for i := range test.units {
			test.units[i].batches = make([][]byte, 1)
			test.units[i].from = &inbound{} // else its bytes would make it heavy
			q.push(&test.units[i])
		}
		for _, want := range test.batches {
			if got := len(q.dequeue(nil, 1)); got != want {
				t.Errorf("%s: a batch of %d, want %d", test.name, got, want)
			}
		}
		if !q.empty() || q.lightBatches != 0 {
			t.Errorf("%s: calls are left", test.name)
		}
	}
	q := newQueue(&fair.Costs{})
	for range maxEntryBatches + 1 {
		q.push(&call{batches: make([][]byte, 1)})
	}
	if a, b := len(q.dequeue(nil, 1)), len(q.dequeue(nil, 1)); a != maxEntryBatches || b != 1 {
		t.Errorf("batches of %d and %d batches", a, b)
	}
}

func TestQueueOrder(t *testing.T) {
	q := newQueue(&fair.Costs{})
	u := queuedUnits(q, 1, 2, 3, 4, 5, 6)
	first, second := q.dequeue(nil, 1), []*call(nil)
	q.requeue(first[2:4], false)
	q.requeue(first[:2], false) // refused after the ones behind it
	q.requeue(first[4:], true)
	if q.restFor() <= 0 {
		t.Error("the queue does not rest after a refusal")
	}
	if !q.withdraw(u[1]) || q.withdraw(u[1]) {
		t.Error("withdraw")
	}
	dropped, next := q.remove(func(v *call) bool { return v == u[3] })
	if len(dropped) != 1 || next.IsZero() {
		t.Errorf("dropped %d, next %v", len(dropped), next)
	}
	second = q.dequeue(nil, 1)
	var sizes []int
	for _, v := range second {
		sizes = append(sizes, v.size)
	}
	if fmt.Sprint(sizes) != "[1 3 5 6]" {
		t.Errorf("order %v", sizes)
	}
	if q.withdraw(u[0]) {
		t.Error("a call under way was withdrawn")
	}
	q.close(errStopping)
	if err := q.push(u[0]); err != errStopping {
		t.Errorf("a closed queue: %v", err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	q := newQueue(&fair.Costs{})
	push := func(size int) (*call, error) {
		c := &call{batches: make([][]byte, 1), count: 1, size: size, from: &inbound{}}
		return c, q.push(c)
	}
	first, err := push(maxQueueBytes - 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := push(1); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := push(1); !errors.Is(err, ErrBusy) || !errors.Is(err, ErrNotRun) {
		t.Errorf("past the limit: %v", err)
	}
	for name, free := range map[string]func(){
		"withdraw": func() { q.withdraw(first) },
		"take":     func() { q.dequeue(nil, 1) },
		"remove":   func() { q.remove(func(*call) bool { return true }) },
	} {
		if free(); q.bytes > 1 {
			t.Errorf("%d bytes after %s", q.bytes, name)
		}
		q.dequeue(nil, 1)
		if q.bytes != 0 || q.lightBatches != 0 || q.forwarded != 0 {
			t.Errorf("an empty queue counts %d bytes, %d batches, %d frames", q.bytes,
				q.lightBatches, q.forwarded)
		}
		if first, err = push(maxQueueBytes); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

func TestQueueWakesWhenEnoughWait(t *testing.T) {
	simulated(t, func(t *testing.T) {
		q := newQueue(&fair.Costs{})
		woken := func() bool {
			select {
			case <-q.wake:
				return true
			default:
				return false
			}
		}
		queuedUnits(q, 1)
		if woken() {
			t.Error("a consumer that does not sleep was woken")
		}
		if got := q.dequeue(nil, 3); got != nil {
			t.Errorf("%d calls, fewer than asked for", len(got))
		}
		queuedUnits(q, 1)
		if woken() {
			t.Error("woken with two of three")
		}
		queuedUnits(q, 1)
		if !woken() {
			t.Error("not woken with three of three")
		}
		if got := q.dequeue(nil, 3); len(got) != 3 {
			t.Errorf("%d calls", len(got))
		}
	})
}

// empty reports whether nothing waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == len(q.light) && len(q.heavy) == 0
}
