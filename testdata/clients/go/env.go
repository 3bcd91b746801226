package main

// What the scenarios stand on: the clients of the nodes, key names, scripts,
// callers that run together, and waiting as users of locks wait.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/testdata/clients/lua"
	"github.com/redis/go-redis/v9"
)

// clockSlack is what a lease may seem short by: a server counts whole ms.
const clockSlack = 2 * time.Millisecond

// env is the world of a run.
type env struct {
	nodes   []*redis.Client // the nodes of one cluster
	singles []*redis.Client // independent servers, for Redlock
	scripts map[string]*redis.Script
	runID   string

	prefix string // of the scenario that runs
	mu     sync.Mutex
	keys   map[string]bool // that the scenario has named
}

// newEnv reads the addresses from the environment and the scripts from the
// directory that all languages share. It opens no connection yet.
func newEnv() (*env, error) {
	e := &env{scripts: map[string]*redis.Script{}, runID: token(), keys: map[string]bool{}}
	for _, addr := range addrs("COORDD_ADDRS") {
		e.nodes = append(e.nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	if len(e.nodes) == 0 {
		return nil, errors.New(
			"COORDD_ADDRS must name the nodes, as in 127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381")
	}
	for _, addr := range addrs("COORDD_SINGLES") {
		e.singles = append(e.singles, redis.NewClient(&redis.Options{Addr: addr}))
	}
	files, err := fs.Glob(lua.Files, "*.lua")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		source, err := lua.Files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		e.scripts[strings.TrimSuffix(file, ".lua")] = redis.NewScript(string(source))
	}
	return e, nil
}

// addrs splits a comma-separated environment variable.
func addrs(name string) []string {
	return strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ',' || r == ' ' })
}

// node returns the client of node i, counted round and round.
func (e *env) node(i int) *redis.Client { return e.nodes[i%len(e.nodes)] }

// begin starts a scenario: its keys are its own, in this run.
func (e *env) begin(name string) {
	e.prefix = "scn:go:" + e.runID + ":" + name + ":"
	clear(e.keys)
}

// key makes a key name of this scenario, and remembers it for removeKeys.
func (e *env) key(name string) string {
	key := e.prefix + name
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys[key] = true
	return key
}

// removeKeys deletes what the scenario left, on every server.
func (e *env) removeKeys() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range append([]*redis.Client{e.nodes[0]}, e.singles...) {
		for key := range e.keys {
			if err := c.Del(ctx, key).Err(); err != nil {
				return fmt.Errorf("removing %s: %w", key, err)
			}
		}
	}
	return nil
}

func (e *env) close() {
	for _, c := range append(e.nodes, e.singles...) {
		c.Close()
	}
}

// run sends a shared script by EVALSHA, and by EVAL where the server does not
// know it yet: what go-redis's Script does.
func (e *env) run(ctx context.Context, c *redis.Client, script string, keys []string,
	args ...any) *redis.Cmd {
	return e.scripts[script].Run(ctx, c, keys, args...)
}

// runInt is run for scripts that answer a number; isNil tells the nil answer.
func (e *env) runInt(ctx context.Context, c *redis.Client, script string, keys []string,
	args ...any) (n int64, isNil bool, err error) {
	n, err = e.run(ctx, c, script, keys, args...).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, true, nil
	}
	return n, false, err
}

// together runs n callers at once, all started at the same moment, and returns
// their errors joined.
func together(n int, caller func(i int) error) error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = caller(i)
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// pause waits, unless the scenario's time is over.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("out of time: %w", ctx.Err())
	}
}

// backOff waits before try number attempt (from 0): exponentially longer up to
// 80 ms, with full jitter so that callers who collided do not collide again.
func backOff(ctx context.Context, attempt int) error {
	top := 5 * time.Millisecond << min(attempt, 4)
	return pause(ctx, time.Millisecond+time.Duration(mathrand.Int64N(int64(top))))
}

// token is a lock owner's name that nobody else has.
func token() string {
	b := make([]byte, 10)
	rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}

// raise adds one to a counter in the way that loses updates unless a lock
// keeps others out: it reads, and then writes.
func raise(ctx context.Context, c *redis.Client, key string) error {
	n, err := c.Get(ctx, key).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return c.Set(ctx, key, n+1, 0).Err()
}

// wantCount fails unless the counter holds exactly want, seen from every node.
func (e *env) wantCount(ctx context.Context, key string, want int64) error {
	for i, c := range e.nodes {
		got, err := c.Get(ctx, key).Int64()
		if err != nil {
			return fmt.Errorf("reading the counter on node %d: %w", i, err)
		}
		if got != want {
			return fmt.Errorf("the counter is %d on node %d, want exactly %d", got, i, want)
		}
	}
	return nil
}

// oneLine keeps a report of joined errors on one line, and short.
func oneLine(err error) string {
	s := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(s) > 400 {
		s = s[:400] + " …"
	}
	return s
}
