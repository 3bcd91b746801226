package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/audit"
)

// startAudited starts a node with a trail. The function that it returns ends the trail, and returns
// its lines without times and client ids.
func startAudited(t *testing.T) (*node, func() []string) {
	t.Helper()
	trail, lines := openTrail(t)
	return start(t, func(c *Config) { c.Audit = trail }), lines
}

// openTrail opens a trail. The function that it returns is startAudited's.
func openTrail(t *testing.T) (*audit.Log, func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit")
	trail, err := audit.Open(audit.Config{File: path, Node: "n1",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trail.Close)
	return trail, func() (lines []string) {
		trail.Close()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var e audit.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Time.IsZero() ||
				e.Node != "n1" || e.Address == "" {
				t.Errorf("%s: %v", line, err)
			}
			shown := strings.Join(append([]string{e.Event}, e.Args...), " ") + ": " + e.Outcome
			for _, more := range []string{e.Reason, e.Context, e.Object} {
				if more != "" {
					shown += " " + more
				}
			}
			if e.Applied > 0 {
				shown += " indexed"
			}
			shown += ", " + e.User
			if e.Count > 0 {
				shown += fmt.Sprint(" * ", e.Count)
			}
			lines = append(lines, shown)
		}
		return lines
	}
}

// TestAudit makes calls and reads what the trail has of them: no line, or those given.
func TestAudit(t *testing.T) {
	n, trail := startAudited(t)
	var want []string
	c := n.dial(t)
	for _, test := range []struct {
		call string
		want []string
	}{
		{"ACL SETUSER alice on >wonderland ~a:* &* +@all -flushdb",
			[]string{"acl|setuser alice: ok indexed, default"}},
		{"ACL SETUSER alice >wonder-land nonsense", []string{"acl|setuser: ERR, default"}},
		{"ACL DELUSER bob carol", []string{"acl|deluser bob carol: ok indexed, default"}},
		{"PING", nil},
		{"SET a:1 value", nil},
		{"HELLO 3", nil},
		{"AUTH alice queen", []string{"auth alice: WRONGPASS, default"}},
		{"AUTH nobody queen", []string{"auth nobody: WRONGPASS, default"}},
		{"FLUSHALL async", []string{"flushall async: ok indexed, default"}},
		{"IDEMPOTENT r FLUSHALL sync", []string{"flushall sync: ok indexed, default"}},
		{"IDEMPOTENT r GET a", nil},
		{"FUNCTION LOAD secret-code", []string{"function|load: ERR, default"}},
		{"FUNCTION DELETE lib", []string{"function|delete lib: ERR, default"}},
		{"FUNCTION HELP", nil},
		{"CONFIG SET maxclients 500 timeout 9",
			[]string{"config|set maxclients timeout: ok, default"}},
		{"CONFIG SET maxclients many", []string{"config|set maxclients: ERR, default"}},
		{"CONFIG SET maxclients 500 secret", nil}, // a repeat, which is written at the end
		{"CONFIG SET secret maxclients", []string{"config|set: ERR, default"}},
		{"CONFIG GET save", nil},
		{"CONFIG GET", []string{"config: ERR, default"}},
		{"ACL WHOAMI", nil},
		{"ACL DRYRUN default SET a secret", nil},
		{"ACL LIST", nil},
		{"ACL LOG", nil},
		{"ACL LOG RESET", []string{"acl|log RESET: ok, default"}},
		{"FUNCTION LIST", nil},
		{"ACL HELP", nil},
		{"RAFT MEMBERS", nil},
		{"RAFT REMOVE n3", []string{"raft|remove n3: ok, default"}},
		{"RAFT STATUS", nil},
		{"CLIENT KILL ID 999", []string{"client|kill ID 999: ok, default"}},
		{"CLIENT UNBLOCK 999 ERROR", []string{"client|unblock 999 ERROR: ok, default"}},
		{"CLIENT PAUSE 0 WRITE", []string{"client|pause 0 WRITE: ok, default"}},
		{"CLIENT PAUSE soon", []string{"client|pause soon: ERR, default"}},
		{"CLIENT UNPAUSE", []string{"client|unpause: ok, default"}},
		{"CLIENT NO-EVICT off", []string{"client|no-evict off: ok, default"}},
		{"CLIENT LIST", nil},
		{"CLIENT ID", nil},
		{"SWAPDB 0 0", []string{"swapdb 0 0: ok indexed, default"}},
		{"SLOWLOG RESET", []string{"slowlog|reset: ok, default"}},
		{"SLOWLOG LEN", nil},
		{"LATENCY RESET command", []string{"latency|reset command: ok, default"}},
		{"DEBUG SLEEP 0", []string{"debug SLEEP: ok, default"}},
		{"LOCKS RELEASE l secret 5", []string{"locks|release l 5: ok indexed, default"}},
		{"LOCKS EXTEND l secret 5 7", []string{"locks|extend l 5 7: ok indexed, default"}},
		{"LOCKS EXTEND l 5 secret 7", []string{"locks|extend l 7: ERR, default"}},
		{"SCRIPT FLUSH", []string{"script|flush: ok indexed, default"}},
		{"MULTI", nil},
		{"FLUSHDB", nil},
		{"CONFIG RESETSTAT", nil},
		{"EXEC", []string{"flushdb: ok indexed, default", "config|resetstat: ok, default"}},
		{"HELLO 2 AUTH alice wonderland", []string{"hello alice: ok, alice"}},
		{"AUTH alice wonderland", []string{"auth alice: ok, alice"}},
		{"SET b secret", []string{"denied: NOPERM key toplevel b, alice"}},
		{"FLUSHDB", []string{"denied: NOPERM command toplevel flushdb, alice"}},
		{`EVAL "redis.pcall('set','b','secret')" 0`,
			[]string{"denied: NOPERM key lua b, alice"}},
		{"SHUTDOWN ABORT", []string{"shutdown ABORT: ERR, alice"}},
	} {
		args, err := commandtest.SplitArgs(test.call)
		if err != nil {
			t.Fatal(err)
		}
		c.call(texts(args)...)
		want = append(want, test.want...)
	}
	n.setPassword(t, "heart")
	stranger := n.dial(t)
	stranger.call("SET", "a", "secret")
	stranger.call("FLUSHALL")
	want = append(want, "denied: NOAUTH set, ", "denied: NOAUTH flushall, ")
	stranger.call("AUTH", "heart")
	want = append(want, "auth: ok, default", "config|set maxclients: ERR, default")
	got := trail()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\n\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if info := c.call("INFO", "coordd"); !strings.Contains(info, "audit_dropped:") {
		t.Error(info)
	}
}

