// A light client among twenty heavy ones, on three real processes. processes.

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/tier"
)

// A node may serve heavyAtMost of the ten heavy requests that wait there while a light one waits,
// on average over lightCalls. Fair shares serve one turn or two, with two requests each; one call
// may meet an entry of requests that are not known yet. Without fair shares the node serves all
// ten.
const (
	heavyAtMost = 5
	lightCalls  = 4
)

// servedMeanwhile calls a command, and returns how many others the node answered meanwhile. The
// node counts: a client on a busy machine reads replies late, and they would seem to come later.
func (c *rawClient) servedMeanwhile(words ...string) (reply string, served int) {
	c.t.Helper()
	count := []string{"INFO", "commandstats"}
	var pipeline []byte
	for _, words := range [][]string{count, words, count} {
		pipeline = resp.AppendCall(pipeline, commandtest.Args(words...))
	}
	if err := c.SendRaw(pipeline); err != nil {
		c.t.Fatal(err)
	}
	before, reply, after := c.next(), c.next(), c.next()
	return reply, answered(after) - answered(before) - 2
}

// answered sums the calls in a reply to INFO commandstats.
func answered(info string) (calls int) {
	for _, part := range strings.Split(info, ":calls=")[1:] {
		digits, _, _ := strings.Cut(part, ",")
		n, _ := strconv.Atoi(digits)
		calls += n
	}
	return calls
}

// A light client waits for a few slices, not for a round of all heavy ones, at the leader and
// through a follower. Raft's own traffic continues.
func TestLightClientAmongHeavyOnes(t *testing.T) {
	tier.Check(t)
	// a busy machine keeps its leader
	ps := startProcesses(t, 3, "--heartbeat-timeout", "2s")
	first, rest := leader(t, ps)
	b := &battle{t: t, ps: ps}
	light := []*rawClient{dialRaw(t, first.addr), dialRaw(t, rest[0].addr)}
	members := []string{"SADD", "big"}
	for i := range 100_000 {
		members = append(members, fmt.Sprint("member", i))
	}
	if got := dialRaw(t, first.addr).call(members...); got[0] == '-' {
		// not by a light client, which would be charged
		t.Fatal(got)
	}
	b.term = b.termOf(light[0])
	script := func(command string) []string {
		return []string{command, "local n = 0 for i = 1, 400000 do n = n + i end return n", "0"}
	}
	for _, load := range []struct {
		name  string
		calls [][]string // one per client, in turn
	}{
		{"scripts", [][]string{script("EVAL")}},
		{"reads and writes", [][]string{script("EVAL_RO"), script("EVAL"), {"SMEMBERS", "big"},
			{"SUNIONSTORE", "copy", "big"}}},
		{"session commands",
			[][]string{append([]string{"COMMAND", "GETKEYS", "MGET"}, members[2:20_000]...),
				{"COMMAND", "DOCS"}, {"COMMAND", "LIST", "FILTERBY", "PATTERN", "*"}}},
	} {
		_, stop := fight(t, load.calls, first.addr, rest[0].addr)
		for where, c := range light {
			sum := 0
			for i := range lightCalls {
				lock := fmt.Sprintf("lock:%s:%d:%d", load.name, where, i)
				got, served := c.servedMeanwhile("SET", lock, "me", "NX", "PX", "60000")
				if got != "+OK\r\n" {
					t.Errorf("%s: %s", load.name, got)
				}
				sum += served
			}
			t.Logf("%s, node %d: %d heavy requests were served while %d light ones waited",
				load.name, where, sum, lightCalls)
			if sum > heavyAtMost*lightCalls && load.name != "session commands" { // those run beside
				t.Errorf("%s, node %d: %d heavy requests were served while %d light ones waited",
					load.name, where, sum, lightCalls)
			}
		}
		if stop(); t.Failed() {
			return
		}
		if term := b.termOf(light[0]); term != b.term {
			t.Errorf("%s: the term is %s, and was %s", load.name, term, b.term)
		}
	}
}

// Raft's own traffic survives twenty heavy clients with the default timeouts: no node stands for
// election, although three processes and the clients share the processors of one machine.
func TestLeaderKeepsLeadingAmongHeavyClients(t *testing.T) {
	if !chaos() {
		t.Skip("run by make chaos: beside other tests the processors are not the cluster's alone")
	}
	ps := startProcesses(t, 3)
	first, rest := leader(t, ps)
	const elements, keys, chunk = 1_000_000, 50_000, 10_000
	filler := dialRaw(t, first.addr)
	fill := func(n, words int, call func(i int) []string, command ...string) {
		for at := 0; at < n; at += chunk {
			args := slices.Grow(slices.Clone(command), chunk*words)
			for i := range chunk {
				args = append(args, call(at+i)...)
			}
			if got := filler.call(args...); got[0] == '-' {
				t.Fatal(got)
			}
		}
	}
	fill(elements, 1, func(int) []string { return []string{"x"} }, "RPUSH", "list")
	fill(keys, 2, func(i int) []string { return []string{fmt.Sprint("key:", i), "x"} }, "MSET")
	atItsLimit := func(command string, call string) []string {
		return []string{command, "local n = 0 for i = 1, 3000000 do n = n + i end redis.call(" +
			call + ") return n", "0"}
	}
	light := dialRaw(t, rest[0].addr)
	b := &battle{t: t, ps: ps}
	b.term = b.termOf(light)
	served, stop := fight(t, [][]string{
		atItsLimit("EVAL", "'SET', 'sum', n"), atItsLimit("EVAL_RO", "'GET', 'sum'"),
		{"LRANGE", "list", "0", "-1"}, {"KEYS", "*"}, atItsLimit("EVAL", "'INCR', 'runs'"),
	}, first.addr, rest[0].addr)
	for i := range 5 {
		if got := light.call("SET", fmt.Sprint("lock:", i), "me", "NX", "PX",
			"60000"); got != "+OK\r\n" {
			t.Error(got)
		}
	}
	stop()
	t.Logf("%d heavy requests were served", served.Load())
	if term := b.termOf(light); term != b.term {
		t.Errorf("the term is %s, and was %s", term, b.term)
	}
}

// fight runs twenty heavy clients, and returns when each was served, with the number of their
// requests and a function that stops them.
func fight(t *testing.T, calls [][]string, addrs ...string) (served *atomic.Int64, stop func()) {
	t.Helper()
	const clients = 20
	served = new(atomic.Int64)
	var over atomic.Bool
	var all, once sync.WaitGroup
	for i := range clients {
		c := dialRaw(t, addrs[i%len(addrs)])
		call := resp.AppendCall(nil, commandtest.Args(calls[i/len(addrs)%len(calls)]...))
		all.Add(1)
		once.Add(1)
		go func() {
			defer all.Done()
			for first := true; !over.Load(); {
				reply, err := "", c.SendRaw(call)
				if err == nil {
					var raw []byte
					raw, err = c.Receive()
					reply = string(raw[:min(len(raw), 100)])
				}
				if strings.HasPrefix(reply, "-TRYAGAIN ") {
					continue // it did not run, since too many wait here
				}
				served.Add(1)
				if first {
					first = false
					once.Done()
				}
				if err != nil || strings.HasPrefix(reply, "-") {
					t.Errorf("a heavy client: %s %v", reply, err)
					return
				}
			}
		}()
	}
	once.Wait()
	return served, func() { over.Store(true); all.Wait() }
}
