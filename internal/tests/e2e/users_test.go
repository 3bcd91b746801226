package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

// The passwords of these tests, which must not be found anywhere.
const (
	adminPassword = "admin-password-in-clear"
	appPassword   = "app-password-in-clear"
	newPassword   = "new-password-in-clear"
)

// usersFile is the file of a cluster with an administrator and an application.
const usersFile = "user default off\nuser admin on >" + adminPassword + " ~* &* +@all\n" +
	"user app on >" + appPassword + " ~k:* &ch:* +@all -@admin -@dangerous\n"

// startWithUsers starts a cluster whose users come from a file, with changes to each process
// before it starts.
func startWithUsers(t *testing.T, nodes int, changes ...func(*process)) (ps []*process,
	file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(usersFile), 0o600); err != nil {
		t.Fatal(err)
	}
	ps = startProcessesWith(t, nodes, func(p *process) {
		for _, change := range changes {
			change(p)
		}
	}, "--users-file", file)
	for _, p := range ps {
		c := as(t, p, "admin", adminPassword)
		wait.For(t, 20*time.Second, "the first users", func() bool {
			return c.Ping(context.Background()).Err() == nil
		})
	}
	return ps, file
}

// as returns a client of one connection that authenticates as a user.
func as(t *testing.T, p *process, user, password string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: p.addr, Username: user, Password: password,
		MaxRetries: -1, PoolSize: 1, DisableIdentity: true, ReadTimeout: 10 * time.Second})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantDenied fails unless an error says that the user may not.
func wantDenied(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") &&
		!strings.Contains(err.Error(), "The user executing the script can't") {
		t.Errorf("%s after the revocation: %v", what, err)
	}
}

