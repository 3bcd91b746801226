package node

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestWrongStateEnds: a leader whose machine holds another value than that of the others ends once
// an entry shows it, and the others go on.
func TestWrongStateEnds(t *testing.T) {
	nodes, _, clients := startThree(t)
	ctx := t.Context()
	lead, other := -1, -1
	wait.For(t, 20*time.Second, "a leader of the newest level", func() bool {
		for i, n := range nodes {
			if n.Leads() && n.cluster.Status().Level == commands.FeatureLevel {
				lead, other = i, (i+1)%len(nodes)
			}
		}
		return lead >= 0
	})
	if err := clients[lead].Set(ctx, "n", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	index, _ := nodes[lead].adapter.Sum()
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2,
		Cmds: [][][]byte{{[]byte("SET"), []byte("n"), []byte("5")}}})
	nodes[lead].adapter.Apply(&raft.Log{Index: index,
		Data: fsm.AppendEntry(nil, &fsm.Entry{Batches: [][]byte{batch}})})
	if got := clients[lead].Incr(ctx, "n").Val(); got != 6 {
		t.Fatalf("the leader has %d: its state is not wrong", got)
	}
	err := wait.Receive(t, 20*time.Second, "the leader ends", nodes[lead].Failed())
	if !strings.Contains(err.Error(), "the state of this node differs from that of a majority") {
		t.Errorf("it ends with %q", err)
	}
	if err := clients[lead].Get(ctx, "n").Err(); err == nil {
		t.Error("the wrong node answers")
	}
	if err := nodes[lead].Close(); err != nil {
		t.Error(err)
	}
	wait.For(t, 20*time.Second, "the others go on", func() bool {
		return clients[other].Set(ctx, "other", 1, 0).Err() == nil
	})
	if got := clients[other].Get(ctx, "n").Val(); got != "2" {
		t.Errorf("the others have %s, want 2: what was acknowledged ran on them", got)
	}
}
