package e2e

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A node sets its own timer slack, unless its parent chose one, and keeps its process id.
func TestTimerSlack(t *testing.T) {
	for _, c := range []struct {
		given uintptr
		want  string
	}{{50_000, "1000000"}, {200_000, "200000"}} {
		runtime.LockOSThread() // the process inherits the slack of the thread that starts it
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, c.given, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		p := startProcesses(t, 1)[0]
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		runtime.UnlockOSThread()
		got, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", p.cmd.Process.Pid))
		if errors.Is(err, syscall.EPERM) {
			t.Skip("SKIPPED: the timer slack of another process can be read only with CAP_SYS_NICE")
		}
		if err != nil || strings.TrimSpace(string(got)) != c.want {
			t.Errorf("started with a slack of %d ns the node has %q ns, %v", c.given, got, err)
		}
	}
}
