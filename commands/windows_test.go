// Property tests of windows: random calls against a model that remembers every hit.

package commands

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// newWindowRun is newLimitRun at the level of windows.
func newWindowRun() *limitRun {
	r := newLimitRun()
	r.level = FeatureLevel
	return r
}

// hits models a window: when each hit came, in ms.
type hits []int64

// count returns how many hits a window of ms that ends now has: a hit counts for ms milliseconds.
func (h hits) count(now, ms int64) (n int64) {
	for _, at := range h {
		if at <= now && now-at < ms {
			n++
		}
	}
	return n
}

// waitMs returns when so many more fit, searched by trial.
func (h hits) waitMs(now, limit, ms, cost int64) int64 {
	if cost > limit {
		return -1
	}
	for wait := int64(0); ; wait++ {
		if h.count(now+wait, ms)+cost <= limit {
			return wait
		}
	}
}

// modelWindow is a window of a call to the model.
type modelWindow struct {
	key             string
	limit, ms, cost int64
}

// windowModel has the hits by key.
type windowModel map[string]hits

// hit returns the reply of WINDOW.HIT, and counts the hit unless that peeks or is refused.
func (m windowModel) hit(now int64, windows []modelWindow, peek bool) (reply string) {
	wait, refused := int64(0), 0
	for i, w := range windows {
		ms := m[w.key].waitMs(now, w.limit, w.ms, w.cost)
		if ms != 0 && wait >= 0 && (ms < 0 || ms > wait) {
			wait, refused = ms, i+1
		}
	}
	left, allowed := int64(1<<62), 0
	if refused == 0 {
		allowed = 1
	}
	for _, w := range windows {
		n := w.limit - m[w.key].count(now, w.ms)
		if refused == 0 {
			n -= w.cost
		}
		left = min(left, max(n, 0))
		for range w.cost * int64(allowed) {
			if !peek {
				m[w.key] = append(m[w.key], now)
			}
		}
	}
	return fmt.Sprintf("*4\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", allowed, left, wait, refused)
}

// callOf returns the call, with COST 1 sometimes left out.
func callOf(g *rand.Rand, windows []modelWindow, peek bool) []string {
	call := []string{"WINDOW.HIT"}
	for _, w := range windows {
		call = append(call, w.key, fmt.Sprint(w.limit), "PX", fmt.Sprint(w.ms))
		if w.cost != 1 || g.IntN(2) == 0 {
			call = append(call, "COST", fmt.Sprint(w.cost))
		}
	}
	if peek {
		call = append(call, "PEEK")
	}
	return call
}

func TestWindowsAgainstEveryHit(t *testing.T) {
	seed := seeds.Of(t)
	allowed, refused := 0, 0
	for round := range uint64(60) {
		g := rand.New(rand.NewPCG(seed, round))
		r, m := newWindowRun(), windowModel{}
		var all []modelWindow
		for i := range 1 + g.IntN(4) {
			w := modelWindow{key: "w" + strconv.Itoa(i), limit: 1 + g.Int64N(12),
				ms: 1 + g.Int64N(200)}
			if g.IntN(3) == 0 { // one that has the large form
				w.limit = 100 + g.Int64N(200)
			}
			all = append(all, w)
		}
		for range 500 {
			if g.IntN(2) == 0 {
				r.nowMs += g.Int64N(1 + 2*all[0].ms/all[0].limit)
			}
			if g.IntN(80) == 0 {
				r.nowMs += g.Int64N(400)
			}
			windows := slices.Clone(all)
			g.Shuffle(len(windows), func(i, j int) {
				windows[i], windows[j] = windows[j], windows[i]
			})
			windows = windows[:1+g.IntN(len(windows))]
			for i := range windows {
				w := &windows[i]
				if w.cost = 1; g.IntN(3) == 0 {
					w.cost = 1 + g.Int64N(w.limit+w.limit/10+1)
				}
			}
			peek := g.IntN(4) == 0
			call := callOf(g, windows, peek)
			want := m.hit(r.nowMs, windows, peek)
			reply, changed := r.do(call...)
			if reply != want {
				t.Fatalf("round %d, at %d ms: %q\ncoordd %q\nmodel  %q", round, r.nowMs, call,
					reply, want)
			}
			if charged := reply[5] == '1' && !peek; charged != changed {
				t.Fatalf("round %d: %q replied %q and changed something: %v", round, call, reply,
					changed)
			} else if charged {
				allowed++
			} else if !peek {
				refused++
			}
			checkWindows(t, r, m, all)
		}
	}
	if allowed < 1000 || refused < 1000 {
		t.Errorf("%d hits were allowed and %d refused: too few to prove anything", allowed, refused)
	}
}

