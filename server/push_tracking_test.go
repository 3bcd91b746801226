// Tests of redirected invalidations, their limits, and that no stale value follows its
// invalidation.

package server

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// idOf returns the id of a connection that cannot be asked.
func (n *node) idOf(s *session) string { return formatInt(int64(n.clientIDs.tell(s.id))) }

func (c *client) id() string { return strings.Trim(c.call("CLIENT", "ID"), ":\r\n") }

// What redis-server 7.0.15 sends to a redirection target.
func TestTrackingRedirected(t *testing.T) {
	n := start(t, nil)
	reader, writer, target := n.dial(t), n.dial(t), n.dial(t)
	id := target.id()
	if got := reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", id); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := reader.call("CLIENT", "GETREDIR"); got != ":"+id+"\r\n" {
		t.Error(got)
	}
	reader.call("GET", "k")
	writer.call("SET", "k", "1")
	n.pubsub.delivery.settle() // nobody is subscribed: nothing is sent
	if got := target.call("SUBSCRIBE",
		"foo"); got != "*3\r\n$9\r\nsubscribe\r\n$3\r\nfoo\r\n:1\r\n" {
		t.Fatal(got)
	}
	reader.call("GET", "k")
	writer.call("SET", "k", "2")
	target.want("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n")
	writer.call("FLUSHALL")
	target.want("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$-1\r\n")
	if list := writer.call("CLIENT", "LIST"); !strings.Contains(list, " redir="+id+" ") ||
		!strings.Contains(list, " flags=t ") {
		t.Error(list)
	}

	self := n.dial(t) // RESP2, redirected to itself
	self.call("CLIENT", "TRACKING", "ON", "REDIRECT", self.id())
	self.call("GET", "k2")
	self.call("SUBSCRIBE", "foo")
	writer.call("SET", "k2", "1")
	self.want("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$2\r\nk2\r\n")
	_ = self.Close()

	third := n.dial(t)
	third.call("HELLO", "3")
	reader.call("HELLO", "3")
	reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", third.id())
	reader.call("GET", "k")
	writer.call("SET", "k", "3")
	third.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	writer.call("FLUSHALL")
	third.want(">2\r\n$10\r\ninvalidate\r\n_\r\n")

	third3 := third.id()
	reader.call("GET", "k")
	_ = third.Close()
	number, _ := strconv.ParseUint(third3, 10, 64)
	eventually(t, "the target's end", func() bool { return n.connection(number) == nil })
	writer.call("SET", "k", "4")
	reader.want(">2\r\n$21\r\ntracking-redir-broken\r\n:" + third3 + "\r\n")
	info := reader.call("CLIENT", "TRACKINGINFO")
	if info != "%3\r\n$5\r\nflags\r\n~2\r\n$2\r\non\r\n$15\r\nbroken_redirect\r\n$8\r\nredirect\r\n:"+third3+"\r\n$8\r\nprefixes\r\n*0\r\n" {
		t.Error(info)
	}
	if got := reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", id, "REDIRECT",
		id); got != "-ERR A client can only redirect to a single other client\r\n" {
		t.Error(got)
	}
}

// Over the limit keys are evicted, and their clients receive invalidations.
func TestTrackingTableIsBounded(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CONFIG", "SET", "tracking-table-max-keys", "10")
	c.call("CLIENT", "TRACKING", "ON")
	told := 0
	for i := range 100 {
		if err := c.Send(commandtest.Args("GET", fmt.Sprint("k", i))); err != nil {
			t.Fatal(err)
		}
		for c.next() != "_\r\n" {
			told++
		}
	}
	for ; told < 90; told++ {
		if got := c.next(); !strings.HasPrefix(got, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$") {
			t.Fatal(got)
		}
	}
	if _, keys, items, _ := n.tracking.counts(); keys != 10 || items != 10 {
		t.Errorf("%d keys and %d items are kept", keys, items)
	}
	_ = c.Close()
	eventually(t, "an empty table", func() bool {
		clients, keys, items, _ := n.tracking.counts()
		return clients+keys+items == 0
	})
}

