// Package halfopen bounds the connections that have not identified themselves yet: how many there
// are (Set), and how many come (Door). A peer that means well identifies itself within a few round
// trips.
package halfopen
