//go:build linux

// Values for command_costs_test.go whose elements are few and long, or differ at their ends alone,
// or have equal hashes.

package fsm

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// shortestLong is what a call on them must take to matter. It is less than on many elements, since
// so many more of them come in one request.
const shortestLong = 500 * time.Microsecond

// longElements returns calls that make values of long elements, under the keys of manyElements, and
// calls that were too cheap on them once.
func longElements(t *testing.T) (data [][]string, known []*costCall) {
	const few, size = 6, 2 << 20
	long := strings.Repeat("x", size)
	for i := range few {
		first, last := fmt.Sprint(i, long), fmt.Sprint(long, i) // where they differ
		data = append(data, []string{"RPUSH", "l1", first}, []string{"ZADD", "z1", "1", last},
			[]string{"ZADD", "z2", fmt.Sprint(i), first}, []string{"HSET", "h1", last, first},
			[]string{"HSET", "h2", first, last}, []string{"XADD", "x1", "*", first, last},
			[]string{"GEOADD", "g1", fmt.Sprint(i), "1", last})
	}
	data = append(data, []string{"SET", "k1", long}, []string{"SET", "k2", long + "y"})

	equal := sameHashes(t, 8<<10, 10)
	for i, name := range equal {
		data = append(data, []string{"SADD", []string{"s1", "s2"}[i%2], name})
	}
	const times = 1500
	push := []string{"RPUSH", "l2"}
	for range times {
		push = append(push, equal[0])
	}
	data = append(data, push)

	for _, words := range [][]string{
		{"SORT", "l1"}, {"SORT", "z1", "DESC"}, {"ZINTERCARD", "1", "z1", "LIMIT", "9"},
		{"GEOSEARCHSTORE", "d", "g1", "FROMLONLAT", "0", "0", "BYRADIUS", "20000", "km"},
		{"ZREMRANGEBYRANK", "z1", "1", "-2"}, {"ZPOPMIN", "z1"},
		{"ZRANGESTORE", "d", "z1", "0", "-1"}, {"ZRANGESTORE", "d", "z1", "1", "-1"},
		{"LREM", "l2", "0", equal[1]}, {"LPOS", "l2", equal[1]},
		{"LINSERT", "l2", "BEFORE", equal[1], "x"}, {"SINTER", "s1", "s2"},
		{"SINTERCARD", "2", "s1", "s2"}, {"SDIFFSTORE", "d", "s1", "s2"},
		{"ZINTERSTORE", "d", "2", "s1", "s2"}, {"ZUNIONSTORE", "d", "2", "s1", "s2"},
	} {
		known = append(known, &costCall{words: words})
	}
	return data, known
}

// sameHashes returns 1<<choices texts of a size with the same xxHash64. In each of its lanes a word
// can make up for another one before it.
func sameHashes(t *testing.T, size, choices int) []string {
	const (
		prime1 = 0x9E3779B185EBCA87
		prime2 = 0xC2B2AE3D27D4EB4F
		stripe = 32
	)
	round := func(lane, word uint64) uint64 {
		return bits.RotateLeft64(lane+word*prime2, 31) * prime1
	}
	inverse := uint64(1) // of prime2
	for range 6 {
		inverse *= 2 - prime2*inverse
	}
	text := make([]byte, size)
	lane, from := uint64(prime1), size-2*stripe*choices // of the first word of each stripe
	lane += prime2
	for at := 0; at < from; at += stripe {
		lane = round(lane, 0)
	}
	texts := []string{string(text)}
	for at := from; at < size; at += 2 * stripe {
		// 1 and then other come to what 0 and 0 do
		one, zero := round(lane, 1), round(lane, 0)
		other := (zero - one) * inverse
		lane = round(zero, 0)
		for _, text := range texts {
			changed := []byte(text)
			binary.LittleEndian.PutUint64(changed[at:], 1)
			binary.LittleEndian.PutUint64(changed[at+stripe:], other)
			texts = append(texts, string(changed))
		}
	}
	for _, text := range texts {
		if xxhash.Sum64String(text) != xxhash.Sum64String(texts[0]) {
			t.Fatal("the hashes differ")
		}
	}
	return texts
}
