// Package invariant has what holds in every state of a node, and is looked at while it runs. What
// does not hold is a fault of coordd, or of the machine: it is counted, logged, and does not stay
// unseen until somebody compares.
package invariant
