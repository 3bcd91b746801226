// Places as scores.

package geo

import "math"

// The places that a score can hold.
const (
	maxLon = 180.0
	maxLat = 85.05112878
)

// scoreLevel is the level of the cells that are places: each level halves columns and rows.
const scoreLevel = 26

// Place is a place on the earth, in degrees.
type Place struct{ Lon, Lat float64 }

// Valid reports whether a score can hold the place.
func (p Place) Valid() bool {
	return p.Lon >= -maxLon && p.Lon <= maxLon && p.Lat >= -maxLat && p.Lat <= maxLat
}

// Score returns the score of a valid place.
func (p Place) Score() float64 { return float64(p.cell(scoreLevel, maxLat).bits()) }

// cell is a rectangle of degrees. The world has 2^level columns and 2^level rows of them. On its
// upper edges a place is in one more.
type cell struct {
	column, row uint32
	level       uint
}

// cell returns the cell of a place in a world from -lat to lat.
func (p Place) cell(level uint, lat float64) cell {
	n := float64(uint64(1) << level)
	return cell{
		column: uint32(float64((p.Lon + maxLon) / (2 * maxLon) * n)),
		row:    uint32(float64((p.Lat + lat) / (lat + lat) * n)),
		level:  level,
	}
}

// bits returns column and row, a bit in turn.
func (c cell) bits() uint64 { return spread(c.column)<<1 | spread(c.row) }

// spread moves bit n to 2n.
func spread(n uint32) uint64 {
	x := uint64(n)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	x = (x | x<<2) & 0x3333333333333333
	return (x | x<<1) & 0x5555555555555555
}

// gather is the reverse of spread and ignores the bits in between.
func gather(x uint64) uint32 {
	x &= 0x5555555555555555
	x = (x | x>>1) & 0x3333333333333333
	x = (x | x>>2) & 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}

// scale returns where a share of a range from -most to most is.
func scale(index uint32, level uint, most float64) float64 {
	return float64(float64(index)/float64(uint64(1)<<level)*(most+most)) - most
}

// area returns the corners of a cell.
func (c cell) area() (low, high Place) {
	return Place{scale(c.column, c.level, maxLon), scale(c.row, c.level, maxLat)},
		Place{scale(c.column+1, c.level, maxLon), scale(c.row+1, c.level, maxLat)}
}

// PlaceOf returns the center of the cell that a score is. Any score is one for Redis on amd64.
func PlaceOf(score float64) Place {
	bits := whole(score)
	low, high := cell{gather(bits >> 1), gather(bits), scoreLevel}.area()
	return Place{
		max(min(float64((low.Lon+high.Lon)/2), maxLon), -maxLon),
		max(min(float64((low.Lat+high.Lat)/2), maxLat), -maxLat),
	}
}

// whole converts a score into an integer as amd64 does. Go leaves it to the processor what happens
// to those that are negative or too large.
func whole(score float64) uint64 {
	const half = 1 << 63
	switch {
	case score >= 2*half:
		return 0
	case score >= half:
		return uint64(int64(score-half)) + half
	case score >= -half:
		return uint64(int64(score))
	}
	return half
}

// Hash returns the geohash of a score, as other systems write it: 10 digits of 5 bits, of a world
// from pole to pole, and a 0.
func Hash(score float64) string {
	const digits = "0123456789bcdefghjkmnpqrstuvwxyz"
	bits := PlaceOf(score).cell(scoreLevel, 90).bits()
	var text [10]byte
	for i := range text {
		text[i] = digits[bits>>(47-5*i)&31]
	}
	return string(text[:]) + "0"
}

// radius is that of the earth, in meters.
const radius = 6372797.560856

// degree is a degree in radians, from π as a double.
const degree = float64(math.Pi) / 180

// Distance returns the distance of two places in meters.
func Distance(a, b Place) float64 {
	lat1, lat2 := float64(a.Lat*degree), float64(b.Lat*degree)
	u := sine(float64((lat2 - lat1) / 2))
	v := sine(float64((float64(b.Lon*degree) - float64(a.Lon*degree)) / 2))
	square := float64(u*u) + float64(float64(float64(cosine(lat1)*cosine(lat2))*v)*v)
	return float64(2 * radius * arcsine(math.Sqrt(min(square, 1))))
}
