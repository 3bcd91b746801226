// Command discover writes through a go-redis client that finds the leader by itself, while a test kills leaders. What it prints,
// and how it is ended, is in ../../README.md under "Finding the leader".
//
//	go run ./testdata/clients/go/discover cluster|sentinel PREFIX
//
// COORDD_ADDRS names the nodes.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	writers    = 4
	errorPause = 20 * time.Millisecond
)

func main() {
	addrs := strings.Split(os.Getenv("COORDD_ADDRS"), ",")
	if len(os.Args) != 3 || len(addrs[0]) == 0 {
		fmt.Fprintln(os.Stderr, "usage: COORDD_ADDRS=host:port,… discover cluster|sentinel PREFIX")
		os.Exit(2)
	}
	var c redis.UniversalClient
	switch os.Args[1] {
	case "cluster":
		// By itself it looks for the master anew once a minute, unless it is told MOVED, and tries to reach a dead
		// one until then: with Redis Cluster as here.
		c = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ClusterStateReloadInterval: time.Second})
	case "sentinel":
		c = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: addrs})
	default:
		fmt.Fprintf(os.Stderr, "no client is named %q\n", os.Args[1])
		os.Exit(2)
	}
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
				if err := c.Set(ctx, key, n, 0).Err(); err != nil {
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
	if os.Args[1] == "sentinel" {
		role, err := c.Do(ctx, "ROLE").Slice()
		if err != nil {
			say("err", err)
		} else {
			say("role", role[0])
		}
	}
	say("end")
}
