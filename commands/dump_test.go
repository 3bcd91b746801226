package commands

import (
	"bytes"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// Elements that expire as late as they may can be restored, also when the time of day was set ahead
// since.
func TestDumpsOfTheLatestDeadlines(t *testing.T) {
	r := newTestRun()
	wallUs := int64(2_000_000)
	run := func(args ...string) []byte {
		r.index++
		r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
		defer r.ks.End()
		out := &RESP{Proto: 2}
		r.table.Run(&Call{Env: &Env{Keyspace: r.ks, ClockMs: 1, WallUs: wallUs,
			Level: FeatureLevel}, Tx: &Tx{Proto: 2}, Args: commandtest.Args(args...), Out: out})
		return out.Buf
	}
	for _, line := range []string{"HSETEX h PXAT 70368744177663 FIELDS 1 last v",
		"HSETEX h PXAT 70368744177000 FIELDS 1 f v", "HSET h stays v",
		"SADDEX s PXAT 70368744177663 MEMBERS 1 last", "SADD s stays"} {
		if reply := run(strings.Fields(line)...); reply[0] != ':' {
			t.Fatalf("%s: %q", line, reply)
		}
	}
	wallUs += 300_000
	for _, c := range []struct{ key, deadlines, want string }{
		{"h", "HPEXPIRETIME copy FIELDS 3 last f stays",
			"*3\r\n:70368744177663\r\n:70368744177300\r\n:-1\r\n"},
		{"s", "SPEXPIRETIME copy MEMBERS 2 last stays", "*2\r\n:70368744177663\r\n:-1\r\n"},
	} {
		_, value, _ := bytes.Cut(run("DUMP", c.key), []byte("\r\n"))
		value = bytes.TrimSuffix(value, []byte("\r\n"))
		if got := run("RESTORE", "copy", "0", string(value), "REPLACE"); string(got) != "+OK\r\n" {
			t.Errorf("%s: %q", c.key, got)
		}
		if got := run(strings.Fields(c.deadlines)...); string(got) != c.want {
			t.Errorf("%s: %q, want %q", c.key, got, c.want)
		}
	}
}
