package cluster

import (
	"errors"
	"os"
	"syscall"
)

// syncData makes a file's data durable, with its size and block map but not its times.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
