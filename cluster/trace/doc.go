// Package trace records what a node does of what the models in internal/tests/models are about, in
// builds with the tag coordd_trace. Other builds record nothing, and pay nothing.
package trace
