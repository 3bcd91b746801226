// Corner cases of numbers and of APPEND.

package commands_test

import (
	"strconv"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// Numbers too small for 17 decimals are 0, whatever their exponent.
func TestFormatExtendedOfSmallNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"1e-4900": "0", "-1e-4900": "0", "4.9e-18": "0", "-4.9e-18": "0", "8e-19": "0", "0": "0",
		"5.1e-18": "0.00000000000000001", "-5.1e-18": "-0.00000000000000001",
		"1e-17": "0.00000000000000001",
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

// APPEND of nothing replies with the length and counts as a change; it creates an empty string if
// the key is missing: all as on Redis.
func TestAppendOfNothing(t *testing.T) {
	table := commands.NewTable(commands.Specs())
	ks := keyspace.New()
	ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	run := func(args ...string) string {
		out := &commands.RESP{Proto: 2}
		env := &commands.Env{Keyspace: ks, ClockMs: 1}
		table.Run(&commands.Call{Env: env, Tx: &commands.Tx{}, Args: commandtest.Args(args...),
			Out: out})
		return string(out.Buf)
	}
	run("SET", "key", "value")
	next := keyspace.NewRevision(0, 1, 1)
	ks.SetRevision(next)
	if got := run("APPEND", "key", ""); got != ":5\r\n" {
		t.Errorf("reply %q", got)
	}
	if e := ks.DB(0).Find([]byte("key")); e.Changed() != next || string(e.Bytes()) != "value" {
		t.Errorf("the key holds %q and was changed by %v, want %v", e.Bytes(), e.Changed(), next)
	}
	if got := run("APPEND", "new", "") + run("EXISTS", "new"); got != ":0\r\n:1\r\n" {
		t.Errorf("replies %q", got)
	}
}

// Plain digits take a short way, with the result of the long one.
func TestParseFloatOfDigits(t *testing.T) {
	for _, text := range []string{"0", "7", "00", "007", "1700000000000", "999999999999999",
		"000000000000001", "9999999999999999", "12345678901234567890", "9007199254740993",
		"9007199254740991", "9007199254740995", "123456789012345678", "999999999999999999",
		"999999999999999936", "999999999999999935", "1760000000123456"} {
		want, err := strconv.ParseFloat(text, 64)
		if f, ok := commands.ParseFloat([]byte(text)); err != nil || !ok || f != want {
			t.Errorf("%s: %v %v, want %v", text, f, ok, want)
		}
	}
	for _, text := range []string{"", "1_0", " 1", "1 ", "1a", "+"} {
		if f, ok := commands.ParseFloat([]byte(text)); ok {
			t.Errorf("%q: %v", text, f)
		}
	}
}
