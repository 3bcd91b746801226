// Several clusters, between which clients or a proxy divide the keys, as docs/operations.md shows
// it.

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// newRing makes a client of several clusters from the nodes of each. The clusters' names decide
// where a key is.
func newRing(clusters map[string][]string) *redis.Ring {
	names := map[string]string{}
	for name := range clusters {
		names[name] = name
	}
	return redis.NewRing(&redis.RingOptions{
		Addrs: names,
		NewClient: func(opt *redis.Options) *redis.Client {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "mymaster", SentinelAddrs: clusters[opt.Addr],
			})
		},
		// The keys of a cluster that does not answer stay its own: its locks are still held.
		HeartbeatFn: func(context.Context, *redis.Client) bool { return true },
	})
}

// takeOnBoth takes a lock by the list of clusters that was and by the one that will be, so that
// clients with either list respect it.
func takeOnBoth(ctx context.Context, was, will *redis.Ring, key, owner string,
	ttl time.Duration) (bool, error) {
	for _, ring := range []*redis.Ring{was, will} {
		taken, err := ring.SetNX(ctx, key, owner, ttl).Result()
		if err == nil && !taken { // by the owner, if both lists name one cluster
			var holder string
			holder, err = ring.Get(ctx, key).Result()
			taken = err == nil && holder == owner
		}
		if !taken {
			if errors.Is(err, redis.Nil) { // it has ended meanwhile
				err = nil
			}
			return false, errors.Join(err, releaseOnBoth(ctx, was, will, key, owner))
		}
	}
	return true, nil
}

