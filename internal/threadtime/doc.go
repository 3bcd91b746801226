// Package threadtime reads the processor time of threads. Unlike a clock it does not run while the
// process has to wait.
package threadtime
