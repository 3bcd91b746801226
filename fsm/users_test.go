package fsm

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// as is a request of a user; without a name, of a connection that has not authenticated.
func as(user string, created uint64, calls ...string) []byte {
	q := commands.Request{Proto: 2, Multi: len(calls) > 1}
	if user != "" {
		q.User = commands.UserID{Name: []byte(user), Created: created}
	}
	for _, c := range calls {
		q.Cmds = append(q.Cmds, commandtest.Args(strings.Fields(c)...))
	}
	return commands.AppendRequest(nil, &q)
}

// settingOf is a request for a setting.
func settingOf(user string, created uint64, words ...string) []byte {
	q := commands.Request{Proto: 2, System: true, Cmds: [][][]byte{commandtest.Args(words...)}}
	if user != "" {
		q.User = commands.UserID{Name: []byte(user), Created: created}
	}
	return commands.AppendRequest(nil, &q)
}

// users is a machine with users, and the entries that made it.
type users struct {
	t       *testing.T
	m       *Machine
	entries []*Entry
}

func newUsersTest(t *testing.T) *users {
	u := &users{t: t, m: NewMachine(testTable())}
	u.entry(&Entry{ClockMs: 1, Level: commands.LevelSecond})
	return u
}

func (u *users) entry(e *Entry) []string {
	u.t.Helper()
	u.entries = append(u.entries, e)
	result, err := u.m.Apply(uint64(len(u.entries)), e, true)
	if err != nil {
		u.t.Fatal(err)
	}
	var replies []string
	for _, r := range result.Replies {
		_, rest := commands.CutDenials(r)
		replies = append(replies, string(rest))
	}
	return replies
}

// do applies one request and returns its reply.
func (u *users) do(request []byte) string {
	u.t.Helper()
	return u.entry(&Entry{ClockMs: 1, Batches: [][]byte{request}})[0]
}

func (u *users) want(request []byte, prefix string) {
	u.t.Helper()
	if got := u.do(request); !strings.HasPrefix(got, prefix) {
		u.t.Errorf("got %q, want %q", got, prefix)
	}
}

func (u *users) created(name string) uint64 { return u.m.Users().Get([]byte(name)).Created() }

// A request is decided with the users of the moment in which it runs: also within an entry, in a
// read, in a dry run and in a script, and for a user of the same name who came later.
func TestUsersDecideWhenARequestRuns(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "ACL SETUSER bob on nopass ~b:* +@all"), "+OK")
	bob := u.created("bob")
	if bob == 0 {
		t.Fatal("bob has no creation")
	}
	u.want(as("bob", bob, "SET b:1 x"), "+OK")
	u.want(as("bob", bob, "SET x x"), "-NOPERM")
	u.want(as("bob", bob, "SET b:2 x", "GET x"), "*2\r\n+OK\r\n-NOPERM ACLs rules changed")
	got := u.entry(&Entry{ClockMs: 1, Batches: [][]byte{
		as("bob", bob, "GET b:1"), as("", 0, "ACL SETUSER bob -get"), as("bob", bob, "GET b:1")}})
	if got[0] != "$1\r\nx\r\n" || !strings.HasPrefix(got[2], "-NOPERM") {
		t.Errorf("around the revocation: %q", got)
	}
	for _, read := range []string{"GET b:1", "EVAL return{redis.call('get','b:1')} 0",
		"EVAL_RO return{redis.call('get','b:1')} 0"} {
		reply := u.m.Read(nil, as("bob", bob, read), 1, 1)
		if _, reply = commands.CutDenials(reply); !strings.Contains(string(reply), "-NOPERM") &&
			!strings.Contains(string(reply), "can't run this command") && len(reply) > 0 {
			t.Errorf("%s as a read: %q", read, reply)
		}
	}
	// a write that is denied changes nothing, so its dry run is final
	if reply := u.m.Read(nil, as("bob", bob, "SET x y NX"), 1, 1); !strings.Contains(string(reply),
		"-NOPERM") {
		t.Errorf("a denied write as a dry run: %q", reply)
	}
	u.want(as("", 0, "ACL DELUSER bob"), ":1")
	u.want(as("bob", bob, "SET b:1 y"), "-NOPERM the user of this connection was removed")
	u.want(as("", 0, "ACL SETUSER bob on nopass ~* +@all"), "+OK")
	u.want(as("bob", bob, "SET b:1 y"), "-NOPERM the user of this connection was removed")
	u.want(as("bob", u.created("bob"), "SET b:1 y"), "+OK")
}

