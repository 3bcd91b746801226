package audit

import "slices"

// class is whose events wait in a queue.
type class int

const (
	users          class = iota // also what strangers change
	strangers                   // what else they do, but for
	strangersTries              // to be a user
)

// Bounds of what waits in memory for the writer.
const (
	maxQueued       = 1024 // events
	strangersQueued = 256  // those of strangers, besides, and as many tries of theirs
)

var mostQueued = [...]int{users: maxQueued, strangers: strangersQueued,
	strangersTries: strangersQueued}

// queue is what waits for the writer. In a full one a share gets its places from the one that has
// the most: however much one of them does while the writer hangs, the first lines of others are
// there.
type queue struct {
	most   int // events
	events []queued
	places map[share]int // how many each share has, of those that have some
}

type queued struct {
	Event
	of share
}

// hasPlace reports whether add adds an event of a share.
func (q *queue) hasPlace(s share) bool {
	return len(q.events) < q.most || q.places[s]+1 < q.places[q.longest()]
}

// add adds an event for which there is a place, and reports whether another one lost its own.
func (q *queue) add(e Event, s share) (lost bool) {
	if lost = len(q.events) == q.most; lost {
		longest := q.longest()
		for i := len(q.events) - 1; ; i-- {
			if q.events[i].of == longest {
				q.events = slices.Delete(q.events, i, i+1)
				break
			}
		}
		q.places[longest]--
	}
	if q.places == nil {
		q.places = map[share]int{}
	}
	q.events = append(q.events, queued{e, s})
	q.places[s]++
	return lost
}

// longest returns the share that has the most places.
func (q *queue) longest() (longest share) {
	for s, n := range q.places {
		if n > q.places[longest] {
			longest = s
		}
	}
	return longest
}

// drain empties the queue.
func (q *queue) drain() []queued {
	events := q.events
	q.events, q.places = nil, nil
	return events
}