// A client that ends in the middle leaves nothing behind, even with many keys.
func TestTrackingIsForgotten(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("CLIENT", "TRACKING", "ON")
	words := []string{"MGET"}
	for i := range 3*lockedKeys + 1 {
		words = append(words, fmt.Sprint("k", i))
	}
	c.call(words...)
	c.call("CLIENT", "TRACKING", "OFF")
	if clients, keys, items, _ := n.tracking.counts(); clients+keys+items != 0 {
		t.Errorf("%d clients, %d keys, %d items are left", clients, keys, items)
	}
	c.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a", "PREFIX", "b")
	if _, _, _, prefixes := n.tracking.counts(); prefixes != 2 {
		t.Errorf("%d prefixes", prefixes)
	}
	_ = c.Close()
	eventually(t, "no prefix", func() bool {
		clients, _, _, prefixes := n.tracking.counts()
		return clients+prefixes == 0
	})
}

// TestMorePrefixesLoseNoInvalidation: a client that adds a prefix still hears of a change, not yet
// delivered, to what it tracked before.
func TestMorePrefixesLoseNoInvalidation(t *testing.T) {
	n := start(t, nil)
	d, deliver := &n.pubsub.delivery, make(chan struct{})
	now := d.deliver
	d.deliver = func(p *parcel) { <-deliver; now(p) }
	c, w := n.dial(t), n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a:")
	w.call("SET", "a:1", "v")
	c.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "b:")
	close(deliver)
	if got := c.next(); got != ">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\na:1\r\n" {
		t.Errorf("%q", got)
	}
}

// CLIENT CACHING NO is for the next command, also for one that there is not.
func TestCachingEndsWithAnyCommand(t *testing.T) {
	n := start(t, nil)
	c, w := n.dial(t), n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON", "OPTOUT")
	c.call("CLIENT", "CACHING", "NO")
	c.call("NOSUCHCOMMAND")
	c.call("GET", "k")
	w.call("SET", "k", "v")
	if got := c.next(); got != ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n" {
		t.Errorf("%q", got)
	}
}

// One client writes a counter; another reads it through a cache that follows invalidations. At the
// end the cache is right: no old value followed its invalidation.
func TestCacheEndsRight(t *testing.T) {
	n := start(t, nil)
	reader := n.dial(t)
	reader.call("HELLO", "3")
	reader.call("CLIENT", "TRACKING", "ON")
	const writes = 2000
	done := make(chan struct{})
	go func() {
		defer close(done)
		writer := n.dial(t)
		for range writes {
			writer.call("INCR", "k")
		}
	}()
	last := fmt.Sprintf("$4\r\n%d\r\n", writes)
	cached, reads := "", 0
	for cached != last {
		if cached == "" {
			reader.raw(pipeline([]string{"GET", "k"}))
			reads++
		}
		for got := reader.next(); ; got = reader.next() {
			if got[0] == '>' {
				cached = "" // after the newest value, or of an older one: the next read decides
				break
			}
			cached = got
			break
		}
		if cached == "" && reads > 20*writes {
			t.Fatal("no end")
		}
	}
	receive(t, "all is done", done)
}

// A key recorded for a read that has not run yet may change at once. Its invalidation follows the
// read's reply, which has the new value, and is the last for that key.
func TestChangeBeforeTheReadIsToldBehindIt(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	c.call("PING") // what TRACKING's own reply held is sent
	number, _ := strconv.ParseUint(c.id(), 10, 64)
	s := n.connection(number)
	get := commandtest.Args("GET", "k")
	spec, err := n.table.Resolve(get)
	if err != nil {
		t.Fatal(err)
	}
	s.remember(spec, get)
	n.Deliver([]commands.Event{{Kind: commands.KeyChanged, Key: "k"}})
	n.pubsub.delivery.settle()
	if _, keys, _, _ := n.tracking.counts(); keys != 0 {
		t.Fatal("the change was not heard")
	}
	if got := c.call("GET", "k"); got != "_\r\n" {
		t.Errorf("%q came before the reply", got)
	}
	c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
}

