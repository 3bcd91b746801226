package wire

import (
	"encoding/binary"
	"math/bits"
)

// AppendBytes appends a bytes field.
func AppendBytes[S ~string | ~[]byte](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// AppendBool appends a bool.
func AppendBool(dst []byte, yes bool) []byte { return append(dst, BoolByte(yes)) }

// BoolByte is the byte of a bool.
func BoolByte(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// AppendList appends a list.
func AppendList(dst []byte, list [][]byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, b := range list {
		dst = AppendBytes(dst, b)
	}
	return dst
}

// UvarintLen returns the length of v as a uvarint, in bytes.
func UvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
