// Processes of coordd on disks that crash and on ordinary directories.

package crashpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/crashdisk"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

// within is how long a start, an end or a return to service may take. On a busy machine an election
// takes several tries.
const within = 60 * time.Second

// lastingWait is how long that may take on a disk that goes on to fail. It need not succeed.
const lastingWait = 3 * time.Second

// Binaries with log files of 16 KiB: of this release, and of the simulated next one.
var thisRelease, nextRelease = binaries.Small, binaries.SmallNext

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // nodes that do not answer are the rule
	code := m.Run()
	binaries.Remove()
	os.Exit(code)
}

// silent is a log of go-redis.
type silent struct{}

// Printf implements go-redis's logger.
func (silent) Printf(context.Context, string, ...any) {}

// needMounts skips a test where disks cannot be mounted.
func needMounts(t *testing.T) {
	t.Helper()
	if err := crashdisk.Available(); err != nil {
		t.Skip("SKIPPED: no disk that crashes: ", err)
	}
}

// volume is a disk at a fixed place.
type volume struct {
	disk  *crashdisk.Disk
	mount *crashdisk.Mount
	dir   string
}

// insert mounts a disk in place of the one that is there.
func (v *volume) insert(d *crashdisk.Disk) error {
	if err := v.remove(); err != nil {
		return err
	}
	m, err := d.MountAt(v.dir)
	v.disk, v.mount = d, m
	return err
}

// remove unmounts the disk, which v.disk still names.
func (v *volume) remove() (err error) {
	if v.mount != nil {
		err, v.mount = v.mount.Unmount(), nil
	}
	return err
}

// node is a process of coordd, which can be killed and started again.
type node struct {
	t        *testing.T
	id       string
	addr     string // for clients
	peer     string
	http     string
	args     []string
	binary   func() (string, error)
	starting sync.Mutex
	cmd      *exec.Cmd
	log, old *wait.Buffer // the output of this start and the one before
	done     chan struct{}
	client   *redis.Client
	limit    func() time.Duration // how long it is waited for
}

// newNode returns a node that is not started, and ends with the test.
func newNode(t *testing.T, id string, flags ...string) *node {
	t.Helper()
	p, err := ports.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	n := &node{t: t, id: id, addr: at(p[0]), peer: at(p[1]), http: at(p[2]), binary: thisRelease,
		log: &wait.Buffer{}, old: &wait.Buffer{}, limit: func() time.Duration { return within }}
	n.args = append([]string{"--id", id, "--listen", n.addr, "--http-listen", n.http}, flags...)
	n.client = redis.NewClient(&redis.Options{Addr: n.addr, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: 2 * time.Second, DialerRetries: 1, ReadTimeout: 10 * time.Second})
	t.Cleanup(func() {
		n.kill()
		_ = n.client.Close()
	})
	return n
}

// flag returns the value of a flag.
func (n *node) flag(name string) string { return n.args[slices.Index(n.args, name)+1] }

// start starts the process.
func (n *node) start() error {
	path, err := n.binary()
	if err != nil {
		return err
	}
	n.old, n.log = n.log, &wait.Buffer{}
	cmd, done := exec.Command(path, n.args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = n.log, n.log
	n.starting.Lock()
	defer n.starting.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.done = cmd, done
	go func() { _ = cmd.Wait(); close(done) }()
	return nil
}

// strike kills the process and does not wait for its end: it may stand still on its disk.
func (n *node) strike() {
	n.starting.Lock() // the power may fail while the process starts
	defer n.starting.Unlock()
	if n.cmd != nil {
		_ = n.cmd.Process.Kill() // it may have ended
	}
}

// kill kills the process; it may have ended.
func (n *node) kill() {
	n.strike()
	if n.cmd != nil {
		<-n.done
	}
}

func (n *node) ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// stop stops the process as an operator does.
func (n *node) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.done:
		return nil
	case <-time.After(within):
		return fmt.Errorf("%s still runs %v after SIGTERM", n.id, within)
	}
}

// errEnded is the reason why a process does not serve.
type errEnded struct{ says string }

func (e errEnded) Error() string { return "the process ended: " + e.says }

// await waits until the node is ready. If it ended instead, the error is errEnded if it said why.
func (n *node) await() error {
	look := &http.Client{Timeout: 2 * time.Second}
	defer look.CloseIdleConnections()
	return n.until(n.id+" is ready", func() (bool, error) {
		if n.ended() {
			return false, n.ending()
		}
		r, err := look.Get("http://" + n.http + "/readyz")
		if err != nil {
			return false, nil
		}
		return r.StatusCode == http.StatusOK, r.Body.Close()
	})
}

// ending returns errEnded if the process, which has ended, said why in one sentence.
func (n *node) ending() error {
	return sentence(n.cmd.ProcessState, n.log.String())
}

// sentence returns errEnded with the last line of a process that has ended with code 1, a message
// or an error in its log, or why that is no sentence.
func sentence(state *os.ProcessState, output string) error {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	last := lines[len(lines)-1]
	says, ok := strings.CutPrefix(last, "coordd: ")
	var fatal struct{ Level, Error string }
	if json.Unmarshal([]byte(last), &fatal) == nil && fatal.Level == "ERROR" {
		says, ok = fatal.Error, true
	}
	if state.ExitCode() != 1 || !ok || strings.Contains(output, "goroutine ") {
		return fmt.Errorf("it ended with code %d and does not say why: %s", state.ExitCode(), last)
	}
	return errEnded{says}
}

// until polls a condition of the node until it holds or fails.
func (n *node) until(what string, condition func() (bool, error)) error {
	return poll(n.limit, what, condition)
}

// until polls a condition until it holds or fails.
func until(limit time.Duration, what string, condition func() (bool, error)) error {
	return poll(func() time.Duration { return limit }, what, condition)
}

func poll(limit func() time.Duration, what string, condition func() (bool, error)) error {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		switch ok, err := condition(); {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case ok:
			return nil
		case time.Since(began) > limit():
			return fmt.Errorf("%s: not within %v", what, limit())
		}
	}
}

// info returns a number of INFO coordd.
func (n *node) info(field string) (uint64, error) {
	text, err := n.client.Info(context.Background(), "coordd").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return strconv.ParseUint(v, 10, 64)
		}
	}
	return 0, errors.New("INFO has no " + field)
}

// do runs a command.
func (n *node) do(args ...any) (any, error) {
	return n.client.Do(context.Background(), args...).Result()
}

// coordd runs a subcommand. Its error is errEnded if it failed with one sentence. The process is
// killed once struck is closed; nil: never.
func coordd(struck <-chan struct{}, release func(), args ...string) (string, error) {
	path, err := thisRelease()
	if err != nil {
		return "", err
	}
	out := &wait.Buffer{}
	c := exec.Command(path, args...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case err = <-ended:
	case <-struck:
		_ = c.Process.Kill()
		release()
		err = <-ended
	case <-limit.C:
		_ = c.Process.Kill()
		<-ended
		return out.String(), fmt.Errorf("coordd %s: still runs after %v", args[0], within)
	}
	if err != nil && c.ProcessState.Exited() {
		err = sentence(c.ProcessState, out.String())
	}
	return out.String(), err
}
