package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/ports"
)

const (
	// startLimit bounds the wait for a server, unitLimit that for one unit of a suite.
	startLimit = 30 * time.Second
	unitLimit  = 15 * time.Minute
)

// target is a kind of server that suites run against: a node alone, or a follower.
type target struct {
	name  string
	nodes int
}

var (
	oneNode  = target{"one node", 1}
	follower = target{"follower of 3", 3}
)

// addrs are the addresses of a node.
type addrs struct{ plain, tls, http string }

// port returns the port for clients without TLS.
func (a addrs) port() string { return a.plain[strings.LastIndexByte(a.plain, ':')+1:] }

// start starts coordd with flags and with its data below dir, and waits until the last node serves.
// The caller calls stop, also after an error. Nodes end with the calling thread.
func (t target) start(ctx context.Context, binary, dir string, flags ...string) (served addrs,
	stop func(), err error) {

	const each = 4 // ports of a node
	free, err := ports.Free(each * t.nodes)
	if err != nil {
		return served, func() {}, err
	}
	dir, err = os.MkdirTemp(dir, "nodes")
	if err != nil {
		return served, func() {}, err
	}
	var nodes []*exec.Cmd
	stop = func() {
		for _, n := range nodes {
			_ = n.Process.Kill()
			_ = n.Wait()
		}
		_ = os.RemoveAll(dir)
	}
	addr := func(node, port int) string {
		return "127.0.0.1:" + strconv.Itoa(free[each*node+port])
	}
	var members []string
	for i := range t.nodes {
		members = append(members, fmt.Sprintf("n%d=%s", i+1, addr(i, 3)))
	}
	for i := range t.nodes {
		served = addrs{addr(i, 0), addr(i, 1), addr(i, 2)}
		id := fmt.Sprint("n", i+1)
		args := append(slices.Clone(flags), "--id", id, "--listen", served.plain, "--http-listen",
			served.http, "--data-dir", filepath.Join(dir, id), "--log-level", "error")
		if t.nodes > 1 {
			// The last node leads only if no other can.
			args = append(args, "--cluster", strings.Join(members, ","), "--leader-priority",
				strconv.Itoa(t.nodes-i))
		}
		if slices.Contains(flags, "--tls-cert") {
			args = append(args, "--tls-listen", served.tls)
		}
		n := exec.Command(binary, args...)
		n.SysProcAttr = endsWithParent
		if err := n.Start(); err != nil {
			return served, stop, err
		}
		nodes = append(nodes, n)
	}
	return served, stop, t.waitServed(ctx, served.http)
}

// waitServed waits until the node with this HTTP port is ready, has its role, and knows
// every command.
func (t target) waitServed(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	// The first node leads. If another one is elected, it hands over.
	role := `"leader":"n1","node":"n1"`
	if t.nodes > 1 {
		role = `"leader":"n1","node":"n3"`
	}
	level := fmt.Sprintf("\ncoordd_feature_level %d\n", commands.FeatureLevel)
	for {
		ready, err := page(ctx, addr, "/readyz")
		metrics, metricsErr := page(ctx, addr, "/metrics")
		err = errors.Join(err, metricsErr)
		if err == nil && strings.Contains(ready, role) && strings.Contains(metrics, level) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not ready: %s", addr, ready), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// page returns a page that a node answers with 200.
func page(ctx context.Context, addr, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(text), err
}

var processGroup = &syscall.SysProcAttr{Setpgid: true}

// endsWithParent has a process killed when the thread that started it ends.
var endsWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
