package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/memnet"
)

// Limits before AUTH are Redis's, and end with AUTH, even within what is sent at once.
func TestLimitsBeforeAuth(t *testing.T) {
	n := start(t, nil)
	n.setPassword(t, "pw")
	socket := commandtest.NeedRedis(t, "--requirepass", "pw")
	auth, bulk := pipeline([]string{"AUTH", "pw"}), strings.Repeat("x", 16385)
	ten := strings.Fields("DEL a b c d e f g h i")
	eleven := append(ten[:10:10], "j")
	for _, input := range []string{
		"*11\r\n", "*1000000\r\n", "*1048577\r\n", "*3000000000\r\n", "*x\r\n",
		"*1\r\n$16385\r\n", "*1\r\n$600000000\r\n", "*1\r\n$-1\r\n",
		"*2\r\n$4\r\nPING\r\n$16385\r\n",
		pipeline(ten, eleven), pipeline([]string{"PING", bulk[1:]}, []string{"PING", bulk}),
		"PING " + strings.Repeat("a ", 20) + "\r\n*0\r\n*11\r\n",
		strings.Repeat("PING\r\n", 20) + "*11\r\n",
		pipeline([]string{"AUTH", "wrong"}) + pipeline(eleven),
		auth + pipeline(eleven, []string{"ECHO", bulk}) + "*x\r\n",
		pipeline([]string{"HELLO", "2", "AUTH", "default", "pw"}, []string{"RESET"}) + "*x\r\n",
		pipeline([]string{"MULTI"}, []string{"SET", "k", "v"}, []string{"EXEC"}) + auth + "*x\r\n",
	} {
		want, own := endOf(t, "unix", socket, input), endOf(t, "tcp", n.addr, input)
		if strings.Contains(input, "HELLO") { // names and numbers differ
			want, own = want[strings.Index(want, "+RESET"):], own[strings.Index(own, "+RESET"):]
		}
		if own != want {
			t.Errorf("%.80q: %.300q, Redis %.300q", input, own, want)
		}
	}
}

// endOf returns what a server sends until it closes the connection.
func endOf(t *testing.T, network, addr, input string) string {
	t.Helper()
	c, err := commandtest.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _ = c.SendRaw([]byte(input)) }()
	var all strings.Builder
	for {
		raw, err := c.Receive()
		if err != nil {
			return all.String()
		}
		all.Write(raw)
	}
}

// forStrangers runs a test of clients that must authenticate for each state of what a node knows of
// the users. meet puts a node into it. refusal is the reply to what only a user may do; known makes
// the node know the users, of whom the default one has the password pw.
func forStrangers(t *testing.T,
	run func(t *testing.T, meet func(n *node) (refusal string, known func()))) {
	for name, test := range map[string]struct {
		refusal error
		change  func(n *node)
	}{
		"known":   {commands.ErrNoAuth, func(*node) {}},
		"unknown": {errUsersUnknown, func(n *node) { n.fake.users.Store(nil) }},
		"awaited": {errUsersAwaited, func(n *node) { n.fake.users.Store(UsersAwaited) }},
	} {
		t.Run("users are "+name, func(t *testing.T) {
			run(t, func(n *node) (string, func()) {
				n.setPassword(t, "pw")
				users := n.fake.users.Load()
				test.change(n)
				n.fake.set(func() {
					n.fake.lags, n.fake.st.Loading = true, true // clients do not wait for users
				})
				return "-" + test.refusal.Error() + "\r\n", func() { n.fake.users.Store(users) }
			})
		})
	}
}

