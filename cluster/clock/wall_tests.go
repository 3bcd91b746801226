//go:build coordd_tests

package clock

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// wallNow returns the time of day of the machine. Tests that set the clock of one node move it by
// the milliseconds in the file that the environment variable COORDD_TEST_WALL names. No release has
// it.
func wallNow() time.Time {
	var ms int64
	if file := os.Getenv("COORDD_TEST_WALL"); file != "" {
		text, _ := os.ReadFile(file)
		ms, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	return time.Now().Add(time.Duration(ms) * time.Millisecond)
}
