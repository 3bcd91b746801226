// Tests of the life of connections: limits, ends, and what is shown about them.

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tlsconf"
)

func TestMaxClients(t *testing.T) {
	plainOnly(t)
	n := start(t, func(c *Config) { c.MaxClients = 2 })
	a, b := n.dial(t), n.dial(t)
	if got := a.call("PING") + b.call("PING"); got != "+PONG\r\n+PONG\r\n" {
		t.Fatal(got)
	}
	c := n.dial(t)
	if got := c.call("PING"); got != "-ERR max number of clients reached\r\n" {
		t.Fatal(got)
	}
	c.ended()
	if got := a.call("CONFIG", "SET", "maxclients", "3"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := n.dial(t).call("PING"); got != "+PONG\r\n" {
		t.Fatal(got)
	}
	if info := a.call("INFO", "stats"); !strings.Contains(info, "rejected_connections:1\r\n") {
		t.Error(info)
	}
	_ = b.Close()
	eventually(t, "a place becomes free", func() bool {
		return strings.Contains(a.call("INFO", "clients"), "connected_clients:2\r\n")
	})
}

// TestReserve: at maxclients administrators come in, and only they.
func TestReserve(t *testing.T) {
	plainOnly(t)
	n := start(t, func(c *Config) { c.MaxClients = 2 })
	first, second := n.dial(t), n.dial(t)
	for _, call := range [][]string{{"ACL", "SETUSER", "ops", "on", ">ops", "+@all"},
		{"ACL", "SETUSER", "app", "on", ">app", "~*", "+@all", "-@admin"}} {
		if got := first.call(call...) + second.call("PING"); got != "+OK\r\n+PONG\r\n" {
			t.Fatal(got)
		}
	}
	full := "-" + string(errMaxClients) + "\r\n"
	for _, call := range [][]string{{"PING"}, {"HELLO", "3"}, {"AUTH", "app", "app"},
		{"HELLO", "3", "SETNAME", "auth"}, {"HELLO", "3", "SETNAME", "auth", "auth", "x"},
		{"HELLO", "3", "AUTH", "app", "app"}, {"CLIENT", "KILL", "ID", "1"}, {"MULTI"}} {
		c := n.dial(t)
		if got := c.call(call...); got != full {
			t.Errorf("%s: %q", call, got)
		}
		c.ended()
	}
	guess := n.dial(t)
	if got := guess.call("AUTH", "ops", "no"); !strings.HasPrefix(got, "-WRONGPASS") {
		t.Error(got)
	}
	guess.want() // it may try again
	if got := guess.call("AUTH", "ops", "ops"); got != "+OK\r\n" {
		t.Error(got)
	}
	var admins []*client
	for range reserveClients - 1 {
		c := n.dial(t)
		if got := c.call("HELLO", "2", "AUTH", "ops", "ops"); got[0] != '*' {
			t.Fatal(got)
		}
		admins = append(admins, c)
	}
	late := n.dial(t)
	late.want(full) // at once: the reserve is used up
	late.ended()
	_ = admins[0].Close()
	eventually(t, "another administrator comes in", func() bool {
		c := n.dial(t)
		return c.Send(commandtest.Args("AUTH", "ops", "ops")) == nil && c.next() == "+OK\r\n"
	})
	if got := guess.call("CLIENT", "KILL", "ID", second.id()); got != ":1\r\n" {
		t.Error(got)
	}
	if got := n.dial(t).call("PING"); got != "+PONG\r\n" {
		t.Errorf("in the place that the administrator made: %s", got)
	}
	if got := n.dial(t).call("PING"); got != full {
		t.Errorf("the reserve is for everyone: %s", got)
	}
}

// emptyReserve waits until no session has a place, and fails if one is counted.
func (n *node) emptyReserve(t *testing.T) {
	t.Helper()
	eventually(t, "all sessions are gone", func() bool { return len(n.all()) == 0 })
	n.Server.mu.Lock()
	defer n.Server.mu.Unlock()
	if r := &n.Server.reserve; r.count != [places]int{} || r.set.Len() > 0 {
		t.Errorf("places: %v, %d in the set", r.count, r.set.Len())
	}
}

// A place of the reserve is taken once, whoever asks whether the session may stay.
func TestReserveIsTakenOnce(t *testing.T) {
	plainOnly(t)
	n := start(t, func(c *Config) { c.MaxClients = 1 })
	root := n.dial(t)
	root.call("ACL", "SETUSER", "ops", "on", ">ops", "+@all")
	c := n.dial(t)
	s := n.sessionOf(c)
	s.setUser(&identity{name: []byte("ops"), created: n.users().Get([]byte("ops")).Created()})
	done := make(chan bool)
	n.Server.mu.Lock()
	const askers = 8 // as its own goroutine and cron do
	for range askers {
		go func() { done <- s.mayStay() }()
	}
	for range 1000 { // they come as far as the lock
		runtime.Gosched()
	}
	n.Server.mu.Unlock()
	for range askers {
		if !<-done {
			t.Error("it may not stay")
		}
	}
	n.Server.mu.Lock()
	if taken := n.Server.reserve.count[placeTaken]; taken != 1 {
		t.Errorf("%d are taken", taken)
	}
	n.Server.mu.Unlock()
	_, _ = c.Close(), root.Close()
	n.emptyReserve(t)
}

// A place of the reserve is an administrator's: whoever becomes another user leaves it.
func TestReserveIsForAdministrators(t *testing.T) {
	plainOnly(t)
	n := start(t, func(c *Config) { c.MaxClients = 1 })
	root := n.dial(t)
	root.call("ACL", "SETUSER", "ops", "on", ">ops", "+@all")
	root.call("ACL", "SETUSER", "app", "on", ">app", "+@all", "-@admin")
	full := "-" + string(errMaxClients) + "\r\n"
	var all []*client
	for range reserveClients + 1 { // twice as often is too much for the set of those who try
		c := n.dial(t)
		got := c.call("AUTH", "ops", "ops") + c.call("AUTH", "ops", "ops") + c.call("PING")
		if got != "+OK\r\n+OK\r\n+PONG\r\n" {
			t.Fatal(got)
		}
		if got := c.call("RESET") + c.call("AUTH", "ops", "ops"); got != "+RESET\r\n+OK\r\n" {
			t.Fatal(got)
		}
		if got := c.call("AUTH", "app", "app"); got != full {
			t.Fatal(got)
		}
		c.ended()
		c = n.dial(t)
		got = c.call("AUTH", "ops", "ops") + c.call("RESET") + c.call("PING")
		if got != "+OK\r\n+RESET\r\n"+full {
			t.Fatal(got)
		}
		all = append(all, c)
	}
	for _, c := range append(all, root) {
		_ = c.Close()
	}
	n.emptyReserve(t)
}

func TestMaxUserClients(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxUserClients = 2 })
	root := n.dial(t)
	for _, user := range []string{"app", "other", "ops"} {
		rights := "-@admin"
		if user == "ops" {
			rights = "+@admin"
		}
		if got := root.call("ACL", "SETUSER", user, "on", ">"+user, "~*", "+@all",
			rights); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	in := func(user string) (*client, string) {
		c := n.dial(t)
		return c, c.call("AUTH", user, user)
	}
	const full = "-ERR max number of clients of user 'app' reached, which is 2\r\n"
	var apps []*client
	for range 2 {
		c, got := in("app")
		if again := c.call("AUTH", "app", "app"); got+again != "+OK\r\n+OK\r\n" {
			t.Fatal(got, again)
		}
		apps = append(apps, c)
	}
	late, got := in("app")
	if got != full {
		t.Error(got)
	}
	late.ended()
	for _, user := range []string{"other", "ops", "ops", "ops"} {
		if _, got := in(user); got != "+OK\r\n" {
			t.Errorf("%s: %s", user, got)
		}
	}
	if info := root.call("INFO", "coordd"); !strings.Contains(info, "user_clients_refused:1\r\n") {
		t.Error(info)
	}
	if got := apps[0].call("AUTH", "other", "other"); got != "+OK\r\n" {
		t.Error(got)
	}
	if _, got := in("app"); got != "+OK\r\n" {
		t.Errorf("in the place of who is another user now: %s", got)
	}
	if got := apps[1].call("RESET"); got != "+RESET\r\n" {
		t.Error(got)
	}
	last, got := in("app")
	if got != "+OK\r\n" {
		t.Errorf("after RESET: %s", got)
	}
	_ = last.Close()
	eventually(t, "a place becomes free", func() bool {
		c, got := in("app")
		defer c.Close()
		return got == "+OK\r\n"
	})
	if got := root.call("CONFIG", "SET", "coordd-max-user-clients", "0"); got != "+OK\r\n" {
		t.Error(got)
	}
	for range 3 {
		if _, got := in("app"); got != "+OK\r\n" {
			t.Error(got)
		}
	}
}