// The input buffer of a client that must authenticate does not grow with a pipeline.
func TestBufferBeforeAuth(t *testing.T) {
	forStrangers(t, func(t *testing.T, meet func(*node) (string, func())) {
		n := start(t, nil)
		refusal, _ := meet(n)
		c := n.dial(t)
		s := n.sessionOf(c)
		go func() { _ = c.SendRaw([]byte(strings.Repeat("PING\r\n", 50_000))) }()
		for range freeRequests {
			c.want(refusal)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := s.view.queryBytes + s.view.queryFree; got == 0 || got > minReadBuffer {
			t.Errorf("%d bytes", got)
		}
	})
}

// What strangers send takes no room from others, whole or in part, and wherever it is cut.
func TestStrangersTakeNoRoom(t *testing.T) { forStrangers(t, testStrangersTakeNoRoom) }

func testStrangersTakeNoRoom(t *testing.T, meet func(*node) (string, func())) {
	n := start(t, nil)
	refusal, known := meet(n)
	most := strings.Repeat("x", maxBulkBeforeAuth)
	large := []string{"DEL", most, most, most, most, most, most, most, most, most}
	whole := pipeline(large)
	for _, cut := range []int{freeReadBuffer - 1, freeReadBuffer, freeReadBuffer + 1,
		len(whole) - maxBulkBeforeAuth - 5, len(whole) - 1} {
		c := n.dial(t)
		s := n.sessionOf(c)
		c.raw(whole[:cut])
		eventually(t, "all is read", func() bool {
			return s.state.Load() == waitsForInput && !inputPending(s.conn)
		})
		if n.intake.room() != 0 || s.memory.bytes() > 4*freeReadBuffer {
			t.Errorf("%d bytes are held, %d in all", n.intake.room(), s.memory.bytes())
		}
		c.raw(whole[cut:])
		c.want(refusal)
		unknown := n.fake.users.Load()
		known()
		c.raw(pipeline([]string{"AUTH", "pw"}, large))
		c.want("+OK\r\n", ":0\r\n")
		n.fake.users.Store(unknown)
		_ = c.Close()
		eventually(t, "it gives back what it got as a user", func() bool {
			return n.intake.room() == 0
		})
	}
	for fill := range 40 { // the head of an argument at the end of the buffer
		text := strings.Repeat("x", maxBulkBeforeAuth-12)
		c := n.dial(t)
		c.raw(pipeline([]string{"DEL", text, text, text, text[:len(text)-fill], text, text}))
		c.want(refusal)
	}
	for _, line := range []string{"", "*", "*1\r\n$"} {
		c := n.dial(t)
		c.raw(line + strings.Repeat("1", freeReadBuffer-1) + "\r")
		if got := c.next(); !strings.HasPrefix(got, "-ERR Protocol error: too big") {
			t.Errorf("%q: %q", line, got)
		}
		c.ended()
		if n.intake.room() != 0 {
			t.Errorf("%q: %d bytes are held", line, n.intake.room())
		}
	}
}

// What a stranger queues is no more than a request of a stranger may be.
func TestStrangersQueueLittle(t *testing.T) {
	forStrangers(t, func(t *testing.T, meet func(*node) (string, func())) {
		n := start(t, nil)
		refusal, known := meet(n)
		most := strings.Repeat("x", maxBulkBeforeAuth-100)
		large := []string{"MSET", "a", most, "b", most, "c", most}
		c := n.dial(t)
		s := n.sessionOf(c)
		c.call("MULTI")
		c.call(large...)
		if got := c.call(large...); got != refusal { // two have too much
			t.Errorf("%.80q, want %q", got, refusal)
		}
		if got := s.memory.bytes(); got > 4*freeReadBuffer {
			t.Errorf("%d bytes are held", got)
		}
		c.call("DISCARD")
		known()
		const queued = "+QUEUED\r\n"
		c.raw(pipeline([]string{"AUTH", "pw"}, []string{"MULTI"}, large, large, large))
		c.want("+OK\r\n", "+OK\r\n", queued, queued, queued)
	})
}

// room returns how many bytes are held.
func (in *intake) room() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.spare + in.held
}

