// Coordd recover on real processes, and nodes that lost their disks.

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/sample"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestRecover kills two of three nodes for good under load, and continues from the third with two
// new ones.
func TestRecover(t *testing.T) {
	tier.Check(t)
	ps := startProcesses(t, 3)
	ctx := context.Background()
	left := ps[0]
	dir := left.dataDir()
	c := left.client()
	sample.Fill(t, c, "one")
	tokens := []int64{fence(t, c, "one:lock"), newFence(t, c, "before")}
	w := startWriters(ps, 2)
	strictWriters{w}.more(t, 300)
	left.mustRaft("SNAPSHOT")
	strictWriters{w}.more(t, 300)
	if code, _, errs := command(t, "recover", "--data-dir", dir,
		"--accept-lost-writes"); code != 1 ||
		!strings.Contains(errs, "is in use by another process") {
		t.Errorf("a node that runs: exit %d, %s", code, errs)
	}
	w.stop()
	w.wg.Wait()
	tokens = append(tokens, newFence(t, c, "last"))
	// What is acknowledged now is on this node too; with writes in flight, that would be uncertain.
	wait.For(t, 10*time.Second, "the survivor has everything", func() bool {
		conn := left.client().Conn()
		defer conn.Close()
		return conn.Do(ctx, "READONLY").Err() == nil && conn.Exists(ctx, "last").Val() == 1
	})
	count, ttl := c.Get(ctx, "one:count").Val(), c.PTTL(ctx, "one:lock").Val()
	for _, p := range ps {
		p.kill()
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.Rename(ps[1].dataDir(), old); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(ps[2].dataDir()); err != nil {
		t.Fatal(err)
	}
	said := succeed(t, "recover", "--data-dir", dir)
	wantWords(t, "recover", said, "data of node n1", "voters        n1, n2, n3",
		"log           term ", "snapshot      index ", "epoch 0", "newest write  2", "WARNING",
		"acknowledged", "a second time", "Nothing was written")
	left.start() // nothing was written: it still waits for a majority
	wait.For(t, 20*time.Second, "no majority", func() bool {
		return errorWord(left.client().Set(ctx, "x", 1, 0).Err()) == "CLUSTERDOWN"
	})
	left.kill()
	said = succeed(t, "recover", "--data-dir", dir, "--accept-lost-writes")
	if kept := keptIn(t, dir); !strings.Contains(said, kept) ||
		!strings.Contains(said, "cannot be reused: n2, n3.") {
		t.Error(said)
	} else if again := succeed(t, "recover", "--data-dir", kept); !strings.Contains(again,
		"voters        n1, n2, n3") {
		t.Error("the old data cannot be read:", again)
	}
	left.start()
	left.waitReady()
	if got := left.members(); fmt.Sprint(got) != "[n1 voter]" {
		t.Error(got)
	}
	if got := newFence(t, c, "new"); got <= tokens[2] || got <= above(t, said) {
		t.Errorf("the token %d after %v", got, tokens)
	}
	if got := c.PTTL(ctx, "one:lock").Val(); got <= 0 || got > ttl ||
		c.Get(ctx, "one:count").Val() != count || c.Exists(ctx, "last").Val() != 1 {
		t.Errorf("the lock had %v and has %v; the count %s was %s", ttl, got,
			c.Get(ctx, "one:count").Val(), count)
	}
	w.finish(t, c)
	left.refusedRaft("node n2 was removed from this cluster; ids are never reused", "ADD", "n2",
		"127.0.0.1:1")
	if code, _, errs := command(t, "recover", "--data-dir", old); code != 0 {
		t.Error(errs)
	}

	f := newFleet(t)
	n4, n5 := f.start("n4", left), f.start("n5", left)
	n5.waitVoters("n1", "n4", "n5")
	// A node of the old cluster returns with its data: it is refused and changes nothing.
	if err := os.Rename(old, ps[1].dataDir()); err != nil {
		t.Fatal(err)
	}
	ps[1].start()
	wait.For(t, 20*time.Second, "n2 logs that its cluster was recovered", func() bool {
		return strings.Contains(ps[1].log.String(), "one was restored, recovered or founded again")
	})
	if err := ps[1].client().Set(ctx, "x", 1, 0).Err(); errorWord(err) != "CLUSTERDOWN" {
		t.Errorf("n2 of the old cluster: %v", err)
	}
	left.kill()
	wait.For(t, 20*time.Second, "n4 and n5 serve alone", func() bool {
		return n4.client().Set(ctx, "alone", 1, 0).Err() == nil
	})
	w.finish(t, n4.client())
}

// keptIn returns where a recovery kept the data of before.
func keptIn(t *testing.T, dir string) string {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(dir, "before-epoch-*"))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	return kept[0]
}

