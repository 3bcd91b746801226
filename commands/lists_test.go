// Lists and SORT where scenarios do not suffice: notifications, blocking, calls that change
// nothing, bounds.

package commands

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
)

func TestListNotificationsAreThoseOfRedis(t *testing.T) {
	r := rand.New(rand.NewPCG(seeds.Of(t), 6))
	pick := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	key := func() string { return pick("l1", "l2", "l3", "wrong") }
	element := func() string { return pick("1", "2", "3", "a") }
	position := func() string { return strconv.Itoa(r.IntN(9) - 4) }
	end := func() string { return pick("LEFT", "RIGHT") }
	compareNotifications(t, func() []string {
		switch r.IntN(12) {
		case 0, 1, 2:
			return []string{pick("LPUSH", "RPUSH", "LPUSHX", "RPUSHX"), key(), element(), element()}
		case 3:
			return []string{pick("LPOP", "RPOP"), key()}
		case 4:
			return []string{pick("LPOP", "RPOP"), key(), position()}
		case 5:
			return []string{pick("LMPOP"), "2", key(), key(), end(), "COUNT",
				strconv.Itoa(1 + r.IntN(5))}
		case 6:
			return []string{"LINSERT", key(), pick("BEFORE", "AFTER"), element(), element()}
		case 7:
			return []string{"LSET", key(), position(), element()}
		case 8:
			return []string{"LREM", key(), position(), element()}
		case 9:
			return []string{"LTRIM", key(), position(), position()}
		case 10:
			return []string{"LMOVE", key(), key(), end(), end()}
		default:
			if r.IntN(3) == 0 {
				return []string{"SET", "wrong", "type"}
			}
			return []string{"SORT", key(), pick("ALPHA", "ASC"), "LIMIT", "0", position(), "STORE",
				key()}
		}
	})
}

func TestListCallsThatChangeNothing(t *testing.T) {
	r := newTestRun()
	r.do(commandtest.Args("RPUSH", "l", "b", "a"))
	changesNothing(t, r, [][]string{
		{"LPUSHX", "none", "a"}, {"LPOP", "none"}, {"RPOP", "none", "3"}, {"LPOP", "l", "0"},
		{"LPOP", "l", "x"}, {"LMPOP", "1", "none", "LEFT"},
		{"LINSERT", "l", "BEFORE", "none", "x"}, {"LINSERT", "none", "AFTER", "a", "x"},
		{"LSET", "l", "5", "x"}, {"LSET", "none", "0", "x"},
		{"LREM", "l", "0", "none"}, {"LREM", "none", "0", "a"}, {"LTRIM", "none", "0", "1"},
		{"LMOVE", "none", "l", "LEFT", "LEFT"},
		{"RPOPLPUSH", "none", "l"}, {"SORT", "l", "ALPHA"}, {"SORT", "l", "STORE", "d"},
		{"SORT", "none", "STORE", "none"},
		{"BLPOP", "none", "1"}, {"BLMOVE", "none", "l", "LEFT", "LEFT", "1"},
		{"BLMPOP", "1", "1", "none", "LEFT"},
	})
}

// tried runs a call that may wait, and returns its timeout.
func (r *testRun) tried(t *testing.T, tx *Tx,
	call ...string) (reply string, timeoutMs int64, waits bool) {
	t.Helper()
	r.index++
	r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
	defer r.ks.End()
	tx.Proto = 2
	out := &RESP{Proto: 2}
	r.table.Run(&Call{Env: &Env{Keyspace: r.ks, ClockMs: 1}, Tx: tx,
		Args: commandtest.Args(call...), Out: out})
	timeoutMs, again, waits := CutBlock(out.Buf)
	if waits && string(again) != "*0\r\n" {
		t.Errorf("%q waits to run again as %q", call, again)
	}
	return string(out.Buf), timeoutMs, waits
}

