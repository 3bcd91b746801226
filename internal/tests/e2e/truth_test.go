// What WAIT, WAITAOF, INFO replication and ROLE report of real processes, some of them killed or
// paused; writes that change nothing and leave nothing in the log; a deposed leader that does not
// know it yet.

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// infoField reads one field of INFO.
func infoField(c *redis.Client, section, field string) string {
	text, err := c.Info(context.Background(), section).Result()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}

func infoNumber(t *testing.T, c *redis.Client, section, field string) int {
	t.Helper()
	n, err := strconv.Atoi(infoField(c, section, field))
	if err != nil {
		t.Fatalf("INFO %s has no number %s: %v", section, field, err)
	}
	return n
}

// said returns a reply as text.
func said(c *redis.Client, words ...any) string {
	v, err := c.Do(context.Background(), words...).Result()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(v)
}

func TestWhatTheQuorumKnows(t *testing.T) {
	tier.Check(t)
	ps := startProcesses(t, 3)
	ctx := context.Background()
	lead, rest := leader(t, ps)
	leading, following := lead.client(), rest[0].client()

	for _, c := range []*redis.Client{leading, following} {
		checkWaits(t, c)
	}
	checkReplication(t, leading, following, rest)

	dead := rest[1]
	dead.kill()
	wait.For(t, 10*time.Second, "INFO drops a dead follower", func() bool {
		return infoField(leading, "replication", "connected_slaves") == "1"
	})
	if got := said(leading, "ROLE"); strings.Contains(got,
		dead.addr[strings.Index(dead.addr, ":")+1:]) {
		t.Errorf("ROLE names a dead follower: %s", got)
	}
	for _, c := range []*redis.Client{leading, following} {
		if err := c.Set(ctx, "lock", "c", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got := said(c, "WAIT", "1", "0"); got != "1" {
			t.Errorf("two of three run: WAIT 1: %s", got)
		}
		began := time.Now()
		if got := said(c, "WAIT", "2", "200"); got != "1" ||
			time.Since(began) < 200*time.Millisecond {
			t.Errorf("two of three run: WAIT 2 200: %s after %v", got, time.Since(began))
		}
		if got := said(c, "WAITAOF", "1", "2", "50"); got != "[1 1]" {
			t.Errorf("two of three run: WAITAOF 1 2 50: %s", got)
		}
	}
	dead.start()
	for _, c := range []*redis.Client{leading, following} {
		if got := said(c, "WAIT", "2", "14000"); got != "2" {
			t.Errorf("the third returned: WAIT 2: %s", got)
		}
	}
	wait.For(t, 10*time.Second, "the third in INFO again", func() bool {
		return infoField(leading, "replication", "connected_slaves") == "2"
	})

	// A follower that hangs does not count as a replica, although its connection is open.
	rest[0].signal(syscall.SIGSTOP)
	wait.For(t, 15*time.Second, "INFO drops a stopped follower", func() bool {
		return infoField(leading, "replication", "connected_slaves") == "1"
	})
	rest[0].signal(syscall.SIGCONT)

	// A majority holds what was acknowledged, but may be dead now: WAIT reports that, and no more.
	for _, p := range rest {
		p.kill()
	}
	if got := said(leading, "WAIT", "2", "100"); got != "1" {
		t.Errorf("the leader alone: WAIT 2 100: %s", got)
	}
}

// checkWaits takes a lock and waits for replicas, as Redisson does, while all three nodes run.
func checkWaits(t *testing.T, c *redis.Client) {
	t.Helper()
	ctx := context.Background()
	if err := c.Set(ctx, "lock", "a", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// 50 ms suffice for both only once they are known to hold the write.
	for _, test := range [][2]string{
		{"WAIT 1 10000", "at least 1"}, {"WAIT 2 10000", "2"}, {"WAITAOF 1 2 10000", "[1 2]"},
		{"WAIT 3 50", "2"},
	} {
		words, want := test[0], test[1]
		var args []any
		for _, w := range strings.Fields(words) {
			args = append(args, w)
		}
		got := said(c, args...)
		if got != want && !(want == "at least 1" && (got == "1" || got == "2")) {
			t.Errorf("all three run: %s through %s: %s, want %s", words, c.Options().Addr, got,
				want)
		}
	}
	pipe := c.TxPipeline()
	pipe.Set(ctx, "lock", "b", 0)
	waited := pipe.Do(ctx, "WAIT", "2", "0")
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if n, _ := waited.Int(); n < 1 || n > 2 {
		t.Errorf("WAIT in MULTI: %v", waited)
	}
}

// checkReplication compares what the leader and a follower report about replication while all run
// and nothing is written.
func checkReplication(t *testing.T, leading, following *redis.Client, rest []*process) {
	t.Helper()
	wait.For(t, 10*time.Second, "offsets to agree", func() bool {
		offset := infoField(leading, "replication", "master_repl_offset")
		role := said(leading, "ROLE")
		for i := range rest {
			if !strings.Contains(infoField(leading, "replication", fmt.Sprintf("slave%d", i)),
				"state=online,offset="+offset+",lag=") {
				return false
			}
		}
		return infoField(leading, "replication", "connected_slaves") == "2" &&
			strings.Count(role, " "+offset+"]") == 2 &&
			infoField(following, "replication", "slave_repl_offset") == offset &&
			infoField(following, "replication", "slave_read_repl_offset") == offset &&
			infoField(following, "replication", "master_repl_offset") == offset &&
			infoField(following, "replication", "master_link_status") == "up" &&
			strings.HasSuffix(said(following, "ROLE"), " connected "+offset+"]")
	})
}

const (
	// windowOfOne takes the only slot in a window of a minute.
	windowOfOne = `redis.call("ZREMRANGEBYSCORE", KEYS[1], 0, redis.call("TIME")[1] - 60)
if redis.call("ZCARD", KEYS[1]) >= 1 then return 0 end
return redis.call("ZADD", KEYS[1], redis.call("TIME")[1], ARGV[1])`
	// onlyOld writes unless the key holds "old".
	onlyOld = `if redis.call("GET", KEYS[1]) == "old" then return "stale" end redis.call("SET", KEYS[1], "newest") return "fresh"`
)

// TestWritesThatChangeNothing: attempts at a held lock, a full window and the like leave almost
// nothing in the log, through any node, and succeed at once when the lock is free.
func TestWritesThatChangeNothing(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	lead, rest := leader(t, ps)
	for _, p := range []*process{lead, rest[0]} {
		c := p.client()
		name := "held:" + p.id
		if err := c.Set(ctx, name, "holder", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Eval(ctx, windowOfOne, []string{"window:" + p.id}, "a").Int(); err != nil ||
			n != 1 {
			t.Fatal(n, err)
		}
		const rounds = 300
		before, answered := infoNumber(t, c, "coordd", "raft_last_log_index"),
			infoNumber(t, c, "coordd", "unlogged_writes")
		for i := range rounds {
			if ok, err := c.SetNX(ctx, name, "thief", time.Minute).Result(); ok || err != nil {
				t.Fatalf("a held lock: %v %v", ok, err)
			}
			if n, err := c.Eval(ctx, windowOfOne, []string{"window:" + p.id}, i).Int(); n != 0 ||
				err != nil {
				t.Fatalf("a full window: %v %v", n, err)
			}
			if n, err := c.Eval(ctx, releaseScript, []string{name}, "thief").Int(); n != 0 ||
				err != nil {
				t.Fatalf("a release by another client: %v %v", n, err)
			}
		}
		logged := infoNumber(t, c, "coordd", "raft_last_log_index") - before
		unlogged := infoNumber(t, c, "coordd", "unlogged_writes") - answered
		t.Logf("%d writes that change nothing through %s: %d entries, %d answered without one",
			3*rounds, p.id, logged, unlogged)
		if logged > rounds || unlogged < 2*rounds || unlogged > 3*rounds {
			t.Errorf("too many of them were logged")
		}
		// The next owner gets the lock at once, after a release and after the TTL.
		if n, err := c.Eval(ctx, releaseScript, []string{name}, "holder").Int(); n != 1 ||
			err != nil {
			t.Fatalf("the release: %v %v", n, err)
		}
		// its TTL starts later than this, and may start long before the reply arrives
		asked := time.Now()
		if ok, err := c.SetNX(ctx, name, "next", 300*time.Millisecond).Result(); !ok || err != nil {
			t.Fatalf("a free lock: %v %v", ok, err)
		}
		wait.For(t, 10*time.Second, "the lock expires", func() bool {
			return c.SetNX(ctx, name, "third", time.Minute).Val()
		})
		if d := time.Since(asked); d < 299*time.Millisecond { // the clock counts whole ms
			t.Errorf("the lock was lost %v after it was asked for, for 300ms", d)
		}
	}
}

// TestDeposedLeaderReturnsNothingStale stops the leader, lets the others go on, and sends requests
// to the old leader before it knows. Each reply must be true now, or an error that says that the
// command did not run. READONLY requires less.
func TestDeposedLeaderReturnsNothingStale(t *testing.T) {
	ps := startProcesses(t, 3)
	ctx := context.Background()
	for round := range 2 {
		old, rest := leader(t, ps)
		all := leaderRequests(t, old, round)
		learnDryRuns(t, all)

		old.signal(syscall.SIGSTOP) // its earlier replies would be true
		for _, r := range all {     // the first half waits in the sockets of the stopped process
			if r.number%2 == 0 {
				go func() { r.got <- r.send(r.c, r.key) }()
			}
		}
		leader(t, rest)
		now := rest[0].client()
		for _, r := range all { // each may be retried: it does not matter how often it ran
			wait.For(t, 15*time.Second, "a write without the old leader", func() bool {
				if r.kind == "lock" {
					return now.Del(ctx, r.key).Err() == nil
				}
				return now.Set(ctx, r.key, "new", 0).Err() == nil
			})
		}
		old.signal(syscall.SIGCONT)
		for _, r := range all { // the second half arrives before it knows
			if r.number%2 == 1 {
				go func() { r.got <- r.send(r.c, r.key) }()
			}
		}
		answered := 0
		for _, r := range all {
			got := <-r.got
			switch word, _, _ := strings.Cut(got, " "); {
			case got == r.want, r.kind == "readonly" && (got == "old" || got == "new"):
				answered++
			case word == "CLUSTERDOWN" && r.kind != "readonly", word == "UNKNOWN" && r.writes:
			default:
				t.Errorf("round %d, %s on the old leader: %q, want %q", round, r.key, got, r.want)
			}
		}
		t.Logf("round %d: %d of %d requests got a reply, the others an error", round, answered,
			len(all))
		old.waitReady()
	}
}

// leaderRequest is a request to a leader that is about to be deposed. Meanwhile its key changes
// from old to new, or the lock is released.
type leaderRequest struct {
	kind   string
	want   string
	writes bool
	send   func(c *redis.Client, key string) string

	number int
	key    string
	c      *redis.Client
	got    chan string
}

var leaderRequestKinds = []leaderRequest{
	{kind: "get", want: "new", send: func(c *redis.Client, k string) string {
		return said(c, "GET", k)
	}},
	{kind: "ro", want: "new", send: func(c *redis.Client, k string) string {
		return said(c, "EVAL_RO", `return redis.call("GET", KEYS[1])`, "1", k)
	}},
	{kind: "multi", want: "[new new]", send: func(c *redis.Client, k string) string {
		ctx := context.Background()
		pipe := c.TxPipeline()
		a, b := pipe.Get(ctx, k), pipe.Get(ctx, k)
		if _, err := pipe.Exec(ctx); err != nil {
			return err.Error()
		}
		return fmt.Sprint([]string{a.Val(), b.Val()})
	}},
	{kind: "lock", want: "OK", writes: true, send: func(c *redis.Client, k string) string {
		return said(c, "SET", k, "me", "NX")
	}},
	{kind: "try", want: "fresh", writes: true, send: func(c *redis.Client, k string) string {
		return said(c, "EVAL", onlyOld, "1", k)
	}},
	// stale or not, it gets a reply
	{kind: "readonly", want: "old or new", send: func(c *redis.Client, k string) string {
		ctx := context.Background()
		pipe := c.Pipeline()
		pipe.ReadOnly(ctx)
		v := pipe.Get(ctx, k)
		if _, err := pipe.Exec(ctx); err != nil {
			return err.Error()
		}
		return v.Val()
	}},
}

// leaderRequests makes four requests of each kind, each with its own key and client.
func leaderRequests(t *testing.T, p *process, round int) (all []leaderRequest) {
	t.Helper()
	for _, r := range leaderRequestKinds {
		for r.number = range 4 {
			r.key = fmt.Sprintf("%s:%d:%d", r.kind, round, r.number)
			r.c, r.got = p.client(), make(chan string, 1)
			if err := r.c.Set(context.Background(), r.key, "old", 0).Err(); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}

// learnDryRuns repeats the writes until the leader answers them by dry runs.
func learnDryRuns(t *testing.T, all []leaderRequest) {
	t.Helper()
	for range 40 {
		for _, r := range all {
			if !r.writes {
				continue
			}
			if got := r.send(r.c, r.key); got == r.want {
				t.Fatalf("%s before the pause: %s", r.key, got)
			}
		}
	}
	if n := infoNumber(t, all[0].c, "coordd", "unlogged_writes"); n < 100 {
		t.Fatalf("%d writes skipped the log: the test does not cover them", n)
	}
}
