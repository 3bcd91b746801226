// Package ports finds ports of the loopback for the processes that a test starts.
package ports
