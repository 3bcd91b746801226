// Kill -9 of real processes, minorities, paused nodes: the promises of docs/guarantees.md.

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

func httpStatus(addr, path string) int {
	code, _ := httpGet(addr, path)
	return code
}

// httpText returns a page, empty unless the status is 200.
func httpText(addr, path string) string {
	code, text := httpGet(addr, path)
	if code != http.StatusOK {
		return ""
	}
	return text
}

func httpGet(addr, path string) (code int, text string) {
	c := http.Client{Timeout: time.Second}
	resp, err := c.Get("http://" + addr + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// writers write their own keys through every node until stopped, and remember what was
// acknowledged.
type writers struct {
	stop  context.CancelFunc
	wg    sync.WaitGroup
	mu    sync.Mutex
	acked []string
	other []error // errors that are neither of the two certain kinds
	count atomic.Int64

	failed  atomic.Int64 // requests without an acknowledgement
	failure error        // the first of them
}

func startWriters(ps []*process, each int) *writers {
	ctx, stop := context.WithCancel(context.Background())
	w := &writers{stop: stop}
	for i, p := range ps {
		for j := range each {
			c := p.client()
			w.wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key := fmt.Sprintf("w:%d:%d:%d", i, j, n)
					w.note(key, c.Set(context.Background(), key, n, 0).Err())
				}
			})
		}
	}
	return w
}

func (w *writers) note(key string, err error) {
	var re redis.Error
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.failed.Add(1) == 1 {
		w.failure = err
	}
	switch {
	case err == nil:
		w.acked = append(w.acked, key)
		w.count.Add(1)
	case errors.As(err, &re) &&
		!slices.Contains([]string{"CLUSTERDOWN", "UNKNOWN", "TRYAGAIN", "LOADING"}, errorWord(err)):
		w.other = append(w.other, err)
	}
}

// finish stops the writers and checks that every acknowledged key exists.
func (w *writers) finish(t *testing.T, c *redis.Client) {
	t.Helper()
	w.stop()
	w.wg.Wait()
	for _, err := range w.other {
		t.Errorf("the error does not say whether the write ran: %v", err)
	}
	if len(w.acked) == 0 {
		t.Fatal("no write was acknowledged: the test proves nothing")
	}
	for chunk := range slices.Chunk(w.acked, 1000) {
		n, err := c.Exists(context.Background(), chunk...).Result()
		if err != nil {
			t.Fatal(err)
		}
		if int(n) != len(chunk) {
			t.Fatalf("%d of %d acknowledged writes are missing", len(chunk)-int(n), len(chunk))
		}
	}
	t.Logf("%d acknowledged writes are all there", len(w.acked))
}

func TestLeaderKilled(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	old, rest := leader(t, ps)
	if ok, err := rest[0].client().SetNX(ctx, "lock", "me", 60*time.Second).Result(); err != nil ||
		!ok {
		t.Fatal(ok, err)
	}
	before, err := rest[0].client().PTTL(ctx, "lock").Result()
	if err != nil {
		t.Fatal(err)
	}
	w := startWriters(ps, 3)
	wait.For(t, 10*time.Second, "some writes", func() bool { return w.count.Load() > 300 })

	killed := time.Now()
	old.kill()
	for _, p := range rest {
		c := p.client()
		wait.For(t, 10*time.Second, "a write through "+p.id, func() bool {
			return c.Set(ctx, "after:"+p.id, 1, 0).Err() == nil
		})
		t.Logf("%s writes again %v after the kill", p.id, time.Since(killed))
	}
	c := rest[1].client()
	if ok, err := c.SetNX(ctx, "lock", "thief", time.Second).Result(); err != nil || ok {
		t.Fatalf("the lock was lost with its leader: %v %v", ok, err)
	}
	after, err := c.PTTL(ctx, "lock").Result()
	if err != nil || after <= 0 || after >= before {
		t.Fatalf("the lock's TTL did not continue: %v before, %v after, %v", before, after, err)
	}
	w.finish(t, c)

	old.start()
	old.waitReady()
	wait.For(t, 10*time.Second, "the old leader to catch up", func() bool {
		v, err := old.client().Get(ctx, "lock").Result()
		return err == nil && v == "me"
	})
}

