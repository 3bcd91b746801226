//go:build race

package detector

// on says that the race detector is on.
const on = true
