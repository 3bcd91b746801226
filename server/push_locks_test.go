// Tests of lost locks, and of what their holders learn.

package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// holder returns a client that hears of lost locks.
func (n *node) holder(t testing.TB) *client {
	t.Helper()
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	return c
}

// acquire takes a lock and returns the token.
func (c *client) acquire(words ...string) (token string) {
	c.t.Helper()
	return c.token(c.call(append([]string{"LOCK.ACQUIRE"}, words...)...))
}

func (c *client) token(reply string) string {
	c.t.Helper()
	all := strings.Split(reply, "\r\n")
	if all[0] != "*4" || all[1] == ":0" {
		c.t.Fatalf("%q is no grant", reply)
	}
	return all[1][1:]
}

func (c *client) wantLost(key, token string) {
	c.t.Helper()
	want := fmt.Sprintf(">3\r\n$9\r\nlock-lost\r\n$%d\r\n%s\r\n:%s\r\n", len(key), key, token)
	if got := c.said(); got != want {
		c.t.Fatalf("%q, want %q", got, want)
	}
}

// said returns what comes next besides invalidations.
func (c *client) said() string {
	c.t.Helper()
	for {
		if got := c.next(); !strings.HasPrefix(got, invalidateHead3) {
			return got
		}
	}
}

// quiet fails if the client is told anything.
func (c *client) quiet(when any) {
	c.t.Helper()
	if err := c.Send(commandtest.Args("PING")); err != nil {
		c.t.Fatal(err)
	}
	if got := c.said(); got != "+PONG\r\n" {
		c.t.Errorf("%v: %q", when, got)
	}
}

// noLocks fails unless the node has forgotten all locks.
func (n *node) noLocks(t testing.TB) {
	t.Helper()
	eventually(t, "no locks", func() bool {
		n.lockHolds.mu.Lock()
		defer n.lockHolds.mu.Unlock()
		return n.lockHolds.count.Load() == 0 && len(n.lockHolds.byKey) == 0
	})
}

// However a lock ends that its holder has not released, it is told, and told once.
func TestHolderIsTold(t *testing.T) {
	n := start(t, nil)
	other := n.dial(t)
	lease := strings.Trim(other.call("LEASE", "GRANT", "100000"), ":\r\n")
	for _, c := range []struct{ acquire, end string }{
		{"l me PX 50000", "DEL l"},
		{"l me PX 50000", "LOCK.STEAL l you PX 1000"},
		{"l me PX 50000", "LOCK.STEAL l me PX 1000"},
		{"l me PX 50000", "SET l you"},
		{"l me PX 50000", "RENAME l m"},
		{"l me PX 50000", "FLUSHALL"},
		{"l me PX 50000", "SWAPDB 0 1"},
		{"l me PX 50000", "LOCKS RELEASE l me $token"},
		{"l me PX 50", "wait"},
		{"l me PX 50000 REENTRANT", "HINCRBY l me 1;DEL l"},
		{"l me PX 50000 SHARED", "LOCK.ACQUIRE l you PX 500000 SHARED;HDEL l me"},
		{"l me PX 50 SHARED", "LOCK.ACQUIRE l you PX 500000 SHARED;wait"},
		{"l me PX 50 PERMITS 2 OF 3", "LOCK.ACQUIRE l you PX 500000 PERMITS 1 OF 3;wait"},
		{"l me PX 50000 PERMITS 2 OF 3", "LOCKS RELEASE l me $token"},
		{"k me PX 50000 KEYS 1 l", "DEL l;LOCK.RELEASE k me"},
		{"l me LEASE " + lease, "LEASE REVOKE " + lease},
	} {
		holder := n.holder(t)
		token := holder.acquire(strings.Fields(c.acquire)...)
		for _, line := range strings.Split(c.end, ";") {
			if line == "wait" {
				n.fake.set(func() { n.fake.clockMs += 51 })
				line = "PING"
			}
			line = strings.ReplaceAll(line, "$token", token)
			n.fake.change(t, commandOf(strings.Fields(line)...))
		}
		holder.wantLost("l", token)
		holder.quiet(c)
		n.noLocks(t)
		_ = holder.Close()
		n.fake.change(t, commandOf("FLUSHALL"))
	}
}

