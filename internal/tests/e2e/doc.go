// Package e2e tests coordd as its users meet it: it builds the binary, starts single nodes and
// clusters as processes, and uses them through client libraries, redis-cli, HTTP and coordd's own
// subcommands. Processes are killed, stopped and cut off from each other; what clients saw is
// checked at the end.
//
// All of these tests are in one package, so that those that measure times never run at the same
// time. process_test.go has the processes, membership_test.go clusters that change. Tests that call
// chaos run with make chaos. Histories under faults of all kinds are the laboratory's, in
// internal/tests/lab.
package e2e
