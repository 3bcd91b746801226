package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/subscriptions"
	"github.com/coordd/coordd/fsm"
)

// compare compares replies, with spaces for the ends of lines.
func (c *client) compare(t *testing.T, tests [][2]string) {
	t.Helper()
	for _, test := range tests {
		words := strings.Fields(test[0])
		if words[0] == "EVAL" {
			words = []string{"EVAL", "return " + strings.Join(words[1:], " "), "0"}
		}
		got := strings.ReplaceAll(c.call(words...), "\r\n", " ")
		if got != test[1]+" " {
			t.Errorf("%s: %q, want %q", test[0], got, test[1])
		}
	}
}

// tell has the machine count subscribers of another node.
func (f *fakeBackend) tell(t *testing.T, id string, words ...string) {
	t.Helper()
	f.change(t, settingOf(commands.SystemDropSubscribers, id))
	f.change(t, settingOf(append([]string{commands.SystemSubscribers, id, fmt.Sprint(f.index),
		"1"}, words...)...))
}

// counts waits until the machine counts so many subscribers of a channel.
func (n *node) counts(t *testing.T, channel string, want int64) {
	t.Helper()
	eventually(t, fmt.Sprint(want, " of ", channel), func() bool {
		return n.fake.receivers(channel) == want
	})
}

func (f *fakeBackend) receivers(channel string) (count int64) {
	q := commandOf("PUBSUB", "NUMSUB", channel)
	q.Proto = 2
	f.set(func() {
		reply := string(f.machine.Read(nil, commands.AppendRequest(nil, &q), f.clockMs, fakeWallUs))
		_, _ = fmt.Sscanf(reply[strings.LastIndexByte(reply, ':'):], ":%d", &count)
	})
	return count
}

// Commands, transactions and scripts count the subscribers of all nodes.
func TestSubscribersOfAllNodes(t *testing.T) {
	plainOnly(t)
	n := start(t, nil)
	n.fake.tell(t, "n2", "call", "2", "con2", "1", "pp*", "1", "pp2*", "3", "sshard", "1")
	c, sub := n.dial(t), n.dial(t)
	for _, call := range []string{"SUBSCRIBE all", "SUBSCRIBE on1", "PSUBSCRIBE p*",
		"PSUBSCRIBE p1*", "SSUBSCRIBE shard"} {
		sub.call(strings.Fields(call)...)
	}
	all := [][2]string{
		{"PUBSUB NUMSUB all on1 on2 none", "*8 $3 all :3 $3 on1 :1 $3 on2 :1 $4 none :0"},
		{"PUBSUB NUMSUB", "*0"},
		{"PUBSUB SHARDNUMSUB shard all", "*4 $5 shard :2 $3 all :0"},
		{"PUBSUB CHANNELS", "*3 $3 all $3 on1 $3 on2"},
		{"PUBSUB CHANNELS on[12]", "*2 $3 on1 $3 on2"},
		{"PUBSUB SHARDCHANNELS", "*1 $5 shard"},
		{"PUBSUB NUMPAT", ":3"},
	}
	c.compare(t, all)
	c.compare(t, [][2]string{
		{"PUBLISH all x", ":3"}, {"PUBLISH p2x x", ":5"}, {"PUBLISH shard x", ":0"},
		{"SPUBLISH shard x", ":2"}, {"SPUBLISH all x", ":0"},
		{"MULTI", "+OK"}, {"PUBLISH on2 x", "+QUEUED"}, {"PUBSUB NUMPAT", "+QUEUED"},
		{"SPUBLISH shard x", "+QUEUED"}, {"EXEC", "*3 :1 :3 :2"},
		{"EVAL redis.call('publish','p1','x')", ":3"},
		{"EVAL redis.call('spublish','shard','x')", ":2"},
		{"EVAL redis.call('pubsub','numsub','all','on2')", "*4 $3 all :3 $3 on2 :1"},
		{"EVAL redis.call('pubsub','channels','o*')", "*2 $3 on1 $3 on2"},
		{"EVAL redis.call('pubsub','numpat')", ":3"},
		{"EVAL redis.call('pubsub','shardnumsub','shard')", "*2 $5 shard :2"},
		{"EVAL redis.call('pubsub','shardchannels')", "*1 $5 shard"},
	})
	// a cluster client that asks all nodes and adds up, or the master alone
	c.compare(t, [][2]string{{"READONLY", "+OK"}})
	c.compare(t, all)
	n.follow(t)
	c.compare(t, [][2]string{
		{"PUBSUB NUMSUB all on2", "*4 $3 all :0 $3 on2 :0"},
		{"PUBSUB SHARDNUMSUB shard", "*2 $5 shard :0"},
		{"PUBSUB CHANNELS", "*0"}, {"PUBSUB SHARDCHANNELS", "*0"}, {"PUBSUB NUMPAT", ":0"},
		{"READWRITE", "+OK"},
	})
	c.compare(t, all)
	_ = sub.Close()
	n.counts(t, "on1", 0)
	c.compare(t, [][2]string{{"PUBSUB CHANNELS", "*2 $3 all $3 on2"}})
}

