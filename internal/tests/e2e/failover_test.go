// Blocking commands and subscriptions on the nodes that survive their leader, and the messages
// published meanwhile.

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/wait"
)

// waiting starts a blocking command on a node, and returns when it waits.
func waiting(p *process, words ...string) *rawClient {
	p.t.Helper()
	look := p.client()
	before := p.blocked(look)
	c := dialRaw(p.t, p.addr)
	c.send(words...)
	wait.For(p.t, 10*time.Second, strings.Join(words, " ")+" waits on "+p.id, func() bool {
		return p.blocked(look) == before+1
	})
	_ = look.Close()
	return c
}

func (c *rawClient) send(words ...string) {
	c.t.Helper()
	if err := c.Send(commandtest.Args(words...)); err != nil {
		c.t.Fatal(err)
	}
}

// still fails if anything but the reply to a PING arrives.
func (c *rawClient) still() {
	c.t.Helper()
	if got := c.call("PING"); got != "+PONG\r\n" {
		c.t.Errorf("%q arrived, want nothing more", got)
	}
}

// TestWaitersOutliveTheirLeader: each waiter on the survivors gets one element, each element goes
// to one waiter, and readers of a stream are woken once.
func TestWaitersOutliveTheirLeader(t *testing.T) {
	ps := startProcesses(t, 3)
	old, rest := leader(t, ps)
	var lists, sets, streams []*rawClient
	for range 3 {
		for _, p := range rest {
			lists = append(lists, waiting(p, "BLPOP", "l", "0"))
			sets = append(sets, waiting(p, "BZPOPMIN", "z", "0"))
			streams = append(streams, waiting(p, "XREAD", "BLOCK", "0", "STREAMS", "x", "$"))
		}
	}
	old.kill()
	push := rest[1].client()
	ctx := context.Background()
	wait.For(t, 20*time.Second, "a leader", func() bool {
		return push.Set(ctx, "there", 1, 0).Err() == nil
	})
	var wantLists, wantSets []string
	for i := range lists {
		e := fmt.Sprint("e", i)
		if err := push.RPush(ctx, "l", e).Err(); err != nil {
			t.Fatal(err)
		}
		if err := push.Do(ctx, "ZADD", "z", 1, e).Err(); err != nil {
			t.Fatal(err)
		}
		wantLists = append(wantLists, fmt.Sprintf("*2\r\n$1\r\nl\r\n$2\r\n%s\r\n", e))
		wantSets = append(wantSets, fmt.Sprintf("*3\r\n$1\r\nz\r\n$2\r\n%s\r\n$1\r\n1\r\n", e))
	}
	if err := push.Do(ctx, "XADD", "x", "1-1", "f", "v").Err(); err != nil {
		t.Fatal(err)
	}
	for what, w := range map[string]struct {
		clients []*rawClient
		want    []string
	}{"BLPOP": {lists, wantLists}, "BZPOPMIN": {sets, wantSets}} {
		var got []string
		for _, c := range w.clients {
			got = append(got, c.next())
			c.still()
		}
		slices.Sort(got)
		if !slices.Equal(got, w.want) {
			t.Errorf("%s: got %q, want each of %q once", what, got, w.want)
		}
	}
	for _, c := range streams {
		if got := c.next(); got != "*1\r\n*2\r\n$1\r\nx\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n" {
			t.Errorf("XREAD: %q", got)
		}
		c.still()
	}
	if n, err := push.Do(ctx, "EXISTS", "l", "z").Int(); err != nil || n != 0 {
		t.Errorf("%d of the keys remain, %v", n, err)
	}
}

// publisher publishes numbered messages and knows the outcome of each.
type publisher struct {
	id     int
	acked  []int
	maybe  map[int]bool // neither acknowledged nor refused
	count  atomic.Int64 // acknowledged
	failed error
}

// run publishes until ctx ends.
func (o *publisher) run(ctx context.Context, p *process) {
	c := p.client()
	o.maybe = map[int]bool{}
	for n := 0; ctx.Err() == nil && o.failed == nil; n++ {
		err := c.Publish(context.Background(), "c", fmt.Sprintf("%d %d", o.id, n)).Err()
		switch word := errorWord(err); {
		case err == nil:
			o.acked = append(o.acked, n)
			o.count.Add(1)
		case word == "UNKNOWN":
			o.maybe[n] = true
		case word != "CLUSTERDOWN" && word != "TRYAGAIN":
			o.failed = err
		}
	}
}

// check compares what a subscriber received with what a publisher knows.
func (o *publisher) check(t *testing.T, who string, got []string) {
	t.Helper()
	acked := o.acked
	last := -1
	for _, m := range got {
		var id, n int
		if _, err := fmt.Sscanf(m, "%d %d", &id, &n); err != nil {
			t.Fatalf("%s got %q: %v", who, m, err)
		}
		switch {
		case id != o.id:
			continue
		case n <= last:
			t.Fatalf("%s got message %d of publisher %d after %d: twice, or out of order", who, n,
				id, last)
		case len(acked) > 0 && acked[0] == n:
			acked = acked[1:]
		case !o.maybe[n]:
			t.Fatalf("%s got message %d of publisher %d, which was said not to have been sent, "+
				"or misses one before it", who, n, id)
		}
		last = n
	}
	if len(acked) > 0 {
		t.Fatalf("%s misses %d acknowledged messages of publisher %d, the first is %d", who,
			len(acked), o.id, acked[0])
	}
}

