package server

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseRate(t *testing.T) {
	for _, x := range []struct {
		text  string
		rate  Rate
		shown string // "": it is refused
	}{
		{"0", Rate{}, "0"},
		{"1000/s", Rate{Requests: 1000}, "1000/s"},
		{"1/s", Rate{Requests: 1}, "1/s"},
		{"1000000000/s", Rate{Requests: 1e9}, "1000000000/s"},
		{"1MB/S", Rate{Bytes: 1 << 20}, "1048576b/s"},
		{"1kb/s", Rate{Bytes: 1024}, "1024b/s"},
		{"2m/s, 50/s", Rate{50, 2e6}, "50/s,2000000b/s"},
		{"50/s,4096b/s", Rate{50, 4096}, "50/s,4096b/s"},
		{text: ""}, {text: "off"}, {text: "1000"}, {text: "0/s"}, {text: "-1/s"}, {text: "/s"},
		{text: "1073741825/s"}, {text: "1023b/s"}, {text: "2gb/s"}, {text: "1/m"}, {text: "1.5/s"},
		{text: "1/s,"}, {text: "1/s,2/s"}, {text: "1kb/s,2kb/s"}, {text: "0,1/s"}, {text: "kb/s"},
	} {
		got, err := ParseRate(x.text)
		if (err == nil) != (x.shown != "") || got != x.rate ||
			err == nil && got.String() != x.shown {
			t.Errorf("%q: %+v, %q, %v", x.text, got, got, err)
		}
	}
}

func TestRateParameters(t *testing.T) {
	n := start(t, func(c *Config) { c.UserRate = Rate{Requests: 70000} })
	c := n.dial(t)
	get := func(want string) {
		t.Helper()
		client, user, _ := strings.Cut(want, " ")
		if got := c.call("CONFIG", "GET", "coordd-*-rate"); got != pipeline([]string{
			"coordd-client-rate", client, "coordd-user-rate", user}) {
			t.Errorf("%q", got)
		}
	}
	get("0 70000/s")
	for _, x := range []struct{ name, value, shows string }{
		{"client", "90000/s,100mb/s", "90000/s,104857600b/s 70000/s"},
		{"user", "2gb/s", ""},
		{"user", "1000mb/s", "90000/s,104857600b/s 1048576000b/s"},
	} {
		want := "+OK\r\n"
		if x.shows == "" {
			want = "-ERR CONFIG SET failed (possibly related to argument 'coordd-user-rate') - " +
				string(errRate) + "\r\n"
		}
		if got := c.call("CONFIG", "SET", "coordd-"+x.name+"-rate", x.value); got != want {
			t.Errorf("%s %s: %q", x.name, x.value, got)
		}
		if x.shows != "" {
			get(x.shows)
		}
	}
	c.call("CONFIG", "SET", "coordd-client-rate", "0", "coordd-user-rate", "0")
	if get("0 0"); n.config.rates.Load() != nil {
		t.Error("without limits something is counted")
	}
}

