package server

// This file holds who makes delivery slow: whose patterns, or number of them, take the goroutine that delivers for all. Where it falls behind, that one is
// closed, so that not all lose their messages.

import "time"

const (
	// strainWindow is how long what a client costs is summed up.
	strainWindow = 100 * time.Millisecond
	// pushWork is what one message for one client takes, in units of matchUnit.
	pushWork  = 8
	matchUnit = 25 * time.Nanosecond
	// busyPart of the time the delivery has to be at work, as its units tell: a slow processor takes longer for one than matchUnit.
	busyPart = 1.0 / 32
	// leastShare: who takes less than this part of the time is not closed for it.
	leastShare = 1.0 / 50
)

// strain is what clients have cost the delivery since a time. The delivery's goroutine alone uses it.
type deliveryLoad struct {
	since time.Time
	era   uint32 // rises with each window
	total float64
	top   *session
}

// sessionStrain is a session's part.
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

// look returns who is to be closed, if somebody is: at the end of each window in which the delivery was at work, while it is behind.
func (st *deliveryLoad) heaviest(now time.Time, behind func() bool) *session {
	elapsed := now.Sub(st.since)
	if elapsed < strainWindow {
		return nil
	}
	top, total := st.top, st.total
	st.since, st.top, st.total = now, nil, 0
	st.era++
	if top == nil || total*float64(matchUnit) < float64(elapsed)*busyPart || top.load.work < leastShare*total || !behind() {
		return nil
	}
	return top
}

// behind reports whether much waits to be delivered.
func (d *delivery) behind() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes > d.limit/4
}
