package node

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Timer slack: how late the kernel may wake a sleeping thread, to batch wake-ups. The default of a
// process, and what coordd uses.
const (
	defaultSlackNs = 50_000
	slackNs        = 1_000_000
)

// relax re-executes the process with a timer slack of 1 ms, unless its parent chose one.
//
// After each moment in which everything slept, Go's monitor thread polls every 20 µs for a
// millisecond, looking for system calls that hold a processor. A node sleeps for tens of µs between
// entries, a thousand times a second: the monitor was a fifth of its work, and took the processor
// from syncs about to finish. With the slack it polls a millisecond later. Threads inherit the
// slack when they are created, and the monitor is created before main: hence the re-execution
// (docs/adr/0012).
func relax() {
	runtime.LockOSThread() // the slack is the thread's
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || slack != defaultSlackNs {
		return
	}
	path, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, slackNs, 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(path, os.Args, os.Environ()) // if it fails, the process continues as it is
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
}
