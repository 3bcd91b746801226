// Package wait has tests wait on conditions, never for a time.
package wait
