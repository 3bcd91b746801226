// Clusters of real processes, and waiting for conditions.

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

// chaos reports whether the slow tests with asserted times run: make chaos.
func chaos() bool { return os.Getenv("COORDD_CHAOS") != "" }

func TestMain(m *testing.M) {
	if task := os.Getenv(strangersEnv); task != "" {
		if err := beStrangers(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	binaries.Remove()
	os.Exit(code)
}

// process is one coordd process, which can be killed and restarted with the same flags.
type process struct {
	t     *testing.T
	args  []string
	env   []string // besides the test's own
	login string   // the default user's password; "": none
	in    string   // the network namespace that it runs in; "": the test's own
	id    string
	addr  string // for clients
	http  string
	next  bool // the simulated next release
	first bool // release 0.1
	tiny  bool // with small log files
	most  int  // limit of open files; 0: the test's own
	cmd   *exec.Cmd
	log   *wait.File // its output
	done  chan struct{}
}

// flag returns the process's value of a flag.
func (p *process) flag(name string) string { return p.args[slices.Index(p.args, name)+1] }

// setFlag changes it for the next start.
func (p *process) setFlag(name, value string) { p.args[slices.Index(p.args, name)+1] = value }

// dataDir returns the process's data directory.
func (p *process) dataDir() string { return p.flag("--data-dir") }

// patient keeps followers from doubting the leader while a busy machine delays a process. The death
// of a leader they notice by its connections. What make chaos measures has the default.
var patient = []string{"--heartbeat-timeout", "2s"}

// startProcesses starts a cluster of n nodes as processes on the loopback (n = 1: one node alone)
// at the feature level of this release, and ends them with the test.
func startProcesses(t *testing.T, n int, extra ...string) []*process {
	t.Helper()
	ps := startProcessesWith(t, n, func(*process) {}, extra...)
	awaitLevel(ps, thisLevel)
	return ps
}

// startProcessesWith is startProcesses with a change to each process before it starts.
func startProcessesWith(t *testing.T, n int, change func(*process), extra ...string) []*process {
	t.Helper()
	ports := freePorts(t, 3*n)
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf("n%d=127.0.0.1:%d", i+1, ports[3*i+1]))
	}
	dir := t.TempDir()
	var ps []*process
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		p := &process{t: t, id: id, addr: loopback(ports[3*i]), http: loopback(ports[3*i+2])}
		p.args = []string{"--id", id, "--listen", p.addr, "--http-listen", p.http, "--data-dir",
			filepath.Join(dir, id)}
		if n > 1 {
			p.args = append(p.args, "--cluster", strings.Join(members, ","))
			if !chaos() && !slices.Contains(extra, patient[0]) {
				p.args = append(p.args, patient...)
			}
		}
		p.args = append(p.args, extra...)
		change(p)
		ps = append(ps, p)
	}
	t.Cleanup(func() {
		for _, p := range ps {
			p.kill()
			if log := p.log.String(); strings.Contains(log, `"invariant":`) &&
				!strings.Contains(log, `"invariant":"states-equal"`) {
				t.Errorf("%s says that an invariant does not hold", p.id)
			}
			if t.Failed() {
				t.Logf("end of the log of %s:\n%s", p.id, p.log.End())
			}
		}
	})
	wait.Explain(t, func() {
		for _, p := range ps {
			p.showGoroutines()
		}
	})
	for _, p := range ps {
		p.start()
	}
	for _, p := range ps {
		p.waitReady()
	}
	return ps
}

