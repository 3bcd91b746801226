// Load on delivery: whose patterns slow down the goroutine that delivers for all. If delivery falls
// behind, their owners are closed, so that the others hear messages in time and lose none. So are
// some if the machine, which counts the receivers of what is published, takes as long: then all
// writes wait, and delivery, which gets no more messages than are applied, may never be behind.

package server

import (
	"cmp"
	"slices"
	"time"
)

const (
	// strainWindow is the interval over which the cost of clients is summed.
	strainWindow = 100 * time.Millisecond
	// pushWork is the cost of one message to one client, in units of matchUnit.
	pushWork  = 8
	matchUnit = 25 * time.Nanosecond
	// busyPart is the part of the interval that delivery must be at work, counted in units: on a
	// slow processor, a unit takes longer than matchUnit.
	busyPart = 1.0 / 32
	// blamedPart is the part of all work that must be somebody's fault. Less is not what delays it.
	blamedPart = 1.0 / 8
	// countedPart is the part of the interval that the machine may take to match what is published
	// with the patterns of all nodes. Beyond it, each node closes some of its own though delivery
	// is not behind, unless they are less than ownPart of what is matched.
	countedPart = 1.0 / 4
	ownPart     = 1.0 / 16
	// freeCopies is how many copies of one message a client may get by patterns before they are its
	// fault.
	freeCopies = 8
	// lateAfter is the age of the oldest undelivered event from which delivery is behind, however
	// little waits.
	lateAfter = time.Second
)

// deliveryLoad is what the patterns of clients have cost the delivery in the current window. Only
// the delivery goroutine uses it.
type deliveryLoad struct {
	since         time.Time
	era           uint32  // incremented per window
	message       uint64  // incremented per message
	total, blamed float64 // all work, and what is somebody's fault
	counts        bool    // the machine matches the message too
	counted       float64 // blamed work for such messages
	machine       float64 // the machine's work, for the patterns of all nodes
	to            []*session
}

// sessionLoad is a session's share.
type sessionLoad struct {
	era     uint32
	work    float64 // that is its fault
	message uint64
	copies  int // how often it got that message by patterns
}

// begin begins a message that took the machine so much to match: nothing if it is a notification.
func (st *deliveryLoad) begin(matching uint64) {
	st.message++
	st.counts = matching > 0
	st.machine += float64(matching)
}

// push counts a message to a client.
func (st *deliveryLoad) push() { st.total += pushWork }

// pushCopy counts, besides push, a message that a client gets by a pattern.
func (st *deliveryLoad) pushCopy(c *session) {
	own := &c.load
	if own.message != st.message {
		own.message, own.copies = st.message, 0
	}
	if own.copies++; own.copies > freeCopies {
		st.blame(c, pushWork)
	}
}

// match counts the work of matching a costly pattern, which its subscribers share.
func (st *deliveryLoad) match(to subscribers, work int) {
	st.total += float64(work)
	for c := range to {
		st.blame(c, float64(work)/float64(len(to)))
	}
}

func (st *deliveryLoad) blame(c *session, work float64) {
	own := &c.load
	if own.era != st.era || own.work == 0 {
		own.era, own.work = st.era, 0
		st.to = append(st.to, c)
	}
	own.work += work
	if st.blamed += work; st.counts {
		st.counted += work
	}
}

// owners returns the clients to close, if any: at the end of a busy window, while delivery is
// behind, or so many as take too long to match for the machine. They are those of the users that
// cost most: who spreads patterns over many connections pays as who has them on one.
func (st *deliveryLoad) owners(now time.Time, behind func(now time.Time) bool) []*session {
	elapsed := now.Sub(st.since)
	if elapsed < strainWindow {
		return nil
	}
	window := float64(elapsed) / float64(matchUnit)
	to, total, blamed, excess := st.to, st.total, st.blamed, st.excess(window)
	st.since, st.to, st.total, st.blamed, st.counted, st.machine = now, nil, 0, 0, 0, 0
	st.era++
	late := blamed > 0 && total >= window*busyPart && blamed >= blamedPart*total && behind(now)
	if !late && excess <= 0 {
		return nil
	}
	type sum struct{ work, top float64 }
	sums, most := map[owner]sum{}, 0.0
	for _, c := range to {
		if c.killed.Load() {
			continue // it is leaving
		}
		of := c.owner()
		sums[of] = sum{sums[of].work + c.load.work, max(sums[of].top, c.load.work)}
		most = max(most, sums[of].work)
	}
	var closing []*session
	for _, c := range to {
		if of := sums[c.owner()]; !c.killed.Load() && of.work >= most/2 && c.load.work >= of.top/2 {
			closing = append(closing, c)
		}
	}
	if late {
		return closing
	}
	slices.SortFunc(closing, func(a, b *session) int {
		return cmp.Compare(b.load.work, a.load.work)
	})
	for i, c := range closing {
		if excess <= 0 {
			return closing[:i]
		}
		excess -= c.load.work
	}
	return closing
}

// excess is what this node's clients must give up of a window for the machine to match in time:
// their share, since those who slow it down may have spread over the nodes.
func (st *deliveryLoad) excess(window float64) float64 {
	all := max(st.machine, st.counted)
	if all <= window*countedPart || st.counted < all*ownPart {
		return 0
	}
	return (all - window*countedPart) * st.counted / all
}

// behind reports whether much waits behind the current parcel, or the oldest event waits for long.
// The current parcel itself may be large: it is all of an entry. Only the delivery goroutine calls
// it.
func (d *delivery) behind(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes-d.begun > d.limit/4 || now.Sub(d.oldest) > lateAfter
}