// A client that says nothing at maxclients is told after a while, as one that the next displaces.
func TestReserveTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.MaxClients = 1 })
		if got := n.dial(t).call("PING"); got != "+PONG\r\n" {
			t.Fatal(got)
		}
		full := "-" + string(errMaxClients) + "\r\n"
		var crowd []*client
		for range reserveTries + 1 {
			crowd = append(crowd, n.dial(t))
		}
		began := time.Now()
		crowd[reserveTries].want(full) // its own host has all places
		if took := time.Since(began); took > 0 {
			t.Errorf("after %v", took)
		}
		crowd[0].want(full)
		crowd[0].ended()
		if took := time.Since(began); took < reserveTime || took > 2*reserveTime {
			t.Errorf("after %v", took)
		}
		if taken := n.Server.reserve.count[placeTaken]; taken != 0 {
			t.Errorf("%d are taken", taken)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.IdleTimeout = 50 * time.Millisecond })
		c := n.dial(t)
		if got := c.call("PING"); got != "+PONG\r\n" {
			t.Fatal(got)
		}
		c.ended()
		s := n.dial(t) // a subscriber may be silent
		s.call("SUBSCRIBE", "a")
		d := n.dial(t)
		d.ended()
		if got := n.dial(t).call("PUBLISH", "a", "x"); got != ":1\r\n" {
			t.Fatal(got)
		}
		s.want("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")
	})
}