// A client that must authenticate has AuthTimeout for it, also after RESET. One that authenticates
// again in time goes on, however often.
func TestAuthTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 500 * time.Millisecond
		n := startSimulated(t, func(c *Config) { c.AuthTimeout = limit })
		early := n.dial(t)
		early.call("PING")
		n.setPassword(t, "pw")
		in, reset := n.dial(t), n.dial(t)
		in.call("AUTH", "pw")
		reset.call("AUTH", "pw")
		time.Sleep(2 * limit)
		began := time.Now()
		for range freeRequests {
			got := in.call("RESET") + in.call("HELLO", "3") + in.call("AUTH", "pw")
			if !strings.HasPrefix(got, "+RESET\r\n-NOAUTH ") || !strings.HasSuffix(got, "+OK\r\n") {
				t.Fatal(got)
			}
		}
		if took := time.Since(began); took >= requestDelay {
			t.Errorf("clients of a pool are slowed down: %v", took)
		}
		reset.call("RESET")
		time.Sleep(limit / 2)
		if got := reset.call("PING"); got != "-"+string(commands.ErrNoAuth)+"\r\n" {
			t.Error(got)
		}
		silent, busy := n.dial(t), n.dial(t)
		_ = busy.SendRaw([]byte(strings.Repeat("PING\r\n", 3) + "*2\r\n$4\r\nAU"))
		busy.next()
		busy.next()
		busy.next()
		for _, c := range []*client{silent, busy, early, reset} {
			c.ended()
		}
		info := in.call("INFO", "coordd")
		if !strings.Contains(info, "\r\nunauthenticated_closed:4\r\n") {
			t.Error(info)
		}
	})
}

// checkStanding fails unless each session is counted once: for its user, or among the
// unauthenticated, or for neither because the default user needs no password.
func (n *node) checkStanding(t *testing.T) {
	t.Helper()
	time.Sleep(4 * authGrace) // those that end are gone, and nobody waits for room
	synctest.Wait()
	users, unauthenticated := map[string]int64{}, 0
	for _, c := range n.all() {
		id := c.user.Load()
		switch {
		case id != nil:
			users[string(id.name)]++
		case c.counted:
			unauthenticated++
		}
		if must := c.mustAuthenticate(); must != c.counted ||
			must != (c.unauthenticatedSince.Load() != nil) {
			t.Errorf("%s: must authenticate %v, counted %v", c.addr, must, c.counted)
		}
	}
	n.userClients.mu.Lock()
	counted := maps.Clone(n.userClients.count)
	n.userClients.mu.Unlock()
	if !maps.Equal(users, counted) {
		t.Errorf("sessions of users: %v, counted %v", users, counted)
	}
	if got := n.unauthenticated.Len(); got != unauthenticated {
		t.Errorf("unauthenticated sessions: %d, counted %d", unauthenticated, got)
	}
}

// Whatever clients do, and whatever becomes of the users, each session is counted once, and no
// limit is passed.
func TestEachSessionIsCountedOnce(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { standAtRandom(t, seed) })
	}
}

