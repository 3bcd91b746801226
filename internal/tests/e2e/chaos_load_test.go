// The clients of make chaos, which record what they sent and received.

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

const (
	clientsANode = 3
	// then the next key starts: the checker's work grows fast with a key's history
	opsAKey       = 300
	opPause       = 4 * time.Millisecond
	clientTimeout = 8 * time.Second
)

const compareScript = `if (redis.call("get", KEYS[1]) or "") == ARGV[1] then redis.call("set", KEYS[1], ARGV[2]) return 1 end return 0`

// chaosLoad is clients that run until stop.
type chaosLoad struct {
	stop  context.CancelFunc
	wg    sync.WaitGroup
	gate  sync.RWMutex // held while clients must pause
	begin time.Time

	acked atomic.Int64 // operations
	asked [3]atomic.Int64
	round atomic.Int64 // part of the keys' names

	mu      sync.Mutex
	history []porcupine.Operation
	kept    []string // keys whose writes were acknowledged
	odd     []error  // errors that do not say whether the command ran
	lastAck time.Time
	longest time.Duration // between two acknowledgements

	queues chaosQueues
}

func startChaosLoad(ps []*process, seed uint64) *chaosLoad {
	ctx, stop := context.WithCancel(context.Background())
	l := &chaosLoad{stop: stop, begin: time.Now(), lastAck: time.Now()}
	l.queues.reset()
	for i, p := range ps {
		l.queues.start(ctx, l, p)
		for j := range clientsANode {
			id := i*clientsANode + j
			c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1,
				ReadTimeout: clientTimeout, DialTimeout: time.Second, PoolSize: 1})
			rnd := rand.New(rand.NewPCG(seed, uint64(100+id)))
			l.wg.Go(func() {
				defer c.Close()
				l.run(ctx, c, id, rnd)
			})
		}
	}
	return l
}

// run is one client. After an operation with an unknown outcome it continues as another client: for
// the checker a client has one operation at a time.
func (l *chaosLoad) run(ctx context.Context, c *redis.Client, id int, rnd *rand.Rand) {
	pace := time.NewTicker(opPause)
	defer pace.Stop()
	last := "none"
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		l.gate.RLock()
		if n%10 == 0 {
			l.keep(c, fmt.Sprintf("kept:%d:%d", id%1000, n))
		}
		family := rnd.IntN(3)
		in := chaosInput{value: fmt.Sprintf("c%d-%d", id%1000, n), old: last}
		switch family {
		case 0:
			in.op = []chaosOp{opWrite, opCompare, opRegRead}[rnd.IntN(3)]
		case 1:
			in.op = []chaosOp{opIncr, opIncr, opCount}[rnd.IntN(3)]
		default:
			in.op = []chaosOp{opLease, opLease, opFree, opHolder}[rnd.IntN(4)]
			if in.op == opFree {
				in.value = last
			}
		}
		in.key = fmt.Sprintf("k%d:%d:%d", family, l.round.Load(), l.asked[family].Add(1)/opsAKey)
		if l.note(c, id, &in) {
			id += 1000
		}
		switch in.op {
		case opWrite, opCompare, opLease:
			last = in.value
		}
		l.gate.RUnlock()
	}
}

// keep writes a key that must exist forever after the acknowledgement.
func (l *chaosLoad) keep(c *redis.Client, key string) {
	err := c.Set(context.Background(), key, 1, 0).Err()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.kept = append(l.kept, key)
	}
}

// note runs an operation and records it; unknown reports that nobody knows whether it ran.
func (l *chaosLoad) note(c *redis.Client, id int, in *chaosInput) (unknown bool) {
	in.call = time.Since(l.begin).Nanoseconds()
	out, err := askChaos(c, in)
	now := time.Now()
	in.ret = now.Sub(l.begin).Nanoseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	var dial *net.OpError
	word := errorWord(err)
	switch {
	case err == nil:
		l.acked.Add(1)
		l.longest = max(l.longest, now.Sub(l.lastAck))
		l.lastAck = now
	case word == "CLUSTERDOWN" || word == "TRYAGAIN" || word == "LOADING" ||
		errors.As(err, &dial) && dial.Op == "dial":
		return false
	case word != "" && word != "UNKNOWN":
		l.odd = append(l.odd, err)
		return false
	case in.op == opRegRead || in.op == opCount || in.op == opHolder:
		return true // an unanswered read proves nothing
	default:
		out, in.ret, unknown = chaosOutput{unknown: true}, math.MaxInt64, true
	}
	l.history = append(l.history, porcupine.Operation{ClientId: id, Input: *in, Output: out,
		Call: in.call, Return: in.ret})
	return unknown
}

// askChaos runs an operation.
func askChaos(c *redis.Client, in *chaosInput) (out chaosOutput, err error) {
	ctx := context.Background()
	out.ok = true
	switch in.op {
	case opWrite:
		err = c.Set(ctx, in.key, in.value, 0).Err()
	case opCompare:
		out.ok, err = c.Eval(ctx, compareScript, []string{in.key}, in.old, in.value).Bool()
	case opRegRead, opHolder:
		out.value, err = c.Get(ctx, in.key).Result()
	case opIncr:
		out.n, err = c.Incr(ctx, in.key).Result()
	case opCount:
		out.n, err = c.Get(ctx, in.key).Int64()
	case opLease:
		out.ok, err = c.SetNX(ctx, in.key, in.value, leaseMs*time.Millisecond).Result()
	case opFree:
		out.ok, err = c.Eval(ctx, releaseScript, []string{in.key}, in.value).Bool()
	}
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return out, err
}

// more waits for so many further acknowledged operations.
func (l *chaosLoad) more(t *testing.T, what string, n int64, limit time.Duration) {
	t.Helper()
	from := l.acked.Load()
	wait.For(t, limit, what, func() bool { return l.acked.Load() >= from+n })
}

// stall returns the longest time without an acknowledgement since the last call.
func (l *chaosLoad) stall() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := max(l.longest, time.Since(l.lastAck))
	l.longest, l.lastAck = 0, time.Now()
	return longest
}

// check is called while the clients pause. It checks what they recorded since the last call, and
// that everything ever acknowledged still exists.
func (l *chaosLoad) check(t *testing.T, c *redis.Client) (operations, elements int) {
	t.Helper()
	elements = l.queues.check(t, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.odd {
		t.Errorf("the error does not say whether the command ran: %v", err)
	}
	history := l.history
	l.history, l.odd = nil, nil
	l.round.Add(1)
	for chunk := range slices.Chunk(l.kept, 1000) {
		if n, err := c.Exists(context.Background(), chunk...).Result(); err != nil ||
			int(n) != len(chunk) {
			t.Fatalf("%d of %d acknowledged writes are missing, %v", len(chunk)-int(n), len(chunk),
				err)
		}
	}
	if result := porcupine.CheckOperationsTimeout(chaosModel(), history,
		2*time.Minute); result != porcupine.Ok {
		t.Fatalf("a history of %d operations is not linearizable: %v", len(history), result)
	}
	return len(history), elements
}
