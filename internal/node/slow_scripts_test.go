package node

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestSlowScriptIsRefused tells one node that a script was slow in an entry: all refuse it, and one
// command allows it. A user needs the right to do that.
func TestSlowScriptIsRefused(t *testing.T) {
	nodes, _, clients := startThree(t)
	wait.For(t, 20*time.Second, "the newest level", func() bool {
		return nodes[0].adapter.Level() >= commands.LevelSecond
	})
	const source = "return redis.call('incr', 'n')"
	slow := commands.SlowScript{ID: redis.NewScript(source).Hash(), Source: source, TookMs: 4321}
	nodes[1].slowScript(slow)
	ended := slow
	ended.ID, ended.Ended = "ended", true
	nodes[1].slowScript(ended)
	for _, c := range clients {
		wait.For(t, 20*time.Second, "a refusal", func() bool {
			err := c.Eval(t.Context(), source, nil).Err()
			return err != nil && strings.Contains(err.Error(), "it ran for 4321 ms")
		})
		if err := c.EvalRO(t.Context(), source, nil).Err(); err == nil ||
			!strings.Contains(err.Error(), "RAFT ALLOW-SCRIPT "+slow.ID) {
			t.Errorf("EVAL_RO: %v", err)
		}
	}
	wait.For(t, 20*time.Second, "both in the SLOWLOG", func() bool {
		logged, err := clients[1].SlowLogGet(t.Context(), -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, l := range logged {
			if l.Args[0] == "SCRIPT" && l.Args[2] == source && l.Duration == 4321*time.Millisecond {
				ids = append(ids, l.Args[1])
			}
		}
		return strings.Join(ids, " ") == "ended "+slow.ID
	})
	c := clients[2]
	if err := c.Do(t.Context(), "ACL", "SETUSER", "u", "on", "nopass", "+@all", "~*",
		"-raft|allow-script").Err(); err != nil {
		t.Fatal(err)
	}
	conn := c.Conn()
	defer conn.Close()
	if err := conn.AuthACL(t.Context(), "u", "").Err(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Process(t.Context(), redis.NewCmd(t.Context(), "RAFT", "ALLOW-SCRIPT",
		slow.ID)); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a user without the right: %v", err)
	}
	list := func() string {
		all, err := c.Do(t.Context(), "RAFT", "SCRIPTS").Slice()
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		s := all[0].(map[any]any)
		if s["id"] != slow.ID || s["took-ms"] != slow.TookMs {
			t.Error(s)
		}
		return s["state"].(string)
	}
	if got := list(); got != "refused" || nodes[2].adapter.RefusedScripts() != 1 {
		t.Errorf("before: %s, %d refused", got, nodes[2].adapter.RefusedScripts())
	}
	if err := c.Do(t.Context(), "RAFT", "ALLOW-SCRIPT", "other").Err(); err == nil ||
		err.Error() != commands.ErrNotRefused.Error() {
		t.Errorf("another script: %v", err)
	}
	if err := c.Do(t.Context(), "RAFT", "ALLOW-SCRIPT", slow.ID).Err(); err != nil {
		t.Fatal(err)
	}
	if got := list(); got != "allowed" || nodes[2].adapter.RefusedScripts() != 0 {
		t.Errorf("after: %s, %d refused", got, nodes[2].adapter.RefusedScripts())
	}
	for i, c := range clients {
		if n, err := c.Eval(t.Context(), source, nil).Int(); err != nil || n < i+1 {
			t.Error(n, err)
		}
	}
}
