// Upgrades from release 0.1, whose binary is built from the history of the repository: the releases
// side by side, and when users begin to work.

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// startFirst starts a cluster of release 0.1.
func startFirst(t *testing.T, nodes int) []*process {
	t.Helper()
	if why := binaries.MissingFirst(); why != "" {
		t.Skip(why)
	}
	if _, err := binaries.First(); err != nil { // before anything waits for it
		t.Fatal(err)
	}
	return startProcessesWith(t, nodes, func(p *process) { p.first = true })
}

// upgrade stops a process of release 0.1 and starts it as this one.
func (p *process) upgrade(flags ...string) {
	p.t.Helper()
	p.stop()
	p.first = false
	p.args = append(p.args, flags...)
	p.start()
}

// lead transfers leadership to the process, on a busy machine in several attempts.
func (p *process) lead() {
	p.t.Helper()
	wait.For(p.t, 20*time.Second, p.id+" to lead", func() bool {
		if p.role() == "master" {
			return true
		}
		_, _ = p.raft("TRANSFER", p.id)
		return false
	})
}

// TestUsersAfterUpgrade: the new release refuses users while a node of 0.1 is there, and whoever
// leads, all commands of 0.1 go on. With the last node users work, on every node.
func TestUsersAfterUpgrade(t *testing.T) {
	tier.Check(t)
	ps := startFirst(t, 3)
	n1, n2, n3 := ps[0], ps[1], ps[2]
	w := startWriters([]*process{n1}, 2)
	n3.upgrade()
	n3.waitReady()
	const tooEarly = "users need feature level 3, which the cluster has once every node runs " +
		"coordd 0.2"
	const noPassword = "-ERR CONFIG SET failed (possibly related to argument 'requirepass') - " +
		tooEarly + "\r\n"
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	for _, leads := range []*process{n1, n3} {
		leads.lead()
		c := dialRaw(t, n3.addr)
		wait.For(t, 20*time.Second, "n3 to know the users", func() bool {
			return c.call("ACL", "LIST") == "*1\r\n$34\r\nuser default on nopass ~* &* +@all\r\n"
		})
		for call, want := range map[string]string{
			"ACL SETUSER app on >secret ~k:* +@all": "-ERR " + tooEarly + "\r\n",
			"ACL DELUSER app":                       "-ERR " + tooEarly + "\r\n",
			"CONFIG SET requirepass secret":         noPassword,
			"AUTH app secret":                       wrong,
			"ACL WHOAMI":                            "$7\r\ndefault\r\n",
			"SET k:1 v":                             "+OK\r\n",
		} {
			if got := c.call(strings.Fields(call)...); got != want {
				t.Errorf("%s leads, %s: %q, want %q", leads.id, call, got, want)
			}
		}
		for _, p := range ps {
			if v, err := p.steady("GET", "k:1"); v != "v" {
				t.Errorf("%s leads, GET on %s: %v %v", leads.id, p.id, v, err)
			}
		}
	}
	w.finish(t, n3.client())
	n2.upgrade()
	n2.waitReady()
	if level := n2.level(); level != 1 {
		t.Errorf("the level is %d before n1 has another", level)
	}
	n1.upgrade()
	n1.waitReady()
	awaitLevel(ps, thisLevel)
	if v, err := n2.steady("ACL", "SETUSER", "app", "on", ">"+appPassword, "~k:*",
		"+@all"); v != "OK" {
		t.Fatal(v, err)
	}
	for _, p := range ps {
		app := as(t, p, "app", appPassword)
		if v, err := app.Get(context.Background(), "k:1").Result(); v != "v" {
			t.Errorf("%s: GET: %q %v", p.id, v, err)
		}
		wantDenied(t, "GET of another key", app.Get(context.Background(), "other").Err())
	}
	sameState(t, ps)
}

