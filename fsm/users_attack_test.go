package fsm

// Users who try everything: what a user has no right to, no call reads or changes.

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// secret is part of every value, member and field of the keys that calls name.
const secret = "SECRET"

// attacked is a node with keys of all types. Eve may run every command but those that change more
// than keys.
func attacked(t *testing.T, rules ...string) *scenarioNode {
	t.Helper()
	table := testTable()
	node := &scenarioNode{table: table, machine: newestMachine(table), beganMs: 1_700_000_000_000}
	admin := &scenarioSession{node: node, proto: 2}
	do := func(words ...string) {
		t.Helper()
		if raw, err := admin.Do(commandtest.Args(words...)); err != nil || raw[0] == '-' {
			t.Fatalf("%q: %q, %v", words, raw, err)
		}
	}
	value := func(name string) string { return secret + name }
	for _, db := range []string{"0", "1", "2"} {
		do("SELECT", db)
		for _, key := range []string{"k1", "k2", "k3", "", "key\x00\xff"} {
			do("SET", key, value(key))
		}
		for _, n := range []string{"1", "2"} {
			do("HSET", "h"+n, value("f1"), value("v1"), value("f2"), value("v2"), "a", value("a"))
			do("ZADD", "z"+n, n, value("m1"), "2", value("m2"), "3", "a")
			do("RPUSH", "l"+n, value("e1"), value("e2"), "a")
			do("SADD", "s"+n, value("m1"), value("m2"), "a")
			do("XADD", "x"+n, "1-1", value("f"), value("v"))
			do("XGROUP", "CREATE", "x"+n, value("g"), "0")
		}
	}
	do(append([]string{"ACL", "SETUSER", "eve", "on", "nopass", "+@all", "-flushall", "-flushdb",
		"-swapdb", "-script", "-function", "-acl"}, rules...)...)
	return node
}

// ask runs a request of eve, in the log or, dry, as a read.
func (n *scenarioNode) ask(q *commands.Request, dry bool) ([]byte, error) {
	eve := n.machine.Users().Get([]byte("eve"))
	q.User = commands.UserID{Name: []byte("eve"), Created: eve.Created()}
	batch := commands.AppendRequest(nil, q)
	if dry {
		return n.read(batch)
	}
	return n.apply(batch)
}

func TestRightsHoldAgainstRandomCalls(t *testing.T) {
	detector.Skip(t)
	for _, c := range []struct {
		rules         string
		reads, writes bool
	}{
		{rules: "~own:*"},
		{rules: "%R~*", reads: true},
		{rules: "%W~*", writes: true},
	} {
		t.Run(c.rules, func(t *testing.T) {
			g := random.NewCalls(testTable(), seeds.Of(t))
			read, changed, denied := 0, 0, 0
			var node *scenarioNode
			var before uint64
			for n := range 20000 {
				if n%200 == 0 {
					node = attacked(t, c.rules, "-lease") // whose own are nobody's keys
					before = node.machine.Sum().Sum
				}
				q := g.Request()
				raw, err := node.ask(q, n%3 == 0)
				if err != nil {
					t.Fatal(err)
				}
				denials, reply := commands.CutDenials(raw)
				denied += len(denials)
				if bytes.Contains(reply, []byte(secret)) {
					if read++; !c.reads {
						t.Fatalf("%.1000q: %.1000q", q.Cmds, reply)
					}
				}
				if after := node.machine.Sum().Sum; after != before {
					if changed++; !c.writes {
						t.Fatalf("%.1000q changed the state: %.1000q", q.Cmds, reply)
					}
					before = after
				}
			}
			if (read > 100) != c.reads || (changed > 100) != c.writes || denied < 1000 {
				t.Errorf("%d read, %d changed, %d denied", read, changed, denied)
			}
		})
	}
}

// own makes most of the keys that a request names eve's own.
func own(g *random.Calls, q *commands.Request) {
	mine := func(key []byte) []byte {
		if len(key) > 0 && slices.Contains(random.KeyPool, string(key)) && g.IntN(4) > 0 {
			return append([]byte("own:"), key...)
		}
		return key
	}
	for _, args := range q.Cmds {
		for i := range args {
			args[i] = mine(args[i])
		}
	}
	for i := range q.Watch {
		q.Watch[i].Key = mine(q.Watch[i].Key)
	}
}

