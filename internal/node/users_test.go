package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/server"
)

// A cluster that refuses its first users would let nobody in: the node ends, and says why.
func TestRefusedFirstUsersEndTheNode(t *testing.T) {
	cfg := single(t.TempDir())
	cfg.FirstUsers = []byte("user default on +nosuchcommand\n")
	n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	select {
	case err := <-n.Failed():
		if !strings.Contains(err.Error(), "first users") ||
			!strings.Contains(err.Error(), "nosuchcommand") {
			t.Errorf("the node ends with %q", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the node goes on")
	}
}

// A new cluster that is told its users lets nobody in before it has them, also while it elects its
// first leader: its machine knows no users and would refuse nobody.
func TestNobodyComesBeforeTheFirstUsers(t *testing.T) {
	cfg := single(t.TempDir())
	cfg.FirstUsers = []byte("user default on >secret ~* &* +@all\n")
	n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	wait.For(t, 20*time.Second, "the first users", func() bool {
		loads := backend{n}.Status().Loading
		users := backend{n}.Users()
		if users == nil && !loads && n.adapter.Users().Changed == 0 {
			t.Fatal("the node neither knows users nor awaits them")
		}
		return users != nil && users != server.UsersAwaited
	})
}

// A request to reset the default user that cannot be met is tried once: it never succeeds, and each
// try would be a log entry.
func TestRefusedResetIsTriedOnce(t *testing.T) {
	for what, request := range map[string]func(file string) error{
		"no hash": func(file string) error {
			return os.WriteFile(file, []byte("no hash\n"), 0o600)
		},
		"a pipe that nobody writes to": func(file string) error {
			return syscall.Mkfifo(file, 0o600)
		},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, resetName)
		if err := request(file); err != nil {
			t.Fatal(err)
		}
		var logged wait.Buffer
		n, err := Start(single(dir), Listeners{}, slog.New(slog.NewTextHandler(&logged, nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		wait.For(t, 20*time.Second, "the refusal of "+what, func() bool {
			return strings.Contains(logged.String(), "the default user is not reset")
		})
		if _, err := os.Lstat(file); err != nil {
			t.Errorf("%s: the request is gone: %v", what, err)
		}
		if strings.Contains(logged.String(), "yet") {
			t.Errorf("%s: it was tried again:\n%s", what, logged.String())
		}
	}
}

// Whom a change of users ends is gone from the node that acknowledges the change, the leader or
// not, alone or in a transaction.
func TestRevokedAreGoneFromEachNode(t *testing.T) {
	_, _, clients := startThree(t)
	ctx := t.Context()
	for i := range 40 * len(clients) {
		c := clients[i%len(clients)]
		admin := c.Conn()
		call := []any{"ACL", "DELUSER", "bob"}
		err := admin.Do(ctx, "ACL", "SETUSER", "bob", "on", ">b", "+@all", "&*").Err()
		if err != nil {
			t.Fatal(err)
		}
		bob := redis.NewClient(&redis.Options{Addr: c.Options().Addr, MaxRetries: -1,
			Username: "bob", Password: "b"})
		if _, err := bob.Subscribe(ctx, "ch").Receive(ctx); err != nil {
			t.Fatal(err)
		}
		_, err = admin.Pipelined(ctx, func(p redis.Pipeliner) error {
			if i%2 == 0 {
				p.Do(ctx, call...)
				return nil
			}
			p.Do(ctx, "MULTI")
			p.Do(ctx, call...)
			return p.Do(ctx, "EXEC").Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		if list := c.ClientList(ctx).Val(); list == "" || strings.Contains(list, "user=bob") {
			t.Fatalf("%d: %s", i, list)
		}
		_, _ = bob.Close(), admin.Close()
	}
}
