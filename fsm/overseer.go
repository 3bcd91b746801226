// The node measures how long scripts take: see commands.Overseer. Like the adapter it is no part of
// the machine.

package fsm

import (
	"runtime"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/threadtime"
)

// How long a script may take. Its whole budget is about 60 ms, and 250 ms on a slow processor.
const (
	// longRun is when a script becomes suspect. Until then, and for all others, nobody asks for
	// processor time: that is the thread's, which must stay the goroutine's meanwhile.
	longRun = 250 * time.Millisecond
	// slowRead is how much processor time after that a read may take, and slowRun makes an entry's
	// script slow: only this tells it from one whose process had to wait. A script that uses up its
	// budget on a slow processor must not be refused.
	slowRead = time.Second
	slowRun  = 4 * time.Second
)

// overseers are the two that an adapter gives its machine: of entries, and of what is in no log.
type overseer struct {
	a    *Adapter
	ends bool          // what takes too long
	most time.Duration // slowRead, slowRun
}

func (o overseer) Watch() commands.Stopwatch {
	return &stopwatch{began: time.Now(), ends: o.ends, most: o.most}
}

func (o overseer) Slow(s commands.SlowScript) {
	s.Ended = o.ends
	o.a.slow.Add(1)
	if o.a.slowScript != nil && (o.ends || !o.a.replaying) {
		o.a.slowScript(s)
	}
}

type stopwatch struct {
	began  time.Time
	ends   bool
	most   time.Duration // after longRun
	locked bool          // the goroutine has its thread
	before time.Duration // processor time of the thread by then
}

func (w *stopwatch) Look() (late bool) {
	switch {
	case w.locked:
		return w.ends && w.took() >= w.most
	case time.Since(w.began) >= longRun:
		runtime.LockOSThread()
		w.locked, w.before = true, threadtime.Now()
	}
	return false
}

func (w *stopwatch) took() time.Duration { return threadtime.Now() - w.before }

func (w *stopwatch) Stop() (tookMs int64) {
	if !w.locked {
		return 0
	}
	took := w.took()
	runtime.UnlockOSThread()
	if took < w.most {
		return 0
	}
	return (longRun + took).Milliseconds()
}
