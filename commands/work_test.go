// What lives here: tests of what commands must not do in vain.

package commands_test

import (
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// Numbers that have no 17 decimals are 0, whatever their exponent, and those that just have one are not.
func TestFormatExtendedOfSmallNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"1e-4900": "0", "-1e-4900": "0", "4.9e-18": "0", "-4.9e-18": "0", "8e-19": "0", "0": "0",
		"5.1e-18": "0.00000000000000001", "-5.1e-18": "-0.00000000000000001", "1e-17": "0.00000000000000001",
	} {
		x, ok := commands.ParseExtended([]byte(text))
		if !ok {
			t.Fatalf("%s is not read", text)
		}
		if got := commands.FormatExtended(x); got != want {
			t.Errorf("%s is written %s, want %s", text, got, want)
		}
	}
}

// APPEND of nothing answers the length and leaves no trace; where there is no key it makes an empty one, as on Redis.
func TestAppendOfNothing(t *testing.T) {
	table := commands.NewTable(commands.Specs())
	ks := keyspace.New()
	ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	run := func(args ...string) string {
		out := &commands.RESP{Proto: 2}
		env := &commands.Env{Keyspace: ks, ClockMs: 1}
		table.Run(&commands.Call{Env: env, Tx: &commands.Tx{}, Args: commandtest.Args(args...), Out: out})
		return string(out.Buf)
	}
	run("SET", "key", "value")
	changed, sum := ks.DB(0).Find([]byte("key")).Changed(), ks.Sum()
	ks.SetRevision(keyspace.NewRevision(0, 1, 1))
	if got := run("APPEND", "key", ""); got != ":5\r\n" {
		t.Errorf("reply %q", got)
	}
	if e := ks.DB(0).Find([]byte("key")); e.Changed() != changed || ks.Sum() != sum {
		t.Error("the key counts as changed")
	}
	if got := run("APPEND", "new", "") + run("EXISTS", "new"); got != ":0\r\n:1\r\n" {
		t.Errorf("replies %q", got)
	}
}
