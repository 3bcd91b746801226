// Package hll estimates how many different elements a set has, in the strings that Redis's PFADD
// makes: a HyperLogLog of 16384 registers.
//
// A string is a head of 16 bytes and the registers. The head is the text HYLL, the encoding (1
// byte), 3 bytes 0, and the estimate when it was last computed (8 bytes, little-endian; the highest
// bit says that the registers have changed since). The dense encoding has 6 bits a register, from
// the lowest bits of each byte on. The sparse encoding is runs of equal registers:
//
//	00nnnnnn           n+1 registers of 0
//	01nnnnnn nnnnnnnn  n+1 registers of 0
//	1vvvvvnn           n+1 registers of v+1
//
// What Add and Merge make equals what Redis makes of the same calls, byte for byte.
package hll
