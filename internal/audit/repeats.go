package audit

import (
	"fmt"
	"net"
	"slices"
	"time"
)

// period is for how long repeats are counted, and in which a user has so many lines.
const period = 10 * time.Second

// Lines of a user in a period, and how many different events are remembered. No account can make
// so many that files with what others did are deleted.
const (
	maxChanges = 1000
	maxOthers  = 200
	maxCounted = 8192
)

// othersQueued is how many events wait before no other than a change is added.
const othersQueued = maxQueued / 4 * 3

// share is what has lines of its own.
type share struct {
	user   string
	change bool
}

// repeats knows what was recorded since the period began. A change is always a line; of what
// changes nothing the first is one, and the others from the same host are another, with their
// number, when the period ends.
type repeats struct {
	lines   map[share]int
	counted map[string]*Event // the newest of the repeats; Count 0: there is none
}

// take reports whether an event is a line, given how many are queued, and whether it is one that
// was left out; a repeat is neither.
func (r *repeats) take(e *Event, queued int) (line, dropped bool) {
	if r.lines == nil {
		r.lines, r.counted = map[share]int{}, map[string]*Event{}
	}
	of, most, room, key := share{e.User, e.Change}, maxChanges, maxQueued, ""
	if !e.Change {
		most, room, key = maxOthers, othersQueued, e.key()
		if first := r.counted[key]; first != nil {
			n := first.Count + max(e.Count, 1)
			*first = *e
			first.Count = n
			return false, false
		}
	}
	if r.lines[of] >= most || queued >= room {
		return false, true
	}
	r.lines[of]++
	if !e.Change && len(r.counted) < maxCounted {
		r.counted[key] = &Event{}
	}
	return true, false
}

// end ends the period and returns the lines of the repeats, the oldest first.
func (r *repeats) end() (lines []Event) {
	for _, e := range r.counted {
		if e.Count > 0 {
			lines = append(lines, *e)
		}
	}
	*r = repeats{}
	slices.SortFunc(lines, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return lines
}

// key is what repeats have in common.
func (e *Event) key() string {
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		host = e.Address // of a Unix socket
	}
	return fmt.Sprintf("%q", []any{e.Event, e.Args, e.Outcome, e.Reason, e.Context, e.Object,
		e.User, host, e.TLSSubject})
}
