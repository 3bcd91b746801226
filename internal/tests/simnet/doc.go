// Package simnet is a network in one process, for tests on simulated time (testing/synctest). Its
// connections deliver late, stall while a link is cut, and break. Time alone decides when.
package simnet
