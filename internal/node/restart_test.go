package node

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/sample"
	"github.com/coordd/coordd/internal/tests/wait"
)

// state is what a client can see of what sample.Fill wrote, the fencing token of the lock included.
func state(t *testing.T, c *redis.Client, prefix string) []any {
	t.Helper()
	ctx := context.Background()
	var all []any
	for _, cmd := range [][]any{
		{"GET", prefix + ":lock"}, {"FENCE", prefix + ":lock"}, {"EXISTS", prefix + ":gone"},
		{"GET", prefix + ":count"},
		{"HGETALL", prefix + ":hash"}, {"ZRANGE", prefix + ":zset", 0, -1, "WITHSCORES"},
		{"EVALSHA", sha, 1, prefix + ":count"}, {"DBSIZE"},
	} {
		v, err := c.Do(ctx, cmd...).Result()
		if err != nil {
			t.Fatal(cmd, err)
		}
		all = append(all, v)
	}
	return all
}

const script = "return redis.call('get', KEYS[1])"

var sha = redis.NewScript(script).Hash()

// TestRestart stops a node and starts it again from its log, from a snapshot, and from a snapshot
// with a later log.
func TestRestart(t *testing.T) {
	for _, c := range []struct {
		name            string
		snapshot, after bool
	}{{"log", false, true}, {"snapshot", true, false}, {"both", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			n, client := startSingle(t, dir)
			ctx := context.Background()
			if err := client.ScriptLoad(ctx, script).Err(); err != nil {
				t.Fatal(err)
			}
			sample.Fill(t, client, "one")
			if c.snapshot {
				if err := n.cluster.Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			if c.after {
				sample.Fill(t, client, "two")
			} else {
				// the lock is held, the rest changes, and a snapshot follows
				sample.Fill(t, client, "one")
				if err := n.cluster.Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			wait.For(t, 5*time.Second, "short TTLs to end", func() bool {
				return client.DBSize(ctx).Val()%4 == 0
			})
			before := state(t, client, "one")
			left := client.PTTL(ctx, "one:lock").Val()
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			_, client = startSingle(t, dir)
			after := state(t, client, "one")
			for i := range before {
				if !reflect.DeepEqual(before[i], after[i]) {
					t.Errorf("%v became %v", before[i], after[i])
				}
			}
			if now := client.PTTL(ctx, "one:lock").Val(); now <= 0 || now > left {
				t.Errorf("the lock had %v left and has %v", left, now)
			}
			if ok, err := client.SetNX(ctx, "one:lock", "thief",
				time.Second).Result(); err != nil || ok {
				t.Errorf("the lock was given away: %v %v", ok, err)
			}
		})
	}
}
