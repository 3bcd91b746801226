// Tests of redirection to the leader, of notifications of a new one, and of slots against a real
// Redis Cluster node.

package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/ports"
)

// lead makes a member the leader; "" for none.
func (n *node) lead(id string) {
	n.fake.set(func() {
		st := &n.fake.st
		st.Role, st.LeaderID, st.LeaderAddr, st.Ready = "follower", id, "", id != ""
		if m := st.member(id); m != nil {
			st.LeaderAddr = m.ClientAddr
		}
		if id == st.ID {
			st.Role = "leader"
		}
	})
	n.fake.leaderChanged <- struct{}{}
}

// follow makes n2 the leader, and waits until the server knows it.
func (n *node) follow(t *testing.T) {
	t.Helper()
	n.lead("n2")
	eventually(t, "the server follows n2", func() bool {
		v := n.leader.Load()
		return v != nil && v.addr == "10.0.0.2:7001"
	})
}

func TestMoved(t *testing.T) {
	n := start(t, func(c *Config) { c.PresentAs = PresentCluster })
	c := n.dial(t)
	if got := c.call("SET", "foo", "1"); got != "+OK\r\n" {
		t.Fatalf("the leader sends a client away: %q", got)
	}
	n.follow(t)
	const foo, bar = "-MOVED 12182 10.0.0.2:7001\r\n", "-MOVED 5061 10.0.0.2:7001\r\n"
	for _, test := range []struct{ call, want string }{
		{"SET foo 2", foo},
		{"GET foo", foo},
		{"GET x{foo}y", foo},
		{"MSET bar 1 foo 2", bar}, // one shard: no CROSSSLOT
		{"EVAL return 0 foo", "$-1\r\n"},
		{"EVAL x 1 foo", foo},
		{"BLPOP foo bar 0", foo},
		{"WATCH foo", foo},
		{"DBSIZE", ":1\r\n"}, // without a key it is forwarded
		{"PUBLISH foo x", ":0\r\n"},
		{"SPUBLISH foo x", ":0\r\n"},
		{"READONLY", "+OK\r\n"},
		{"GET foo", "$1\r\n1\r\n"}, // of this node
		{"SET foo 2", foo},
		{"READWRITE", "+OK\r\n"},
		{"GET foo", foo},
		{"MULTI", "+OK\r\n"},
		{"SET foo 3", foo},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
	} {
		if got := c.call(strings.Fields(test.call)...); got != test.want {
			t.Errorf("%s: %q, want %q", test.call, got, test.want)
		}
	}
	if got := c.call("INFO", "server"); !strings.Contains(got, "redis_mode:cluster\r\n") {
		t.Error(got)
	}
	if got := c.call("HELLO", "3"); !strings.Contains(got, "$4\r\nmode\r\n$7\r\ncluster\r\n") {
		t.Errorf("%q", got)
	}
	// While no leader is known, a command is taken and waits for one.
	n.lead("")
	eventually(t, "no leader is known", func() bool { return n.leader.Load() == nil })
	if got := c.call("GET", "foo"); got != "$1\r\n1\r\n" {
		t.Errorf("%q", got)
	}
	// A transaction queued while this node led goes to the new leader whole.
	n.lead("n1")
	eventually(t, "n1 leads", func() bool { v := n.leader.Load(); return v != nil && v.self })
	c.call("MULTI")
	if got := c.call("SET", "foo", "4"); got != "+QUEUED\r\n" {
		t.Fatal(got)
	}
	n.follow(t)
	if got := c.call("EXEC"); got != foo {
		t.Errorf("%q", got)
	}
	if got := c.call("EXEC"); got != "-ERR EXEC without MULTI\r\n" {
		t.Errorf("%q", got)
	}
}

func TestRedirectCapability(t *testing.T) {
	n := start(t, nil)
	c, plain := n.dial(t), n.dial(t)
	n.follow(t)
	if got := c.call("SET", "a", "1") + c.call("CLIENT", "CAPA",
		"redirect"); got != "+OK\r\n+OK\r\n" {
		t.Fatal(got)
	}
	const there = "-REDIRECT 10.0.0.2:7001\r\n"
	for _, test := range []struct{ call, want string }{
		{"SET a 2", there}, {"GET a", there}, {"DBSIZE", there}, {"FLUSHALL", there},
		{"EVAL x 0", there}, {"EVAL x 1 a", there},
		{"PING", "+PONG\r\n"}, {"PUBLISH a x", ":0\r\n"}, {"CLUSTER COUNTKEYSINSLOT 0", ":0\r\n"},
		{"READONLY", "+OK\r\n"}, {"GET a", "$1\r\n1\r\n"}, {"SET a 2", there},
		{"MULTI", "+OK\r\n"}, {"INCR a", there},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
		{"MULTI", "+OK\r\n"},
		{"EXEC XX a", "-EXECABORT Transaction discarded because of: " + there[1:]},
		{"EXEC", "-ERR EXEC without MULTI\r\n"},
		{"RESET", "+RESET\r\n"}, {"GET a", "$1\r\n1\r\n"},
	} {
		if got := c.call(strings.Fields(test.call)...); got != test.want {
			t.Errorf("%s: %q, want %q", test.call, got, test.want)
		}
	}
	if got := plain.call("INCR", "a"); got != ":2\r\n" {
		t.Errorf("a client that did not ask for it: %q", got)
	}
}