// startSingle starts a single node with its data in dir.
func startSingle(t *testing.T, dir string) (*process, *redis.Client) {
	t.Helper()
	p := startProcessesWith(t, 1, func(p *process) {
		p.setFlag("--data-dir", dir)
	}, "--snapshot-entries", "64")[0]
	return p, p.client()
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// freePorts finds ports for processes of the test.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	found, err := ports.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (p *process) start() {
	p.t.Helper()
	binary := binaries.Coordd
	switch {
	case p.next:
		binary = binaries.Next
	case p.first:
		binary = binaries.First
	case p.tiny:
		binary = binaries.Small
	}
	path, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(path, p.args...)
	if p.in != "" {
		// becomes coordd, with the same process id
		p.cmd = exec.Command("ip", append([]string{"netns", "exec", p.in, path}, p.args...)...)
	}
	if p.most > 0 {
		p.cmd = exec.Command("sh",
			append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, p.most), path},
				p.args...)...)
	}
	p.cmd.Env = append(os.Environ(), p.env...)
	if p.log == nil {
		p.log = wait.NewFile(p.t)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log.File, p.log.File
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	p.done = done
	cmd := p.cmd
	go func() { _ = cmd.Wait(); close(done) }()
}

// kill ends the process as kill -9 does; it may be dead already.
func (p *process) kill() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// showGoroutines has the process write its goroutines into its log, which ends it.
func (p *process) showGoroutines() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
	}
}

// signal sends a signal. After SIGSTOP it waits until all threads have stopped: until then the
// process may answer.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	if s == syscall.SIGSTOP {
		wait.For(p.t, 10*time.Second, p.id+" to stand still", p.stopped)
	}
}

// stopped reports whether every thread of the process has stopped.
func (p *process) stopped() bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return false
		}
		if _, rest, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return len(files) > 0
}

// stop stops a process as an operator does.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	wait.Receive(p.t, 30*time.Second, "the end of "+p.id, p.done)
}

// waitRefusal waits until a process that was started on unreadable data has exited with code 1 and
// a last line that contains want.
func (p *process) waitRefusal(want string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.kill()
		p.t.Fatalf("%s still runs, want: %s", p.id, want)
	}
	lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	if last := lines[len(lines)-1]; p.cmd.ProcessState.ExitCode() != 1 ||
		!strings.Contains(last, want) {
		p.t.Errorf("%s exited with code %d and the line %q, want 1 and %q", p.id,
			p.cmd.ProcessState.ExitCode(), last, want)
	}
}

// waitReady waits until the node reports that it serves.
func (p *process) waitReady() {
	p.t.Helper()
	wait.For(p.t, 20*time.Second, p.id+" ready", func() bool {
		return httpStatus(p.http, "/readyz") == 200
	})
}

// client returns a go-redis client of the node with its default handshake, but no retries.
func (p *process) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, ReadTimeout: 15 * time.Second,
		DialTimeout: 5 * time.Second, Password: p.login})
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// role returns the first word of ROLE, "" if the node does not reply.
func (p *process) role() string {
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, ReadTimeout: 2 * time.Second})
	defer c.Close()
	v, err := c.Do(context.Background(), "ROLE").Slice()
	if err != nil || len(v) == 0 {
		return ""
	}
	s, _ := v[0].(string)
	return s
}

// leader waits until one of the processes calls itself master, and returns it and the others.
func leader(t *testing.T, ps []*process) (*process, []*process) {
	t.Helper()
	var found int
	wait.For(t, 10*time.Second, "a leader", func() bool {
		for i, p := range ps {
			if p.role() == "master" {
				found = i
				return true
			}
		}
		return false
	})
	others := append(append([]*process(nil), ps[:found]...), ps[found+1:]...)
	return ps[found], others
}

// sameState fails unless the nodes reach equal bytes. Nobody writes meanwhile.
func sameState(t *testing.T, ps []*process) {
	t.Helper()
	wait.For(t, 30*time.Second, "equal states", func() bool {
		var first string
		for i, p := range ps {
			v, err := p.raft("BACKUP")
			state, ok := v.(string)
			if err != nil || !ok || i > 0 && state != first {
				return false
			}
			first = state
		}
		return true
	})
}

// errorWord returns the code word of an error reply, "" if there is none.
func errorWord(err error) string {
	var re redis.Error
	if !errors.As(err, &re) {
		return ""
	}
	word, _, _ := strings.Cut(re.Error(), " ")
	return word
}