// above returns the number that recover and restore print, above which tokens go on.
func above(t *testing.T, said string) (n int64) {
	t.Helper()
	found := regexp.MustCompile(`fencing tokens? (?:is larger than|above) (\d+)`).
		FindStringSubmatch(said)
	if found == nil {
		t.Fatal("no number of tokens:", said)
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTokensRiseOverRecoveries recovers one node after the other from data of the same cluster, and
// then restores a backup of it: no token falls, whatever the data says.
func TestTokensRiseOverRecoveries(t *testing.T) {
	tier.Check(t)
	ps := startProcesses(t, 3)
	last := newFence(t, ps[0].client(), "lock")
	file := filepath.Join(t.TempDir(), "backup")
	succeed(t, "backup", "--from", ps[0].addr, file)
	for _, p := range ps {
		p.kill()
	}
	check := func(c *redis.Client, said string) {
		t.Helper()
		if least := above(t, said); least <= last {
			t.Errorf("tokens go on above %d, and one was %d", least, last)
		} else if last = newFence(t, c, fmt.Sprint(least)); last <= least {
			t.Errorf("the token %d is not above %d", last, least)
		}
	}
	// One is interrupted before its last step, and finished when others have begun.
	late := ps[2].dataDir()
	succeed(t, "recover", "--data-dir", late, "--accept-lost-writes")
	kept, err := filepath.Glob(filepath.Join(late, "before-epoch-*"))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	epoch := strings.TrimPrefix(filepath.Base(kept[0]), "before-epoch-")
	staged := filepath.Join(late, "epoch-"+epoch+".new")
	if err := os.Mkdir(staged, 0o700); err != nil {
		t.Fatal(err)
	}
	err = os.Rename(filepath.Join(late, "VERSION"), filepath.Join(staged, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command(t, "recover", "--data-dir", late, "--accept-lost-writes",
		"--before-entry", "5"); code != 1 || !strings.Contains(errs, "was interrupted") {
		t.Error(code, errs)
	}
	out := succeed(t, "recover", "--data-dir", late, "--accept-lost-writes")
	first, second := strings.Index(out, "is finished. What was there before it is in "+kept[0]),
		strings.Index(out, "is the only member of a new cluster")
	if first < 0 || second < first {
		t.Error(out)
	}
	for _, p := range ps {
		// What was not started yet, as after a kill just now, can be recovered again.
		succeed(t, "recover", "--data-dir", p.dataDir(), "--accept-lost-writes")
		said := succeed(t, "recover", "--data-dir", p.dataDir(), "--accept-lost-writes")
		p.start()
		p.waitReady()
		check(p.client(), said)
		p.kill() // given up
	}
	for i := range 2 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		said := succeed(t, "restore", file, "--data-dir", dir)
		n, c := startSingle(t, dir)
		check(c, said)
		n.kill()
	}
	// An operator who knows better than the clock says so, and the clock is behind from then on.
	wanted := last + 1<<50
	dir := filepath.Join(t.TempDir(), "said")
	said := succeed(t, "restore", file, "--data-dir", dir, "--tokens-above", fmt.Sprint(wanted))
	if got := above(t, said); got != wanted {
		t.Error(said)
	}
	n, c := startSingle(t, dir)
	check(c, said)
	again := filepath.Join(t.TempDir(), "again")
	succeed(t, "backup", "--from", n.addr, again)
	code, _, errs := command(t, "restore", again, "--data-dir", dir+"x")
	_, number, proposed := strings.Cut(strings.TrimSpace(errs), "at least ")
	if code != 1 || !proposed || !strings.Contains(errs, "later; set the clock, or give") {
		t.Fatal(code, errs)
	}
	said = succeed(t, "restore", again, "--data-dir", dir+"x", "--tokens-above", number)
	n.kill()
	_, c = startSingle(t, dir+"x")
	check(c, said)
}

// wantWords fails for each text that the output of a subcommand lacks.
func wantWords(t *testing.T, subcommand, output string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(output, w) {
			t.Errorf("%s does not print %q: %s", subcommand, w, output)
		}
	}
}

func TestRecoverRefusals(t *testing.T) {
	dir := t.TempDir()
	n, c := startSingle(t, filepath.Join(dir, "alone"))
	sample.Fill(t, c, "one")
	n.stop()
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 2, "requires --data-dir"},
		{[]string{"--data-dir", filepath.Join(dir, "none")}, 1, "no such file"},
		{[]string{"--data-dir", dir}, 1, "is not a data directory: it has no VERSION file"},
		{[]string{"--data-dir", filepath.Join(dir, "alone"), "--accept-lost-writes"}, 1,
			"node n1 is the only voter of its cluster: no majority is lost; start it"},
		{[]string{"--data-dir", dir, "stray"}, 2, `unexpected argument "stray"`},
	} {
		if code, _, errs := command(t, append([]string{"recover"},
			test.args...)...); code != test.code || !strings.Contains(errs, test.says) ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %s", test.args, code, errs)
		}
	}
}

