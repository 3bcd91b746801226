// A cluster of this release and the next. New behavior is enabled only when every node has it, and
// this release refuses what the next one wrote. The next release is binaries.Next.

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// restart stops a process and starts it as this release or as the next.
func (p *process) restart(next bool) {
	p.t.Helper()
	p.stop()
	p.next = next
	p.start()
	p.waitReady()
}

// level returns the feature level of the node's state.
func (p *process) level() int64 {
	v, _ := p.raft("STATUS")
	status, _ := v.(map[any]any)
	level, _ := status["feature-level"].(int64)
	return level
}

// awaitLevel waits until all nodes have a level.
func awaitLevel(ps []*process, level int64) {
	for _, p := range ps {
		p.t.Helper()
		wait.For(p.t, 20*time.Second, fmt.Sprint(p.id, " has level ", level), func() bool {
			return p.level() == level
		})
	}
}

// knownLevels returns "id level" of every member, as the node reports it.
func (p *process) knownLevels() []string {
	v, _ := p.raft("MEMBERS")
	rows, _ := v.([]any)
	var out []string
	for _, row := range rows {
		m, _ := row.(map[any]any)
		out = append(out, fmt.Sprint(m["id"], " ", m["known-feature-level"]))
	}
	slices.Sort(out)
	return out
}

// filesOf returns a hash of every file under dir.
func filesOf(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	files := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// refusesDir stops a process of the next release and starts it as this one, which must refuse its
// data directory and not change it.
func (p *process) refusesDir(level uint64) {
	p.t.Helper()
	p.stop()
	before := filesOf(p.t, p.dataDir())
	p.next = false
	p.start()
	p.waitRefusal(
		fmt.Sprintf(
			"coordd: a later version of coordd is needed: data directory %s has feature level "+
				"%d, and this one knows levels up to %d",
			p.dataDir(), level, commands.FeatureLevel))
	if !maps.Equal(before, filesOf(p.t, p.dataDir())) {
		p.t.Errorf("%s refused its data directory, but changed it", p.id)
	}
	p.next = true
	p.start()
	p.waitReady()
}

const (
	thisLevel = int64(commands.FeatureLevel)
	nextLevel = thisLevel + 1
)

// unknownInScript stores the error of a script that calls a command of the next level: it must be
// the same on every node.
const unknownInScript = "local r = redis.pcall('SETNEXT', KEYS[1], 'x') redis.call('SET', " +
	"KEYS[1], r.err or 'it ran') return redis.call('GET', KEYS[1])"

// steady repeats an idempotent command until the cluster replies, in spite of elections on a busy
// machine.
func (p *process) steady(args ...any) (v any, err error) {
	p.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1,
		ReadTimeout: 15 * time.Second})
	defer c.Close()
	wait.For(p.t, 20*time.Second, "an answer", func() bool {
		v, err = c.Do(context.Background(), args...).Result()
		var reply redis.Error
		return err == nil || errors.As(err, &reply) &&
			!slices.Contains([]string{"CLUSTERDOWN", "UNKNOWN", "TRYAGAIN", "LOADING"},
				errorWord(err))
	})
	return v, err
}

