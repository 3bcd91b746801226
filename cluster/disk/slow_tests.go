//go:build coordd_tests

package disk

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// slow makes each sync of the log and of votes take longer, by the milliseconds in the file that
// the environment variable COORDD_TEST_SYNC names. No release has it.
func slow() {
	file := os.Getenv("COORDD_TEST_SYNC")
	if file == "" {
		return
	}
	text, _ := os.ReadFile(file)
	ms, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	time.Sleep(time.Duration(ms) * time.Millisecond)
}
