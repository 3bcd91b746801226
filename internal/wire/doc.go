// Package wire reads and writes the fields of coordd's binary formats: log entries, requests,
// snapshot records, and the frames between nodes.
//
// A field is one of
//
//	byte      one byte
//	uint64    8 bytes, little-endian
//	uvarint   an unsigned number, 7 bits to a byte, low bits first
//	varint    a signed number, zigzag encoded as a uvarint
//	bytes     a uvarint length and that many bytes
//	bool      the byte 0 or 1
//	list      a uvarint count and that many bytes fields
//
// Fields follow each other without names, types or padding: reader and writer know the order. The
// formats themselves, their versions and their checksums belong to the packages that own them.
//
// # Reading
//
// A [Cursor] reads fields off the front of a slice. Input may be damaged or hostile, so no method
// panics, and no length is trusted: one that exceeds what is left fails the cursor. A failure is
// sticky: from then on every method returns zero and nothing is left. So callers read a whole
// record and check once, at the end:
//
//	c := wire.NewCursor(record)
//	id, name := c.Uvarint(), c.Text()
//	if !c.Done() {
//		return errCorrupt
//	}
//
// Take and Bytes return parts of the input, not copies. Count bounds the memory that a damaged
// count can claim. Fail lets a caller refuse a value as the cursor refuses a length.
//
// # Writing
//
// The Append functions extend a slice, as append does. Numbers have no wrappers here: use
// binary.AppendUvarint, binary.AppendVarint and binary.LittleEndian.AppendUint64.
//
// The package is pure: what it returns depends on its arguments alone, so commands/ and fsm/ may
// use it to apply the log.
package wire
