// Package lab is a laboratory: it runs clusters of real processes, breaks them, and checks what
// clients saw. A run is
//
//   - a pair of faults, which overlap in time (fault_test.go and the files beside it),
//   - a mix of workloads, each with its clients and its check (workload_test.go),
//   - and a kind of client, which finds its node in its own way (client_test.go).
//
// plan_test.go draws the runs from a seed, so that every pair comes up; run_test.go does one. After
// the faults the cluster must serve, its nodes must hold equal states, all processes are started
// again and must hold what they held, and every workload is judged.
//
// docs/testing.md has the variables of the environment that select runs.
package lab
