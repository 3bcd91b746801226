// Package netns makes networks that fail on demand, for tests that run processes on Linux as root.
// Every host has its own network namespace with a TUN device, and the test carries each packet from
// one to another. It can lose or delay packets, in one or both directions, without support from the
// kernel.
package netns
