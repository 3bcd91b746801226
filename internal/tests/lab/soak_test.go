//go:build linux

// A long run at full load with one fault after the other: what a node uses must not grow.

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/seeds"
)

const (
	// soakClients on each node repeat soakPipeline requests at a time, over soakKeys keys.
	soakClients  = 12
	soakPipeline = 16
	soakKeys     = 20_000
	// calmBefore is how long a cluster without faults works before it is looked at.
	calmBefore = 5 * time.Second
)

// use is what a node uses at one time.
type use struct {
	resident, disk    int64 // bytes
	files, goroutines int64
}

// TestSoak lets faults happen to a cluster at full load for COORDD_LAB_SOAK minutes. Memory, files
// and goroutines of each node must be flat and its disk bounded. At the end the states must be
// equal, and the counters must hold each increment that was acknowledged, once.
func TestSoak(t *testing.T) {
	lasts := time.Duration(numberOf(t, "COORDD_LAB_SOAK", 0)) * time.Minute
	if lasts == 0 {
		t.Skip("run by make proof")
	}
	seed := seeds.Of(t)
	p := &plan{number: 1, seed: seed, kind: kinds[0], apart: missingNetwork() == "",
		faults: [2]string{"nothing", "nothing"}}
	s, err := newSite(p)
	if s == nil {
		t.Fatal(err)
	}
	r := &run{site: s, plan: p, begin: time.Now()}
	defer func() { s.close(t.Failed()) }()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	var did tally
	for i := range founding * soakClients {
		clients.Go(func() {
			did.load(ctx, s.all[i%founding].addr, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
	seen := map[string][]use{}
	rnd := rand.New(rand.NewPCG(seed, 0))
	happened := map[string]int{}
	for r.now() < lasts {
		v := soakFault(rnd)
		happened[v.name]++
		end := v.begin(&scene{run: r, rnd: rnd})
		time.Sleep(max(v.least, time.Second+time.Duration(rnd.Int64N(int64(4*time.Second)))))
		if end != nil {
			end()
		}
		r.heal()
		if err := r.serve(serveLimit); err != nil {
			t.Fatalf("after %s: %v", v.name, err)
		}
		time.Sleep(calmBefore)
		for _, n := range s.members() {
			u, err := n.uses()
			if err != nil {
				t.Fatal(err)
			}
			seen[n.id()] = append(seen[n.id()], u)
		}
	}
	stop()
	clients.Wait()
	if _, err := r.states(); err != nil {
		t.Error(err)
	}
	t.Logf("%v: %d requests with a reply, %d without; %v", r.now().Round(time.Second),
		did.answered.Load(), did.failed.Load(), happened)
	did.judge(t, s.all[0].addr)
	for id, uses := range seen {
		judgeUse(t, id, uses)
	}
	for _, problem := range r.found() {
		t.Error(problem)
	}
}

// soakFault draws a fault that this machine can have, and that needs no cluster of its own.
func soakFault(rnd *rand.Rand) variant {
	for {
		vs := faults[rnd.IntN(len(faults))].variants
		v := vs[rnd.IntN(len(vs))]
		if v.needs&^apart == 0 && v.needs.missing() == "" && !strings.Contains(v.name, "member") {
			return v
		}
	}
}

// tally counts what clients did, and the increments of each key apart.
type tally struct {
	answered, failed atomic.Int64
	keys             [soakKeys]struct{ acknowledged, unknown atomic.Int64 }
}

// load repeats what clients do, over a bounded number of keys, until the context ends.
func (all *tally) load(ctx context.Context, addr string, rnd *rand.Rand) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1,
		ReadTimeout: 20 * time.Second})
	defer c.Close()
	release := redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then
return redis.call('del', KEYS[1]) else return 0 end`)
	for ctx.Err() == nil {
		counted := map[*redis.IntCmd]int{} // by key
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range soakPipeline / 4 {
				key := rnd.IntN(soakKeys)
				n := strconv.Itoa(key)
				p.SetNX(ctx, "soak:lock:"+n, n, time.Duration(1+rnd.IntN(5000))*time.Millisecond)
				counted[p.Incr(ctx, "soak:count:"+n)] = key
				p.ZAdd(ctx, "soak:window:"+n, redis.Z{Score: rnd.Float64(), Member: rnd.IntN(20)})
				release.Eval(ctx, p, []string{"soak:lock:" + n}, n)
			}
			return nil
		})
		for _, cmd := range cmds {
			if e := cmd.Err(); e == nil || errors.Is(e, redis.Nil) {
				all.answered.Add(1)
			} else {
				all.failed.Add(1)
			}
		}
		for cmd, key := range counted {
			switch what, _ := outcomeOf(cmd.Err()); what {
			case acked:
				all.keys[key].acknowledged.Add(1)
			case unknown:
				all.keys[key].unknown.Add(1)
			}
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			time.Sleep(refusedPause)
		}
	}
}

// judge compares the counters with the increments: one without a reply may have counted or not.
func (all *tally) judge(t *testing.T, addr string) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute})
	defer c.Close()
	var increments, unknown int64
	for key := range all.keys {
		least := all.keys[key].acknowledged.Load()
		open := all.keys[key].unknown.Load()
		increments, unknown = increments+least, unknown+open
		n, err := c.Get(t.Context(), "soak:count:"+strconv.Itoa(key)).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if n < least || n > least+open {
			t.Errorf("counter %d is %d after %d increments and %d of unknown outcome", key, n,
				least, open)
		}
	}
	t.Logf("%d counters hold all of %d increments, %d more were of unknown outcome", soakKeys,
		increments, unknown)
}

// uses returns what the node's process uses.
func (n *node) uses() (u use, err error) {
	pid := n.pid()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return u, err
			}
			u.resident = kib << 10
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return u, err
	}
	u.files = int64(len(open))
	if u.disk, err = size(n.disk); err != nil {
		return u, err
	}
	u.goroutines, err = n.goroutines()
	return u, err
}

// goroutines asks the node how many it has.
func (n *node) goroutines() (int64, error) {
	client := http.Client{Timeout: 10 * time.Second}
	reply, err := client.Get("http://" + n.web + "/metrics")
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			return strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no go_goroutines: %s", n.id(), reply.Status)
}

// size returns the bytes of the files below a directory. Files may vanish meanwhile.
func size(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return ignoreGone(err)
	})
	return bytes, err
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// judgeUse compares the last quarter of a soak with its second one: the first fills the cluster.
func judgeUse(t *testing.T, id string, uses []use) {
	quarter := len(uses) / 4
	if quarter == 0 {
		t.Errorf("%s: only %d looks: not long enough", id, len(uses))
		return
	}
	early, late := uses[quarter:2*quarter], uses[len(uses)-quarter:]
	for _, kind := range []struct {
		name     string
		of       func(use) int64
		may, add int64 // percent of the earlier median, and more
	}{
		{"resident bytes", func(u use) int64 { return u.resident }, 120, 32 << 20},
		{"bytes on disk", func(u use) int64 { return u.disk }, 150, 16 << 20},
		{"open files", func(u use) int64 { return u.files }, 100, 20},
		{"goroutines", func(u use) int64 { return u.goroutines }, 100, 40},
	} {
		before, after := median(early, kind.of), median(late, kind.of)
		t.Logf("%s: %s: %d, later %d", id, kind.name, before, after)
		if after > before*kind.may/100+kind.add {
			t.Errorf("%s: %s grew from %d to %d", id, kind.name, before, after)
		}
	}
}

func median(uses []use, of func(use) int64) int64 {
	var all []int64
	for _, u := range uses {
		all = append(all, of(u))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
