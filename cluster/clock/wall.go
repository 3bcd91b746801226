//go:build !coordd_tests

package clock

import "time"

// wallNow returns the time of day of the machine.
func wallNow() time.Time { return time.Now() }