// TestUsersFileDuringUpgrade: a node that is to give the cluster its first users serves nobody
// until it can, and says so. Those of 0.1 go on serving everybody.
func TestUsersFileDuringUpgrade(t *testing.T) {
	tier.Check(t)
	ps := startFirst(t, 3)
	n1, ctx := ps[0], context.Background()
	if err := n1.client().Set(ctx, "k:1", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(usersFile), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps[1:] {
		p.upgrade("--users-file", file)
		wait.For(t, 20*time.Second, p.id+" to wait for users", func() bool {
			code, body, _ := probe(p, "/readyz")
			return code == 503 && strings.Contains(body, "does not have its first users yet")
		})
		c := dialRaw(t, p.addr)
		for _, call := range []string{"GET k:1", "AUTH admin " + adminPassword, "INFO server"} {
			if got := c.call(strings.Fields(call)...); got != "-LOADING the command did not run: "+
				"the cluster does not have its first users yet\r\n" {
				t.Errorf("%s: %s: %q", p.id, call, got)
			}
		}
		// a client on its machine sees the members, as on a node that does not know the users
		if got := c.call("RAFT", "MEMBERS"); !strings.HasPrefix(got, "*3\r\n") {
			t.Errorf("%s: the members: %q", p.id, got)
		}
		upToDate(t, p.id, n1.client())
		if v, err := n1.steady("GET", "k:1"); v != "v" {
			t.Errorf("GET on 0.1: %v %v", v, err)
		}
	}
	n1.upgrade()
	for _, p := range ps {
		p.waitReady()
		admin := as(t, p, "admin", adminPassword)
		wait.For(t, 20*time.Second, "the users on "+p.id, func() bool {
			return admin.Get(ctx, "k:1").Val() == "v"
		})
		if err := p.client().Get(ctx, "k:1").Err(); err == nil || errorWord(err) != "NOAUTH" {
			t.Errorf("%s: without a password: %v", p.id, err)
		}
	}
}

// TestMaxMemoryAfterUpgrade: while a node of 0.1 is there, no node takes a limit of the data, and
// each says why. With the last node it works: all nodes have the same limit, count the same data
// and refuse the same write, also after a restart.
func TestMaxMemoryAfterUpgrade(t *testing.T) {
	tier.Check(t)
	ps := startFirst(t, 3)
	n1, n3 := ps[0], ps[2]
	n3.upgrade("--maxmemory", "64mb") // waits for the level
	n3.waitReady()
	const refused = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - "
	for _, leads := range []*process{n1, n3} {
		leads.lead()
		for _, p := range ps {
			want := refused + "can't set immutable config\r\n" // in 0.1
			if p == n3 {
				want = refused + "some nodes run an older release without it; try again when all " +
					"run this one\r\n"
			}
			var got string
			wait.For(t, 20*time.Second, "an answer of "+p.id, func() bool {
				got = dialRaw(t, p.addr).call("CONFIG", "SET", "maxmemory", "1mb")
				return strings.HasPrefix(got, "-ERR") || got == "+OK\r\n"
			})
			if got != want {
				t.Errorf("%s leads, CONFIG SET on %s: %q, want %q", leads.id, p.id, got, want)
			}
			if limit := p.maxMemory(); limit != "0" {
				t.Errorf("%s leads, the limit of %s is %s", leads.id, p.id, limit)
			}
		}
		if v, err := n3.steady("SET", "k:"+leads.id, strings.Repeat("x", 2<<20)); v != "OK" {
			t.Errorf("%s leads, SET past the limit that was refused: %v %v", leads.id, v, err)
		}
	}
	for _, p := range ps[:2] {
		p.upgrade("--maxmemory", "64mb")
		p.waitReady()
	}
	limits := func(want string) {
		t.Helper()
		for _, p := range ps {
			wait.For(t, 20*time.Second, p.id+" has the limit "+want, func() bool {
				return p.maxMemory() == want
			})
		}
	}
	limits("67108864")
	if v, err := n3.steady("CONFIG", "SET", "maxmemory", "6mb"); v != "OK" {
		t.Fatal(v, err)
	}
	limits("6291456")
	const full = "OOM command not allowed when used memory > 'maxmemory'."
	for i := 0; ; i++ {
		_, err := ps[i%3].steady("SET", fmt.Sprint("fill:", i), strings.Repeat("x", 256<<10))
		if err != nil && err.Error() == full && i > 4 {
			break
		}
		if err != nil || i > 20 {
			t.Fatalf("SET %d: %v", i, err)
		}
	}
	everywhere := func() {
		t.Helper()
		limits("6291456")
		sameState(t, ps)
		dataset := map[string]bool{}
		for _, p := range ps {
			if _, err := p.steady("SET", "new", "x"); err == nil || err.Error() != full {
				t.Errorf("SET on %s: %v", p.id, err)
			}
			if v, err := p.steady("SET", "fill:0", strings.Repeat("y", 256<<10)); v != "OK" {
				t.Errorf("a SET of what exists on %s: %v %v", p.id, v, err)
			}
			info := p.client().Info(context.Background(), "memory").Val()
			dataset[lines(info, "used_memory_dataset:")] = true
		}
		if len(dataset) != 1 {
			t.Errorf("the nodes count %v", dataset)
		}
	}
	everywhere()
	n3.mustRaft("SNAPSHOT")
	for _, p := range ps {
		p.restart(false)
	}
	everywhere()
	if _, err := n1.steady("DEL", "k:n1"); err != nil {
		t.Error(err)
	}
	if v, err := n3.steady("SET", "new", "x"); v != "OK" {
		t.Errorf("SET with room: %v %v", v, err)
	}
}

// maxMemory returns the limit of the data that a node shows.
func (p *process) maxMemory() string {
	return p.client().ConfigGet(context.Background(), "maxmemory").Val()["maxmemory"]
}
