// Coordd refetch on real processes.

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestRefetchedNode damages the snapshot of a node, which gets its state from the others again, and
// then is needed: one of them is gone.
func TestRefetchedNode(t *testing.T) {
	tier.Check(t)
	ps := startProcesses(t, 3)
	broken := ps[2]
	w := startWriters(ps[:2], 2)
	strictWriters{w}.more(t, 300)
	broken.mustRaft("SNAPSHOT")
	strictWriters{w}.more(t, 300)
	dir := broken.dataDir()
	if code, _, errs := command(t, "refetch", "--data-dir", dir); code != 1 ||
		!strings.Contains(errs, "is in use by another process") {
		t.Errorf("a node that runs: exit %d, %s", code, errs)
	}
	broken.kill()
	snapshots, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if err != nil || len(snapshots) == 0 {
		t.Fatalf("no snapshots in %s, %v", dir, err)
	}
	for _, file := range snapshots {
		if err := os.Truncate(file, 100); err != nil {
			t.Fatal(err)
		}
	}
	broken.start()
	broken.waitRefusal("cannot start Raft on data directory")
	said := succeed(t, "refetch", "--data-dir", dir)
	wantWords(t, "refetch", said, "Node n3 has no state any more",
		filepath.Join(dir, "before-refetch-1"), "leads once it has entry ")
	broken.start()
	broken.waitReady()
	strictWriters{w}.more(t, 300)
	ps[0].kill()
	c := broken.client()
	wait.For(t, 20*time.Second, "the other two serve", func() bool {
		return c.Set(context.Background(), "alone", 1, 0).Err() == nil
	})
	w.finish(t, c)
}

// TestRefetchedNodeThatJoined does the same to a node that is started with --join, as ever. Alone,
// it says what it waits for.
func TestRefetchedNodeThatJoined(t *testing.T) {
	tier.Check(t)
	f := newFleet(t)
	n1 := f.start("n1")
	n2 := f.start("n2", n1)
	n3 := f.start("n3", n1, n2)
	n1.waitVoters("n1", "n2", "n3")
	w := startStrict(n1, n2)
	w.more(t, 300)
	n3.kill()
	succeed(t, "refetch", "--data-dir", n3.dataDir())
	n3.start()
	n3.waitReady()
	w.more(t, 300)
	n2.kill()
	c := n3.client()
	wait.For(t, 20*time.Second, "the other two serve", func() bool {
		return c.Set(context.Background(), "alone", 1, 0).Err() == nil
	})
	w.finish(t, c)

	n1.kill()
	n3.kill()
	succeed(t, "refetch", "--data-dir", n3.dataDir())
	n3.start()
	wait.For(t, 20*time.Second, "n3 says what it waits for", func() bool {
		v, _ := n3.raft("STATUS")
		return strings.Contains(fmt.Sprint(v), "it waits for its cluster's leader")
	})
}

// TestRefetchedSurvivor: the others are lost before a refetched node has got all again. What it had
// is named by the commands that look at its directory, and can be recovered.
func TestRefetchedSurvivor(t *testing.T) {
	ps := startProcesses(t, 3)
	p, ctx := ps[2], context.Background()
	dir, begun := p.dataDir(), filepath.Join(t.TempDir(), "begun")
	c := p.client()
	if err := c.Set(ctx, "early", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.kill()
	if err := os.CopyFS(begun, os.DirFS(filepath.Join(dir, "wal"))); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.waitReady()
	if err := c.Set(ctx, "late", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, 10*time.Second, "n3 has it", func() bool {
		conn := c.Conn()
		defer conn.Close()
		return conn.Do(ctx, "READONLY").Err() == nil && conn.Exists(ctx, "late").Val() == 1
	})
	for _, p := range ps {
		p.kill()
	}
	succeed(t, "refetch", "--data-dir", dir)
	doctor := append([]string{"doctor"}, p.args...)
	_, out, _ := command(t, doctor...)
	wantWords(t, "doctor", out, "coordd refetch has moved the state of node n3 away: start it",
		"Next: start it")
	wal, kept := filepath.Join(dir, "wal"), filepath.Join(dir, "before-refetch-1")
	err := os.RemoveAll(wal)
	if err == nil {
		err = os.Rename(begun, wal) // as the leader sends it
	}
	if err != nil {
		t.Fatal(err)
	}
	_, out, _ = command(t, doctor...)
	wantWords(t, "doctor", out, "▲ owed            entry ", ": what the node had is in "+kept)
	wantWords(t, "recover", succeed(t, "recover", "--data-dir", dir), "\n  owed          entry ",
		": what the node had is in "+kept, "it is newer than what is here")

	had := filepath.Join(t.TempDir(), "had") // as operations.md has it
	if err := os.CopyFS(had, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"wal", "snapshots"} {
		err := os.RemoveAll(filepath.Join(had, name))
		if err == nil {
			err = os.Rename(filepath.Join(had, "before-refetch-1", name), filepath.Join(had, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out = succeed(t, "recover", "--data-dir", had, "--accept-lost-writes")
	if strings.Contains(out, "owed") {
		t.Error(out)
	}
	p.setFlag("--data-dir", had)
	p.start()
	p.waitReady()
	if n := c.Exists(ctx, "early", "late").Val(); n != 2 {
		t.Errorf("%d of 2 keys are there", n)
	}
}