// While nodes of 0.1 are members, each counts its own, and scripts may not ask.
func TestSubscribersOfTheNode(t *testing.T) {
	n := start(t, nil)
	n.fake.restart(commands.LevelFirst)
	c, sub := n.dial(t), n.dial(t)
	sub.call("SUBSCRIBE", "a")
	sub.call("PSUBSCRIBE", "a*")
	if calls := n.fake.takeCalls(); calls != "" {
		t.Errorf("calls %q", calls)
	}
	c.compare(t, [][2]string{
		{"PUBSUB NUMSUB a b", "*4 $1 a :1 $1 b :0"}, {"PUBSUB CHANNELS", "*1 $1 a"},
		{"PUBSUB NUMPAT", ":1"}, {"PUBLISH a x", ":2"},
		{"MULTI", "+OK"}, {"PUBLISH a x", "+QUEUED"}, {"PUBSUB NUMPAT", "+QUEUED"},
		{"EXEC", "*2 :2 :1"},
		{"EVAL redis.pcall('pubsub','numpat').err",
			"$49 ERR This Redis command is not allowed from script"},
		{"MULTI", "+OK"}, {"PING", "+QUEUED"}, // nor are there conditions
		{"EXEC NX a", "-EXECABORT Transaction discarded because of: wrong number of arguments " +
			"for 'exec' command"},
	})
	n.fake.change(t) // below LevelSecond nothing is told
	n.fake.set(func() {
		n.fake.index++
		result, err := n.fake.machine.Apply(n.fake.index, &fsm.Entry{ClockMs: n.fake.clockMs,
			Level: commands.LevelSecond}, false)
		if err != nil {
			t.Fatal(err)
		}
		n.fake.users.Store((*Users)(n.fake.machine.Users()))
		n.fake.deliver(result.Events)
	})
	n.counts(t, "a", 1)
	c.compare(t, [][2]string{{"PUBLISH a x", ":2"}, {"PUBSUB NUMPAT", ":1"}})
}

