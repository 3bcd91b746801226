//go:build !linux

package disk

import "os"

// reserved reports whether all of a file's blocks are on disk, as far as this system tells.
func reserved(*os.File) bool { return false }

// syncData makes a file's data durable.
func syncData(f *os.File) error { return f.Sync() }
