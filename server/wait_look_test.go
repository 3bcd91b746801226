// XREADGROUP … CLAIM that waits: it looks again for entries that have become idle.

package server

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
)

// claimed is the reply to XREADGROUP CLAIM of one entry of the stream s.
func claimed(id string, idleMs, deliveries int) string {
	return fmt.Sprintf("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*4\r\n$%d\r\n%s\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"+
		":%d\r\n:%d\r\n", len(id), id, idleMs, deliveries)
}

// pendingEntry gives the stream s an entry that is pending in its group g. It returns a client.
func (n *node) pendingEntry(t testing.TB) *client {
	t.Helper()
	c := n.dial(t)
	c.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
	c.call("XADD", "s", "1-1", "f", "v")
	c.call("XREADGROUP", "GROUP", "g", "dead", "STREAMS", "s", ">")
	return c
}

// claiming returns a client that waits in XREADGROUP CLAIM, of the group g and the stream s.
func (n *node) claiming(t testing.TB, consumer, blockMs, idleMs string) *client {
	t.Helper()
	return n.popping(t, "XREADGROUP", "GROUP", "g", consumer, "BLOCK", blockMs, "CLAIM", idleMs,
		"STREAMS", "s", ">")
}

// passes lets time pass, on the cluster clock too. What is due in a millisecond sees that one.
func (n *node) passes(ms int64) {
	for range ms {
		n.fake.set(func() { n.fake.clockMs++ })
		time.Sleep(time.Millisecond)
		synctest.Wait()
	}
}

// A reader that claims is served once an entry has been pending for long enough, at one entry of
// the log; until then it reads at most as often as its look allows.
func TestClaimsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.pendingEntry(t)
		n.passes(400)
		c := n.claiming(t, "me", "0", "1000")
		n.fake.takeCalls()
		n.passes(590)
		if calls := n.fake.takeCalls(); calls != "" {
			t.Errorf("before anything is due: %s", calls)
		}
		n.passes(20)
		c.want(claimed("1-1", 1000, 1))
		if calls := n.fake.takeCalls(); calls != "dry run 1, write 1" {
			t.Errorf("to claim: %s", calls)
		}

		// With nothing pending it looks after the idle time: nothing can be due before.
		main.call("XACK", "s", "g", "1-1")
		c = n.claiming(t, "me", "2500", "1000")
		n.fake.takeCalls()
		n.passes(2400)
		if calls := n.fake.takeCalls(); calls != "dry run 1, dry run 1" {
			t.Errorf("of an empty group: %s", calls)
		}
		n.passes(200)
		c.want("*-1\r\n")

		// No idle time makes it look more often than ten times a second.
		c = n.claiming(t, "me", "1050", "0")
		n.fake.takeCalls()
		n.passes(1060)
		c.want("*-1\r\n")
		if looks := strings.Count(n.fake.takeCalls(), "dry run"); looks != 10 {
			t.Errorf("%d looks in a second", looks)
		}
		n.idle(t)
	})
}

// New entries, entries that become pending while it waits, and those that others release wake it
// at once or in time.
func TestClaimsWhatComesWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		main.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
		c := n.claiming(t, "me", "0", "1000")
		main.call("XADD", "s", "1-1", "f", "v")
		c.want(claimed("1-1", 0, 0))

		// It waits behind one that does not claim, who gets the new entry.
		plain := n.popping(t, "XREADGROUP", "GROUP", "g", "dead", "BLOCK", "0", "STREAMS", "s", ">")
		main.call("XACK", "s", "g", "1-1")
		c = n.claiming(t, "me", "0", "1000")
		n.passes(300)
		main.call("XREADGROUP", "GROUP", "g", "dead", "STREAMS", "s", ">")
		main.call("XCLAIM", "s", "g", "dead", "0", "1-1", "FORCE", "JUSTID")
		n.passes(900)
		n.waiting(t, 2)
		n.passes(800)
		c.want(claimed("1-1", 1000, 1))

		c = n.claiming(t, "me", "0", "60000")
		main.call("XCLAIM", "s", "g", "dead", "0", "1-1", "IDLE", "61000")
		c.want(claimed("1-1", 61000, 3))
		patient := n.claiming(t, "me", "0", "600000")
		c = n.claiming(t, "me", "0", "60000")
		main.call("XCLAIM", "s", "g", "dead", "0", "1-1", "IDLE", "61000")
		c.want(claimed("1-1", 61000, 5))
		main.call("XCLAIM", "s", "g", "dead", "0", "1-1", "IDLE", "700000")
		patient.want(claimed("1-1", 700000, 7))
		c = n.claiming(t, "me", "0", "60000")
		main.call("XNACK", "s", "g", "FAIL", "IDS", "1", "1-1")
		c.want(claimed("1-1", -1, 8))
		main.call("XADD", "s", "2-1", "f", "v")
		plain.want("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n2-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n")
		n.idle(t)
	})
}

