// The pages for supervisors while a node with many keys works hard, and while it loads them.

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/tier"
)

const (
	probedKeys = 2_000_000
	probeBound = time.Second // much less than supervisors wait for a page
)

// probe requests a page and returns the time that took.
func probe(p *process, path string) (code int, body string, took time.Duration) {
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	began := time.Now()
	resp, err := c.Get("http://" + p.http + path)
	if err != nil {
		return 0, err.Error(), time.Since(began)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), time.Since(began)
}

// TestProbesOfManyKeys requests /healthz and /readyz while a node with 2 million keys writes,
// snapshots, backs up and scans, and while it loads.
func TestProbesOfManyKeys(t *testing.T) {
	if !tier.Soaking() {
		t.Skip("run by make soak")
	}
	p := startProcesses(t, 1)[0]
	ctx := t.Context()
	began := time.Now()
	if err := setKeys(ctx, p, probedKeys); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d keys in %v", probedKeys, time.Since(began).Round(time.Second))

	var wg sync.WaitGroup
	work := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	work("writes", func() error { return setKeys(ctx, p, 300_000) })
	work("a snapshot", func() error { _, err := p.raft("SNAPSHOT"); return err })
	work("a backup", func() error { _, err := p.raft("BACKUP"); return err })
	work("a walk", func() error {
		c, cursor := p.client(), uint64(0)
		for {
			_, next, err := c.Scan(ctx, cursor, "*:1999999", 10_000).Result()
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
	asked, worst := 0, time.Duration(0)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; asked++ {
		path := []string{"/healthz", "/readyz"}[asked%2]
		code, body, took := probe(p, path)
		if worst = max(worst, took); code != http.StatusOK || took > probeBound {
			t.Errorf("%s took %v: %d %s", path, took, code, body)
		}
		select {
		case <-done:
			running = false
		default:
		}
	}
	t.Logf("at work: %d pages, the slowest after %v", asked, worst)

	probeLoading(t, p)
	if n, err := p.client().DBSize(ctx).Result(); err != nil || n != probedKeys {
		t.Error(n, err)
	}
}

// setKeys writes the first n keys.
func setKeys(ctx context.Context, p *process, n int) error {
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, ReadTimeout: time.Minute})
	defer c.Close()
	for i := 0; i < n; i += 1000 {
		if _, err := c.Pipelined(ctx, func(b redis.Pipeliner) error {
			for k := i; k < i+1000; k++ {
				b.Set(ctx, fmt.Sprint("key:", k), "v", 0)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// probeLoading restarts the node and requests both pages until it is ready.
func probeLoading(t *testing.T, p *process) {
	t.Helper()
	p.kill()
	p.start()
	began := time.Now()
	asked, worst, loading := 0, time.Duration(0), 0
	for up := false; ; asked++ {
		code, body, took := probe(p, "/healthz")
		switch {
		case code == http.StatusOK:
			up = true
		case !up: // the process has just started
			continue
		}
		if strings.Contains(body, "loading") {
			loading++
		}
		if worst = max(worst, took); code != http.StatusOK || took > probeBound {
			t.Errorf("/healthz took %v: %d %s", took, code, body)
		}
		code, body, took = probe(p, "/readyz")
		if worst = max(worst, took); code == 0 || took > probeBound {
			t.Errorf("/readyz took %v: %d %s", took, code, body)
		}
		if code == http.StatusOK {
			break
		}
		if time.Since(began) > 3*time.Minute {
			t.Fatal("not ready: ", body)
		}
	}
	if loading == 0 {
		t.Error("it was never loading")
	}
	t.Logf("ready %v after the start: %d pages, %d times loading, the slowest after %v",
		time.Since(began).Round(time.Millisecond), 2*asked, loading, worst)
}
