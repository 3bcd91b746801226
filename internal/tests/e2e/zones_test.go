// Nodes that differ: one that is to lead, one that never votes, and the zones that they tell.

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestPreferredLeader kills the node that is to lead, under load: another one leads until it is
// back. Through all of it a learner has the data, and neither leads nor counts.
func TestPreferredLeader(t *testing.T) {
	tier.Check(t)
	f := newFleet(t)
	n1 := f.start("n1")
	n1.stop()
	zone := func(p *process, flags ...string) *process {
		p.args = append(p.args, append(flags, "--zone", "zone-of-"+p.id)...)
		return p
	}
	zone(n1, "--leader-priority", "300").start()
	n1.waitReady()
	voters := []*process{n1}
	for _, id := range []string{"n2", "n3"} {
		p := zone(f.prepare(id, n1))
		p.start()
		p.waitReady()
		voters = append(voters, p)
	}
	n1.waitVoters("n1", "n2", "n3")
	learner := zone(f.prepare("n4", n1), "--learner", "--leader-priority", "1000")
	learner.start()
	learner.waitReady()

	w := startWriters(voters[1:], 1)
	leads := func(ps ...*process) *process {
		t.Helper()
		p, _ := leader(t, ps)
		from := w.count.Load()
		wait.For(t, 20*time.Second, "writes", func() bool { return w.count.Load() > from+50 })
		return p
	}
	if leads(voters...) != n1 {
		t.Error("a node without priority leads")
	}
	n1.kill()
	leads(voters[1:]...)
	n1.start()
	n1.waitReady()
	wait.For(t, 30*time.Second, "n1 to lead again", func() bool { return n1.role() == "master" })

	// of the others, two hang up: the learner is no majority with n1
	w.finish(t, n1.client())
	ctx := context.Background()
	local := learner.client().Conn()
	defer local.Close()
	if err := n1.client().Set(ctx, "last", "one", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := local.Do(ctx, "READONLY").Err(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, 10*time.Second, "the learner to have the data", func() bool {
		got, err := local.Get(ctx, "last").Result()
		return err == nil && got == "one"
	})
	file := filepath.Join(t.TempDir(), "backup")
	succeed(t, "backup", "--from", learner.addr, file)
	if got := succeed(t, "backup", "verify", file); !strings.Contains(got, "keys") {
		t.Error(got)
	}
	for _, p := range append(voters, learner) {
		slots := fmt.Sprint(p.client().Do(ctx, "CLUSTER", "SHARDS").Val())
		info := p.client().Info(ctx, "server").Val()
		if !strings.Contains(info, "availability_zone:zone-of-"+p.id+"\r\n") {
			t.Errorf("INFO of %s: %s", p.id, info)
		}
		for _, id := range []string{"n1", "n2", "n3", "n4"} {
			if !strings.Contains(slots, "zone-of-"+id) {
				t.Errorf("CLUSTER SHARDS of %s does not tell the zone of %s: %s", p.id, id, slots)
			}
		}
	}
	voters[1].kill()
	voters[2].kill()
	wait.For(t, 20*time.Second, "the rest to refuse", func() bool {
		err := n1.client().Set(ctx, "minority", "x", 0).Err()
		return err != nil && strings.HasPrefix(err.Error(), "CLUSTERDOWN")
	})
	if got, err := local.Get(ctx, "last").Result(); err != nil || got != "one" {
		t.Errorf("the learner replies %q, %v", got, err)
	}
}