// Two nodes differ in the keys that eve has no right to: one has none of them. Whatever she does
// with her own keys and those, she does not see which node she is on.
func TestRightsHideWhatKeysThereAre(t *testing.T) {
	detector.Skip(t)
	g := random.NewCalls(testTable(), seeds.Of(t))
	good, denied := 0, 0
	var full, empty *scenarioNode
	do := func(node *scenarioNode, want string, words ...string) {
		t.Helper()
		raw, err := (&scenarioSession{node: node, proto: 2}).Do(commandtest.Args(words...))
		if err != nil || string(raw) != want {
			t.Fatalf("%q: %q, %v", words, raw, err)
		}
	}
	for n := range 20000 {
		if n%500 == 0 {
			// as in Redis, these show keys to everybody
			rules := []string{"~own:*", "-keys", "-scan", "-randomkey", "-dbsize", "-debug",
				"-cluster"}
			full, empty = attacked(t, rules...), attacked(t, rules...)
			do(full, "+OK\r\n", "SET", "k1", secret)
			do(empty, "+OK\r\n", "FLUSHALL")
		}
		q := g.Request()
		own(g, q)
		raw, err := full.ask(q, n%3 == 0)
		if err != nil {
			t.Fatal(err)
		}
		other, err := empty.ask(q, n%3 == 0)
		if err != nil || !bytes.Equal(raw, other) {
			t.Fatalf("%.1000q: %.1000q, without the keys %.1000q, %v", q.Cmds, raw, other, err)
		}
		denials, reply := commands.CutDenials(raw)
		if denied += len(denials); len(denials) == 0 && len(reply) > 0 && reply[0] != '-' {
			good++
		}
		if n%500 == 499 {
			do(empty, ":0\r\n", append([]string{"EXISTS"}, random.KeyPool...)...)
		}
	}
	if good < 3000 || denied < 1000 {
		t.Errorf("%d requests succeeded, %d denials", good, denied)
	}
}

// TestGuessesNeedTheRightToRead: whoever may only write a key learns nothing by a condition on its
// value.
func TestGuessesNeedTheRightToRead(t *testing.T) {
	value := secret + "k1"
	admin := &scenarioSession{node: attacked(t), proto: 2}
	digest := func(v string) string {
		_, err := admin.Do(commandtest.Args("SET", "k1", v))
		raw, err2 := admin.Do(commandtest.Args("DIGEST", "k1"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(raw), "\r\n")[1]
	}
	calls := map[string][]func(guess string) []string{
		"set": {
			func(v string) []string { return []string{"SET", "k1", "x", "IFEQ", v} },
			func(v string) []string { return []string{"SET", "k1", "x", "ifne", v, "PX", "1000"} },
			func(v string) []string { return []string{"SET", "k1", "x", "IFDEQ", digest(v)} },
			func(v string) []string { return []string{"SET", "k1", "x", "IFDNE", digest(v)} },
		},
		"delex": {
			func(v string) []string { return []string{"DELEX", "k1", "IFEQ", v} },
			func(v string) []string { return []string{"DELEX", "k1", "IFDNE", digest(v)} },
		},
		"delifeq": {func(v string) []string { return []string{"DELIFEQ", "k1", v} }},
		"exec": {
			func(v string) []string { return []string{"EXEC", "IFEQ", "k1", v} },
			func(v string) []string { return []string{"EXEC", "XX", "k1", "IFNE", "k1", v} },
		},
	}
	for name, all := range calls {
		for i, call := range all {
			var replies []string
			for _, guess := range []string{value, "wrong"} {
				node := attacked(t, "%W~*")
				raw, err := node.ask(&commands.Request{Multi: name == "exec",
					Conditional: name == "exec",
					Cmds:        [][][]byte{commandtest.Args(call(guess)...)}}, false)
				if err != nil {
					t.Fatal(err)
				}
				_, reply := commands.CutDenials(raw)
				replies = append(replies, string(reply))
			}
			if replies[0] != replies[1] {
				t.Errorf("%s %d answers a right guess with %q and a wrong one with %q", name, i,
					replies[0], replies[1])
			}
		}
	}
	for _, spec := range testTable().All() {
		if strings.Contains(spec.Syntax, "IFEQ") && calls[spec.Name] == nil {
			t.Errorf("%s has conditions that were not tried", spec.Name)
		}
	}
}
