// What tests outside of the package use.

package commands

// Run resolves and runs the command of x.Args and writes its reply, errors included, to x.Out.
func (t *Table) Run(x *Call) { x.Run(t.ResolveAt(x.Level, x.Args)) }

// Positions returns the positions of the part's keys.
func (p *KeyPart) Positions(args [][]byte) []int { return p.positions(args) }
