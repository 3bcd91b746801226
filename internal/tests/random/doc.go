// Package random makes the random calls of tests that compare machines, or a machine with a real
// server. It derives them from each Spec's Syntax, so every command of the table takes part without
// a second list of commands.
package random
