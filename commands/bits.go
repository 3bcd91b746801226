// Commands on the bits of strings. Bit 0 is the highest bit of the first byte. BITFIELD is in
// bits_field.go.

package commands

import (
	"encoding/binary"
	"math/bits"
)

// Error replies of the bit commands.
const (
	ErrBitOffset Error = "ERR bit offset is not an integer or out of range"
	ErrBit       Error = "ERR bit is not an integer or out of range"
	ErrBitWanted Error = "ERR The bit argument must be 1 or 0."
	ErrBitNot    Error = "ERR BITOP NOT must be called with a single source key."
)

var bitSpecs = []Spec{
	{Name: "setbit", Kind: Write, Arity: 4, Flags: DenyOOM,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "bitmap", Since: "2.2.0",
		Syntax: "key offset:integer value:integer",
		Summary: "Sets or clears a bit of a string and returns the previous one. Extends the " +
			"string if needed.",
		Complexity: "O(1)", Handler: setbitCommand},
	{Name: "getbit", Kind: Read, Arity: 3, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "bitmap", Since: "2.2.0",
		Syntax:     "key offset:integer",
		Summary:    "Returns a bit of a string.",
		Complexity: "O(1)", Handler: getbitCommand},
	{Name: "bitcount", Kind: Read, Arity: -2, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "bitmap", Since: "2.6.0",
		Syntax:     "key [start:integer end:integer [BYTE | BIT]]",
		Summary:    "Counts the set bits of a string or of a part of it.",
		Complexity: "O(N) in the bytes looked at", Handler: bitcountCommand},
	{Name: "bitpos", Kind: Read, Arity: -3, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "bitmap", Since: "2.8.7",
		Syntax:     "key bit:integer [start:integer [end:integer [BYTE | BIT]]]",
		Summary:    "Finds the first set or clear bit of a string or of a part of it.",
		Complexity: "O(N) in the bytes looked at", Handler: bitposCommand},
	{Name: "bitop", Kind: Write, Arity: -4, Flags: DenyOOM,
		Keys:  KeySpec{First: 2, Last: -1, Step: 1}.does(KeyOW|KeyUpdate, KeyRO|KeyAccess),
		Group: "bitmap", Since: "2.6.0",
		Syntax: "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey:key key " +
			"[key ...]",
		Summary:    "Combines strings bit by bit, or inverts one, and stores the result.",
		Complexity: "O(N) in the bytes of the strings", Handler: bitopCommand},
	{Name: "bitfield", Kind: Write, Arity: -2, Flags: DenyOOM,
		Keys:  collectionKey.does(KeyRW | KeyAccess | KeyUpdate | KeyVariable).varies(bitfieldUses),
		Group: "bitmap", Since: "3.2.0",
		Syntax: "key [GET encoding offset:integer | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding " +
			"offset:integer value:integer | INCRBY encoding offset:integer increment:integer> " +
			"[GET encoding offset:integer | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding " +
			"offset:integer value:integer | INCRBY encoding offset:integer increment:integer> " +
			"...]]",
		Summary:    "Reads, sets and increments integers of arbitrary width inside a string.",
		Complexity: "O(1) an operation", Handler: bitfieldCommand},
	{Name: "bitfield_ro", Kind: Read, Arity: -2, Flags: Fast,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "bitmap", Since: "6.0.0",
		Syntax:     "key [GET encoding offset:integer [GET encoding offset:integer ...]]",
		Summary:    "Reads integers of arbitrary width inside a string.",
		Complexity: "O(1) an operation", Handler: bitfieldROCommand},
}

// bitOffset parses the position of a bit in a string of at most maxString bytes.
func bitOffset(arg []byte) (int, error) {
	n, ok := ParseInt(arg)
	if !ok || n < 0 || n>>3 >= maxString {
		return 0, ErrBitOffset
	}
	return int(n), nil
}

// bitAt returns a bit of b, 0 past its end.
func bitAt(b []byte, at int) byte {
	if at>>3 >= len(b) {
		return 0
	}
	return b[at>>3] >> (7 - at&7) & 1
}

