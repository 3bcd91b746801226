package disk

import (
	"errors"
	"os"
	"syscall"
)

// reserved reports whether all of a file's blocks are on disk: writing to it needs no space.
func reserved(f *os.File) bool {
	var s syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &s) == nil && s.Blocks*512 >= s.Size
}

// syncData makes a file's data durable, with its size and block map but not its times.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
