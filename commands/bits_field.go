// BITFIELD: integers of 1 to 64 bits at any bit offset of a string.

package commands

import (
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// Error replies of BITFIELD.
const (
	ErrBitfieldType Error = "ERR Invalid bitfield type. Use something like i16 u8. Note that " +
		"u64 is not supported but i64 is."
	ErrBitfieldOverflow Error = "ERR Invalid OVERFLOW type specified"
	ErrBitfieldReads    Error = "ERR BITFIELD_RO only supports the GET subcommand"
)

// fieldType is the type of an integer: u1 to u63, i1 to i64.
type fieldType struct {
	signed bool
	bits   int
}

// fieldOp is one operation of BITFIELD.
type fieldOp struct {
	kind     fieldOpKind
	overflow overflowRule
	fieldType
	at    int // position of its first bit
	value int64
}

type fieldOpKind uint8

const (
	fieldGet fieldOpKind = iota
	fieldSet
	fieldIncrBy
)

// overflowRule says what happens to a number that its type cannot hold.
type overflowRule uint8

const (
	overflowWrap     overflowRule = iota // keep the lowest bits
	overflowSaturate                     // take the nearest number of the type
	overflowFail                         // skip the operation
)

// parseFieldType parses i8, u16 …
func parseFieldType(arg []byte) (t fieldType, err error) {
	if len(arg) == 0 || (arg[0] != 'i' && arg[0] != 'u') {
		return t, ErrBitfieldType
	}
	t.signed = arg[0] == 'i'
	most := int64(63)
	if t.signed {
		most = 64
	}
	n, ok := ParseInt(arg[1:])
	if !ok || n < 1 || n > most {
		return t, ErrBitfieldType
	}
	t.bits = int(n)
	return t, nil
}

// offset parses the position of an integer, in bits or, after a #, in integers of its type.
func (t fieldType) offset(arg []byte) (int, error) {
	if len(arg) == 0 || arg[0] != '#' {
		return bitOffset(arg)
	}
	n, ok := ParseInt(arg[1:])
	if n *= int64(t.bits); !ok || n < 0 || n>>3 >= maxString { // it may wrap around, as in Redis
		return 0, ErrBitOffset
	}
	return int(n), nil
}

// parseOverflow parses the argument of OVERFLOW.
func parseOverflow(arg []byte) (overflowRule, error) {
	switch {
	case isWord(arg, "WRAP"):
		return overflowWrap, nil
	case isWord(arg, "SAT"):
		return overflowSaturate, nil
	case isWord(arg, "FAIL"):
		return overflowFail, nil
	}
	return 0, ErrBitfieldOverflow
}

// parseFieldOps parses the operations of BITFIELD.
func parseFieldOps(args [][]byte) (ops []fieldOp, err error) {
	overflow := overflowWrap
	for len(args) > 0 {
		op, size := fieldOp{overflow: overflow}, 4
		switch {
		case isWord(args[0], "GET"):
			size = 3
		case isWord(args[0], "SET"):
			op.kind = fieldSet
		case isWord(args[0], "INCRBY"):
			op.kind = fieldIncrBy
		case isWord(args[0], "OVERFLOW") && len(args) > 1:
			if overflow, err = parseOverflow(args[1]); err != nil {
				return nil, err
			}
			args = args[2:]
			continue
		default:
			return nil, ErrSyntax
		}
		if len(args) < size {
			return nil, ErrSyntax
		}
		if op.fieldType, err = parseFieldType(args[1]); err != nil {
			return nil, err
		}
		if op.at, err = op.offset(args[2]); err != nil {
			return nil, err
		}
		if op.kind != fieldGet {
			var ok bool
			if op.value, ok = ParseInt(args[3]); !ok {
				return nil, ErrNotInteger
			}
		}
		ops = append(ops, op)
		args = args[size:]
	}
	return ops, nil
}

// readBits returns the number in size bits of b from at on. Zeros follow b.
func readBits(b []byte, at, size int) (n uint64) {
	for end := at + size; at < end; {
		var c byte
		if at>>3 < len(b) {
			c = b[at>>3]
		}
		take := min(8-at&7, end-at)
		n = n<<take | uint64(c<<(at&7)>>(8-take))
		at += take
	}
	return n
}

// number returns the integer at bit at of b, sign-extended to 64 bits.
func (t fieldType) number(b []byte, at int) int64 {
	n := readBits(b, at, t.bits)
	if t.signed {
		return int64(n<<(64-t.bits)) >> (64 - t.bits)
	}
	return int64(n)
}

// bounds returns the lowest and the highest number of the type.
func (t fieldType) bounds() (least, most int64) {
	if t.signed {
		most = int64(^uint64(0) >> (65 - t.bits))
		return -most - 1, most
	}
	return 0, int64(uint64(1)<<t.bits - 1)
}

// overflows reports whether a sum is too high, or too low, for the type.
func (t fieldType) overflows(n, by int64) (over, under bool) {
	least, most := t.bounds()
	if !t.signed {
		// a negative number to set counts as a huge one
		over = uint64(n) > uint64(most) || by > 0 && n > most-by
		return over, !over && by < 0 && n+by < 0
	}
	// As on Redis, most-n overflows if n is a very low number to set, which then counts as too
	// high.
	over = n > most || by > most-n && (t.bits < 64 || n >= 0 && by > 0)
	under = n < least || by < least-n && (t.bits < 64 || n < 0 && by < 0)
	return over, under
}

// sum adds two numbers by the type and the overflow rule. It returns false if the rule is FAIL and
// they overflow. n may be outside the type.
func (t fieldType) sum(n, by int64, rule overflowRule) (int64, bool) {
	least, most := t.bounds()
	over, under := t.overflows(n, by)
	switch {
	case !over && !under:
		return n + by, true
	case rule == overflowFail:
		return 0, false
	case rule == overflowSaturate && over:
		return most, true
	case rule == overflowSaturate:
		return least, true
	case t.signed:
		return (n + by) << (64 - t.bits) >> (64 - t.bits), true
	}
	return (n + by) & most, true
}

// put writes a number of the type into b, which must be long enough.
func (t fieldType) put(b []byte, at int, n int64) {
	for i := range t.bits {
		mask := byte(1) << (7 - (at+i)&7)
		if n>>(t.bits-1-i)&1 != 0 {
			b[(at+i)>>3] |= mask
		} else {
			b[(at+i)>>3] &^= mask
		}
	}
}

func bitfieldCommand(x *Call) error {
	ops, err := parseFieldOps(x.Args[2:])
	if err != nil {
		return err
	}
	return x.bitfield(ops)
}

func bitfieldROCommand(x *Call) error {
	ops, err := parseFieldOps(x.Args[2:])
	if err != nil {
		return err
	}
	if slices.ContainsFunc(ops, func(op fieldOp) bool { return op.kind != fieldGet }) {
		return ErrBitfieldReads
	}
	return x.bitfield(ops)
}

// bitfield runs the operations. As on Redis the string first grows to the end of the last of them,
// even if that one fails.
func (x *Call) bitfield(ops []fieldOp) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	size, writes := 0, 0
	for _, op := range ops {
		if op.kind != fieldGet {
			writes++
			size = max(size, (op.at+op.bits-1)>>3+1)
		}
	}
	x.Spend(x.nameWork(2*writes, len(x.Args[1]))) // each looks the key up
	x.Expect(len(ops), 20*len(ops))
	grown := size > len(stringBytes(e)) // then every SET counts as a change
	if grown {
		if err := x.checkGap(e, size); err != nil {
			return err
		}
		x.spendWrite(e, size)
		e = x.DB().WriteAt(x.Args[1], size, nil)
	}
	changed := false
	x.Out.Array(len(ops))
	for _, op := range ops {
		old := op.number(stringBytes(e), op.at)
		n, by := old, op.value
		if op.kind == fieldSet {
			n, by = op.value, 0
		}
		if op.kind == fieldGet {
			x.Out.Int(old)
			continue
		}
		n, ok := op.sum(n, by, op.overflow)
		if !ok {
			x.Out.Null()
			continue
		}
		if n != old {
			e = x.putNumber(e, op, n)
		}
		changed = changed || grown || n != old
		if op.kind == fieldSet {
			n = old
		}
		x.Out.Int(n)
	}
	if changed {
		x.notify(NotifyString, "setbit", x.Args[1])
	}
	return nil
}

// putNumber writes a number into the string of e, the entry at x.Args[1], which must be long
// enough, and returns the entry that has it.
func (x *Call) putNumber(e *keyspace.Entry, op fieldOp, n int64) *keyspace.Entry {
	first, end := op.at>>3, (op.at+op.bits-1)>>3+1
	part := slices.Clone(e.Bytes()[first:end])
	op.put(part, op.at&7, n)
	x.spendWrite(e, end)
	return x.DB().WriteAt(x.Args[1], first, part)
}