// From the moment that a node has acknowledged a revocation on, no node grants what was revoked:
// followers have not applied it then.
func TestRevocationIsImmediate(t *testing.T) {
	ps, _ := startWithUsers(t, 3)
	ctx := context.Background()
	admin := as(t, ps[0], "admin", adminPassword)
	var apps []*redis.Client
	for _, p := range ps {
		apps = append(apps, as(t, p, "app", appPassword))
	}
	set := func(rules ...any) {
		t.Helper()
		err := admin.Do(ctx, append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	const changedRules = "-NOPERM ACLs rules changed between the moment the transaction was " +
		"accumulated and the EXEC call. This command is no longer allowed for the following " +
		"reason: no permission to execute the command or subcommand\r\n"
	for round := range 60 {
		app := apps[round%3].Conn()
		tx := dialRaw(t, ps[round%3].addr)
		calls := []string{"AUTH app " + appPassword, "SET k:1 v", "MULTI", "SET k:1 x", "GET k:1"}
		want := "*2\r\n" + changedRules + changedRules
		if round%2 == 0 { // it says nothing about a key that may not be read any more
			calls, want = slices.Insert(calls, 2, "WATCH k:1"), changedRules
		}
		// Queueing is decided by the users that the node has applied, which may be a moment old. A
		// key that is new shows that it has applied this change, and not only those before the last
		// revocation.
		key := fmt.Sprint("round:", round)
		set("+set", "+get", "+watch", "~"+key)
		wait.For(t, 10*time.Second, "the node to know of the rights", func() bool {
			_ = app.Do(ctx, "MULTI").Err()
			err := app.Do(ctx, "SET", key, "v").Err()
			_ = app.Do(ctx, "DISCARD").Err()
			return err == nil
		})
		for _, call := range calls {
			if reply := tx.call(strings.Fields(call)...); reply[0] == '-' {
				t.Fatalf("round %d: %s: %s", round, call, reply)
			}
		}
		set("-set", "-get", "-watch")
		if got := tx.call("EXEC"); got != want {
			t.Errorf("round %d: EXEC: %q, want %q", round, got, want)
		}
		if got := admin.Get(ctx, "k:1").Val(); got != "v" {
			t.Errorf("round %d: EXEC wrote %q", round, got)
		}
		wantDenied(t, "GET", app.Do(ctx, "GET", "k:1").Err())
		wantDenied(t, "SET", app.Do(ctx, "SET", "k:1", "x").Err())
		wantDenied(t, "EVAL", app.Do(ctx, "EVAL", "return redis.call('get','k:1')", 0).Err())
		wantDenied(t, "EVAL_RO", app.Do(ctx, "EVAL_RO", "return redis.call('get','k:1')", 0).Err())
		_, _ = app.Close(), tx.Close()
	}
}

// What a revocation ends: a pipeline, subscriptions, and the sessions of a removed user, on every
// node.
func TestRevocationEnds(t *testing.T) {
	ps, _ := startWithUsers(t, 3)
	ctx := context.Background()
	admin := as(t, ps[0], "admin", adminPassword)
	var revoked atomic.Bool
	pipelined := make(chan error, len(ps))
	type subscription struct {
		p      *process
		ch, ok *redis.PubSub
	}
	var subs []subscription
	for _, p := range ps {
		s := subscription{p, as(t, p, "app", appPassword).Subscribe(ctx, "ch:1"),
			as(t, p, "app", appPassword).Subscribe(ctx, "ch:2")}
		for _, sub := range []*redis.PubSub{s.ch, s.ok} {
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		subs = append(subs, s)
		app := as(t, p, "app", appPassword)
		go func() { pipelined <- pipelineUntilDenied(ctx, app, &revoked) }()
	}
	wait.For(t, 20*time.Second, "the pipelines", func() bool {
		return admin.Exists(ctx, "k:n").Val() == 1
	})
	if err := admin.Do(ctx, "ACL", "SETUSER", "app", "-incr", "resetchannels",
		"&ch:2").Err(); err != nil {
		t.Fatal(err)
	}
	revoked.Store(true)
	if err := admin.Publish(ctx, "ch:1", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Publish(ctx, "ch:2", "public").Err(); err != nil {
		t.Fatal(err)
	}
	for range ps {
		if err := <-pipelined; err != nil {
			t.Error(err)
		}
	}
	for _, s := range subs {
		if m, err := s.ch.ReceiveTimeout(ctx, 20*time.Second); err == nil {
			t.Errorf("%s delivered %v to a subscriber without rights", s.p.id, m)
		} else if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "NOPERM") &&
			!strings.Contains(err.Error(), "reset by peer") {
			t.Errorf("%s: the subscription ended with %v", s.p.id, err)
		}
		m, err := s.ok.ReceiveTimeout(ctx, 20*time.Second)
		if msg, ok := m.(*redis.Message); err != nil || !ok || msg.Payload != "public" {
			t.Errorf("%s: %v, %v", s.p.id, m, err)
		}
	}

	// removed, on every node
	var idle []*redis.Conn
	for _, p := range ps {
		c := as(t, p, "app", appPassword).Conn()
		if err := c.Ping(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	if n, err := admin.Do(ctx, "ACL", "DELUSER", "app").Int(); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	for i, c := range idle {
		wantEnded(t, ps[i], c)
		_ = c.Close()
		wait.For(t, 20*time.Second, "the end of the sessions", func() bool {
			list := as(t, ps[i], "admin", adminPassword).ClientList(ctx).Val()
			return list != "" && !strings.Contains(list, "user=app")
		})
	}
}

// wantEnded fails if a session of a removed user still runs anything.
func wantEnded(t *testing.T, p *process, c *redis.Conn) {
	t.Helper()
	if err := c.Set(context.Background(), "k:x", "y", 0).Err(); err == nil {
		t.Errorf("%s serves a removed user", p.id)
	}
}

// pipelineUntilDenied increments a counter in pipelines until that is denied. It fails if one that
// was begun after the revocation succeeded.
func pipelineUntilDenied(ctx context.Context, c *redis.Client, revoked *atomic.Bool) error {
	for {
		after := revoked.Load()
		cmds, _ := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 50 {
				p.Incr(ctx, "k:n")
			}
			return nil
		})
		for _, cmd := range cmds {
			switch err := cmd.Err(); {
			case err == nil && after:
				return errors.New("a command of a pipeline ran after the revocation")
			case err != nil && strings.HasPrefix(err.Error(), "NOPERM"):
				return nil
			case err != nil && errorWord(err) != "TRYAGAIN":
				return err
			}
		}
	}
}

// Passwords stay in the session: they are in no file of a node, no log, no backup, no answer.
func TestPasswordsAreNowhere(t *testing.T) {
	trails := t.TempDir()
	ps, users := startWithUsers(t, 3, func(p *process) {
		p.args = append(p.args, "--audit-log", filepath.Join(trails, p.id))
	})
	ctx := context.Background()
	admin := as(t, ps[0], "admin", adminPassword)
	if err := admin.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err(); err != nil {
		t.Fatal(err)
	}
	monitor, err := net.Dial("tcp", ps[0].addr)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	var lines wait.Buffer
	go func() { _, _ = io.Copy(&lines, monitor) }()
	if _, err := io.WriteString(monitor, "AUTH admin "+adminPassword+
		"\r\nMONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, 20*time.Second, "MONITOR", func() bool {
		return strings.Count(lines.String(), "+OK") == 2
	})
	const lockValue = "value-of-a-lock" // the trail shows no values
	secrets := []string{adminPassword, appPassword, newPassword}
	for _, call := range [][]any{
		{"ACL", "SETUSER", "app", ">" + newPassword}, {"ACL", "SETUSER", "app", "<" + newPassword},
		{"ACL", "SETUSER", "app", "(+get >" + newPassword + ")"},
		{"ACL", "SETUSER", "app", newPassword}, {"ACL", "SETUSER", "app", "<" + newPassword},
		{"ACL", "SETUSER", "app", "on", ">" + newPassword, "+nosuch"},
		{"AUTH", "app", newPassword}, {"AUTH", "admin", adminPassword},
		{"HELLO", "2", "AUTH", "app", newPassword}, {"HELLO", "2", "AUTH", "admin", adminPassword},
		{"MULTI"}, {"ACL", "SETUSER", "app", ">" + newPassword}, {"AUTH", "admin", adminPassword},
		{"EXEC"}, {"CONFIG", "SET", "requirepass", newPassword}, {"CONFIG", "GET", "requirepass"},
		{"AUTH", newPassword}, {"AUTH", "app", newPassword, newPassword}, {"EVAL", "return 1", "0"},
		{"SET", "lock", lockValue, "NX", "PX", 60_000},
		{"LOCKS", "EXTEND", "lock", lockValue, 1, 60_000},
		{"LOCKS", "RELEASE", "lock", lockValue, 1},
		{"ACL", "SAVE"}, {"ACL", "LOAD"},
	} {
		reply, err := admin.Do(ctx, call...).Text()
		for _, s := range secrets {
			if strings.Contains(reply, s) || err != nil && strings.Contains(err.Error(), s) &&
				call[0] != "ACL" { // an error repeats a rule that is none
				t.Errorf("%v: %s, %v", call[:2], reply, err)
			}
		}
	}
	wait.For(t, 20*time.Second, "the lines of MONITOR", func() bool {
		return strings.Contains(lines.String(), `"EVAL"`)
	})
	var seen strings.Builder
	seen.WriteString(lines.String())
	slow, err := admin.SlowLogGet(ctx, -1).Result()
	if err != nil || len(slow) < 10 {
		t.Fatal(slow, err)
	}
	for _, e := range slow {
		seen.WriteString(strings.Join(e.Args, " "))
	}
	for _, s := range []any{"ACL LIST", "ACL LOG", "CLIENT LIST", "INFO everything"} {
		words := strings.Fields(s.(string))
		seen.WriteString(admin.Do(ctx, words[0], words[1]).String())
	}
	file, password := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(adminPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, "backup", "--from", ps[1].addr, "--user", "admin", "--password-file", password, file)
	for _, p := range ps {
		p.stop()
		seen.WriteString(p.log.String())
	}
	// The node had something to hide: its trail has these calls.
	trail, err := os.ReadFile(filepath.Join(trails, ps[0].id))
	for _, event := range []string{"auth", "hello", "acl|setuser", "acl|save", "config|set",
		"locks|extend", "locks|release"} {
		if !bytes.Contains(trail, []byte(`"event":"`+event+`"`)) {
			t.Errorf("the audit trail has no %s, %v:\n%s", event, err, trail)
		}
	}
	roots := []string{file, users, trails}
	for _, p := range ps {
		roots = append(roots, p.dataDir())
	}
	for _, root := range roots {
		searchFor(t, root, secrets)
	}
	searchFor(t, trails, []string{lockValue})
	for _, s := range secrets {
		if strings.Contains(seen.String(), s) {
			t.Errorf("%q is in MONITOR, the slow log, a log or an answer", s)
		}
	}
}

// searchFor fails if a file below root contains one of the secrets.
func searchFor(t *testing.T, root string, secrets []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, s := range secrets {
			if bytes.Contains(content, []byte(s)) {
				t.Errorf("%q is in %s", s, path)
			}
		}
		files++
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%s: %d files, %v", root, files, err)
	}
}

// An administrator who is locked out comes back with the disk of one node, while the others go on.
func TestResetDefaultUser(t *testing.T) {
	ps, _ := startWithUsers(t, 3)
	ctx := context.Background()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(newPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, "reset-default-user", "--data-dir", ps[1].dataDir(), "--password-file", password)
	ps[1].stop()
	ps[1].start()
	for _, p := range ps {
		c := as(t, p, "default", newPassword)
		wait.For(t, 20*time.Second, "the default user", func() bool {
			return c.Do(ctx, "ACL", "WHOAMI").Val() == "default"
		})
		if err := c.Do(ctx, "CONFIG", "GET", "port").Err(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(ps[1].dataDir(), "reset*")); left != nil {
		t.Error("left over:", left)
	}
	if code, _, errs := command(t, "reset-default-user", "--data-dir", t.TempDir(),
		"--password-file", password); code != 1 || !strings.Contains(errs, "no data directory") {
		t.Errorf("without a node's data: exit %d, %s", code, errs)
	}
}

// TestFirstUserOfANewCluster makes a user on each node as soon as the node answers: a cluster that
// was founded by all of its founders has what this release has.
func TestFirstUserOfANewCluster(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		var asked sync.WaitGroup
		var refused atomic.Int32
		ps := startProcessesWith(t, nodes, func(p *process) {
			asked.Go(func() {
				c := p.client()
				wait.For(t, 20*time.Second, p.id+" makes a user", func() bool {
					err := c.Do(context.Background(), "ACL", "SETUSER", "of-"+p.id, "on").Err()
					if err != nil && strings.Contains(err.Error(), "feature level") {
						refused.Add(1)
					}
					return err == nil
				})
			})
		})
		asked.Wait()
		founded := slices.ContainsFunc(ps, func(p *process) bool {
			return strings.Contains(p.log.String(), `"members":"n1,n2,n3"`) || nodes == 1
		})
		if founded && refused.Load() > 0 {
			t.Errorf("%d nodes: %d calls were refused as of a later level", nodes, refused.Load())
		}
	}
}