// What its owner has released is not lost, by whichever connection and command. Others are told
// nothing that they have not asked for.
func TestReleasedIsNotLost(t *testing.T) {
	n := start(t, nil)
	const script = "if redis.call('GET', KEYS[1]) == ARGV[1] then " +
		"return redis.call('DEL', KEYS[1]) end"
	for _, c := range []struct {
		before  string // of the holder
		acquire string
		own     []string
		other   string
	}{
		{"", "l me PX 50000", []string{"LOCK.RELEASE", "l", "me"}, ""},
		{"", "l me PX 50000", []string{"DEL", "l"}, ""},
		{"", "l me PX 50000", []string{"EVAL", script, "1", "l", "me"}, ""},
		{"", "l me PX 50000 SHARED", []string{"HDEL", "l", "me"}, ""},
		{"", "l me PX 50000", []string{"FLUSHALL"}, ""},
		{"", "l me PX 50000", nil, "LOCK.RELEASE l me"},
		{"", "l me PX 50000 SHARED", nil, "LOCK.RELEASE l me"},
		{"", "l me PX 50000 PERMITS 2 OF 3", nil, "LOCK.RELEASE l me PERMITS 2"},
		{"", "l me PX 50000 PERMITS 2 OF 3", nil, "LOCK.RELEASE l me PERMITS 1"},
		{"", "l me PX 50000 REENTRANT", nil, "LOCK.RELEASE l me"},
		{"", "l me PX 50000", nil, "LOCK.EXTEND l me PX 100"},
		{"CLIENT TRACKING OFF", "l me PX 50000", nil, "DEL l"},
		{"HELLO 2", "l me PX 50000", nil, "DEL l"},
	} {
		holder := n.holder(t)
		if c.before != "" {
			holder.call(strings.Fields(c.before)...)
		}
		holder.acquire(strings.Fields(c.acquire)...)
		if c.own != nil {
			holder.call(c.own...)
		}
		if c.other != "" {
			n.fake.change(t, commandOf(strings.Fields(c.other)...))
		}
		n.pubsub.delivery.settle()
		holder.quiet(c)
		_ = holder.Close()
		n.noLocks(t)
		n.fake.change(t, commandOf("FLUSHALL"))
	}
}

// It means nothing which comes first, the reply or the log.
func TestLockIsLostAroundItsReply(t *testing.T) {
	n := start(t, nil)
	holder := n.holder(t)
	n.fake.set(func() { // in the log first
		n.fake.after = func() { n.fake.change(t, commandOf("DEL", "l")) }
	})
	holder.wantLost("l", holder.acquire("l", "me", "PX", "50000"))
	n.fake.set(func() {
		n.fake.after = func() { n.fake.change(t, commandOf("LOCK.RELEASE", "l", "me")) }
	})
	holder.acquire("l", "me", "PX", "50000")
	n.noLocks(t)

	for _, end := range []string{"LOCK.RELEASE l me", "DEL l"} { // the reply first
		release := n.holdEvents()
		token := holder.acquire("l", "me", "PX", "50000")
		n.fake.change(t, commandOf(strings.Fields(end)...))
		if got := holder.call("PING"); got != "+PONG\r\n" {
			t.Fatalf("%q", got)
		}
		release()
		if end == "DEL l" {
			holder.wantLost("l", token)
		}
		n.noLocks(t)
	}

	// both in one batch
	for _, line := range []string{"LOCK.ACQUIRE l me PX 50000", "DEL l",
		"LOCK.ACQUIRE l me PX 50000", "LOCK.RELEASE l me", "LOCK.ACQUIRE l me PX 50000", "PING"} {
		if err := holder.Send(commandtest.Args(strings.Fields(line)...)); err != nil {
			t.Fatal(err)
		}
	}
	holder.token(holder.next())
	holder.want(":1\r\n")
	holder.token(holder.next())
	holder.want(":1\r\n")
	token := holder.token(holder.next())
	holder.want("+PONG\r\n")
	n.fake.change(t, commandOf("DEL", "l"))
	holder.wantLost("l", token)
	n.noLocks(t)
}