func TestKill(t *testing.T) {
	n := start(t, nil)
	a, b, c, d := n.dial(t), n.dial(t), n.dial(t), n.dial(t)
	for _, x := range []*client{a, b, c, d} {
		x.call("PING")
	}
	c.call("SUBSCRIBE", "x")
	id := strings.Trim(b.call("CLIENT", "ID"), ":\r\n")
	if got := a.call("CLIENT", "KILL", "ID", id); got != ":1\r\n" {
		t.Fatal(got)
	}
	b.ended()
	if got := a.call("CLIENT", "KILL", "TYPE", "pubsub"); got != ":1\r\n" {
		t.Fatal(got)
	}
	c.ended()
	eventually(t, "the subscription is gone", func() bool {
		return a.call("PUBSUB", "NUMSUB", "x") == "*2\r\n$1\r\nx\r\n:0\r\n"
	})
	addr := field(d.call("CLIENT", "INFO"), "addr")
	if got := a.call("CLIENT", "KILL", addr); got != "+OK\r\n" {
		t.Fatal(got)
	}
	d.ended()
	eventually(t, "the killed are gone", func() bool {
		return strings.Contains(a.call("INFO", "clients"), "connected_clients:1\r\n")
	})
	a.raw(calls("CLIENT KILL TYPE normal SKIPME no", "PING"))
	a.want(":1\r\n")
	a.ended()
}

