//go:build !linux

package cluster

// syncData makes a file's data last.
func syncData(f osFile) error { return f.Sync() }
