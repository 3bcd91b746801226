package server

// What users without rights may do with commands that this node answers, and what is kept of it.

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
)

// DEBUG has a handler, but the session answers most of its subcommands.
func TestDebugNeedsRights(t *testing.T) {
	n := start(t, nil)
	n.dial(t).call("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "-debug", "~*")
	bob := n.dial(t)
	bob.call("AUTH", "bob", "secret")
	const denied = "-NOPERM this user has no permissions to run the 'debug' command\r\n"
	for _, words := range [][]string{{"SLEEP", "0"}, {"HELP"}, {"OBJECT", "k"}, {"JMAP"}} {
		if got := bob.call(append([]string{"DEBUG"}, words...)...); got != denied {
			t.Errorf("DEBUG %s: %q", words[0], got)
		}
	}
}

// Who has no rights cannot fill a node's memory with what it was denied, or with its name.
func TestLogsKeepBeginnings(t *testing.T) {
	n := start(t, nil)
	admin, bob := n.dial(t), n.dial(t)
	admin.call("CONFIG", "SET", "slowlog-log-slower-than", "0")
	admin.call("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "~k")
	bob.call("AUTH", "bob", "secret")
	long := strings.Repeat("x", 100_000)
	for _, words := range [][]string{{"CLIENT", "SETNAME", long}, {"SUBSCRIBE", long},
		{"AUTH", long, "wrong"}, {"GET", long},
		{"MULTI"}, {"GET", long + "y"}, {"DISCARD"}} {
		bob.call(words...)
	}
	log := admin.call("ACL", "LOG")
	if entries := strings.Count(log, "client-info"); entries != 4 {
		t.Errorf("%d entries", entries)
	}
	if len(log) > 16<<10 || !strings.Contains(log, long[:maxDenied]) {
		t.Errorf("%d bytes", len(log))
	}
	if log := admin.call("SLOWLOG", "GET"); len(log) > 16<<10 || !strings.Contains(log, "xxx") {
		t.Errorf("%d bytes of slow calls", len(log))
	}
}

// A command behind a slow one in a pipeline is decided when it runs: a subscriber that the node let
// in after its user lost the channel would stay.
func TestRightsAreLostBehindASlowCommand(t *testing.T) {
	for _, words := range [][]string{{"SUBSCRIBE", "ch"}, {"MONITOR"}, {"CONFIG", "GET", "*"}} {
		n := start(t, nil)
		n.dial(t).call("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "~*", "&*")
		bob := n.dial(t)
		bob.call("AUTH", "bob", "secret")
		begun, gate := make(chan struct{}), make(chan struct{})
		n.fake.set(func() { n.fake.begun, n.fake.gate = begun, gate })
		bob.raw(pipeline([]string{"SET", "k", "v"}, words))
		receive(t, "the request runs", begun)
		n.fake.set(func() { n.fake.begun, n.fake.gate = nil, nil })
		n.fake.setUser(t, "bob", "resetchannels", "-monitor", "-config")
		close(gate)
		bob.want("+OK\r\n")
		if got := bob.next(); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%s: %q", words[0], got)
		}
	}
}

// A command that waits takes and sees nothing once its user has lost the right.
func TestRightsAreLostWhileACommandWaits(t *testing.T) {
	n := start(t, nil)
	for _, c := range []struct{ words, change, left, want string }{
		{"BLPOP k 0", "RPUSH k a", "LLEN k", ":1\r\n"},
		{"BLMOVE l b LEFT LEFT 0", "RPUSH l a", "LLEN l", ":1\r\n"},
		{"XREAD BLOCK 0 STREAMS x $", "XADD x 1-1 f v", "XLEN x", ":1\r\n"},
	} {
		admin, bob := n.dial(t), n.dial(t)
		admin.call("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~*")
		bob.call("AUTH", "bob", "any")
		bob.raw(pipeline(strings.Fields(c.words)))
		eventually(t, "a waiting client", func() bool { return n.waitQueues.blocked.Load() == 1 })
		admin.call("ACL", "SETUSER", "bob", "resetkeys", "~b")
		admin.call(strings.Fields(c.change)...)
		if got := bob.next(); got != deniedKey {
			t.Errorf("%s: %q", c.words, got)
		}
		if got := admin.call(strings.Fields(c.left)...); got != c.want {
			t.Errorf("%s, then %s: %q", c.words, c.left, got)
		}
	}
}

// A node that does not know the users yet answers nobody what it decides about itself, and delivers
// nothing. It waits a moment for the users before it refuses. Only its members it shows, and only
// to clients on its machine; and the machine decides about the commands that it runs.
func TestUnknownUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		known := n.fake.users.Load()
		n.fake.users.Store(nil)
		n.fake.set(func() { n.fake.lags = true })
		c := n.dial(t)
		for _, call := range [][]string{{"HELLO", "2"}, {"RAFT", "STATUS"}, {"RAFT", "MEMBERS"},
			{"SENTINEL", "MASTERS"}, {"SET", "k", "v"}} {
			if got := c.call(call...); strings.HasPrefix(got, "-") {
				t.Errorf("%v: %q", call, got)
			}
		}
		// each waits: on connections of their own at the same time
		var refused sync.WaitGroup
		for _, call := range [][]string{{"SUBSCRIBE", "c"}, {"PSUBSCRIBE", "*"}, {"MONITOR"},
			{"CONFIG", "GET", "*"}, {"CLIENT", "KILL", "ID", "1"}, {"CLIENT", "TRACKING", "ON"},
			{"AUTH", "default", "any"}, {"PING"}, {"INFO"}, {"ROLE"}, {"CLIENT", "ID"},
			{"PUBSUB", "CHANNELS"}, {"CLUSTER", "NODES"}, {"MEMORY", "PURGE"}, {"COMMAND", "COUNT"},
			{"ACL", "WHOAMI"}, {"LATENCY", "DOCTOR"}} {
			c := n.dial(t)
			refused.Go(func() {
				if got := c.call(call...); !strings.HasPrefix(got, "-LOADING ") {
					t.Errorf("%v: %q", call, got)
				}
				again := time.Now()
				if got := c.call(call...); !strings.HasPrefix(got, "-LOADING ") {
					t.Errorf("%v again: %q", call, got)
				}
				if took := time.Since(again); took > usersWait/2 { // a connection waits once
					t.Errorf("%v again: after %v", call, took)
				}
			})
		}
		refused.Wait()
		login := n.dial(t)
		for c, words := range map[*client][]string{c: {"SUBSCRIBE", "c"},
			login: {"AUTH", "default", "any"}} {
			before := n.stats.commands.Load()
			if err := c.Send(commandtest.Args(words...)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the command arrives", func() bool {
				return n.stats.commands.Load() > before
			})
		}
		n.fake.users.Store(known)
		if got := c.next(); !strings.Contains(got, "subscribe") {
			t.Errorf("once the users are known: %q", got)
		}
		if got := login.next(); got != "+OK\r\n" {
			t.Errorf("AUTH, once the users are known: %q", got)
		}
	})
}

