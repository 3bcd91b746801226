// Tests of the snapshot store that Raft sees.

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCloseCancelsSnapshot closes a node that writes an endless snapshot.
func TestCloseCancelsSnapshot(t *testing.T) {
	var out bytes.Buffer // the log; read after Close
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.TrailingLogs = 1
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	})
	n, toy := c.leader(), c.toys["n1"]
	for range 5 {
		c.write(n, "w")
	}
	begun := make(chan struct{})
	toy.mu.Lock()
	toy.persist = func(w io.Writer) error {
		close(begun)
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return err
			}
		}
		return errors.New("nobody canceled it")
	}
	toy.mu.Unlock()
	failed := make(chan error, 1)
	go func() { failed <- n.Snapshot() }()
	<-begun
	c.close("n1")
	if err := <-failed; err != errStopping {
		t.Errorf("the snapshot failed with %v", err)
	}
	if got := out.String(); strings.Contains(got, "level=WARN") ||
		strings.Contains(got, "level=ERROR") {
		t.Error(got)
	}
	left, err := os.ReadDir(filepath.Join(c.dir, "n1", snapshotsName))
	if err != nil || len(left) != 0 {
		t.Errorf("the directory of snapshots holds %v, %v", left, err)
	}
	c.reopen("n1")
	if first, err := c.nodes["n1"].logs.FirstIndex(); err != nil || first != 1 {
		t.Errorf("the log begins at %d, %v", first, err)
	}
	c.write(c.leader(), "w")
	if got := fmt.Sprint(c.converged()); got != "[w w w w w w]" {
		t.Errorf("after a restart the list is %s", got)
	}
}