// What a request was denied precedes its reply, which is whole.
func TestDenialsAreTold(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "ACL SETUSER bob on nopass ~b:* &c +@all -del"), "+OK")
	bob := u.created("bob")
	lease := strings.Trim(u.do(as("", 0, "LEASE GRANT 100000")), ":\r\n")
	for _, c := range []struct {
		calls []string
		want  commands.Denied
	}{
		{[]string{"LEASE INFO " + lease}, commands.Denied{Reason: "command", Context: "toplevel",
			Object: "lease|info", Count: 1}},
		{[]string{"IDEMPOTENT r SET b:1 x LEASE " + lease}, commands.Denied{Reason: "command",
			Context: "toplevel", Object: "set", Count: 1}},
		{[]string{"GET b:1", "LOCK.ACQUIRE b:1 me LEASE " + lease + " WAIT 0"}, commands.Denied{
			Reason: "command", Context: "multi", Object: "lock.acquire", Count: 1}},
		{[]string{"EVAL redis.pcall('lease','revoke','" + lease + "') 0"}, commands.Denied{
			Reason: "command", Context: "lua", Object: "lease|revoke", Count: 1}},
		{[]string{"GET x"}, commands.Denied{Reason: "key", Context: "toplevel", Object: "x",
			Count: 1}},
		{[]string{"DEL b:1"}, commands.Denied{Reason: "command", Context: "toplevel", Object: "del",
			Count: 1}},
		{[]string{"SET b:1 1", "GET x"}, commands.Denied{Reason: "key", Context: "multi",
			Object: "x", Count: 1}},
		{[]string{"EVAL redis.pcall('get','x')redis.pcall('get','x') 0"}, commands.Denied{
			Reason: "key", Context: "lua", Object: "x", Count: 2}},
		{[]string{"GET b:1"}, commands.Denied{Reason: "command", Context: "toplevel", Object: "get",
			Count: 1}},
		{[]string{"GET b:1", "GET b:2"}, commands.Denied{Reason: "command", Context: "multi",
			Object: "exec", Count: 1}},
	} {
		request := as("bob", bob, c.calls...)
		if c.want.Object == "exec" || c.want.Object == "get" {
			u.do(as("", 0, "ACL DELUSER bob")) // who is gone already in the second of these
		}
		result, err := u.m.Apply(100+uint64(len(c.calls)), &Entry{ClockMs: 1,
			Batches: [][]byte{append(bytes.Clone(request), as("", 0, "PING")...)}}, true)
		if err != nil {
			t.Fatal(err)
		}
		told, rest := commands.CutDenials(result.Replies[0])
		if len(told) != 1 || told[0] != c.want || !bytes.HasSuffix(rest, []byte("+PONG\r\n")) {
			t.Errorf("%q: told %+v, then %q", c.calls, told, rest)
		}
	}
}