// From another machine nothing is answered before the users are known.
func TestUnknownUsersFarAway(t *testing.T) {
	n := start(t, func(c *Config) { c.Unprotected = true })
	n.fake.users.Store(nil)
	n.fake.set(func() { n.fake.st.Loading = true }) // it does not wait
	far := dialAt(t, n.listenFrom(t, "192.0.2.7"))
	for _, call := range []string{"HELLO 3", "RAFT STATUS", "RAFT MEMBERS", "SENTINEL MASTERS",
		"PING", "INFO"} {
		if got := far.call(strings.Fields(call)...); !strings.HasPrefix(got, "-LOADING ") {
			t.Errorf("%s: %q", call, got)
		}
	}
}

// A machine that connects to itself by an address of its network sees the members, and nothing
// else, protected mode or not: where a node listens there alone, who else could ask it?
func TestUnknownUsersOnTheMachineItself(t *testing.T) {
	for _, unprotected := range []bool{false, true} {
		n := start(t, func(c *Config) { c.Unprotected = unprotected })
		known := n.fake.users.Load()
		n.fake.set(func() { n.fake.st.Loading = true }) // it does not wait
		at := n.listenAs(t, &farListener{from: net.ParseIP("192.0.2.7"), own: true})
		for _, unknown := range []*Users{nil, UsersAwaited} {
			n.fake.users.Store(unknown)
			c := dialAt(t, at)
			for call, shown := range map[string]bool{"HELLO 3": true, "RAFT STATUS": true,
				"RAFT MEMBERS LOCAL": true, "PING": false, "INFO": false, "ACL LIST": false,
				"AUTH secret": false, "RAFT REMOVE n2": false} {
				got := c.call(strings.Fields(call)...)
				if strings.HasPrefix(got, "-LOADING ") == shown {
					t.Errorf("protected %v, %s: %q", !unprotected, call, got)
				}
			}
			n.fake.users.Store(known)
			want := "+PONG\r\n"
			if !unprotected { // as in Redis, only the loopback is this machine
				want = deniedReply
			}
			if got := c.call("PING"); got != want {
				t.Errorf("protected %v, once the users are known: %q", !unprotected, got)
			}
		}
	}
}

