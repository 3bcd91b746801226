package e2e

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

const errOOM = "OOM command not allowed when used memory > 'maxmemory'."

// limitOf returns maxmemory as a node has applied it.
func limitOf(c *redis.Client) string {
	return c.ConfigGet(context.Background(), "maxmemory").Val()["maxmemory"]
}

// datasetOf returns what the data of a node counts.
func datasetOf(c *redis.Client) int { return memoryOf(c, "used_memory_dataset") }

// memoryOf returns a number of INFO memory.
func memoryOf(c *redis.Client, field string) int {
	_, rest, _ := strings.Cut(c.Info(context.Background(), "memory").Val(), "\n"+field+":")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, _ := strconv.Atoi(text)
	return n
}

// What stays in memory when large values have come and gone is the newest log entries, which INFO
// counts, and a bounded rest.
func TestMemoryByKind(t *testing.T) {
	ctx := context.Background()
	c := startProcesses(t, 1)[0].client()
	const size, most = 4_000_000, 16 << 20
	for i := range 20 {
		key := "large:" + strconv.Itoa(i)
		if err := c.Set(ctx, key, strings.Repeat("x", size), 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.Del(ctx, key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Do(ctx, "MEMORY", "PURGE").Err(); err != nil {
		t.Fatal(err)
	}
	entries := memoryOf(c, "mem_replication_backlog")
	if entries < size || entries > most {
		t.Errorf("%d bytes of log entries are in memory", entries)
	}
	live, used := memoryOf(c, "used_memory_live"), memoryOf(c, "used_memory")
	if rest := live - entries; live > used || live == 0 || rest > 32<<20 {
		t.Errorf("%d bytes live of %d, %d of them are neither data nor log entries", live, used,
			rest)
	}
}

// Past maxmemory all nodes refuse alike, held locks are renewed and released through any of them,
// and neither a restart nor a snapshot changes the limit.
func TestMaxMemory(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3, "--maxmemory", "1gb")
	var nodes []*redis.Client
	for _, p := range ps {
		c := p.client()
		nodes = append(nodes, c)
		wait.For(t, 20*time.Second, p.id+" to have the limit of --maxmemory", func() bool {
			return limitOf(c) == "1073741824"
		})
	}
	for _, lock := range []string{"lock:1", "lock:2", "lock:3"} {
		if err := nodes[0].SetNX(ctx, lock, "owner", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := nodes[0].HSet(ctx, "h:"+lock, "owner:1", 2).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[1].ConfigSet(ctx, "maxmemory", "100kb").Err(); err != nil {
		t.Fatal(err)
	}
	var full error
	written := 0
	for ; full == nil && written < 1000; written++ {
		full = nodes[written%3].Set(ctx, "fill:"+strconv.Itoa(written), strings.Repeat("x", 1000),
			0).Err()
	}
	if full == nil || full.Error() != errOOM || written < 20 {
		t.Fatalf("after %d KiB: %v", written, full)
	}

	renew := redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2]) end return false`)
	refuses := func(when string) {
		t.Helper()
		for i, c := range nodes {
			wait.For(t, 20*time.Second, ps[i].id+" to know the limit", func() bool {
				return limitOf(c) == "102400"
			})
			for what, err := range map[string]error{
				"SET":   c.Set(ctx, "new", "v", 0).Err(),
				"HSET":  c.HSet(ctx, "h:lock:1", "owner:2", 1).Err(),
				"RPUSH": c.RPush(ctx, "queue", "v").Err(),
			} {
				if err == nil || err.Error() != errOOM {
					t.Errorf("%s, %s: %s gives %v", when, ps[i].id, what, err)
				}
			}
			if _, err := c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
				tx.Get(ctx, "lock:1")
				tx.Set(ctx, "new", "v", 0)
				return nil
			}); err == nil || err.Error() != "EXECABORT Transaction discarded because of: "+errOOM {
				t.Errorf("%s, %s: EXEC gives %v", when, ps[i].id, err)
			}
			if err := c.SetXX(ctx, "lock:2", "owner", time.Minute).Err(); err != nil {
				t.Errorf("%s, %s: a lock is not renewed: %v", when, ps[i].id, err)
			}
			if err := renew.Run(ctx, c, []string{"lock:3"}, "owner", 60000).Err(); err != nil {
				t.Errorf("%s, %s: a script does not renew: %v", when, ps[i].id, err)
			}
			if err := c.HIncrBy(ctx, "h:lock:3", "owner:1", 1).Err(); err != nil {
				t.Errorf("%s, %s: a lock is not counted: %v", when, ps[i].id, err)
			}
		}
	}
	refuses("at first")
	sameState(t, ps)
	if a, b := datasetOf(nodes[0]), datasetOf(nodes[2]); a != b || a < 102400 {
		t.Errorf("the data counts %d and %d bytes", a, b)
	}

	ps[0].mustRaft("SNAPSHOT") // the others come back by their logs
	for i, p := range ps {
		p.stop()
		p.start()
		p.waitReady()
		nodes[i] = p.client()
		wait.For(t, 20*time.Second, p.id+" to say that its flag does not count", func() bool {
			return strings.Contains(p.log.String(), "--maxmemory changes nothing")
		})
	}
	refuses("after restarts")
	if n, err := nodes[2].Del(ctx, "lock:1", "h:lock:1").Result(); n != 2 || err != nil {
		t.Errorf("locks are not released: %d %v", n, err)
	}
	for i := range written {
		if err := nodes[0].Del(ctx, "fill:"+strconv.Itoa(i)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[1].Set(ctx, "new", "v", 0).Err(); err != nil {
		t.Errorf("there is room again, but: %v", err)
	}
	sameState(t, ps)
}