func standAtRandom(t *testing.T, seed uint64) {
	const ofUser, strangers = 3, 4
	n := startSimulated(t, func(c *Config) {
		c.MaxUserClients, c.MaxUnauthenticated, c.AuthTimeout = ofUser, strangers, 0
	})
	random := rand.New(rand.NewPCG(seed, 1))
	change := func(words ...string) {
		q := commands.Request{Proto: 2, User: commands.UserID{Name: []byte(userDefault)},
			Cmds: [][][]byte{commandtest.Args(words...)}}
		if _, err := n.fake.run("write", commands.AppendRequest(nil, &q), true); err != nil {
			t.Fatal(err)
		}
	}
	let := func() { change("ACL", "SETUSER", "app", "on", ">app", "~*", "+@all", "-@admin") }
	changes := []func(){let, let, func() { change("ACL", "DELUSER", "app") },
		func() { change("ACL", "SETUSER", "app", "off") }, func() { n.setPassword(t, "pw") },
		func() { n.setPassword(t, "") }}
	requests := []string{"AUTH app app", "AUTH app app", "AUTH app wrong", "AUTH pw", "RESET",
		"RESET", "HELLO 3 AUTH app app", "HELLO 2", "HELLO 3 AUTH app wrong", "PING", "QUIT"}
	clients := make([]*client, 10)
	let()
	n.setPassword(t, "pw")
	for range 150 {
		for range 1 + random.IntN(8) {
			i := random.IntN(len(clients))
			if clients[i] == nil {
				clients[i] = n.dial(t)
			}
			c, sent := clients[i], pick(random, requests)
			reply, err := c.Do(commandtest.Args(strings.Fields(sent)...))
			if err != nil || sent == "QUIT" || strings.HasPrefix(string(reply), "-ERR max number") {
				_ = c.Close()
				clients[i] = nil
			}
		}
		if random.IntN(4) == 0 {
			pick(random, changes)()
		}
		n.checkStanding(t)
		of := n.userClients.count["app"]
		if strange := n.unauthenticated.Len(); of > ofUser || strange > strangers || t.Failed() {
			t.Fatalf("seed %d: app has %d sessions, %d must authenticate", seed, of, strange)
		}
	}
	for _, c := range clients {
		if c != nil {
			_ = c.Close()
		}
	}
	n.checkStanding(t)
	if left := len(n.all()) + n.unauthenticated.Len(); left > 0 || len(n.userClients.count) > 0 {
		t.Errorf("%d sessions, users %v", left, n.userClients.count)
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// serveFrom is listenFrom in simulated time.
func (n *node) serveFrom(t *testing.T, address string) *memnet.Listener {
	t.Helper()
	ln := memnet.Listen()
	ln.Clients = net.ParseIP(address)
	served := make(chan error, 1)
	go func() { served <- n.Serve(ln) }()
	t.Cleanup(func() {
		n.Retire()
		if err := receive(t, "Serve ends", served); err != nil {
			t.Error(err)
		}
	})
	return ln
}

// Past MaxUnauthenticated the oldest connection of the address with the most ends.
func TestMaxUnauthenticated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.MaxUnauthenticated, c.Unprotected = 3, true })
		n.setPassword(t, "pw")
		far, other := n.serveFrom(t, "192.0.2.7"), n.serveFrom(t, "192.0.2.8")
		dial := func(ln *memnet.Listener) *client {
			conn, err := ln.Dial()
			c := newClient(t, conn, err)
			c.call("PING")
			return c
		}
		friend, first, second := dial(other), dial(far), dial(far)
		third := dial(far)
		first.ended()
		if got := second.call("AUTH", "pw"); got != "+OK\r\n" {
			t.Error(got)
		}
		fourth := dial(far)
		dial(far)
		third.ended()
		for _, c := range []*client{friend, fourth} {
			if got := c.call("AUTH", "pw"); got != "+OK\r\n" {
				t.Error(got)
			}
		}
		info := second.call("INFO", "coordd")
		if !strings.Contains(info, "\r\nunauthenticated_clients:1\r\nunauthenticated_closed:2\r\n") {
			t.Error(info)
		}
	})
}

// Failures delay the next attempts, more and more; the right password gets in after the delay.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.setPassword(t, "pw")
		c := n.dial(t)
		for range freeGuesses + 1 {
			if got := c.call("AUTH", "wrong"); got != "-"+string(commands.ErrWrongPass)+"\r\n" {
				t.Error(got)
			}
		}
		start := time.Now()
		if got := n.dial(t).call("AUTH", "default", "pw"); got != "+OK\r\n" {
			t.Error(got)
		}
		if took := time.Since(start); took < guessDelay*3/4 {
			t.Errorf("after %v", took)
		}
		c.call("AUTH", "pw")
		info := c.call("INFO", "all")
		for _, want := range []string{"acl_access_denied_auth:6\r\n", "auth_delayed:1\r\n"} {
			if !strings.Contains(info, "\n"+want) {
				t.Errorf("no %s", want)
			}
		}
	})
}

