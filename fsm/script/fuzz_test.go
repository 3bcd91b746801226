// The fuzz target of scripts.

package script

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/tests/corpus"
)

// FuzzScript runs any source twice, with a small budget, on two interpreters that have run other
// scripts. The replies are equal, and nothing panics.
func FuzzScript(f *testing.F) {
	for _, path := range corpus.Files(f, testdata) {
		for _, s := range corpus.Read(f, path) {
			f.Add(s.Source)
		}
	}
	for _, list := range [][]string{runaways, leavers, probes} {
		for _, source := range list {
			f.Add(source)
		}
	}
	table := testTable()
	fresh := func() (*interpreter, *commands.Env) {
		ks := keyspace.New()
		ks.Begin(1, keyspace.NewRevision(0, 1, 0))
		return newInterpreter(table, true), &commands.Env{Keyspace: ks, ClockMs: 1, Seed: 1,
			Emit: func(commands.Event) {}}
	}
	a, envA := fresh()
	b, envB := fresh()
	f.Fuzz(func(t *testing.T, source string) {
		p, err := compileScript([]byte(source), commands.FeatureLevel)
		if err != nil {
			return
		}
		var replies [2]string
		for i, in := range []**interpreter{&a, &b} {
			env := []*commands.Env{envA, envB}[i]
			out := &commands.RESP{Proto: 3}
			x := &commands.Call{Env: env, Tx: &commands.Tx{Proto: 3}, Out: out}
			script := commands.Script{Keys: [][]byte{[]byte("k")}, Args: [][]byte{[]byte("a")}}
			if !(*in).runWithin(x, p, "sha", script,
				lua.Budget{Instructions: 20_000, Bytes: 1 << 20}) {
				*in = newInterpreter(table, true)
			}
			replies[i] = string(out.Buf)
		}
		if strings.Contains(replies[0], "runtime error: ") && !strings.Contains(source, "runtime") {
			t.Fatalf("Go panicked: %q", replies[0])
		}
		if replies[0] != replies[1] {
			t.Fatalf("one interpreter  %q\nthe other %q", replies[0], replies[1])
		}
	})
}
