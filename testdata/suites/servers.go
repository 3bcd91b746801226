package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/ports"
)

const (
	// startLimit bounds the wait for a server, unitLimit that for one unit of a suite.
	startLimit = 30 * time.Second
	unitLimit  = 10 * time.Minute
)

// target is a kind of server that suites run against.
type target struct {
	name  string
	start func(ctx context.Context, binary string) (port int, stop func(), err error)
}

const follower = "follower of 3"

var targets = []target{{"one node", startNode}, {follower, startFollower}}

// startNode starts a node alone.
func startNode(ctx context.Context, binary string) (int, func(), error) {
	free, err := ports.Free(1)
	if err != nil {
		return 0, nil, err
	}
	dir, err := os.MkdirTemp("", "coordd-suites-node")
	if err != nil {
		return 0, nil, err
	}
	_, stop, err := startServer(ctx, binary, "--listen", fmt.Sprintf("127.0.0.1:%d", free[0]),
		"--data-dir", dir, "--log-level", "error")
	remove := func() {
		stop()
		_ = os.RemoveAll(dir)
	}
	if err == nil {
		err = waitReady(ctx, free[0])
	}
	if err != nil {
		remove()
		return 0, nil, err
	}
	return free[0], remove, nil
}

// devPort is the port of a node in what coordd dev prints.
var devPort = regexp.MustCompile(`redis://127\.0\.0\.1:(\d+)`)

// startFollower starts three nodes and returns the port of one that does not lead.
func startFollower(ctx context.Context, binary string) (int, func(), error) {
	out, stop, err := startServer(ctx, binary, "dev", "--port", "0")
	if err != nil {
		return 0, nil, err
	}
	follower := 0
	lines := bufio.NewScanner(out)
	for n := 0; n < 3 && lines.Scan(); {
		m := devPort.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		n++
		port, _ := strconv.Atoi(m[1]) // only digits
		err = errors.Join(err, waitReady(ctx, port))
		if info, askErr := ask(port, "INFO", "replication"); askErr == nil &&
			strings.Contains(info, "role:slave") {
			follower = port
		}
	}
	if follower == 0 {
		stop()
		return 0, nil, fmt.Errorf("coordd dev has no follower: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return follower, stop, nil
}

// startServer starts coordd and returns what it prints; stop ends it.
func startServer(ctx context.Context, binary string, args ...string) (out io.Reader, stop func(),
	err error) {

	ctx, cancel := context.WithCancel(ctx)
	server := exec.CommandContext(ctx, binary, args...)
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.WaitDelay = 10 * time.Second
	printed, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		cancel()
		return nil, func() {}, err
	}
	return printed, func() {
		cancel()
		_ = server.Wait() // it was told to end
	}, nil
}

// waitReady waits until a node answers a read, which takes a leader.
func waitReady(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if _, err := ask(port, "DBSIZE"); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("port %d does not serve: %w", port, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ask sends a command on a connection of its own and returns the text of the reply.
func ask(port int, args ...string) (string, error) {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(resp.AppendCommand(nil, args...)); err != nil {
		return "", err
	}
	v, err := resp.NewReader(conn).Value()
	if err == nil && v.IsError() {
		err = errors.New(v.Text)
	}
	return v.Text, err
}

var processGroup = &syscall.SysProcAttr{Setpgid: true}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
