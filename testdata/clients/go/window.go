package main

// Sliding windows over a sorted set, three ways: several commands under a lock,
// one script, and one MULTI. In each the calls that contend must be counted
// exactly, whichever node they went to.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	windowLen     = 60 * time.Second
	windowCallers = 5
	windowCalls   = 4 // each caller's
)

// trimAt is the range of scores that have left the window at nowMs.
func trimAt(nowMs int64) string { return strconv.FormatInt(nowMs-windowLen.Milliseconds(), 10) }

// admit lets one call into the window if fewer than limit are in it. It is
// exact only while the caller holds a lock: it looks first and adds then.
func admit(ctx context.Context, c *redis.Client, window string, limit, nowMs int64) (bool, error) {
	if err := c.ZRemRangeByScore(ctx, window, "-inf", trimAt(nowMs)).Err(); err != nil {
		return false, err
	}
	n, err := c.ZCard(ctx, window).Result()
	if err != nil || n >= limit {
		return false, err
	}
	if err := c.ZAdd(ctx, window, redis.Z{Score: float64(nowMs),
		Member: token()}).Err(); err != nil {
		return false, err
	}
	return true, c.PExpire(ctx, window, windowLen).Err()
}

// windowUnderLock: five callers that back off with jitter share a limit of 8.
func windowUnderLock(ctx context.Context, e *env) error {
	const limit = 8
	lock, window, calls := e.key("lock"), e.key("window"), e.key("calls")
	admitted := make([]int, windowCallers)
	err := together(windowCallers, func(i int) error {
		c := e.node(i)
		for range windowCalls {
			err := e.locked(ctx, c, lock, 10*time.Second, func() error {
				in, err := admit(ctx, c, window, limit, time.Now().UnixMilli())
				if in {
					admitted[i]++
				}
				return errors.Join(err, raise(ctx, c, calls))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	sum := 0
	for _, n := range admitted {
		sum += n
	}
	if sum != limit {
		return fmt.Errorf("%d calls were admitted, the limit is %d", sum, limit)
	}
	if err := e.wantCount(ctx, calls, windowCallers*windowCalls); err != nil {
		return err
	}
	return e.windowSlides(ctx, e.key("sliding"))
}

// windowSlides: a call leaves the window when it is a window's length old. The
// time is the caller's own, so it can be told rather than waited for.
func (e *env) windowSlides(ctx context.Context, window string) error {
	t := time.Now().UnixMilli()
	steps := []struct {
		nowMs int64
		want  bool
	}{
		{t, true}, {t + 10, true}, {t + 20, false},
		{t + windowLen.Milliseconds() - 1, false},
		{t + windowLen.Milliseconds(), true}, {t + windowLen.Milliseconds() + 5, false},
	}
	for i, step := range steps {
		got, err := admit(ctx, e.node(i), window, 2, step.nowMs)
		if err != nil || got != step.want {
			return fmt.Errorf("call %d, %d ms in: admitted %t (%v), want %t", i, step.nowMs-t, got,
				err, step.want)
		}
	}
	return nil
}

// windowOneShot: the script that takes the lock, trims, adds, counts, sets the
// expiry and unlocks; nil when another holds the lock.
func windowOneShot(ctx context.Context, e *env) error {
	lock, window := e.key("lock"), e.key("window")
	call := func(i int, nowMs int64) (int64, bool, error) {
		return e.runInt(ctx, e.node(i), "window_oneshot", []string{lock, window},
			token(), 5000, nowMs, windowLen.Milliseconds(), token())
	}
	other := token()
	if got, err := take(ctx, e.node(0), lock, other, 30*time.Second); err != nil || !got {
		return fmt.Errorf("the free lock was not given: %t %v", got, err)
	}
	for i := range e.nodes {
		if n, isNil, err := call(i, time.Now().UnixMilli()); err != nil || !isNil {
			return fmt.Errorf("node %d counted %d while another held the lock (%v), want nil", i, n,
				err)
		}
	}
	if n, err := e.node(1).ZCard(ctx, window).Result(); err != nil || n != 0 {
		return fmt.Errorf("calls that got no lock left %d entries (%v)", n, err)
	}
	if freed, err := e.release(ctx, e.node(2), lock, other); err != nil || !freed {
		return fmt.Errorf("the holder could not release: %t %v", freed, err)
	}

	counts := make([][]int64, windowCallers)
	err := together(windowCallers, func(i int) error {
		for j := range windowCalls {
			n, isNil, err := call(i+j, time.Now().UnixMilli())
			if err != nil || isNil {
				return fmt.Errorf("a call got no count: nil %t, %v", isNil, err)
			}
			counts[i] = append(counts[i], n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.wantWindow(ctx, lock, window, slices.Concat(counts...)); err != nil {
		return err
	}
	if n, isNil, err := call(1, time.Now().Add(2*windowLen).UnixMilli()); err != nil || isNil ||
		n != 1 {
		return fmt.Errorf("two windows later the count is %d (nil %t, %v), want 1", n, isNil, err)
	}
	return e.scriptKnownEverywhere(ctx, lock)
}

// wantWindow checks what all callers together leave: each count from 1 up once,
// as many entries, an expiry, and a free lock, seen from every node.
func (e *env) wantWindow(ctx context.Context, lock, window string, counts []int64) error {
	slices.Sort(counts)
	for i, n := range counts {
		if n != int64(i+1) {
			return fmt.Errorf("the counts are %v, want each from 1 to %d once", counts, len(counts))
		}
	}
	if len(counts) != windowCallers*windowCalls {
		return fmt.Errorf("%d calls were counted, want %d", len(counts), windowCallers*windowCalls)
	}
	for i, c := range e.nodes {
		n, err := c.ZCard(ctx, window).Result()
		if err != nil || n != int64(len(counts)) {
			return fmt.Errorf("node %d sees %d entries (%v), want %d", i, n, err, len(counts))
		}
		left, err := c.PTTL(ctx, window).Result()
		if err != nil || left <= 0 || left > windowLen {
			return fmt.Errorf("node %d says the window of %v has %v left (%v)", i, windowLen, left,
				err)
		}
		if n, err := c.Exists(ctx, lock).Result(); err != nil || n != 0 {
			return fmt.Errorf("node %d still sees the lock (%d, %v)", i, n, err)
		}
	}
	return nil
}

// scriptKnownEverywhere: a script loaded through one node runs by its hash
// through the others, and an unknown hash is NOSCRIPT.
func (e *env) scriptKnownEverywhere(ctx context.Context, key string) error {
	source := "return '" + e.runID + "' .. KEYS[1]" // not known from another run
	hash, err := e.node(0).ScriptLoad(ctx, source).Result()
	if err != nil {
		return err
	}
	for i, c := range e.nodes {
		got, err := c.EvalSha(ctx, hash, []string{key}).Text()
		if err != nil || got != e.runID+key {
			return fmt.Errorf("EVALSHA on node %d of a script loaded on node 0: %q %v", i, got, err)
		}
		err = c.EvalSha(ctx, "00000000000000000000"+e.runID, []string{key}).Err()
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return fmt.Errorf("an unknown script's EVALSHA on node %d: %v, want NOSCRIPT", i, err)
		}
	}
	return nil
}

// windowMulti: as windowOneShot, with the lock taken first and all else in one
// MULTI that a WATCH ties to the lock.
func windowMulti(ctx context.Context, e *env) error {
	lock, window := e.key("lock"), e.key("window")
	counts := make([][]int64, windowCallers)
	err := together(windowCallers, func(i int) error {
		for j := range windowCalls {
			for attempt := 0; ; attempt++ {
				n, got, err := countByMulti(ctx, e.node(i+j), lock, window, nil)
				if err != nil {
					return err
				}
				if got {
					counts[i] = append(counts[i], n)
					break
				}
				if err := backOff(ctx, attempt); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := slices.Concat(counts...)
	if err := e.wantWindow(ctx, lock, window, all); err != nil {
		return err
	}
	// The lock changes hands, on another node, after the holder has looked: EXEC runs nothing.
	thief := token()
	_, got, err := countByMulti(ctx, e.node(0), lock, window, func() error {
		if err := e.node(1).Del(ctx, lock).Err(); err != nil {
			return err
		}
		taken, err := take(ctx, e.node(2), lock, thief, 30*time.Second)
		if err == nil && !taken {
			err = errors.New("the deleted lock was not given")
		}
		return err
	})
	if err != nil || got {
		return fmt.Errorf("EXEC ran though the watched lock had changed hands: %t %v", got, err)
	}
	if n, err := e.node(2).ZCard(ctx, window).Result(); err != nil || n != int64(len(all)) {
		return fmt.Errorf("an aborted MULTI left %d entries (%v), want %d", n, err, len(all))
	}
	if freed, err := e.release(ctx, e.node(0), lock, thief); err != nil || !freed {
		return fmt.Errorf("an aborted MULTI took the second owner's lock: %t %v", freed, err)
	}
	return nil
}

// countByMulti counts one call; false says that the lock was another's, before
// or meanwhile. between, if not nil, runs after the look and before the MULTI.
func countByMulti(ctx context.Context, c *redis.Client, lock, window string,
	between func() error) (int64, bool, error) {
	owner := token()
	if got, err := take(ctx, c, lock, owner, 10*time.Second); err != nil || !got {
		return 0, false, err
	}
	var card *redis.IntCmd
	err := c.Watch(ctx, func(tx *redis.Tx) error {
		holder, err := tx.Get(ctx, lock).Result()
		if err != nil {
			return err
		}
		if holder != owner {
			return redis.TxFailedErr
		}
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		nowMs := time.Now().UnixMilli()
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.ZRemRangeByScore(ctx, window, "-inf", trimAt(nowMs))
			p.ZAdd(ctx, window, redis.Z{Score: float64(nowMs), Member: owner})
			card = p.ZCard(ctx, window)
			p.PExpire(ctx, window, windowLen)
			p.Del(ctx, lock)
			return nil
		})
		return err
	}, lock)
	if errors.Is(err, redis.TxFailedErr) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return card.Val(), true, nil
}
