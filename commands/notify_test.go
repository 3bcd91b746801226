// Notifications compared with those of Redis. The machine sends those of created keys.

package commands

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// notifiedRedis is a real server with a connection that receives its notifications.
type notifiedRedis struct {
	t             *testing.T
	caller, hears *commandtest.Conn
}

func startNotifiedRedis(t *testing.T) *notifiedRedis {
	socket := commandtest.NeedRedis(t)
	r := &notifiedRedis{t: t}
	for _, c := range []**commandtest.Conn{&r.caller, &r.hears} {
		var err error
		if *c, err = commandtest.Dial("unix", socket); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*c).Close() })
	}
	r.do(r.caller, "CONFIG", "SET", "notify-keyspace-events", "EA")
	r.do(r.hears, "PSUBSCRIBE", "__keyevent@0__:*")
	return r
}

func (r *notifiedRedis) do(c *commandtest.Conn, call ...string) []byte {
	r.t.Helper()
	reply, err := c.Do(commandtest.Args(call...))
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// call runs a call and returns the reply and its notifications, event and key.
func (r *notifiedRedis) call(call []string) (reply []byte, events []string) {
	r.t.Helper()
	reply = r.do(r.caller, call...)
	r.do(r.caller, "PUBLISH", "__keyevent@0__:end", "")
	for {
		message, err := r.hears.Receive()
		if err != nil {
			r.t.Fatal(err)
		}
		// *4 $8 pmessage $n pattern $n channel $n key
		lines := strings.Split(string(message), "\r\n")
		event := strings.TrimPrefix(lines[6], "__keyevent@0__:")
		if event == "end" {
			return reply, events
		}
		events = append(events, event+" "+lines[8])
	}
}

func TestZSetNotificationsAreThoseOfRedis(t *testing.T) {
	g := &callMaker{Rand: rand.New(rand.NewPCG(seeds.Of(t), 5))}
	compareNotifications(t, g.zsetChange)
}

// compareNotifications makes 4,000 calls here and on a real server and compares the replies, apart
// from the order of their elements, and the notifications.
func compareNotifications(t *testing.T, next func() []string) {
	t.Helper()
	real := startNotifiedRedis(t)
	table, ks := testTable(), keyspace.New()
	var own []string
	heard := 0
	env := &Env{Keyspace: ks, ClockMs: 1, Notify: func(_ NotifyClass, event string, _ int,
		key []byte) {
		own = append(own, event+" "+string(key))
	}}
	for index := range uint64(4000) {
		call := next()
		ks.Begin(1, keyspace.NewRevision(0, index+1, 0))
		own = own[:0]
		out := &RESP{Proto: 2}
		table.Run(&Call{Env: env, Tx: &Tx{Proto: 2}, Args: commandtest.Args(call...), Out: out})
		ks.End()
		reply, events := real.call(call)
		if sortedReply(out.Buf) != sortedReply(reply) {
			t.Fatalf("%q\ncoordd %q\nredis  %q", call, out.Buf, reply)
		}
		if !slices.Equal(own, events) {
			t.Fatalf("%q notified\ncoordd %q\nredis  %q", call, own, events)
		}
		if bytes.HasPrefix(out.Buf, []byte("-")) && len(own) > 0 {
			t.Fatalf("%q failed with %q and notified %q", call, out.Buf, own)
		}
		heard += len(own)
	}
	if heard < 1000 {
		t.Errorf("%d notifications only", heard)
	}
}
