//go:build linux

// WINDOW.HIT on two windows at once: no window has more hits than its limit, and one that refuses
// is full, of hits that both have let through.

package lab

import (
	"strings"
	"time"
)

// hitWindow is one of the windows of a call.
type hitWindow struct {
	key   string
	limit int
	lasts time.Duration
}

var hitWindows = []hitWindow{
	{"{hits}:short", 4, 150 * time.Millisecond},
	{"{hits}:long", 12, 700 * time.Millisecond},
}

// hits is the workload.
type hits struct{}

func windowHits(*work) player { return hits{} }

func (hits) turn(a *actor) {
	words := []any{"WINDOW.HIT"}
	for _, w := range hitWindows {
		words = append(words, w.key, w.limit, "PX", w.lasts.Milliseconds())
	}
	if a.rnd.IntN(4) == 0 { // another who looks at both, and hits one
		words = append(words[:1], words[5:]...)
		a.do(call{key: "{hits}", op: "hit", args: []string{"long"}, ask: command(words...)})
	} else {
		a.do(call{key: "{hits}", op: "hit", args: []string{"both"}, ask: command(words...)})
	}
	time.Sleep(time.Duration(a.rnd.IntN(30)) * time.Millisecond)
}

// hitsWindow reports whether a call names a window.
func (e *event) hitsWindow(number int) bool { return number == 1 || e.Args[0] == "both" }

func (hits) judge(w *work) {
	for i, window := range hitWindows {
		var allowed []*event
		for _, e := range w.events {
			if e.What == acked && strings.HasPrefix(e.Reply, "[1 ") && e.hitsWindow(i) {
				allowed = append(allowed, e)
			}
		}
		most := func(d time.Duration) int { return int(d/window.lasts+1) * window.limit }
		if first, last, n := excess(allowed, most); n > 0 {
			w.problem("%s let %d calls through, from %v to %v", window.key, n, first, last)
		}
	}
	for _, e := range w.events {
		g := grantOf(e.Reply)
		if e.What == acked && e.Op == "hit" && g[0] == 0 && g[3] > 0 && w.run.quiet(e.Return) {
			judgeRefusal(w, e, int(g[3])-1)
		}
	}
}

// judgeRefusal counts what may fill the window that refused a call. A hit counts for the time of
// the window by the cluster clock, which may be late by what an entry takes, and that of failures,
// which is why they are not judged.
func judgeRefusal(w *work, refusal *event, number int) {
	if refusal.Args[0] == "long" {
		number = 1
	}
	const late = 20 * time.Millisecond
	window, may := hitWindows[number], 0
	for _, e := range w.events {
		let := e.What == unknown || e.What == acked && strings.HasPrefix(e.Reply, "[1 ")
		if let && e.hitsWindow(number) && e.Call <= refusal.Return &&
			e.ret() >= refusal.Call-window.lasts-late {
			may++
		}
	}
	if may < window.limit {
		w.problem("%s refused with %d of %d hits: %v", window.key, may, window.limit, refusal)
	}
}
