package fsm

// Requests of one entry that change users, and what a script pays for its user.

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
)

// userEntry applies requests of a user as one entry, at an index, and returns the result.
func userEntry(t *testing.T, m *Machine, index uint64, requests ...commands.Request) Result {
	t.Helper()
	var batch []byte
	for i := range requests {
		requests[i].Proto = 2
		batch = commands.AppendRequest(batch, &requests[i])
	}
	result, err := m.Apply(index, &Entry{ClockMs: int64(index), Batches: [][]byte{batch}}, true)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func userCall(words ...string) commands.Request {
	return commands.Request{Cmds: [][][]byte{commandtest.Args(words...)}}
}

// ACL SETUSER behind CONFIG SET requirepass, in the same entry, must not bring the old default user
// back.
func TestSettingsAndCommandsOfAnEntryChangeTheSameUsers(t *testing.T) {
	m := newestMachine(testTable())
	hash := acl.Hash([]byte("secret"))
	settings := [][]string{
		{commands.SettingPassword, hash},
		{commands.SettingDefaultUser, "", "resetpass", "#" + hash},
		{commands.SettingUsers, "user default on #" + hash + " ~* &* +@all"},
	}
	changed := func() string { return strconv.FormatUint(uint64(m.Users().Changed), 10) }
	for i, words := range settings {
		if words[0] == commands.SettingDefaultUser {
			words[1] = changed()
		}
		setting := userCall(words...)
		setting.System = true
		change := userCall("ACL", "SETUSER", "bob", "on", words[0])
		change.Cmds[0] = change.Cmds[0][:4]
		change.User = commands.UserID{Name: []byte(acl.DefaultUser)}
		replies := userEntry(t, m, uint64(1+i), setting, change).Replies
		if want := []byte("+OK\r\n+OK\r\n"); !bytes.Equal(replies[0], want) {
			t.Fatalf("%s: %q", words[0], replies[0])
		}
		if d := m.Users().Default(); d.NoPass() || !d.Accepts([]byte(hash)) {
			t.Errorf("%s was lost: %s", words[0], d)
		}
		if m.Users().Get([]byte("bob")) == nil {
			t.Errorf("%s: there is no bob", words[0])
		}
		reset := userCall(commands.SettingDefaultUser, changed(), "nopass")
		reset.System = true
		userEntry(t, m, uint64(11+i), reset)
	}
}

// A script must not occupy the machine with checks of keys that cost it nothing.
func TestScriptsPayForTheirUsersPatterns(t *testing.T) {
	detector.Skip(t)
	m := newestMachine(testTable())
	rules := []string{"ACL", "SETUSER", "bob", "on", "nopass", "+@all"}
	for i := range 900 {
		rules = append(rules, fmt.Sprintf("~pattern:%04d", i))
	}
	userEntry(t, m, 1, userCall(rules...))
	bob := m.Users().Get([]byte("bob"))
	if bob == nil {
		t.Fatal("there is no bob")
	}
	script := userCall("EVAL", `local keys = {} for i = 1, 500 do keys[i] = "pattern:0899" end
		for i = 1, 100 do redis.pcall("EXISTS", unpack(keys)) end`, "0")
	script.User = commands.UserID{Name: []byte("bob"), Created: bob.Created()}
	if r := userEntry(t, m, 2, script); r.Spent > 2*commands.MaxRequestWork {
		t.Errorf("%d units of work, a request may do %d", r.Spent, commands.MaxRequestWork)
	}
}

// The limits of users agree with those of requests: whatever users there can be, ACL LOAD takes the
// file of ACL SAVE, ACL LIST and ACL GETUSER show them, and ACL DELUSER deletes them.
func TestAllUsersCanBeShown(t *testing.T) {
	detector.Skip(t)
	rules := func(n int, rule string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, " "+rule, i)
		}
		return text.String()
	}
	for what, c := range map[string]struct {
		users int
		rules string
	}{
		"users":           {5200, " +@all -@read -@string +get"},
		"selectors":       {66, rules(85, "(+@read -@hash ~%d)")},
		"patterns":        {64, rules(900, "~%03d")},
		"first arguments": {64, rules(450, "+get|%d")},
		"bytes":           {3500, rules(1, "~"+strings.Repeat("x", 1020)+"%d")},
	} {
		var file strings.Builder
		for i := range c.users {
			fmt.Fprintf(&file, "user u%d%s\n", i, c.rules)
		}
		m := newestMachine(testTable())
		load := userCall(commands.SettingFirstUsers, file.String())
		load.System = true
		began := time.Now()
		if r := userEntry(t, m, 1, load); !bytes.Equal(r.Replies[0], []byte("+OK\r\n")) {
			t.Fatalf("%s: %.200q", what, r.Replies[0])
		} else {
			t.Logf("%s: loaded with %d units in %v", what, r.Spent, time.Since(began))
		}
		load = userCall(commands.SettingUsers, string(m.Users().File()))
		load.System = true
		if r := userEntry(t, m, 2, load); !bytes.Equal(r.Replies[0], []byte("+OK\r\n")) {
			t.Errorf("%s: %.200q", what, r.Replies[0])
		}
		for _, call := range []commands.Request{userCall("ACL", "LIST"), userCall("ACL", "USERS"),
			userCall("ACL", "GETUSER", "u0")} {
			call.Proto = 2
			began := time.Now()
			reply, work := m.ReadWork(nil, commands.AppendRequest(nil, &call), 1, 1, nil, false)
			if reply[0] != '*' || work > commands.MaxRequestWork {
				t.Errorf("%s: %s: %.200q, %d units", what, call.Cmds[0], reply, work)
			}
			t.Logf("%s: %s: %d bytes with %d units in %v", what, call.Cmds[0], len(reply), work,
				time.Since(began))
		}
		names := []string{"ACL", "DELUSER"}
		for i := range c.users {
			names = append(names, fmt.Sprint("u", i))
		}
		began = time.Now()
		r := userEntry(t, m, 3, userCall(names...))
		if want := fmt.Sprintf(":%d\r\n", c.users); string(r.Replies[0]) != want {
			t.Errorf("%s: %.200q, want %q", what, r.Replies[0], want)
		}
		t.Logf("%s: deleted with %d units in %v", what, r.Spent, time.Since(began))
	}
}

// Settings and passwords count as work: an entry ends behind a large one, a batch of reads too.
func TestSettingsAreWork(t *testing.T) {
	detector.Skip(t)
	m := newestMachine(testTable())
	var file strings.Builder
	for i := range 60 {
		fmt.Fprintf(&file, "user u%d", i)
		for k := range 900 {
			fmt.Fprintf(&file, " ~%03d", k)
		}
		file.WriteByte('\n')
	}
	load := userCall(commands.SettingUsers, file.String())
	load.System = true
	r := userEntry(t, m, 1, load, load, load)
	if r.Spent < entryWork || r.Spent > 2*commands.MaxRequestWork ||
		bytes.Count(r.Replies[0], []byte("+OK")) != 1 {
		t.Errorf("%d units, replies %q", r.Spent, r.Replies[0])
	}
	auth := userCall(commands.SystemAuth, "nobody", "x")
	auth.System = true
	auth.Proto = 2
	batch := bytes.Repeat(commands.AppendRequest(nil, &auth), 200_000)
	replies, work := m.ReadWork(nil, batch, 1, 1, nil, false)
	n := bytes.Count(replies, []byte("-WRONGPASS"))
	if n == 0 || n == 200_000 || work < uint64(10*n) {
		t.Errorf("%d passwords were tried, with %d units", n, work)
	}
}