func TestSwitchMaster(t *testing.T) {
	plainOnly(t)
	n := start(t, func(c *Config) { c.SentinelName = "locks" })
	eventually(t, "the leader is known", func() bool { return n.leader.Load() != nil })
	c, p := n.dial(t), n.dial(t)
	c.call("SUBSCRIBE", "+switch-master")
	p.call("PSUBSCRIBE", "+*")
	n.lead("")
	n.follow(t)
	const text = "locks 10.0.0.1 7001 10.0.0.2 7001"
	c.want(fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%d\r\n%s\r\n", len(text),
		text))
	p.want(fmt.Sprintf("*4\r\n$8\r\npmessage\r\n$2\r\n+*\r\n$14\r\n+switch-master\r\n$%d\r\n%s\r\n",
		len(text), text))
	if got := n.dial(t).call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"); got != "*-1\r\n" {
		t.Errorf("%q", got)
	}
	if got := n.dial(t).call("SENTINEL", "GET-MASTER-ADDR-BY-NAME",
		"locks"); got != "*2\r\n$8\r\n10.0.0.2\r\n$4\r\n7001\r\n" {
		t.Errorf("%q", got)
	}
	// The address of n3 is not known yet: it is announced when it is.
	n.lead("n3")
	n.fake.set(func() {
		m := n.fake.st.member("n3")
		m.ClientAddr, m.Connected = "10.0.0.3:7001", true
	})
	const next = "locks 10.0.0.2 7001 10.0.0.3 7001"
	c.want(fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%d\r\n%s\r\n", len(next),
		next))
}

// If no leader appears, clients that wait for one are sent to another node, once; other
// subscribers stay.
func TestSeekersAreSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		eventually(t, "the leader is known", func() bool { return n.leader.Load() != nil })
		plain := n.dial(t)
		plain.call("SUBSCRIBE", "switch")
		for range 2 {
			c, p := n.dial(t), n.dial(t)
			c.call("SUBSCRIBE", "+switch-master")
			p.call("PSUBSCRIBE", "+switch*")
			n.lead("")
			c.ended()
			p.ended()
			c = n.dial(t)
			c.call("SUBSCRIBE", "+switch-master")
			n.follow(t)
			const text = "mymaster 10.0.0.1 7001 10.0.0.2 7001"
			c.want(fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%d\r\n%s\r\n",
				len(text), text))
			n.lead("n1")
			eventually(t, "n1 leads", func() bool {
				v := n.leader.Load()
				return v != nil && v.self
			})
		}
		if got := plain.call("PING"); got != "*2\r\n$4\r\npong\r\n$0\r\n\r\n" {
			t.Errorf("%q", got)
		}
	})
}

// TestLeaderIsAwaited: during an election, a client that asks for the leader receives the new one,
// neither the old one nor nothing.
func TestLeaderIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.follow(t)
		killed := func() { n.fake.set(func() { n.fake.st.member("n2").Connected = false }) }
		for _, test := range []struct{ call, want string }{
			{"SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n7001\r\n"},
			{"CLUSTER SLOTS", "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$8\r\n10.0.0.1\r\n:7001\r\n$40\r\n" +
				clusterID("n1") + "\r\n*0\r\n"},
		} {
			killed()
			n.lead("n2")
			c := n.dial(t)
			if err := c.Send(commandtest.Args(strings.Fields(test.call)...)); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(20*time.Millisecond, func() { n.lead("n1") })
			if got := c.next(); got != test.want {
				t.Errorf("%s: %q", test.call, got)
			}
		}
		// No leader: an answer that sends clients to another node.
		n.lead("")
		c := n.dial(t)
		for _, test := range []struct{ call, want string }{
			{"CLUSTER SLOTS", "-" + errNoLeader.Error() + "\r\n"},
			{"SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "-" + string(errNoAddress) + "\r\n"},
			{"SENTINEL MASTERS", "*0\r\n"},
			{"SENTINEL CKQUORUM mymaster",
				"-NOQUORUM 1 usable Sentinels. Not enough available Sentinels to reach the " +
					"specified quorum for this master. " +
					"Not enough available Sentinels to reach the majority and authorize " +
					"a failover\r\n"},
		} {
			if got := c.call(strings.Fields(test.call)...); got != test.want {
				t.Errorf("%s: %q, want %q", test.call, got, test.want)
			}
		}
		// For long: an answer soon.
		eventually(t, "cut off", func() bool { return n.leaderlessFor(leaderMissed) })
		const calls = 10
		began := time.Now()
		for range calls {
			if got, want := c.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"),
				"-"+string(errNoAddress)+"\r\n"; got != want {
				t.Errorf("cut off: %q", got)
			}
		}
		if took := time.Since(began); took > calls*leaderPatience/2 {
			t.Errorf("%d clients of a node that is cut off waited %v", calls, took)
		}
	})
}

