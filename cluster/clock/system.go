// The clock of the machine that a node runs on.

package clock

import (
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// System is the machine's own clock.
type System struct{}

var (
	processStart = time.Now()
	system       = steadyClock{read: readClocks}
)

// Monotonic returns the monotonic time since about the start of this process. It does not run fast
// while NTP slews the system's monotonic clock. Time that the machine is suspended does not count.
func (System) Monotonic() time.Duration { return system.now() }

// Wall returns the time of day.
func (System) Wall() time.Time { return wallNow() }

// anchorEvery is how often a steadyClock takes a new anchor. Between anchors one clock's gain can
// offset its earlier loss, so this bounds what can be gained: 8.3 % of it.
const anchorEvery = 10 * time.Millisecond

// steadyClock combines two monotonic clocks, either of which may run fast at times: between anchors
// it advances by the slower one. On Linux these are CLOCK_MONOTONIC, which the kernel slews by up
// to 500 parts in a million and chrony by up to a twelfth, and CLOCK_MONOTONIC_RAW, which is
// neither slewed nor disciplined.
type steadyClock struct {
	read func() (a, b time.Duration)

	mu       lockorder.Mutex
	anchored bool
	at       [2]time.Duration // the clocks at the anchor
	sum      time.Duration    // this clock's reading there
}

func (c *steadyClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, b := c.read()
	if !c.anchored {
		c.anchored, c.at, c.sum = true, [2]time.Duration{a, b}, min(a, b)
		return c.sum
	}
	now := c.sum + max(min(a-c.at[0], b-c.at[1]), 0)
	if max(a-c.at[0], b-c.at[1]) >= anchorEvery {
		c.at, c.sum = [2]time.Duration{a, b}, now
	}
	return now
}
