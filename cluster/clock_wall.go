//go:build !coordd_moved_wall

package cluster

import "time"

// wallNow returns the time of day of the machine.
func wallNow() time.Time { return time.Now() }