// failures makes the test's address one that failed to authenticate as the default user.
func (n *node) failures(count int) {
	g := &n.guessing
	key, a := g.guesser(n.all()[0].conn, []byte(acl.DefaultUser)), newAttempts()
	for range count {
		a.fail(time.Now())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle.Add(key, a)
}

// sendAuth sends AUTH on count new connections and waits until all are delayed. The replies that
// arrive are sent to the channel.
func (n *node) sendAuth(t *testing.T, count int, password string) <-chan string {
	t.Helper()
	replies, before := make(chan string, count), n.guessing.delayed.Load()
	for range count {
		c := n.dial(t)
		if err := c.Send(commandtest.Args("AUTH", password)); err != nil {
			t.Fatal(err)
		}
		go func() {
			if raw, err := c.Receive(); err == nil {
				replies <- string(raw)
			}
		}()
	}
	eventually(t, "the delay", func() bool {
		return n.guessing.delayed.Load() == before+uint64(count)
	})
	return replies
}

// However many connections a guesser has, it waits for each try. Nor does it help to have others
// fail until it is forgotten.
func TestGuessersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.setPassword(t, "pw")
		n.dial(t).call("PING")
		n.failures(freeGuesses + 1)
		began := time.Now()
		replies := n.sendAuth(t, 50, "wrong")
		n.guessing.mu.Lock()
		for i := range guessers {
			n.guessing.idle.Add(i, newAttempts())
		}
		n.guessing.mu.Unlock()
		for i := range 2 { // the second one waits for twice the delay
			got := receive(t, "a reply", replies)
			if got != "-"+string(commands.ErrWrongPass)+"\r\n" {
				t.Error(got)
			}
			took, least := time.Since(began), guessDelay*time.Duration(1+2*i)
			if took < least*3/4 {
				t.Errorf("try %d after %v", i, took)
			}
		}
	})
}

// A failure delays those who know the password once, not each of them.
func TestPasswordsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.setPassword(t, "pw")
		n.dial(t).call("PING")
		n.failures(freeGuesses + 2)
		began := time.Now()
		replies := n.sendAuth(t, 50, "pw")
		for range 50 {
			if got := receive(t, "a reply", replies); got != "+OK\r\n" {
				t.Error(got)
			}
		}
		if took := time.Since(began); took < guessDelay || took > 8*guessDelay {
			t.Errorf("after %v", took)
		}
	})
}

// While nothing delays a guesser, few of its tries run at a time.
func TestGuessesAtOnce(t *testing.T) {
	a, now := newAttempts(), time.Unix(1e9, 0)
	s := &session{}
	a.waiting = []*session{s, {}}
	for a.running = 0; a.running < guessesAtOnce; a.running++ {
		if d := a.wait(s, now); d != 0 {
			t.Fatalf("%v with %d running", d, a.running)
		}
	}
	if a.wait(s, now) == 0 {
		t.Error("one more runs")
	}
	a.running = 0
	if a.wait(a.waiting[1], now) == 0 {
		t.Error("one runs before its turn")
	}
	for range freeGuesses + 1 {
		a.fail(now)
	}
	later := now.Add(longestDelay)
	if d := a.wait(s, later); d != 0 {
		t.Errorf("%v", d)
	}
	if a.running = 1; a.wait(s, later) == 0 {
		t.Error("a second one runs")
	}
}

// A delayed client that goes, is killed, or whose server stops does not stay.
func TestDelayedClientsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.setPassword(t, "pw")
		admin := n.dial(t)
		admin.call("AUTH", "pw")
		delayed := func() *client {
			c := n.dial(t)
			n.failures(100)
			before := n.guessing.delayed.Load()
			_ = c.Send(commandtest.Args("AUTH", "pw"))
			eventually(t, "the delay", func() bool { return n.guessing.delayed.Load() > before })
			return c
		}
		began := time.Now()
		_ = delayed().Close()
		eventually(t, "it is gone", func() bool { return len(n.all()) == 1 })
		c := delayed()
		admin.call("CLIENT", "KILL", "ID", n.idOf(n.sessionOf(c)))
		c.ended()
		c = delayed()
		go n.Close()
		c.want("+OK\r\n")
		if took := time.Since(began); took >= longestDelay {
			t.Errorf("after %v", took)
		}
	})
}

