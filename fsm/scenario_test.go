// The scenario files run against one machine. Every command of the table must have a scenario.

package fsm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/server"
)

const scenarioFiles = "../testdata/commands/*.txt"

// testTable is the table of a node: scripts and transactions also run some of the session's
// commands in the machine (TIME, PUBLISH).
var testTable = sync.OnceValue(func() *commands.Table {
	return commands.NewTable(commands.Specs(), server.Specs())
})

// TestScenarios runs every line on the path of a real request: encoded, put into an entry, encoded
// again, applied.
func TestScenarios(t *testing.T) {
	detector.Skip(t)
	node := &scenarioNode{table: testTable()}
	commandtest.Run(t, scenarioFiles, commandtest.Server{
		Reset: func() error {
			*node = scenarioNode{table: node.table, machine: newestMachine(node.table), clockMs: 1}
			return nil
		},
		Open: func() (commandtest.Target, error) {
			return &scenarioSession{node: node, proto: 2}, nil
		},
		Advance: node.advance,
	})
}

// TestEveryCommandHasAScenario fails for a command of the table that no scenario file calls. The
// scenarios of commands that package server runs by itself are in testdata/sessions.
func TestEveryCommandHasAScenario(t *testing.T) {
	table := testTable()
	if len(table.All()) == 0 {
		t.Fatal("the table is empty")
	}
	called, err := calledCommands(table, scenarioFiles)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range withoutScenario(table, called) {
		t.Errorf("no line of %s calls %s: write one, see testdata/commands/README.md",
			scenarioFiles, strings.ToUpper(name))
	}
}

// The test above can fail.
func TestMissingScenarioIsSeen(t *testing.T) {
	run := func(*commands.Call) error { return nil }
	table := commands.NewTable([]commands.Spec{
		{Name: "here", Handler: run}, {Name: "absent", Handler: run},
		{Name: "session", Local: &commands.Local{}},
		{Name: "box", Subcommands: []commands.Spec{{Name: "in", Handler: run},
			{Name: "out", Handler: run}, {Name: "session", Local: &commands.Local{}}}},
	})
	called := map[string]bool{}
	for _, call := range []string{"HERE", "here", "BOX Out", "BOX", "NONE"} {
		addCalled(table, called, commandtest.Args(strings.Fields(call)...))
	}
	if got := fmt.Sprint(withoutScenario(table, called)); got != "[absent box|in]" {
		t.Errorf("without a scenario: %s, want [absent box|in]", got)
	}
}

// calledCommands returns the full names of the commands that the files call.
func calledCommands(table *commands.Table, pattern string) (map[string]bool, error) {
	files, err := commandtest.Load(pattern)
	if err != nil {
		return nil, err
	}
	called := map[string]bool{}
	for _, f := range files {
		for _, s := range f.Steps {
			addCalled(table, called, s.Args)
		}
	}
	return called, nil
}

func addCalled(table *commands.Table, called map[string]bool, args [][]byte) {
	if len(args) == 0 {
		return
	}
	spec := table.Get(args[0])
	if spec == nil {
		return
	}
	if spec.Subcommands != nil && len(args) > 1 {
		if sub := table.Subcommand(spec, args[1]); sub != nil {
			spec = sub
		}
	}
	called[spec.FullName()] = true
}

// withoutScenario returns the names of the machine's commands that are not in called, in the
// table's order.
func withoutScenario(table *commands.Table, called map[string]bool) []string {
	var names []string
	add := func(s *commands.Spec) {
		if s.Local == nil && !called[s.FullName()] {
			names = append(names, s.FullName())
		}
	}
	for _, s := range table.All() {
		if s.Subcommands == nil {
			add(s)
			continue
		}
		for i := range s.Subcommands {
			add(&s.Subcommands[i])
		}
	}
	return names
}

// scenarioNode is a machine with its own log.
type scenarioNode struct {
	table   *commands.Table
	machine *Machine
	index   uint64
	clockMs int64
	// the time of day when that was 0; 0: as redis-server's clock shows when it is first asked for
	beganMs int64
}

func (n *scenarioNode) advance(ms int64) error {
	n.clockMs += ms
	// A leader proposes an empty tick when a deadline passes.
	_, err := n.apply(nil)
	return err
}

// wallUs returns the time of day, which advances with the cluster clock as a leader's does.
func (n *scenarioNode) wallUs() int64 {
	if n.beganMs == 0 {
		n.beganMs = time.Now().UnixMilli() - n.clockMs
	}
	return (n.beganMs + n.clockMs) * 1000
}

// apply sends requests through a log entry and returns their replies.
func (n *scenarioNode) apply(batch []byte) ([]byte, error) {
	n.index++
	entry := Entry{Origin: 7, ClockMs: n.clockMs, WallUs: n.wallUs(), Check: n.machine.Sum()}
	if batch != nil {
		entry.Batches = [][]byte{batch}
	}
	decoded, err := DecodeEntry(AppendEntry(nil, &entry))
	if err != nil {
		return nil, err
	}
	result, err := n.machine.Apply(n.index, decoded, true)
	if err != nil || batch == nil {
		return nil, err
	}
	return result.Replies[0], nil
}