// What a client has sent does not run any more once its session is to end, however much that is: an
// operator who ends a client ends what it does.
func TestEndedSessionsRunNothingMore(t *testing.T) {
	batch := []string{}
	for i := range firstRoom {
		batch = append(batch, fmt.Sprintf("SET k%d v", i))
	}
	for name, lines := range map[string][]string{
		"a pipeline":    {"SET k v", "CLIENT INFO", "CLIENT NO-EVICT ON", "SET later v"},
		"two batches":   append(batch, "SET later v"),
		"a transaction": {"MULTI", "SET k v", "CLIENT NO-EVICT ON", "EXEC", "SET later v"},
		"a long one":    {"EVAL " + longScript + " 0", "EVAL " + longScript + " 0", "SET later v"},
	} {
		for how, end := range map[string]func(*session){"killed": (*session).kill,
			"dismissed": (*session).dismiss} {
			t.Run(name+" "+how, func(t *testing.T) {
				n := start(t, nil)
				c := n.dial(t)
				c.call("PING")
				s := n.sessionOf(c)
				n.fake.set(func() { n.fake.after = func() { end(s) } })
				c.raw(calls(lines...))
				eventually(t, "the session ends", func() bool {
					return n.session(s.id) == nil
				})
				if got := n.fake.takeCalls(); strings.Count(got, "write") != 1 {
					t.Error(got)
				}
				if s.noEvict.Load() {
					t.Error("a command of the node ran")
				}
				if got := n.dial(t).call("EXISTS", "later"); got != ":0\r\n" {
					t.Errorf("EXISTS later: %q", got)
				}
			})
		}
	}
}

// A session that ends while a command of the node waits for its turn does not run it.
func TestEndedSessionsTakeNoTurn(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("PING")
	s := n.sessionOf(c)
	n.fake.set(func() { n.fake.turn = s.dismiss })
	c.raw(calls("CLIENT NO-EVICT ON"))
	c.want("-" + errNotSent.Error() + "\r\n")
	c.ended()
	if s.noEvict.Load() {
		t.Error("it ran")
	}
}

// The reply to a transaction that has run is whole when its session is to end.
func TestEndedTransactionsAreAnswered(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("PING")
	n.fake.set(func() { n.fake.after = n.sessionOf(c).dismiss })
	c.raw(calls("MULTI", "SET k v", "CLIENT NO-EVICT ON", "EXEC", "PING"))
	c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
		"*2\r\n+OK\r\n-"+errNotSent.Error()+"\r\n")
	c.ended()
}

// longScript takes as much as an entry may, so that what follows it needs another one.
const longScript = "for--[[]]i=1,3000000--[[]]do--[[]]end"

// HELLO asks the cluster for each user in it: a request has few.
func TestHelloIsShort(t *testing.T) {
	n := start(t, nil)
	n.fake.setUser(t, "bob", "on", "nopass", "+@all")
	c := n.dial(t)
	c.call("PING")
	n.fake.takeCalls()
	words := []string{"HELLO", "3"}
	for range 80 {
		words = append(words, "AUTH", "bob", "any")
	}
	if got := c.call(words...); got[0] != '%' {
		t.Errorf("80 users: %.80q", got)
	}
	n.fake.takeCalls()
	for range 80 {
		words = append(words, "AUTH", "bob", "any")
	}
	if got := c.call(words...); got != "-"+string(commands.ErrCommandWork)+"\r\n" {
		t.Errorf("160 users: %.80q", got)
	}
	if got := n.fake.takeCalls(); got != "" {
		t.Errorf("160 users: %s", got)
	}
}

// CLIENT KILL waits for one that does not end soon, and others have the turn meanwhile: see the
// fake's Schedule.
func TestKillWaitsWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		a, b := n.dial(t), n.dial(t)
		id := strings.Trim(b.call("CLIENT", "ID"), ":\r\n")
		begun := make(chan struct{})
		n.fake.set(func() { n.fake.begun, n.fake.gate = begun, make(chan struct{}) })
		b.raw(calls("SET k v"))
		<-begun
		if got := a.call("CLIENT", "KILL", "ID", id); got != ":1\r\n" {
			t.Error(got)
		}
	})
}

