// The page in a browser, through failures: make page.

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

const pageDir = "../../../testdata/page"

// TestPageInBrowser runs testdata/page/check.js, which looks at the page on phones and desktops, in
// dark and light, by keyboard, and with axe-core, while this test kills and starts nodes.
func TestPageInBrowser(t *testing.T) {
	if os.Getenv("COORDD_PAGE") == "" {
		t.Skip("run by make page")
	}
	for _, need := range []string{"/usr/bin/chromium",
		filepath.Join(pageDir, "node_modules/playwright-core")} {
		if _, err := os.Stat(need); err != nil {
			t.Skip("SKIPPED: ", err)
		}
	}
	ps := startProcesses(t, 3)
	fillForPage(t, ps[0])
	type shownNode struct {
		ID  string `json:"id"`
		URL string `json:"url"`
	}
	var nodes []shownNode
	for _, p := range ps {
		nodes = append(nodes, shownNode{p.id, "http://" + p.http})
	}
	text, _ := json.Marshal(nodes)
	images, err := filepath.Abs("../../../docs/images")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	go loadForPage(ctx, ps[0])
	cmd := exec.CommandContext(ctx, "node", "check.js")
	cmd.Dir = pageDir
	cmd.Env = append(os.Environ(), "COORDD_PAGE_NODES="+string(text),
		"COORDD_PAGE_IMAGES="+images)
	cmd.Stderr = &wait.Buffer{}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	password := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, ok := strings.CutPrefix(lines.Text(), "ASK ")
		if !ok {
			continue
		}
		if what == "password" {
			password = "right"
		}
		fmt.Fprintln(in, doForPage(t, ps, what, password))
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, cmd.Stderr)
	}
}

// takeSlot takes one of two slots of a semaphore.
const takeSlot = "if redis.call('zcard', KEYS[1]) < 2 then redis.call('zadd', KEYS[1], 1, " +
	"ARGV[1]) redis.call('pexpire', KEYS[1], 5000000) end return nil"

// fillForPage makes locks, windows and queues, one with a hostile name.
func fillForPage(t *testing.T, p *process) {
	t.Helper()
	c := p.client()
	ctx := t.Context()
	wait.For(t, 10*time.Second, "LOCKS", func() bool {
		return c.Do(ctx, "LOCKS", "LIST").Err() == nil
	})
	calls := [][]any{
		{"CONFIG", "SET", "slowlog-log-slower-than", 3000},
		{"SET", "lock:<img src=x onerror=alert(1)>\u202e", "\x1b[31mme", "NX", "PX", 4_000_000},
		{"EVAL", "if redis.call('exists', KEYS[1]) == 0 then redis.call('hincrby', KEYS[1], " +
			"ARGV[1], 1) redis.call('pexpire', KEYS[1], 25000000) end return nil", 1,
			"lock:report", "9b1de0c2-4f7a:41"},
		{"EVAL", takeSlot, 1, "semaphore:gpu", "render-1"},
		{"EVAL", takeSlot, 1, "semaphore:gpu", "render-2"}, {"ZREM", "semaphore:gpu", "render-1"},
		{"EVAL", takeSlot, 1, "semaphore:gpu", "render-3"},
		{"INCRBY", "window:sms:alice", 3}, {"PEXPIRE", "window:sms:alice", 3_600_000},
		{"CL.THROTTLE", "window:login:bob", 10, 5, 3600},
		{"RPUSH", "queue:mail", 1, 2, 3, 4}, {"XADD", "queue:jobs", "*", "a", "b"},
		{"EVAL", "local n = 0; for i = 1, 500000 do n = n + i end; return n", 0},
	}
	for i := 1; i <= 8; i++ {
		calls = append(calls, []any{"SET", fmt.Sprintf("lock:order:%d", i),
			fmt.Sprintf("worker-%d:7f3a", i), "NX", "PX", 3_000_000 + 40_000*i})
	}
	names := []string{"alice", "bob", "carol"}
	for i := range 40 {
		calls = append(calls, []any{"ZADD", "window:api:" + names[i%7%3], i, i})
	}
	for i := range 3 { // waiters, which wait for a message
		calls = append(calls, []any{"EVAL", "if redis.call('set', KEYS[1], ARGV[1], 'NX') then " +
			"return nil end return redis.call('pttl', KEYS[1])", 1, "lock:order:2",
			fmt.Sprintf("worker-%d:91c0", i)})
	}
	for _, name := range names {
		calls = append(calls, []any{"PEXPIRE", "window:api:" + name, 3_600_000})
	}
	for _, call := range calls {
		if err := c.Do(ctx, call...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(call, err)
		}
	}
}

// loadForPage takes and releases locks, in a database of their own, until ctx ends. Errors are
// expected: nodes die.
func loadForPage(ctx context.Context, p *process) {
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, ClientName: "orders",
		DB: 1})
	defer c.Close()
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprintf("lock:load:%d", i%7)
		c.SetNX(ctx, key, "me", 50*time.Millisecond)
		c.Incr(ctx, "count")
		if i%3 == 0 {
			c.Del(ctx, key)
		}
	}
}

// doForPage does what the script asks for.
func doForPage(t *testing.T, ps []*process, what, password string) string {
	t.Helper()
	byID := map[string]*process{}
	for _, p := range ps {
		byID[p.id] = p
	}
	leaderOf := func() *process {
		var found *process
		wait.For(t, 20*time.Second, "a leader", func() bool {
			o := &redis.Options{Addr: ps[0].addr, Password: password, MaxRetries: -1, Protocol: 3}
			c := redis.NewClient(o)
			defer c.Close()
			status, _ := c.Do(t.Context(), "RAFT", "STATUS").Result()
			m, _ := status.(map[any]any)
			id, _ := m["leader"].(string)
			found = byID[id]
			return found != nil
		})
		return found
	}
	verb, of, _ := strings.Cut(what, " ")
	var targets []*process
	switch of {
	case "leader":
		targets = []*process{leaderOf()}
	case "others":
		targets = ps[1:]
	default:
		if p := byID[of]; p != nil {
			targets = []*process{p}
		}
	}
	switch verb {
	case "leader":
		return leaderOf().id
	case "password":
		if err := ps[0].client().Do(t.Context(), "CONFIG", "SET", "requirepass",
			password).Err(); err != nil {
			t.Error(err)
		}
	case "reader":
		c := redis.NewClient(&redis.Options{Addr: ps[0].addr, Password: password, MaxRetries: -1})
		defer c.Close()
		if err := c.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">right", "+info",
			"+raft|status", "+raft|members", "+latency|histogram", "+ping").Err(); err != nil {
			t.Error(err)
		}
	case "kill":
		for _, p := range targets {
			p.kill()
		}
	case "start":
		for _, p := range targets {
			p.start()
		}
	}
	if len(targets) == 0 {
		return "done"
	}
	return targets[0].id
}