// A subscription is confirmed when it counts, a later one of its connection too, and a command
// behind it counts it.
func TestConfirmedSubscriptionsCount(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.raw(pipeline([]string{"SUBSCRIBE", "a"}, []string{"PUBLISH", "a", "x"},
		[]string{"UNSUBSCRIBE", "a"}, []string{"PUBLISH", "a", "x"}))
	c.want(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	c.want(":1\r\n")
	c.want(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")
	c.want(">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n")
	c.want(":0\r\n")
	gate, begun := make(chan struct{}), make(chan struct{}, 9)
	n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
	c.raw(pipeline([]string{"SUBSCRIBE", "b"}))
	receive(t, "a request", begun)
	eventually(t, "the client waits for it", func() bool {
		n.counting.mu.Lock()
		defer n.counting.mu.Unlock()
		return n.counting.round != nil
	})
	if ready, _ := c.Ready(0); ready || n.fake.receivers("b") != 0 {
		t.Error("confirmed before it counts")
	}
	others := []*client{n.dial(t), n.dial(t), n.dial(t)} // theirs go together
	for i, o := range others {
		o.raw(pipeline([]string{"SUBSCRIBE", "b", fmt.Sprint("c", i)}))
	}
	eventually(t, "all wait", func() bool {
		n.counting.mu.Lock()
		defer n.counting.mu.Unlock()
		return n.counting.untold == 2*len(others)
	})
	n.fake.takeCalls()
	n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
	close(gate)
	for _, o := range append(others, c) {
		if got := o.next(); !strings.Contains(got, "subscribe") {
			t.Errorf("%q", got)
		}
	}
	n.counts(t, "b", 4)
	n.counts(t, "c2", 1)
	if calls := n.fake.takeCalls(); calls != "write 1, write 1" {
		t.Errorf("calls %q", calls)
	}
}

// Without a leader, or one that takes what is told, a node accepts subscriptions, says that they do
// not count, and has them counted once it can.
func TestSubscriptionsWithoutALeader(t *testing.T) {
	for _, fails := range []Outcome{NoLeader, Refused, Unknown, NotRun} {
		synctest.Test(t, func(t *testing.T) {
			n := startSimulated(t, nil)
			c, leaves := n.dial(t), n.dial(t)
			leaves.call("SUBSCRIBE", "gone")
			n.fake.set(func() { n.fake.fail, n.fake.failWrites = &Error{fails, "no"}, true })
			if got := c.call("SUBSCRIBE", "a"); !strings.Contains(got, "subscribe") {
				t.Errorf("%q", got)
			}
			_ = leaves.Close()
			counted := func(want string) {
				t.Helper()
				eventually(t, want, func() bool {
					return strings.Contains(n.dial(t).call("INFO", "stats"), want)
				})
			}
			counted("pubsub_counted:0\r\n")
			if n.fake.receivers("gone") != 1 || n.fake.receivers("a") != 0 {
				t.Error("the machine was told")
			}
			for i := range 3 { // at once
				c.call("SUBSCRIBE", fmt.Sprint("b", i))
			}
			n.fake.set(func() { n.fake.fail = nil })
			counted("pubsub_counted:1\r\n")
			n.counts(t, "gone", 0)
			n.counts(t, "a", 1)
			n.counts(t, "b2", 1)
			c.call("SUBSCRIBE", "later")
			if got := n.fake.receivers("later"); got != 1 {
				t.Errorf("%d subscribers of a later channel", got)
			}
		})
	}
}

// What the machine has dropped, or a snapshot did not have, is told again, and what an earlier
// process left is dropped.
func TestCountsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.tell(t, "n1", "cold", "1")
		n.counts(t, "old", 0)
		c := n.dial(t)
		for i := range 3 * roundNames {
			c.raw(pipeline([]string{"SUBSCRIBE", fmt.Sprint("c", i)}))
			c.next()
		}
		c.call("PSUBSCRIBE", "c*")
		c.call("SSUBSCRIBE", "c")
		last := fmt.Sprint("c", 3*roundNames-1)
		whole := func() {
			t.Helper()
			n.counts(t, last, 1)
			n.counts(t, "c0", 1)
			n.counts(t, "old", 0)
			n.dial(t).compare(t, [][2]string{{"PUBSUB NUMPAT", ":1"},
				{"PUBSUB SHARDNUMSUB c", "*2 $1 c :1"}})
		}
		whole()
		n.fake.change(t, settingOf(commands.SystemDropSubscribers, "n1"))
		whole()
		n.fake.change(t, settingOf(commands.SystemDropSubscribers, "n1"))
		n.fake.change(t, settingOf(commands.SystemDropSubscribers, "n1"))
		whole()
		n.fake.reset() // who missed messages loses the connection
		n.fake.tell(t, "n1", "cold", "1")
		n.fake.deliver([]commands.Event{{Kind: commands.StateReplaced}})
		n.counts(t, "old", 0)
		eventually(t, "they are closed", func() bool { return n.pubsub.size.Load() == 0 })
		n.dial(t).call("SUBSCRIBE", "c0")
		n.counts(t, "c0", 1)
		n.counts(t, last, 0)
		n.Close()
		if got := n.fake.SubscribedNodes(); got != nil {
			t.Errorf("subscribers of %q", got)
		}
	})
}

