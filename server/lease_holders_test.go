package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
)

// lease grants a lease of a minute, and attaches a key of that name.
func (c *client) lease(key string) (id string) {
	c.t.Helper()
	id = strings.Trim(c.call("LEASE", "GRANT", "60000", "CONNECTION"), ":\r\n")
	if got := c.call("SET", key, "v", "LEASE", id); got != "+OK\r\n" {
		c.t.Fatalf("lease %q: %q", id, got)
	}
	return id
}

// leaves waits until a key has so many ms left.
func (n *node) leaves(t *testing.T, key string, ms int) {
	t.Helper()
	c := n.dial(t)
	eventually(t, fmt.Sprint(ms, " ms of ", key), func() bool {
		return c.call("PTTL", key) == fmt.Sprintf(":%d\r\n", ms)
	})
	c.Close()
}

// toldAll waits until all that is to be told of connections is told, and those that are left are
// gone.
func (n *node) toldAll(t *testing.T, sessions int) {
	t.Helper()
	eventually(t, "all is told", func() bool {
		n.holders.mu.Lock()
		defer n.holders.mu.Unlock()
		return len(n.all()) == sessions && !n.holders.running
	})
}

// heldBy grants a lease of a connection of another process, and attaches a key of that name.
func (f *fakeBackend) heldBy(t *testing.T, node string, conn uint64, key string) {
	t.Helper()
	q := commandOf("EVAL", "return redis.call('SET', KEYS[1], 'v', 'LEASE', "+
		"redis.call('LEASE', 'GRANT', 60000, 'CONNECTION'))", "1", key)
	q.Holder = &commands.Holder{Node: []byte(node), ID: conn}
	f.change(t, q)
}

// A lease ends after its connection, unless another one renews it first.
func TestLeaseEndsWithConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		a, b, other := n.dial(t), n.dial(t), n.dial(t)
		id, second := a.lease("k"), other.lease("l")
		if got := a.call("LEASE", "INFO", id); !strings.Contains(got,
			"node\r\n$2\r\nn1\r\n$10\r\nconnection\r\n:"+a.id()+"\r\n") {
			t.Errorf("info %q", got)
		}
		n.leaves(t, "k", 60_000)
		b.call("LEASE", "KEEPALIVE", second, id)
		a.Close()
		n.toldAll(t, 2)
		n.leaves(t, "k", 60_000)
		n.toldAll(t, 2)
		b.Close()
		n.leaves(t, "k", 5000)
		n.leaves(t, "l", 5000) // b had taken it over too
		c := n.dial(t)
		c.call("IDEMPOTENT", "r1", "LEASE", "KEEPALIVE", id)
		n.leaves(t, "k", 60_000)
		if got := c.call("LEASE", "INFO", id); !strings.Contains(got,
			"connection\r\n:"+c.id()+"\r\n") {
			t.Errorf("info %q", got)
		}
		if got := c.call("IDEMPOTENT", "r2", "LEASE", "GRANT", "60000",
			"CONNECTION"); got[0] != ':' {
			t.Errorf("%q", got)
		}
		c.call("MULTI")
		c.call("LEASE", "GRANT", "60000", "CONNECTION")
		c.call("CLIENT", "ID")
		if got := c.call("EXEC"); !strings.HasPrefix(got, "*2\r\n:") {
			t.Errorf("in a transaction: %q", got)
		}
		if got := n.fake.HolderNodes(); !slices.Equal(got, []string{"n1"}) {
			t.Errorf("nodes %q", got)
		}
		n.Close()
		if got := n.fake.HolderNodes(); got != nil {
			t.Errorf("connections of %q are there after the end of the server", got)
		}
	})
}

// A connection without leases is nothing to tell of.
func TestConnectionsWithoutLeasesAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		c.call("LEASE", "GRANT", "60000")
		c.call("SET", "k", "v")
		n.fake.takeCalls()
		c.Close()
		n.toldAll(t, 0)
		if got := n.fake.takeCalls(); strings.Contains(got, commands.SystemEndHolder) {
			t.Errorf("calls %q", got)
		}
	})
}

// A lease is bound to nothing that others could take for another connection.
func TestHoldersNeedIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.set(func() { n.fake.noIDs = true })
		c := n.dial(t)
		if got := c.call("LEASE", "GRANT", "60000", "CONNECTION"); !strings.HasPrefix(got,
			"-TRYAGAIN the command did not run: CONNECTION needs a call by a client") {
			t.Errorf("%q", got)
		}
		if got := c.call("LEASE", "GRANT", "60000"); got[0] != ':' {
			t.Errorf("%q", got)
		}
		n.fake.set(func() { n.fake.noIDs = false })
		time.Sleep(time.Second)
		c.lease("k")
	})
}

