package fsm

import "github.com/coordd/coordd/commands"

// newestMachine returns an empty machine of the newest feature level, as in a cluster whose members
// all run this release.
func newestMachine(table *commands.Table) *Machine {
	m := NewMachine(table)
	m.level = commands.FeatureLevel
	m.raiseUsers()
	return m
}