// releaseOnBoth releases what takeOnBoth took.
func releaseOnBoth(ctx context.Context, was, will *redis.Ring, key, owner string) error {
	release := redis.NewScript(
		`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
	return errors.Join(release.Run(ctx, was, []string{key}, owner).Err(),
		release.Run(ctx, will, []string{key}, owner).Err())
}

// TestSeveralClustersDocument holds docs/operations.md to the code above.
func TestSeveralClustersDocument(t *testing.T) {
	source, err := os.ReadFile("several_test.go")
	if err != nil {
		t.Fatal(err)
	}
	shown := severalBlocks(t, "go")
	if len(shown) != 2 {
		t.Fatalf("docs/operations.md has %d blocks of Go, not 2", len(shown))
	}
	for _, block := range shown {
		if !strings.Contains(string(source), block) {
			t.Errorf("docs/operations.md shows what is not run:\n%s", block)
		}
	}
}

// severalBlocks returns the fenced blocks of a language in docs/operations.md.
func severalBlocks(t *testing.T, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	fenced := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$")
	for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// several are clusters of three nodes each.
type several struct {
	names []string
	nodes map[string][]*process
	addrs map[string][]string
}

func startSeveral(t *testing.T, names ...string) *several {
	t.Helper()
	s := &several{names: names, nodes: map[string][]*process{}, addrs: map[string][]string{}}
	for _, name := range names {
		s.nodes[name] = startProcesses(t, 3)
		for _, p := range s.nodes[name] {
			s.addrs[name] = append(s.addrs[name], p.addr)
		}
	}
	return s
}

// where returns the names of the clusters that have a key.
func (s *several) where(t *testing.T, key string) (found []string) {
	t.Helper()
	for _, name := range s.names {
		n, err := s.nodes[name][0].client().Exists(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			found = append(found, name)
		}
	}
	return found
}

// keys returns a key for each cluster, taken by set, and fails if a key is not on exactly one.
func (s *several) keys(t *testing.T, set func(key string) error) map[string]string {
	t.Helper()
	on := map[string]string{}
	for i := 0; len(on) < len(s.names); i++ {
		key := fmt.Sprintf("lock:%d", i)
		if err := set(key); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		found := s.where(t, key)
		if len(found) != 1 {
			t.Fatalf("%s is on %v", key, found)
		}
		on[found[0]] = key
		if i > 1000 {
			t.Fatalf("1,000 keys are on %d of %d clusters", len(on), len(s.names))
		}
	}
	return on
}

// take is a lock of a client that may be refused.
func take(ctx context.Context, c redis.Cmdable, key, owner string) error {
	taken, err := c.SetNX(ctx, key, owner, time.Minute).Result()
	if err == nil && !taken {
		err = errors.New("it is held")
	}
	return err
}

// TestSeveralClustersByRing divides keys with go-redis: which commands work across clusters, what a
// leader's death and a cluster's silence do, and how a cluster is added.
func TestSeveralClustersByRing(t *testing.T) {
	tier.Check(t)
	ctx := context.Background()
	s := startSeveral(t, "a", "b", "c")
	ring := newRing(s.addrs)
	defer ring.Close()
	on := s.keys(t, func(key string) error { return take(ctx, ring, key, "me") })

	release := redis.NewScript(
		`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
	for name, key := range on {
		if n, err := release.Run(ctx, ring, []string{key}, "me").Int(); err != nil || n != 1 {
			t.Errorf("release on %s: %d, %v", name, n, err)
		}
		token, err := ring.Do(ctx, "LOCK.ACQUIRE", key, "me", "PX", "60000").Slice()
		if err != nil || token[0].(int64) <= 0 || len(s.where(t, key)) != 1 {
			t.Errorf("LOCK.ACQUIRE on %s: %v, %v", name, token, err)
		}
	}

	// IDEMPOTENT goes by its id, unless the client of the key's cluster sends it
	if err := ring.Do(ctx, "IDEMPOTENT", on["b"], "SET", on["a"], "x").Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.where(t, on["a"]); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%s is on %v after IDEMPOTENT with an id of b", on["a"], got)
	}
	of := func(key string) *redis.Client {
		c, err := ring.GetShardClientForKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := of(on["b"]).Del(ctx, on["a"]).Err(); err != nil {
		t.Fatal(err)
	}
	for name, key := range on {
		c := of(key)
		lease, err := c.Do(ctx, "LEASE", "GRANT", "60000").Int64()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 { // ids that are on any cluster
			id := fmt.Sprint("request:", name, i)
			err := c.Do(ctx, "IDEMPOTENT", id, "SET", key, "me", "LEASE", lease).Err()
			if err != nil {
				t.Errorf("IDEMPOTENT on %s: %v", name, err)
			}
		}
		if got := s.where(t, key); !slices.Equal(got, []string{name}) {
			t.Errorf("%s is on %v, not on %s alone", key, got, name)
		}
	}

	// a hash tag keeps together what one command or transaction is about
	if _, err := ring.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range tagged(20) {
			p.Set(ctx, key, "x", 0)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	together := s.where(t, "{tag}:0")
	for _, key := range tagged(20) {
		if got := s.where(t, key); !slices.Equal(got, together) {
			t.Errorf("%s is on %v, {tag}:0 on %v", key, got, together)
		}
	}
	// a command with keys of several clusters is sent by its first key: the others are not found
	if n, err := ring.Del(ctx, on["a"], on["b"], on["c"]).Result(); err != nil || n != 1 {
		t.Errorf("DEL of keys on three clusters: %d, %v", n, err)
	}

	sub := ring.Subscribe(ctx, "news")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := ring.Publish(ctx, "news", "x").Result(); err != nil || n != 1 {
		t.Errorf("PUBLISH: %d, %v", n, err)
	}

	// a leader dies: its cluster goes on with another
	key := on["b"]
	old, _ := leader(t, s.nodes["b"])
	old.kill()
	wait.For(t, 20*time.Second, "b to serve with another leader", func() bool {
		return ring.Set(ctx, key, "other", time.Minute).Err() == nil
	})
	// a cluster is silent: its keys are on no other
	for _, p := range s.nodes["b"] {
		p.kill()
	}
	careless := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
		"a": s.addrs["a"][0], "b": s.addrs["b"][0], "c": s.addrs["c"][0]},
		MaxRetries: -1, DialerRetries: 1, HeartbeatFrequency: 100 * time.Millisecond})
	defer careless.Close()
	wait.For(t, 30*time.Second, "a ring without HeartbeatFn to give the lock away", func() bool {
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		if take(short, ring, key, "thief") == nil {
			t.Fatalf("%s was taken while its cluster was down", key)
		}
		return take(ctx, careless, key, "thief") == nil
	})
	dead := of(key)
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if !ring.Options().HeartbeatFn(soon, dead) {
		t.Error("the ring gives the keys of a silent cluster away, sooner or later")
	}
	for _, key := range []string{on["a"], on["c"]} {
		if err := ring.Set(ctx, key, "other", time.Minute).Err(); err != nil {
			t.Errorf("a cluster beside: %v", err)
		}
	}
	for _, p := range s.nodes["b"] {
		p.start()
	}
	wait.For(t, 30*time.Second, "b to serve again", func() bool {
		return ring.Get(ctx, key).Val() == "other"
	})
}

