//go:build race

package script

// raceOverhead is what the race detector adds to a large allocation, in its sizes.
const raceOverhead = 1
