// Requests that run once, whose replies are lost with their connection and with their node.

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestRepeatsElsewhere: a repeat through another node, and under the next leader, gets the first
// reply, and the counters rose once.
func TestRepeatsElsewhere(t *testing.T) {
	ps := startProcesses(t, 3)
	old, rest := leader(t, ps)
	calls := []struct {
		key, reply string
		words      []string
	}{
		{"a", "*2\r\n:1\r\n:1\r\n", []string{"INCREX", "a", "ID", "request-a"}},
		{"b", ":1\r\n", []string{"IDEMPOTENT", "request-b", "INCR", "b"}},
		{"c", ":1\r\n", []string{"IDEMPOTENT", "request-c", "EVAL",
			"return redis.call('INCR', KEYS[1])", "1", "c"}},
	}
	look := rest[0].client()
	ctx := context.Background()
	for _, call := range calls {
		lost := dialRaw(t, old.addr)
		if err := lost.Send(commandtest.Args(call.words...)); err != nil {
			t.Fatal(err)
		}
		_ = lost.Close() // the reply is lost
		wait.For(t, 10*time.Second, fmt.Sprint(call.words, " has run"), func() bool {
			return look.Get(ctx, call.key).Val() == "1"
		})
		if err := look.Incr(ctx, call.key).Err(); err != nil { // what runs again replies otherwise
			t.Fatal(err)
		}
	}
	repeat := func(p *process) {
		t.Helper()
		c := dialRaw(t, p.addr)
		for _, call := range calls {
			if got := c.call(call.words...); got != call.reply {
				t.Errorf("%s: %q, want %q", call.words, got, call.reply)
			}
			if got := c.call("GET", call.key); got != "$1\r\n2\r\n" {
				t.Errorf("%s is %q", call.key, got)
			}
		}
	}
	for _, p := range ps {
		repeat(p)
	}
	old.kill()
	wait.For(t, 20*time.Second, "a leader", func() bool {
		return look.Set(ctx, "there", 1, 0).Err() == nil
	})
	for _, p := range rest {
		repeat(p)
	}
}
