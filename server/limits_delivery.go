// Load on delivery: which client's patterns, or their number, slow down the goroutine that
// delivers for all. If delivery falls behind, that client is closed, so that the others do not
// lose messages.

package server

import "time"

const (
	// strainWindow is the interval over which the cost of clients is summed.
	strainWindow = 100 * time.Millisecond
	// pushWork is the cost of one message to one client, in units of matchUnit.
	pushWork  = 8
	matchUnit = 25 * time.Nanosecond
	// busyPart is the part of the interval that delivery must be at work, counted in units: on a
	// slow processor, a unit takes longer than matchUnit.
	busyPart = 1.0 / 32
	// leastShare is the share of the total below which a client is never closed.
	leastShare = 1.0 / 50
)

// deliveryLoad is what clients have cost the delivery in the current window. Only the delivery
// goroutine uses it.
type deliveryLoad struct {
	since time.Time
	era   uint32 // incremented per window
	total float64
	top   *session
}

// sessionLoad is a session's share.
type sessionLoad struct {
	era  uint32
	work float64
}

func (st *deliveryLoad) charge(c *session, work float64) {
	own := &c.load
	if own.era != st.era {
		*own = sessionLoad{era: st.era}
	}
	own.work += work
	if st.total += work; st.top == nil || own.work > st.top.load.work {
		st.top = c
	}
}

// heaviest returns the client to close, if any: at the end of a busy window, while delivery is
// behind.
func (st *deliveryLoad) heaviest(now time.Time, behind func() bool) *session {
	elapsed := now.Sub(st.since)
	if elapsed < strainWindow {
		return nil
	}
	top, total := st.top, st.total
	st.since, st.top, st.total = now, nil, 0
	st.era++
	if top == nil || total*float64(matchUnit) < float64(elapsed)*busyPart ||
		top.load.work < leastShare*total || !behind() {
		return nil
	}
	return top
}

// behind reports whether much waits behind the current parcel. That one may be large itself: it is
// all of an entry. Only the delivery goroutine calls it.
func (d *delivery) behind() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes-d.begun > d.limit/4
}