// The leader drops the counts of nodes that it does not reach, but a new leader has to listen
// first, and the counts of a new process are its own.
func TestUnreachedNodesLoseTheirCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		dropped := func(ids ...string) {
			t.Helper()
			eventually(t, fmt.Sprint("left: ", ids), func() bool {
				return slices.Equal(n.fake.SubscribedNodes(), ids)
			})
		}
		n.dial(t).call("SUBSCRIBE", "a")
		n.fake.tell(t, "n2", "ca", "1")
		n.fake.tell(t, "stranger", "ca", "1")
		dropped("n1", "n2")
		looks := 0
		looked := func() {
			n.fake.set(func() { looks = n.fake.looks })
			eventually(t, "it looks", func() (done bool) {
				n.fake.set(func() { done = n.fake.looks > looks+5 })
				return done
			})
		}
		for _, began := range []time.Duration{time.Hour, time.Minute} {
			n.fake.set(func() { n.fake.began = time.Now().Add(-began) })
			if looked(); len(n.fake.SubscribedNodes()) != 2 {
				t.Error("the leader drops the counts of a node that was started again")
			}
		}
		n.lead("n2")
		n.fake.set(func() { n.fake.st.Members[1].LastContact = 2 * contactLimit })
		if looked(); len(n.fake.SubscribedNodes()) != 2 {
			t.Error("a follower drops the counts of a node")
		}
		n.fake.set(func() { n.fake.st.Term++ })
		n.lead("n1")
		if looked(); len(n.fake.SubscribedNodes()) != 2 {
			t.Error("a new leader drops the counts of a node at once")
		}
		dropped("n1")
	})
}

// Who subscribes to a great many names delays nobody who subscribes to one, and what a node may
// have has a bound.
func TestManySubscriptions(t *testing.T) {
	plainOnly(t)
	n := start(t, nil)
	gate, begun := make(chan struct{}), make(chan struct{}, 99)
	n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
	many, one := n.dial(t), n.dial(t)
	call := []string{"SUBSCRIBE"}
	for i := range 10 * roundNames {
		call = append(call, fmt.Sprint("c", i))
	}
	many.raw(pipeline(call))
	receive(t, "the first request", begun) // it drops what was before
	gate <- struct{}{}
	receive(t, "a request", begun)
	one.raw(pipeline([]string{"SUBSCRIBE", "a"}))
	eventually(t, "it has a turn", func() bool {
		n.counting.mu.Lock()
		defer n.counting.mu.Unlock()
		return len(n.counting.turns) == 2
	})
	for range 2 {
		gate <- struct{}{}
		receive(t, "a request", begun)
	}
	if got := one.next(); !strings.Contains(got, "subscribe") || n.fake.receivers("a") != 1 {
		t.Errorf("%q", got)
	}
	told := 0 // any: what was there before the drop is told in no order
	for _, name := range call[1:] {
		told += int(n.fake.receivers(name))
	}
	if told > 2*2*roundNames {
		t.Errorf("%d of %d names were told in two rounds", told, len(call)-1)
	}
	n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
	close(gate)
	n.counts(t, call[len(call)-1], 1)

	n.pubsub.bytes.Add(subscriptions.MaxBytes)
	if got := one.call("SUBSCRIBE", "b"); got != "-"+errNodeChannels.Error()+"\r\n" {
		t.Errorf("%q", got)
	}
	if got := one.call("PSUBSCRIBE", "b*"); got != "-"+errNodeChannels.Error()+"\r\n" {
		t.Errorf("%q", got)
	}
	if got := one.call("SUBSCRIBE", "c1"); !strings.Contains(got, "subscribe") {
		t.Errorf("a name that others have: %q", got)
	}
	n.counts(t, "b", 0)
	n.counts(t, "c1", 2)
	_, _ = many.Close(), one.Close()
	eventually(t, "nothing is left", func() bool {
		return n.pubsub.bytes.Load() == subscriptions.MaxBytes && n.pubsub.size.Load() == 0
	})
}

