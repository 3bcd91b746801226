// The cost of a small script.

package script

import (
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// The release of a lock as most libraries send it.
const releaseScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// BenchmarkRelease releases a lock that another client holds: the script reads and changes nothing.
func BenchmarkRelease(b *testing.B) {
	table := commands.NewTable(commands.Specs())
	ks := keyspace.New()
	e := NewEngine(table)
	env := &commands.Env{Keyspace: ks, ClockMs: 1, Scripts: e, Emit: func(commands.Event) {}}
	ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	out := &commands.RESP{Proto: 2}
	tx := &commands.Tx{Proto: 2}
	run := func(args [][]byte) {
		out.Buf = out.Buf[:0]
		runCall(table, &commands.Call{Env: env, Tx: tx, Args: args, Out: out})
	}
	run(commandtest.Args("SET", "lock", "owner"))
	sha, err := e.Load(newestCall(), []byte(releaseScript))
	if err != nil {
		b.Fatal(err)
	}
	for name, args := range map[string][][]byte{
		"evalsha": commandtest.Args("EVALSHA", sha, "1", "lock", "other"),
		"eval":    commandtest.Args("EVAL", releaseScript, "1", "lock", "other"),
		"failing": commandtest.Args("EVAL",
			`assert(redis.call("get",KEYS[1]) == ARGV[1], "not the owner")`, "1", "lock", "other"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run(args)
			}
			if name != "failing" && string(out.Buf) != ":0\r\n" {
				b.Fatalf("reply %q", out.Buf)
			}
		})
	}
}
