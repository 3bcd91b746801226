// Command discover is a Go client that finds the leader by itself, while a test kills leaders; see
// ../../../README.md.
//
//	discover write KIND PREFIX    # "Finding the leader"
//	discover locks KIND NAME      # "Locks over TLS"
//
// KIND is one of kinds.
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
)

// errorPause is how long a caller waits after an error.
const errorPause = 20 * time.Millisecond

func main() {
	tasks := map[string]func(c client, kind, name string){"write": writeKeys, "locks": takeLocks}
	addrs := strings.Split(os.Getenv("COORDD_ADDRS"), ",")
	if len(os.Args) != 4 || tasks[os.Args[1]] == nil || kinds[os.Args[2]] == nil || addrs[0] == "" {
		fmt.Fprintf(os.Stderr, "usage: COORDD_ADDRS=host:port,… discover %s %s NAME\n",
			strings.Join(slices.Sorted(maps.Keys(tasks)), "|"),
			strings.Join(slices.Sorted(maps.Keys(kinds)), "|"))
		os.Exit(2)
	}
	c, err := kinds[os.Args[2]](addrs)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tasks[os.Args[1]](c, os.Args[2], os.Args[3])
	c.close()
	say("end")
}

var printing sync.Mutex

// say prints a line.
func say(words ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(words...)
}

// callers are goroutines that work until the program's input ends.
type callers struct {
	group sync.WaitGroup
	ended atomic.Bool
}

// start has one call a function again and again.
func (c *callers) start(f func(n int)) {
	c.group.Go(func() {
		for n := 0; !c.ended.Load(); n++ {
			f(n)
		}
	})
}

// wait waits for the end of the input, and then for the callers.
func (c *callers) wait() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	c.ended.Store(true)
	c.group.Wait()
}

const writers = 4

// writeKeys writes keys that begin with a prefix.
func writeKeys(c client, kind, prefix string) {
	ctx := context.Background()
	var all callers
	for i := range writers {
		all.start(func(n int) {
			key := fmt.Sprintf("%s:%d:%d", prefix, i, n)
			if err := c.set(ctx, key, fmt.Sprint(n)); err != nil {
				say("err", err)
				time.Sleep(errorPause)
				return
			}
			say("ack", key)
		})
	}
	all.wait()
	if !strings.HasSuffix(kind, "-cluster") {
		role, err := c.role(ctx)
		if err != nil {
			say("err", err)
		} else {
			say("role", role)
		}
	}
}
