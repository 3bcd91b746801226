package fsm

import "github.com/coordd/coordd/commands"

// newestCall returns a call of a request on a machine of the newest feature level.
func newestCall() *commands.Call {
	return &commands.Call{Env: &commands.Env{Level: FeatureLevel}, Tx: &commands.Tx{}, Out: commands.Discard{}}
}

// newestMachine returns an empty machine of the newest feature level: what a cluster has once all its members run this release.
func newestMachine(table *commands.Table) *Machine {
	m := NewMachine(table)
	m.level = FeatureLevel
	return m
}
