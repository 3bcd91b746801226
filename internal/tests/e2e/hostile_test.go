// Hostile input to three real processes, through raw sockets to the leader and to a follower. After
// each attack the same connection works where it would on Redis, every node takes a write, the term
// is unchanged, and no process has grown beyond a bound. The attacks are in
// hostile_attacks_test.go.

package e2e

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/tier"
)

// maxPeakMiB bounds the peak memory of a process. Requests of 32 MiB and replies of 64 MiB exist
// several times: under construction, in a frame between nodes, and on their way to the client. One
// script can leave 600 MiB of garbage by writing values and removing them, a value of 512 MiB is
// among the attacks, and the collector lets the heap double.
const maxPeakMiB = 4 << 10

// attack is what a hostile client sends and what it must receive.
type attack struct {
	name  string
	calls [][]string // all sent at once, or each after the previous reply
	raw   string     // sent instead
	// want are the beginnings of the replies, one per call; "" is any. A single one stands for all.
	// Without calls, there are as many as replies.
	want   []string
	closes bool // the connection ends after the replies
	// slow: runs only on the follower, which involves the leader too
	once  bool
	waits bool
	run   func(b *battle, c *rawClient)
}

// battle is the cluster under attack.
type battle struct {
	t      *testing.T
	ps     []*process
	checks []*rawClient // one per node; attacks do not use them
	term   string
	writes int
	peak   int // MiB
}