// bobTracks starts a client with CLIENT TRACKING ON, whose user may touch b:* and what rules say.
func bobTracks(t *testing.T, n *node, rules ...string) *client {
	t.Helper()
	n.fake.setUser(t, "bob", append([]string{"on", "nopass", "+@all", "~b:*"}, rules...)...)
	bob := n.dial(t)
	bob.call("HELLO", "3", "AUTH", "bob", "any")
	bob.call("CLIENT", "TRACKING", "ON")
	return bob
}

// tracks fails the test unless the clients of the node track so many keys.
func (n *node) tracks(t *testing.T, want int) {
	t.Helper()
	if _, keys, items, _ := n.tracking.counts(); keys != want || items != want {
		t.Errorf("%d keys and %d items are tracked, want %d", keys, items, want)
	}
}

const (
	deniedKey = "-NOPERM this user has no permissions to access one of the keys used as " +
		"arguments\r\n"
	invalidates = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\n"
)

// A client does not track what it is not permitted to read, however often it tries.
func TestDeniedReadsAreNotTracked(t *testing.T) {
	n := start(t, nil)
	bob := bobTracks(t, n)
	bob.call("CLIENT", "TRACKING", "OFF")
	for _, mode := range []string{"", "OPTOUT", "NOLOOP", "OPTIN"} {
		bob.call(strings.Fields("CLIENT TRACKING ON " + mode)...)
		for _, words := range []string{"GET secret", "MGET b:1 secret", "EVAL return 2 b:1 secret",
			"EVAL_RO return 1 secret", "XREAD BLOCK 0 STREAMS secret 0"} {
			if mode == "OPTIN" {
				bob.call("CLIENT", "CACHING", "YES")
			}
			if got := bob.call(strings.Fields(words)...); got != deniedKey {
				t.Errorf("%q: %q", words, got)
			}
		}
		n.tracks(t, 0)
		bob.call("CLIENT", "TRACKING", "OFF")
	}
}

// What a client tracks it tracks further after its user has lost the right, as in Redis.
func TestDeniedReadsEndNoTracking(t *testing.T) {
	n := start(t, nil)
	bob := bobTracks(t, n, "~c:*")
	bob.call("GET", "c:1")
	bob.call("MULTI")
	bob.call("GET", "b:1")
	bob.call("GET", "c:2")
	n.fake.setUser(t, "bob", "resetkeys", "~b:*")
	if got := bob.call("EXEC"); !strings.HasPrefix(got, "*2\r\n_\r\n-NOPERM ACLs rules changed") {
		t.Error(got)
	}
	if got := bob.call("GET", "c:1"); got != deniedKey {
		t.Error(got)
	}
	n.tracks(t, 2) // b:1, c:1
	n.dial(t).call("SET", "c:1", "1")
	bob.want(invalidates + "c:1\r\n")
}

// A node that lags does not know yet what the client may read: the client is told at once to forget
// it.
func TestReadsThatThisNodeWouldDeny(t *testing.T) {
	n := start(t, nil)
	bob := bobTracks(t, n, "~c:*")
	bob.call("MULTI")
	bob.call("GET", "c:1")
	bob.call("GET", "b:1")
	n.fake.setUser(t, "bob", "resetkeys", "~b:*")
	n.fake.set(func() { n.fake.lags = true })
	n.fake.setUser(t, "bob", "~c:*")
	n.dial(t).call("XADD", "c:4", "1-1", "field", "value")
	for _, c := range []struct {
		words, reply string
		told         string
	}{
		{"EXEC", "*2\r\n_\r\n_\r\n", "c:1"},
		{"GET c:2", "_\r\n", "c:2"},
		{"EVAL return{err='no'} 1 c:3", "-no\r\n", ""},
		{"GET secret", deniedKey, ""},
		{"XREAD BLOCK 1 STREAMS c:5 0", "_\r\n", "c:5"},
		{"XREAD BLOCK 0 STREAMS c:4 0",
			"%1\r\n$3\r\nc:4\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$5\r\nfield\r\n$5\r\nvalue\r\n",
			"c:4"},
		{"PING", "+PONG\r\n", ""},
	} {
		if got := bob.call(strings.Fields(c.words)...); got != c.reply {
			t.Errorf("%s: %q", c.words, got)
		}
		if c.told != "" {
			bob.want(invalidates + c.told + "\r\n")
		}
	}
	n.tracks(t, 1) // b:1
}

