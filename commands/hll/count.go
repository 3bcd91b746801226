package hll

import (
	"encoding/binary"
	"math"
)

// Count estimates how many different elements were added, by the improved raw estimator of Otmar
// Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which Redis uses.
//
// Each product is rounded by itself: some processors would add it unrounded, and nodes must agree.
func (r *Registers) Count() uint64 {
	var with [1 << width]int // registers with each value
	for _, v := range r {
		with[v]++
	}
	const m = float64(registers)
	z := float64(m * tau(float64((m-float64(with[rankBits+1]))/m)))
	for v := rankBits; v >= 1; v-- {
		z = float64(0.5 * float64(z+float64(with[v])))
	}
	z += float64(m * sigma(float64(float64(with[0])/m)))
	const halfInverseLog2 = 0.721347520444481703680
	n := math.Round(float64(float64(halfInverseLog2*m)*m) / z)
	if n >= largest { // processors convert what is too large, infinity too, to different integers
		return largest
	}
	return uint64(n)
}

// largest is the estimate of registers that are full, as Redis has it on x86.
const largest = 1 << 63

// tau corrects for registers that cannot rise any further.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for last := math.NaN(); z != last; {
		x, last, y = math.Sqrt(x), z, float64(y*0.5)
		z -= float64(float64((1-x)*(1-x)) * y)
	}
	return z / 3
}

// sigma corrects for registers that are still 0.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for last := math.NaN(); z != last; {
		x, last = float64(x*x), z
		z += float64(x * y)
		y += y
	}
	return z
}

// hash is MurmurHash64A with Redis's seed.
func hash(b []byte) uint64 {
	const (
		seed  = 0xadc83b19
		m     = 0xc6a4a7935bd1e995
		shift = 47
	)
	h := seed ^ uint64(len(b))*m
	for ; len(b) >= 8; b = b[8:] {
		k := binary.LittleEndian.Uint64(b) * m
		k ^= k >> shift
		h = (h ^ k*m) * m
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		h = (h ^ binary.LittleEndian.Uint64(last[:])) * m
	}
	h ^= h >> shift
	h *= m
	return h ^ h>>shift
}
