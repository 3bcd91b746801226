// Requests of every kind in pipelines of many connections of one node, while leadership moves.
// Every reply is checked.

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// talker is a connection that knows the expected reply to each request. Its keys are its own,
// except the list that its neighbour fills.
type talker struct {
	*rawClient
	id, next int
	rnd      *rand.Rand
	n        int            // numbers its values
	values   map[string]int // of its counters

	out      []byte   // the pipeline
	replies  []string // what is due
	messages []string // that are due beside the replies
}

// ask adds a request and its reply, in RESP3, to the pipeline.
func (k *talker) ask(reply string, words ...string) {
	k.out = resp.AppendCall(k.out, commandtest.Args(words...))
	k.replies = append(k.replies, reply)
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func (k *talker) key(name string) string { return fmt.Sprintf("%s:%d", name, k.id) }

// raise returns the next value of a counter.
func (k *talker) raise(key string) string {
	k.values[key]++
	return fmt.Sprintf(":%d\r\n", k.values[key])
}

// steps are the kinds of requests; v is an unused value.
var steps = []func(k *talker, v string){
	func(k *talker, v string) { k.ask(bulk(v), "ECHO", v) },
	func(k *talker, v string) {
		k.ask("+OK\r\n", "SET", k.key("s"), v)
		k.ask(bulk(v), "GET", k.key("s"))
	},
	func(k *talker, v string) {
		long := strings.Repeat(v+" ", 1500)
		k.ask("+OK\r\n", "SET", k.key("long"), long)
		k.ask(bulk(long), "GET", k.key("long"))
	},
	func(k *talker, v string) { k.ask(k.raise("n"), "INCR", k.key("n")) },
	func(k *talker, v string) {
		k.ask("-ERR unknown command '"+v+"', with args beginning with: 'x' \r\n", v, "x")
		k.ask("+OK\r\n", "SET", k.key("s"), v)
		k.ask("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", "LPOP",
			k.key("s"))
	},
	func(k *talker, v string) { // a transaction
		k.ask("+OK\r\n", "MULTI")
		k.ask("+QUEUED\r\n", "INCR", k.key("n"))
		k.ask("+QUEUED\r\n", "ECHO", v)
		k.ask("+QUEUED\r\n", "SET", k.key("s"), v)
		k.ask("*3\r\n"+k.raise("n")+bulk(v)+"+OK\r\n", "EXEC")
	},
	func(k *talker, v string) { // with watched keys, some of them changed
		broken := k.rnd.IntN(2) == 0
		k.ask("+OK\r\n", "WATCH", k.key("w"))
		if broken {
			k.ask("+OK\r\n", "SET", k.key("w"), v)
		}
		k.ask("+OK\r\n", "MULTI")
		k.ask("+QUEUED\r\n", "INCR", k.key("n"))
		if broken {
			k.ask("_\r\n", "EXEC")
		} else {
			k.ask("*1\r\n"+k.raise("n"), "EXEC")
		}
	},
	func(k *talker, v string) { // a script, which publishes too
		k.messages = append(k.messages, ">3\r\n"+bulk("message")+bulk(k.key("c"))+bulk(v))
		k.ask("*2\r\n"+bulk(v)+k.raise("e"), "EVAL",
			"redis.call('publish', KEYS[2], ARGV[1]) return {ARGV[1], redis.call('incr', KEYS[1])}",
			"2", k.key("e"), k.key("c"), v)
	},
	func(k *talker, v string) {
		k.messages = append(k.messages, ">3\r\n"+bulk("message")+bulk(k.key("c"))+bulk(v))
		k.ask(":1\r\n", "PUBLISH", k.key("c"), v)
	},
	func(k *talker, v string) { // blocking commands, with an element and without
		k.ask(":1\r\n", "RPUSH", k.key("l"), v)
		k.ask("*2\r\n"+bulk(k.key("l"))+bulk(v), "BLPOP", k.key("none"), k.key("l"), "0")
		k.ask("_\r\n", "BLPOP", k.key("none"), "0.001")
	},
}

// pipeline makes the next round. In each the talker pushes an element for one neighbour and waits
// for one from the other.
func (k *talker) pipeline(round int) {
	k.out, k.replies, k.messages = k.out[:0], k.replies[:0], k.messages[:0]
	gives, takes := k.rnd.IntN(6), 6+k.rnd.IntN(6)
	for i := range takes + 1 {
		k.n++
		steps[k.rnd.IntN(len(steps))](k, fmt.Sprintf("v%d-%d", k.id, k.n))
		switch i {
		case gives:
			k.ask(k.raise("given"), "INCR", k.key("given"))
			k.ask("+OK\r\n", "MULTI")
			k.ask("+QUEUED\r\n", "RPUSH", fmt.Sprintf("to:%d", k.next), fmt.Sprint(round))
			k.ask("+QUEUED\r\n", "LLEN", k.key("none"))
			k.ask("", "EXEC") // the length of the neighbour's list is unknown
		case takes:
			list := fmt.Sprintf("to:%d", k.id)
			k.ask("*2\r\n"+bulk(list)+bulk(fmt.Sprint(round)), "BLPOP", list, "0")
		}
	}
}

// talk runs one round and checks it.
func (k *talker) talk(round int) error {
	k.pipeline(round)
	for half := range 2 { // a request may arrive in two parts
		cut := k.rnd.IntN(len(k.out) + 1)
		part := k.out[:cut]
		if half == 1 {
			part = k.out
		}
		if err := k.SendRaw(part); err != nil {
			return err
		}
		k.out = k.out[len(part):]
	}
	for replies, messages := k.replies, k.messages; len(replies)+len(messages) > 0; {
		raw, err := k.Receive()
		if err != nil {
			return fmt.Errorf(
				"round %d, %d replies and %d messages are due, the first reply %.100q: %w", round,
				len(replies), len(messages), strings.Join(replies, ""), err)
		}
		queue := &replies
		if raw[0] == '>' {
			queue = &messages
		}
		if len(*queue) == 0 {
			return fmt.Errorf("round %d: unexpected reply %.200q", round, raw)
		}
		want := (*queue)[0]
		*queue = (*queue)[1:]
		if want != string(raw) && (want != "" || !strings.HasPrefix(string(raw), "*2\r\n:")) {
			return fmt.Errorf("round %d: got %.200q, want %.200q", round, raw, want)
		}
	}
	return nil
}

// TestRepliesWhileLeadershipMoves: nothing that goes through one node is lost, duplicated,
// reordered or sent to another connection, and nothing fails, while leadership is transferred, also
// to that node.
func TestRepliesWhileLeadershipMoves(t *testing.T) {
	tier.Check(t)
	seed := seeds.Of(t)
	const talkers, rounds, moves = 12, 24, 6
	// a busy machine must not hold its own elections
	ps := startProcesses(t, 3)
	_, rest := leader(t, ps)
	through := rest[0]
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range talkers {
		k := &talker{
			rawClient: dialRaw(t, through.addr), id: i, next: (i + 1) % talkers,
			rnd: rand.New(rand.NewPCG(seed, uint64(i))), values: map[string]int{},
		}
		k.call("HELLO", "3")
		k.call("SUBSCRIBE", k.key("c"))
		wg.Go(func() {
			for round := range rounds {
				if err := k.talk(round); err != nil {
					t.Errorf("connection %d: %v", k.id, err)
					_ = k.Close()
					return // the others cannot end now: their wait does
				}
				done.Add(1)
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	rnd := rand.New(rand.NewPCG(seed, talkers))
	for i := range moves {
		after := int64((i + 1) * talkers * rounds / (moves + 1))
		wait.For(t, 30*time.Second, "rounds", func() bool {
			return done.Load() >= after || t.Failed()
		})
		if t.Failed() {
			break
		}
		_, others := leader(t, ps)
		to := others[rnd.IntN(len(others))]
		if i == 0 {
			to = through
		}
		through.mustRaft("TRANSFER", to.id)
	}
	<-ended
	t.Logf("%d rounds on %s, leadership moved %d times", done.Load(), through.id, moves)
}