// What a command has read that waited for it is tracked: the change that woke it is told before its
// reply, and the next one too.
func TestReadsThatWaitedAreTracked(t *testing.T) {
	n := start(t, nil)
	add := func(id string) { // as another node does
		t.Helper()
		q := commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("XADD", "c:1", id, "field", "value")}}
		if _, err := n.fake.run("write", commands.AppendRequest(nil, &q), true); err != nil {
			t.Fatal(err)
		}
	}
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	c.raw(calls("XREAD BLOCK 0 STREAMS c:1 $"))
	n.waiting(t, 1)
	n.pause.begin(time.Hour, true) // it is awake, and does not read yet
	add("1-1")
	c.want(invalidates + "c:1\r\n")
	n.pause.lift()
	if got := c.next(); !strings.Contains(got, "1-1") {
		t.Errorf("%q", got)
	}
	add("2-1")
	c.want(invalidates + "c:1\r\n")
}

// While replies are still owed, messages wait for them too.
func TestMessagesWaitForAllThatIsOwed(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	var wg sync.WaitGroup
	var sent atomic.Uint64
	var o output
	o.init(near, func() int { return 1 << 20 }, &sent, new(atomic.Uint32), &account{})
	o.hold(&wg)
	o.deliver(&message{body: []byte("message")})
	if err := o.write([]byte("first"), true, framing{proto: 2}); err != nil {
		t.Fatal(err)
	}
	if err := o.write([]byte("second"), false, framing{proto: 2}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("firstsecondmessage"))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "firstsecondmessage" {
		t.Errorf("%q, %v", got, err)
	}
	o.drain()
	wg.Wait()
}

// The prefixes of a key are found among many.
func TestManyPrefixes(t *testing.T) {
	n := start(t, nil)
	c, w := n.dial(t), n.dial(t)
	c.call("HELLO", "3")
	words := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	for i := range 500 {
		words = append(words, "PREFIX", fmt.Sprintf("p%03d", i), "PREFIX",
			fmt.Sprintf("longer%03d", i))
	}
	if got := c.call(words...); got != "+OK\r\n" {
		t.Fatal(got)
	}
	w.raw(pipeline([]string{"MSET", "p", "0", "p007", "1", "longer499x", "2", "other", "3", "p007y",
		"4", "longer", "5"}))
	w.want("+OK\r\n")
	c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$10\r\nlonger499x\r\n",
		">2\r\n$10\r\ninvalidate\r\n*2\r\n$4\r\np007\r\n$5\r\np007y\r\n")
	c.call("CLIENT", "TRACKING", "OFF")
	if left := n.tracking.prefixes.Len(); left != 0 {
		t.Errorf("%d prefixes are left", left)
	}
}

// With NOLOOP, a client's own change does not end its tracking of the key: it may be applied late,
// after a read.
func TestOwnChangesDoNotEndTracking(t *testing.T) {
	n := start(t, nil)
	a, b := n.dial(t), n.dial(t)
	a.call("HELLO", "3")
	a.call("CLIENT", "TRACKING", "ON", "NOLOOP")
	a.call("GET", "k")
	a.call("SET", "k", "1")
	b.call("SET", "k", "2")
	a.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	b.call("SET", "k", "3")
	a.call("SET", "k", "4")
	if got := a.call("PING"); got != "+PONG\r\n" {
		t.Errorf("notified of a key that was not read again: %q", got)
	}
}

