// Clients of every kind that looks for a leader, each in its own process, before and after the
// leader dies. None is restarted or notified.

package e2e

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// program is one of testdata/clients that works until its input ends, and prints lines.
type program struct {
	name  string
	needs []string
	args  []string // a name follows, for its keys

	cmd  *exec.Cmd
	in   io.Closer
	done chan error
}

// seeker is a program that writes.
type seeker struct {
	program
	role string // expected of the server it ends at, if the program prints that; empty: any

	mu    sync.Mutex
	acked []string
	at    []time.Time // of each
	errs  []string
	told  string // the role
	ended bool
}

var (
	needGo   = []string{"go", "rueidis"}
	needNode = []string{"node", "testdata/clients/node/node_modules/redis",
		"testdata/clients/node/node_modules/ioredis"}
	debianPy    = "/usr/bin/python3"
	seekerLimit = 45 * time.Second
)

// goSeeker builds the Go program of all kinds once for all tests.
var goSeeker = sync.OnceValues(func() (string, error) {
	return binaries.Build(".", "-C", "../../../testdata/clients/libraries/go/discover")
})

// goProgram returns the Go program, or none if its requirements are missing.
func goProgram(t *testing.T, task, kind string) []string {
	t.Helper()
	if slices.ContainsFunc(needGo, lacks) {
		return nil
	}
	path, err := goSeeker()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path, task, kind}
}

func nodeProgram(kind string) []string {
	return []string{"node", "testdata/clients/node/discover.js", kind}
}

func newSeeker(name, role string, needs []string, args ...string) *seeker {
	return &seeker{program: program{name: name, needs: needs, args: args}, role: role}
}

// clusterSeekers are clients of Redis Cluster.
func clusterSeekers(t *testing.T) []*seeker {
	return []*seeker{
		newSeeker("go-redis ClusterClient", "", needGo,
			goProgram(t, "write", "go-redis-cluster")...),
		newSeeker("rueidis", "", needGo, goProgram(t, "write", "rueidis-cluster")...),
		newSeeker("ioredis Cluster", "", needNode, nodeProgram("ioredis-cluster")...),
		newSeeker("node-redis createCluster", "", needNode, nodeProgram("redis-cluster")...),
		newSeeker("redis-cli -c", "", []string{"redis-cli"}, "sh",
			"testdata/clients/cli/discover.sh"),
	}
}

// sentinelSeekers are clients that ask Sentinels.
func sentinelSeekers(t *testing.T) []*seeker {
	return []*seeker{
		newSeeker("go-redis FailoverClient", "master", needGo,
			goProgram(t, "write", "go-redis-sentinel")...),
		newSeeker("rueidis Sentinel", "master", needGo,
			goProgram(t, "write", "rueidis-sentinel")...),
		newSeeker("ioredis sentinels", "master", needNode, nodeProgram("ioredis-sentinel")...),
		newSeeker("node-redis createSentinel", "master", needNode,
			nodeProgram("redis-sentinel")...),
		newSeeker("redis-py Sentinel", "master", []string{"redis-py"}, debianPy,
			"testdata/clients/python/discover.py", "sentinel"),
	}
}

// lacks is missing for requirements that are neither a command nor a file of the repository.
func lacks(need string) bool {
	switch need {
	case "redis-py":
		return exec.Command(debianPy, "-c", "import redis.sentinel").Run() != nil
	case "rueidis":
		cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/redis/rueidis")
		cmd.Dir = "../../../testdata/clients/libraries/go"
		cmd.Env = append(os.Environ(), "GOPROXY=off") // .ci/deps downloads it
		out, err := cmd.Output()
		return err != nil || strings.TrimSpace(string(out)) == ""
	}
	return missing(need)
}

// begin starts the program, and has note called for each line that it prints.
func (p *program) begin(t *testing.T, env []string, note func(line string)) {
	t.Helper()
	name := strings.ReplaceAll(p.name, " ", "-")
	cmd := exec.Command(p.args[0], append(slices.Clone(p.args[1:]), name)...)
	cmd.Dir = "../../.."
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log := &wait.Buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.cmd, p.in, p.done = cmd, in, make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			note(lines.Text())
		}
		p.done <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		if t.Failed() && log.String() != "" {
			t.Logf("%s: %s", p.name, log)
		}
	})
}

// end ends the program's input and waits for it.
func (p *program) end(t *testing.T) {
	t.Helper()
	_ = p.in.Close()
	select {
	case err := <-p.done:
		if err != nil {
			t.Errorf("it exited with %v", err)
		}
	case <-time.After(seekerLimit):
		t.Fatal("it did not exit")
	}
}

