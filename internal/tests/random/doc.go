// Package random makes the random calls of tests that compare machines, or a machine with a real
// server. Calls are made from each Spec's own Syntax, so that every command of the table takes part
// and no second list of commands exists.
package random