// TestTriesAreAudited makes random calls of HELLO. Each name that is tried has a line, with what
// came of it, whichever words there are besides; no password is shown.
func TestTriesAreAudited(t *testing.T) {
	trail, lines := openTrail(t) // not in the bubble, whose end its files do not see
	want := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.Audit = trail })
		root := n.dial(t)
		for _, name := range []string{"app", "auth", "setname"} {
			root.call("ACL", "SETUSER", name, "on", ">pw-"+name)
		}
		r := rand.New(rand.NewPCG(1, 2))
		pick := func(words ...string) string { return words[r.IntN(len(words))] }
		for i := range 300 {
			call, goesOn := []string{"HELLO", "3"}, true
			for range r.IntN(40) {
				user, option := pick("app", "auth", "setname"), []string(nil)
				switch k := r.IntN(60); {
				case k < 30:
					option = []string{pick("SETNAME", "setname"), pick("auth", "setname", "x")}
				case k < 57:
					option = []string{pick("AUTH", "auth"), user, "pw-" + user}
					if goesOn {
						want["hello "+user+": ok"]++
					}
				case k < 59:
					user = fmt.Sprint("nobody-", len(want), "-", i)
					option = []string{"AUTH", user, "pw-guess"}
					if goesOn {
						want["hello "+user+": WRONGPASS"]++
					}
					goesOn = false
				default:
					option, goesOn = []string{pick("nonsense", "pw-a")}, false
				}
				call = append(call, option...)
			}
			if got := n.dial(t).call(call...); (got[0] == '%') != goesOn {
				t.Fatalf("%q: %q", call, got)
			}
			args := commandtest.Args(call...)
			spec, _ := n.table.Resolve(args)
			if shown := redact(n.table, spec, args); bytes.Contains(bytes.Join(shown, nil),
				[]byte("pw-")) {
				t.Errorf("%q is shown as %q", call, shown)
			}
		}
	})
	got := map[string]int{}
	for _, line := range lines() {
		try, who, _ := strings.Cut(line, ", ")
		times := 1
		if _, after, counted := strings.Cut(who, " * "); counted {
			times, _ = strconv.Atoi(after)
		}
		if strings.HasPrefix(try, "hello") {
			got[try] += times
		}
	}
	if !maps.Equal(got, want) || len(want) < 50 || want["hello app: ok"] < 100 {
		t.Errorf("%v\n\nwant %v", got, want)
	}
}

