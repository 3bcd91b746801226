package node

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
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

// TestResetsAreJudged: a request to reset the default user that comes too late does nothing, once
// and for all: it is old, or users were changed since it was tried first.
func TestResetsAreJudged(t *testing.T) {
	now, hash := time.Now(), acl.Hash([]byte("secret"))
	for what, c := range map[string]struct {
		request resetRequest
		says    string // empty: it is done
	}{
		"a new one":          {resetRequest{at: now}, ""},
		"nearly an old one":  {resetRequest{at: now.Add(time.Minute - resetAge)}, ""},
		"an old one":         {resetRequest{at: now.Add(-time.Minute - resetAge)}, "at most"},
		"one of the future":  {resetRequest{at: now.Add(time.Minute + resetAge)}, "at most"},
		"one that was tried": {resetRequest{at: now, begun: true}, ""},
		"one that was done":  {resetRequest{at: now, begun: true, since: 1}, "were changed"},
	} {
		dir := t.TempDir()
		c.request.hash = hash
		if err := c.request.write(dir); err != nil {
			t.Fatal(err)
		}
		var logged wait.Buffer
		n, err := Start(single(dir), Listeners{}, slog.New(slog.NewTextHandler(&logged, nil)))
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, 20*time.Second, "the end of "+what, func() bool {
			_, err := os.Lstat(filepath.Join(dir, resetName))
			return errors.Is(err, fs.ErrNotExist) &&
				strings.Contains(logged.String(), "default user")
		})
		d := n.adapter.Users().Default()
		done := !d.NoPass() && d.Accepts([]byte(hash))
		if done != (c.says == "") || !strings.Contains(logged.String(), c.says) {
			t.Errorf("%s: done: %v\n%s", what, done, logged.String())
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A node that was killed after the entry of a reset and before it removed the request, and is back
// after somebody else has set a password, leaves that.
func TestResetIsDoneOnce(t *testing.T) {
	dir := t.TempDir()
	request := resetRequest{hash: acl.Hash([]byte("old")), at: time.Now()}
	if err := request.write(dir); err != nil {
		t.Fatal(err)
	}
	n, err := Start(single(dir), Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	gone := func() bool {
		_, err := readReset(dir)
		return errors.Is(err, fs.ErrNotExist)
	}
	wait.For(t, 20*time.Second, "the reset", gone)
	hash := acl.Hash([]byte("new"))
	if err := n.ensureSetting(t.Context(), []byte(commands.SettingDefaultUser),
		strconv.AppendUint(nil, uint64(n.adapter.Users().Changed), 10), []byte("resetpass"),
		[]byte("#"+hash)); err != nil {
		t.Fatal(err)
	}
	request.begun = true // as the file was then
	if err := request.write(dir); err != nil {
		t.Fatal(err)
	}
	n.resetDefaultUser(t.Context())
	if !n.adapter.Users().Default().Accepts([]byte(hash)) {
		t.Error("the old password is back")
	}
	if !gone() {
		t.Error("the request is still there")
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
