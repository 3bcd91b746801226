// Tests of waits whose node hears late of what the machine has done.

package server

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// heard waits until the commands that wait in the machine have acted on its news, and sleep.
func (n *node) heard(t testing.TB) {
	t.Helper()
	eventually(t, "the news are read", func() bool {
		m := &n.machineWaits
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, w := range m.waiting {
			w.mu.Lock()
			calm := w.asleep && !w.woken
			w.mu.Unlock()
			if !calm {
				return false
			}
		}
		return true
	})
}

// A follower learns of a drop from the leader's reply before it applies the drop itself. What the
// machine has kept since must not be sent again.
func TestDropThatIsAppliedLate(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	var held []commands.Event
	deliver := n.fake.deliver
	n.popping(t, "BLPOP", "elsewhere", "0").Close() // the node's era is known
	n.idle(t)
	n.fake.set(func() {
		n.fake.deliver = func(e []commands.Event) {
			for _, x := range e {
				if x.Kind == commands.Served || x.Kind == commands.WaitsDropped {
					held = append(held, x)
				}
			}
		}
	})
	n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
	c := n.popping(t, "BLPOP", "l", "0")
	n.machineHas(t, 1)
	main.call("RPUSH", "l", "x") // serves it
	var first, rest []commands.Event
	n.fake.set(func() { first, rest = held[:1], held[1:] })
	if first[0].Kind != commands.WaitsDropped || len(rest) != 1 {
		t.Fatalf("%+v", held)
	}
	deliver(first)
	n.heard(t)
	deliver(rest)
	n.fake.set(func() { n.fake.deliver = deliver })
	c.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
	if got := main.call("RPUSH", "l", "y"); got != ":1\r\n" {
		t.Error(got)
	}
	if got := main.call("LRANGE", "l", "0", "-1"); got != "*1\r\n$1\r\ny\r\n" {
		t.Errorf("y is lost: %q", got)
	}
}

// A snapshot may be older than a wait that the leader has acknowledged.
func TestSnapshotOlderThanTheWait(t *testing.T) {
	n := start(t, nil)
	c := n.popping(t, "BLPOP", "l", "0")
	n.fake.set(func() { n.fake.hidesWaits = true }) // this node's state lags
	n.fake.deliver([]commands.Event{{Kind: commands.StateReplaced}})
	n.heard(t)
	n.fake.set(func() { n.fake.hidesWaits = false })
	n.fake.change(t, commandOf("RPUSH", "l", "x"))
	c.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
	n.idle(t)
}

// CLIENT UNBLOCK holds if the command moves to its node meanwhile.
func TestUnblockWhileMovingToTheNode(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	c := n.dial(t)
	id := strings.Trim(c.call("CLIENT", "ID"), ":\r\n")
	if err := c.Send([][]byte{[]byte("BLPOP"), []byte("l"), []byte("0")}); err != nil {
		t.Fatal(err)
	}
	n.waiting(t, 1)
	begun, gate := make(chan struct{}), make(chan struct{})
	n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
	n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
	receive(t, "it is sent again", begun)
	var era uint64
	n.machineWaits.mu.Lock()
	era = n.machineWaits.era
	n.machineWaits.mu.Unlock()
	// others fill the machine
	q := commandOf("BLPOP", "x", "0")
	q.Wait = &commands.Wait{Node: []byte("n1"), Era: era, Number: 1}
	for i, size := range []int{28 << 20, 28 << 20, 8<<20 - 100<<10} {
		q := commandOf("BLPOP", strings.Repeat("b", size/2), "0")
		q.Wait = &commands.Wait{Node: []byte("n1"), Era: era, Number: uint64(i + 1)}
		n.fake.change(t, q)
	}
	for i := range 300 {
		q.Wait = &commands.Wait{Node: []byte("n1"), Era: era, Number: uint64(i + 10)}
		n.fake.change(t, q)
	}
	if got := main.call("CLIENT", "UNBLOCK", id); got != ":1\r\n" {
		t.Fatalf("%q", got)
	}
	n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
	close(gate)
	c.want("*-1\r\n")
}

// What the machine has forgotten before the client left is not remembered for ever.
func TestGoneAfterADrop(t *testing.T) {
	n := start(t, nil)
	c := n.popping(t, "BLPOP", "l", "0")
	deliver := n.fake.deliver
	n.fake.set(func() { n.fake.deliver = func([]commands.Event) {} })
	n.fake.change(t, settingOf(commands.SystemDropWaits, "n1"))
	n.fake.set(func() { n.fake.deliver = deliver })
	_ = c.Close()
	n.idle(t)
}
