package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/internal/tests/wait"
)

// listenAsSystemd returns a function that expects messages to systemd, in order.
func listenAsSystemd(t *testing.T) (expect func(...string)) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func(messages ...string) {
		t.Helper()
		for _, want := range messages {
			_ = socket.SetReadDeadline(time.Now().Add(20 * time.Second))
			b := make([]byte, 1024)
			n, err := socket.Read(b)
			for err == nil && want != "WATCHDOG=1" && string(b[:n]) == "WATCHDOG=1" {
				n, err = socket.Read(b)
			}
			if got := string(b[:n]); err != nil || got != want {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
		}
	}
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
	if code := <-done; code != 0 || strings.Contains(errs.String(), "systemd") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

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