// field returns a field of CLIENT INFO.
func field(info, name string) string {
	for _, f := range strings.Fields(info) {
		if v, ok := strings.CutPrefix(f, name+"="); ok {
			return v
		}
	}
	return ""
}

// A connection is in its transaction until EXEC is answered.
func TestClientInfoInsideExec(t *testing.T) {
	c := start(t, nil).dial(t)
	c.raw(calls("MULTI", "PING", "CLIENT INFO", "GET k", "EXEC"))
	c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n")
	v, err := commandtest.Parse([]byte(c.next()))
	if err != nil || len(v.Elems) != 3 {
		t.Fatal(v, err)
	}
	if info := v.Elems[1].Text; field(info, "multi") != "3" || field(info, "flags") != "x" {
		t.Errorf("inside EXEC: %s", info)
	}
	if info := c.call("CLIENT", "INFO"); field(info, "multi") != "-1" ||
		field(info, "flags") != "N" {
		t.Errorf("behind EXEC: %s", info)
	}
}

// RESET leaves NO-EVICT on.
func TestNoEvictStaysOn(t *testing.T) {
	c := start(t, nil).dial(t)
	for _, step := range []struct{ command, flags string }{{"CLIENT NO-EVICT ON", "e"},
		{"RESET", "e"}, {"CLIENT NO-EVICT OFF", "N"}} {
		c.call(strings.Fields(step.command)...)
		if info := c.call("CLIENT", "INFO"); field(info, "flags") != step.flags {
			t.Errorf("after %s: %s", step.command, info)
		}
	}
}

func TestClientInfo(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.raw(calls("CLIENT SETNAME app", "CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO LIB-VER 1.2",
		"SELECT 3", "PSUBSCRIBE p*", "UNSUBSCRIBE"))
	c.want("+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n",
		"*3\r\n$10\r\npsubscribe\r\n$2\r\np*\r\n:1\r\n",
		"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:1\r\n")
	d := n.dial(t)
	d.call("CLIENT", "SETNAME", "other")
	d.raw(calls("MULTI", "GET a", "GET b"))
	d.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n")
	list := n.dial(t).call("CLIENT", "LIST")
	lines := strings.Split(strings.TrimSpace(list), "\n")[1:]
	if len(lines) != 3 {
		t.Fatalf("%q", list)
	}
	for name, want := range map[string]string{
		"id": "4294967296", "name": "app", "db": "3", "psub": "1", "sub": "0", "flags": "P",
		"cmd": "unsubscribe", "user": "default", "resp": "2",
		"lib-name": "lib", "lib-ver": "1.2", "multi": "-1", "redir": "-1", "events": "r",
	} {
		if got := field(lines[0], name); got != want {
			t.Errorf("%s=%s, want %s, in %s", name, got, want, lines[0])
		}
	}
	for name, want := range map[string]string{"name": "other", "multi": "2", "flags": "x",
		"cmd": "get"} {
		if got := field(lines[1], name); got != want {
			t.Errorf("%s=%s, want %s, in %s", name, got, want, lines[1])
		}
	}
	if got := field(lines[2], "cmd"); got != "client|list" {
		t.Errorf("cmd=%s", got)
	}
	var asked []string
	for line := range strings.Lines(n.dial(t).call("CLIENT", "LIST", "ID", "4294967297",
		"77", "4294967296", "4294967297")) {
		if name := field(line, "name"); name != "" {
			asked = append(asked, name)
		}
	}
	if got := strings.Join(asked, " "); got != "other app other" {
		t.Errorf("by id: %s", got)
	}
}

func TestHello(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	want3 := "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:4294967296\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
	if got := c.call("HELLO", "3"); got != want3 {
		t.Errorf("%q", got)
	}
	n.fake.set(func() { n.fake.st.Role = "follower" })
	if got := c.call("HELLO", "2"); !strings.HasPrefix(got, "*14\r\n") ||
		!strings.Contains(got, "$7\r\nreplica\r\n") {
		t.Errorf("%q", got)
	}
}