// Locks that were waited for, taken in a transaction, or held on.
func TestWhichLocksMayBeLost(t *testing.T) {
	n := start(t, nil)
	n.fake.change(t, commandOf("SET", "l", "x"))
	holder := n.holder(t)
	if err := holder.Send(commandtest.Args("LOCK.ACQUIRE", "l", "me", "PX", "100000", "WAIT",
		"0")); err != nil {
		t.Fatal(err)
	}
	n.waiting(t, 1)
	n.fake.change(t, commandOf("DEL", "l"))
	token := holder.wantLock(t)
	next := n.queued(t, "next")
	n.fake.change(t, commandOf("LOCK.STEAL", "l", "thief", "PX", "1000"))
	holder.wantLost("l", token)
	n.fake.change(t, commandOf("DEL", "l"))
	next.wantLock(t)
	n.fake.change(t, commandOf("FLUSHALL"))
	n.pubsub.delivery.settle()
	holder.quiet("all is gone")

	holder.call("MULTI")
	holder.call("SELECT", "3")
	holder.call("SET", "k", "v")
	holder.call("LOCK.ACQUIRE", "l", "me", "PX", "1000")
	if got := holder.call("EXEC"); !strings.HasPrefix(got, "*3\r\n+OK\r\n+OK\r\n*4\r\n:") {
		t.Fatalf("%q", got)
	} else {
		token = strings.Split(got, "\r\n")[4][1:]
	}
	q := commandOf("LOCK.STEAL", "l", "thief", "PX", "1000")
	n.fake.change(t, q) // of another database
	q.DB = 3
	n.fake.change(t, q)
	holder.wantLost("l", token)
	holder.call("SELECT", "0")
	n.noLocks(t)

	// its own waiter gets what it lets go without LOCK.RELEASE
	n.fake.change(t, commandOf("DEL", "l"))
	holder.acquire("l", "me", "PX", "1000")
	next = n.queued(t, "next")
	if got := holder.call("DEL", "l"); got != ":1\r\n" {
		t.Errorf("%q", got)
	}
	next.wantLock(t)
	holder.quiet("a waiter got it")

	// a lock that it holds on, but has not taken here
	n.fake.change(t, commandOf("FLUSHALL"))
	n.pubsub.delivery.settle()
	holder.quiet("all is gone")
	n.fake.change(t, commandOf("LOCK.ACQUIRE", "l", "me", "PX", "1000"))
	token = holder.token(holder.call("LOCK.EXTEND", "l", "me", "PX", "5000"))
	n.fake.change(t, commandOf("DEL", "l"))
	holder.wantLost("l", token)
}

// The locks that a node knows are bounded, and charged to their clients.
func TestKnownLocksAreBounded(t *testing.T) {
	n := start(t, nil)
	holder := n.holder(t)
	s := n.sessionOf(holder)
	before := s.memory.parts[memoryKeys].Load()
	for i := range maxKeyHolds + 10 {
		holder.acquire("s", fmt.Sprint("owner", i), "PX", "50000", "SHARED")
	}
	if got := n.lockHolds.count.Load(); got != maxKeyHolds {
		t.Errorf("%d locks are known", got)
	}
	if got := s.memory.parts[memoryKeys].Load() - before; got < maxKeyHolds*lockHoldCost {
		t.Errorf("charged %d bytes", got)
	}
	n.fake.change(t, commandOf("DEL", "s"))
	for range maxKeyHolds {
		if got := holder.next(); !strings.HasPrefix(got, ">3\r\n$9\r\nlock-lost\r\n$1\r\ns\r\n:") {
			t.Fatalf("%q", got)
		}
	}
	n.noLocks(t)
	if got := s.memory.parts[memoryKeys].Load() - before; got != 0 {
		t.Errorf("%d bytes stay charged", got)
	}
}

