// Package halfopen bounds the connections that have not identified themselves yet: how many there
// are (Set), how many come (Door), and from where (Gate). A peer that means well identifies itself
// within a few round trips.
package halfopen