// While the users are not known, what decides about the commands behind it runs, as they may: no
// transaction is split, and no write goes to another database.
func TestUnknownUsersSplitNothing(t *testing.T) {
	n := start(t, nil)
	n.fake.users.Store(nil)
	n.fake.set(func() { n.fake.st.Loading, n.fake.lags = true, true })
	c := n.dial(t)
	c.raw(calls("MULTI", "SET a 1", "SET b 2", "EXEC", "SELECT 3", "SET c 3", "CLIENT REPLY SKIP",
		"GET c", "GET c", "SELECT 0", "GET c", "WATCH a", "MULTI", "GET a", "DISCARD", "UNWATCH"))
	c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n+OK\r\n", "+OK\r\n", "+OK\r\n",
		"$1\r\n3\r\n", "+OK\r\n", "$-1\r\n", "+OK\r\n", "+OK\r\n", "+QUEUED\r\n", "+OK\r\n",
		"+OK\r\n")
}

// While the users are not known, a client that has not authenticated has the limits of one that
// must, and none any more once it turns out that it need not.
func TestLimitsOfUnknownUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.AuthTimeout = 5 * time.Second })
		known := n.fake.users.Load()
		n.fake.users.Store(nil)
		n.fake.set(func() { n.fake.lags = true })
		large := strings.Repeat("x", maxBulkBeforeAuth+1)
		eleven := strings.Fields("DEL a b c d e f g h i j")
		nine := append([]string{"DEL"}, slices.Repeat([]string{large[1:]}, 9)...)
		for _, words := range [][]string{{"ECHO", large}, eleven, nine} {
			c := n.dial(t)
			got := c.call(words...)
			if want := "-" + string(errUsersUnknown) + "\r\n"; got != want {
				t.Errorf("%.40q: %q, want %q", words, got, want)
			}
			if got := n.intake.room(); got != 0 {
				t.Errorf("%.40q: %d bytes are held", words, got)
			}
			_ = c.Close()
		}
		idle := n.dial(t)
		idle.ended() // after AuthTimeout

		waits, stays := n.dial(t), n.dial(t)
		waits.raw(pipeline([]string{"SET", "k", "v"}, []string{"ECHO", large}, nine, eleven))
		stays.raw(pipeline([]string{"GET", "k"}))
		waits.want("+OK\r\n")
		stays.next()
		synctest.Wait()
		if got := n.unauthenticated.Len(); got != 2 {
			t.Errorf("%d connections count as not authenticated, want 2", got)
		}
		n.fake.users.Store(known)
		waits.want(fmt.Sprintf("$%d\r\n%s\r\n", len(large), large), ":0\r\n", ":0\r\n")
		time.Sleep(time.Minute)
		stays.call("PING")
		if got := n.unauthenticated.Len(); got != 0 {
			t.Errorf("%d connections still count as not authenticated", got)
		}
	})
}

// Before the cluster has its first users, nobody sees or uses those that it has without them, not
// even a client that asked before the node knew.
func TestAwaitedUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.users.Store(nil)
		lists, tracks := n.dial(t), n.dial(t)
		lists.raw(calls("ACL LIST"))
		tracks.raw(calls("CLIENT TRACKING ON"))
		eventually(t, "the node waits for its users", func() bool {
			return n.stats.commands.Load() > 1
		})
		n.fake.users.Store(UsersAwaited)
		const awaited = "-LOADING the command did not run: the cluster does not have its first " +
			"users yet\r\n"
		lists.want(awaited)
		tracks.want(awaited)
		for _, call := range [][]string{{"ACL", "USERS"}, {"ACL", "DELUSER", "bob"}, {"GET", "k"},
			{"HELLO", "3", "AUTH", "default", "any"}, {"AUTH", "any"}} {
			if got := n.dial(t).call(call...); got != awaited {
				t.Errorf("%v: %q", call, got)
			}
		}
		for _, call := range [][]string{{"HELLO", "3"}, {"RAFT", "STATUS"}} { // on its machine
			if got := n.dial(t).call(call...); strings.HasPrefix(got, "-") {
				t.Errorf("%v: %q", call, got)
			}
		}
	})
}

