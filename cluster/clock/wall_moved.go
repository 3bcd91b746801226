//go:build coordd_moved_wall

package clock

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// wallNow returns the time of day of the machine, moved by the milliseconds in the file that the
// environment variable COORDD_TEST_WALL names, for tests that set the clock of one node. No release
// has it.
func wallNow() time.Time {
	text, _ := os.ReadFile(os.Getenv("COORDD_TEST_WALL"))
	ms, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Now().Add(time.Duration(ms) * time.Millisecond)
}
