// Running a command without a machine.

package commands

// Run resolves and runs the command of x.Args and writes its reply, errors included, to x.Out.
func (t *Table) Run(x *Call) { x.Run(t.ResolveAt(x.Level, x.Args)) }
