//go:build !linux

package cluster

import "os"

// syncData makes a file's data durable.
func syncData(f *os.File) error { return f.Sync() }