// A transaction that changes its own user goes on with the rights that are left, as in Redis.
func TestTransactionsThatChangeTheirUser(t *testing.T) {
	const ok, changed, gone = "+OK\r\n", "-NOPERM ACLs rules changed between the moment the " +
		"transaction was accumulated and the EXEC call. This command is no longer allowed for " +
		"the following reason: no permission to ", "-NOPERM the user of this connection was " +
		"removed\r\n"
	for name, c := range map[string]struct {
		user, rules string // of the user before
		calls       []string
		want        string
		denied      int
	}{
		"takes away": {"me", "~* &* +@all", []string{"ACL SETUSER me -@all", "SET k v"},
			"*2\r\n" + ok + changed + "execute the command or subcommand\r\n", 1},
		"takes keys away": {"me", "~* &* +@all", []string{"SET k v",
			"ACL SETUSER me resetkeys ~a", "SET a v", "SET k w", "GET k"}, "*5\r\n" + ok + ok + ok +
			changed + "touch the specified keys\r\n" + changed + "touch the specified keys\r\n", 2},
		"gives": {"me", "+@all", []string{"SET k v", "ACL SETUSER me ~*", "GET k"},
			"*3\r\n" + changed + "touch the specified keys\r\n" + ok + "$-1\r\n", 1},
		"removes": {"me", "~* &* +@all", []string{"ACL DELUSER me", "SET k v",
			"ACL SETUSER me on nopass ~* +@all", "GET k"}, "*4\r\n:1\r\n" + gone + gone + gone, 3},
		"the default user's": {"", "", []string{"ACL SETUSER default >pw -get", "SET k v", "GET k"},
			"*3\r\n" + ok + ok + changed + "execute the command or subcommand\r\n", 1},
	} {
		u := newUsersTest(t)
		created := uint64(0)
		if c.user != "" {
			u.want(as("", 0, "ACL SETUSER "+c.user+" on nopass "+c.rules), "+OK")
			created = u.created(c.user)
		}
		result, err := u.m.Apply(50, &Entry{ClockMs: 1, Batches: [][]byte{
			as(c.user, created, c.calls...), as("", 0, "PING")}}, true)
		if err != nil {
			t.Fatal(err)
		}
		denials, reply := commands.CutDenials(result.Replies[0])
		denied := 0
		for _, d := range denials {
			denied += int(d.Count)
		}
		if string(reply) != c.want || denied != c.denied {
			t.Errorf("%s: %d denied: %q\nwant %q", name, denied, reply, c.want)
		}
		if first, _ := commands.CutDenials(result.Replies[1]); len(first) != 0 {
			t.Errorf("%s: the next request is told %v", name, first)
		}
	}
}

// Without a name a request is the default user's, as long as that needs no password.
func TestRequestsWithoutAUser(t *testing.T) {
	u := newUsersTest(t)
	hash := acl.Hash([]byte("secret"))
	u.want(as("", 0, "SET a 1"), "+OK")
	u.want(settingOf("", 0, commands.SettingPassword, hash), "+OK")
	u.want(as("", 0, "SET a 1"), "-NOAUTH")
	u.want(as("", 0, "SET a 1", "GET a"), "-NOAUTH")
	u.want(settingOf("", 0, commands.SettingPassword), "-NOAUTH")
	u.want(settingOf("", 0, commands.SettingNotify, "KEA"), "-NOAUTH")
	u.want(as("default", 0, "SET a 1"), "+OK")
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{commands.SystemAuth, hash}, ":0\r\n"},
		{[]string{commands.SystemAuth, "default", hash}, ":0\r\n"},
		{[]string{commands.SystemAuth, acl.Hash([]byte("no"))}, "-WRONGPASS"},
		{[]string{commands.SystemAuth, "secret"}, "-WRONGPASS"},
		{[]string{commands.SystemAuth, "nobody", hash}, "-WRONGPASS"},
		{[]string{commands.SystemUser, "default"}, ":0\r\n"},
		{[]string{commands.SystemUser, "nobody"}, "-WRONGPASS"},
		{[]string{commands.SystemAuth}, "-ERR a setting is not read"},
		{[]string{commands.SystemUser}, "-ERR a setting is not read"},
		{[]string{commands.SettingUsers}, "-NOAUTH"},
		{[]string{commands.SettingPassword, hash}, "-ERR a setting is not read"},
	} {
		if got := u.m.Read(nil, settingOf("", 0, c.words...), 1, 1); !strings.HasPrefix(string(got),
			c.want) {
			t.Errorf("%q: %q", c.words, got)
		}
	}
	u.want(settingOf("default", 0, commands.SettingPassword), "+OK")
	u.want(as("", 0, "GET a"), "$1")
}

