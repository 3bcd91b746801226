//go:build !coordd_tests

// What separates a release from the build that tests use as the next one.

package commands

// FeatureLevel is the newest level that this release knows.
const FeatureLevel = releaseLevel

var nextSpecs []Spec
