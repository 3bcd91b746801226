package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/ports"
)

// servers starts what is compared, each when it is first asked for.
type servers struct {
	dir     string
	coordd  string // the binary
	ctx     context.Context
	cancel  context.CancelFunc
	running map[string]*cluster
	started int
}

// newServers takes a binary of coordd, or builds one with flags of go build.
func newServers(binary string, flags ...string) (_ *servers, err error) {
	s := &servers{running: map[string]*cluster{}}
	if s.dir, err = os.MkdirTemp("", "coordd-bench-"); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.coordd = binary; binary != "" {
		return s, nil
	}
	s.coordd = filepath.Join(s.dir, "coordd")
	build := exec.Command("go", append(append([]string{"build", "-C", "../.."}, flags...), "-o",
		s.coordd, "./cmd/coordd")...)
	if out, err := build.CombinedOutput(); err != nil {
		s.end()
		return nil, fmt.Errorf("go build: %s", out)
	}
	return s, nil
}

// end kills the servers and removes their files.
func (s *servers) end() {
	s.cancel()
	for _, c := range s.running {
		c.wait()
	}
	_ = os.RemoveAll(s.dir)
}

// cluster is one server, or the nodes of one coordd cluster.
type cluster struct {
	name  string
	nodes []*node
}

// node is a process, and how to start it again.
type node struct {
	port string // or its address
	args []string
	env  []string // besides that of this process
	cmd  *exec.Cmd
}

// target is where a load connects to, and whose processor time it takes.
type target struct {
	name string
	port string
	of   *cluster
}

// serverOf returns a target, of servers that are running or are started now.
type serverOf func(s *servers) (*target, error)

// keep starts a cluster, or returns the one of that name.
func (s *servers) keep(name string, start func() (*cluster, error)) (*cluster, error) {
	if c := s.running[name]; c != nil {
		return c, nil
	}
	c, err := start()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.name = name
	s.running[name] = c
	return c, nil
}

// stop ends a cluster for good.
func (s *servers) stop(c *cluster) {
	c.kill()
	delete(s.running, c.name)
}

// redis starts a redis-server with a policy of appendfsync: "no" is without a file.
func redis(fsync string) serverOf {
	return func(s *servers) (*target, error) {
		name := "redis, always"
		switch fsync {
		case "no":
			name = "redis, in memory"
		case "everysec":
			name = "redis, everysec"
		}
		c, err := s.keep(name, func() (*cluster, error) {
			n, err := s.newRedis(fsync)
			if err != nil {
				return nil, err
			}
			c := &cluster{nodes: []*node{n}}
			return c, s.start(c)
		})
		if err != nil {
			return nil, err
		}
		return &target{name, c.nodes[0].port, c}, nil
	}
}

// newRedis returns a redis-server that is not started.
func (s *servers) newRedis(fsync string, more ...string) (*node, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	dir, err := s.newDir()
	if err != nil {
		return nil, err
	}
	appendOnly := "yes"
	if fsync == "no" {
		appendOnly = "no"
	}
	return &node{port: ports[0], args: append([]string{"redis-server", "--port", ports[0],
		"--bind", "127.0.0.1", "--dir", dir, "--save", "", "--maxclients", "10000",
		"--appendonly", appendOnly, "--appendfsync", fsync, "--loglevel", "warning"},
		more...)}, nil
}