// read runs requests without the log; the machine must not change.
func (n *scenarioNode) read(batch []byte) ([]byte, error) {
	before := n.machine.Sum()
	raw := n.machine.Read(nil, batch, n.clockMs, n.wallUs())
	err := n.readWithin(batch, raw)
	if n.machine.Sum() != before {
		return nil, fmt.Errorf("a read changed the machine")
	}
	return raw, err
}

// readWithin runs requests within the work that they take, and within less, at which they stop.
func (n *scenarioNode) readWithin(batch, want []byte) error {
	read := func(most uint64) ([]byte, uint64) {
		return n.machine.readWitnessed(nil, batch, n.clockMs, n.wallUs(), most, nil, false, nil)
	}
	_, work := read(0)
	for _, most := range []uint64{work, work - 1, work / 2, 1} {
		switch got, took := read(most); {
		case work <= 1, len(want) == 0: // nothing to do, or a dry run that would change something
		case most == work && (took != work || !bytes.Equal(got, want)):
			return fmt.Errorf("within its %d units of work a read took %d and replied %q, not %q",
				work, took, got, want)
		case most < work && took <= most:
			return fmt.Errorf("a read of %d units of work took %d", work, took)
		}
	}
	return nil
}

// scenarioSession has what scenarios of data commands need of a session: HELLO, SELECT and
// transactions. It passes everything else to the machine.
type scenarioSession struct {
	node  *scenarioNode
	db    int
	proto int
	reads int // counts read commands: every second one bypasses the log

	multi, broken bool
	queue         [][][]byte
	watch         []commands.WatchedKey
}

// Do implements commandtest.Target.
func (s *scenarioSession) Do(args [][]byte) ([]byte, error) {
	out := &commands.RESP{Proto: s.proto}
	name := strings.ToLower(string(args[0]))
	switch {
	case name == "hello" && len(args) == 2:
		s.proto, _ = strconv.Atoi(string(args[1]))
		s.reads++ // so that what uses the log in one protocol bypasses it in the other
		out.Status("OK")
	case name == "select" && len(args) == 2 && !s.multi:
		s.db, _ = strconv.Atoi(string(args[1]))
		if s.db < 0 || s.db >= keyspace.Databases {
			return nil, fmt.Errorf("no database %q", args[1])
		}
		out.Status("OK")
	case name == "multi" && !s.multi:
		s.multi = true
		out.Status("OK")
	case name == "discard" && s.multi:
		s.end()
		out.Status("OK")
	case name == "exec" && s.multi:
		return s.exec(out)
	case s.multi:
		s.enqueue(args, out)
	case name == "watch" && len(args) > 1:
		s.watchKeys(args[1:])
		out.Status("OK")
	case name == "unwatch":
		s.watch = nil
		out.Status("OK")
	default:
		return s.request(args)
	}
	return out.Buf, nil
}

func (s *scenarioSession) request(args [][]byte) ([]byte, error) {
	batch := commands.AppendRequest(nil, &commands.Request{DB: s.db, Proto: s.proto,
		Cmds: [][][]byte{args}})
	if spec, err := s.node.table.Resolve(args); err == nil && spec.Kind == commands.Read {
		if s.reads++; s.reads%2 == 0 {
			return s.timedOut(s.node.read(batch))
		}
	}
	return s.timedOut(s.node.apply(batch))
}

// timedOut replies for a command that waits as a session does after the timeout, which is at once
// here.
func (s *scenarioSession) timedOut(raw []byte, err error) ([]byte, error) {
	if _, _, waits := commands.CutBlock(raw); !waits || err != nil {
		return raw, err
	}
	out := &commands.RESP{Proto: s.proto}
	out.NullArray()
	return out.Buf, nil
}

func (s *scenarioSession) enqueue(args [][]byte, out commands.Reply) {
	if _, err := s.node.table.Resolve(args); err != nil {
		s.broken = true
		out.Error(err.Error())
		return
	}
	s.queue = append(s.queue, args)
	out.Status("QUEUED")
}

func (s *scenarioSession) exec(out *commands.RESP) ([]byte, error) {
	defer s.end()
	if s.broken {
		out.Error(commands.ErrExecAbort.Error())
		return out.Buf, nil
	}
	q := &commands.Request{DB: s.db, Proto: s.proto, Multi: true, Watch: s.watch, Cmds: s.queue}
	return s.node.apply(commands.AppendRequest(nil, q))
}

func (s *scenarioSession) end() { s.multi, s.broken, s.queue, s.watch = false, false, nil, nil }

func (s *scenarioSession) watchKeys(keys [][]byte) {
	for _, key := range keys {
		s.watch = append(s.watch, commands.WatchedKey{DB: s.db, Key: key,
			Changed: s.node.machine.ks.DB(s.db).LastChange(key)})
	}
}
