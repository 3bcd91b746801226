// Package binaries builds coordd, in the variants that tests run as processes.
package binaries