// A script tracks what its reading commands name. What it has not declared may have changed before
// anybody knew that it is read: the client is told at once.
func TestScriptsTrackWhatTheyRead(t *testing.T) {
	n := start(t, nil)
	c, w := n.dial(t), n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	invalid := func(key string) string {
		return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key)
	}
	const reads = "return redis.call('GET', %s)"
	tracked := func(want ...string) {
		t.Helper()
		n.tracking.mu.Lock()
		defer n.tracking.mu.Unlock()
		if got := slices.Sorted(maps.Keys(n.tracking.keys)); !slices.Equal(got, want) {
			t.Errorf("tracked are %q, want %q", got, want)
		}
	}
	// While a script runs, what it declares counts as read: without NOLOOP the change may be told.
	c.call("CLIENT", "TRACKING", "ON", "NOLOOP")
	c.call("EVAL", "return redis.call('SET', KEYS[1], 1)", "2", "a", "b")
	tracked()
	c.call("EVAL", fmt.Sprintf(reads, "KEYS[2]"), "2", "a", "b")
	tracked("b")
	c.call("EVAL_RO", fmt.Sprintf(reads, "KEYS[1]"), "2", "a", "b") // b stays, another has read it
	tracked("a", "b")
	w.call("MSET", "a", "2", "b", "2")
	if got := c.next() + c.next(); got != invalid("a")+invalid("b") {
		t.Fatal(got)
	}
	tracked()

	// In one batch, in a transaction, with a read of the key by itself.
	c.Send(commandtest.Args("EVAL", "return 1", "1", "a"))
	c.Send(commandtest.Args("GET", "a"))
	c.Send(commandtest.Args("EVAL", "return 2", "1", "a"))
	if got := c.next() + c.next() + c.next(); got != ":1\r\n$1\r\n2\r\n:2\r\n" {
		t.Fatal(got)
	}
	tracked("a")
	c.call("MULTI")
	c.call("EVAL", fmt.Sprintf(reads, "KEYS[1]"), "2", "b", "c")
	c.call("EVAL", "return redis.call('TYPE', KEYS[1])", "1", "d")
	if got := c.call("EXEC"); got != "*2\r\n$1\r\n2\r\n+none\r\n" {
		t.Fatal(got)
	}
	tracked("a", "b", "d")

	// Errors come with what was read before them.
	if got := c.call("EVAL", "redis.call('GET', KEYS[1]) error('x')", "1",
		"e"); !strings.HasPrefix(got, "-") {
		t.Fatal(got)
	}
	tracked("a", "b", "d", "e")

	if got := c.call("EVAL", fmt.Sprintf(reads, "'f'"), "0"); got != "_\r\n" {
		t.Fatal(got)
	}
	if got := c.next(); got != invalid("f") {
		t.Fatal(got)
	}
	many := "for i = 1, 20000 do redis.call('EXISTS', i) end return 3"
	if got := c.call("EVAL", many, "0") + c.next(); got !=
		":3\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n" {
		t.Fatal(got)
	}
}

// A lower limit of the table counts at once, and who tracked a key that it costs is told.
func TestTrackingTableShrinks(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	words := []string{"MGET"}
	for i := range 2*lockedKeys + 5 {
		words = append(words, fmt.Sprint("k", i))
	}
	c.call(words...)
	n.dial(t).call("CONFIG", "SET", "tracking-table-max-keys", "1")
	for range len(words) - 2 {
		if got := c.next(); !strings.HasPrefix(got, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$") {
			t.Fatal(got)
		}
	}
	if got := c.call("PING"); got != "+PONG\r\n" {
		t.Error(got)
	}
}

// A flush empties the table and tells all clients, even if there are no keys. INFO counts what is
// left after everything before it.
func TestFlushEmptiesTheTable(t *testing.T) {
	n := start(t, nil)
	c, w := n.dial(t), n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	for _, flush := range []string{"FLUSHALL", "FLUSHDB"} {
		c.call("MGET", "a", "b")
		w.call(flush)
		info := w.call("INFO", "stats")
		if !strings.Contains(info, "tracking_total_keys:0\r\n") {
			t.Error(info)
		}
		if got := c.next(); got != ">2\r\n$10\r\ninvalidate\r\n_\r\n" {
			t.Error(got)
		}
	}
}