// A node that was taken for lost says which connections are there, and so does one that a snapshot
// may have hidden that from.
func TestHoldersComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.heldBy(t, "n1", 1, "old")
		n.leaves(t, "old", 5000) // of an earlier process
		a, b := n.dial(t), n.dial(t)
		id := a.lease("k")
		a.lease("l")
		b.lease("gone")
		n.fake.change(t, settingOf(commands.SystemDropHolders, "n1"))
		n.leaves(t, "k", 60_000)
		n.leaves(t, "l", 60_000)
		n.leaves(t, "old", 5000)
		b.Close()
		n.leaves(t, "gone", 5000)
		n.fake.change(t, settingOf(commands.SystemDropHolders, "n1"),
			settingOf(commands.SystemDropHolders, "n1"))
		n.leaves(t, "k", 60_000)
		n.leaves(t, "gone", 5000)
		n.toldAll(t, 1)
		// the machine has dropped them, and the node has not learned it
		n.fake.set(func() { n.fake.machine.SetNode("n9") })
		n.fake.change(t, settingOf(commands.SystemDropHolders, "n1"))
		n.leaves(t, "k", 5000)
		n.fake.deliver([]commands.Event{{Kind: commands.StateReplaced}})
		n.leaves(t, "k", 60_000)
		a.call("LEASE", "REVOKE", id)
	})
}

// What did not reach the machine is told again.
func TestEndsOfHoldersAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		a := n.dial(t)
		a.lease("k")
		n.fake.set(func() { n.fake.fail, n.fake.failWrites = &Error{Unknown, "UNKNOWN"}, true })
		a.Close()
		time.Sleep(3 * time.Second)
		n.fake.set(func() { n.fake.fail = nil })
		n.leaves(t, "k", 5000)
	})
}

// The leader has the leases of nodes end that it does not reach, or that were started again. A new
// leader has to listen first: a change of leader shortens nothing.
func TestUnreachedNodesLoseTheirHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.heldBy(t, "n2", 7, "k")
		n.fake.heldBy(t, "stranger", 7, "l")
		n.leaves(t, "l", 5000)
		n.leaves(t, "k", 60_000)
		n.lead("n2")
		n.fake.set(func() { n.fake.st.Members[1].LastContact = 2 * contactLimit })
		time.Sleep(3 * contactLimit)
		n.leaves(t, "k", 60_000) // a follower decides nothing
		n.fake.set(func() { n.fake.st.Term++ })
		n.lead("n1")
		time.Sleep(contactLimit / 2)
		n.leaves(t, "k", 60_000)
		n.leaves(t, "k", 5000)

		n.fake.set(func() { n.fake.st.Members[1].LastContact = 0 })
		n.fake.heldBy(t, "n2", 8, "m")
		for _, began := range []time.Duration{time.Hour, time.Minute, 0} {
			n.leaves(t, "m", 60_000)
			time.Sleep(time.Millisecond) // it was heard of before
			n.fake.set(func() { n.fake.began = time.Now().Add(-began) })
			time.Sleep(10 * watchPeriod)
		}
		n.leaves(t, "m", 5000)
	})
}

// A node that was started again tells that the connections of its earlier process are gone, also if
// it has no clients: its leader may be one that has not seen the earlier process.
func TestHoldersOfAnEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.heldBy(t, "n1", 1, "k")
		eventually(t, "no connections", func() bool { return n.fake.HolderNodes() == nil })
		n.leaves(t, "k", 5000)
	})
}

// A connection between nodes that breaks and is made again within a second ends no lease, with any
// grace: the connections of clients are there all the time.
func TestBrokenLinksEndNoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.lead("n1")
		n.fake.heldBy(t, "n2", 7, "k")
		time.Sleep(2 * contactLimit)
		n.leaves(t, "k", 60_000)
		heard := func(connected bool, ago time.Duration) {
			n.fake.set(func() {
				m := &n.fake.st.Members[1]
				m.Connected, m.LastContact = connected, ago
			})
		}
		for range 3 {
			for ago := time.Duration(0); ago < contactLimit; ago += watchPeriod {
				heard(false, ago)
				time.Sleep(watchPeriod)
				n.leaves(t, "k", 60_000)
			}
			heard(true, 0)
			time.Sleep(2 * watchPeriod)
		}
		heard(false, contactLimit)
		n.leaves(t, "k", 5000)
	})
}

// A node whose clock goes slower, or stood still while its machine was moved, tells with a new
// connection that it has run for less than its leader counts. It is the same process.
func TestSlowClocksAreNoRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.lead("n1")
		n.fake.set(func() { n.fake.began = time.Now().Add(-24 * time.Hour) })
		n.fake.heldBy(t, "n2", 7, "k")
		q := commandOf("BLPOP", "list", "0")
		q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
		n.fake.change(t, q)
		time.Sleep(2 * contactLimit)
		n.fake.set(func() { n.fake.began = n.fake.began.Add(5 * time.Second) })
		time.Sleep(4 * watchPeriod)
		n.leaves(t, "k", 60_000)
		if !n.fake.Waits(1) {
			t.Error("its wait is dropped")
		}
		time.Sleep(time.Millisecond) // it was heard of before
		n.fake.set(func() { n.fake.began = time.Now() })
		eventually(t, "its wait is dropped", func() bool { return !n.fake.Waits(1) })
		n.leaves(t, "k", 5000)
	})
}