// collect reads messages until the one with the text end, and returns their texts.
func collect(c *rawClient) (got []string, err error) {
	for {
		raw, err := c.Receive()
		if err != nil {
			return got, err
		}
		lines := strings.Split(string(raw), "\r\n")
		if len(lines) < 2 {
			return got, fmt.Errorf("%q is not a message", raw)
		}
		m := lines[len(lines)-2]
		if m == "end" {
			return got, nil
		}
		got = append(got, m)
	}
}

// TestSubscribersOutliveTheirLeader publishes messages through the survivors while the leader dies.
// Every subscriber on a survivor receives each acknowledged message once, in the order of its
// publisher, and no refused one. All receive them in the same order.
func TestSubscribersOutliveTheirLeader(t *testing.T) {
	ps := startProcesses(t, 3)
	old, rest := leader(t, ps)
	type subscriber struct {
		name string
		got  []string
		err  error
	}
	var subs []*subscriber
	var reading, publishing sync.WaitGroup
	for i := range 6 {
		p := rest[i%2]
		call := [][]string{{"SUBSCRIBE", "c"}, {"PSUBSCRIBE", "c*"}, {"SUBSCRIBE", "d", "c"}}[i/2]
		c := dialRaw(t, p.addr)
		c.call(call...)
		if len(call) == 3 {
			c.next()
		}
		s := &subscriber{name: fmt.Sprintf("%s on %s", strings.Join(call, " "), p.id)}
		subs = append(subs, s)
		reading.Go(func() { s.got, s.err = collect(c) })
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var pubs []*publisher
	for i := range 4 {
		o := &publisher{id: i}
		pubs = append(pubs, o)
		publishing.Go(func() { o.run(ctx, rest[i%2]) })
	}
	all := func(n int64) func() bool {
		return func() bool {
			return !slices.ContainsFunc(pubs, func(o *publisher) bool { return o.count.Load() < n })
		}
	}
	wait.For(t, 20*time.Second, "messages before the kill", all(100))
	old.kill()
	var before int64
	for _, o := range pubs {
		before = max(before, o.count.Load())
	}
	wait.For(t, 20*time.Second, "messages after it", all(before+100))
	stop()
	publishing.Wait()
	if err := rest[0].client().Publish(context.Background(), "c", "end").Err(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	for _, s := range subs {
		if s.err != nil {
			t.Fatalf("%s: %v after %d messages", s.name, s.err, len(s.got))
		}
		for _, o := range pubs {
			o.check(t, s.name, s.got)
		}
		if !slices.Equal(s.got, subs[0].got) {
			t.Errorf("%s and %s received messages in different orders", s.name, subs[0].name)
		}
	}
	for _, o := range pubs {
		if o.failed != nil {
			t.Error(o.failed)
		}
		t.Logf("publisher %d: %d acknowledged, %d not known", o.id, len(o.acked), len(o.maybe))
	}
}

// TestSnapshotClosesSubscribers: a node whose state comes from a snapshot may have missed messages,
// so its subscribers lose their connections. The node is paused until the leader has dropped the
// entries that it lacks.
func TestSnapshotClosesSubscribers(t *testing.T) {
	n1, followers := leader(t, startProcesses(t, 3))
	n2, ctx := followers[0], context.Background()
	n2.waitReady()
	early := dialRaw(t, n2.addr)
	if got := early.call("SUBSCRIBE", "c"); !strings.Contains(got, "subscribe") {
		t.Fatal(got)
	}
	n2.signal(syscall.SIGSTOP)
	const (
		keptBytes   = 64 << 20 // the log behind a snapshot keeps as much
		socketBytes = 64 << 20 // more than is on its way to the node that is stopped
	)
	value := strings.Repeat("v", 8<<20)
	for range (keptBytes+socketBytes)/len(value) + 2 {
		wait.For(t, 30*time.Second, "a write beside changes of the leader", func() bool {
			return n1.client().Set(ctx, "k", value, 0).Err() == nil
		})
	}
	// both: a busy machine may have changed the leader
	for _, p := range []*process{n1, followers[1]} {
		if v, err := p.client().StrLen(ctx, "k").Result(); v != int64(len(value)) { // it has all
			t.Fatal(v, err)
		}
		if err := p.client().Do(ctx, "RAFT", "SNAPSHOT").Err(); err != nil {
			t.Fatal(err)
		}
	}
	n2.signal(syscall.SIGCONT)
	if raw, err := early.Receive(); err == nil || err == io.ErrUnexpectedEOF ||
		errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a subscriber of a node that got a snapshot: %q %v, want the end of its "+
			"connection", raw, err)
	}
	n2.waitReady()
	if v, err := n2.client().Get(ctx, "k").Result(); err != nil || v != value {
		t.Fatal(len(v), err)
	}
	late := dialRaw(t, n2.addr)
	late.call("SUBSCRIBE", "c")
	if err := n1.client().Publish(ctx, "c", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if got := late.next(); got != "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n" {
		t.Errorf("the next subscriber got %q", got)
	}
	if !strings.Contains(n2.log.String(), "closed subscribers: messages to them were lost") {
		t.Error("the log lacks it")
	}
}