// Settings need the right to the commands that change them; those of a node at its start do not.
func TestSettingsNeedRights(t *testing.T) {
	u := newUsersTest(t)
	file := "user default off\nuser ops on nopass ~* &* +@all\n" +
		"user bob on nopass ~* +@all -config -acl\n"
	u.want(settingOf("", 0, commands.SettingFirstUsers, file), "+OK")
	u.want(as("", 0, "GET a"), "-NOAUTH")
	bob, ops := u.created("bob"), u.created("ops")
	u.want(settingOf("bob", bob, commands.SettingPassword), "-NOPERM")
	u.want(settingOf("bob", bob, commands.SettingNotify, "KEA"), "-NOPERM")
	u.want(settingOf("bob", bob, commands.SettingUsers, file), "-NOPERM")
	u.want(settingOf("ops", ops, commands.SettingNotify, "KEA"), "+OK")
	read := func(name string, created uint64) string {
		return string(u.m.Read(nil, settingOf(name, created, commands.SettingUsers), 1, 1))
	}
	if got := read("bob", bob); !strings.Contains(got, "'acl|save'") {
		t.Errorf("bob saves %q", got)
	}
	if got := read("ops", ops); !strings.Contains(got, "\r\nuser bob on nopass ~* ") {
		t.Errorf("ops saves %q", got)
	}
	// the first users come once
	u.want(settingOf("", 0, commands.SettingFirstUsers, "user default on nopass +@all\n"), "+OK")
	u.want(as("", 0, "GET a"), "-NOAUTH")
	// whoever stays is the same, whoever goes is gone
	u.want(settingOf("ops", ops, commands.SettingUsers,
		"user default off\nuser ops on nopass ~* &* +@all\n"), "+OK")
	u.want(as("ops", ops, "SET a 1"), "+OK")
	u.want(as("bob", bob, "GET a"), "-NOPERM the user of this connection")
	u.want(settingOf("ops", ops, commands.SettingUsers, "user default +nosuch\n"), "-ERR")
	reset := func() []byte {
		return settingOf("", 0, commands.SettingDefaultUser,
			strconv.FormatUint(uint64(u.m.Users().Changed), 10), "reset", "on",
			"#"+acl.Hash([]byte("x")), "~*", "&*", "+@all")
	}
	early := reset()
	u.want(settingOf("ops", ops, commands.SettingUsers,
		"user default off\nuser ops on nopass ~* &* +@all\n"), "+OK")
	u.want(early, "-"+commands.ErrUsersChanged.Error())
	u.want(as("default", 0, "GET a"), "-NOPERM")
	late := reset()
	u.want(late, "+OK")
	u.want(late, "-"+commands.ErrUsersChanged.Error())
	u.want(as("default", 0, "GET a"), "$1")
}

// Two machines, one of them restored half-way and one that builds no replies, have equal users,
// hashes and snapshots. A change of users changes the hash.
func TestUsersAgree(t *testing.T) {
	u := newUsersTest(t)
	before := u.m.Sum().Sum
	u.want(as("", 0, "ACL SETUSER bob on #"+acl.Hash([]byte("p"))+" %R~r:* ~b:* &c:* +@all -@slow "+
		"(+get ~x)"), "+OK")
	if u.m.Sum().Sum == before {
		t.Error("a new user does not change the running hash")
	}
	joined, since := restored(t, u.m), len(u.entries)
	u.want(as("", 0, "ACL SETUSER eve on nopass +get"), "+OK")
	u.want(as("", 0, "ACL SETUSER bob off -@write"), "+OK")
	u.want(as("", 0, "ACL DELUSER eve"), ":1")
	u.want(settingOf("", 0, commands.SettingPassword, acl.Hash([]byte("q"))), "+OK")
	u.want(as("eve", 7, "GET b:1"), "-NOPERM")
	silent := NewMachine(testTable())
	for i, e := range u.entries {
		if _, err := silent.Apply(uint64(i+1), e, false); err != nil {
			t.Fatal(err)
		}
		if i < since {
			continue
		}
		if _, err := joined.Apply(uint64(i+1), e, false); err != nil {
			t.Fatal(err)
		}
	}
	want := snapshotBytes(t, u.m.Snapshot())
	for name, m := range map[string]*Machine{"the silent one": silent, "the restored one": joined,
		"its copy": restored(t, u.m)} {
		if m.Sum() != u.m.Sum() || !bytes.Equal(snapshotBytes(t, m.Snapshot()), want) {
			t.Errorf("%s has another state", name)
		}
		if m.Users().Changed != u.m.Users().Changed || m.Users().Open {
			t.Errorf("%s: %+v", name, m.Users())
		}
	}
}

