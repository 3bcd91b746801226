// Hashes and strings where scenarios do not suffice: calls that write nothing, random replies,
// charged work.

package commands

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
)

// must runs a call that must not fail and returns its reply.
func (r *testRun) must(t *testing.T, call ...string) []byte {
	t.Helper()
	reply, _ := r.do(commandtest.Args(call...))
	if reply[0] == '-' {
		t.Fatalf("%q: %q", call, reply)
	}
	return bytes.Clone(reply)
}

func TestFieldsAndBitsThatChangeNothing(t *testing.T) {
	r := newTestRun()
	r.must(t, "HSET", "h", "f", "v", "g", "w")
	r.must(t, "HEXPIRE", "h", "100", "FIELDS", "1", "f")
	r.must(t, "SET", "s", "\xff\x00")
	changesNothing(t, r, [][]string{
		{"HEXPIRE", "h", "50", "GT", "FIELDS", "2", "f", "none"},
		{"HPEXPIRE", "h", "0", "NX", "FIELDS", "1", "f"},
		{"HEXPIRE", "none", "50", "FIELDS", "1", "f"},
		{"HEXPIREAT", "h", "1", "XX", "FIELDS", "1", "g"},
		{"HPERSIST", "h", "FIELDS", "2", "g", "none"}, {"HPERSIST", "none", "FIELDS", "1", "f"},
		{"HGETEX", "h", "FIELDS", "2", "f", "none"}, {"HGETEX", "h", "PERSIST", "FIELDS", "1", "g"},
		{"HGETEX", "h", "EX", "10", "FIELDS", "1", "none"},
		{"HGETDEL", "h", "FIELDS", "1", "none"}, {"HGETDEL", "none", "FIELDS", "1", "f"},
		{"HSETEX", "h", "FNX", "FIELDS", "2", "new", "1", "f", "2"},
		{"HSETEX", "h", "FXX", "FIELDS", "1", "new", "1"},
		{"HSETEX", "none", "FXX", "FIELDS", "1", "f", "1"},
		{"HSETEX", "none", "PX", "0", "FIELDS", "1", "f", "1"},
		{"SETBIT", "s", "0", "1"}, {"SETBIT", "s", "15", "0"}, {"SETRANGE", "s", "5", ""},
		{"SETRANGE", "none", "5", ""},
		{"BITFIELD", "s", "SET", "u8", "0", "255", "GET", "u8", "8"},
		{"BITFIELD", "s", "OVERFLOW", "FAIL", "INCRBY", "u8", "0", "1"},
		{"BITFIELD", "none", "GET", "u8", "0"},
		{"BITFIELD", "s", "OVERFLOW", "SAT", "INCRBY", "u8", "0", "1"},
		{"BITOP", "AND", "none", "other", "another"},
	})
}

// Every field is picked about equally often, from a small hash and a large one, with expired fields
// or without. Two picks of one script differ.
func TestRandomFields(t *testing.T) {
	for _, large := range []bool{false, true} {
		for _, dead := range []int{0, 5} {
			r := newTestRun()
			for i := range 10 + dead {
				r.must(t, "HSET", "h", fmt.Sprintf("f%d", i), "v")
			}
			if large {
				r.must(t, "HSET", "h", "f0", strings.Repeat("x", 100))
			}
			for i := range dead {
				r.must(t, "HPEXPIRE", "h", "1", "FIELDS", "1", fmt.Sprintf("f%d", 10+i))
			}
			r.ks.RestoreClock(100) // the fields are expired and not swept
			const times = 10_000
			counts := map[string]int{}
			x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 100, Seed: 7},
				Tx: &Tx{Proto: 2, Script: true}}
			for range times {
				out := &RESP{Proto: 2}
				x.Args, x.Out = commandtest.Args("HRANDFIELD", "h"), out
				r.table.Run(x)
				counts[string(out.Buf)]++
			}
			for reply, n := range counts {
				if n < times/10*8/10 || n > times/10*12/10 {
					t.Errorf("large %v, %d dead: %q was picked %d times of %d", large, dead, reply,
						n, times)
				}
			}
			if len(counts) != 10 {
				t.Errorf("large %v, %d dead: %d different fields, want 10", large, dead,
					len(counts))
			}
		}
	}
}

// A count returns that many different fields, at most all; a negative one exactly as many; too many
// are refused.
func TestRandomFieldsCounted(t *testing.T) {
	r := newTestRun()
	for i := range 20 {
		r.must(t, "HSET", "h", fmt.Sprintf("f%d", i), "value")
	}
	for count, want := range map[string]int{"0": 0, "1": 1, "7": 7, "19": 19, "20": 20, "1000": 20,
		"-7": 7, "-1000": 1000} {
		reply := r.must(t, "HRANDFIELD", "h", count)
		head, elements, _ := strings.Cut(string(reply), "\r\n")
		seen := map[string]bool{}
		for name := range strings.SplitSeq(elements, "\r\n") {
			if strings.HasPrefix(name, "f") {
				seen[name] = true
			}
		}
		if head != "*"+strconv.Itoa(want) || (count[0] != '-' && len(seen) != want) {
			t.Errorf("count %s: head %s, %d different fields", count, head, len(seen))
		}
	}
	for _, call := range [][]string{{"-9223372036854775807"}, {"-1048577", "WITHVALUES"}} {
		reply, _ := r.do(commandtest.Args(append([]string{"HRANDFIELD", "h"}, call...)...))
		if string(reply) != "-ERR value is out of range\r\n" {
			t.Errorf("%q: %q", call, reply)
		}
	}
}

// Writing into a long string charges a script for one copy, and for growth.
func TestWritesIntoStringsAreCharged(t *testing.T) {
	r := newTestRun()
	const size = 1 << 20
	r.must(t, "SETRANGE", "s", strconv.Itoa(size-1), "x")
	r.ks.Begin(1, r.ks.DB(0).Find([]byte("s")).Changed()+1)
	x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 1}, Tx: &Tx{Proto: 2, Script: true}}
	work := func(call ...string) int {
		before := x.Work
		x.Args, x.Out = commandtest.Args(call...), &RESP{Proto: 2}
		r.table.Run(x)
		return int(x.Work - before)
	}
	for _, c := range []struct {
		least, most int
		call        []string
	}{
		{size / bytesSpent, size / bytesSpent, []string{"SETBIT", "s", "5", "1"}},
		{0, 1, []string{"SETBIT", "s", "6", "1"}},
		{0, 1, []string{"BITFIELD", "s", "SET", "u8", "64", "7"}},
		{0, 1, []string{"GETBIT", "s", "6"}},
		{size / bytesSpent, 2*size/bytesSpent + 1,
			[]string{"SETRANGE", "s", strconv.Itoa(3 * size / 2), "y"}},
		{size / bytesSpent, 2 * size / bytesSpent, []string{"BITCOUNT", "s"}},
		{0, 1, []string{"BITCOUNT", "s", "0", "9"}},
		{size / bytesSpent, 2 * size / bytesSpent, []string{"BITPOS", "s", "1", "9"}},
		{3 * size / bytesSpent, 5 * size / bytesSpent, []string{"BITOP", "NOT", "d", "s"}},
	} {
		if n := work(c.call...); n < c.least || n > c.most {
			t.Errorf("%q costs %d, want %d to %d", c.call, n, c.least, c.most)
		}
	}
}
