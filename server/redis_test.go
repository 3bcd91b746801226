package server

// This file holds what COMMAND says against what a real redis-server says, for every command that both have.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
)

// described is a command as COMMAND describes it, part by part.
type described map[string]string

// describe asks a server for all its commands.
func describe(t *testing.T, c commandtest.Target) map[string]described {
	t.Helper()
	for _, call := range []string{"HELLO 3", "COMMAND"} {
		raw, err := c.Do(commandtest.Args(strings.Fields(call)...))
		if err != nil {
			t.Fatal(err)
		}
		if call != "COMMAND" {
			continue
		}
		v, err := commandtest.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]described{}
		for i := range v.Elems {
			addDescribed(all, &v.Elems[i])
		}
		return all
	}
	return nil
}

func addDescribed(all map[string]described, v *commandtest.Value) {
	keys := v.Elems[8]
	for i := range keys.Elems {
		part := &keys.Elems[i]
		if part.Elems[0].Text == "notes" {
			part.Elems = part.Elems[2:]
		}
	}
	all[v.Elems[0].Text] = described{
		"arity": v.Elems[1].String(), "flags": sortedText(v.Elems[2]), "keys": fmt.Sprint(v.Elems[3:6]),
		"categories": sortedText(v.Elems[6]), "key specs": keys.String(),
	}
	for i := range v.Elems[9].Elems {
		addDescribed(all, &v.Elems[9].Elems[i])
	}
}

func sortedText(v commandtest.Value) string {
	words := make([]string, len(v.Elems))
	for i := range v.Elems {
		words[i] = v.Elems[i].Text
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func TestCommandIsThatOfRedis(t *testing.T) {
	socket := commandtest.StartRedis(t)
	if socket == "" {
		t.Skip(commandtest.RedisMissing)
	}
	real, err := commandtest.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = real.Close() })
	redis, own := describe(t, real), describe(t, start(t, nil).dial(t))
	compared := 0
	for name, want := range redis {
		have := own[name]
		if have == nil {
			continue
		}
		compared++
		for part := range want {
			if have[part] != want[part] {
				t.Errorf("%s: %s\n\tis    %s\n\tredis %s", name, part, have[part], want[part])
			}
		}
	}
	if compared < 150 {
		t.Errorf("only %d commands are in both", compared)
	}
}