// replicated starts a redis-server with two replicas, all of which sync every write: as many copies
// as three nodes of coordd have.
func replicated(s *servers) (*target, error) {
	c, err := s.keep(threeCopies, func() (*cluster, error) {
		c := &cluster{}
		var primary []string
		for range 3 {
			n, err := s.newRedis("always", primary...)
			if err != nil {
				return nil, err
			}
			if primary == nil {
				primary = []string{"--replicaof", "127.0.0.1 " + n.port}
			}
			c.nodes = append(c.nodes, n)
		}
		if err := s.start(c); err != nil {
			return nil, err
		}
		synced := within(20*time.Second, func() bool {
			v, err := call(c.nodes[0].port, "WAIT", "2", "100")
			return err == nil && v.Text == "2"
		})
		if !synced {
			c.kill()
			return nil, errors.New("its replicas do not follow")
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	return &target{threeCopies, c.nodes[0].port, c}, nil
}

// coordd starts a cluster, and returns its leader.
func coordd(nodes int) serverOf {
	return func(s *servers) (*target, error) {
		name := fmt.Sprintf("coordd, %d nodes", nodes)
		if nodes == 1 {
			name = "coordd, 1 node"
		}
		c, err := s.keep(name, func() (*cluster, error) { return s.startCoordd(nodes) })
		if err != nil {
			return nil, err
		}
		leader, err := c.leader()
		if err != nil {
			return nil, err
		}
		return &target{name, leader.port, c}, nil
	}
}

// follower returns another node than the leader of three.
func follower(s *servers) (*target, error) {
	t, err := coordd(3)(s)
	if err != nil {
		return nil, err
	}
	for _, n := range t.of.nodes {
		if n.port != t.port {
			return &target{"coordd, follower", n.port, t.of}, nil
		}
	}
	return nil, errors.New("no follower")
}

// startCoordd starts a cluster of its own.
func (s *servers) startCoordd(nodes int) (*cluster, error) {
	c, err := s.newCoordd(slices.Repeat([]string{"127.0.0.1"}, nodes))
	if err != nil {
		return nil, err
	}
	if err := s.start(c); err != nil {
		return nil, err
	}
	_, err = c.leader()
	return c, err
}

// newCoordd returns a cluster that is not started, with a node on each of some hosts.
func (s *servers) newCoordd(hosts []string) (*cluster, error) {
	ports, err := freePorts(2 * len(hosts))
	if err != nil {
		return nil, err
	}
	c := &cluster{name: "coordd"}
	var members []string
	for i, host := range hosts {
		members = append(members, fmt.Sprintf("n%d=%s:%s", i, host, ports[len(hosts)+i]))
	}
	for i, host := range hosts {
		dir, err := s.newDir()
		if err != nil {
			return nil, err
		}
		n := &node{port: host + ":" + ports[i]}
		n.args = []string{s.coordd, "--id", "n" + strconv.Itoa(i), "--listen", n.port,
			"--data-dir", dir, "--log-level", "error"}
		if len(hosts) > 1 {
			n.args = append(n.args, "--cluster", strings.Join(members, ","))
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

func (s *servers) newDir() (string, error) {
	s.started++
	dir := filepath.Join(s.dir, strconv.Itoa(s.started))
	return dir, os.Mkdir(dir, 0o700)
}

// run starts the processes of a cluster.
func (s *servers) run(c *cluster) error {
	for _, n := range c.nodes {
		n.cmd = exec.CommandContext(s.ctx, n.args[0], n.args[1:]...)
		n.cmd.Env, n.cmd.Stderr = append(os.Environ(), n.env...), os.Stderr
		if err := n.cmd.Start(); err != nil {
			return err
		}
	}
	return nil
}

// start starts all nodes of a cluster, and waits until they reply.
func (s *servers) start(c *cluster) error {
	if err := s.run(c); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if !within(20*time.Second, func() bool { return n.role() != "" }) {
			c.kill()
			return errors.New("it does not reply")
		}
	}
	return nil
}

// kill kills the processes, as kill -9 does.
func (c *cluster) kill() {
	for _, n := range c.nodes {
		_ = n.cmd.Process.Kill()
	}
	c.wait()
}

func (c *cluster) wait() {
	for _, n := range c.nodes {
		_ = n.cmd.Wait()
	}
}

// leader waits until a node calls itself master.
func (c *cluster) leader() (*node, error) {
	var leader *node
	found := within(20*time.Second, func() bool {
		for _, n := range c.nodes {
			if n.role() == "master" {
				leader = n
			}
		}
		return leader != nil
	})
	if !found {
		return nil, errors.New("the cluster has no leader")
	}
	return leader, nil
}

// role returns the first word of the node's ROLE; empty if it does not reply.
func (n *node) role() string {
	v, err := call(n.port, "ROLE")
	if err != nil || len(v.Elems) == 0 {
		return ""
	}
	return v.Elems[0].Text
}

// cpu returns the processor time that all processes have taken, and that of the node which the
// target connects to.
func (t *target) cpu() (all, own time.Duration) {
	for _, n := range t.of.nodes {
		took := n.cpu()
		all += took
		if n.port == t.port {
			own = took
		}
	}
	return all, own
}

func (n *node) cpu() time.Duration {
	// Fields 14 and 15 are user and system time in ticks; the second, in parentheses, is the name.
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	_, rest, _ := bytes.Cut(b, []byte(") "))
	fields := bytes.Fields(rest)
	if len(fields) <= 12 {
		return 0
	}
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * tick
}

// at returns the node at a port.
func (c *cluster) at(port string) (*node, error) {
	for _, n := range c.nodes {
		if n.port == port {
			return n, nil
		}
	}
	return nil, errors.New("no such node")
}

// resident returns the resident bytes of the node that the target connects to.
func (t *target) resident() (int, error) {
	n, err := t.of.at(t.port)
	if err != nil {
		return 0, err
	}
	return n.resident()
}

func (n *node) resident() (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.Atoi(fields[1])
	return pages * os.Getpagesize(), err
}

// restart kills a node, starts it, and returns how long it took until it had replayed its log.
func (s *servers) restart(c *cluster, port string) (time.Duration, error) {
	n, err := c.at(port)
	if err != nil {
		return 0, err
	}
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	begin := time.Now()
	if err := s.run(&cluster{nodes: []*node{n}}); err != nil {
		return 0, err
	}
	if !within(2*time.Minute, func() bool {
		loading, err := info(port, "loading")
		return err == nil && loading == 0 && n.role() != ""
	}) {
		return 0, errors.New("a node does not come back")
	}
	return time.Since(begin), nil
}

// info returns a number of INFO.
func info(port, name string) (int, error) {
	v, err := call(port, "INFO", "everything")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(v.Text, "\n"+name+":")
	if !found {
		return 0, fmt.Errorf("INFO has no %s: %.80s", name, v.Text)
	}
	text, _, _ := strings.Cut(rest, "\r")
	return strconv.Atoi(text)
}

// do sends commands, none of which may fail.
func (t *target) do(commands ...[]string) error {
	for _, words := range commands {
		if v, err := call(t.port, words...); err != nil {
			return fmt.Errorf("%s: %w", words[0], err)
		} else if v.IsError() {
			return fmt.Errorf("%s: %s", words[0], v.Text)
		}
	}
	return nil
}

// address returns the address of a port of the loopback, or of another host if it names one.
func address(port string) string {
	if strings.Contains(port, ":") {
		return port
	}
	return "127.0.0.1:" + port
}

// call sends a command on a connection of its own.
func call(port string, words ...string) (resp.Value, error) {
	c, err := net.DialTimeout("tcp", address(port), time.Second)
	if err != nil {
		return resp.Value{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(resp.AppendCommand(nil, words...)); err != nil {
		return resp.Value{}, err
	}
	return resp.NewReader(c).Value()
}

// within waits until a condition holds, and reports whether it did in time.
func within(d time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

// freePorts finds n ports of the loopback that nobody listens on.
func freePorts(n int) ([]string, error) {
	free, err := ports.Free(n)
	var texts []string
	for _, p := range free {
		texts = append(texts, strconv.Itoa(p))
	}
	return texts, err
}