// TestAuditShowsNoSecret checks that no audited call shows an argument that MONITOR hides.
func TestAuditShowsNoSecret(t *testing.T) {
	table := testTable()
	for _, args := range [][]string{{"ACL", "SETUSER", "u", ">secret"},
		{"CONFIG", "SET", "requirepass", "secret"},
		{"CONFIG", "SET", "requirepass", "my", "secret"}, {"FUNCTION", "LOAD", "secret"},
		{"FUNCTION", "RESTORE", "secret"}} {
		spec, err := table.Resolve(commandtest.Args(args...))
		if spec == nil {
			t.Error(args, err)
			continue
		}
		shown, _ := spec.Audited(commandtest.Args(args...))
		if all := strings.Join(texts(shown), " "); strings.Contains(all, "secret") {
			t.Errorf("%v shows %s", args, all)
		}
	}
}

// TestWhatChangesNothingIsCounted: a call that says that it changed nothing is one that repeats
// itself, and takes no room of a change.
func TestWhatChangesNothingIsCounted(t *testing.T) {
	n, trail := startAudited(t)
	c := n.dial(t)
	var want, counted []string
	for _, call := range []string{"ACL DELUSER nobody", "CLIENT KILL ID 999", "CLIENT UNBLOCK 999",
		"LATENCY RESET", "LOCKS RELEASE l owner 5", "LOCKS EXTEND l owner 5 7"} {
		words := strings.Fields(call)
		for range 3 {
			if got := c.call(words...); got != ":0\r\n" {
				t.Fatalf("%s: %q", call, got)
			}
		}
		line := strings.ToLower(words[0]+"|"+words[1]) + strings.TrimPrefix(call, words[0]+" "+
			words[1])
		line = strings.Replace(line, " owner", "", 1) + ": ok"
		if words[0] == "ACL" || words[0] == "LOCKS" {
			line += " indexed"
		}
		want, counted = append(want, line+", default"), append(counted, line+", default * 2")
	}
	c.call("MULTI")
	c.call("LOCKS", "RELEASE", "l", "owner", "5")
	c.call("EXEC")
	counted[4] = strings.Replace(counted[4], "* 2", "* 3", 1)
	for range 2 {
		c.call("SET", "l", "owner")
		token := strings.Trim(c.call("FENCE", "l"), ":\r\n")
		c.call("LOCKS", "RELEASE", "l", "owner", token)
		want = append(want, "locks|release l "+token+": ok indexed, default")
	}
	want = append(want, counted...)
	slices.Sort(want)
	got := trail()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s\n\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAuditShowsNoValue makes a call of each audited command from its syntax, and checks that the
// trail shows nothing but words of the syntax, numbers and what these placeholders stand for.
func TestAuditShowsNoValue(t *testing.T) {
	shows := strings.Fields("key username library-name id host host:port ip:port event " +
		"subcommand name libname libver flags capabilities ip node-id") // of clients: CLIENT KILL
	var fill func(args []commands.Arg) (call, named []string)
	fill = func(args []commands.Arg) (call, named []string) {
		for _, a := range args {
			if a.Token != "" {
				call = append(call, a.Token)
			}
			inner, names := fill(a.Args)
			call, named = append(call, inner...), append(named, names...)
			switch a.Type {
			case commands.ArgString, commands.ArgKey, commands.ArgPattern:
				call, named = append(call, a.Name), append(named, a.Name)
			case commands.ArgInteger, commands.ArgDouble, commands.ArgUnixTime:
				call = append(call, "7")
			}
		}
		return call, named
	}
	checked := 0
	for _, top := range testTable().All() {
		for _, spec := range append(slices.Clone(top.Subcommands), *top) {
			args, err := commands.ParseSyntax(spec.Syntax)
			if err != nil || spec.Audit == nil {
				continue
			}
			words, named := fill(args)
			call := commandtest.Args(append(strings.Split(spec.FullName(), "|"), words...)...)
			shown, _ := spec.Audited(call)
			for _, word := range texts(shown) {
				if slices.Contains(named, word) &&
					!slices.Contains(shows, strings.TrimPrefix(word, "not-")) {
					t.Errorf("%s %v shows %s", spec.FullName(), words, word)
				}
			}
			checked += len(shown)
		}
	}
	if checked < 20 {
		t.Errorf("only %d words are shown", checked)
	}
}

// TestDangerousCommandsAreAudited: what concerns others than its client is in the trail, and what
// only shows something is not, since the trail has no room for it. A dangerous command with keys
// concerns these.
func TestDangerousCommandsAreAudited(t *testing.T) {
	audits := 0
	for _, top := range testTable().All() {
		specs := []*commands.Spec{top}
		if len(top.Subcommands) > 0 {
			specs = nil
		}
		for i := range top.Subcommands {
			specs = append(specs, &top.Subcommands[i])
		}
		for _, spec := range specs {
			audits += number(spec.Audit != nil)
			shows := spec.Kind == commands.Read || spec.Has(commands.Shows)
			keyless := spec.Keys.First == 0 && spec.Keys.Numkeys == 0 && spec.Keys.Find == nil
			dangerous := slices.Contains(spec.Categories().Names(), "dangerous")
			switch {
			case shows && spec.Audit != nil:
				t.Errorf("%s only shows something, and is audited", spec.FullName())
			case dangerous && keyless && !shows && spec.Audit == nil:
				t.Errorf("%s is not audited: declare Audit or Shows", spec.FullName())
			}
		}
	}
	if audits < 40 {
		t.Errorf("only %d are audited", audits)
	}
}

// What a removed user is denied is in ACL LOG and in the trail, whoever decides about it.
func TestDenialsOfRemovedUsers(t *testing.T) {
	n, trail := startAudited(t)
	admin, bob := n.dial(t), n.dial(t)
	admin.call("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~*", "&*")
	bob.call("AUTH", "bob", "any")
	n.fake.set(func() { n.fake.lags = true }) // of whose removal the node does not know
	admin.call("ACL", "DELUSER", "bob")
	const gone = "-" + string(commands.ErrUserGone) + "\r\n"
	for _, line := range []string{"GET k", "SET k v", "FLUSHALL", "EVAL return 0", "CONFIG SET " +
		"notify-keyspace-events KEA"} {
		words := strings.Fields(line)
		if words[0] == "EVAL" {
			words = []string{"EVAL", "return redis.call('GET', 'k')", "0"}
		}
		if got := bob.call(words...); !strings.HasSuffix(got, gone[1:]) {
			t.Errorf("%s: %q", line, got)
		}
	}
	bob.call("MULTI")
	bob.call("GET", "k")
	if got := bob.call("EXEC"); got != gone {
		t.Errorf("EXEC: %q", got)
	}
	n.fake.set(func() {
		n.fake.lags = false
		n.fake.users.Store((*Users)(n.fake.machine.Users()))
	})
	bob.raw(pipeline([]string{"CONFIG", "GET", "x"}, []string{"PUBSUB", "CHANNELS"}))
	bob.want(gone, gone)
	log := admin.call("ACL", "LOG", "100")
	lines := strings.Join(trail(), "\n")
	for _, object := range []string{"get", "set", "flushall", "eval", "config|set", "exec",
		"config|get", "pubsub|channels"} {
		if !strings.Contains(log, "\r\n"+object+"\r\n") {
			t.Errorf("%s is not in ACL LOG", object)
		}
		if !strings.Contains(lines, object) {
			t.Errorf("%s is not in the trail:\n%s", object, lines)
		}
	}
}

// Every reason for a denial is counted.
func TestEveryReasonIsCounted(t *testing.T) {
	for reason := acl.DeniedCommand; reason <= acl.DeniedWork; reason++ {
		n := start(t, nil)
		n.nullSession(1).deny(refusedCall{reason: reason.String()}, 2)
		sum := uint64(0)
		for i := range n.denials.counts {
			sum += n.denials.counts[i].Load()
		}
		if sum != 2 {
			t.Errorf("%s: %d are counted", reason, sum)
		}
	}
}
