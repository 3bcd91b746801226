// Package tier says when a test runs. Most run with go test ./... and make test. Those that call
// Check need long, and run with make check alone, which finds them by this call in their sources.
package tier
