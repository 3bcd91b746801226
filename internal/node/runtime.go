package node

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
)

// gcPercent lets the heap grow to three times its live size between collections: at Go's default of
// 100 a write of 50 clients to a small heap takes a seventh more processor time. A heap of
// largeHeap bytes grows to twice its size: there memory matters, and collections are rare.
const (
	gcPercent      = 200
	gcPercentLarge = 100
	largeHeap      = 64 << 20
)

// privateMask leaves new files to the process's own user: the libraries that write to the data
// directory let others read them.
const privateMask = 0o077

// PrepareProcess sets up the process for a node: file mode mask, timer slack, garbage collector,
// processors and memory limit. It respects GOGC, GOMAXPROCS and GOMEMLIMIT. It may re-execute the
// process, so call it first in main.
func PrepareProcess() {
	syscall.Umask(privateMask)
	relax()
	tune()
	limitMemory()
}

// tune sets up Go's runtime. A node runs its Go code on half of the processors; the kernel needs
// the rest, which does as much work for a write (sockets, fsync). Fewer hand-overs between threads
// are worth more than the processors: on two, one client was served a quarter faster, and fifty a
// fifth.
func tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

// ReleaseMemory adapts the collector to the size of the heap, and returns memory to the operating
// system whenever the process becomes idle after a peak, until ctx ends.
func ReleaseMemory(ctx context.Context) {
	(&scavenger{fixed: os.Getenv("GOGC") != "", percent: gcPercent}).run(ctx)
}
