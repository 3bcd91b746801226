// Package libm has the elementary functions of C's math library, with the same results on every
// processor and in every build. Scripts store results, so nodes must compute equal ones; those of
// package math differ between processors and between versions of Go.
//
// Each result is the exact one, rounded to the nearest number, ties to even. Special values are
// those of C's Annex F.
//
// # Method
//
// A function reduces its argument with tables, sums a short series in fixed-point numbers of 128
// bits, and rounds once. All of that is integer arithmetic, which no compiler fuses or reorders.
// The error stays below 2^-112 of the result, so the rounding is certain unless the exact result is
// about as near to the middle of two numbers. Then the function starts again with numbers of 400
// bits, from package math/big: Ziv's strategy ("Fast evaluation of elementary mathematical
// functions with correctly rounded last bit", ACM TOMS 17, 1991).
//
// Arguments of sine, cosine and tangent are reduced by as many bits of 2/π as matter, as Payne and
// Hanek do ("Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983). A power
// that is a number of few bits is computed as a product of integers, since no precision shows that
// a result is exact.
//
// Each function also reports whether its arguments were hard: whether it needed the second attempt,
// which takes about a hundred times as long. That depends on the arguments alone. A random argument
// is hard once in 2^56 cases; who looks for them finds some.
package libm