// The configured version is what clients see. Scripts, which run on every node, see the machine's.
func TestRedisVersion(t *testing.T) {
	n := start(t, func(c *Config) { c.RedisVersion = "8.0.2" })
	c := n.dial(t)
	if got := c.call("HELLO", "3"); !strings.Contains(got, "$7\r\nversion\r\n$5\r\n8.0.2\r\n") {
		t.Errorf("HELLO: %q", got)
	}
	if got := c.call("INFO", "server"); !strings.Contains(got, "redis_version:8.0.2\r\n") {
		t.Errorf("INFO: %q", got)
	}
	got := c.call("EVAL", "return redis.REDIS_VERSION", "0")
	if want := "$6\r\n" + commands.RedisVersion + "\r\n"; got != want {
		t.Errorf("a script sees %q, want %q", got, want)
	}
}

func TestInfoAndRole(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("SET", "a", "1", "PX", "5000")
	c.call("SET", "b", "1")
	has := func(text string, wants ...string) {
		t.Helper()
		for _, w := range wants {
			if !strings.Contains(text, w+"\r\n") {
				t.Errorf("INFO lacks %q:\n%s", w, text)
			}
		}
	}
	all := c.call("INFO")
	has(all, "# Server", "redis_version:"+commands.WholeVersion, "redis_mode:standalone",
		fmt.Sprintf("tcp_port:%s", n.addr[strings.LastIndex(n.addr, ":")+1:]),
		"# Clients", "connected_clients:1", "# Memory", "maxmemory_policy:noeviction",
		"# Persistence", "loading:0", "# Stats", "total_connections_received:1",
		"# Replication", "role:master", "connected_slaves:1",
		"slave0:ip=10.0.0.2,port=7001,state=online,offset=100,lag=0", "master_repl_offset:100",
		"# CPU", "# Errorstats", "# Cluster", "cluster_enabled:1", "# Keyspace",
		"db0:keys=2,expires=1,avg_ttl=0", "node_id:n1", "raft_term:3", "ready:1")
	if strings.Contains(all, "db1:") {
		t.Error("an empty database is shown")
	}
	if got := c.call("INFO", "EVERYTHING"); len(got) < len(all)-100 {
		t.Error("everything is less than the default")
	}
	two := c.call("INFO", "keyspace", "Cluster")
	if want := "$76\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n# " +
		"Keyspace\r\ndb0:keys=2,expires=1,avg_ttl=0\r\n\r\n"; two != want {
		t.Errorf("%q, want %q", two, want)
	}
	n.fake.set(func() {
		n.fake.st.Role, n.fake.st.LeaderID, n.fake.st.LeaderAddr = "follower", "n2", "10.0.0.2:7001"
	})
	has(c.call("INFO", "replication"), "role:slave", "master_host:10.0.0.2", "master_port:7001",
		"master_link_status:up", "slave_read_only:0", "connected_slaves:0")
	if got, want := c.call("ROLE"),
		"*5\r\n$5\r\nslave\r\n$8\r\n10.0.0.2\r\n:7001\r\n$9\r\nconnected\r\n:100\r\n"; got != want {
		t.Errorf("%q", got)
	}
	n.fake.set(func() {
		n.fake.st.LeaderID, n.fake.st.LeaderAddr, n.fake.st.Ready, n.fake.st.NotReady = "", "",
			false, "no leader"
	})
	has(c.call("INFO", "replication", "coordd"), "master_host:", "master_link_status:down",
		"ready:0", "not_ready:no leader")
}