func TestDelays(t *testing.T) {
	a, now := newAttempts(), time.Unix(1e9, 0)
	for range freeGuesses {
		if d := a.delay(now); d != 0 {
			t.Fatalf("%v", d)
		}
		a.fail(now)
	}
	for i := range 20 {
		want := min(time.Duration(i)*guessDelay, longestDelay)
		if d := a.delay(now); d != want {
			t.Fatalf("failure %d: %v, want %v", i, d, want)
		}
		a.fail(now)
	}
	if d := a.delay(now.Add(100 * time.Second)); d != 0 { // however many have failed
		t.Errorf("%v later", d)
	}
}

// A client that must authenticate may send some requests at once. After that they take their time,
// also AUTH, and then it may send any number.
func TestRequestsBeforeAuth(t *testing.T) {
	// what has no reply counts as well
	for name, request := range map[string]string{"PING": "PING\r\n", "empty line": "\r\n",
		"no arguments": "*0\r\n"} {
		t.Run(name, func(t *testing.T) {
			forStrangers(t, func(t *testing.T, meet func(*node) (string, func())) {
				synctest.Test(t, func(t *testing.T) { testRequestsBeforeAuth(t, request, meet) })
			})
		})
	}
}

func testRequestsBeforeAuth(t *testing.T, request string, meet func(*node) (string, func())) {
	n := startSimulated(t, nil)
	refusal, known := meet(n)
	c := n.dial(t)
	began := time.Now()
	const more = 3
	c.raw(strings.Repeat(request, freeRequests+more-1) + "PING\r\n")
	if request == "PING\r\n" {
		for range freeRequests + more - 1 {
			c.want(refusal)
		}
	}
	c.want(refusal)
	known()
	c.raw("AUTH pw\r\n" + strings.Repeat("PING\r\n", 10*freeRequests))
	c.want("+OK\r\n")
	in := time.Now()
	for range 10 * freeRequests {
		c.want("+PONG\r\n")
	}
	if took := in.Sub(began); took < more*requestDelay {
		t.Errorf("in after %v", took)
	}
	if took := time.Since(in); took > freeRequests*requestDelay {
		t.Errorf("then %v", took)
	}
}

// A client whose neighbors do not authenticate gets in when it tries again; others get in at once.
func TestNeighborsOfACrowd(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxUnauthenticated, c.Unprotected = 10, true })
	n.setPassword(t, "pw")
	crowd, other := n.listenFrom(t, "192.0.2.7"), n.listenFrom(t, "192.0.2.8")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if c, err := commandtest.Dial("tcp", crowd); err == nil {
				_ = c.Close()
			}
		}
	}()
	defer func() { close(stop); <-done }()
	eventually(t, "strangers are refused", func() bool { return n.door.Refused() > 0 })
	eventually(t, "a neighbor gets in", func() bool {
		c, err := commandtest.Dial("tcp", crowd)
		if err != nil {
			return false
		}
		defer c.Close()
		reply, err := c.Do(commandtest.Args("AUTH", "pw"))
		return err == nil && string(reply) == "+OK\r\n"
	})
	c := dialAt(t, other)
	c.call("AUTH", "pw")
	info := c.call("INFO", "coordd")
	if strings.Contains(info, "\r\nunauthenticated_refused:0\r\n") {
		t.Error(info)
	}
}

// Connections of one address for one user are one guesser.
func TestGuessers(t *testing.T) {
	var g guessing
	g.init()
	guesser := func(addr, user string) guesser {
		from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		return g.guesser(&farConn{from: *from}, []byte(user))
	}
	if guesser("192.0.2.1:1", "alice") != guesser("192.0.2.1:2", "alice") {
		t.Error("a port makes a difference")
	}
	if guesser("192.0.2.1:1", "alice") == guesser("192.0.2.2:1", "alice") {
		t.Error("the address makes no difference")
	}
	slots := map[any]bool{}
	for i := range 1000 {
		slots[guesser("192.0.2.1:1", fmt.Sprint(i))] = true
	}
	if n := len(slots); n < userSlots/2 || n > userSlots {
		t.Errorf("%d slots", n)
	}
}
