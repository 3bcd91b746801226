// Command go checks lock, limiter and queue libraries of Go against the cluster that COORDD_ADDRS
// names. See the README beside this directory.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// checkLimit is how long one check may take.
const checkLimit = 40 * time.Second

// library is a module with its checks.
type library struct {
	module string
	checks []check
}

type check struct {
	name string
	run  func(ctx context.Context) error
}

var libraries = []library{
	goRedis, rueidisClient, rueidisLock, redigoClient, redSync, bsmLock, redisRate, uluLimiter,
	throttledLimiter, asynqQueue,
}

func main() {
	if len(addrs) == 0 {
		fmt.Fprintln(os.Stderr, "COORDD_ADDRS is not set")
		os.Exit(2)
	}
	out := json.NewEncoder(os.Stdout)
	for _, l := range libraries {
		name := strings.TrimPrefix(l.module, "github.com/")
		if only := os.Args[1:]; len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		for _, c := range l.checks {
			line := map[string]any{"library": name, "version": version(l.module), "check": c.name,
				"ok": true}
			if err := limited(c.run); err != nil {
				line["ok"], line["error"] = false, err.Error()
			}
			_ = out.Encode(line) // to a pipe whose reader waits for us
		}
	}
}

// limited runs a check, which fails when its time is over.
func limited(run func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), checkLimit,
		fmt.Errorf("not done after %v", checkLimit))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// version is that of the module in this program that a package belongs to.
func version(pkg string) string {
	info, _ := debug.ReadBuildInfo()
	for _, d := range info.Deps {
		if d.Path == pkg || strings.HasPrefix(pkg, d.Path+"/") {
			return strings.TrimPrefix(d.Version, "v")
		}
	}
	return ""
}

var addrs = strings.FieldsFunc(os.Getenv("COORDD_ADDRS"), func(r rune) bool { return r == ',' })

// addr is the node that the i-th caller talks to.
func addr(i int) string { return addrs[i%len(addrs)] }

// unique is a name that no other run uses.
func unique(name string) string { return name + ":" + rand.Text()[:12] }

// together runs n callers at once and joins their errors.
func together(n int, caller func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = caller(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// room counts how many callers are inside at a time.
type room struct{ inside, most, visits atomic.Int64 }

// visit stays for a moment.
func (r *room) visit() {
	n := r.inside.Add(1)
	for {
		most := r.most.Load()
		if n <= most || r.most.CompareAndSwap(most, n) {
			break
		}
	}
	r.visits.Add(1)
	time.Sleep(3 * time.Millisecond) // the others have to be able to come in, if they can
	r.inside.Add(-1)
}

// saw fails unless so many visits were made, with that many at a time at most.
func (r *room) saw(most, visits int64) error {
	if r.most.Load() != most || r.visits.Load() != visits {
		return fmt.Errorf("%d at a time in %d visits, want %d in %d", r.most.Load(),
			r.visits.Load(), most, visits)
	}
	return nil
}

// want fails unless what was got is what is wanted.
func want[T comparable](got, wanted T, what string) error {
	if got != wanted {
		return fmt.Errorf("%s: got %v, want %v", what, got, wanted)
	}
	return nil
}

// until waits until a condition holds.
func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}
