package keyspace

import "math/bits"

// deadlines are how many keys have a deadline, and the sum of these, which may exceed 64 bits.
type deadlines struct {
	n         int
	high, low uint64
}

func (d *deadlines) add(ms int64) {
	var carry uint64
	d.low, carry = bits.Add64(d.low, uint64(ms), 0)
	d.n, d.high = d.n+1, d.high+carry
}

func (d *deadlines) remove(ms int64) {
	var borrow uint64
	d.low, borrow = bits.Sub64(d.low, uint64(ms), 0)
	d.n, d.high = d.n-1, d.high-borrow
}

// mean returns the average deadline; 0 if there is none.
func (d *deadlines) mean() int64 {
	if d.n == 0 {
		return 0
	}
	mean, _ := bits.Div64(d.high, d.low, uint64(d.n))
	return int64(mean)
}
