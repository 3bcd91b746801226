// Command discover writes through a rueidis client that finds the leader by itself, while a test kills leaders; see ../../../README.md under
// "Finding the leader".
//
//	go run ./discover cluster|sentinel|redirect PREFIX
//
// COORDD_ADDRS names the nodes; redirect is for a client that is given the first of them alone, and follows REDIRECT.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	writers    = 4
	errorPause = 20 * time.Millisecond
)

func main() {
	addrs := strings.Split(os.Getenv("COORDD_ADDRS"), ",")
	if len(os.Args) != 3 || len(addrs[0]) == 0 {
		fmt.Fprintln(os.Stderr, "usage: COORDD_ADDRS=host:port,… discover cluster|sentinel|redirect PREFIX")
		os.Exit(2)
	}
	option := rueidis.ClientOption{InitAddress: addrs}
	switch os.Args[1] {
	case "sentinel":
		option.Sentinel.MasterSet = "mymaster"
	case "redirect":
		option.InitAddress, option.Standalone.EnableRedirect = addrs[:1], true
	}
	c, err := rueidis.NewClient(option)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer c.Close()
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
				if err := c.Do(ctx, c.B().Set().Key(key).Value(strconv.Itoa(n)).Build()).Error(); err != nil {
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
	if os.Args[1] != "cluster" {
		role, err := c.Do(ctx, c.B().Role().Build()).ToArray()
		if err != nil {
			say("err", err)
		} else {
			word, _ := role[0].ToString()
			say("role", word)
		}
	}
	say("end")
}
