//go:build !linux

package threadtime

import "time"

var start = time.Now()

// Now returns a time that also runs while the process waits: other systems have their own calls.
func Now() time.Duration { return time.Since(start) }
