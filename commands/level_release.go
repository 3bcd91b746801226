//go:build !coordd_next

package commands

// This file holds what parts a release from the build that tests take for the next one.

const levelsAhead = 0

var nextSpecs []Spec
