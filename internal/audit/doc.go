// Package audit keeps a node's audit trail: who authenticated, administered or was denied what.
// Each event is a line of JSON in a file, on stderr, or to a syslog.
//
// Recording never waits for these. For each of them events queue in memory, within a bound, and one
// goroutine writes them. What does not fit is dropped, counted, and named in the trail itself.
package audit
