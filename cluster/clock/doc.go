// Package clock is the clock of a cluster. It runs in milliseconds by the monotonic clock of
// whoever leads, and goes on over changes of leader: a new leader continues from the newest stamp
// in its log plus the time since that entry arrived, which Arrivals knows. So it can lag, but never
// runs ahead.
//
// Beside it runs a time of day, which follows the wall clocks of a majority (Walls), slowly. Leader
// stamps entries with both, and names the instants at which reads happen. See docs/adr/0016.
package clock