func (s *seeker) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "ack":
		s.acked, s.at = append(s.acked, rest), append(s.at, time.Now())
	case "role":
		s.told = rest
	case "end":
		s.ended = true
	default:
		s.errs = append(s.errs, line)
	}
}

// when returns the time at which the n-th write was acknowledged.
func (s *seeker) when(n int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[n-1]
}

func (s *seeker) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// finish ends the program and checks that the acknowledged writes exist.
func (s *seeker) finish(t *testing.T, p *process) {
	t.Helper()
	s.end(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		t.Error("it exited early")
	}
	c := p.client()
	for chunk := range slices.Chunk(s.acked, 1000) {
		n, err := c.Exists(context.Background(), chunk...).Result()
		if err != nil || int(n) != len(chunk) {
			t.Errorf("%d of %d acknowledged writes are missing, %v", len(chunk)-int(n), len(chunk),
				err)
		}
	}
	if s.told != s.role {
		t.Errorf("it ends at a server with the role %q, want %q", s.told, s.role)
	}
	t.Logf("%d acknowledged writes are there", len(s.acked))
}

// logErrors logs the errors that the client received, abbreviated.
func (s *seeker) logErrors(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%d errors: %.200q", len(s.errs), s.errs[:min(3, len(s.errs))])
}

// acksWanted is how many writes of each client must be acknowledged before the leader is killed,
// and after.
const acksWanted = 30

// seekThroughFailover runs all clients at once, kills their leader, and judges each client.
func seekThroughFailover(t *testing.T, all []*seeker, flags ...string) {
	seekThrough(t, startProcesses(t, 3, flags...), all, (*process).kill)
}

// seekThrough is seekThroughFailover with another way to end the leader.
func seekThrough(t *testing.T, ps []*process, all []*seeker, finish func(old *process)) {
	var addrs []string
	for _, p := range ps {
		addrs = append(addrs, p.addr)
	}
	env := append(os.Environ(), "COORDD_ADDRS="+strings.Join(addrs, ","))
	var running []*seeker
	for _, s := range all {
		if i := slices.IndexFunc(s.needs, lacks); i >= 0 {
			t.Run(s.name, func(t *testing.T) { t.Skipf("SKIPPED: %s not found", s.needs[i]) })
			continue
		}
		s.begin(t, env, s.note)
		running = append(running, s)
	}
	for _, s := range running {
		wait.For(t, seekerLimit, s.name+" to write", func() bool { return s.count() >= acksWanted })
	}
	old, rest := leader(t, ps)
	finish(old)
	ended := time.Now()
	before := make([]int, len(running))
	for i, s := range running {
		// a few replies that the dead leader had sent may still be counted later
		before[i] = s.count()
	}
	now, _ := leader(t, rest) // a follower might answer MOVED
	for i, s := range running {
		t.Run(s.name, func(t *testing.T) {
			defer s.logErrors(t)
			wait.For(t, seekerLimit, "writes after the leader's end", func() bool {
				return s.count() >= before[i]+acksWanted
			})
			t.Logf("%d writes within %v of the leader's end", acksWanted,
				s.when(before[i]+acksWanted).Sub(ended).Round(time.Millisecond))
			s.finish(t, now)
		})
	}
}

func TestClientsFindTheLeader(t *testing.T) {
	tier.Check(t)
	seekThroughFailover(t, append(clusterSeekers(t), sentinelSeekers(t)...))
}

func TestClusterClientsFollowMoved(t *testing.T) {
	tier.Check(t)
	seekThroughFailover(t, clusterSeekers(t), "--present-as", "cluster")
}

// TestClientFollowsRedirect gives a follower to a client that sent CLIENT CAPA redirect. It follows
// each transfer of leadership.
func TestClientFollowsRedirect(t *testing.T) {
	if lacks("rueidis") {
		t.Skip("SKIPPED: rueidis not found")
	}
	ps := startProcesses(t, 3)
	old, rest := leader(t, ps)
	s := newSeeker("rueidis redirect", "master", needGo,
		goProgram(t, "write", "rueidis-redirect")...)
	s.begin(t, append(os.Environ(), "COORDD_ADDRS="+rest[0].addr), s.note)
	wait.For(t, seekerLimit, "it to write", func() bool { return s.count() >= acksWanted })
	// a busy machine may have changed the leader meanwhile
	wait.For(t, seekerLimit, "FAILOVER", func() bool {
		old, rest = leader(t, ps)
		return old.client().Do(context.Background(), "FAILOVER").Err() == nil
	})
	wait.For(t, seekerLimit, "another leader", func() bool { return old.role() == "slave" })
	now, _ := leader(t, ps)
	before := s.count()
	wait.For(t, seekerLimit, "writes afterwards", func() bool {
		return s.count() >= before+acksWanted
	})
	s.finish(t, now)
	s.logErrors(t)
}