// Who changes more than may wait to be told waits, and what counts goes on counting.
func TestUntoldCountsHaveABound(t *testing.T) {
	n := start(t, nil)
	c, many := n.dial(t), n.dial(t)
	c.call("SUBSCRIBE", "kept")
	n.counting.mu.Lock()
	n.counting.most = 2
	n.counting.mu.Unlock()
	gate, begun := make(chan struct{}), make(chan struct{}, 99)
	n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
	eras := func() uint64 {
		n.counting.mu.Lock()
		defer n.counting.mu.Unlock()
		return n.counting.era
	}
	era := eras()
	call := []string{"SUBSCRIBE"}
	for i := range 9 {
		call = append(call, fmt.Sprint("c", i))
	}
	many.raw(pipeline(call))
	receive(t, "a request", begun)
	eventually(t, "it waits", func() bool {
		n.counting.mu.Lock()
		defer n.counting.mu.Unlock()
		return n.counting.round != nil
	})
	if got := n.pubsub.size.Load(); got > 6 { // told, untold, and the one for which it waits
		t.Errorf("%d subscriptions", got)
	}
	n.fake.set(func() { n.fake.gate, n.fake.begun = nil, nil })
	close(gate)
	for range call[1:] {
		if got := many.next(); !strings.Contains(got, "subscribe") {
			t.Errorf("%q", got)
		}
	}
	n.counts(t, "c8", 1)
	n.fake.set(func() { n.fake.fail, n.fake.failWrites = &Error{Unknown, "no"}, true })
	_ = many.Close()
	eventually(t, "it is to leave", func() bool { return n.pubsub.size.Load() < 9 })
	n.fake.set(func() { n.fake.fail = nil })
	n.counts(t, "c0", 0)
	n.counts(t, "c8", 0)
	if got := eras(); got != era || n.fake.receivers("kept") != 1 {
		t.Errorf("era %d after %d, %d subscribers that stayed", got, era,
			n.fake.receivers("kept"))
	}
}

// A name has its room until the machine knows that nobody is left: it would have none for another
// in its place, which would not count, ever.
func TestEndedNamesKeepTheirRoom(t *testing.T) {
	plainOnly(t)
	for _, fails := range []Outcome{Unknown, NoLeader} {
		n := start(t, nil)
		stays, leaves := n.dial(t), n.dial(t)
		stays.call("SUBSCRIBE", "b")
		leaves.call("SUBSCRIBE", "a")
		leaves.call("PSUBSCRIBE", "a*")
		one, all := countedBytes(subChannel, "b"), countedBytes(subPattern, "a*")
		all += 2 * one
		room := func(want int64) {
			t.Helper()
			eventually(t, fmt.Sprint(want, " bytes"), func() bool {
				return n.pubsub.bytes.Load() == want
			})
		}
		room(all)
		gate, begun := make(chan struct{}), make(chan struct{}, 99)
		n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
		_ = leaves.Close()
		receive(t, "a request", begun)
		eventually(t, "it has left", func() bool { return n.pubsub.size.Load() == 1 })
		room(all)
		n.fake.set(func() { n.fake.fail, n.fake.failWrites = &Error{fails, "no"}, true })
		gate <- struct{}{}
		if fails == NoLeader { // all is told again
			room(one)
		} else {
			receive(t, "the next try", begun)
			room(all)
		}
		n.fake.set(func() { n.fake.fail, n.fake.gate, n.fake.begun = nil, nil, nil })
		close(gate)
		room(one)
		n.counts(t, "a", 0)
		n.counts(t, "b", 1)
	}
}

