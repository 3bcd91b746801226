// A command that names the same data over and over is stopped, and changes nothing.

package commands

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// doTired is testRun.do for a command with little work left.
func (r *testRun) doTired(t *testing.T, args [][]byte) (reply []byte, changed bool) {
	t.Helper()
	spec, err := r.table.Resolve(args)
	if err != nil {
		t.Fatal(err)
	}
	r.index++
	out := &RESP{Proto: r.proto}
	before := r.ks.Sum()
	r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
	defer r.ks.End()
	const left = 10_000
	x := Call{Env: &Env{Keyspace: r.ks, ClockMs: 1, Work: maxCommandWork - left},
		Tx: &Tx{Proto: r.proto}, Args: args, Spec: spec, Out: out}
	if err := spec.Handler(&x); err != nil {
		out.Error(err.Error())
	}
	if did := x.Work - maxCommandWork; string(out.Buf) == "-"+string(ErrCommandWork)+"\r\n" &&
		did > 200_000 {
		t.Errorf("%.20q did %d units more than it may", args, did)
	}
	return out.Buf, r.ks.Sum() != before
}

func TestWorkOfOneCommandIsBounded(t *testing.T) {
	r := newTestRun()
	for _, c := range [][]string{{"SADD", "s"}, {"ZADD", "z"}} {
		for i := range 100 {
			if c[0] == "ZADD" {
				c = append(c, "1")
			}
			c = append(c, "member "+strconv.Itoa(i))
		}
		r.do(commandtest.Args(c...))
	}
	r.do(commandtest.Args("SETBIT", "b", strconv.Itoa(1<<13-1), "1")) // 1 KiB
	r.do(commandtest.Args("SADD", "long", strings.Repeat("x", 1<<16)))
	r.do(commandtest.Args("SADD", "other", "x"))
	r.do(commandtest.Args("ZADD", "zother", "1", "x"))
	r.do(commandtest.Args("SET", "d", "old"))
	group := commandtest.Args("XREADGROUP", "GROUP", "g", "c", "STREAMS", "x", ">")
	for i := range 30 {
		r.do(commandtest.Args("XADD", "x", strconv.Itoa(i+1), "f", "v"))
	}
	r.do(commandtest.Args("XGROUP", "CREATE", "x", "g", "0"))
	r.do(group)
	streams := func(words string, named int) [][]byte {
		args := commandtest.Args(append(strings.Fields(words),
			slices.Repeat([]string{"x"}, named)...)...)
		return append(args, commandtest.Args(slices.Repeat([]string{"0"}, named)...)...)
	}
	if reply, _ := r.doTired(t, streams("XREAD STREAMS", 1000)); string(reply) != "-"+
		string(ErrCommandWork)+"\r\n" {
		t.Errorf("XREAD: %.60q", reply)
	}
	if reply, _ := r.do(streams("XREAD STREAMS", 1000)); reply[0] == '-' {
		t.Errorf("XREAD, which may do it: %.60q", reply)
	}
	if reply, changed := r.do(streams("XREADGROUP GROUP g c STREAMS", 1<<17)); changed ||
		string(reply) != "-"+string(ErrCommandWork)+"\r\n" {
		t.Errorf("XREADGROUP: %.60q, changed %v", reply, changed)
	}
	if reply, _ := r.do(streams("XREADGROUP GROUP g c COUNT 1 STREAMS", 1<<17)); reply[0] == '-' {
		t.Errorf("XREADGROUP, which may do it: %.60q", reply)
	}
	for _, c := range []struct{ words, key string }{
		{"SUNION", "s"}, {"SINTER", "s"}, {"SUNIONSTORE d", "s"}, {"SINTERSTORE d", "s"},
		{"SINTERCARD 1000", "s"}, {"SUNION", "long"}, {"SINTER", "long"},
		{"ZUNION 1000", "z"}, {"ZINTER 1000", "z"}, {"ZINTERCARD 1000", "z"},
		{"ZUNIONSTORE d 1000", "z"}, {"ZINTERSTORE d 1000", "s"},
		{"SDIFF s", "other"}, {"SDIFFSTORE d s", "other"}, {"ZDIFF 1001 s", "zother"},
		{"ZDIFFSTORE d 1001 z", "other"}, {"BITOP OR d", "b"},
	} {
		args := commandtest.Args(append(strings.Fields(c.words),
			slices.Repeat([]string{c.key}, 1000)...)...)
		if reply, changed := r.doTired(t, args); changed ||
			string(reply) != "-"+string(ErrCommandWork)+"\r\n" {
			t.Errorf("%s %s …: %.60q, changed %v", c.words, c.key, reply, changed)
		}
		if reply, _ := r.do(args); reply[0] == '-' {
			t.Errorf("%s %s …, which may do it: %s", c.words, c.key, reply)
		}
		r.do(commandtest.Args("SET", "d", "old"))
	}
}