// TestHostileInput has clients send what costs most. With COORDD_ATTACK, as in make attack, each
// attack runs on the leader and on a follower, otherwise on one of them.
func TestHostileInput(t *testing.T) {
	tier.Check(t)
	// a busy machine keeps its leader
	ps := startProcesses(t, 3, "--heartbeat-timeout", "5s")
	first, rest := leader(t, ps)
	b := &battle{t: t, ps: ps}
	for _, p := range ps {
		b.checks = append(b.checks, dialRaw(t, p.addr))
	}
	b.prepare()
	b.term = b.termOf(b.checks[0])
	for i, a := range slices.Concat(protocolAttacks(), manyKeysAttacks(), scriptAttacks(),
		transactionAttacks(), rangeAttacks()) {
		for where, p := range []*process{first, rest[0]} {
			if a.once && p == first || !a.once && !measured() && where != i%2 {
				continue
			}
			began := time.Now()
			b.fight(&a, p, []string{"leader", "follower"}[where])
			if took := time.Since(began); took > time.Second {
				t.Logf("%s took %v", a.name, took.Round(time.Millisecond))
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("the largest process had %d MiB", b.peak)
}

// prepare writes data that attacks multiply.
func (b *battle) prepare() {
	b.t.Helper()
	c := b.checks[0]
	set, zset, list := []string{"SADD", "set"}, []string{"ZADD", "zset"}, []string{"RPUSH", "list"}
	for i := range 10_000 {
		name := fmt.Sprint("member", i)
		set, zset, list = append(set, name), append(zset, strconv.Itoa(i), name), append(list, name)
	}
	for _, call := range [][]string{
		set, zset, list, {"SET", "big", strings.Repeat("x", 1<<20)}, {"HSET", "hash", "f", "v"},
		{"XADD", "stream", "1-1", "f", "v"}, {"SET", "n", "1"}, with(1000, "g", "RPUSH", "gs"),
		{"EVAL", "for i = 1, 2000 do redis.call('SET', string.rep('a', 100) .. i, 1) " +
			"redis.call('XADD', 'stream', '*', 'f', i) end", "0"},
	} {
		if got := c.call(call...); got[0] == '-' {
			b.t.Fatal(got)
		}
	}
}

func (b *battle) fight(a *attack, p *process, where string) {
	b.t.Helper()
	c := dialRaw(b.t, p.addr)
	defer c.Close()
	switch {
	case a.run != nil:
		a.run(b, c)
	default:
		raw := []byte(a.raw)
		for _, call := range a.calls {
			if !a.waits {
				raw = resp.AppendCall(raw, commandtest.Args(call...))
			}
		}
		sent := make(chan error, 1)
		go func() { sent <- c.SendRaw(raw) }() // the replies may exceed what the sockets hold
		a.replies(c, where)
		if err := <-sent; err != nil && !a.closes {
			b.t.Errorf("%s, %s: sending: %v", a.name, where, err)
		}
	}
	if a.closes {
		if got, err := c.Receive(); err == nil {
			b.t.Errorf("%s, %s: got %.100q, want the end", a.name, where, got)
		}
	} else if got, err := c.Do(commandtest.Args("PING")); err != nil || string(got) != "+PONG\r\n" {
		b.t.Errorf("%s, %s: then PING returns %.100q, %v", a.name, where, got, err)
	}
	b.check(a.name + ", " + where)
}

// replies compares what arrives with what is wanted.
func (a *attack) replies(c *rawClient, where string) {
	c.t.Helper()
	if n := len(a.calls); n > 0 && len(a.want) != 1 && len(a.want) != n {
		c.t.Fatalf("%s: want %d replies to %d calls", a.name, len(a.want), n)
	}
	for i := range max(len(a.calls), len(a.want)) {
		if a.waits {
			if err := c.Send(commandtest.Args(a.calls[i]...)); err != nil {
				c.t.Error(err)
				return
			}
		}
		got, err := c.Receive()
		if err != nil {
			c.t.Errorf("%s, %s: %s: %v", a.name, where, a.shown(i), err)
			return
		}
		if want := a.want[min(i, len(a.want)-1)]; !strings.HasPrefix(string(got), want) {
			c.t.Errorf("%s, %s: %s: %.300q, want %.300q", a.name, where, a.shown(i), got, want)
		}
	}
}

// shown is the beginning of a call.
func (a *attack) shown(i int) string {
	if i < len(a.calls) {
		return fmt.Sprintf("call %d, %.100q", i,
			strings.Join(a.calls[i][:min(len(a.calls[i]), 10)], " "))
	}
	return fmt.Sprintf("reply %d", i)
}

// check fails unless every node is healthy.
func (b *battle) check(after string) {
	b.t.Helper()
	for i, c := range b.checks {
		b.writes++
		text := strconv.Itoa(b.writes)
		if got, err := c.Do(commandtest.Args("SET", "alive", text)); err != nil ||
			string(got) != "+OK\r\n" {
			b.t.Errorf("after %s: a write on %s: %.100q, %v", after, b.ps[i].id, got, err)
			return
		}
		if term := b.termOf(c); term != b.term {
			b.t.Errorf("after %s: %s is in term %s, was in %s", after, b.ps[i].id, term, b.term)
		}
		if peak, ok := b.ps[i].peakMiB(); ok {
			if b.peak = max(b.peak, peak); peak > maxPeakMiB {
				b.t.Errorf("after %s: %s used %d MiB, the bound is %d", after, b.ps[i].id, peak,
					maxPeakMiB)
			}
		}
	}
}

func (b *battle) termOf(c *rawClient) string {
	b.t.Helper()
	_, rest, _ := strings.Cut(c.call("INFO", "coordd"), "\nraft_term:")
	term, _, _ := strings.Cut(rest, "\r")
	if term == "" {
		b.t.Fatal("INFO has no term")
	}
	return term
}

// peakMiB returns the peak memory of the process, if the system reports it.
func (p *process) peakMiB() (mib int, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib := 0
	_, err = fmt.Sscan(rest, &kib)
	return kib >> 10, err == nil
}

// same returns n copies of a call.
func same(n int, words ...string) [][]string { return slices.Repeat([][]string{words}, n) }

// with returns words followed by n copies of another one.
func with(n int, word string, words ...string) []string {
	return append(slices.Clone(words), slices.Repeat([]string{word}, n)...)
}

// keys returns words followed by the names of n keys, which do not exist.
func keys(n int, words ...string) []string {
	for i := range n {
		words = append(words, "none"+strconv.Itoa(i))
	}
	return words
}

// Numbers at the ends of their ranges.
var (
	least = strconv.FormatInt(math.MinInt64, 10)
	most  = strconv.FormatInt(math.MaxInt64, 10)
)
