package main

// The token bucket in Redisson's shape: settings in a hash, what was given out
// in a sorted set of packed members, assert() for what must not be asked.

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// bucket names the five keys of one client's view of a token bucket.
type bucket struct {
	e    *env
	keys []string
}

func (e *env) bucket(name, client string) bucket {
	b := bucket{e: e}
	for _, part := range []string{"", ":left", ":given", ":left:" + client, ":given:" + client} {
		b.keys = append(b.keys, e.key(name+part))
	}
	return b
}

// setRate returns whether this call was the one that set it.
func (b bucket) setRate(ctx context.Context, i int, rate int, interval time.Duration,
	perClient bool) (bool, error) {
	kind := 0
	if perClient {
		kind = 1
	}
	n, _, err := b.e.runInt(ctx, b.e.node(i), "bucket_set_rate", b.keys[:1], rate,
		interval.Milliseconds(), kind)
	return n == 1, err
}

// take asks for permits at a time of the caller's; refused, it tells how long
// to wait before asking again.
func (b bucket) take(ctx context.Context, i int, permits int,
	nowMs int64) (bool, time.Duration, error) {
	waitMs, isNil, err := b.e.runInt(ctx, b.e.node(i), "bucket_take", b.keys, permits, nowMs,
		token())
	return isNil, time.Duration(waitMs) * time.Millisecond, err
}

// assertError is how Redis 7 words an assert() that fails in a script.
func assertError(text string) *regexp.Regexp {
	return regexp.MustCompile(`^ERR user_script:\d+: ` + text +
		` script: [0-9a-f]{40}, on @user_script:\d+\.$`)
}

// tokenBucket: asserts reach the caller in Redis's words; callers who contend
// never get more than the rate; permits come back after the interval.
func tokenBucket(ctx context.Context, e *env) error {
	const rate, interval = 10, 60 * time.Second
	b := e.bucket("shared", "a")
	nowMs := time.Now().UnixMilli()
	_, _, err := b.take(ctx, 0, 1, nowMs)
	if want := assertError("the bucket has no rate yet"); err == nil ||
		!want.MatchString(err.Error()) {
		return fmt.Errorf("a bucket without a rate answered %q, want %s", fmt.Sprint(err), want)
	}
	if err := oneSetsRate(ctx, e, b, rate, interval); err != nil {
		return err
	}
	_, _, err = b.take(ctx, 1, rate+1, nowMs)
	if want := assertError("more permits wanted than the rate allows"); err == nil ||
		!want.MatchString(err.Error()) {
		return fmt.Errorf("asking for too much answered %q, want %s", fmt.Sprint(err), want)
	}

	const callers, tries = 5, 5
	got := make([]int, callers)
	err = together(callers, func(i int) error {
		permits := 1 + i%2 // some ask for one permit, some for two
		for j := range tries {
			given, wait, err := b.take(ctx, i+j, permits, time.Now().UnixMilli())
			if err != nil {
				return err
			}
			if given {
				got[i] += permits
			} else if wait <= 0 || wait > interval {
				return fmt.Errorf("a refused caller was told to wait %v, the interval is %v", wait,
					interval)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	sum := 0
	for _, n := range got {
		sum += n
	}
	// Callers of one permit ask on until nothing is left, so all are given.
	if sum != rate {
		return fmt.Errorf("%d permits were given, the rate is %d", sum, rate)
	}
	if left, err := e.node(2).Get(ctx, b.keys[1]).Result(); err != nil || left != "0" {
		return fmt.Errorf("%q permits are left (%v), want 0", left, err)
	}
	// All come back once the interval is over, to one caller that wants all.
	given, _, err := b.take(ctx, 2, rate, time.Now().Add(interval+time.Second).UnixMilli())
	if err != nil || !given {
		return fmt.Errorf("after the interval the permits were not back: %t %v", given, err)
	}
	return e.bucketPerClient(ctx)
}

// oneSetsRate: of several who set the rate at once one does, and its rate holds.
func oneSetsRate(ctx context.Context, e *env, b bucket, rate int, interval time.Duration) error {
	first := make([]bool, 5)
	err := together(len(first), func(i int) (err error) {
		first[i], err = b.setRate(ctx, i, rate, interval, false)
		return err
	})
	if err != nil {
		return err
	}
	n := 0
	for _, f := range first {
		if f {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%d callers set the rate, want exactly one", n)
	}
	settings, err := e.node(1).HGetAll(ctx, b.keys[0]).Result()
	if err != nil || len(settings) != 3 || settings["rate"] != strconv.Itoa(rate) ||
		settings["type"] != "0" {
		return fmt.Errorf("the bucket's settings are %v (%v)", settings, err)
	}
	return nil
}

// bucketPerClient: with type 1 every client has the whole rate, at told times.
func (e *env) bucketPerClient(ctx context.Context) error {
	const interval = 10 * time.Second
	a, b := e.bucket("each", "a"), e.bucket("each", "b")
	if first, err := a.setRate(ctx, 0, 2, interval, true); err != nil || !first {
		return fmt.Errorf("setting the rate: %t %v", first, err)
	}
	t := time.Now().UnixMilli()
	steps := []struct {
		who     bucket
		afterMs int64
		given   bool
		wait    time.Duration
	}{
		{a, 0, true, 0}, {a, 4000, true, 0}, {a, 5000, false, 5 * time.Second},
		{b, 5000, true, 0}, {b, 5001, true, 0}, {b, 5002, false, 9998 * time.Millisecond},
		{a, 9999, false, time.Millisecond}, {a, 10_000, true, 0},
		{a, 10_001, false, 3999 * time.Millisecond},
	}
	for i, step := range steps {
		given, wait, err := step.who.take(ctx, i, 1, t+step.afterMs)
		if err != nil || given != step.given || wait != step.wait {
			return fmt.Errorf("request %d: given %t, wait %v (%v), want %t, %v", i, given, wait,
				err, step.given, step.wait)
		}
	}
	return nil
}