// CLIENT KILL replies when nobody counts what it has ended.
func TestKilledSubscribersDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main, sub := n.dial(t), n.dial(t)
		id := sub.id()
		sub.call("SUBSCRIBE", "a")
		begun := make(chan struct{})
		n.fake.set(func() { n.fake.begun = begun })
		main.raw(pipeline([]string{"CLIENT", "KILL", "ID", id}))
		time.Sleep(killPatience / 2) // of a simulated time: the session has ended
		synctest.Wait()
		if ready, _ := main.Ready(0); ready || n.fake.receivers("a") != 1 {
			t.Error("answered before it was told")
		}
		receive(t, "it is told", begun)
		n.fake.set(func() { n.fake.begun = nil })
		if got := main.next(); got != ":1\r\n" || n.fake.receivers("a") != 0 {
			t.Errorf("%q, %d subscribers", got, n.fake.receivers("a"))
		}
	})
}

// What the machine says while a round ends is heeded, also if there is nothing else to tell or the
// next round fails.
func TestNewsBetweenRounds(t *testing.T) {
	n := start(t, nil)
	n.dial(t).call("SUBSCRIBE", "a")
	c := &n.counting
	idle := func() (idle bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.running
	}
	for _, news := range []commands.Event{{Kind: commands.SubscribersDropped, Wait: 1 << 60},
		{Kind: commands.StateReplaced}} {
		eventually(t, "nothing is told", idle)
		c.mu.Lock()
		c.running = true // as in countSubscribers
		c.mu.Unlock()
		c.findAll(n.Server)
		c.heard(n.Server, &news)
		r, ok := c.begin(n.Server)
		if !ok {
			t.Fatalf("%v is not heeded", news)
		}
		c.end(n.Server, &r, 0, &Error{NotRun, "no"})
		if r, ok = c.begin(n.Server); !ok {
			t.Fatalf("%v is not heeded after an error", news)
		}
		c.end(n.Server, &r, 0, nil)
		n.countSubscribers()
	}
	n.counts(t, "a", 1)
}

// Changes of long names, however many, leave room for what is told again.
func TestTellingAgainHasItsShare(t *testing.T) {
	n := start(t, nil)
	c, s := &n.counting, &session{srv: n.Server}
	long := strings.Repeat("x", 4000)
	for i := range roundNames {
		s.telling.untold = append(s.telling.untold, change{subscription: subscription{subChannel,
			fmt.Sprint(i, long)}})
		c.again = append(c.again, change{subscription: subscription{subChannel, fmt.Sprint(i)}})
	}
	c.known, c.turns, c.untold = true, []*session{s}, roundNames
	r, ok := c.begin(n.Server)
	if told := len(r.names) - len(r.again); !ok || told == 0 || len(r.again) < roundNames/8 {
		t.Errorf("%d names, of which %d again", len(r.names), len(r.again))
	}
}

// Who subscribes while a node reads its log, in which the level rises, counts once it has read it:
// nobody tells the node of what it reads.
func TestSubscribersOfALoadingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.restart(commands.LevelFirst)
		n.dial(t).call("SUBSCRIBE", "a")
		counted := func(want string) {
			t.Helper()
			if got := n.dial(t).call("INFO", "stats"); !strings.Contains(got, want) {
				t.Errorf("no %s in %q", want, got)
			}
		}
		counted("pubsub_counted:0\r\n")
		n.fake.restart(commands.LevelSecond)
		n.counts(t, "a", 1)
		counted("pubsub_counted:1\r\n")
	})
}

// A node that reads its log sees counts of before, which it leaves alone.
func TestCountsOfAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		known := n.fake.users.Swap(nil)
		n.fake.set(func() { n.fake.lags = true })
		n.fake.tell(t, "n1", "cold", "1")
		looks := 0
		n.fake.set(func() { looks = n.fake.looks })
		eventually(t, "it looks", func() (done bool) {
			n.fake.set(func() { done = n.fake.looks > looks+5 })
			return done
		})
		if got := n.fake.receivers("old"); got != 1 {
			t.Errorf("%d subscribers of before", got)
		}
		n.fake.set(func() { n.fake.lags = false })
		n.fake.users.Store(known)
		n.counts(t, "old", 0)
	})
}
