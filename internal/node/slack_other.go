//go:build !linux

package node

// relax is for Linux.
func relax() {}
