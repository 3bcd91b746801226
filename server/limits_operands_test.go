package server

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
)

// repeats reports whether a call may have any number of operands.
func repeats(args []commands.Arg) bool {
	return slices.ContainsFunc(args, func(a commands.Arg) bool {
		return a.Multiple || repeats(a.Args)
	})
}

// takesNoTurn says what bounds the commands with repeated operands that do not declare Works.
var takesNoTurn = map[string]string{
	"acl|deluser": "the machine", "acl|dryrun": "the machine", "acl|setuser": "the machine",
	"watch": "the machine", "client|capa": "it looks at each word", "config|set": "the parameters",
	"client|tracking": "the prefixes of a connection", "exec": "the machine",
	"subscribe": "the reply", "psubscribe": "the reply", "ssubscribe": "the reply",
	"unsubscribe": "the reply", "punsubscribe": "the reply", "sunsubscribe": "the reply",
}

// TestRepeatedOperands gives every command that the session answers many equal operands: it takes a
// turn with a budget, and what a small request makes the node allocate is bounded.
func TestRepeatedOperands(t *testing.T) {
	detector.Skip(t) // it counts bytes
	const many, most = 20_000, 160 << 20
	n := start(t, nil)
	c := n.dial(t)
	c.call("PING")
	c.call("CLIENT", "LIST")
	seen := 0
	try := func(spec *commands.Spec, name ...string) {
		syntax, err := commands.ParseSyntax(spec.Syntax)
		if err != nil || spec.Local == nil || !repeats(syntax) {
			return
		}
		seen++
		if free := takesNoTurn[spec.FullName()] != ""; free == spec.Local.Works {
			t.Errorf("%s has many operands: it takes a turn: %v", spec.FullName(), !free)
		}
		for _, operands := range []string{"*", "ping", "client", "1", "id 1", "mset 1"} {
			words := commandtest.Args(append(slices.Clone(name), strings.Fields(operands)...)...)
			for len(words) < many {
				words = append(words, words[len(words)-1])
			}
			s := unservedSession(n)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s.dispatch(words)
			runtime.ReadMemStats(&after)
			if made := after.TotalAlloc - before.TotalAlloc; made > most {
				t.Errorf("%s %s …: %d MB, %.60q", spec.FullName(), operands, made>>20, s.reply.Buf)
			}
		}
	}
	for _, c := range n.table.All() {
		try(c, c.Name)
		for i := range c.Subcommands {
			try(&c.Subcommands[i], c.Name, c.Subcommands[i].Name)
		}
	}
	if seen < len(takesNoTurn)+8 {
		t.Errorf("%d commands have repeated operands", seen)
	}
}

// TestSessionCommandsHaveABudget has session commands do more work than a request may: they are
// refused, whatever it is that takes long. Half of it is answered.
func TestSessionCommandsHaveABudget(t *testing.T) {
	detector.Skip(t) // it works much
	n := start(t, nil)
	c := n.dial(t)
	const channels = 700
	for i := range channels {
		c.call("SUBSCRIBE", strings.Repeat("a", 4000)+fmt.Sprint(i))
	}
	c = n.dial(t)
	hard := "*" + strings.Repeat("[ab]", 255) + "c"
	repeated := func(k int, word string, call ...string) []string {
		return append(call, slices.Repeat([]string{word}, k)...)
	}
	patterns := func(k int) (call []string) {
		call = []string{"CONFIG", "GET"}
		for i := range k {
			call = append(call, "*["+strings.Repeat("\x02", 1010-i%10)+"a-z]\x01")
		}
		return call
	}
	const refused = "-ERR the command goes over too much data, nothing was changed"
	for _, x := range []struct {
		call []string
		over bool
	}{
		{repeated(1000, "client", "COMMAND", "INFO"), false},
		{repeated(10_000, "client", "COMMAND", "INFO"), true},
		{[]string{"PUBSUB", "CHANNELS", "*" + strings.Repeat("a", 100)}, false},
		{[]string{"PUBSUB", "CHANNELS", hard}, true}, // by the machine
		{patterns(10), false},
		{patterns(1024), true},
	} {
		got := c.call(x.call...)
		if strings.HasPrefix(got, refused) != x.over || !x.over && got[0] == '-' {
			t.Errorf("%.40q …: %.80q", x.call, got)
		}
	}
}

// TestHistogramOfRepeatedNames has LATENCY HISTOGRAM answer each command once, also those of a
// container.
func TestHistogramOfRepeatedNames(t *testing.T) {
	c := start(t, nil).dial(t)
	c.call("CLIENT", "ID")
	c.call("CLIENT", "GETNAME")
	for call, want := range map[string]string{
		"client|id client|id":        "[client|id]",
		"client client|id client":    "[client|id client|getname]",
		"client|getname client ping": "[client|getname client|id]",
	} {
		var names []string
		reply := c.call(append([]string{"LATENCY", "HISTOGRAM"}, strings.Fields(call)...)...)
		for _, line := range strings.Split(reply, "\r\n") {
			if strings.HasPrefix(line, "client") {
				names = append(names, line)
			}
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("%s: %s, want %s", call, got, want)
		}
	}
}
