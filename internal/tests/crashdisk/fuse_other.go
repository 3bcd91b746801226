//go:build !linux

package crashdisk

import "errors"

var errLinux = errors.New("mounting a file system in user space needs Linux")

// Available returns why disks cannot be mounted here.
func Available() error { return errLinux }

// Mount is a disk that processes see.
type Mount struct{}

// MountAt fails.
func (d *Disk) MountAt(string) (*Mount, error) { return nil, errLinux }

// Unmount fails.
func (*Mount) Unmount() error { return errLinux }
