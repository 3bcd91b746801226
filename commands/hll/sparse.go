package hll

import "slices"

const (
	maxValue     = 32     // largest value of a run
	maxRun       = 4      // registers of a run with a value
	maxShortZero = 64     // registers of a run of zeros of one byte
	zeroLong     = 1 << 6 // marks one of two bytes
	valued       = 1 << 7 // marks a run with a value
	mergeSteps   = 5      // runs looked at after a change to join equal ones
)

// runAt reads the first run: its value, how many registers it has, and its bytes, 0 if it is cut
// off.
func runAt(runs []byte) (value byte, n, size int) {
	switch first := runs[0]; {
	case first&valued != 0:
		return first>>2&31 + 1, int(first&3) + 1, 1
	case first&zeroLong == 0:
		return 0, int(first) + 1, 1
	case len(runs) < 2:
		return 0, 0, 0
	default:
		return 0, int(first&63)<<8 + int(runs[1]) + 1, 2
	}
}

func appendZeros(b []byte, n int) []byte {
	switch {
	case n == 0:
		return b
	case n <= maxShortZero:
		return append(b, byte(n-1))
	}
	return append(b, byte((n-1)>>8)|zeroLong, byte(n-1))
}

// appendRun appends n registers of a value, at most maxRun unless it is 0.
func appendRun(b []byte, value byte, n int) []byte {
	if value == 0 || n == 0 {
		return appendZeros(b, n)
	}
	return append(b, valued|(value-1)<<2|byte(n-1))
}

// raiseSparse is raise for sparse strings. It makes them dense if the value or the runs no longer
// fit.
func raiseSparse(b []byte, index int, rank byte) (out []byte, changed bool, err error) {
	if rank > maxValue {
		return raiseDense(b, index, rank)
	}
	// from is where the run with the register begins, before where the one before it does
	from, before, first := headSize, headSize, 0
	value, n, size := byte(0), 0, 0
	for {
		if from >= len(b) {
			return nil, false, ErrCorrupt
		}
		if value, n, size = runAt(b[from:]); size == 0 {
			return nil, false, ErrCorrupt
		}
		if index < first+n {
			break
		}
		before, from, first = from, from+size, first+n
	}
	if value >= rank {
		return b, false, nil
	}
	var buf [5]byte
	runs := appendRun(buf[:0], value, index-first)
	runs = appendRun(runs, rank, 1)
	runs = appendRun(runs, value, first+n-1-index)
	if more := len(runs) - size; more > 0 && len(b)+more > MaxSparse {
		return raiseDense(b, index, rank)
	}
	return joinRuns(slices.Replace(b, from, from+size, runs...), before), true, nil
}

// raiseDense is raiseSparse after making b dense.
func raiseDense(b []byte, index int, rank byte) (out []byte, changed bool, err error) {
	if b, err = densify(b); err != nil {
		return nil, false, err
	}
	return raise(b, index, rank)
}

// joinRuns joins runs of the same value from a place on, as far as Redis looks.
func joinRuns(b []byte, at int) []byte {
	for step := 0; step < mergeSteps && at < len(b); step++ {
		value, n, size := runAt(b[at:])
		if value == 0 {
			at += max(size, 1)
			continue
		}
		if at+1 < len(b) && b[at+1]&valued != 0 {
			next, more, _ := runAt(b[at+1:])
			if next == value && n+more <= maxRun {
				b[at+1] = appendRun(nil, value, n+more)[0]
				b = append(b[:at], b[at+1:]...)
				continue
			}
		}
		at++
	}
	return b
}

// densify returns the dense form of a sparse string.
func densify(b []byte) ([]byte, error) {
	var r Registers
	if _, err := r.Join(b); err != nil {
		return nil, err
	}
	out := make([]byte, denseSize)
	copy(out, b[:headSize])
	out[encodingAt] = dense
	for i, v := range r {
		if v > 0 {
			setDense(out, i, v)
		}
	}
	return out, nil
}
