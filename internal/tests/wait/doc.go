// Package wait lets tests wait on conditions, never for a time.
package wait
