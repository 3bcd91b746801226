//go:build linux

// Sequential models of what a key may reply, for Porcupine.

package lab

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// model is how one key behaves when operations run one after the other.
type model[S comparable] struct {
	first S

	// step runs an operation: the next state, and the reply.
	step func(s S, e *event) (S, string)

	// lease, if there is one, returns the state after the lease in s is over, and the earliest time
	// of that; false: s holds no lease.
	lease func(s S) (over S, earliest time.Duration, leased bool)
}

// after returns the states in which a key can be after an operation with this outcome, none if the
// outcome is impossible.
func (m *model[S]) after(s S, e *event) (next []any) {
	from := []S{s}
	// A lease may have ended, late or not, but never early: this operation ran before its return.
	if m.lease != nil {
		if over, earliest, leased := m.lease(s); leased && e.ret() >= earliest {
			from = append(from, over)
		}
	}
	for _, s := range from {
		to, reply := m.step(s, e)
		switch {
		case e.What == unknown:
			next = append(next, s, to)
		case reply == e.Reply:
			next = append(next, to)
		}
	}
	return next
}

// porcupine returns the model as the checker wants it.
func (m *model[S]) porcupine() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.first} },
		Step: func(state, input, _ any) []any { return m.after(state.(S), input.(*event)) },
		Equal: func(a, b any) bool {
			return a == b
		},
		DescribeOperation: func(input, _ any) string { return input.(*event).String() },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return nondeterministic.ToModel()
}

// judge checks the history of one key.
func (m *model[S]) judge(events []*event, limit time.Duration) (porcupine.CheckResult,
	porcupine.LinearizationInfo) {
	var history []porcupine.Operation
	for _, e := range events {
		history = append(history, porcupine.Operation{ClientId: e.Actor, Input: e,
			Call: int64(e.Call), Return: int64(e.ret())})
	}
	return porcupine.CheckOperationsVerbose(m.porcupine(), history, limit)
}