// TestAddingACluster takes locks by lists of two and of three clusters: with the step between, no
// lock has two owners, and without it locks have.
func TestAddingACluster(t *testing.T) {
	tier.Check(t)
	ctx := context.Background()
	s := startSeveral(t, "a", "b", "c")
	was := newRing(map[string][]string{"a": s.addrs["a"], "b": s.addrs["b"]})
	defer was.Close()
	will := newRing(s.addrs)
	defer will.Close()
	moved, stayed := 0, 0
	for i := range 60 {
		key := fmt.Sprintf("lock:%d", i)
		byOld := func() bool { return take(ctx, was, key, "old") == nil }
		byNew := func() bool { return take(ctx, will, key, "new") == nil }
		byBoth := func() bool {
			ok, err := takeOnBoth(ctx, was, will, key, "both", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		free := func() {
			for _, owner := range []string{"old", "new", "both"} {
				if err := releaseOnBoth(ctx, was, will, key, owner); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, pair := range []struct {
			first, second func() bool
			names         string
		}{
			{byOld, byBoth, "old, both"}, {byBoth, byOld, "both, old"},
			{byNew, byBoth, "new, both"}, {byBoth, byNew, "both, new"},
		} {
			if !pair.first() || pair.second() {
				t.Errorf("%s: %s: not the first alone has it", key, pair.names)
			}
			free()
			if found := s.where(t, key); len(found) > 0 {
				t.Fatalf("%s: %s: left on %v", key, pair.names, found)
			}
		}
		if byOld() && byNew() {
			moved++
		} else {
			stayed++
		}
		free()
	}
	// about a third of the keys move to the third cluster; no other does
	if moved < 8 || moved > 32 {
		t.Errorf("%d locks of %d moved", moved, moved+stayed)
	}
}

// TestSeveralClustersByProxy divides keys with nutcracker, configured as in docs/operations.md.
func TestSeveralClustersByProxy(t *testing.T) {
	tier.Check(t)
	nutcracker, err := exec.LookPath("nutcracker")
	if err != nil {
		t.Skip("SKIPPED: nutcracker not found")
	}
	blocks := severalBlocks(t, "yaml")
	if len(blocks) != 1 {
		t.Fatalf("docs/operations.md has %d blocks of YAML, not one", len(blocks))
	}
	s := startSeveral(t, "a", "b", "c")
	free, err := ports.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(blocks[0], "127.0.0.1:22121", loopback(free[0]), 1)
	for _, name := range s.names {
		shown := name + ".example:6379"
		if !strings.Contains(config, shown) {
			t.Fatalf("docs/operations.md has no %s", shown)
		}
		config = strings.Replace(config, shown, s.addrs[name][1], 1)
	}
	file := filepath.Join(t.TempDir(), "nutcracker.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log := wait.NewFile(t)
	cmd := exec.Command(nutcracker, "-c", file, "-a", "127.0.0.1", "-s", fmt.Sprint(free[1]))
	cmd.Stdout, cmd.Stderr = log.File, log.File
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	through := loopback(free[0])
	wait.For(t, 10*time.Second, "nutcracker to serve", func() bool {
		return callOnce(through, "SET", "first", "x") == "+OK\r\n"
	})
	expect := func(want string, words ...string) {
		t.Helper()
		if got := callOnce(through, words...); got != want {
			t.Errorf("%v: %q, not %q", words, got, want)
		}
	}
	on := s.keys(t, func(key string) error {
		expect("+OK\r\n", "SET", key, "me", "NX", "PX", "60000")
		return nil
	})
	for _, key := range on {
		expect("$-1\r\n", "SET", key, "other", "NX", "PX", "60000")
		expect(":1\r\n", "EVAL", `if redis.call('GET', KEYS[1]) == ARGV[1] then
return redis.call('DEL', KEYS[1]) end return 0`, "1", key, "me")
		expect("+OK\r\n", "SET", key, "me", "NX", "PX", "60000")
	}
	expect("*3\r\n$2\r\nme\r\n$2\r\nme\r\n$2\r\nme\r\n", "MGET", on["a"], on["b"], on["c"])
	for _, key := range tagged(20) {
		expect("+OK\r\n", "SET", key, "x")
		if got, first := s.where(t, key), s.where(t, "{tag}:0"); !slices.Equal(got, first) {
			t.Errorf("%s is on %v, {tag}:0 on %v", key, got, first)
		}
	}
	expect(":20\r\n", append([]string{"DEL"}, tagged(20)...)...)
	for _, command := range [][]string{{"HELLO", "2"}, {"CLIENT", "SETNAME", "x"}, {"MULTI"},
		{"PUBLISH", "news", "x"}, {"BLPOP", "list", "1"}, {"SCRIPT", "LOAD", "return 1"},
		{"LOCK.ACQUIRE", "k", "me", "PX", "1000"}} {
		expect("", command...) // it ends the connection
	}
	for _, p := range s.nodes["b"] {
		p.kill()
	}
	if got := callOnce(through, "SET", on["b"], "thief"); !strings.HasPrefix(got, "-") {
		t.Errorf("a key whose cluster was down: %q", got)
	}
	expect("+OK\r\n", "SET", on["a"], "x")
	expect("+OK\r\n", "SET", on["c"], "x")
	for _, p := range s.nodes["b"] {
		p.start()
	}
	wait.For(t, 30*time.Second, "b to serve again", func() bool {
		return callOnce(through, "GET", on["b"]) == "$2\r\nme\r\n"
	})
}

// tagged returns n keys of one tag.
func tagged(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("{tag}:%d", i))
	}
	return keys
}

// callOnce returns the reply to a command on a connection of its own, "" if there is none.
func callOnce(addr string, words ...string) string {
	c, err := commandtest.Dial("tcp", addr)
	if err != nil {
		return ""
	}
	defer c.Close()
	if err := c.Send(commandtest.Args(words...)); err != nil {
		return ""
	}
	raw, _ := c.Receive()
	return string(raw)
}
