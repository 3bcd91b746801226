package cluster

import (
	"errors"
	"os"
	"syscall"
)

// syncData makes a file's data last, with its size and place on the disk, but not its times.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
