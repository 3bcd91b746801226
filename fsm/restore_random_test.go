// Keys that are loaded, and machines that are restored, after every few random calls, over
// deliberately few values: so counters are lowered, set twice and overtaken, and what a command
// leaves meets what another one expects.

package fsm

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// restoreRounds is the number of rounds, each of which has a machine of its own.
func restoreRounds(t *testing.T) uint64 {
	if text := os.Getenv("COORDD_RESTORES"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if tier.Soaking() {
		return 3000
	}
	return 300
}

// restoreEntries is the number of entries of a round, restoreWrites that of the commands that write
// in it. With few commands a round, those that matter to each other meet.
const (
	restoreEntries = 20
	restoreWrites  = 6
)

// fewKeys, fewIDs and the like are the values of calls: few, and close to each other.
var (
	fewKeys   = []string{"a", "a", "a", "b", "c"}
	fewIDs    = []string{"1-1", "2-1", "3-1", "4-1", "1-1", "2-1", "3-1", "4-1", ">"}
	fewCounts = []string{"0", "1", "2", "3", "5", "-1", "100"}
	fewPools  = []random.Pool{
		{Part: "username", Values: []string{"u", "v"}},
		{Part: "rule", Values: []string{"on", "off", "reset", ">p", "nopass", "+@all", "-get",
			"~a*", "%R~b", "&c", "resetkeys", "(+get ~a)"}},
		{Part: "key", Values: fewKeys},
		{Part: "threshold", Values: slices.Concat(fewCounts, fewIDs)},
		{Part: "entries", Values: fewCounts},
		{Part: "lastid", Values: fewIDs}, {Part: "last-id", Values: fewIDs},
		{Part: "deleted-id", Values: fewIDs}, {Part: "id", Values: fewIDs},
		{Part: "score", Values: []string{"1", "2", "-1.5", "0"}},
		{Part: "group", Values: []string{"g", "h"}}, {Part: "consumer", Values: []string{"x", "y"}},
		{Part: "field", Values: []string{"1", "2", "f"}},
		{Part: "member", Values: []string{"1", "2", "m"}},
		{Part: "element", Values: []string{"1", "2", strings.Repeat("e", 64),
			strings.Repeat("e", 65), strings.Repeat("e", 4096)}},
		{Part: "value", Values: []string{"1", "", strings.Repeat("v", 44),
			strings.Repeat("v", 45), strings.Repeat("v", 64), strings.Repeat("v", 65),
			strings.Repeat("v", 1500)}},
		{Part: "seconds", Values: []string{"1", "100", "300", "20000", "0", "-1"}},
		{Part: "type", Values: []string{"string", "hash", "zset", "list", "set", "stream"}},
	}
	// fillers make a value as long as the border between two encodings, or around it.
	fillers = map[string]string{
		"hash": "hset', KEYS[1], i, i", "list": "rpush', KEYS[1], i", "set": "sadd', KEYS[1], i",
		"sorted-set": "zadd', KEYS[1], i % 4, i", "string": "append', KEYS[1], 'v'",
		"stream": "xadd', KEYS[1], i % 5 .. '-1', 'f', string.rep('v', 600 * (i % 3))",
	}
	borders = []int{1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 3, 5, 44, 64,
		99, 100, 101, 127, 128, 129, 512, 513}
)

// TestRestoredMachinesStayEqual makes random calls of all commands. What is loaded or restored
// after every few of them must count and write the same, and answer what follows alike.
func TestRestoredMachinesStayEqual(t *testing.T) {
	detector.Skip(t)
	seed := seeds.Of(t)
	g := restores{T: t, table: testTable()}
	for round := range restoreRounds(t) {
		g.round(seed + round)
	}
	t.Logf("%d keys loaded, %d machines restored, %d dumps", g.keys, g.snapshots, g.dumps)
	if g.snapshots == 0 || g.keys == 0 || g.dumps == 0 {
		t.Error("nothing to compare")
	}
}

type restores struct {
	*testing.T
	table                  *commands.Table
	calls                  *random.Calls
	specs                  []*commands.Spec // all
	m                      *Machine
	others                 []*Machine // restored from snapshots of m
	index                  uint64
	seed                   uint64
	entries                strings.Builder // of the round, as text
	snapshots, keys, dumps int
}

func (g *restores) fail(format string, args ...any) {
	g.Helper()
	g.Fatalf("%s=%d: entry %d of%s\n%s", seeds.Variable, g.seed, g.index, g.entries.String(),
		fmt.Sprintf(format, args...))
}

// round begins at one level, and most of its calls are of one group of commands.
func (g *restores) round(seed uint64) {
	g.calls, g.seed, g.index, g.others = random.NewCalls(g.table, seed), seed, 0, nil
	g.entries.Reset()
	g.calls.Pools = slices.Concat(fewPools, g.calls.Pools)
	g.calls.Strays = 1 // no group has keys of its own
	g.specs = g.calls.Specs
	groups := []string{"hash", "hash", "list", "set", "set", "sorted-set", "stream", "stream",
		"stream", "stream", "string", "geo", "bitmap", "scripting", "server"}
	group := groups[g.calls.IntN(len(groups))]
	some := slices.DeleteFunc(slices.Clone(g.specs), func(s *commands.Spec) bool {
		return s.Group != group || s.Kind != commands.Write
	})
	g.calls.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:min(len(some), restoreWrites)]
	g.m = NewMachine(g.table)
	if g.calls.IntN(3) > 0 {
		g.m = newestMachine(g.table)
	}
	g.m.sweeps = []int{0, 1, 2}[g.calls.IntN(3)]
	for range restoreEntries {
		e := &Entry{Origin: 1}
		e.ClockMs, _ = g.calls.Stamps()
		e.WallUs = int64(g.index)
		g.calls.Specs = some
		if len(some) == 0 || g.calls.IntN(12) == 0 {
			g.calls.Specs = g.specs
		}
		switch e.Batches = [][]byte{g.batch()}; {
		case g.calls.IntN(40) == 0:
			e.Level = commands.FeatureLevel
		case g.calls.IntN(4) == 0:
			if call := fillers[group]; call != "" {
				e.Batches = append(e.Batches, g.filler(call))
			}
		}
		g.apply(e)
		if g.reload(); g.calls.IntN(8) == 0 {
			g.compare()
		}
	}
}