// TestMembersOfANodeThatLoads: a node that does not know its members yet, as it loads or joins,
// does not say that there are none; one that does tells them while it applies its log.
func TestMembersOfANodeThatLoads(t *testing.T) {
	n := start(t, nil)
	n.follow(t)
	c := n.dial(t)
	members := n.fake.Status().Members
	const fail = commands.Error("LOADING the data")
	for _, loading := range []bool{false, true} {
		n.fake.set(func() {
			n.fake.st.Loading, n.fake.st.Members, n.fake.fail = loading, nil, fail
		})
		if got := c.call("RAFT", "MEMBERS"); got != "-LOADING the data\r\n" {
			t.Errorf("%q", got)
		}
	}
	n.fake.set(func() { n.fake.st.Members = members })
	list := fmt.Sprintf("*%d\r\n", len(members))
	if got := c.call("RAFT", "MEMBERS"); !strings.HasPrefix(got, list) {
		t.Errorf("%q", got)
	}
}

// TestBehindOfWhoIsSilent: a member's report is compared with what was committed then, but what has
// been committed since a silent one reported is what it lacks.
func TestBehindOfWhoIsSilent(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	for contact, behind := range map[time.Duration]int{0: 0, time.Minute: 60} {
		n.fake.set(func() {
			n.fake.st.Members[0].LastLog, n.fake.st.Members[1].LastLog = 100, 40
			n.fake.st.Members[1].ReportedAt, n.fake.st.Members[1].LastContact = 40, contact
		})
		want := fmt.Sprintf("$14\r\nentries-behind\r\n:%d\r\n$15\r\nlast-contact-ms\r\n:%d\r\n",
			behind, contact.Milliseconds())
		members := strings.Split(c.call("RAFT", "MEMBERS"), "$2\r\nid\r\n")
		if !strings.Contains(members[2], want) {
			t.Errorf("heard %v ago: %q", contact, members[2])
		}
	}
}

// Members that the leader did not tell say so: whoever reads the list can know that it is old.
func TestMembersWithoutALeader(t *testing.T) {
	n := start(t, nil)
	n.follow(t)
	c := n.dial(t)
	const source = "$6\r\nsource\r\n"
	if got := c.call("RAFT", "MEMBERS"); !strings.HasSuffix(got, source+"$6\r\nleader\r\n") {
		t.Errorf("%q", got)
	}
	for _, test := range []struct {
		removed bool
		leader  string
		contact time.Duration
		want    string
	}{
		{true, "n9", time.Second, "this node, which was removed from the cluster"},
		{false, "n9", time.Second, "this node, since the leader did not answer"},
		{false, "", 61 * time.Second, "this node, which last heard from a leader 1m1s ago"},
		{false, "", 0, "this node, which has heard from no leader since it started"},
	} {
		n.fake.set(func() {
			n.fake.fail = commands.Error("CLUSTERDOWN no leader")
			n.fake.st.Removed, n.fake.st.LeaderID = test.removed, test.leader
			n.fake.st.LastContact = test.contact
		})
		got := c.call("RAFT", "MEMBERS")
		if all := strings.Count(got, source); all != strings.Count(got, source+"$"+
			strconv.Itoa(len(test.want))+"\r\n"+test.want+"\r\n") || all == 0 {
			t.Errorf("%q, want %q", got, test.want)
		}
		if strings.Contains(got, "$7\r\nremoved\r\n") != test.removed {
			t.Errorf("removed is %v: %q", test.removed, got)
		}
	}
}

