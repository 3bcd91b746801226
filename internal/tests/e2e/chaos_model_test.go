// The replies that registers, counters and leases may give, for Porcupine.

package e2e

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

type chaosOp int

const (
	opWrite   chaosOp = iota // register: SET key value
	opCompare                // register: a script, SET if the value is old
	opRegRead                // register: GET
	opIncr                   // counter: INCR
	opCount                  // counter: GET
	opLease                  // lease: SET key owner NX PX leaseMs
	opFree                   // lease: compare-and-delete script
	opHolder                 // lease: GET
)

// leaseMs is short, so that leases end while others want them.
const leaseMs = 250

type chaosInput struct {
	op         chaosOp
	key        string
	value, old string
	call, ret  int64 // ns since the start; ret is math.MaxInt64 if the outcome is unknown
}

type chaosOutput struct {
	unknown bool
	ok      bool
	value   string
	n       int64
}

// chaosState is the state of one key.
type chaosState struct {
	value string // of a register, or a lease's owner
	until int64  // a lease cannot have ended before this time, ns
	n     int64
}

// stepChaos returns the states in which a key can be after an operation with this output, none if
// the output is impossible.
func stepChaos(s chaosState, in chaosInput, out chaosOutput) (next []chaosState) {
	states := []chaosState{s}
	// A lease may have expired, but never early: it began no sooner than its call, and this
	// operation ended no later than its return.
	if in.op >= opLease && s.value != "" && in.ret >= s.until {
		states = append(states, chaosState{})
	}
	for _, s := range states {
		after, got := runChaos(s, in)
		switch {
		case out.unknown:
			next = append(next, s, after)
		case got == out:
			next = append(next, after)
		}
	}
	return next
}

// runChaos runs one operation on a key.
func runChaos(s chaosState, in chaosInput) (chaosState, chaosOutput) {
	out := chaosOutput{ok: true}
	switch in.op {
	case opWrite:
		s.value = in.value
	case opCompare:
		if out.ok = s.value == in.old; out.ok {
			s.value = in.value
		}
	case opRegRead, opHolder:
		out.value = s.value
	case opIncr:
		s.n++
		out.n = s.n
	case opCount:
		out.n = s.n
	case opLease:
		if out.ok = s.value == ""; out.ok {
			s = chaosState{value: in.value, until: in.call + leaseMs*1e6}
		}
	case opFree:
		if out.ok = s.value == in.value; out.ok {
			s = chaosState{}
		}
	}
	return s, out
}

func chaosModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			at := map[string]int{}
			var parts [][]porcupine.Operation
			for _, op := range history {
				key := op.Input.(chaosInput).key
				i, ok := at[key]
				if !ok {
					i = len(parts)
					at[key] = i
					parts = append(parts, nil)
				}
				parts[i] = append(parts[i], op)
			}
			return parts
		},
		Init: func() []any { return []any{chaosState{}} },
		Step: func(state, input, output any) []any {
			var all []any
			for _, s := range stepChaos(state.(chaosState), input.(chaosInput),
				output.(chaosOutput)) {
				all = append(all, s)
			}
			return all
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
	return m.ToModel()
}