// TestNodeThatLostItsDisk restarts a founder on an empty directory with its old flags, and then two
// of them.
func TestNodeThatLostItsDisk(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	if err := ps[0].client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	lose := func(lost ...*process) {
		for _, p := range lost {
			p.kill()
			if err := os.RemoveAll(p.dataDir()); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range lost {
			p.start()
		}
		for _, p := range lost {
			p.waitRefusal("node " + p.id + " has no data, but ")
			p.waitRefusal("if its disk is lost, RAFT REMOVE " + p.id)
		}
	}
	lose(ps[2])
	if err := ps[0].client().Set(ctx, "k", "w", 0).Err(); err != nil {
		t.Error(err)
	}
	lose(ps[1], ps[2])
	if err := ps[0].client().Set(ctx, "k", "x", 0).Err(); errorWord(err) == "" {
		t.Errorf("one of three replies %v to a write", err)
	}
}

// TestRecoverBeforeAnEntry omits the last writes of a single node.
func TestRecoverBeforeAnEntry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n, c := startSingle(t, dir)
	ctx := t.Context()
	if err := c.Set(ctx, "kept", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	bad := fmt.Sprint(infoNumber(t, c, "coordd", "raft_applied_index") + 1)
	if err := c.Set(ctx, "bad", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	n.stop()
	if code, _, errs := command(t, "recover", "--data-dir", dir, "--before-entry",
		"1000000"); code != 1 || !strings.Contains(errs, "ends with entry ") {
		t.Errorf("an entry behind the log: exit %d, %s", code, errs)
	}
	said := succeed(t, "recover", "--data-dir", dir, "--before-entry", bad, "--trace-entries")
	if !strings.Contains(said, "applying log entry ") ||
		strings.Contains(said, "applying log entry "+bad) ||
		!strings.Contains(said, "Log entries "+bad+" to ") ||
		!strings.Contains(said, "1 keys") || !strings.Contains(said,
		"--before-entry "+bad+" --accept-lost-writes") {
		t.Error(said)
	}
	succeed(t, "recover", "--data-dir", dir, "--before-entry", bad, "--accept-lost-writes")
	_, c = startSingle(t, dir)
	if got := c.Exists(ctx, "kept", "bad").Val(); got != 1 || c.Exists(ctx, "kept").Val() != 1 {
		t.Errorf("%d keys remain", got)
	}
}
