// Tests of waits that are sent again, over terms, and of what cannot be put back.

package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
)

// A node that leads a second time holds for half a second as the first time.
func TestHoldOfASecondTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		lead := func(term uint64) (era uint64) {
			n.fake.set(func() {
				n.fake.term, n.fake.st.Term, n.fake.st.Role = term, term, "leader"
				if _, err := n.fake.apply(); err != nil {
					t.Fatal(err)
				}
				era = n.fake.index
			})
			return era
		}
		held := func(number, term uint64) time.Duration {
			q := commandOf("BLPOP", "k", "0")
			q.Wait = &commands.Wait{Node: []byte("n2"), Era: lead(term), Number: number}
			n.fake.change(t, q)
			lead(term + 1)
			began := time.Now()
			eventually(t, "the hold ends", func() bool { return !n.fake.WaitsHeld() })
			return time.Since(began)
		}
		first := held(7, 4)
		// the client of n2 leaves, and another node leads for a while
		n.fake.set(func() { n.fake.st.Role = "follower" })
		time.Sleep(10 * time.Second)
		if again := held(8, 6); again < returnLimit || first < returnLimit {
			t.Errorf("it held for %v, and the second time for %v", first, again)
		}
	})
}

// What the attempt itself takes that sends a dropped wait again, for a client that has gone before
// it was there, goes back.
func TestSentAgainForNobody(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	c := n.popping(t, "BLPOP", "l", "0")
	gate, begun := make(chan struct{}), make(chan struct{}, 10)
	n.fake.change(t)
	n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
	n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
	<-begun // it is sent again
	_ = c.Close()
	n.fake.change(t, commandOf("RPUSH", "l", "x"))
	n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
	close(gate)
	eventually(t, "the element is back", func() bool {
		return main.call("LRANGE", "l", "0", "-1") == "*1\r\n$1\r\nx\r\n"
	})
}

// What is refused for good is not asked for for ever.
func TestGiveBackRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.popping(t, "BLPOP", "l", "0")
		n.fake.set(func() {
			n.fake.fail, n.fake.failWrites = &Error{Refused, "ERR too large"}, true
		})
		_ = c.Close()
		eventually(t, "it leaves", func() bool {
			n.machineWaits.mu.Lock()
			defer n.machineWaits.mu.Unlock()
			return len(n.machineWaits.gone) == 1
		})
		n.fake.change(t, commandOf("RPUSH", "l", "x"))
		time.Sleep(3 * time.Second)
		n.fake.takeCalls()
		time.Sleep(time.Minute)
		if calls := n.fake.takeCalls(); len(calls) > 0 {
			t.Errorf("it still asks: %d calls", len(calls))
		}
	})
}
