package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// kept are seeds that found a bug, with the bug.
var kept = []uint64{
	8,    // a follower tried a closed connection to the leader in a loop, and nothing else ran
	5054, // a new leader asked for its barrier in a loop while it handed leadership over
	// a node that stopped with entries in flight left a goroutine
	18062751717991451492,
}

// stuckAfter is how long a seed may take: then a simulation loops, or waits for something real.
const stuckAfter = 2 * time.Minute

// progress is what TestWorker prints before each simulation.
var progress = regexp.MustCompile(`^seed \d+( with \d+ of \d+ events)?$`)

// TestSimulations builds the simulations with the changed runtime and runs them: the kept seeds, or
// as many as COORDD_SIMULATE says, in two processes. COORDD_TEST_SEED is the first seed of those.
func TestSimulations(t *testing.T) {
	tier.Check(t)
	if patched {
		t.Skip("it starts TestWorker")
	}
	binary := build(t)
	if n, err := strconv.ParseUint(os.Getenv("COORDD_SIMULATE"), 10, 64); err == nil {
		const workers = 2
		first := seeds.Of(t)
		var wg sync.WaitGroup
		for i := range uint64(workers) {
			wg.Go(func() {
				work(t, binary, "-sim.seed", fmt.Sprint(first+i*n/workers), "-sim.seeds",
					fmt.Sprint((i+1)*n/workers-i*n/workers))
			})
		}
		wg.Wait()
		return
	}
	for _, seed := range kept {
		work(t, binary, "-sim.seed", fmt.Sprint(seed))
	}
}

// build builds the test binary of this package with the changed runtime.
func build(t *testing.T) string {
	dir := t.TempDir()
	binary := filepath.Join(dir, "sim.test")
	for _, args := range [][]string{
		{"run", "./runtimepatch", dir},
		{"test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-tags",
			"coordd_sim,coordd_trace", "-o", binary, "."},
	} {
		if out, err := binaries.Go(args...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return binary
}

// work runs TestWorker with flags, and fails the test if it fails.
func work(t *testing.T, binary string, flags ...string) {
	cmd := exec.Command(binary, append([]string{"-test.run", "^TestWorker$", "-test.timeout", "0"},
		flags...)...)
	cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	var stacks bytes.Buffer
	cmd.Stderr = &stacks
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	// SIGQUIT has the process print its stacks.
	watch := time.AfterFunc(stuckAfter, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer watch.Stop()
	var text, seed string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch line := lines.Text(); {
		case progress.MatchString(line):
			watch.Reset(stuckAfter)
			seed = line
		case strings.HasPrefix(line, "simulated "):
			t.Log(line)
		default:
			text += line + "\n"
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s%s", seed, err, text, stacks.Bytes())
	}
}
