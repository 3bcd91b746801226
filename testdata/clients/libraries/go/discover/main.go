// Command discover writes through a Go client that finds the leader by itself, while a test kills
// leaders; see ../../../README.md under "Finding the leader".
//
//	go run ./discover KIND PREFIX
//
// COORDD_ADDRS names the nodes. KIND is one of kinds.
package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const (
	writers    = 4
	errorPause = 20 * time.Millisecond
)

// client is what the program does with a library.
type client struct {
	set   func(ctx context.Context, key, value string) error
	role  func(ctx context.Context) (string, error)
	close func()
}

// kinds are the clients. Those of Redis Cluster are not asked for the role: they may ask any node.
var kinds = map[string]func(addrs []string) (client, error){
	// By itself it looks for the master again once a minute, unless it is told MOVED, and tries to
	// reach a dead one until then: with Redis Cluster as here.
	"go-redis-cluster": func(addrs []string) (client, error) {
		return goRedis(redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs,
			ClusterStateReloadInterval: time.Second})), nil
	},
	"go-redis-sentinel": func(addrs []string) (client, error) {
		return goRedis(redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster",
			SentinelAddrs: addrs})), nil
	},
	"rueidis-cluster": func(addrs []string) (client, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: addrs})
	},
	"rueidis-sentinel": func(addrs []string) (client, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: addrs,
			Sentinel: rueidis.SentinelOption{MasterSet: "mymaster"}})
	},
	// It is given one node alone, and follows REDIRECT.
	"rueidis-redirect": func(addrs []string) (client, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: addrs[:1],
			Standalone: rueidis.StandaloneOption{EnableRedirect: true}})
	},
}

func goRedis(c redis.UniversalClient) client {
	return client{
		set: func(ctx context.Context, key, value string) error {
			return c.Set(ctx, key, value, 0).Err()
		},
		role: func(ctx context.Context) (string, error) {
			words, err := c.Do(ctx, "ROLE").Slice()
			if err != nil {
				return "", err
			}
			return fmt.Sprint(words[0]), nil
		},
		close: func() { _ = c.Close() },
	}
}

func ofRueidis(o rueidis.ClientOption) (client, error) {
	c, err := rueidis.NewClient(o)
	return client{
		set: func(ctx context.Context, key, value string) error {
			return c.Do(ctx, c.B().Set().Key(key).Value(value).Build()).Error()
		},
		role: func(ctx context.Context) (string, error) {
			words, err := c.Do(ctx, c.B().Role().Build()).ToArray()
			if err != nil {
				return "", err
			}
			return words[0].ToString()
		},
		close: func() { c.Close() },
	}, err
}

func main() {
	addrs := strings.Split(os.Getenv("COORDD_ADDRS"), ",")
	if len(os.Args) != 3 || kinds[os.Args[1]] == nil || addrs[0] == "" {
		fmt.Fprintf(os.Stderr, "usage: COORDD_ADDRS=host:port,… discover %s PREFIX\n",
			strings.Join(slices.Sorted(maps.Keys(kinds)), "|"))
		os.Exit(2)
	}
	c, err := kinds[os.Args[1]](addrs)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer c.close()
	ctx := context.Background()
	var stop atomic.Bool
	var group sync.WaitGroup
	var mu sync.Mutex
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(words...)
	}
	for i := range writers {
		group.Go(func() {
			for n := 0; !stop.Load(); n++ {
				key := fmt.Sprintf("%s:%d:%d", os.Args[2], i, n)
				if err := c.set(ctx, key, fmt.Sprint(n)); err != nil {
					say("err", err)
					time.Sleep(errorPause)
					continue
				}
				say("ack", key)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	group.Wait()
	if !strings.HasSuffix(os.Args[1], "-cluster") {
		role, err := c.role(ctx)
		if err != nil {
			say("err", err)
		} else {
			say("role", role)
		}
	}
	say("end")
}
