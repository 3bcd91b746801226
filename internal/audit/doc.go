// Package audit keeps a node's audit trail: who authenticated, administered or was denied what.
// Each event is a line of JSON in a file or on stderr.
//
// Recording never waits for the file. Events queue in memory, within a bound, and one goroutine
// writes them. What does not fit is dropped, counted, and named in the trail itself.
package audit
