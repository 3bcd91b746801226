// Scripts and function libraries in the machine: nodes agree on them, and snapshots hold them.

package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/corpus"
	"github.com/coordd/coordd/internal/tests/detector"
)

// newScriptNode returns a machine that runs scripts through log entries.
func newScriptNode() *scenarioSession {
	table := testTable()
	node := &scenarioNode{table: table, machine: newestMachine(table), clockMs: 1}
	return &scenarioSession{node: node, proto: 2}
}

// ask runs a call whose reply must not be an error, and returns the reply.
func ask(t testing.TB, target commandtest.Target, words ...string) commandtest.Value {
	t.Helper()
	raw, err := target.Do(commandtest.Args(words...))
	if err != nil {
		t.Fatalf("%.200q: %v", words, err)
	}
	v, err := commandtest.Parse(raw)
	if err != nil || v.IsError() {
		t.Fatalf("%.200q: %s %v", words, v, err)
	}
	return v
}

// oneFunction returns a library with a function of the same name.
func oneFunction(name, body string) string {
	return fmt.Sprintf("#!lua name=%s\n redis.register_function('%s', function(keys, args) %s end)",
		name, name, body)
}

func TestLibrariesAreInTheSnapshot(t *testing.T) {
	here := newScriptNode()
	empty := snapshotBytes(t, here.node.machine.Snapshot())
	ask(t, here, "FUNCTION", "LOAD", oneFunction("b", "return redis.call('incr', keys[1])"))
	ask(t, here, "FUNCTION", "LOAD",
		"#!lua name=a\n redis.register_function{function_name='A', callback=redis.log, "+
			"description='text', flags={'no-writes'}}")
	ask(t, here, "FCALL", "b", "1", "k")
	list := ask(t, here, "FUNCTION", "LIST", "WITHCODE").String()
	content := snapshotBytes(t, here.node.machine.Snapshot())
	here.node.machine = restore(t, content, here.node.table)
	if again := snapshotBytes(t, here.node.machine.Snapshot()); string(again) != string(content) {
		t.Error("the snapshot of a restored machine differs")
	}
	if got := ask(t, here, "FUNCTION", "LIST", "WITHCODE").String(); got != list {
		t.Errorf("restored: %s, want %s", got, list)
	}
	if got := ask(t, here, "FCALL", "B", "1", "k").String(); got != ":2" {
		t.Errorf("a restored function: %s", got)
	}

	// The order in which libraries were loaded is invisible, and a deleted one leaves no trace.
	other := newScriptNode()
	ask(t, other, "FUNCTION", "LOAD",
		"#!lua name=a\n redis.register_function{function_name='A', callback=redis.log, "+
			"description='text', flags={'no-writes'}}")
	ask(t, other, "FUNCTION", "LOAD", oneFunction("b", "return redis.call('incr', keys[1])"))
	if got, want := other.node.machine.engine.AppendTo(nil),
		here.node.machine.engine.AppendTo(nil); string(got) != string(want) {
		t.Errorf("libraries in another order: %q, want %q", got, want)
	}
	ask(t, other, "FUNCTION", "FLUSH")
	if got, want := other.node.machine.engine.AppendTo(nil),
		newScriptNode().node.machine.engine.AppendTo(nil); string(got) != string(want) {
		t.Errorf("after FUNCTION FLUSH: %q, want %q", got, want)
	}
	if len(empty) >= len(content) {
		t.Error("the libraries are not in the snapshot")
	}
}

// TestRequestsOfOneEntryDrawTheirOwnNumbers: scripts of one batch, in transactions or not, draw
// different numbers, and a node that applies the entry again draws the same ones.
func TestRequestsOfOneEntryDrawTheirOwnNumbers(t *testing.T) {
	const requests = 20
	var batch []byte
	for range requests {
		args := commandtest.Args("EVAL", `return tostring(math.random())`, "0")
		batch = commands.AppendRequest(batch, &commands.Request{Proto: 2, Cmds: [][][]byte{args}})
		batch = commands.AppendRequest(batch,
			&commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{args, args}})
	}
	e := &Entry{ClockMs: 1, Batches: [][]byte{batch, batch}}
	var replies [2]string
	drawn := map[string]bool{}
	for i := range replies {
		m := newestMachine(testTable())
		for index := uint64(1); index <= 2; index++ {
			res, err := m.Apply(index, e, true)
			if err != nil {
				t.Fatal(err)
			}
			all := string(bytes.Join(res.Replies, nil))
			replies[i] += all
			for _, line := range strings.Split(all, "\r\n") {
				if strings.HasPrefix(line, "0.") {
					drawn[line] = true
				}
			}
		}
	}
	if replies[0] != replies[1] {
		t.Errorf("nodes differ:\n%q\n%q", replies[0], replies[1])
	}
	if want := 2 * 2 * 3 * requests; len(drawn) < want-1 {
		// 14 digits of a float: at most two may be equal
		t.Errorf("%d scripts drew %d numbers: %q", want, len(drawn), replies[0])
	}
}

// TestNodesAgreeOnScripts runs the whole corpus on two machines, one of which is restored from its
// snapshot after every script.
func TestNodesAgreeOnScripts(t *testing.T) {
	detector.Skip(t)
	for _, path := range corpus.Files(t, "../testdata") {
		a, b := newScriptNode(), newScriptNode()
		for _, s := range corpus.Read(t, path) {
			args := commandtest.Args(append([]string{"EVAL", s.Source}, s.Args...)...)
			run := commands.AppendRequest(nil, &commands.Request{Proto: 3, Cmds: [][][]byte{args}})
			var replies, files [2]bytes.Buffer
			for i, n := range []*scenarioNode{a.node, b.node} {
				entry := &Entry{ClockMs: n.clockMs, WallUs: 1_700_000_000_000_000,
					Batches: [][]byte{run}}
				n.index++
				result, err := n.machine.Apply(n.index, entry, true)
				if err != nil {
					t.Fatal(err)
				}
				replies[i].Write(result.Replies[0])
				if _, err := n.machine.Snapshot().WriteTo(&files[i]); err != nil {
					t.Fatal(err)
				}
			}
			if replies[0].String() != replies[1].String() {
				t.Errorf("%s\n  one node  %q\n  the other %q", s.Source, &replies[0], &replies[1])
			}
			if !bytes.Equal(files[0].Bytes(), files[1].Bytes()) {
				t.Fatalf("%s: the snapshots differ", s.Source)
			}
			restored, err := ReadSnapshot(&files[1], b.node.table)
			if err != nil {
				t.Fatal(err)
			}
			b.node.machine = restored
		}
	}
}