// WAIT is answered when enough voters hold the writes, or on timeout, but never to a disconnected
// client.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		start := time.Now()
		if got := c.call("WAIT", "2", "30"); got != ":1\r\n" ||
			time.Since(start) < 30*time.Millisecond {
			t.Fatalf("%q after %v", got, time.Since(start))
		}
		c.raw(calls("WAIT 2 0", "PING"))
		n.fake.set(func() {
			n.fake.st.Members = append([]Member{}, n.fake.st.Members...)
			n.fake.st.Members[2].Applied = 100
		})
		c.want(":2\r\n", "+PONG\r\n")
		c.raw(calls("SET a 1", "WAIT 9 0", "PING"))
		c.want("+OK\r\n")
		_ = c.Close()
		eventually(t, "the session of a client that went away ends", func() bool {
			return strings.Contains(n.dial(t).call("CLIENT", "LIST", "ID", "1"), "$0\r\n")
		})
	})
}

// The WAITs of a transaction have one answer: thousands of them ask the leader once.
func TestWaitsOfATransaction(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	for round := range 2 {
		c.raw(calls("MULTI", "SET a 1", "WAIT 9 0", "WAITAOF 1 9 0", "WAIT 0 0", "EXEC"))
		c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
			"*4\r\n+OK\r\n:1\r\n*2\r\n:1\r\n:1\r\n:1\r\n")
		n.fake.set(func() {
			if n.fake.questions != round+1 {
				t.Errorf("%d transactions asked the leader %d times", round+1, n.fake.questions)
			}
		})
	}
}

// WAIT uses the leader's view of the members if it answers, otherwise this node's.
func TestWaitCountsTheLeadersMembers(t *testing.T) {
	n := start(t, nil)
	n.fake.set(func() {
		for _, id := range []string{"n4", "n5"} {
			n.fake.st.Members = append(n.fake.st.Members, Member{ID: id, Voter: true})
		}
		n.fake.replication = &Replication{Index: 100, Others: []uint64{100, 90}}
	})
	c := n.dial(t)
	if got := c.call("WAIT", "2", "1"); got != ":1\r\n" {
		t.Errorf("the leader counts three: %q", got)
	}
	n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN"} })
	if got := c.call("WAIT", "3", "1"); got != ":2\r\n" {
		t.Errorf("the leader does not answer: %q", got)
	}
	for voters, want := range []int64{0, 0, 0, 1, 1, 2, 2, 3} {
		if got := assured(voters); got != want {
			t.Errorf("%d voters: %d", voters, got)
		}
	}
}

// Close answers requests in flight, and ends waiting sessions.
func TestCloseDrains(t *testing.T) {
	n := start(t, nil)
	busy, idle, subscriber := n.dial(t), n.dial(t), n.dial(t)
	idle.call("PING")
	subscriber.call("SUBSCRIBE", "a")
	begun, gate := make(chan struct{}, 9), make(chan struct{}) // also for the counts
	n.fake.set(func() { n.fake.begun, n.fake.gate = begun, gate })
	busy.raw(calls("SET a 1", "PUBLISH a bye"))
	receive(t, "the request runs", begun)
	closed := make(chan struct{})
	go func() { n.Close(); close(closed) }()
	idle.ended()
	n.fake.set(func() { n.fake.gate = nil })
	close(gate)
	busy.want("+OK\r\n")
	if got := busy.next(); got != ":0\r\n" && got != ":1\r\n" {
		// the subscriber may be gone already
		t.Fatalf("%q", got)
	}
	busy.ended()
	receive(t, "the end of Close", closed)
	if n.Close(); n.ctx.Err() != context.Canceled {
		t.Error("a second Close does harm")
	}
}

