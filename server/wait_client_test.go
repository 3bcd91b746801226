// Tests that a session which waits notices that its client has gone, whatever it has sent.

package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// waits are calls that wait at key k, of every blocking command.
var waits = map[string]string{
	"blpop": "BLPOP k 0", "brpop": "BRPOP k 0", "blmove": "BLMOVE k to LEFT LEFT 0",
	"blmovem":    "BLMOVEM k to LEFT LEFT 0",
	"brpoplpush": "BRPOPLPUSH k to 0", "blmpop": "BLMPOP 0 1 k LEFT",
	"bzpopmin": "BZPOPMIN k 0", "bzpopmax": "BZPOPMAX k 0", "bzmpop": "BZMPOP 0 1 k MIN",
	"bzmove":       "BZMOVE k to MIN 0",
	"lock.acquire": "LOCK.ACQUIRE k me PX 1000 WAIT 0",
	"xread":        "XREAD BLOCK 0 STREAMS k $",
	"xreadgroup":   "XREADGROUP GROUP g c BLOCK 0 STREAMS k >",
}

// behindSizes are what a client has sent behind its blocking command when it goes.
var behindSizes = []int{0, 1 << 10, 64<<10 + 1, 1 << 20}

// A client that has gone takes nothing, whatever command it waits in, and however much it has sent
// behind that.
func TestGoneBehindMuchInput(t *testing.T) {
	n := startSecure(t, nil)
	main := n.dial(t)
	dials := map[string]func(testing.TB) *client{"TCP": n.dial, "TLS": n.dialTLS}
	for _, spec := range commands.Specs() {
		if !spec.Has(commands.Blocking) {
			continue
		}
		call := strings.Fields(waits[spec.Name])
		if len(call) == 0 {
			t.Errorf("no call of %s", spec.Name)
			continue
		}
		for over, dial := range dials {
			for _, size := range behindSizes {
				main.call("DEL", "k", "to")
				if spec.Name == "xreadgroup" {
					main.call("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM")
				}
				if spec.Claims() {
					main.call("SET", "k", "held")
				}
				c := dial(t)
				if err := c.Send(commandtest.Args(call...)); err != nil {
					t.Fatal(err)
				}
				n.waiting(t, 1)
				sent := make(chan struct{})
				go func() {
					_ = c.SendRaw([]byte(strings.Repeat(" \r\n", size/3+size%3)))
					close(sent)
				}()
				receive(t, "all is sent", sent)
				_ = c.Close()
				what := fmt.Sprintf("%s over %s with %d bytes behind it ends", spec.Name, over,
					size)
				eventually(t, what, func() bool {
					return n.waitQueues.blocked.Load() == 0 && len(n.all()) == 1
				})
				n.idle(t)
				if spec.Group == "list" {
					if got := main.call("RPUSH", "k", "x"); got != ":1\r\n" {
						t.Errorf("%s: %q", what, got)
					}
					eventually(t, "x is there", func() bool {
						return main.call("LLEN", "k") == ":1\r\n"
					})
				}
			}
		}
	}
	n.idle(t)
	if held := n.ahead.Load(); held != 0 {
		t.Errorf("%d bytes of input are still counted", held)
	}
}

// A client is seen to have gone behind input that nobody has read.
func TestGoneBehindUnreadInput(t *testing.T) {
	n := startSecure(t, nil)
	for over, dial := range map[string]func(testing.TB) *client{"TCP": n.dial, "TLS": n.dialTLS} {
		c := dial(t)
		s := n.sessionOf(c)
		held := s.out.conn
		c.call("CLIENT", "PAUSE", "100000")
		c.raw(strings.Repeat("PING\r\n", maxAhead/6+1000))
		eventually(t, "much is read", func() bool { return n.ahead.Load() > 1<<20-1024 })
		if !clientConnected(held) {
			t.Errorf("%s: a client that is there is missed", over)
		}
		_ = c.Close()
		eventually(t, over+": it has left", func() bool { return len(n.all()) == 0 })
		n.pause.lift()
	}
}

// The node's room for input behind commands that wait is shared: who finds none is not read on, and
// is missed all the same.
func TestRoomForInputAhead(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxRequestBytes = 100 << 10 })
	var cs []*client
	for range 4 {
		c := n.popping(t, "BLPOP", "k", "0")
		c.raw(strings.Repeat(" \r\n", 40<<10))
		cs = append(cs, c)
	}
	eventually(t, "the room is used", func() bool { return n.ahead.Load() > 99<<10 })
	if held := n.ahead.Load(); held > 100<<10 {
		t.Errorf("%d bytes are held", held)
	}
	for _, c := range cs {
		_ = c.Close()
	}
	n.idle(t)
	eventually(t, "nothing is held", func() bool { return n.ahead.Load() == 0 })
}
