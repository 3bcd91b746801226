//go:build !linux

package main

// relax is for Linux.
func relax() {}