func setbitCommand(x *Call) error {
	at, err := bitOffset(x.Args[2])
	if err != nil {
		return err
	}
	bit, ok := ParseInt(x.Args[3])
	if !ok || bit&^1 != 0 {
		return ErrBit
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	b := stringBytes(e)
	old := bitAt(b, at)
	if at>>3 >= len(b) || old != byte(bit) {
		changed := byte(bit) << (7 - at&7)
		if at>>3 < len(b) {
			changed = b[at>>3] ^ 1<<(7-at&7)
		}
		if err := x.checkGap(e, at>>3); err != nil {
			return err
		}
		x.writeAt(e, at>>3, []byte{changed}, "setbit")
	}
	x.Out.Int(int64(old))
	return nil
}

func getbitCommand(x *Call) error {
	at, err := bitOffset(x.Args[2])
	if err != nil {
		return err
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Int(int64(bitAt(stringBytes(e), at)))
	return nil
}

// bitUnit parses BYTE or BIT and returns how many bits the indexes of a range count in.
func bitUnit(arg []byte) (int64, error) {
	switch {
	case isWord(arg, "BYTE"):
		return 8, nil
	case isWord(arg, "BIT"):
		return 1, nil
	}
	return 0, ErrSyntax
}

// bitcountCommand parses its options after the lookup: for a missing key Redis replies without
// looking at them.
func bitcountCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.Out.Int(0)
		return nil
	}
	b, unit, from, to := e.Bytes(), int64(8), int64(0), int64(-1)
	switch len(x.Args) {
	case 2:
	case 4, 5:
		var ok, ok2 bool
		from, ok = ParseInt(x.Args[2])
		to, ok2 = ParseInt(x.Args[3])
		if !ok || !ok2 {
			return ErrNotInteger
		}
		if from < 0 && to < 0 && from > to { // before the unit is checked, as on Redis
			x.Out.Int(0)
			return nil
		}
		if len(x.Args) == 5 {
			if unit, err = bitUnit(x.Args[4]); err != nil {
				return err
			}
		}
	default:
		return ErrSyntax
	}
	from, to, ok := clip(int64(len(b))*8/unit, from, to)
	if !ok {
		x.Out.Int(0)
		return nil
	}
	from, to = from*unit, (to+1)*unit-1
	x.spendBytes(int(to-from) / 8)
	x.Out.Int(int64(countBits(b, int(from), int(to))))
	return nil
}

// countBits counts the set bits of b from bit from to bit to, inclusive.
func countBits(b []byte, from, to int) (n int) {
	b, cut := b[from>>3:to>>3+1], to|7-to
	n -= bits.OnesCount8(b[0] &^ (0xff >> (from & 7)))
	n -= bits.OnesCount8(b[len(b)-1] & (1<<cut - 1))
	for ; len(b) >= 8; b = b[8:] {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		n += bits.OnesCount8(c)
	}
	return n
}

func bitposCommand(x *Call) error {
	bit, ok := ParseInt(x.Args[2])
	if !ok {
		return ErrNotInteger
	}
	if bit&^1 != 0 {
		return ErrBitWanted
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.Out.Int(-bit)
		return nil
	}
	b, unit, from, to := e.Bytes(), int64(8), int64(0), int64(-1)
	if len(x.Args) > 6 {
		return ErrSyntax
	}
	if len(x.Args) > 3 {
		if from, ok = ParseInt(x.Args[3]); !ok {
			return ErrNotInteger
		}
	}
	if len(x.Args) == 6 {
		if unit, err = bitUnit(x.Args[5]); err != nil {
			return err
		}
	}
	if len(x.Args) > 4 {
		if to, ok = ParseInt(x.Args[4]); !ok {
			return ErrNotInteger
		}
	}
	from, to, ok = clip(int64(len(b))*8/unit, from, to)
	if !ok {
		x.Out.Int(-1)
		return nil
	}
	from, to = from*unit, (to+1)*unit-1
	x.spendBytes(int(to-from) / 8)
	at := findBit(b, byte(bit), int(from), int(to))
	if at < 0 && bit == 0 && len(x.Args) < 5 {
		at = len(b) * 8 // without an end, zeros follow the string
	}
	x.Out.Int(int64(at))
	return nil
}

// findBit returns the position of the first bit that is wanted, from bit from to bit to of b,
// inclusive, or -1.
func findBit(b []byte, wanted byte, from, to int) int {
	flip := wanted - 1 // search for ones
	first := (b[from>>3] ^ flip) & (0xff >> (from & 7))
	i := from >> 3
	for first == 0 {
		if i++; i > to>>3 {
			return -1
		}
		for i+8 <= to>>3 && binary.LittleEndian.Uint64(b[i:]) == uint64(flip)*0x0101010101010101 {
			i += 8
		}
		first = b[i] ^ flip
	}
	at := i<<3 + bits.LeadingZeros8(first)
	if at > to {
		return -1
	}
	return at
}