// An empty node lets those found a cluster who may do so with its first users, and nobody else do
// anything more than before.
func TestWhoFoundsACluster(t *testing.T) {
	rules := acl.New(testTable().Catalog(commands.FeatureLevel))
	secret, _, err := rules.Replace("", []byte("user default on #"+acl.Hash([]byte("pw"))+
		" ~* &* +@all\nuser ops on #"+acl.Hash([]byte("ops"))+" +raft|found\n"+
		"user bob on #"+acl.Hash([]byte("bob"))+" +@all -raft|found\n"+
		"user off off #"+acl.Hash([]byte("off"))+" +@all\n"), 1, commands.MaxRequestWork)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, nil)
	n.fake.set(func() { n.fake.st.Loading = true }) // clients do not wait
	far := n.listenFrom(t, "192.0.2.7")
	const founded, noAuth, wrong = "$4\r\n3c9a\r\n", "-NOAUTH ", "-WRONGPASS "
	found := func(as ...string) []string { return append([]string{"RAFT", "FOUND"}, as...) }
	for _, test := range []struct {
		users *acl.Users
		far   bool
		call  []string
		want  string
	}{
		{rules, false, found(), founded},
		{rules, false, found("AUTH", "default", "any"), founded},
		{rules, true, found(), deniedReply},
		{rules, true, found("AUTH", "default", "any"), deniedReply},
		{rules, true, []string{"PING"}, "-LOADING "},
		{secret, true, found(), noAuth},
		{secret, false, found(), noAuth},
		{secret, true, found("AUTH", "default", "no"), wrong},
		{secret, false, found("AUTH", "nobody", "pw"), wrong},
		{secret, false, found("AUTH", "off", "off"), wrong},
		{secret, false, found("AUTH", "bob", "bob"), "-NOPERM "},
		{secret, true, found("AUTH", "ops", "ops"), founded},
		{secret, true, found("AUTH", "default", "pw"), founded},
		{secret, false, []string{"AUTH", "pw"}, "-LOADING "},
		{secret, false, []string{"RAFT", "ADD", "n4", "10.0.0.4:1"}, "-LOADING "},
		{nil, false, found("AUTH", "default", "pw"), "-LOADING "},
	} {
		for _, unknown := range []*Users{nil, UsersAwaited} {
			n.fake.users.Store(unknown)
			n.fake.set(func() { n.fake.founding, n.fake.calls = test.users, nil })
			c := n.dial(t)
			if test.far {
				c = dialAt(t, far)
			}
			got := c.call(test.call...)
			asked := slices.Contains(strings.Split(n.fake.takeCalls(), ", "), "found")
			if !strings.HasPrefix(got, test.want) || asked != (test.want == founded) {
				t.Errorf("%v from outside (%v): %q, the node is asked: %v", test.call, test.far,
					got, asked)
			}
		}
	}
}

// What RAFT FOUND is told after AUTH is shown nowhere, but for the name in the audit trail.
func TestFoundingHidesThePassword(t *testing.T) {
	args := commandtest.Args("RAFT", "FOUND", "AUTH", "ops", "secret")
	table := testTable()
	spec, err := table.Resolve(args)
	if err != nil {
		t.Fatal(err)
	}
	shown, audited := spec.Audited(args)
	if got := fmt.Sprintf("%s %s %v", redact(table, spec, args), shown, audited); got !=
		"[RAFT FOUND AUTH (redacted) (redacted)] [ops] true" {
		t.Error(got)
	}
	if shown, _ := spec.Audited(commandtest.Args("RAFT", "FOUND", "ops", "secret")); shown != nil {
		t.Errorf("without AUTH: %s", shown)
	}
}

// The trail has whose password was tried in vain, as whom nothing may be founded, and who may.
func TestFoundingIsAudited(t *testing.T) {
	users, _, err := acl.New(testTable().Catalog(commands.FeatureLevel)).Replace("", []byte(
		"user default off\nuser ops on #"+acl.Hash([]byte("ops"))+" +@all\n"+
			"user bob on #"+acl.Hash([]byte("bob"))+" +@all -@admin\n"), 1,
		commands.MaxRequestWork)
	if err != nil {
		t.Fatal(err)
	}
	n, trail := startAudited(t)
	n.fake.users.Store(UsersAwaited)
	n.fake.set(func() { n.fake.founding, n.fake.st.Loading = users, true })
	c := n.dial(t)
	for _, words := range [][]string{{"nobody", "pw"}, {"bob", "bob"}, {"ops", "ops"}} {
		c.call(append([]string{"RAFT", "FOUND", "AUTH"}, words...)...)
	}
	want := []string{"raft|found nobody: WRONGPASS, ",
		"denied: NOPERM command toplevel raft|found, ", "raft|found bob: NOPERM, ",
		"raft|found ops: ok, "}
	if got := trail(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Whoever gives the default user a password knows it: also on a node that lags, in a transaction,
// and for what is sent at once.
func TestWhoSetsThePasswordKnowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := []string{"ACL", "SETUSER", "default", ">pw"}
		for _, input := range []string{
			pipeline(set, []string{"GET", "k"}),
			pipeline([]string{"MULTI"}, set, []string{"EXEC"}, []string{"GET", "k"}),
			pipeline([]string{"CONFIG", "SET", "requirepass", "pw"}, []string{"GET", "k"}),
		} {
			for _, lags := range []bool{false, true} {
				n := startSimulated(t, nil)
				n.fake.set(func() { n.fake.lags = lags })
				c := n.dial(t)
				c.raw(input)
				var got string
				for range strings.Count(input, "*") {
					got = c.next()
				}
				if got != "$-1\r\n" {
					t.Errorf("%q, lags %v: %q", input, lags, got)
				}
			}
		}
	})
}

