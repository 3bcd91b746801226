// Package detector tells tests whether the race detector watches them. It is here because make test
// runs the tests below fsm a second time, without the detector, and no others.
package detector