// checkWindows checks what the keys hold: never more than the limit, the hits that count, and until
// the newest has left.
func checkWindows(t *testing.T, r *limitRun, m windowModel, all []modelWindow) {
	t.Helper()
	for _, w := range all {
		e := r.ks.DB(0).Find([]byte(w.key))
		n := m[w.key].count(r.nowMs, w.ms)
		if e == nil {
			if n > 0 {
				t.Fatalf("%s has %d hits, and there is no key", w.key, n)
			}
			continue
		}
		newest := slices.Max(m[w.key])
		if size := int64(e.Collection().Len()); size < n || size > w.limit ||
			e.Deadline() != newest+w.ms {
			t.Fatalf("%s: %d members until %d, want %d to %d until %d", w.key, size, e.Deadline(),
				n, w.limit, newest+w.ms)
		}
	}
}

// Whatever the limit becomes, in either form, nothing passes that should not, and what a reply says
// about the time to wait holds.
func TestWindowsWithOtherLimits(t *testing.T) {
	seed := seeds.Of(t)
	for round := range uint64(8) {
		g := rand.New(rand.NewPCG(seed, round))
		r := newWindowRun()
		const ms = 1000
		limits := []int64{4, 200, maxExact - 1, maxExact, maxExact + 1, 20_000}
		for range 60 {
			r.nowMs += g.Int64N(200)
			limit := limits[g.IntN(len(limits))]
			cost := 1 + g.Int64N(1+limit)
			call := []string{"WINDOW.HIT", "w", fmt.Sprint(limit), "PX", fmt.Sprint(ms), "COST",
				fmt.Sprint(cost)}
			reply, changed := r.do(call...)
			allowed, left, wait := parseHit(t, reply)
			if allowed != changed || left < 0 || left > limit || allowed && left+cost > limit {
				t.Fatalf("%q: %q, changed: %v", call, reply, changed)
			}
			e := r.ks.DB(0).Find([]byte("w"))
			switch {
			case allowed && (e.Kind() == keyspace.KindZSet) != (limit <= maxExact):
				t.Fatalf("%q: the key is a %s", call, e.Kind())
			case allowed && limit <= maxExact && int64(e.Collection().Len()) > limit:
				t.Fatalf("%q: %d members", call, e.Collection().Len())
			case !allowed && (wait < 0) != (cost > limit):
				t.Fatalf("%q: %q", call, reply)
			case !allowed && wait > 0:
				start := r.nowMs
				for _, early := range []int64{1, 0} {
					r.nowMs = start + wait - early
					reply, _ := r.do(append(call, "PEEK")...)
					if got, _, _ := parseHit(t, reply); got != (early == 0) {
						t.Fatalf("%q: to wait %d ms, and %d ms before: %q", call, wait, early,
							reply)
					}
				}
			}
		}
	}
}

// parseHit parses a reply.
func parseHit(t *testing.T, reply string) (allowed bool, left, waitMs int64) {
	t.Helper()
	var one, which int64
	if _, err := fmt.Sscanf(reply, "*4\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", &one, &left, &waitMs,
		&which); err != nil {
		t.Fatalf("%q: %v", reply, err)
	}
	if (one == 1) != (which == 0) {
		t.Fatalf("%q", reply)
	}
	return one == 1, left, waitMs
}

// A hit counts for exactly as many milliseconds as the window has: at t, but not at t+window. Those
// of counters are gone with the key, which exists through the millisecond of its deadline.
func TestWindowBoundary(t *testing.T) {
	for limit, gone := range map[string]int64{"1": 5100, "10001": 5101} {
		r := newWindowRun()
		call := []string{"WINDOW.HIT", "w", limit, "PX", "100", "COST", limit}
		for _, nowMs := range []int64{5000, 5000, gone - 1, gone, gone} {
			r.nowMs = nowMs
			want := fmt.Sprintf("*4\r\n:0\r\n:0\r\n:%d\r\n:1\r\n", gone-nowMs)
			if nowMs == 5000 && r.index == 0 || nowMs == gone && r.index == 3 {
				want = "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n"
			} else if nowMs == gone {
				want = fmt.Sprintf("*4\r\n:0\r\n:0\r\n:%d\r\n:1\r\n", gone-5000)
			}
			if reply, _ := r.do(call...); reply != want {
				t.Errorf("limit %s at %d: %q, want %q", limit, nowMs, reply, want)
			}
		}
	}
}

