// Package detector tells tests whether the race detector watches them. make test runs those that
// call Skip a second time, without the detector: it finds them by this call in their sources.
package detector