// Changes of few keys have few locks looked at where the log is applied, whoever holds them: 200
// keys that 256 owners hold each took 30 to 100 ms for each entry that changes them, which is
// charged as a fraction of a millisecond.
func TestFewKeysHaveFewLocksLookedAt(t *testing.T) {
	n := start(t, byHand)
	s := n.hearer(t, 1000, &tracker{})
	const keys = 200
	ask := func() {
		for k := range keys {
			for o := range maxKeyHolds {
				n.lockHolds.ask(s, heldLock{heldKey{0, fmt.Sprint(k)}, fmt.Sprint(o)})
			}
		}
	}
	most := keys*fewHolds + maxCrowd
	for range 2 {
		ask()
		if got := n.lockHolds.count.Load(); got != int64(most) {
			t.Errorf("%d locks of %d keys are known, want %d", got, keys, most)
		}
		n.lockHolds.forget(s)
		if got := n.lockHolds.crowd; got != 0 {
			t.Errorf("%d places stay taken", got)
		}
	}
}

// Locks that were taken one by one keep their tokens when they are extended together.
func TestLocksExtendedTogetherKeepTheirTokens(t *testing.T) {
	n := start(t, nil)
	holder := n.holder(t)
	holder.acquire("k", "me", "PX", "50000", "SHARED")
	second := holder.acquire("l", "me", "PX", "50000", "SHARED")
	holder.token(holder.call("LOCK.EXTEND", "k", "me", "PX", "50000", "KEYS", "1", "l"))
	n.fake.change(t, commandOf("LOCK.ACQUIRE", "l", "you", "PX", "50000", "SHARED"))
	n.pubsub.delivery.settle()
	holder.quiet("another reader came beside it: it still holds l")
	holder.call("HPEXPIRE", "l", "60000", "FIELDS", "1", "me")
	n.fake.change(t, commandOf("DEL", "l"))
	holder.wantLost("l", second)
}

// A lock that its owner has held for longer keeps its token beside one that is new, by which the
// reply grants both; also on a node that applies the entry behind the reply.
func TestLocksTakenBesideOlderOnes(t *testing.T) {
	n := start(t, nil)
	other, holder := n.dial(t), n.holder(t)
	older := other.acquire("k", "me", "PX", "50000", "REENTRANT")
	newer := holder.acquire("k", "me", "PX", "50000", "REENTRANT", "KEYS", "1", "l")
	if older == newer {
		t.Fatalf("both have the token %s", older)
	}
	n.fake.change(t, commandOf("PEXPIRE", "k", "60000"))
	n.pubsub.delivery.settle()
	holder.quiet("it holds both")
	n.fake.change(t, commandOf("DEL", "k"))
	holder.wantLost("k", older)
	n.fake.change(t, commandOf("DEL", "l"))
	holder.wantLost("l", newer)
	n.noLocks(t)

	holder.acquire("x", "me", "PX", "50000")
	v := &n.lockHolds
	v.mu.Lock()
	s := v.byKey[heldKey{0, "x"}][0].s
	v.mu.Unlock()
	tokens := map[string]uint64{"k": 100, "l": 200}
	for key := range tokens {
		v.ask(s, heldLock{heldKey{0, key}, "me"})
	}
	for key := range tokens {
		v.answered(s, heldLock{heldKey{0, key}, "me"}, 200, false)
	}
	for range 2 {
		for key, token := range tokens {
			v.mu.Lock()
			v.tell(&commands.Event{Kind: commands.LockTaken, Key: key, Payload: []byte("me"),
				Wait: token})
			if h := v.byKey[heldKey{0, key}]; len(h) != 1 || h[0].token != token || h[0].guessed {
				t.Errorf("%s: %+v", key, h)
			}
			v.mu.Unlock()
		}
	}
}