// Whoever redirects to a connection that has said QUIT is told that it is gone.
func TestTargetThatQuits(t *testing.T) {
	n := start(t, nil)
	reader, target, writer := n.dial(t), n.dial(t), n.dial(t)
	reader.call("HELLO", "3")
	id := target.id()
	target.call("SUBSCRIBE", "__redis__:invalidate")
	reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", id)
	reader.call("GET", "k")
	target.call("QUIT")
	writer.call("SET", "k", "1")
	reader.want(">2\r\n$21\r\ntracking-redir-broken\r\n:" + id + "\r\n")
}

// Nobody has invalidations sent to a connection of another user, where they would stand among
// replies, except who may end that connection.
func TestRedirectToAnotherUser(t *testing.T) {
	n := start(t, nil)
	n.fake.setUser(t, "bob", "on", "nopass", "+@all", "-@admin", "~*", "&*")
	n.fake.setUser(t, "chief", "on", "nopass", "+@all", "~*", "&*")
	as := func(user string) *client {
		c := n.dial(t)
		c.call("HELLO", "3", "AUTH", user, "any")
		return c
	}
	bob, chief, page, own, writer := as("bob"), as("chief"), as("default"), as("bob"), n.dial(t)
	track := func(c, target *client) string {
		return c.call("CLIENT", "TRACKING", "ON", "BCAST", "REDIRECT", target.id())
	}
	if got := track(bob, page); !strings.HasPrefix(got, "-NOPERM REDIRECT to a connection of ") {
		t.Errorf("bob redirects to another user's connection: %q", got)
	}
	if log := page.call("ACL", "LOG"); !strings.Contains(log, "client|tracking") {
		t.Errorf("ACL LOG has not what was refused: %q", log)
	}
	missing := bob.call("CLIENT", "TRACKING", "ON", "REDIRECT", "99999999")
	if missing != "-ERR The client ID you want redirect to does not exist\r\n" {
		t.Error(missing)
	}
	for what, c := range map[string]*client{"bob to bob's": bob, "an administrator": chief} {
		target := map[*client]*client{bob: own, chief: page}[c]
		if got := track(c, target); got != "+OK\r\n" {
			t.Fatalf("%s: %q", what, got)
		}
	}
	writer.call("SET", "k", "1")
	const changed = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"
	own.want(changed)
	page.want(changed)

	id := own.id()
	own.call("AUTH", "default", "any") // it is bob's no more
	writer.call("SET", "k", "2")
	bob.want(">2\r\n$21\r\ntracking-redir-broken\r\n:" + id + "\r\n")
	page.want(changed)
	n.fake.setUser(t, "chief", "-client|kill") // nor may that one send to others any more
	writer.call("SET", "k", "3")
	chief.want(">2\r\n$21\r\ntracking-redir-broken\r\n:" + page.id() + "\r\n")
	for _, c := range []*client{own, page} {
		if got := c.call("ECHO", "own"); got != "$3\r\nown\r\n" {
			t.Errorf("a connection of another user: %q", got)
		}
	}
}

// A node that is cut off learns of no change: its clients drop what they cache, once, and again
// when it is cut off again.
func TestCachesOfANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		c.call("HELLO", "3")
		c.call("CLIENT", "TRACKING", "ON")
		for range 2 {
			n.follow(t)
			c.call("GET", "k")
			n.lead("")
			eventually(t, "cut off", func() bool { return n.leaderlessFor(2 * leaderMissed) })
			c.want(">2\r\n$10\r\ninvalidate\r\n_\r\n")
			if got := c.call("PING"); got != "+PONG\r\n" { // and nothing more
				t.Errorf("%q", got)
			}
		}
	})
}
