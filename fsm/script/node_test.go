package script

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/server"
)

// testTable is the table of a node: scripts also run some of the session's commands (TIME,
// PUBLISH).
var testTable = sync.OnceValue(func() *commands.Table {
	return commands.NewTable(commands.Specs(), server.Specs())
})

// newestCall returns a call of a request on a machine of the newest feature level.
func newestCall() *commands.Call {
	return &commands.Call{Env: &commands.Env{Level: commands.FeatureLevel}, Tx: &commands.Tx{},
		Out: commands.Discard{}}
}

// node is what scripts need of a machine: an engine and a keyspace, on which each call is an entry.
type node struct {
	table  *commands.Table
	engine *Engine
	ks     *keyspace.Keyspace
	index  uint64
	proto  int
	level  uint64
}

func newNode() *node {
	table := testTable()
	return &node{table: table, engine: NewEngine(table), ks: keyspace.New(), proto: 2,
		level: commands.FeatureLevel}
}

// Do implements commandtest.Target.
func (n *node) Do(args [][]byte) ([]byte, error) {
	if strings.EqualFold(string(args[0]), "hello") {
		n.proto, _ = strconv.Atoi(string(args[1]))
		return []byte("+OK\r\n"), nil
	}
	n.index++
	n.ks.Begin(1, keyspace.NewRevision(0, n.index, 0))
	defer n.ks.End()
	return n.run(n.engine, args), nil
}

// run runs a call with the scripts of the engine, or with its dry runs.
func (n *node) run(scripts commands.Scripts, args [][]byte) []byte {
	out := &commands.RESP{Proto: n.proto}
	env := &commands.Env{
		Keyspace: n.ks, Level: n.level, Scripts: scripts, ClockMs: 1,
		WallUs: 1_700_000_000_000_000, Seed: n.index << 20,
		Emit: func(commands.Event) {},
	}
	env.BeginCommand()
	runCall(n.table, &commands.Call{
		Env: env, Tx: &commands.Tx{Proto: n.proto}, Args: args, Out: out,
		Stop: commands.MaxRequestWork, Room: commands.MaxReplyBytes,
	})
	return out.Buf
}

// eval runs a script with EVAL and returns the raw reply.
func (n *node) eval(t testing.TB, source string, args ...string) string {
	t.Helper()
	raw, err := n.Do(commandtest.Args(append([]string{"EVAL", source, "0"}, args...)...))
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return string(raw)
}

// evalOn runs EVAL or EVAL_RO on an engine alone.
func evalOn(e *Engine, source string, readOnly bool) string {
	out := &commands.RESP{Proto: 2}
	x := &commands.Call{Env: &commands.Env{Scripts: e}, Tx: &commands.Tx{}, Out: out}
	if err := e.Eval(x, commands.Script{Source: []byte(source), ReadOnly: readOnly}); err != nil {
		return err.Error()
	}
	return string(out.Buf)
}

// runCall runs a command without a machine.
func runCall(table *commands.Table, x *commands.Call) { x.Run(table.ResolveAt(x.Level, x.Args)) }
