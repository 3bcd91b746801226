// Command go runs the scenario programs with go-redis v9 in its default
// handshake: what users build on a Redis, asserted by its outcome while several
// connections, spread over the nodes, contend. This file holds the list of the
// scenarios and the loop that runs and reports them.
//
// The environment names the servers: COORDD_ADDRS the client addresses of the
// nodes of one cluster, COORDD_SINGLES those of three independent single nodes
// (without it the scenario over them is skipped, and says so). Arguments, if
// any, are the names of the scenarios to run.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// scenarioLimit bounds one scenario; a healthy one takes a fraction of it.
const scenarioLimit = 15 * time.Second

// scenarios in the order in which they run.
var scenarios = []struct {
	name string
	run  func(context.Context, *env) error
}{
	{"lock-across-nodes", lockAcrossNodes},
	{"window-under-lock", windowUnderLock},
	{"window-one-shot", windowOneShot},
	{"window-multi", windowMulti},
	{"reentrant-lock", reentrantLock},
	{"token-bucket", tokenBucket},
	{"watchdog", watchdog},
	{"redlock-one-address", redlockOneAddress},
	{"redlock-singles", redlockSingles},
	{"redlock-cluster-refused", redlockClusterRefused},
	{"scheduled-job", scheduledJob},
	{"stock", stock},
}

func main() {
	e, err := newEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	known := func(name string) bool {
		for _, s := range scenarios {
			if s.name == name {
				return true
			}
		}
		return false
	}
	for _, name := range os.Args[1:] {
		if !known(name) {
			fmt.Fprintf(os.Stderr, "no scenario is named %q\n", name)
			os.Exit(2)
		}
	}
	failed := false
	for _, s := range scenarios {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], s.name) {
			continue
		}
		if s.name == "redlock-singles" && len(e.singles) == 0 {
			fmt.Printf("SKIPPED %s: COORDD_SINGLES is not set\n", s.name)
			continue
		}
		if err := runOne(e, s.name, s.run); err != nil {
			fmt.Printf("FAIL %s: %s\n", s.name, oneLine(err))
			failed = true
			continue
		}
		fmt.Printf("ok %s\n", s.name)
	}
	e.close()
	if failed {
		os.Exit(1)
	}
}

// runOne runs one scenario with its own key prefix and time limit, and removes
// its keys afterwards.
func runOne(e *env, name string, run func(context.Context, *env) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioLimit)
	defer cancel()
	e.begin(name)
	err := run(ctx, e)
	if cleanErr := e.removeKeys(); err == nil {
		err = cleanErr
	}
	return err
}