func TestHealth(t *testing.T) {
	n := start(t, nil)
	get := func(path string) (int, map[string]any) {
		t.Helper()
		w := httptest.NewRecorder()
		n.HealthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		var body map[string]any
		if w.Code != http.StatusNotFound {
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code, body
	}
	if code, body := get("/healthz"); code != 200 || body["status"] != "ok" {
		t.Error(code, body)
	}
	n.cfg.Certificates = func() []tlsconf.Status {
		return []tlsconf.Status{{Name: "clients", Trouble: "open /etc/secret.pem: no such file"}}
	}
	if _, body := get("/healthz"); fmt.Sprint(body["certificates"]) !=
		"[map[expires:0001-01-01T00:00:00Z last_reload:failed name:clients]]" {
		t.Error(body)
	}
	if code, body := get("/readyz"); code != 200 || body["status"] != "ready" ||
		body["node"] != "n1" {
		t.Error(code, body)
	}
	n.fake.set(func() { n.fake.st.Ready, n.fake.st.NotReady = false, "no leader" })
	if code, body := get("/readyz"); code != 503 || body["reason"] != "no leader" {
		t.Error(code, body)
	}
	for _, x := range []struct {
		change func(*Status)
		alive  string
		reason string
	}{
		{func(st *Status) { st.Behind = 1000 }, "ok", ""},
		{func(st *Status) { st.Behind = 1001 }, "ok", "the node is 1001 entries behind the leader"},
		{func(st *Status) {
			st.Behind, st.BehindFor = 1, 1001*time.Millisecond
		}, "ok", "the node is 1.001s behind the leader"},
		{func(st *Status) {
			st.Loading = true
		}, "loading", "LOADING: the node applies what is in its log"},
		{func(st *Status) {
			st.LogTrouble = "it cannot store log entries: full"
		}, "ok", "it cannot store log entries: full"},
	} {
		n.fake.set(func() {
			n.fake.st.Ready, n.fake.st.NotReady, n.fake.st.Loading, n.fake.st.Behind,
				n.fake.st.BehindFor = true, "", false, 0, 0
			n.fake.st.LogTrouble = ""
			x.change(&n.fake.st)
		})
		code, body := get("/readyz")
		if reason, _ := body["reason"].(string); reason != x.reason ||
			code == 200 != (reason == "") {
			t.Errorf("%q: %d %v", x.reason, code, body)
		}
		if code, body := get("/healthz"); code != 200 || body["status"] != x.alive {
			t.Errorf("%q: alive: %d %v", x.reason, code, body)
		}
	}
	n.fake.set(func() { n.fake.st.LogTrouble = "" })
	for users, reason := range map[*Users]string{
		nil:          "the node does not know the users yet",
		UsersAwaited: "the cluster does not have its first users yet",
	} {
		n.fake.users.Store(users)
		if code, body := get("/readyz"); code != 503 || body["reason"] != reason {
			t.Error(code, body)
		}
	}
	if code, _ := get("/other"); code != 404 {
		t.Error(code)
	}
}

// BenchmarkPipeline measures the server's own cost of a command.
func BenchmarkPipeline(b *testing.B) {
	n := start(b, nil)
	n.fake.set(func() { n.fake.calls = nil })
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			s := unservedSession(n)
			var cmds [][][]byte
			for range depth {
				cmds = append(cmds, [][]byte{[]byte("SET"), []byte("lock:12345"), []byte("owner"),
					[]byte("NX"), []byte("PX"), []byte("10000")})
			}
			s.srv.backend = okBackend{n.fake}
			defer func() { s.srv.backend = n.fake }()
			b.ReportAllocs()
			for b.Loop() {
				s.handle(cmds)
			}
		})
	}
}

// CLIENT LIST shows the names of all connections, so that they are bounded.
func TestNamesAreBounded(t *testing.T) {
	c := start(t, nil).dial(t)
	fits := strings.Repeat("x", maxName)
	for _, words := range [][]string{{"CLIENT", "SETNAME"}, {"CLIENT", "SETINFO", "LIB-NAME"},
		{"CLIENT", "SETINFO", "LIB-VER"}, {"HELLO", "2", "SETNAME"}} {
		if got := c.call(append(words, fits+"x")...); !strings.Contains(got, "longer than 1024") {
			t.Errorf("%q: %.100q", words, got)
		}
		if got := c.call(append(words, fits)...); strings.HasPrefix(got, "-") {
			t.Errorf("%q: %.100q", words, got)
		}
	}
}