// Over 20 seconds of a clock of its own, a client that always has more to send gets its rate, and a
// second's worth at the beginning. Two connections of a user share alike.
func TestRateOverTime(t *testing.T) {
	const seconds = 20
	for _, x := range []struct {
		rate    Rate
		sending int           // requests that are there at a time
		size    int           // bytes of each
		round   time.Duration // that the server takes for what it has taken
	}{
		{Rate{Requests: 1000}, 1, 30, 0},
		{Rate{Requests: 1000}, 1, 30, 700 * time.Microsecond},
		{Rate{Requests: 1000}, 5000, 30, 3 * time.Millisecond},
		{Rate{Requests: 1000}, 5000, 30, 60 * time.Millisecond},
		{Rate{Requests: 3}, 5000, 30, 0},
		{Rate{Requests: 1e6}, 5000, 30, time.Millisecond},
		{Rate{Bytes: 1 << 20}, 1, 10_000, 0},
		{Rate{Bytes: 1 << 20}, 5000, 30, time.Millisecond},
		{Rate{Bytes: 1 << 20}, 100, 5 << 20, 0}, // each is more than a second's worth
		{Rate{1000, 1 << 20}, 100, 10_000, time.Millisecond},
		{Rate{1000, 1 << 20}, 100, 10, time.Millisecond},
	} {
		for _, clients := range []int{1, 2} {
			m := newMeter(x.rate)
			start := time.Unix(1_800_000_000, 0)
			at := make([]time.Time, clients)
			for i := range at {
				at[i] = start
			}
			sent := make([]int, clients)
			total := 0
			for {
				i := 0
				if clients == 2 && at[1].Before(at[0]) {
					i = 1
				}
				now := at[i]
				if now.Sub(start) >= seconds*time.Second {
					break
				}
				most := m.allowance(now, unlimited)
				bytes := min(most.bytes, x.sending*x.size)
				n := min(most.requests, (bytes+x.size-1)/x.size)
				wait := m.charge(now, n, n*x.size)
				at[i] = now.Add(wait + x.round)
				if at[i] == now {
					at[i] = now.Add(time.Microsecond)
				}
				sent[i] += n
				total += n
			}
			per := float64(x.rate.Requests)
			if byBytes := float64(x.rate.Bytes) / float64(x.size); byBytes > 0 {
				per = min(cmp.Or(per, byBytes), byBytes)
			}
			want := per * (seconds + 1)
			slack := want/10 + float64(clients) // and a request that has been taken by each
			if d := float64(total) - want; d > slack || d < -slack {
				t.Errorf("%+v: %d requests, not %.0f", x, total, want)
			}
			if d := float64(sent[0]) - float64(total)/float64(clients); (d > slack || d < -slack) &&
				x.round < time.Second/rateSteps { // else who asks first gets what came meanwhile
				t.Errorf("%+v: unequal shares, %d", x, sent)
			}
		}
	}
}

// What is given back is as if it had not been taken.
func TestBucketTakesBack(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	b := bucket{perSecond: 10}
	if wait := b.take(now, 10); wait != 0 {
		t.Errorf("a second's worth waits for %v", wait)
	}
	if wait := b.take(now, 20); wait != 2*time.Second {
		t.Errorf("two more seconds' worth waits for %v", wait)
	}
	b.take(now, -20)
	if wait := b.take(now, 1); wait != 100*time.Millisecond {
		t.Errorf("then the next waits for %v", wait)
	}
	if wait := b.take(now.Add(time.Hour), 11); wait != 100*time.Millisecond {
		t.Errorf("after a pause, what exceeds a second's worth waits for %v", wait)
	}
}

func TestMeteredUsersAreBounded(t *testing.T) {
	r := newRates(rateLimits{user: Rate{Requests: 1}})
	for i := range meteredUsers + 10 {
		r.ofUser([]byte(fmt.Sprint(i))).charge(time.Now(), 100, 0)
		r.ofUser([]byte("busy"))
	}
	if n := r.users.Len(); n != meteredUsers {
		t.Errorf("%d users are remembered", n)
	}
	if !r.users.Contains("busy") || r.users.Contains("0") {
		t.Error("not the user was forgotten who has sent nothing for longest")
	}
}

// frozenRates starts a server with rates for which no time passes.
func frozenRates(t *testing.T, client, user Rate) *node {
	now := time.Now()
	return start(t, func(c *Config) {
		byHand(c)
		c.ClientRate, c.UserRate, c.DrainTimeout = client, user, time.Hour
		c.clock = func() time.Time { return now }
	})
}

func (n *node) delayed(t *testing.T, requests, clients int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests of %d clients wait", requests, clients), func() bool {
		return n.stats.rateDelayed.Load() == uint64(requests) &&
			n.stats.rateDelayedClients.Load() == int64(clients)
	})
}