// Below LevelSecond there are no users but the first, whatever a request says.
func TestNoUsersBelowTheirLevel(t *testing.T) {
	m := NewMachine(testTable())
	result, err := m.Apply(1, &Entry{ClockMs: 1, Batches: [][]byte{
		as("", 0, "ACL SETUSER bob on"), settingOf("", 0, commands.SettingPassword, "x"),
		as("bob", 1, "SET a 1")}}, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"-ERR unknown subcommand", "-ERR no such setting", "+OK"} {
		if !strings.HasPrefix(string(result.Replies[i]), want) {
			t.Errorf("%q, want %q", result.Replies[i], want)
		}
	}
	if m.Users().Changed != 0 || m.Users().Len() != 1 {
		t.Errorf("%+v", m.Users())
	}
	if head := snapshotBytes(t, m.Snapshot()); bytes.Contains(head, []byte("default")) {
		t.Error("its snapshot has users")
	}
}

// A machine that a snapshot of a level without users made knows its level's commands in its users.
func TestUsersOfOldSnapshots(t *testing.T) {
	m := NewMachine(testTable())
	if _, err := m.Apply(1, &Entry{ClockMs: 1}, false); err != nil {
		t.Fatal(err)
	}
	again := restored(t, m)
	if have, want := again.Users(), m.Users(); have.Level != firstLevel ||
		want.Level != firstLevel || !have.Open || !have.Default().Full() {
		t.Errorf("users of level %d, restored %d", want.Level, have.Level)
	}
}

// A transaction that watches keys which its user may not read any more does not tell whether they
// changed.
func TestWatchedKeysNeedRights(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "ACL SETUSER bob on nopass ~b:* +@all"), "+OK")
	q := commands.Request{Proto: 2, Multi: true, User: commands.UserID{Name: []byte("bob"),
		Created: u.created("bob")}, Watch: []commands.WatchedKey{{Key: []byte("b:1")}},
		Cmds: [][][]byte{commandtest.Args("PING")}}
	u.want(commands.AppendRequest(nil, &q), "*1\r\n+PONG")
	u.want(as("", 0, "ACL SETUSER bob resetkeys"), "+OK")
	u.want(commands.AppendRequest(nil, &q), "-NOPERM")
}

// TestGoldenUsers: a snapshot from LevelSecond on holds the users.
func TestGoldenUsers(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "ACL SETUSER bob on #"+acl.Hash([]byte("p"))+" %R~r:* ~b:* &c:* +@all -@slow "+
		"+config|get (+get ~x)"), "+OK")
	u.want(as("", 0, "ACL SETUSER eve skip-sanitize-payload"), "+OK")
	u.want(settingOf("", 0, commands.SettingPassword, acl.Hash([]byte("q"))), "+OK")
	path := goldenFiles + "users-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, u.m.Snapshot()))
	file := readGolden(t, path)
	m, err := ReadSnapshot(bytes.NewReader(file), testTable())
	if err != nil {
		t.Fatal(err)
	}
	want := "user bob on #148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940 " +
		"%R~r:* ~b:* &c:* +@all -@slow +config|get (~x +get)\n" +
		"user default on #8e35c2cd3bf6641bdb0e2050b76932cbb2e6034a0ddacc1d9bea82a6ba57f7cf ~* " +
		"&* +@all\nuser eve off skip-sanitize-payload\n"
	if got := string(m.Users().File()); got != want {
		t.Errorf("its users are\n%swant\n%s", got, want)
	}
	if got := m.Users().Changed; got != keyspace.NewRevision(0, 4, 0) {
		t.Errorf("changed at %d", got)
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
}

// A blocking command that is sent again is refused like any other once its user has no right to it,
// and has borrowed nothing.
func TestUsersDecideWhenAWaitIsSentAgain(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "ACL SETUSER bob on nopass ~* +@all -blpop"), "+OK")
	u.want(as("", 0, "RPUSH l x"), ":1")
	u.want(as("", 0, "SET s x"), "+OK")
	again := func(user, line string) []byte {
		q := lineRequest(line)
		q.Wait = &commands.Wait{Node: []byte("n1"), Era: 1, Number: 7, Order: 1}
		q.User = commands.UserID{Name: []byte(user), Created: u.created(user)}
		return commands.AppendRequest(nil, &q)
	}
	u.want(again("bob", "BLPOP l 0"), "-NOPERM")
	u.want(again("bob", "BRPOP s 0"), "-WRONGTYPE")
	if !u.m.waiting.lent.none() {
		t.Error("something is lent that was not taken")
	}
	u.want(again("bob", "BRPOP l 0"), "*2")
	if u.m.waiting.lent.none() {
		t.Error("what was taken is not lent")
	}
}
