//go:build !coordd_next

// What separates a release from the build that tests use as the next one.

package commands

const levelsAhead = 0

var nextSpecs []Spec
