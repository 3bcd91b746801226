//go:build linux

// Reads on connections that are idle most of the time. Clients that always have a request under way
// cannot see that a deposed leader, which has just been continued, answers what came meanwhile from
// its old state: their requests were sent before there was a newer one.

package lab

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

const (
	idleConns = 16  // of a client, spread over the nodes
	idleTurns = 300 // between two reads of a connection, on average: longer than an election
)

// idlers have one client that writes rising numbers, and others that read seldom.
type idlers struct {
	mu      sync.Mutex
	written map[string][]seen // by key, acknowledged, in their order
}

// idler is a connection with at most one read under way.
type idler struct {
	*conn
	waits bool
	key   string
	call  time.Duration
}

func idleReads(*work) player { return &idlers{written: map[string][]seen{}} }

func (d *idlers) turn(a *actor) {
	if a.seat == 0 {
		key := fmt.Sprintf("{idle}:%d", a.rnd.IntN(numberKeys))
		if e := a.raised(key); e.What == acked {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.written[key] = append(d.written[key], seen{a.turn + 1, e.Return})
		}
		return
	}
	all, _ := a.mem.([]*idler)
	if len(all) < idleConns {
		in := a.run.site.members()
		k, err := a.run.site.dial(in[a.rnd.IntN(len(in))], a.run.kind.tls)
		if err != nil {
			time.Sleep(refusedPause)
			return
		}
		all = append(all, &idler{conn: k})
	}
	still := all[:0]
	for _, k := range all {
		if d.proceed(a, k) {
			still = append(still, k)
		} else {
			_ = k.Close()
		}
	}
	a.mem = still
}

// proceed takes a reply if there is one, or perhaps sends a read. It reports whether the connection
// can go on.
func (d *idlers) proceed(a *actor, k *idler) bool {
	if !k.waits {
		if a.rnd.IntN(idleTurns) > 0 {
			return true
		}
		k.key, k.call = fmt.Sprintf("{idle}:%d", a.rnd.IntN(numberKeys)), a.run.now()
		_, err := k.Write(resp.AppendCommand(nil, "GET", k.key))
		k.waits = err == nil
		return err == nil
	}
	select {
	case v := <-k.replies:
		k.waits = false
		if v.IsError() {
			a.note(serverError(v.Text), a.run.now())
			return true
		}
		a.note(nil, a.run.now())
		n, _ := strconv.Atoi(v.Text)
		d.check(a.work, k, n)
	case <-k.broken:
		a.note(errBroken, a.run.now())
		return false
	default:
	}
	return true
}

// check compares the reply of a read with what was written before it was sent.
func (d *idlers) check(w *work, k *idler, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.written[k.key] {
		if s.at < k.call && s.n > n {
			w.problem("%s was %d for a read at %v, but %d was written at %v", k.key, n, k.call,
				s.n, s.at)
			return
		}
	}
}

func (*idlers) judge(w *work) {
	for _, a := range w.actors {
		all, _ := a.mem.([]*idler)
		for _, k := range all {
			_ = k.Close()
		}
	}
}
