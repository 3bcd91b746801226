// Package metrics has what the rooms of coordd measure with.
package metrics
