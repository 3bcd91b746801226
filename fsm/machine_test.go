package fsm

import "github.com/coordd/coordd/commands"

// newestMachine returns an empty machine of the newest feature level: what a cluster has once all
// its members run this release.
func newestMachine(table *commands.Table) *Machine {
	m := NewMachine(table)
	m.level = FeatureLevel
	return m
}
