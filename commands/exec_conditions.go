// Conditions of EXEC of Valkey 9.2: the transaction runs if all of them hold.

package commands

import "bytes"

// ErrExecCondition is the error for conditions of EXEC that are not of their form.
const ErrExecCondition Error = "ERR invalid check condition syntax"

// execCondition is IFEQ key value, IFNE key value, NX key or XX key.
type execCondition struct {
	key, value []byte
	compares   bool // a string with a value; else it asks whether the key exists
	negated    bool // IFNE, NX
}

// cutExecCondition parses a condition at the start of args, and returns how many words it has, 0 if
// there is none.
func cutExecCondition(args [][]byte) (c execCondition, words int) {
	switch {
	case isWord(args[0], "IFEQ"), isWord(args[0], "XX"):
	case isWord(args[0], "IFNE"), isWord(args[0], "NX"):
		c.negated = true
	default:
		return c, 0
	}
	words = 2
	if c.compares = len(args[0]) == len("IFEQ"); c.compares {
		words = 3
	}
	if len(args) < words {
		return c, 0
	}
	c.key, c.value = args[1], args[words-1]
	return c, words
}

// ExecKeys is KeySpec.Find for EXEC: the keys of its conditions.
func ExecKeys(args [][]byte) []int {
	positions := make([]int, 0, len(args)/2)
	for at := 1; at < len(args); {
		_, words := cutExecCondition(args[at:])
		if words == 0 {
			return nil
		}
		positions = append(positions, at+1)
		at += words
	}
	return positions
}

// ExecConditions reports whether all conditions of x, a call of EXEC, hold. A key of another type
// is an error for those that compare.
func (x *Call) ExecConditions() (hold bool, err error) {
	hold = true
	for at := 1; at < len(x.Args); {
		c, words := cutExecCondition(x.Args[at:])
		if words == 0 {
			return false, ErrExecCondition
		}
		at += words
		x.Work += conditionWork + uint64((len(c.key)+len(c.value))/bytesSpent)
		if x.Work > x.Stop {
			return false, ErrRequestWork
		}
		e := x.find(c.key)
		if x.Witness != nil {
			x.Witness.Watched(x.Tx.DB, c.key, c.negated && e == nil)
		}
		met := e != nil
		if c.compares && e != nil {
			if e, err = x.findString(c.key); err != nil {
				return false, err
			}
			met = bytes.Equal(e.Bytes(), c.value)
		}
		hold = hold && met != c.negated
	}
	return hold, nil
}

// conditionWork is the cost of a condition, in units of Env.Work.
const conditionWork = 20
