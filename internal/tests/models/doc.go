// Package models checks small models of what coordd does otherwise than hashicorp/raft, in all
// states within bounds that a test names: what a leader may say and a read may return while the
// leader's disk lags behind (docs/adr/0019), and who confirms a read (docs/adr/0001, 0023). Each
// rule can be left out: then a state is found that breaks a promise.
package models
