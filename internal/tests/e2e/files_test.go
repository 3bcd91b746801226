package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// A node with few file descriptors reserves enough of them to append, to snapshot and to answer
// probes, however many connections strangers open to both ports.
func TestFewFiles(t *testing.T) {
	p := startProcessesWith(t, 1, func(p *process) { p.most = 200 })[0]
	c := p.client()
	ctx := context.Background()
	// what a node and two possible peers need, see internal/node/files.go
	const most = 200 - 152 - 2*12
	if got := c.ConfigGet(ctx, "maxclients").Val()["maxclients"]; got != fmt.Sprint(most) {
		t.Errorf("maxclients is %s, not %d", got, most)
	}
	want := fmt.Sprintf(
		"The operating system is not able to handle the specified number of clients, try with %d",
		most)
	if err := c.ConfigSet(ctx, "maxclients", fmt.Sprint(most+1)).Err(); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("CONFIG SET maxclients: %v", err)
	}
	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			_ = conn.Close()
		}
	}()
	for i := range 400 {
		addr := p.addr
		if i%4 == 0 {
			addr = p.http
		}
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		idle = append(idle, conn)
		if i%20 == 0 {
			if err := c.Incr(ctx, "n").Err(); err != nil {
				t.Fatalf("with %d connections: %v", i, err)
			}
			if code := httpStatus(p.http, "/readyz"); code != http.StatusOK {
				t.Fatalf("with %d connections /readyz says %d", i, code)
			}
		}
	}
	if err := c.Do(ctx, "RAFT", "SNAPSHOT").Err(); err != nil {
		t.Error(err)
	}
	if n, err := c.Incr(ctx, "n").Result(); err != nil || n != 21 {
		t.Error(n, err)
	}
	for _, conn := range idle {
		_ = conn.Close()
	}
	wait.For(t, 10*time.Second, "other clients", func() bool {
		return p.client().Ping(ctx).Err() == nil
	})
	if strings.Contains(p.log.String(), "too many open files") {
		t.Error("the node ran out of files")
	}
}

func TestTooFewFiles(t *testing.T) {
	p := &process{t: t, id: "n1", most: 90,
		args: []string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}}
	p.start()
	p.waitRefusal("the limit of open files (ulimit -n) is 90, this node needs at least")
}

// Only the user that runs coordd can read what it writes or connect to its Unix socket, while it
// runs too, whatever the umask.
func TestFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	defer syscall.Umask(syscall.Umask(0))
	path := func(name string) string { return filepath.Join(dir, name) }
	p := startProcessesWith(t, 1, func(p *process) { p.setFlag("--data-dir", path("data")) },
		"--snapshot-entries", "64", "--unix-socket", path("socket"),
		"--audit-log", path("audit"))[0]
	c, ctx := p.client(), context.Background()
	for range 200 {
		if err := c.Incr(ctx, "n").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Do(ctx, "RAFT", "SNAPSHOT").Err(); err != nil {
		t.Fatal(err)
	}
	succeed(t, "backup", "--from", p.addr, path("backup"))
	succeed(t, "restore", path("backup"), "--data-dir", path("restored"), "--cluster",
		"n1=127.0.0.1:1,n2=127.0.0.1:2", "--tokens-above", "45035996273704960")
	succeed(t, "recover", "--data-dir", path("restored"), "--accept-lost-writes")
	privateFiles(t, dir, 20)

	if err := os.Rename(path("audit"), path("audit.1")); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	wait.For(t, 5*time.Second, "another audit log", func() bool {
		_, err := os.Stat(path("audit"))
		return err == nil
	})
	_ = c.Shutdown(ctx)
	<-p.done
	for name, want := range map[string]string{"audit.1": "raft|backup", "audit": "shutdown"} {
		text, err := os.ReadFile(path(name))
		if err != nil || !strings.Contains(string(text), `"event":"`+want+`","outcome":"ok"`) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	privateFiles(t, dir, 20)
}

// privateFiles checks the modes of everything in dir, and that there are at least so many files.
func privateFiles(t *testing.T, dir string, least int) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		files++
		if got := info.Mode().Perm(); got&0o077 != 0 {
			t.Errorf("%s has mode %o", path, got)
		}
		return nil
	})
	if err != nil || files < least {
		t.Errorf("%d files, want %d or more: %v", files, least, err)
	}
}
