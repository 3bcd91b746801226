// Kill -9 while the log changes to its next file.

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

const rotationWriters = 4

var rotationValue = strings.Repeat("x", 1<<10)

// TestKillsAtRotation kills a node, or all three of a cluster, shortly before, at or after the
// moment when the log starts a new file. Acknowledged writes exist afterwards, and the nodes take
// entries again.
func TestKillsAtRotation(t *testing.T) {
	tier.Check(t)
	rounds := map[int]int{1: 6, 3: 2}
	if tier.Soaking() {
		rounds = map[int]int{1: 150, 3: 50}
	}
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			ps := startProcessesWith(t, nodes, func(p *process) { p.tiny = true })
			var acked [rotationWriters]int // how many writes of each writer were acknowledged
			for round := range rounds[nodes] {
				killAtRotation(t, ps, &acked, round, rnd)
			}
			t.Logf("%d kills, %v writes", rounds[nodes], acked)
		})
	}
}

// killAtRotation writes, kills all processes, restarts them, and checks what was acknowledged in
// this round.
func killAtRotation(t *testing.T, ps []*process, acked *[rotationWriters]int, round int,
	rnd *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := *acked
	victim := ps[rnd.IntN(len(ps))]
	files := segmentsOf(t, victim)
	wanted := len(files) + 2 + rnd.IntN(3)
	var wg sync.WaitGroup
	var count atomic.Int64
	for w := range rotationWriters {
		c := redis.NewClient(&redis.Options{Addr: ps[w%len(ps)].addr, MaxRetries: -1,
			ReadTimeout: 15 * time.Second})
		wg.Go(func() {
			defer c.Close()
			for ctx.Err() == nil && c.Set(ctx, rotationKey(w, acked[w]), rotationValue,
				0).Err() == nil {
				acked[w]++
				count.Add(1)
			}
		})
	}
	if round%3 == 2 { // the start of the log is truncated meanwhile
		wg.Go(func() { _, _ = ps[0].raft("SNAPSHOT") })
	}
	newest := files[len(files)-1]
	deadline := time.Now().Add(20 * time.Second)
	for made := len(files); made < wanted; {
		now := segmentsOf(t, victim)
		if last := now[len(now)-1]; last != newest {
			newest = last
			made++
		}
		if time.Now().After(deadline) {
			t.Fatalf("round %d: the log gets no new files", round)
		}
	}
	time.Sleep(time.Duration(rnd.IntN(6)) * time.Millisecond) // until about the next rotation
	for _, p := range ps {
		_ = p.cmd.Process.Kill()
	}
	cancel()
	for _, p := range ps {
		p.kill()
	}
	wg.Wait()
	for _, p := range ps {
		p.start()
	}
	for _, p := range ps {
		p.waitReady()
	}
	if count.Load() == 0 {
		t.Errorf("round %d: nothing was acknowledged", round)
	}
	c := ps[round%len(ps)].client()
	for w := range rotationWriters {
		for i := before[w]; i < acked[w]; i++ {
			if got, err := c.Get(t.Context(), rotationKey(w, i)).Result(); err != nil ||
				got != rotationValue {
				t.Fatalf("round %d: write %d of %d of writer %d is lost: %d bytes, %v", round, i,
					acked[w], w, len(got), err)
			}
		}
		acked[w]++ // the one in flight may exist
	}
}

func rotationKey(writer, i int) string { return fmt.Sprintf("w%d:%d", writer, i) }

// segmentsOf lists the files of a node's log, by age.
func segmentsOf(t *testing.T, p *process) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(p.dataDir(), "wal"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".wal") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		t.Fatal("the log has no files")
	}
	return names
}
