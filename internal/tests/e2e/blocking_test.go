// Blocking commands, notifications and invalidations on the nodes of a cluster of real processes.

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/wait"
)

// blocked returns how many clients wait on a node.
func (p *process) blocked(c *redis.Client) int {
	p.t.Helper()
	info, err := c.Info(context.Background(), "clients").Result()
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "blocked_clients:")
	n := 0
	if _, err := fmt.Sscan(rest, &n); err != nil {
		p.t.Fatalf("%v in %q", err, info)
	}
	return n
}

// popper is a client that waits for elements.
type popper struct {
	client *redis.Client
	got    chan popped
}

// popped is an element, or the reason why a client gets no more of them.
type popped struct {
	element string
	err     error
}

// startPopper starts a client of p that pops elements from a list into got, and waits until it
// blocks.
func startPopper(p *process, look *redis.Client, list string, got chan popped) *popper {
	p.t.Helper()
	before := p.blocked(look)
	o := &popper{client: p.client(), got: got}
	go func() {
		for {
			v, err := o.client.BLPop(context.Background(), 0, list).Result()
			if err != nil {
				got <- popped{err: err}
				return
			}
			got <- popped{element: v[1]}
		}
	}()
	wait.For(p.t, 10*time.Second, "a client waits on "+p.id, func() bool {
		return p.blocked(look) == before+1
	})
	return o
}

