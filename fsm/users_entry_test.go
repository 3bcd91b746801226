package fsm

// Requests of one entry that change users, and what a script pays for its user.

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
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
		{commands.SettingDefaultUser, "resetpass", "#" + hash},
		{commands.SettingUsers, "user default on #" + hash + " ~* &* +@all"},
	}
	for i, words := range settings {
		setting := userCall(words...)
		setting.Setting = true
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
		reset := userCall(commands.SettingDefaultUser, "nopass")
		reset.Setting = true
		userEntry(t, m, uint64(11+i), reset)
	}
}

// A script must not occupy the machine with checks of keys that cost it nothing.
func TestScriptsPayForTheirUsersPatterns(t *testing.T) {
	m := newestMachine(testTable())
	rules := []string{"ACL", "SETUSER", "bob", "on", "nopass", "+@all"}
	for i := range 1000 {
		rules = append(rules, fmt.Sprintf("~pattern:%04d", i))
	}
	userEntry(t, m, 1, userCall(rules...))
	bob := m.Users().Get([]byte("bob"))
	if bob == nil {
		t.Fatal("there is no bob")
	}
	script := userCall("EVAL", `local keys = {} for i = 1, 500 do keys[i] = "pattern:0999" end
		for i = 1, 100 do redis.pcall("EXISTS", unpack(keys)) end`, "0")
	script.User = commands.UserID{Name: []byte("bob"), Created: bob.Created()}
	if r := userEntry(t, m, 2, script); r.Spent > 2*commands.MaxRequestWork {
		t.Errorf("%d units of work, a request may do %d", r.Spent, commands.MaxRequestWork)
	}
}
