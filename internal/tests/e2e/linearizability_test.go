// The history of lock commands by clients on all nodes, while leaders are killed, is linearizable
// (Porcupine, after Wing and Gong; Lowe).

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

type lockOp int

const (
	opAcquire lockOp = iota // SET key owner NX: true if it was free
	opRelease               // compare-and-delete script: true if owner had it
	opRead                  // GET: the owner, "" if free
	opSteal                 // SET key owner: always
)

type lockInput struct {
	op    lockOp
	key   int
	owner string
}

type lockOutput struct {
	unknown bool // it may have run, once, at any later time, or not
	ok      bool
	value   string
}

const releaseScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

// stepLock is the model of one key: the state after an operation with this output, nothing if the
// output is impossible.
func stepLock(state string, in lockInput, out lockOutput) []string {
	next, got := state, lockOutput{ok: true}
	switch in.op {
	case opAcquire:
		if got.ok = state == ""; got.ok {
			next = in.owner
		}
	case opRelease:
		if got.ok = state == in.owner; got.ok {
			next = ""
		}
	case opRead:
		got.value = state
	case opSteal:
		next = in.owner
	}
	switch {
	case out.unknown:
		return []string{state, next}
	case out == got:
		return []string{next}
	}
	return nil
}

func lockModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := map[int][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(lockInput).key
				parts[key] = append(parts[key], op)
			}
			var all [][]porcupine.Operation
			for _, p := range parts {
				all = append(all, p)
			}
			return all
		},
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			var all []any
			for _, s := range stepLock(state.(string), input.(lockInput), output.(lockOutput)) {
				all = append(all, s)
			}
			return all
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
	return m.ToModel()
}

// runLockOp runs one operation and returns its output; certain is false if it certainly did not run
// and belongs in no history.
func runLockOp(c *redis.Client, key string, in lockInput) (out lockOutput, ran bool) {
	ctx := context.Background()
	var err error
	switch in.op {
	case opAcquire:
		out.ok, err = c.SetNX(ctx, key, in.owner, 0).Result()
	case opRelease:
		var n int64
		n, err = c.Eval(ctx, releaseScript, []string{key}, in.owner).Int64()
		out.ok = n == 1
	case opRead:
		out.ok = true
		if out.value, err = c.Get(ctx, key).Result(); err == redis.Nil {
			err = nil
		}
	case opSteal:
		out.ok = true
		err = c.Set(ctx, key, in.owner, 0).Err()
	}
	switch {
	case err == nil:
		return out, true
	case errorWord(err) == "CLUSTERDOWN", errorWord(err) == "LOADING", in.op == opRead:
		return out, false
	}
	// Each operation that may have run doubles what the checker has to try.
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return out, false
	}
	return lockOutput{unknown: true}, true // UNKNOWN, or the connection broke
}

func TestLinearizableWhileLeadersDie(t *testing.T) {
	seed := seeds.Of(t)
	kills := 2
	if tier.Soaking() {
		kills = 20
	}
	ps := startProcesses(t, 3)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for client := range 6 {
		c := ps[client%3].client()
		rnd := rand.New(rand.NewPCG(seed, uint64(client)))
		wg.Go(func() {
			// An operation with an unknown outcome may still run. A client has one operation at a
			// time, so another client replaces it.
			id := client
			for n := 0; ctx.Err() == nil; n++ {
				in := lockInput{op: lockOp(rnd.IntN(4)), key: n / 60,
					owner: fmt.Sprintf("c%d-%d", client, n)}
				if in.op == opRelease {
					in.owner = fmt.Sprintf("c%d-%d", client, n-1)
				}
				call := time.Since(start).Nanoseconds()
				out, ran := runLockOp(c, fmt.Sprintf("lin:%d", in.key), in)
				end := time.Since(start).Nanoseconds()
				if !ran {
					continue
				}
				mu.Lock()
				if out.unknown {
					history = append(history,
						porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out,
							Return: math.MaxInt64})
					id += 1000
				} else {
					history = append(history,
						porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out,
							Return: end})
				}
				mu.Unlock()
			}
		})
	}
	size := func() int { mu.Lock(); defer mu.Unlock(); return len(history) }
	for range kills {
		before := size()
		wait.For(t, 20*time.Second, "operations between kills", func() bool {
			return size() > before+600
		})
		lead, _ := leader(t, ps)
		lead.kill()
		before = size()
		wait.For(t, 20*time.Second, "operations without the old leader", func() bool {
			return size() > before+200
		})
		lead.start()
		lead.waitReady()
	}
	stop()
	wg.Wait()
	unlogged := 0
	for _, p := range ps {
		unlogged += infoNumber(t, p.client(), "coordd", "unlogged_writes")
	}
	if unlogged < 10 {
		t.Errorf("only %d writes of the history were dry runs", unlogged)
	}
	result := porcupine.CheckOperationsTimeout(lockModel(), history, 2*time.Minute)
	if result != porcupine.Ok {
		t.Fatalf("a history of %d operations over %d leader kills: %v", len(history), kills, result)
	}
	t.Logf("a history of %d operations over %d leader kills is linearizable; %d writes at least "+
		"were answered without an entry", len(history), kills, unlogged)
}

// TestLinearizabilityModelBites checks a history that no linearizable server produces.
func TestLinearizabilityModelBites(t *testing.T) {
	history := []porcupine.Operation{
		{ClientId: 0, Input: lockInput{op: opAcquire, owner: "a"}, Call: 0,
			Output: lockOutput{ok: true}, Return: 1},
		{ClientId: 1, Input: lockInput{op: opAcquire, owner: "b"}, Call: 2,
			Output: lockOutput{ok: true}, Return: 3},
	}
	if porcupine.CheckOperations(lockModel(), history) {
		t.Fatal("a lock with two holders passes as linearizable")
	}
}
