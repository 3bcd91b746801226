//go:build !coordd_tests

package disk

// slow is for tests alone.
func slow() {}
