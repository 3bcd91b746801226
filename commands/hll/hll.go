package hll

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

const (
	indexBits = 14
	registers = 1 << indexBits
	rankBits  = 64 - indexBits // bits of a hash that are left for the rank
	width     = 6              // bits of a dense register

	headSize  = 16
	denseSize = headSize + registers*width/8

	encodingAt = 4
	cacheAt    = 8
	staleBit   = 1 << 63 // set in the cache: it is out of date

	dense  = 0
	sparse = 1
)

// MaxSparse is how many bytes Redis keeps sparse by default.
const MaxSparse = 3000

var magic = []byte("HYLL")

// Errors about strings.
var (
	ErrNot     = errors.New("hll: not a HyperLogLog")
	ErrCorrupt = errors.New("hll: runs do not make up all registers")
)

// Check fails with ErrNot if b does not look like a HyperLogLog.
func Check(b []byte) error {
	switch {
	case len(b) < headSize || string(b[:len(magic)]) != string(magic) || b[encodingAt] > sparse,
		b[encodingAt] == dense && len(b) != denseSize:
		return ErrNot
	}
	return nil
}

// New returns an empty one.
func New() []byte {
	b := make([]byte, headSize, headSize+2)
	copy(b, magic)
	b[encodingAt] = sparse
	return appendZeros(b, registers)
}

// Runs returns how many bytes of b Add may look through: none if b is dense.
func Runs(b []byte) int {
	if b[encodingAt] == dense {
		return 0
	}
	return len(b) - headSize
}

// Add adds an element to b, which Check has accepted. It returns the new string, in the memory of b
// if possible, and whether a register has changed.
func Add(b, element []byte) (out []byte, changed bool, err error) {
	index, rank := place(element)
	return raise(b, index, rank)
}

// place returns the register of an element, and the value that it has at least.
func place(element []byte) (index int, rank byte) {
	h := hash(element)
	rest := h>>indexBits | 1<<rankBits
	return int(h & (registers - 1)), byte(bits.TrailingZeros64(rest)) + 1
}

// raise makes a register at least rank.
func raise(b []byte, index int, rank byte) (out []byte, changed bool, err error) {
	if b[encodingAt] == sparse {
		return raiseSparse(b, index, rank)
	}
	if denseAt(b, index) >= rank {
		return b, false, nil
	}
	setDense(b, index, rank)
	return b, true, nil
}

// Outdate marks the cached estimate of b as out of date.
func Outdate(b []byte) { b[headSize-1] |= 0x80 }

// Cached returns the estimate in the head of b. ok is false if it is out of date.
func Cached(b []byte) (n uint64, ok bool) {
	n = binary.LittleEndian.Uint64(b[cacheAt:headSize])
	return n, n&staleBit == 0
}

// denseAt returns a register. b is dense.
func denseAt(b []byte, index int) byte {
	bit := index * width
	at, shift := headSize+bit/8, bit%8
	v := uint16(b[at])
	if shift > 8-width {
		v |= uint16(b[at+1]) << 8
	}
	return byte(v>>shift) & (1<<width - 1)
}

// setDense sets a register. b is dense.
func setDense(b []byte, index int, value byte) {
	bit := index * width
	at, shift := headSize+bit/8, bit%8
	b[at] = b[at]&^byte((1<<width-1)<<shift) | value<<shift
	if left := 8 - shift; left < width {
		b[at+1] = b[at+1]&^byte((1<<width-1)>>left) | value>>left
	}
}

// Registers are the values of all registers.
type Registers [registers]byte

// Filled returns how many registers are not 0.
func (r *Registers) Filled() (n int) {
	for _, v := range r {
		if v > 0 {
			n++
		}
	}
	return n
}

// Join raises r to what b has, which Check has accepted, and reports whether b is dense.
func (r *Registers) Join(b []byte) (isDense bool, err error) {
	if b[encodingAt] == dense {
		for i := range r {
			r[i] = max(r[i], denseAt(b, i))
		}
		return true, nil
	}
	at := 0
	for runs := b[headSize:]; len(runs) > 0; {
		v, n, size := runAt(runs)
		if size == 0 || at+n > registers {
			return false, ErrCorrupt
		}
		for i := at; v > 0 && i < at+n; i++ {
			r[i] = max(r[i], v)
		}
		at, runs = at+n, runs[size:]
	}
	if at != registers {
		return false, ErrCorrupt
	}
	return false, nil
}

// Merge raises b, which Check has accepted, to r. With toDense the result is dense.
func Merge(b []byte, r *Registers, toDense bool) (out []byte, err error) {
	if toDense && b[encodingAt] == sparse {
		if b, err = densify(b); err != nil {
			return nil, err
		}
	}
	for i, v := range r {
		if v == 0 {
			continue
		}
		if b, _, err = raise(b, i, v); err != nil {
			return nil, err
		}
	}
	return b, nil
}
