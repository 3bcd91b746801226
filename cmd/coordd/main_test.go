package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// SIGHUP, of a program that renews certificates or rotates the audit log, does not end a node that
// still starts.
func TestHangupWhileStarting(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hangUp := sync.OnceFunc(func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Error(err)
		}
	})
	getenv := func(string) string { hangUp(); return "" }
	var errs wait.Buffer
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, getenv,
			&errs, &errs)
	}()
	wait.For(t, 20*time.Second, "the node to start", func() bool {
		return strings.Contains(errs.String(), "started")
	})
	cancel()
	if code := exitCode(t, done); code != 0 {
		t.Errorf("it exited with %d:\n%s", code, errs.String())
	}
}

// Whoever reads the output of a node finds the reason in one line.
func TestErrorsAreOneLine(t *testing.T) {
	if got := inOneLine(errors.Join(errors.New("a"), errors.New("b"))); got != "a; b" {
		t.Errorf("%q", got)
	}
}

// exitCode waits for the end of run.
func exitCode(t testing.TB, done <-chan int) int {
	t.Helper()
	return wait.Receive(t, 30*time.Second, "the end of run", done)
}
