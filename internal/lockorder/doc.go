// Package lockorder has the mutexes of coordd. They are those of package sync. A build with the tag
// coordd_lockorder instead notes in which order goroutines lock them, and panics where two orders
// contradict each other: such a pair deadlocks on the day on which both happen at once.
//
// What a mutex is for is found by where it is locked: mutexes that one place locks are of one kind,
// and so are all that are locked at two places which lock the same mutex. Nobody names them.
package lockorder
