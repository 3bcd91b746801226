//go:build !coordd_trace

package trace

// On reports whether this build records.
const On = false