// Of many that wait for one entry, one gets it, and the others go on waiting.
func TestManyClaimOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.pendingEntry(t)
		const clients = 20
		var cs []*client
		for i := range clients {
			cs = append(cs, n.claiming(t, fmt.Sprint("c", i), "0", "500"))
		}
		n.passes(510)
		n.waiting(t, clients-1)
		for range clients - 1 {
			n.passes(510)
		}
		for _, c := range cs {
			if got := c.next(); !strings.Contains(got, "1-1") {
				t.Errorf("%q", got)
			}
		}
		n.idle(t)
	})
}

// A look without a leader is made up for.
func TestLooksWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.pendingEntry(t)
		c := n.claiming(t, "me", "0", "500")
		n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN no leader"} })
		n.passes(2000)
		n.waiting(t, 1)
		n.fake.set(func() { n.fake.fail = nil })
		n.passes(2000)
		if got := c.next(); !strings.Contains(got, "1-1") {
			t.Errorf("%q", got)
		}
		n.idle(t)
	})
}

// A pause holds back what it would claim, not its timeout.
func TestLooksDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.pendingEntry(t)
		short, long := n.claiming(t, "me", "1000", "500"), n.claiming(t, "you", "0", "500")
		main.call("CLIENT", "PAUSE", "3000", "WRITE")
		n.fake.takeCalls()
		n.passes(1010)
		short.want("*-1\r\n")
		n.passes(1900)
		if calls := n.fake.takeCalls(); calls != "" {
			t.Errorf("during the pause: %s", calls)
		}
		n.passes(200)
		if got := long.next(); !strings.Contains(got, "1-1") {
			t.Errorf("%q", got)
		}
		n.idle(t)
	})
}

// The queue that a command waits in goes by what it can take: a reader's by its group and by what
// it claims, others' by how many elements they need.
func TestClassesOfWaits(t *testing.T) {
	for call, want := range map[string]string{
		"XREAD BLOCK 0 STREAMS s $":                                  "",
		"XREADGROUP GROUP g c BLOCK 0 STREAMS s >":                   "stream reads g",
		"XREADGROUP NOACK COUNT 1 group claim claim STREAMS claim >": "stream reads claim",
		"XREADGROUP GROUP g c CLAIM 5 STREAMS group >":               "stream claims 5 g",
		"XREADGROUP CLAIM 5 GROUP g c STREAMS s >":                   "stream claims 5 g",
		"XREADGROUP GROUP claims c BLOCK 0 STREAMS s >":              "stream reads claims",
		"BLPOP k 0":                               "list",
		"BLMOVEM a b LEFT LEFT 0 COUNT 3 OBO":     "list",
		"BLMOVEM a b LEFT LEFT 0 EXACTLY 3 BULK":  "list 3",
		"BZMPOP 0 1 k MIN COUNT 3":                "sorted-set",
		"BLMOVEM a b LEFT LEFT 0 EXACTLY -3 BULK": "list",
	} {
		args := commandtest.Args(strings.Fields(call)...)
		spec, err := testTable().Resolve(args)
		if err != nil {
			t.Fatal(err)
		}
		if got := classOf(spec, args); got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
}

// Many that wait do not look more often than few: their clients ask for nothing meanwhile.
func TestManyLookSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 500
		for i := range 2 {
			n := startSimulated(t, nil)
			main := n.dial(t)
			main.call("SET", "l", "x")
			main.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
			var all []*client
			for range clients {
				if i == 0 {
					all = append(all, n.queued(t, "me", "ID", "r"))
				} else {
					all = append(all, n.claiming(t, "me", "0", "0"))
				}
			}
			time.Sleep(time.Second)
			n.fake.takeCalls()
			time.Sleep(2 * time.Second)
			looks := strings.Count(n.fake.takeCalls(), "dry run")
			if most := 2 * int(mostLooks/3600); looks == 0 || looks > most {
				t.Errorf("%d looks in 2 s", looks)
			}
			for _, c := range all {
				_ = c.Close()
			}
			n.idle(t)
			if left := n.looks.Load(); left != 0 {
				t.Errorf("%d looks an hour remain", left)
			}
		}
	})
}