// However many sessions wait for a node, they leave it the processor, and each ends with its
// client.
func TestWaitingForANodeIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := unservedSession(startSimulated(t, nil))
		asked := 0
		never := func() bool { asked++; return false }
		if s.awaitNode(time.Now().Add(300*time.Millisecond), never) || asked < 2 || asked > 20 {
			t.Errorf("it asked %d times", asked)
		}
		if !s.awaitNode(time.Now().Add(hangs), func() bool { asked++; return asked > 25 }) {
			t.Error("it gave up")
		}
		s.kill()
		asked = 0
		if s.awaitNode(time.Now().Add(hangs), never) || asked != 1 {
			t.Errorf("a session that is killed asked %d times", asked)
		}
	})
}

// What a call hides is hidden where the arguments of another command carry it, to any depth, and
// does not get into the log. Every command whose syntax names one declares that it carries it.
func TestCarriedSecrets(t *testing.T) {
	table := testTable()
	for call, want := range map[string]string{
		"HELLO 3 AUTH u pw SETNAME n":             "HELLO 3 AUTH * * SETNAME n",
		"HELLO AUTH u pw":                         "HELLO * * *",
		"HELLO pw":                                "HELLO *",
		"HELLO 3 SETNAME auth AUTH u pw":          "HELLO 3 SETNAME auth AUTH * *",
		"HELLO 3 AUTH u my pw":                    "HELLO 3 AUTH * * *",
		"HELLO 3 AUTH u pw AUTH u":                "HELLO 3 AUTH * * * *",
		"HELLO 3 nonsense AUTH u pw":              "HELLO 3 * * * *",
		"COMMAND GETKEYS AUTH u pw":               "COMMAND GETKEYS AUTH * *",
		"COMMAND GETKEYS GET k":                   "COMMAND GETKEYS GET k",
		"COMMAND GETKEYS nothing pw":              "COMMAND GETKEYS nothing pw",
		"COMMAND GETKEYSANDFLAGS ACL SETUSER u x": "COMMAND GETKEYSANDFLAGS ACL SETUSER * *",
		"ACL DRYRUN default AUTH pw":              "ACL DRYRUN default AUTH *",
		"ACL DRYRUN default COMMAND GETKEYS HELLO 3 AUTH u pw": "ACL DRYRUN default " +
			"COMMAND GETKEYS HELLO 3 AUTH * *",
		"COMMAND GETKEYS COMMAND GETKEYS": "COMMAND GETKEYS COMMAND GETKEYS",
		"IDEMPOTENT r ACL SETUSER u x":    "IDEMPOTENT r ACL SETUSER * *",
		"IDEMPOTENT r SET k v":            "IDEMPOTENT r SET k v",
	} {
		args := commandtest.Args(strings.Fields(call)...)
		spec, _ := table.Resolve(args)
		shown := string(bytes.Join(redact(table, spec, args), []byte(" ")))
		if got := strings.ReplaceAll(shown, "(redacted)", "*"); got != want {
			t.Errorf("%s is shown as %s", call, got)
		}
		if spec.FullName() != "acl|dryrun" {
			continue
		}
		args, err := spec.Rewrite(&session{srv: &Server{setup: setup{table: table}}}, args)
		sent := strings.ReplaceAll(string(bytes.Join(args, []byte(" "))), "(redacted)", "*")
		if err != nil || sent != want {
			t.Errorf("%s is sent as %s, %v", call, sent, err)
		}
	}
	for _, spec := range table.All() {
		for _, s := range append(spec.Subcommands, *spec) {
			if strings.Contains(s.Syntax, "command [arg") != (s.Carries > 0) {
				t.Errorf("%s: %q carries a call from %d on", s.Name, s.Syntax, s.Carries)
			}
		}
	}
}