// checkMixed uses every node of a cluster of both releases, in which new behavior must not run.
func checkMixed(t *testing.T, ps []*process) {
	t.Helper()
	for _, p := range ps {
		for i := range 130 { // the nodes compare their states every 256 entries
			if _, err := p.steady("SET", fmt.Sprint(p.id, i), i); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.steady("SETNEXT", "new", "x"); err == nil ||
			err.Error() != "ERR unknown command 'SETNEXT', with args beginning with: 'new' 'x' " {
			t.Errorf("SETNEXT on %s: %v", p.id, err)
		}
		if v, err := p.steady("EVAL", unknownInScript, 1,
			"told:"+p.id); v != "ERR Unknown Redis command called from script" {
			t.Errorf("a script on %s: %v %v", p.id, v, err)
		}
		if p.level() != thisLevel {
			t.Errorf("%s has level %d", p.id, p.level())
		}
	}
	if n, err := ps[0].steady("EXISTS", "new"); n != int64(0) {
		t.Errorf("SETNEXT ran: %v %v", n, err)
	}
}

func TestNextRelease(t *testing.T) {
	tier.Check(t)
	if _, err := binaries.Next(); err != nil { // before anything waits for it
		t.Fatal(err)
	}
	ps := startProcesses(t, 3)
	n1, n2, n3 := ps[0], ps[1], ps[2]
	w := startWriters([]*process{n1}, 2)
	n3.restart(true)
	for _, p := range []*process{n3, n2} {
		wait.For(t, 20*time.Second, p.id+" to lead", func() bool {
			if p.role() == "master" {
				return true
			}
			_, _ = n1.raft("TRANSFER", p.id) // a busy machine needs more than one
			return false
		})
		want := []string{fmt.Sprint("n1 ", thisLevel), fmt.Sprint("n2 ", thisLevel),
			fmt.Sprint("n3 ", nextLevel)}
		wait.For(t, 10*time.Second, p.id+" to know the members' levels", func() bool {
			return slices.Equal(p.knownLevels(), want)
		})
		checkMixed(t, ps)
	}
	w.finish(t, n3.client())
	// not earlier: states are compared one after another, while nothing is written
	sameState(t, ps)

	n2.restart(true)
	if n2.level() != thisLevel {
		t.Errorf("the level rose before n1 had it")
	}
	n1.restart(true)
	awaitLevel(ps, nextLevel)
	for _, p := range ps {
		if v, err := p.steady("SETNEXT", p.id, "v"); v != "OK" {
			t.Error(v, err)
		}
		if v, err := n1.steady("GET", p.id); v != "next:v" {
			t.Errorf("%s: %q %v", p.id, v, err)
		}
	}
	if info := n1.client().Info(context.Background(), "coordd").Val(); !strings.Contains(info,
		fmt.Sprintf("feature_level:%d\r\nknown_feature_level:%d\r\n", nextLevel, nextLevel)) {
		t.Errorf("INFO: %s", info)
	}
	sameState(t, ps)

	n1.refusesDir(uint64(nextLevel)) // only the log has it
	n1.mustRaft("SNAPSHOT")
	n1.refusesDir(uint64(nextLevel))
	sameState(t, ps)
	t.Run("join", func(t *testing.T) { joinTooOld(t, ps) })
	t.Run("restore", func(t *testing.T) { restoreTooNew(t, n2) })
}

// joinTooOld lets nodes of this release join a cluster at the next level.
func joinTooOld(t *testing.T, ps []*process) {
	f := newFleet(t)
	sentence := fmt.Sprintf(
		"knows feature levels up to %d, this cluster has level %d: upgrade coordd there",
		thisLevel, nextLevel)
	p := f.prepare("n4", ps[0])
	p.start()
	p.waitRefusal("coordd: the cluster refused this node: node n4 " + sentence)

	// A node that was down when it was added refuses the log by itself, and keeps nothing of it.
	p = f.prepare("n5", ps[0])
	ps[0].mustRaft("ADD", "n5", p.flag("--peer-listen"))
	p.start()
	p.waitRefusal(fmt.Sprintf("has feature level %d, and this one knows levels up to %d", nextLevel,
		thisLevel))
	ps[0].mustRaft("REMOVE", "n5")
	version, err := os.ReadFile(filepath.Join(p.dataDir(), "VERSION"))
	if err != nil || bytes.Contains(version, fmt.Append(nil, "level: ", nextLevel)) {
		t.Errorf("n5 stored an unknown level: %s %v", version, err)
	}
}

// restoreTooNew restores a backup of the next level.
func restoreTooNew(t *testing.T, from *process) {
	v, err := from.raft("BACKUP")
	state, ok := v.(string)
	if err != nil || !ok {
		t.Fatalf("RAFT BACKUP: %T %v", v, err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	if err := os.WriteFile(file, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	next, err := binaries.Next()
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "data")
	out, err := exec.Command(old, "restore", file, "--id", "r1", "--data-dir",
		target).CombinedOutput()
	want := fmt.Sprintf(
		"coordd: cannot restore %s: a later version of coordd is needed: the snapshot has "+
			"feature level %d, and this one knows levels up to %d; nothing was written\n", file,
		nextLevel, thisLevel)
	if err == nil || string(out) != want {
		t.Errorf("this release restores it: %v %s, want %s", err, out, want)
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Error("a file was written:", err)
	}
	if out, err := exec.Command(next, "restore", file, "--id", "r1", "--data-dir",
		target).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	// The restored state has its level from the first entry on, and so has its directory.
	f := newFleet(t)
	p := f.prepare("r1")
	p.setFlag("--data-dir", target)
	p.next = true
	p.start()
	p.waitReady()
	if p.level() != nextLevel {
		t.Errorf("the restored node has level %d", p.level())
	}
	if v, err := p.steady("SETNEXT", "a", "b"); v != "OK" {
		t.Error(v, err)
	}
	p.refusesDir(uint64(nextLevel))
}
