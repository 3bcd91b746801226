// Package geo is the geometry of the GEO commands: places on the earth as scores of a sorted set,
// the distance between two, and the ranges of scores that hold what is near.
//
// A place is a cell of a grid of 2^26 columns of longitude and 2^26 rows of latitude, from -180 to
// 180 and from -85.05112878 to 85.05112878 degrees. Its score has 52 bits: those of the column and
// of the row in turn, the column's first. So the places of a larger cell have neighboring scores,
// and a search is the ranges of up to nine cells. Distances are those on a sphere.
//
// Results are Redis's, digit by digit: coordinates and scores always, distances but for the last
// bits of some, which Redis takes from the C library of its machine. Four decimals show these only
// for places nearly opposite each other.
//
// # The same on every node
//
// Scripts may store distances, and searches do, so every processor must compute the same bits.
// Sums, products, quotients and square roots are rounded in one way everywhere, and math.FMA is
// exact everywhere. Two things are not, so this package uses neither:
//
//   - Compilers for arm64, ppc64, riscv64 and s390x fuse a product and a sum into one operation
//     unless a conversion rounds the product. Every product here has one, and every quotient by a
//     power of two, which compilers make a product; package fsm's purity test sees to it.
//   - math.Sin, Cos and Asin are assembly on s390x, and their Go code has sums that may be fused
//     elsewhere. trigonometry.go, which is older than package libm, replaces them. What it
//     computes is the rounded result in all but one of some thousands of cases, but nodes agree
//     because each does the same operations.
package geo
