package main

// This file takes and releases locks.

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"time"
)

const (
	lockers     = 2                // callers that contend for the same locks
	sharedLocks = 3                // lock:shared:0 and so on
	lease       = 30 * time.Second // longer than any outage: a lock that ends is lost
	keepPause   = 200 * time.Millisecond
	maxPause    = 40 * time.Millisecond // between two tries of a lock that is held, and two uses
)

// takeLocks contends for shared locks, and keeps one of its own.
func takeLocks(c client, _, name string) {
	l := locker{client: c, ctx: context.Background()}
	say("version", version(c.module))
	say("denied", c.set(l.ctx, "other:1", "x"))
	for i := range lockers {
		l.start(func(n int) {
			l.use(fmt.Sprintf("lock:shared:%d", (i+n)%sharedLocks))
			pause()
		})
	}
	own := "lock:own:" + name
	token := l.acquire(own)
	l.start(func(int) {
		l.renew(own, token)
		say("kept", always(func() (int64, error) { return c.fence(l.ctx, own) }))
		time.Sleep(keepPause)
	})
	l.wait()
}

// locker is a client that takes locks, and repeats what fails.
type locker struct {
	client
	callers
	ctx context.Context
}

// use takes a lock, raises the lock's counter in the way that loses updates unless a lock keeps
// others out, renews the lease, and releases the lock.
func (l *locker) use(lock string) {
	token, counter := l.acquire(lock), lock+":counter"
	fence := always(func() (int64, error) { return l.fence(l.ctx, lock) })
	count := 1 + always(func() (int64, error) {
		text, err := l.get(l.ctx, counter)
		if err != nil || text == "" {
			return 0, err
		}
		return strconv.ParseInt(text, 10, 64)
	})
	always(func() (any, error) { return nil, l.set(l.ctx, counter, fmt.Sprint(count)) })
	l.renew(lock, token)
	say("held", lock, fence, count)
	always(func() (int64, error) { return l.script(l.ctx, "lock_release", lock, token) })
}

// acquire waits for a lock and returns the token in it. A try whose reply was lost may have
// succeeded, so it looks whose the lock is, and renews its own: the lease runs since that try.
func (l *locker) acquire(lock string) (token string) {
	token = crand.Text()
	for {
		ok := always(func() (bool, error) { return l.setNX(l.ctx, lock, token, lease) })
		if ok {
			return token
		}
		if token == always(func() (string, error) { return l.get(l.ctx, lock) }) {
			l.renew(lock, token)
			return token
		}
		pause()
	}
}

// pause waits for a moment, so that others get the lock too.
func pause() { time.Sleep(rand.N(maxPause)) }

// renew begins the lease of a held lock again.
func (l *locker) renew(lock, token string) {
	n := always(func() (int64, error) {
		return l.script(l.ctx, "lock_renew", lock, token, fmt.Sprint(lease.Milliseconds()))
	})
	if n != 1 {
		say("lost", lock)
	}
}

// always repeats a call until it succeeds.
func always[T any](call func() (T, error)) T {
	for {
		v, err := call()
		if err == nil {
			return v
		}
		say("err", err)
		time.Sleep(errorPause)
	}
}

// version returns that of a module in this program.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return "?"
}