// A client above its rate waits: what a second allows is answered at once. Others are served, and
// whoever ends the connection need not wait.
func TestClientRate(t *testing.T) {
	const burst = 100
	ends := map[string]func(*testing.T, *node, *client, *client){
		"CLIENT KILL": func(t *testing.T, _ *node, other, held *client) {
			if got := other.call("CLIENT", "KILL", "ADDR", held.local); got != ":1\r\n" {
				t.Fatal(got)
			}
			held.ended()
		},
		"disconnect": func(_ *testing.T, _ *node, _, held *client) { _ = held.Close() },
		"CONFIG SET": func(t *testing.T, n *node, other, held *client) {
			other.call("CONFIG", "SET", "coordd-client-rate", "0")
			for range burst {
				held.want("+PONG\r\n")
			}
			_ = held.Close()
		},
		"shutdown": func(_ *testing.T, n *node, _, held *client) {
			n.Close()
			for range burst {
				held.want("+PONG\r\n")
			}
			held.ended()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			n := frozenRates(t, Rate{Requests: burst}, Rate{})
			held, other := n.dial(t), n.dial(t)
			id := n.sessionOf(held).id
			held.raw(strings.Repeat(calls("PING"), 2*burst))
			for range burst {
				held.want("+PONG\r\n")
			}
			n.delayed(t, 1, 1)
			if got := other.call("SET", "a", "1"); got != "+OK\r\n" {
				t.Fatal(got)
			}
			info := other.call("INFO", "coordd")
			if !strings.Contains(info, "\r\nrate_delayed:1\r\nrate_delayed_clients:1\r\n") {
				t.Error(info)
			}
			end(t, n, other, held)
			eventually(t, "the session ends", func() bool { return n.session(id) == nil })
			if got := n.stats.rateDelayedClients.Load(); got != 0 {
				t.Errorf("%d clients wait", got)
			}
		})
	}
}

// A disconnect is noticed although much that the client sent is not read, and its user does not pay
// for what did not run.
func TestRateOfWhoGivesUp(t *testing.T) {
	n := frozenRates(t, Rate{}, Rate{Requests: 1})
	for range 3 {
		held := n.dial(t)
		held.raw(strings.Repeat("PING\r\n", maxAhead/6+1000))
		eventually(t, "it waits", func() bool { return n.stats.rateDelayedClients.Load() == 1 })
		_ = held.Close()
		eventually(t, "the session ends", func() bool { return len(n.all()) == 0 })
	}
	r := n.config.rates.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := r.ofUser([]byte(userDefault)).charge(n.cfg.clock(), 1, 0); wait > 5*time.Second {
		t.Errorf("the next request waits for %v", wait)
	}
}

// Each command of a transaction counts, and EXEC; a script counts once.
func TestRateOfTransactions(t *testing.T) {
	n := frozenRates(t, Rate{Requests: 5}, Rate{})
	c, other := n.dial(t), n.dial(t)
	c.raw(calls("MULTI", "INCR a", "INCR a", "INCR a", "EXEC", "PING"))
	c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n")
	n.delayed(t, 1, 1)
	script := "for i = 1, 100 do redis.call('INCR', KEYS[1]) end return 1"
	other.raw(pipeline([]string{"EVAL", script, "1", "a"}, []string{"PING"}, []string{"PING"},
		[]string{"PING"}, []string{"PING"}, []string{"PING"}))
	other.want(":1\r\n", "+PONG\r\n", "+PONG\r\n", "+PONG\r\n", "+PONG\r\n")
	n.delayed(t, 2, 2)
}

