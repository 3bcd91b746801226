package node

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the kernel may be late by when a thread sleeps, to wake it together with others, in ns: what a process has unless somebody chose
// otherwise, and what coordd wants.
const (
	defaultSlackNs = 50_000
	slackNs        = 1_000_000
)

// relax begins the process anew, as itself, with a timer slack of a millisecond, unless somebody chose one for it.
//
// Go's monitor thread looks every 20 µs, for a millisecond after each moment in which all else slept, whether a system call keeps a
// processor. A node between two batches sleeps for tens of µs a thousand times a second: the monitor was a fifth of its work, and
// took the processor away from a sync that was about to end. With the slack it looks a millisecond later. A thread inherits it when
// it is made, and the monitor is made before main: hence the beginning anew (docs/adr/0012).
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
	_ = syscall.Exec(path, os.Args, os.Environ()) // where that is not to be had it goes on as it is
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
}