func TestListsWait(t *testing.T) {
	const null = "*-1\r\n"
	for _, c := range []struct {
		call   string
		waitMs int64
		atOnce string // in a transaction, which never waits
		woken  string // when l and dst are there, and wrong has another type
	}{
		{"BLPOP none l 0", 0, null, "*2\r\n$1\r\nl\r\n$1\r\na\r\n"},
		{"BRPOP l 1.5", 1500, null, "*2\r\n$1\r\nl\r\n$1\r\nb\r\n"},
		{"BRPOP wrong l 0.0001", 1, null, "*2\r\n$1\r\nl\r\n$1\r\nb\r\n"},
		{"BLMPOP 0.01 3 none wrong l LEFT COUNT 5", 10, null,
			"*2\r\n$1\r\nl\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
		{"BLMOVE l dst LEFT RIGHT 100", 100_000, "$-1\r\n", "$1\r\na\r\n"},
		{"BRPOPLPUSH l dst 0", 0, "$-1\r\n", "$1\r\nb\r\n"},
		{"BRPOPLPUSH l wrong 0", 0, "$-1\r\n", "-" + string(ErrWrongType) + "\r\n"},
	} {
		r := newTestRun()
		call := strings.Fields(c.call)
		if reply, ms, waits := r.tried(t, &Tx{}, call...); !waits || ms != c.waitMs {
			t.Errorf("%s waits %d ms (%v), want %d; the reply is %q", c.call, ms, waits, c.waitMs,
				reply)
		}
		if reply, _, waits := r.tried(t, &Tx{Multi: true}, call...); waits || reply != c.atOnce {
			t.Errorf("%s in a transaction gives %q, want %q", c.call, reply, c.atOnce)
		}
		r.must(t, "SET", "wrong", "type")
		if _, ms, waits := r.tried(t, &Tx{Woken: true}, call...); !waits || ms != c.waitMs {
			t.Errorf("%s, woken for nothing, waits %d ms (%v), want %d", c.call, ms, waits,
				c.waitMs)
		}
		r.must(t, "RPUSH", "l", "a", "b")
		r.must(t, "RPUSH", "dst", "x")
		if reply, _, _ := r.tried(t, &Tx{Woken: true}, call...); reply != c.woken {
			t.Errorf("%s, woken, gives %q, want %q", c.call, reply, c.woken)
		}
	}
}

func TestKeyPositionsOfSort(t *testing.T) {
	table := testTable()
	for call, want := range map[string][]int{
		"SORT l":                             {1},
		"SORT l STORE d":                     {1, 3},
		"SORT l STORE a STORE b":             {1, 5},
		"SORT l BY STORE GET STORE":          {1},
		"SORT l LIMIT STORE 1 store d DESC":  {1, 6},
		"SORT l BY w_* GET # LIMIT 0 1 ASC":  {1},
		"SORT l STORE":                       {1},
		"SORT_RO l BY w_* GET STORE":         {1},
		"LMPOP 2 a b LEFT":                   {2, 3},
		"BLMPOP 0 2 a b LEFT":                {3, 4},
		"BLPOP a b 0":                        {1, 2},
		"BLMOVE a b LEFT LEFT 0":             {1, 2},
		"BRPOPLPUSH a b 0":                   {1, 2},
		"LPUSH a b c":                        {1},
		"LINSERT a BEFORE b c":               {1},
		"SORT l GET x GET y STORE d ALPHA":   {1, 7},
		"SORT l LIMIT 0 STORE STORE another": {1, 6},
	} {
		args := commandtest.Args(strings.Fields(call)...)
		got, err := table.Get(args[0]).KeyIndexes(args)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has its keys at %v (%v), want %v", call, got, err, want)
		}
	}
}

// BY and GET cannot make a long reply, or much work, from little data.
func TestSortIsBounded(t *testing.T) {
	r := newTestRun()
	elements := slices.Repeat([]string{"x"}, 1000)
	r.must(t, append([]string{"RPUSH", "l"}, elements...)...)
	r.must(t, "SET", "big_x", strings.Repeat("1", maxSorted/1000-100))
	if reply, _ := r.do(commandtest.Args("SORT", "l", "ALPHA", "GET", "big_*")); reply[0] != '*' {
		t.Errorf("below the limit: %.80q", reply)
	}
	r.must(t, "APPEND", "big_x", strings.Repeat("1", 200))
	manyGets := slices.Repeat([]string{"GET", "none"}, maxSorted/resultSize/1000+1)
	for _, options := range [][]string{
		{"BY", "none", "GET", "big_*"}, {"ALPHA", "BY", "big_*"},
		{"ALPHA", "BY", strings.Repeat("long", 20000) + "*"},
		append([]string{"ALPHA"}, manyGets...), {"ALPHA", "GET", "big_*", "STORE", "d"},
	} {
		reply, _ := r.do(commandtest.Args(append([]string{"SORT", "l"}, options...)...))
		if string(reply) != "-"+string(errSortSize)+"\r\n" {
			t.Errorf("SORT l %.50q gives %.80q", options, reply)
		}
	}
}

// Searches in lists and SORT are charged to the script that calls them.
func TestWorkOfListsIsCharged(t *testing.T) {
	r := newTestRun()
	const n = 10_000
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprint(i)
	}
	r.must(t, append([]string{"RPUSH", "l"}, elements...)...)
	for _, c := range []struct {
		call  string
		least uint64
	}{
		{"LPOS l none", n / searched}, {"LPOS l " + elements[n/2], n / 2 / searched},
		{"LPOS l 5 MAXLEN 10", 0},
		{"LINSERT l BEFORE none x", n / searched}, {"LREM l 0 none", n / searched},
		{"SORT l LIMIT 0 1", n * 5}, {"SORT l BY w_* LIMIT 0 1", n * 8},
	} {
		env := &Env{Keyspace: r.ks, ClockMs: 1}
		r.table.Run(&Call{Env: env, Tx: &Tx{Proto: 2},
			Args: commandtest.Args(strings.Fields(c.call)...), Out: Discard{}})
		if env.Work < c.least || env.Work > 4*c.least+10 {
			t.Errorf("%s costs %d, want %d or a little more", c.call, env.Work, c.least)
		}
	}
}