// batch makes a batch of random requests.
func (g *restores) batch() (batch []byte) {
	for range 1 + g.calls.IntN(10) {
		q := g.calls.Request()
		for _, call := range q.Cmds {
			for i, word := range call {
				if string(word) == "*" && g.calls.IntN(8) > 0 {
					// no other call would name a generated id
					call[i] = []byte(g.calls.Pick(fewIDs))
				}
			}
		}
		batch = commands.AppendRequest(batch, q)
	}
	return batch
}

// filler makes a batch that makes or extends a value.
func (g *restores) filler(call string) []byte {
	script := "for i = 1, ARGV[1] do redis.pcall('" + call + ") end"
	return commands.AppendRequest(nil, &commands.Request{Proto: 2, Cmds: [][][]byte{
		commandtest.Args("EVAL", script, "1", g.calls.Pick(fewKeys),
			fmt.Sprint(borders[g.calls.IntN(len(borders))]))}})
}

// apply applies an entry to all machines.
func (g *restores) apply(e *Entry) {
	g.index++
	fmt.Fprintf(&g.entries, "\n%d, level %d:%s", g.index, e.Level, entryText(e))
	want, err := g.m.Apply(g.index, e, true)
	if err != nil {
		g.fail("%v", err)
	}
	for _, m := range g.others {
		got, err := m.Apply(g.index, e, true)
		if err != nil {
			g.fail("a restored machine: %v", err)
		}
		for i := range want.Replies {
			if !bytes.Equal(want.Replies[i], got.Replies[i]) {
				g.fail("a restored machine answers\n%q instead of\n%q", got.Replies[i],
					want.Replies[i])
			}
		}
		if got.Ran != want.Ran || got.Spent != want.Spent {
			g.fail("a restored machine runs %d batches for %d units instead of %d for %d", got.Ran,
				got.Spent, want.Ran, want.Spent)
		}
		g.counted(m)
	}
}

// counted compares the hashes and the counts of a restored machine.
func (g *restores) counted(m *Machine) {
	counts := func(m *Machine) string {
		return fmt.Sprintf("hashes %x %x, %d bytes, %d of scripts: %d", m.Sum().Sum,
			m.StateSum().Sum, m.memory(), m.engine.Size(), m.engine.Counts())
	}
	if got, want := counts(m), counts(g.m); got != want {
		g.fail("a restored machine has\n%s instead of\n%s", got, want)
	}
}

