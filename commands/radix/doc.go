// Package radix sorts large slices by numeric or string keys. The sort is stable and deterministic.
//
// Values may have a million elements. A comparison sort looks at about twenty pairs per element, in
// two places of memory each; a radix sort makes one pass per digit. It starts at the least
// significant digit (Knuth, The Art of Computer Programming 3, 5.2.5, algorithm R) and skips digits
// that all keys share. Strings are taken eight bytes at a time.
package radix
