//go:build !linux

package node

// relax is for Linux only.
func relax() {}
