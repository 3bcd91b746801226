//go:build linux

// One process of coordd.

package lab

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coordd/coordd/internal/tests/binaries"
)

// stopLimit is how long a node has to stop after SIGTERM; faults may keep it from that.
const stopLimit = 8 * time.Second

// node is a process that faults end and start. Its methods may be called by several faults at once.
type node struct {
	site      *site
	number    int    // its host in the network
	namespace string // "": the test's own
	disk      string // the directory of its data directory
	addr      string // for clients
	secure    string // for clients over TLS
	peer      string
	web       string // its HTTP port
	wall      string // the file that moves its wall clock
	syncs     string // the file that slows its disk down

	mu     sync.Mutex
	named  string // its id, which is another one after it was replaced
	member bool   // of the cluster, or about to be one
	first  bool   // it runs release 0.1
	joins  bool   // it was not there at the beginning
	cmd    *exec.Cmd
	done   chan struct{}
}

// id returns the node's name in the cluster.
func (n *node) id() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.named
}

// dataDir returns the data directory of the id. The caller holds mu.
func (n *node) dataDir() string { return filepath.Join(n.disk, n.named) }

// args returns the flags of the next start.
func (n *node) args() []string {
	s := n.site
	args := []string{"--id", n.named, "--listen", n.addr, "--data-dir", n.dataDir(),
		"--snapshot-entries", fmt.Sprint(snapshotEntries), "--log-format", "text"}
	if n.joins {
		var addrs []string
		for _, other := range s.all {
			if other != n {
				addrs = append(addrs, other.addr)
			}
		}
		args = append(args, "--peer-listen", n.peer, "--join", strings.Join(addrs, ","))
	} else {
		args = append(args, "--cluster", s.founders)
	}
	switch {
	case n.first:
		return args
	case s.certs == "":
		args = append(args, "--insecure-peers")
	default:
		file := func(name string) string { return filepath.Join(s.certs, name) }
		args = append(args, "--peer-tls", "required", "--peer-tls-cert",
			file(n.named+"-peer.crt"), "--peer-tls-key", file(n.named+"-peer.key"),
			"--peer-tls-ca", file("peer-ca.crt"),
			"--tls-listen", n.secure, "--tls-cert", file(n.named+".crt"), "--tls-key",
			file(n.named+".key"), "--tls-ca", file("ca.crt"))
	}
	return append(args, "--protected-mode", "no", "--http-listen", n.web)
}

// start starts the node, unless it runs.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runs() {
		return
	}
	binary := n.site.binary
	if n.first {
		binary = binaries.First
	}
	path, err := binary()
	if err != nil {
		n.site.problem("%s: %v", n.named, err)
		return
	}
	cmd := exec.Command(path, n.args()...)
	if n.namespace != "" {
		// becomes coordd, with the same process id
		cmd = exec.Command("ip", append([]string{"netns", "exec", n.namespace, path},
			n.args()...)...)
	}
	cmd.Env = append(append(os.Environ(), n.site.systemd.env()...), "COORDD_TEST_WALL="+n.wall,
		"COORDD_TEST_SYNC="+n.syncs)
	if n.site.traces != "" {
		cmd.Env = append(cmd.Env, "COORDD_TRACE="+n.site.traces)
	}
	if n.number%3 == 2 { // its processor can do less
		cmd.Env = append(cmd.Env, "GODEBUG=cpu.fma=off,cpu.avx2=off,cpu.sse41=off")
	}
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.site.problem("%s: %v", n.named, err)
		return
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.site.problem("%s: %v", n.named, err)
		return
	}
	done := make(chan struct{})
	n.cmd, n.done = cmd, done
	go func() { _ = cmd.Wait(); close(done) }()
}

func (n *node) log() string {
	return filepath.Join(n.site.dir, fmt.Sprintf("n%d.log", n.number+1))
}

// runs reports whether the process is there. The caller holds mu.
func (n *node) runs() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// running reports whether the process is there.
func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runs()
}

// pid returns the process's id; 0 if it does not run.
func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.runs() {
		return 0
	}
	return n.cmd.Process.Pid
}

// signal sends a signal to the process if it runs.
func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runs() {
		_ = n.cmd.Process.Signal(s)
	}
}

// kill ends the process as kill -9 does.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runs() {
		_ = n.cmd.Process.Kill()
		<-n.done
	}
}

// stop stops the process as an operator does, and reports whether it ended in time and with 0.
func (n *node) stop() bool {
	n.signal(syscall.SIGTERM)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return true
	}
	late := time.NewTimer(stopLimit)
	defer late.Stop()
	select {
	case <-n.done:
	case <-late.C:
		_ = n.cmd.Process.Kill()
		<-n.done
		return false
	}
	return n.cmd.ProcessState.ExitCode() == 0
}

// changeBit changes a bit of the node's log, and says which; none of release 0.1, which takes many
// for the end of the log.
func (n *node) changeBit(rnd *rand.Rand) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names, err := filepath.Glob(filepath.Join(n.dataDir(), "wal", "*.wal"))
	if err != nil || len(names) == 0 || n.first {
		return "none", err
	}
	name := names[rnd.IntN(len(names))]
	content, err := os.ReadFile(name)
	content = bytes.TrimRight(content, "\x00") // what is reserved
	if err != nil || len(content) == 0 {
		return "none", err
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	at := rnd.IntN(len(content))
	_, err = f.WriteAt([]byte{content[at] ^ 1<<rnd.IntN(8)}, int64(at))
	return fmt.Sprintf("byte %d of %s", at, filepath.Base(name)), err
}

// refetch has the node get its state again when it starts.
func (n *node) refetch() {
	n.mu.Lock()
	defer n.mu.Unlock()
	path, err := n.site.binary()
	if err == nil {
		var out []byte
		if out, err = exec.Command(path, "refetch", "--data-dir", n.dataDir()).
			CombinedOutput(); err != nil {
			err = fmt.Errorf("refetch: %w: %s", err, out)
		}
	}
	if err != nil {
		n.site.problem("%s: %v", n.named, err)
	}
}

// lastLine returns the end of the node's log.
func (n *node) lastLine() string {
	text, _ := os.ReadFile(n.log())
	s := strings.TrimSpace(string(text))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
