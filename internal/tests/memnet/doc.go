// Package memnet connects tests in the simulated time of testing/synctest. That time stands still
// while a goroutine waits for a socket, but not while one waits for these connections.
package memnet
