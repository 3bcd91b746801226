package node

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestSetTime: an administrator sets the time of day, through any node: TIME, absolute times and
// the ids of streams follow, on all nodes. A user needs the right to do that.
func TestSetTime(t *testing.T) {
	nodes, _, clients := startThree(t)
	ctx := t.Context()
	wait.For(t, 20*time.Second, "the newest level", func() bool {
		return nodes[0].adapter.Level() >= commands.LevelSecond
	})
	if err := clients[0].Set(ctx, "lock", "me", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if err := clients[0].Do(ctx, "ACL", "SETUSER", "u", "on", "nopass", "+@all", "~*",
		"-raft|set-time").Err(); err != nil {
		t.Fatal(err)
	}
	conn := clients[0].Conn()
	defer conn.Close()
	if err := conn.AuthACL(ctx, "u", "").Err(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Process(ctx, redis.NewCmd(ctx, "RAFT", "SET-TIME", 1)); err == nil ||
		!strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a user without the right: %v", err)
	}
	const near = 10 * time.Minute
	for i, c := range clients {
		to := time.Now().Add([]time.Duration{8760 * time.Hour, -8760 * time.Hour, 0}[i])
		if err := c.Do(ctx, "RAFT", "SET-TIME", to.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
		for k, c := range clients {
			now, err := c.Time(ctx).Result()
			if err != nil || now.Sub(to).Abs() > near {
				t.Errorf("node %d set the time to %v, TIME of node %d is %v: %v", i, to, k, now,
					err)
			}
			end, err := c.Do(ctx, "EXPIRETIME", "lock").Int64()
			if err != nil || time.Unix(end, 0).Sub(to.Add(time.Hour)).Abs() > near {
				t.Errorf("set to %v, the lock ends at %d: %v", to, end, err)
			}
			if left := c.PTTL(ctx, "lock").Val(); left > time.Hour || left < time.Hour-near {
				t.Errorf("set to %v, the lock has %v left", to, left)
			}
		}
	}
}
