//go:build !coordd_next

// This file contains what parts a release from the build that tests take for the next one.

package commands

const levelsAhead = 0

var nextSpecs []Spec
