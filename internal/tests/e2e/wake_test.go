// How soon a client that waits on one node is woken through another, in an idle cluster.

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// wakeLimit bounds the median time from sending the release to waking.
const wakeLimit = 20 * time.Millisecond

// waker is a way to wait and to be woken. Each pair of nodes has a tag in its names, because a
// follower may still deliver what the previous pair published.
type waker struct {
	name    string
	prepare func(waiter, act *rawClient, tag string) // once
	// starts one wait; the call to wake it, on act
	round func(waiter, act *rawClient, tag string, n int) []string
	ready func(p *process) bool // the wait has begun
}

var wakers = []waker{
	{
		name: "lock released by a script that publishes",
		prepare: func(waiter, _ *rawClient, tag string) {
			waiter.call("SUBSCRIBE", "freed"+tag)
		},
		round: func(_, act *rawClient, tag string, n int) []string {
			act.call("SET", "lock", fmt.Sprint(n))
			return []string{"EVAL",
				"if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end " +
					"redis.call('publish', KEYS[2], '1') return redis.call('del', KEYS[1])",
				"2", "lock", "freed" + tag, fmt.Sprint(n)}
		},
	},
	{
		name: "BLPOP",
		round: func(waiter, _ *rawClient, _ string, _ int) []string {
			waiter.send("BLPOP", "list", "0")
			return []string{"RPUSH", "list", "x"}
		},
		ready: func(p *process) bool {
			look := p.client()
			defer look.Close()
			return p.blocked(look) == 1
		},
	},
	{
		name: "notification of a key's end",
		prepare: func(waiter, act *rawClient, tag string) {
			act.call("CONFIG", "SET", "notify-keyspace-events", "Kg")
			waiter.call("SUBSCRIBE", "__keyspace@0__:key"+tag)
		},
		round: func(_, act *rawClient, tag string, _ int) []string {
			act.call("SET", "key"+tag, "x")
			return []string{"DEL", "key" + tag}
		},
	},
}

// measure wakes a waiter on one node through another, n times, and returns the sorted times to the
// waking, from the sending and from the reply.
func (w *waker) measure(t *testing.T, on, through *process,
	rounds int) (sent, replied []time.Duration) {
	waiter, act := dialRaw(t, on.addr), dialRaw(t, through.addr)
	defer waiter.Close()
	defer act.Close()
	tag := ":" + on.id + through.id
	if w.prepare != nil {
		w.prepare(waiter, act, tag)
	}
	woken := make(chan time.Time, 1)
	for n := range rounds {
		call := w.round(waiter, act, tag, n)
		if w.ready != nil {
			wait.For(t, 10*time.Second, "the client waits", func() bool { return w.ready(on) })
		}
		go func() {
			if _, err := waiter.Receive(); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
			woken <- time.Now()
		}()
		start := time.Now()
		if got := act.call(call...); got != ":1\r\n" {
			t.Fatalf("%s: %q", w.name, got)
		}
		end := time.Now()
		at := <-woken
		sent, replied = append(sent, at.Sub(start)), append(replied, at.Sub(end))
	}
	slices.Sort(sent)
	slices.Sort(replied)
	return sent, replied
}

// TestWaitersAreWokenSoon measures all pairs of nodes. make chaos asserts the times, on a machine
// that is not busy.
func TestWaitersAreWokenSoon(t *testing.T) {
	tier.Check(t)
	rounds := 5
	if chaos() {
		rounds = 200
	}
	ps := startProcesses(t, 3, "--heartbeat-timeout", "2s")
	lead, rest := leader(t, ps)
	nodes := []struct {
		role string
		p    *process
	}{{"leader", lead}, {"follower", rest[0]}, {"other follower", rest[1]}}
	for _, w := range wakers {
		for _, on := range nodes {
			for _, through := range nodes {
				if on == through {
					continue
				}
				sent, replied := w.measure(t, on.p, through.p, rounds)
				median := sent[len(sent)/2].Round(10 * time.Microsecond)
				t.Logf("%s, waits on %s, released through %s: woken %v after the sending (99%%: "+
					"%v), %v after the reply", w.name, on.role, through.role,
					median, sent[len(sent)*99/100].Round(10*time.Microsecond),
					replied[len(replied)/2].Round(10*time.Microsecond))
				if chaos() && median > wakeLimit {
					t.Errorf("%s, waits on %s, released through %s: woken after %v at the "+
						"median, the limit is %v", w.name, on.role, through.role, median, wakeLimit)
				}
			}
		}
	}
}
