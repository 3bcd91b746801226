//go:build !coordd_moved_wall

package clock

import "time"

// wallNow returns the time of day of the machine.
func wallNow() time.Time { return time.Now() }