// The log names the first client that asks where the nodes are, and the way for those that cannot
// reach them.
func TestDiscoveryIsLogged(t *testing.T) {
	for _, test := range []struct {
		as   Presentation
		want int
	}{{PresentReplicated, 1}, {PresentStandalone, 0}, {PresentCluster, 0}} {
		var log bytes.Buffer
		n := start(t, func(c *Config) {
			c.PresentAs, c.Logger = test.as, slog.New(slog.NewTextHandler(&log, nil))
		})
		c := n.dial(t)
		for _, call := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES"} {
			c.call(strings.Fields(call)...)
		}
		n.Close()
		if got := strings.Count(log.String(), "--present-as standalone"); got != test.want {
			t.Errorf("%s: told %d times, want %d: %s", test.as, got, test.want, log.String())
		}
	}
}

// TestPresentsItselfAsStandalone asks a follower what a client may ask to find other nodes.
func TestPresentsItselfAsStandalone(t *testing.T) {
	plainOnly(t)
	n := start(t, func(c *Config) { c.PresentAs = PresentStandalone })
	n.follow(t)
	c := n.dial(t)
	for _, call := range []string{"CLUSTER SLOTS", "CLUSTER NODES", "CLUSTER KEYSLOT a",
		"CLUSTER COUNTKEYSINSLOT 0", "CLUSTER HELP", "ASKING", "READONLY", "READWRITE"} {
		if got := c.call(
			strings.Fields(call)...); got != "-ERR This instance has cluster support disabled\r\n" {
			t.Errorf("%s: %q", call, got)
		}
	}
	for _, test := range []struct{ call, want string }{
		{"ROLE", "*3\r\n$6\r\nmaster\r\n:100\r\n*0\r\n"},
		{"CONFIG GET cluster-enabled", "*2\r\n$15\r\ncluster-enabled\r\n$2\r\nno\r\n"},
		{"CLIENT CAPA redirect", "+OK\r\n"},
		{"SET a 1", "+OK\r\n"},
	} {
		if got := c.call(strings.Fields(test.call)...); got != test.want {
			t.Errorf("%s: %q, want %q", test.call, got, test.want)
		}
	}
	got := c.call("INFO", "cluster", "replication", "server", "clients") + c.call("HELLO", "3")
	for _, part := range []string{"cluster_enabled:0\r\n", "redis_mode:standalone\r\n",
		"role:master\r\nconnected_slaves:0\r\nmaster_failover_state:", "cluster_connections:0\r\n",
		"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in %q", part, got)
		}
	}
}

// TestSlotsAreThoseOfRedis compares slots with a real cluster node, for odd hash tags and random
// keys.
func TestSlotsAreThoseOfRedis(t *testing.T) {
	_, port := hostPort(ports.Addr(t)) // both required for a cluster node
	_, bus := hostPort(ports.Addr(t))
	socket := commandtest.NeedRedis(t, "--cluster-enabled", "yes", "--port", port,
		"--cluster-port", bus, "--bind", "127.0.0.1")
	conn, err := commandtest.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	real := &client{Conn: conn, t: t}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewSource(seed))
	keys := []string{"", "foo", "{}", "{}a", "a{}b", "{a}", "x{a}y{b}", "{{a}}", "a{", "a}", "}a{",
		"{a", "x{{}}y", "\x00{\xff}"}
	for range 300 {
		b := make([]byte, rnd.Intn(12))
		for i := range b {
			b[i] = "ab{}\x00\xff"[rnd.Intn(6)]
		}
		keys = append(keys, string(b))
	}
	for _, key := range keys {
		if got, want := fmt.Sprintf(":%d\r\n", commands.Slot([]byte(key))),
			real.call("CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// A client that waited for a leader in vain gets its whole pipeline answered, and is sent away;
// one rejected for another reason stays.
func TestClientsLeaveANodeThatIsCutOff(t *testing.T) {
	n := start(t, nil)
	const refused = "-CLUSTERDOWN the command did not run: no leader is known\r\n"
	n.fake.set(func() {
		n.fake.fail = &Error{NoLeader, "CLUSTERDOWN the command did not run: no leader is known"}
	})
	c := n.dial(t)
	for range 2 {
		if got := c.call("SET", "k", "v"); got != refused {
			t.Fatalf("%q", got)
		}
	}
	for range 2 { // the first is answered when the server has finished the rejected one
		if got := c.call("PING"); got != "+PONG\r\n" {
			t.Fatalf("%q", got)
		}
		n.fake.set(func() { n.fake.st.LeaderID = "" })
	}
	c.raw(calls("SET k v", "PING", "GET k"))
	c.want(refused, "+PONG\r\n", refused)
	c.ended()
	n.fake.set(func() {
		n.fake.fail = &Error{Unknown,
			"UNKNOWN the command may or may not have run: it was under way"}
	})
	c = n.dial(t)
	c.call("SET", "k", "v")
	if got := c.call("PING"); got != "+PONG\r\n" {
		t.Errorf("%q", got)
	}
}
