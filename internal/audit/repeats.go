package audit

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/halfopen"
)

// period is for how long repeats are counted, and after which each share has room again.
const period = time.Minute

// kind is what an event is one of, as far as its room in the trail is concerned.
type kind int

// Each kind of what somebody does has room of its own, so none hides another.
const (
	// Strangers, who have not authenticated: what those of a host do, and all of them together.
	ofHost kind = iota
	ofStrangers
	triesOfHost // to be a user
	triesOfStrangers
	// A user.
	ofUser // what changes nothing
	tries
	changes     // also of strangers
	userChanges // the changes of users
)

// bursts is how many bytes of the trail each share of a kind may have at once.
var bursts = [...]int{ofHost: 64 << 10, ofStrangers: 256 << 10, triesOfHost: 64 << 10,
	triesOfStrangers: 256 << 10, ofUser: 256 << 10, tries: 256 << 10, changes: 256 << 10,
	userChanges: 1 << 20}

// more is how many bytes a share may have in each period beyond that: 90 MiB a day. It is bytes
// that are bounded, and not lines of some sort, because they make files go.
const more = 64 << 10

// maxCounted is how many different events are remembered.
const maxCounted = 8192

// share is what has room of its own in the trail.
type share struct {
	kind kind
	who  string // the user or host
}

// repeats knows what was recorded since the period began. A change is always a line; of what
// changes nothing the first is one, and the others from the same host are another, with their
// number, when the period ends.
type repeats struct {
	spent   map[share]int     // bytes, less what later periods gave
	counted map[string]*Event // the newest of the repeats; Count 0: there is none
}

// admit reports whether an event of some shares is a line, for which there must be a place, and
// whether it is one that was left out; a repeat is neither.
func (r *repeats) admit(e *Event, of []share, q *queue) (line, dropped bool) {
	key := ""
	if !e.Change {
		key = e.key()
		if first := r.counted[key]; first != nil {
			n := first.Count + max(e.Count, 1)
			*first = *e
			first.Count = n
			return false, false
		}
	}
	if !q.hasPlace(of[0]) || !r.spend(e, of) {
		return false, true
	}
	if !e.Change && len(r.counted) < maxCounted {
		if r.counted == nil {
			r.counted = map[string]*Event{}
		}
		r.counted[key] = &Event{}
	}
	return true, false
}

// spend takes room for the lines of an event, or reports that one of its shares has none.
func (r *repeats) spend(e *Event, of []share) bool {
	for _, s := range of {
		if r.spent[s] >= bursts[s.kind] {
			return false
		}
	}
	line, _ := json.Marshal(e) // never fails
	bytes := len(line)
	if !e.Change {
		bytes *= 2 // for that of its repeats
	}
	if r.spent == nil {
		r.spent = map[share]int{}
	}
	for _, s := range of {
		r.spent[s] += bytes
	}
	return true
}

// flush ends the period and returns the lines of the repeats, the oldest first.
func (r *repeats) flush() (lines []Event) {
	for _, e := range r.counted {
		switch e.Count {
		case 0:
			continue
		case 1:
			e.Count = 0 // a line without a number is of one
		}
		lines = append(lines, *e)
	}
	r.counted = nil
	for s, bytes := range r.spent {
		if r.spent[s] = bytes - more; r.spent[s] <= 0 {
			delete(r.spent, s)
		}
	}
	slices.SortFunc(lines, byTime)
	return lines
}

func byTime(a, b Event) int { return a.Time.Compare(b.Time) }

// shares returns where an event needs room. It is the first that it takes a place of.
func (e *Event) shares() []share {
	switch {
	case e.changesUsers():
		return []share{{userChanges, e.User}}
	case e.Change:
		return []share{{changes, e.User}}
	case e.User == "" && e.Try:
		return []share{{triesOfHost, e.host()}, {triesOfStrangers, ""}}
	case e.User == "":
		return []share{{ofHost, e.host()}, {ofStrangers, ""}}
	case e.Try:
		return []share{{tries, e.User}}
	default:
		return []share{{ofUser, e.User}}
	}
}

// class returns the queue in which a share has its places. Strangers can have any number of hosts,
// each a share with a place: those would leave none to others.
func (s share) class() class {
	switch s.kind {
	case ofHost:
		return strangers
	case triesOfHost:
		return strangersTries
	}
	return users
}

func (e *Event) changesUsers() bool { return e.Change && strings.HasPrefix(e.Event, "acl|") }

// key is what repeats have in common.
func (e *Event) key() string {
	return fmt.Sprintf("%q", []any{e.Event, e.Args, e.Outcome, e.Reason, e.Context, e.Object,
		e.User, e.host(), e.TLSSubject})
}

// host is where the client is.
func (e *Event) host() string {
	a, err := netip.ParseAddrPort(e.Address)
	if err != nil {
		return e.Address // a client on a Unix socket
	}
	return halfopen.Prefix(a.Addr()).String()
}