// How far counters are off: no window has more than twice the limit, and with hits at random times
// at an even rate, what counters count differs from what came by a few percent.
func TestCountersAgainstEveryHit(t *testing.T) {
	seed := seeds.Of(t)
	for round := range uint64(6) {
		g := rand.New(rand.NewPCG(seed, round))
		r := newWindowRun()
		const limit, ms = 20_000, 1000
		bursts := round%2 == 1
		var at, cost []int64
		most, off := int64(0), int64(0)
		for range 1500 {
			step := 1 + g.Int64N(5)
			n := 1 + g.Int64N(limit/180) // about as many as the limit allows
			if bursts {
				n = 1 + g.Int64N(limit)
				step = g.Int64N(400)
			}
			r.nowMs += step
			reply, _ := r.do("WINDOW.HIT", "w", fmt.Sprint(limit), "PX", fmt.Sprint(ms), "COST",
				fmt.Sprint(n))
			allowed, left, _ := parseHit(t, reply)
			if allowed {
				at, cost = append(at, r.nowMs), append(cost, n)
			}
			total := int64(0)
			for i := len(at) - 1; i >= 0 && r.nowMs-at[i] < ms; i-- {
				total += cost[i]
			}
			most = max(most, total)
			if r.nowMs > 3*ms {
				off = max(off, limit-left-total, total-limit+left)
			}
		}
		t.Logf("bursts: %v, at most %d in a window, off by up to %d", bursts, most, off)
		switch {
		case most > 2*limit:
			t.Errorf("%d in a window of %d", most, limit)
		case !bursts && off > limit/8:
			t.Errorf("at an even rate the counters are off by %d of %d", off, limit)
		case most < limit/2:
			t.Errorf("only %d in a window", most)
		}
	}
}

// The keys of a call are found, whatever their names, and a user needs rights to each.
func TestKeysOfWindows(t *testing.T) {
	table := testTable()
	for call, want := range map[string]string{
		"WINDOW.HIT a 1 PX 1":                                 "a",
		"WINDOW.HIT a 1 PX 1 b 1 PX 1":                        "a b",
		"WINDOW.HIT a 1 PX 1 COST 5 b 1 PX 1 COST 5 PEEK":     "a b",
		"WINDOW.HIT COST 1 PX 1 PEEK 1 PX 1 ID 1 PX 1 PEEK":   "COST PEEK ID",
		"WINDOW.HIT a 1 PX 1 COST 5 PX 1 PX 1 PX 1 PX 1 ID x": "a PX PX",
		"WINDOW.HIT a x PX y b 1 PX 1 PEEK ID x":              "a b",
		"WINDOW.HIT a 1 PX 1 COST 5 PX 1000":                  "",
		"WINDOW.HIT a 1 PX 1 b 1 EX 1":                        "",
	} {
		args := commandtest.Args(strings.Fields(call)...)
		spec, err := table.Resolve(args)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		indexes, err := spec.KeyIndexes(args)
		for _, i := range indexes {
			got = append(got, string(args[i]))
		}
		if strings.Join(got, " ") != want || (err != nil) != (want == "") {
			t.Errorf("%s: keys %q, %v", call, got, err)
		}
	}
	users := acl.New(table.Catalog(FeatureLevel))
	for rule, want := range map[string][2]bool{
		"~a ~b": {true, true}, "~a": {true, false}, "~b": {false, false},
		"%R~* ~a": {true, false}, "%W~* ~a": {true, false}, "%RW~*": {true, true},
	} {
		with, _, err := users.Change([]byte("u"), 1,
			commandtest.Args(strings.Fields("on nopass +@all "+rule)...))
		if err != nil {
			t.Fatal(err)
		}
		for i, call := range []string{"WINDOW.HIT a 1 PX 1 PEEK",
			"WINDOW.HIT a 1 PX 1 COST 2 b 1 PX 1"} {
			args := commandtest.Args(strings.Fields(call)...)
			spec, _ := table.Resolve(args)
			if _, denied, _ := spec.Check(with.Get([]byte("u")), args); denied == want[i] {
				t.Errorf("a user with %s may %s: %v", rule, call, !denied)
			}
		}
	}
}
