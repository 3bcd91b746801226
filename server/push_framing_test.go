// Tests that no message comes where a client expects a reply.

package server

import (
	"strings"
	"sync"
	"testing"
)

// A connection that has left subscriber mode, or MONITOR, gets replies alone: a message would be
// taken for the reply to its next command.
func TestNoMessageAfterLeaving(t *testing.T) {
	for name, x := range map[string]struct{ calls, last string }{
		"RESET":               {"SUBSCRIBE c|RESET|PING", "+RESET\r\n"},
		"RESET from patterns": {"PSUBSCRIBE *|RESET|PING", "+RESET\r\n"},
		"UNSUBSCRIBE in EXEC": {"MULTI|SUBSCRIBE c|PSUBSCRIBE *|PUNSUBSCRIBE|UNSUBSCRIBE|EXEC|PING",
			"*4\r\n"},
		"RESET from MONITOR": {"MONITOR|RESET|PING", "+RESET\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nil)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			defer wg.Wait()
			defer close(stop)
			c := n.dial(t)
			wg.Go(func() {
				c := n.dial(t)
				for {
					select {
					case <-stop:
						return
					default:
						c.call("PUBLISH", "c", "x")
					}
				}
			})
			for range 300 {
				c.raw(calls(strings.Split(x.calls, "|")...))
				got := c.next()
				for !strings.HasPrefix(got, x.last) {
					got = c.next()
				}
				c.want("+PONG\r\n")
			}
		})
	}
}

// What is held for a reply by which a client leaves is dropped with it.
func TestHeldMessagesOfWhoLeaves(t *testing.T) {
	for _, m := range []*message{{needsSubscription: true}, {needsMonitor: true}} {
		for _, proto := range []int{2, 3} {
			_, sent := m.head(framing{proto: proto})
			if want := m.needsSubscription && proto == 3; sent != want {
				t.Errorf("%+v in RESP%d: sent %v", m, proto, sent)
			}
			if _, sent = m.head(framing{proto, true, true}); !sent {
				t.Errorf("%+v in RESP%d: not sent", m, proto)
			}
		}
	}
}
