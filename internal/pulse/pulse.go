// The instants, and a ticker that ticks at them.

package pulse

import "time"

// Until returns how long to wait for the next of the instants, every so often, that all callers
// share: from a quarter of every to five quarters of it.
func Until(every time.Duration) time.Duration {
	return until(time.Now(), every)
}

func until(now time.Time, every time.Duration) time.Duration {
	wait := every - time.Duration(now.UnixNano())%every
	if wait < every/4 { // the last wait may have ended a little before its instant
		wait += every
	}
	return wait
}

// Ticker is a timer for a loop that does something at each of these instants.
type Ticker struct {
	C     <-chan time.Time
	timer *time.Timer
	every time.Duration
}

// NewTicker returns a ticker. Next is to be called after each value of C.
func NewTicker(every time.Duration) *Ticker {
	timer := time.NewTimer(Until(every))
	return &Ticker{timer.C, timer, every}
}

// Next has the ticker wait for the next instant.
func (t *Ticker) Next() { t.timer.Reset(Until(t.every)) }

// Stop ends the ticker.
func (t *Ticker) Stop() { t.timer.Stop() }