func (o *popper) want(t *testing.T, element string) {
	t.Helper()
	select {
	case got := <-o.got:
		if got.err != nil || got.element != element {
			t.Fatalf("popped %q, want %q; %v", got.element, element, got.err)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%q was not popped", element)
	}
}

// What is pushed on one node is popped on another, in the order of the waiting clients.
func TestWaitingOnAFollower(t *testing.T) {
	ps := startProcesses(t, 3)
	first, rest := leader(t, ps)
	ctx := context.Background()
	push, look := rest[1].client(), rest[0].client()
	var os []*popper
	for range 8 {
		os = append(os, startPopper(rest[0], look, "l", make(chan popped, 100)))
	}
	for round := range 3 {
		if round == 1 {
			push = first.client()
		}
		for i, o := range os {
			element := fmt.Sprint(round, "-", i)
			if err := push.RPush(ctx, "l", element).Err(); err != nil {
				t.Fatal(err)
			}
			o.want(t, element)
			wait.For(t, 10*time.Second, "it waits again", func() bool {
				return rest[0].blocked(look) == len(os)
			})
		}
	}

	// Clients that disconnected take nothing.
	for _, o := range os[:7] {
		_ = o.client.Close()
	}
	wait.For(t, 10*time.Second, "the server notices their end", func() bool {
		return rest[0].blocked(look) == 1
	})
	if err := push.RPush(ctx, "l", "last").Err(); err != nil {
		t.Fatal(err)
	}
	os[7].want(t, "last")
}

// A leader is killed while clients wait on every node: those of the other two nodes do not notice,
// and get every element once.
func TestLeaderKilledWhileClientsWait(t *testing.T) {
	ps := startProcesses(t, 3)
	old, rest := leader(t, ps)
	alive := make(chan popped, 100) // what clients of surviving nodes pop
	for i := range 20 {
		p, got := ps[i%3], alive
		if p == old {
			got = make(chan popped, 100)
		}
		startPopper(p, p.client(), "l", got)
	}
	old.kill()
	push := rest[0].client()
	const elements = 60
	var pushed []string
	unknown := map[string]bool{} // on their way to the killed leader; they may be there
	for i := range elements {
		element := fmt.Sprint("e", i)
		wait.For(t, 20*time.Second, "a push", func() bool {
			err := push.RPush(context.Background(), "l", element).Err()
			switch errorWord(err) {
			case "CLUSTERDOWN", "TRYAGAIN", "LOADING":
			case "UNKNOWN":
				unknown[element] = true
				element += "'"
			default:
				if err != nil {
					t.Fatal(err)
				}
			}
			return err == nil
		})
		pushed = append(pushed, element)
	}
	var all []string
	for deadline := time.After(20 * time.Second); len(all) < elements; {
		select {
		case got := <-alive:
			if got.err != nil {
				t.Fatalf("a client of a live node: %v", got.err)
			}
			if !unknown[got.element] {
				all = append(all, got.element)
			}
		case <-deadline:
			t.Fatalf("%d of %d elements were popped", len(all), elements)
		}
	}
	slices.Sort(all)
	slices.Sort(pushed)
	if !slices.Equal(all, pushed) {
		t.Errorf("popped %q, pushed %q", all, pushed)
	}
	if n, err := push.LLen(context.Background(), "l").Result(); err != nil || n != 0 {
		t.Errorf("%d remain, %v", n, err)
	}
}

// The leader is killed while elements pass: none is popped twice. What is missing was popped by
// clients that cannot know, since their connections ended: those of the killed node, and a few.
func TestLeaderKilledWhileElementsPass(t *testing.T) {
	ps := startProcesses(t, 3)
	old, rest := leader(t, ps)
	var mu sync.Mutex
	popped, unsure := map[string]int{}, 0
	ctx, stop := context.WithCancel(context.Background())
	var poppers sync.WaitGroup
	for i := range 12 {
		c := ps[i%3].client()
		poppers.Go(func() {
			for ctx.Err() == nil {
				v, err := c.BLPop(context.Background(), time.Second, "l").Result()
				mu.Lock()
				word := errorWord(err)
				switch {
				case err == nil:
					popped[v[1]]++
				case errors.Is(err, redis.Nil) || word == "CLUSTERDOWN" || word == "TRYAGAIN" ||
					word == "LOADING":
				default:
					unsure++
				}
				mu.Unlock()
				if err != nil && word == "" && !errors.Is(err, redis.Nil) && ps[i%3] == old {
					return
				}
			}
		})
	}
	push := rest[0].client()
	var acked []string
	maybe := map[string]bool{}
	for i := range 600 {
		if i == 200 {
			old.kill()
		}
		element := fmt.Sprint("e", i)
		switch err := push.RPush(ctx, "l", element).Err(); {
		case err == nil:
			acked = append(acked, element)
		case errorWord(err) == "UNKNOWN":
			maybe[element] = true
		}
	}
	wait.For(t, 20*time.Second, "an empty list", func() bool {
		n, err := push.LLen(context.Background(), "l").Result()
		return err == nil && n == 0
	})
	stop()
	poppers.Wait()
	missing := missingElements(t, acked, popped)
	if missing > unsure {
		t.Errorf("%d elements are missing, but only %d pops have an unknown outcome",
			missing, unsure)
	}
	if len(acked) < 300 {
		t.Errorf("only %d pushes were acknowledged: the test proves little", len(acked))
	}
	t.Logf("%d pushed, %d popped, %d missing, %d pops unknown, %d pushes unknown", len(acked),
		len(popped), missing, unsure, len(maybe))
}

// missingElements counts the pushed elements that were not popped. None may be popped twice.
func missingElements(t *testing.T, pushed []string, popped map[string]int) (missing int) {
	t.Helper()
	for element, n := range popped {
		if n > 1 {
			t.Errorf("%q was popped %d times", element, n)
		}
	}
	for _, element := range pushed {
		if popped[element] == 0 {
			missing++
		}
	}
	return missing
}

// receive returns a subscription's next message, as channel and payload.
func receive(t *testing.T, s *redis.PubSub) string {
	t.Helper()
	m, err := s.ReceiveTimeout(context.Background(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	message, ok := m.(*redis.Message)
	if !ok {
		t.Fatalf("got %v, want a message", m)
	}
	return message.Channel + " " + message.Payload
}

// Notifications are enabled on one node and sent once on every node, also after a restart.
func TestNotificationsOnEveryNode(t *testing.T) {
	ps := startProcesses(t, 3)
	_, rest := leader(t, ps)
	ctx := context.Background()
	if err := rest[0].client().ConfigSet(ctx, "notify-keyspace-events", "KEA").Err(); err != nil {
		t.Fatal(err)
	}
	if v, err := rest[0].client().ConfigGet(ctx, "notify-keyspace-events").Result(); err != nil ||
		v["notify-keyspace-events"] != "AKE" {
		t.Fatal(v, err)
	}
	check := func(key string) {
		t.Helper()
		var subs []*redis.PubSub
		for _, p := range ps {
			s := p.client().PSubscribe(ctx, "__key*__:*")
			if _, err := s.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			subs = append(subs, s)
		}
		if err := rest[1].client().Set(ctx, key, "v", 50*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		for i, s := range subs {
			for _, want := range []string{
				"__keyspace@0__:" + key + " set", "__keyevent@0__:set " + key,
				"__keyspace@0__:" + key + " expire", "__keyevent@0__:expire " + key,
				"__keyspace@0__:" + key + " expired", "__keyevent@0__:expired " + key,
			} {
				if got := receive(t, s); got != want {
					t.Errorf("%s received %q, want %q", ps[i].id, got, want)
				}
			}
			_ = s.Close()
		}
	}
	check("k")
	for _, p := range ps {
		p.kill()
	}
	for _, p := range ps {
		p.start()
	}
	for _, p := range ps {
		p.waitReady()
	}
	check("again")
}

// A client of a follower is notified of changes by clients of other nodes.
func TestTrackingOnAFollower(t *testing.T) {
	ps := startProcesses(t, 3)
	first, rest := leader(t, ps)
	reader := dialRaw(t, rest[0].addr)
	writers := []*redis.Client{first.client(), rest[1].client(), rest[0].client()}
	reader.call("HELLO", "3")
	reader.call("CLIENT", "TRACKING", "ON")
	for i := range 30 {
		value := fmt.Sprint(i)
		if err := writers[i%3].Set(context.Background(), "k", value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		// The follower may notify of the write only now that the key is read: read until no more
		// notifications come.
		for got := ""; got != fmt.Sprintf("$%d\r\n%s\r\n", len(value), value); {
			got = reader.call("GET", "k")
			for strings.HasPrefix(got, ">") {
				got = reader.next()
			}
		}
		if err := writers[(i+1)%3].Set(context.Background(), "k", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got := reader.next(); got != ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n" {
			t.Fatalf("told %q", got)
		}
	}
}

// A client with NOLOOP is notified of changes by others, even if those have the same number on
// their nodes.
func TestNoLoopOnEveryNode(t *testing.T) {
	ps := startProcesses(t, 3)
	first, rest := leader(t, ps)
	a, b := dialRaw(t, first.addr), dialRaw(t, rest[0].addr)
	number := func(c *rawClient) int { // which a node counts; the ids differ
		n, err := strconv.Atoi(strings.Trim(c.call("CLIENT", "ID"), ":\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		return n % commands.ClientIDBlock
	}
	for na, nb := number(a), number(b); na != nb; na, nb = number(a), number(b) {
		if na < nb {
			a = dialRaw(t, first.addr)
		} else {
			b = dialRaw(t, rest[0].addr)
		}
	}
	for _, c := range []*rawClient{a, b} {
		c.call("HELLO", "3")
		c.call("CLIENT", "TRACKING", "ON", "NOLOOP")
	}
	for i, c := range [][2]*rawClient{{a, b}, {b, a}} {
		tracker, writer := c[0], c[1]
		own := fmt.Sprint("own", i) // the first tracker would be notified of the second one's
		tracker.call("GET", own)
		if got := tracker.call("SET", own, "1"); got != "+OK\r\n" {
			t.Fatal(got)
		}
		tracker.call("GET", "k")
		if got := writer.call("SET", "k", "1"); got != "+OK\r\n" {
			t.Fatal(got)
		}
		if got := tracker.next(); got != ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n" {
			t.Fatalf("told %q", got)
		}
	}
}

// rawClient reads replies and messages as raw bytes.
type rawClient struct {
	t *testing.T
	*commandtest.Conn
}

func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	c, err := commandtest.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &rawClient{t, c}
}

func (c *rawClient) call(words ...string) string {
	c.t.Helper()
	if err := c.Send(commandtest.Args(words...)); err != nil {
		c.t.Fatal(err)
	}
	return c.next()
}

func (c *rawClient) next() string {
	c.t.Helper()
	raw, err := c.Receive()
	if err != nil {
		c.t.Fatal(err)
	}
	return string(raw)
}

// Clients on all nodes are served in the order of their arrival, and what one moves serves the next
// at once.
func TestOrderOfArrivalOverNodes(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	push := ps[0].client()
	var os []*popper
	for i := range 9 {
		os = append(os, startPopper(ps[i%3], ps[i%3].client(), "l", make(chan popped, 100)))
	}
	for round := range 3 {
		for i, o := range os {
			element := fmt.Sprint(round, "-", i)
			if err := push.RPush(ctx, "l", element).Err(); err != nil {
				t.Fatal(err)
			}
			o.want(t, element)
			wait.For(t, 10*time.Second, "it waits again", func() bool {
				return ps[i%3].blocked(o.client) == 3
			})
		}
	}
	chain := []string{"start", "second", "third", "end"}
	for i := range 3 {
		c := ps[i].client()
		go func() { c.BLMove(ctx, chain[i], chain[i+1], "LEFT", "RIGHT", 0) }()
		wait.For(t, 10*time.Second, "it waits", func() bool {
			return ps[i].blocked(os[i].client) == 4
		})
	}
	multi := push.TxPipeline()
	multi.RPush(ctx, chain[0], "x")
	if _, err := multi.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	// the next command of another client already finds the element at the end
	if got, err := ps[1].client().LRange(ctx, "end", 0, -1).Result(); err != nil ||
		!slices.Equal(got, []string{"x"}) {
		t.Errorf("at the end of the chain: %q, %v", got, err)
	}
}

// Order of arrival holds over changes of leader, also on a cluster where nothing else happens: the
// push is the first request of the new term.
func TestOrderOfArrivalOverLeaders(t *testing.T) {
	ps := startProcesses(t, 3)
	_, rest := leader(t, ps)
	ctx := context.Background()
	push := ps[0].client()
	const rounds = 2
	for round := range rounds {
		list := fmt.Sprint("l", round)
		var os []*popper
		for i := range 9 {
			os = append(os, startPopper(ps[i%3], ps[i%3].client(), list, make(chan popped, 100)))
		}
		rest[round].lead()
		var elements []any
		for i := range os {
			elements = append(elements, fmt.Sprint(round, "-", i))
		}
		if err := push.RPush(ctx, list, elements...).Err(); err != nil {
			t.Fatal(err)
		}
		for i, o := range os {
			o.want(t, elements[i].(string))
			wait.For(t, 10*time.Second, "all of its node wait again", func() bool {
				return i < 6 || ps[i%3].blocked(o.client) == 3*(round+1)
			})
		}
	}
}

// A follower is killed while its clients wait: each of them may have taken one element, and no more
// are lost.
func TestFollowerKilledWhileClientsWait(t *testing.T) {
	ps := startProcesses(t, 3)
	_, rest := leader(t, ps)
	gone, alive := rest[0], make(chan popped, 200)
	const ghosts, elements = 7, 60
	for range ghosts {
		startPopper(gone, gone.client(), "l", make(chan popped, 100))
	}
	startPopper(rest[1], rest[1].client(), "l", alive)
	gone.kill()
	push := rest[1].client()
	var pushed []string
	for i := range elements {
		element := fmt.Sprint("e", i)
		if err := push.RPush(context.Background(), "l", element).Err(); err != nil {
			t.Fatal(err)
		}
		pushed = append(pushed, element)
	}
	got := map[string]int{}
	for deadline := time.After(20 * time.Second); got[pushed[elements-1]] == 0; {
		select {
		case one := <-alive:
			if one.err != nil {
				t.Fatal(one.err)
			}
			got[one.element]++
		case <-deadline:
			t.Fatalf("%d elements were popped", len(got))
		}
	}
	missing := missingElements(t, pushed, got)
	if missing > ghosts {
		t.Errorf("%d elements are missing, %d clients were gone", missing, ghosts)
	}
	t.Logf("%d of %d elements went to clients of the killed node", missing, elements)
}