// All connections of a user share its rate, but not those of other users, and not those that must
// authenticate and have not.
func TestUserRate(t *testing.T) {
	n := frozenRates(t, Rate{}, Rate{Requests: 10})
	n.setPassword(t, "pw")
	admin := n.dial(t)
	admin.call("AUTH", "pw")
	admin.call("ACL", "SETUSER", "app", "on", "nopass", "+@all", "~*", "&*")
	stranger := n.dial(t)
	stranger.raw(strings.Repeat(calls("GET a"), 50))
	for range 50 {
		stranger.want("-NOAUTH Authentication required.\r\n")
	}
	first, second := n.dial(t), n.dial(t)
	for _, c := range []*client{first, second} {
		if got := c.call("AUTH", "app", "any"); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	first.raw(strings.Repeat(calls("PING"), 9))
	for range 9 {
		first.want("+PONG\r\n")
	}
	second.raw(calls("PING", "PING"))
	second.want("+PONG\r\n")
	n.delayed(t, 1, 1)
	first.raw(calls("PING"))
	n.delayed(t, 2, 2)
	if got := admin.call("CONFIG", "SET", "coordd-user-rate", "1000/s"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	first.want("+PONG\r\n")
	second.want("+PONG\r\n")
}

// A request that needs the node's room for large ones does not hold it while it waits.
func TestRateOfLargeRequests(t *testing.T) {
	n := frozenRates(t, Rate{Bytes: 1 << 20}, Rate{})
	held, other := n.dial(t), n.dial(t)
	held.call("SET", "a", strings.Repeat("x", 8<<20))
	held.raw(calls("PING"))
	n.delayed(t, 1, 1)
	n.intake.mu.Lock()
	if len(n.intake.turns) != 0 {
		t.Errorf("%d turns are taken", len(n.intake.turns))
	}
	n.intake.mu.Unlock()
	other.call("CONFIG", "SET", "coordd-client-rate", "1mb/s")
	held.want("+PONG\r\n")
	held.call("SET", "a", strings.Repeat("x", 8<<20))
	go func() { _ = held.SendRaw([]byte(setOf(8<<20) + strings.Repeat("x", 8<<20))) }()
	n.delayed(t, 2, 1)
	n.intake.mu.Lock()
	if len(n.intake.turns) != 0 {
		t.Errorf("%d turns are taken", len(n.intake.turns))
	}
	n.intake.mu.Unlock()
	if got := other.call("CLIENT", "KILL", "ADDR", held.local); got != ":1\r\n" {
		t.Fatal(got)
	}
	held.ended()
}

// A request that is too large counts with all its bytes.
func TestRateOfSkippedRequests(t *testing.T) {
	n := frozenRates(t, Rate{Bytes: 1 << 20}, Rate{})
	c := n.dial(t)
	go func() { _ = c.SendRaw([]byte(setOf(100<<20) + strings.Repeat("x", 50<<20))) }()
	eventually(t, "it waits", func() bool { return n.stats.rateDelayedClients.Load() == 1 })
	if read := n.stats.bytesIn.Load(); read > 4<<20 {
		t.Errorf("%d bytes were read", read)
	}
}

// What a client receives is not limited: a subscriber that waits gets its messages.
func TestRateOfSubscribers(t *testing.T) {
	n := frozenRates(t, Rate{Requests: 10}, Rate{})
	held, other := n.dial(t), n.dial(t)
	held.call("SUBSCRIBE", "a")
	held.raw(strings.Repeat(calls("PING"), 20))
	for range 9 {
		held.want("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	}
	n.delayed(t, 1, 1)
	other.call("PUBLISH", "a", "x")
	held.want("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")
}

// By the system's clock too, no client is faster than its rate.
func TestRateByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.ClientRate = Rate{Requests: 500} })
		c := n.dial(t)
		began := time.Now()
		c.raw(strings.Repeat(calls("INCR a"), 650))
		for i := range 650 {
			c.want(fmt.Sprintf(":%d\r\n", i+1))
		}
		if took := time.Since(began); took < 300*time.Millisecond {
			t.Errorf("650 requests at 500/s took %v", took)
		}
	})
}