func bitopCommand(x *Call) error {
	op, ok := x.bitOp(x.Args[1])
	switch {
	case !ok:
		return ErrSyntax
	case op.kind == bitNot && len(x.Args) != 4:
		return ErrBitNot
	case op.first != nil && len(x.Args) < 5:
		return Errorf("ERR BITOP %s must be called with at least two source keys.", op.name)
	}
	sources := make([][]byte, 0, len(x.Args)-3)
	size, sum := 0, 0
	for _, key := range x.Args[3:] {
		e, err := x.findString(key)
		if err != nil {
			return err
		}
		b := stringBytes(e)
		sources = append(sources, b)
		size, sum = max(size, len(b)), sum+len(b)
	}
	if x.spendBytes(sum + 2*size); x.Level >= LevelSecond { // read, built, stored
		x.spendBytes(size) // new memory costs twice
	}
	if op.kind == bitOne {
		x.spendBytes(3 * size) // a second string, gone through at the end
	}
	if x.overworked() {
		return ErrCommandWork
	}
	x.storeBits(op.apply(sources, size))
	x.Out.Int(int64(size))
	return nil
}

// bitKind says how an operation of BITOP goes over its sources.
type bitKind uint8

const (
	bitFold bitKind = iota // one after the other, by bitOp.join
	bitNot                 // there is only one
	bitOne                 // needs to know what was set twice
)

// bitOp is an operation of BITOP, on 8 bytes at a time.
type bitOp struct {
	name string
	kind bitKind
	join func(a, b uint64) uint64 // what is there with the next source
	// what the first source does to all others joined, or DIFF: it needs others
	first func(a, b uint64) uint64
}

func andBits(a, b uint64) uint64    { return a & b }
func orBits(a, b uint64) uint64     { return a | b }
func xorBits(a, b uint64) uint64    { return a ^ b }
func exceptBits(a, b uint64) uint64 { return a &^ b }
func inBits(a, b uint64) uint64     { return b &^ a }

var bitOps = []bitOp{
	{name: "AND", join: andBits},
	{name: "OR", join: orBits},
	{name: "XOR", join: xorBits},
	{name: "NOT", kind: bitNot},
	{name: "DIFF", join: orBits, first: inBits},
	{name: "DIFF1", join: orBits, first: exceptBits},
	{name: "ANDOR", join: orBits, first: andBits},
	{name: "ONE", kind: bitOne},
}

// firstBitOps is how many of bitOps the first release has.
const firstBitOps = 4

// bitOp returns the operation of BITOP that a word names.
func (x *Call) bitOp(word []byte) (op *bitOp, ok bool) {
	known := bitOps
	if x.Level < LevelSecond {
		known = bitOps[:firstBitOps]
	}
	for i := range known {
		if isWord(word, known[i].name) {
			return &known[i], true
		}
	}
	return nil, false
}

// apply returns the result, of size bytes. Sources that are shorter are padded with zeros.
func (op *bitOp) apply(sources [][]byte, size int) []byte {
	result := make([]byte, size)
	switch {
	case op.kind == bitNot:
		for i, c := range result[:copy(result, sources[0])] {
			result[i] = ^c
		}
	case op.kind == bitOne:
		onceSet(result, sources)
	case op.first != nil:
		copy(result, sources[1])
		foldBits(result, op.join, sources[2:])
		foldBits(result, op.first, sources[:1])
	default:
		copy(result, sources[0])
		foldBits(result, op.join, sources[1:])
	}
	return result
}

// foldBits joins strings with the result, which is as long as the longest. It visits no byte of
// their padding: only what the strings hold is charged.
func foldBits(result []byte, join func(a, b uint64) uint64, sources [][]byte) {
	end, clears := len(result), join(1, 0) == 0
	for _, s := range sources {
		if clears {
			end = min(end, len(s))
		}
		s = s[:min(end, len(s))]
		r := result
		for ; len(s) >= 8; r, s = r[8:], s[8:] {
			binary.LittleEndian.PutUint64(r, join(binary.LittleEndian.Uint64(r),
				binary.LittleEndian.Uint64(s)))
		}
		for i, c := range s {
			r[i] = byte(join(uint64(r[i]), uint64(c)))
		}
	}
	clear(result[end:])
}

// onceSet sets the bits of the result that exactly one of the strings has.
func onceSet(result []byte, sources [][]byte) {
	twice := make([]byte, len(result))
	for _, s := range sources {
		r, t := result, twice
		for ; len(s) >= 8; r, t, s = r[8:], t[8:], s[8:] {
			seen, now := binary.LittleEndian.Uint64(r), binary.LittleEndian.Uint64(s)
			binary.LittleEndian.PutUint64(t, binary.LittleEndian.Uint64(t)|seen&now)
			binary.LittleEndian.PutUint64(r, seen|now)
		}
		for i, c := range s {
			t[i] |= r[i] & c
			r[i] |= c
		}
	}
	foldBits(result, exceptBits, [][]byte{twice})
}

// storeBits sets the key x.Args[2] to a result of BITOP. An empty result removes the key.
func (x *Call) storeBits(result []byte) {
	if len(result) > 0 {
		x.set(x.Args[2], result, false, 0)
		return
	}
	x.deleteKey(x.Args[2])
}
