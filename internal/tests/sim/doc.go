// Package sim runs whole clusters in one process, on a simulated network, simulated disks and
// simulated time, from one seed. See docs/adr/0044-simulation.md.
package sim
