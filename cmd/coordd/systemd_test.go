package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/internal/tests/wait"
)

// listenAsSystemd returns a function that expects messages to systemd, in order.
func listenAsSystemd(t *testing.T) (expect func(...string)) {
	socket := systemdSocket(t)
	return func(messages ...string) {
		t.Helper()
		for _, want := range messages {
			got, err := receive(socket, 20*time.Second)
			for err == nil && want != "WATCHDOG=1" && got == "WATCHDOG=1" {
				got, err = receive(socket, 20*time.Second)
			}
			if err != nil || got != want {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
		}
	}
}

func systemdSocket(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return socket
}

// receive returns the next message to systemd.
func receive(socket *net.UnixConn, patience time.Duration) (string, error) {
	_ = socket.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 1024)
	n, err := socket.Read(b)
	return string(b[:n]), err
}

func TestSystemdIsNotified(t *testing.T) {
	expect := listenAsSystemd(t)
	t.Setenv("WATCHDOG_USEC", "150000")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var errs wait.Buffer
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, noEnv,
			&errs, &errs)
	}()
	expect("READY=1\nSTATUS=node n1 serves commands", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	expect("RELOADING=1", "READY=1", "WATCHDOG=1")
	cancel()
	expect("STOPPING=1")
	// On a busy machine Raft may not answer within a third of the time that systemd gives here.
	log := strings.ReplaceAll(errs.String(), notAlive, "")
	if code := exitCode(t, done); code != 0 || strings.Contains(log, "systemd") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

const notAlive = `"msg":"systemd is not told that the node is alive","error":"Raft does not answer"`

// The first node of a new cluster is ready after a while, or the next one would not be started.
func TestSystemdIsToldThatThereIsNoLeader(t *testing.T) {
	expect := listenAsSystemd(t)
	cfg, err := parseConfig([]string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir(),
		"--cluster", "n1=127.0.0.1:0,n2=127.0.0.1:1", "--peer-advertise", "127.0.0.1:2"}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	n, err := node.Start(cfg.Config, node.Listeners{}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	s := &supervisor{node: n, log: log}
	reloaded := false
	s.reload(func() { reloaded = true }) // says nothing: it is not ready
	s.run(t.Context(), 10*time.Millisecond)
	expect("READY=1\nSTATUS=node n1 has found no leader yet")
	if !reloaded {
		t.Error("it did not reload")
	}
}

// wedgeable is a node that answers nothing while it is wedged.
type wedgeable struct{ wedged atomic.Bool }

func (w *wedgeable) ID() string                      { return "n1" }
func (w *wedgeable) WaitReady(context.Context) error { return nil }
func (w *wedgeable) CheckAlive(ctx context.Context) error {
	if !w.wedged.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// A wedged node stops notifying, so that systemd restarts it.
func TestWatchdogOfAWedgedNode(t *testing.T) {
	socket := systemdSocket(t)
	t.Setenv("WATCHDOG_USEC", "30000")
	node, log := &wedgeable{}, &wait.Buffer{}
	s := &supervisor{node: node, log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.run(ctx, time.Minute); close(done) }()
	defer func() { cancel(); <-done }()
	alive := func(patience time.Duration) error {
		for {
			if got, err := receive(socket, patience); err != nil || got == "WATCHDOG=1" {
				return err
			}
		}
	}
	for range 3 {
		if err := alive(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	node.wedged.Store(true)
	complaints := func(n int) {
		t.Helper()
		wait.For(t, 20*time.Second, "complaints", func() bool {
			return strings.Count(log.String(), "systemd is not told") >= n
		})
	}
	complaints(1)
	for alive(time.Millisecond) == nil { // what was sent before
	}
	complaints(4)
	if err := alive(time.Millisecond); err == nil {
		t.Error("systemd is told that a wedged node is alive")
	}
	node.wedged.Store(false)
	if err := alive(20 * time.Second); err != nil {
		t.Error("after it went on:", err)
	}
}