func TestAllKilledAtOnce(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	began := time.Now()
	if ok, err := ps[0].client().SetNX(ctx, "lock", "me", 60*time.Second).Result(); err != nil ||
		!ok {
		t.Fatal(ok, err)
	}
	sha, err := ps[1].client().ScriptLoad(ctx, "return redis.call('get', KEYS[1])").Result()
	if err != nil {
		t.Fatal(err)
	}
	w := startWriters(ps, 3)
	wait.For(t, 10*time.Second, "some writes", func() bool { return w.count.Load() > 300 })
	for _, p := range ps {
		p.signal(syscall.SIGSTOP) // so that none sees another die
	}
	for _, p := range ps {
		p.kill()
	}
	for _, p := range ps {
		p.start()
	}
	for _, p := range ps {
		p.waitReady()
	}
	c := ps[2].client()
	if ok, err := c.SetNX(ctx, "lock", "thief", time.Second).Result(); err != nil || ok {
		t.Fatalf("the lock was lost: %v %v", ok, err)
	}
	ttl, err := c.PTTL(ctx, "lock").Result()
	if ran := time.Since(began); err != nil || ttl < 60*time.Second-ran || ttl > 60*time.Second {
		t.Fatalf("the lock has %v of a minute, %v after the request: %v", ttl, ran, err)
	}
	if v, err := c.EvalSha(ctx, sha, []string{"lock"}).Result(); err != nil || v != "me" {
		t.Fatal("the loaded script after the restart:", v, err)
	}
	w.finish(t, c)
}

func TestMinorityRefuses(t *testing.T) {
	ps := startProcesses(t, 3, "--leader-wait", "300ms")
	ctx := context.Background()
	if err := ps[0].client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// A leader and a follower: each kind of node is left alone once.
	for _, survivor := range []string{"master", "slave"} {
		lead, rest := leader(t, ps)
		last, killed := lead, rest
		if survivor == "slave" {
			last, killed = rest[0], []*process{lead, rest[1]}
		}
		for _, p := range killed {
			p.kill()
		}
		c := last.client()
		wait.For(t, 5*time.Second, "CLUSTERDOWN for a write", func() bool {
			return errorWord(c.Set(ctx, "k", "lost?", 0).Err()) == "CLUSTERDOWN"
		})
		if err := last.client().Get(ctx, "k").Err(); errorWord(err) != "CLUSTERDOWN" {
			// on its own connection: the other one is being closed
			t.Fatalf("a minority answered a linearizable read: %v", err)
		}
		if httpStatus(last.http, "/readyz") == 200 {
			t.Error("a node without a majority is ready")
		}
		for _, p := range killed {
			p.start()
		}
		for _, p := range ps {
			p.waitReady()
		}
		if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
			t.Fatal("after the others came back:", err)
		}
	}
}

// TestUnknownOutcome pauses the followers. The leader replies UNKNOWN for what is in its log, and
// not as if it had not run, and nothing contradicts that later.
func TestUnknownOutcome(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	lead, rest := leader(t, ps)
	c := lead.client()
	if err := c.Set(ctx, "k", "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// If an entry is in flight the write waits outside of the log, and its outcome is certain.
	still, last := 0, ""
	wait.For(t, 10*time.Second, "the log to stand still", func() bool {
		v, _ := lead.raft("STATUS")
		status, _ := v.(map[any]any)
		if now := fmt.Sprint(status["feature-level"], status["last-log"]); now != last {
			still, last = 0, now
		}
		still++
		return still > 20 && lead.level() == thisLevel
	})
	for _, p := range rest {
		p.signal(syscall.SIGSTOP)
	}
	err := c.Set(ctx, "k", "after", 0).Err()
	if errorWord(err) != "UNKNOWN" {
		t.Fatalf("a write that only the leader has: %v", err)
	}
	if err := c.Set(ctx, "k", "later", 0).Err(); errorWord(err) != "CLUSTERDOWN" {
		t.Fatalf("a write after the leader stepped down: %v", err)
	}
	for _, p := range rest {
		p.signal(syscall.SIGCONT)
	}
	wait.For(t, 10*time.Second, "the cluster to serve again", func() bool {
		return c.Get(ctx, "k").Err() == nil
	})
	if v := c.Get(ctx, "k").Val(); v != "before" && v != "after" {
		t.Fatalf("the key is %q: a write that was refused for certain has run", v)
	}
}
