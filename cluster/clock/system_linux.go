package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// readTogether is how close together two clocks must be read: a steadyClock that takes an anchor
// loses the time between.
const readTogether = 10 * time.Microsecond

// readClocks reads CLOCK_MONOTONIC since the process started, and CLOCK_MONOTONIC_RAW, a system
// call of 0.2 µs.
func readClocks() (monotonic, raw time.Duration) {
	monotonic = time.Since(processStart)
	for range 4 {
		var t unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &t) != nil {
			return monotonic, monotonic
		}
		raw = time.Duration(t.Nano())
		again := time.Since(processStart)
		if again-monotonic < readTogether {
			break
		}
		monotonic = again
	}
	return monotonic, raw
}