// reload loads the keys into another keyspace, which must count and write the same.
func (g *restores) reload() {
	marks := g.m.Level() >= commands.LevelSecond
	other := keyspace.New()
	load := other.Load
	if !marks {
		load = other.LoadUnmarked
	}
	var records [][]byte
	_ = g.m.ks.Freeze().Records(marks, func(record []byte) error { // never fails here
		records = append(records, bytes.Clone(record))
		return nil
	})
	for _, record := range records {
		if err := load(record); err != nil {
			g.fail("%v: %q", err, record)
		}
	}
	g.keys += len(records)
	i := 0
	_ = other.Freeze().Records(marks, func(record []byte) error {
		if !bytes.Equal(record, records[i]) {
			g.fail("a loaded record becomes\n%q instead of\n%q", record, records[i])
		}
		i++
		return nil
	})
	if i != len(records) || other.Size() != g.m.ks.Size() {
		g.fail("loaded, %d of %d keys count %d bytes instead of %d", i, len(records), other.Size(),
			g.m.ks.Size())
	}
}

// compare restores a machine, and keeps it for what follows.
func (g *restores) compare() {
	content := snapshotBytes(g, g.m.Snapshot())
	restored, err := ReadSnapshot(bytes.NewReader(content), g.table)
	if err != nil {
		g.fail("ReadSnapshot: %v", err)
	}
	if again := snapshotBytes(g, restored.Snapshot()); !bytes.Equal(again, content) {
		g.fail("a restored machine gives\n%q instead of\n%q", again, content)
	}
	g.counted(restored)
	info, err := CheckSnapshot(bytes.NewReader(content), g.table)
	keys := 0
	for i := range keyspace.Databases {
		keys += g.m.ks.DB(i).Size()
	}
	if err != nil || info.Memory != g.m.memory() || info.Keys != keys {
		g.fail("CheckSnapshot: %v, %d keys of %d bytes instead of %d of %d", err, info.Keys,
			info.Memory, keys, g.m.memory())
	}
	restored.sweeps = g.m.sweeps
	g.snapshots++
	switch {
	case len(g.others) < 2:
		g.others = append(g.others, restored)
	case g.calls.IntN(4) == 0:
		g.others[g.calls.IntN(len(g.others))] = restored
	case g.calls.IntN(2) == 0:
		g.dump(restored)
	}
}

// dump restores the dump of a key of a machine, which is thrown away then.
func (g *restores) dump(m *Machine) {
	if m.Level() < commands.LevelSecond {
		return
	}
	index := g.index
	call := func(words ...string) string {
		index++
		q := &commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(words...)}}
		r, err := m.Apply(index, &Entry{ClockMs: m.ClockMs(), WallUs: m.NewestUs() + 1,
			Batches: [][]byte{commands.AppendRequest(nil, q)}}, true)
		if err != nil {
			g.fail("%q: %v", words, err)
		}
		return string(r.Replies[0])
	}
	key := g.calls.Pick(fewKeys)
	reply := call("DUMP", key)
	if reply[0] != '$' || reply[1] == '-' {
		return
	}
	if strings.Contains(call("XINFO", "STREAM", key), "idmp-maxsize") {
		return // a dump has nothing of it
	}
	_, payload, _ := strings.Cut(strings.TrimSuffix(reply, "\r\n"), "\r\n")
	if r := call("RESTORE", "copy", "0", payload, "REPLACE"); r != "+OK\r\n" {
		g.fail("RESTORE of %s: %q", key, r)
	}
	g.dumps++
	was, is := contentOf(m, key), contentOf(m, "copy")
	if was != is {
		g.fail("RESTORE of %s gives %s instead of %s", key, is, was)
	}
}

// contentOf returns what a key holds, but for times, which a dump has by another clock, and the
// layout of streams.
func contentOf(m *Machine, key string) string {
	e := m.ks.DB(0).Find([]byte(key))
	switch {
	case e == nil:
		return ""
	case e.Kind() == keyspace.KindString:
		return fmt.Sprintf("%q", e.Bytes())
	case e.Kind() == keyspace.KindStream && e.Collection().(*keyspace.Stream).Groups() > 0,
		e.Kind() == keyspace.KindHash && e.Collection().(*keyspace.Hash).Volatile() > 0,
		e.Kind() == keyspace.KindSet && e.Collection().(*keyspace.Set).Volatile() > 0:
		return fmt.Sprint(e.Kind())
	}
	return fmt.Sprintf("%s %x", e.Kind(), e.Collection().Sum())
}
