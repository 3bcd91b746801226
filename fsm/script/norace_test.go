//go:build !race

package script

const raceOverhead = 0
