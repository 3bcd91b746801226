package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/rdb"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/detector"
)

// dumped are the values that pass between coordd and Redis, as the calls that make them.
func dumped() map[string][]string {
	long := strings.Repeat("a long text ", 30)
	many := func(format string) (words string) {
		for i := range 700 {
			words += fmt.Sprintf(format, i*i*7919-90_000_000)
		}
		return words
	}
	// values of a stream around sizes where that of their place in a listpack is a byte longer
	wide := func(sizes ...int) (calls []string) {
		for _, size := range sizes {
			for n := size - 1; n <= size+1; n++ {
				calls = append(calls, "XADD k * a "+strings.Repeat("a", n))
			}
		}
		return append(calls, "XADD k * a b")
	}
	return map[string][]string{
		"wide values":     wide(62, 125, 4094, 1<<14-1-5),
		"wider values":    wide(1<<21 - 1 - 5),
		"a text":          {"SET k text"},
		"an empty text":   {"SET k ''"},
		"numbers":         {"SET k -12"},
		"16 bits":         {"SET k 30000"},
		"32 bits":         {"SET k -2147483648"},
		"64 bits":         {"SET k 9223372036854775807"},
		"not a number":    {"SET k 007"},
		"compressed":      {"SET k '" + long + "'"},
		"a short list":    {"RPUSH k a '' 5 -5 127 128 4095 -4096 70000 -8388608 3000000000"},
		"long elements":   {"RPUSH k '" + long + "' b '" + strings.Repeat(long, 40) + "'"},
		"a long list":     {"RPUSH k" + many(" e%d")},
		"integers":        {"SADD k 1 -2 30000 2147483647"},
		"large integers":  {"SADD k" + many(" %d") + " 9223372036854775807"},
		"texts":           {"SADD k a b '" + long + "'"},
		"many texts":      {"SADD k" + many(" e%d")},
		"a hash":          {"HSET k a 1 b text c '" + long + "'"},
		"a large hash":    {"HSET k" + many(" f%d v")},
		"a sorted set":    {"ZADD k 1 a 1.5 b -inf c inf d 3e300 e 0.1 f"},
		"a large set":     {"ZADD k" + many(" %d m") + " 1 a 2 b", "ZADD k" + many(" 0.5 m%d")},
		"minus zero":      {"ZADD k -0 a 1 b"},
		"many below -0":   {"ZADD k" + many(" -1 m%d"), "ZADD k -0 a"},
		"many above -0":   {"ZADD k" + many(" 1 m%d"), "ZADD k -0 a"},
		"an empty stream": {"XGROUP CREATE k g $ MKSTREAM"},
		"a stream": {"XADD k 5-1 a 1 b 2", "XADD k 5-2 a 3 b 4", "XADD k 7-0 other 5",
			"XADD k 7-9 a '' b '" + long + "'", "XADD k 8-0 a 1 b 2", "XDEL k 5-2 8-0",
			"XGROUP CREATE k g 0", "XREADGROUP GROUP g one COUNT 2 STREAMS k >",
			"XREADGROUP GROUP g two STREAMS k >", "XACK k g 7-0", "XGROUP CREATE k h 7-0",
			"XGROUP CREATECONSUMER k h idle"},
	}
}

// show are calls that together show all of a value but times.
var show = []string{"TYPE k", "GET k", "LRANGE k 0 -1", "SMEMBERS k", "HGETALL k",
	"ZRANGE k 0 -1 WITHSCORES", "XRANGE k - +", "XINFO GROUPS k", "XPENDING k g", "PTTL k",
	"XPENDING k g - + 10 two"}

// A value that Redis dumps is restored here, and dumped again and restored there.
func TestDumpsPassToRedisAndBack(t *testing.T) {
	real := commandtest.DialRedis(t)
	for name, calls := range dumped() {
		t.Run(name, func(t *testing.T) {
			m := newWaitMachine(t)
			there := func(words [][]byte) []byte {
				raw, err := real.Do(words)
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			here := func(words [][]byte) []byte {
				return m.apply(commands.Request{Proto: 2, Cmds: [][][]byte{words}})
			}
			there(commandtest.Args("FLUSHALL"))
			for _, line := range calls {
				words, err := commandtest.SplitArgs(line)
				if err != nil {
					t.Fatal(err)
				}
				if raw := there(words); raw[0] == '-' {
					t.Fatalf("%.50s: %s", line, raw)
				}
			}
			want := shown(t, there)
			pass(t, there, here)
			if got := shown(t, here); !slices.Equal(got, want) {
				t.Errorf("restored here:\n%.2000q, want\n%.2000q", got, want)
			}
			there(commandtest.Args("DEL", "k"))
			pass(t, here, there)
			if got := shown(t, there); !slices.Equal(got, want) {
				t.Errorf("restored there:\n%.2000q, want\n%.2000q", got, want)
			}
		})
	}
}

// Streams in the form of Redis before 7.0 do not say how many entries a group has read.
func TestOldStreamsAreRestoredAsByRedis(t *testing.T) {
	real := commandtest.DialRedis(t)
	for _, last := range []string{"0-0", "1-1", "2-1", "3-1"} {
		m := newWaitMachine(t)
		here := func(line string) string {
			return string(m.apply(commands.Request{Proto: 2,
				Cmds: [][][]byte{commandtest.Args(strings.Fields(line)...)}}))
		}
		for _, line := range []string{"XADD k 1-1 f v", "XADD k 2-1 f v", "XADD k 3-1 f v",
			"XGROUP CREATE k g " + last + " ENTRIESREAD 1"} {
			here(line)
		}
		v, err := commandtest.Parse([]byte(here("DUMP k")))
		if err != nil || v.IsError() {
			t.Fatal(v, err)
		}
		here("DEL k")
		old := oldStream(t, v.Text, last[0]-'0')
		restore := commandtest.Args("RESTORE", "k", "0", old, "REPLACE")
		want, err := real.Do(restore)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.apply(commands.Request{Proto: 2, Cmds: [][][]byte{restore}}); string(got) !=
			string(want) || string(want) != "+OK\r\n" {
			t.Fatalf("%q, Redis %q", got, want)
		}
		info, err := real.Do(commandtest.Args("XINFO", "GROUPS", "k"))
		if got := here("XINFO GROUPS k"); err != nil || got != string(info) {
			t.Errorf("a group at %s: %q, Redis %q, %v", last, got, info, err)
		}
	}
}

// oldStream turns the dump of a stream, whose group g is at ms-1 or 0-0, into its old form.
func oldStream(t *testing.T, dump string, ms byte) string {
	t.Helper()
	seq := min(ms, 1)
	newer := []byte{3, 3, 1, 1, 1, 0, 0, 3, 1, 1, 'g', ms, seq, 1, 0, 0}
	body, ok := strings.CutSuffix(dump[:len(dump)-10], string(newer))
	if !ok {
		t.Fatalf("%q does not end in %q", dump[:len(dump)-10], newer)
	}
	old := append([]byte{15}, body[1:]...)
	return string(rdb.Seal(append(old, 3, 3, 1, 1, 1, 'g', ms, seq, 0, 0), 9))
}

// pass dumps k on one side and restores it on the other.
func pass(t *testing.T, from, to func([][]byte) []byte) {
	t.Helper()
	v, err := commandtest.Parse(from(commandtest.Args("DUMP", "k")))
	if err != nil || v.Null || v.IsError() {
		t.Fatalf("dumped: %v, %v", v, err)
	}
	if raw := to(commandtest.Args("RESTORE", "k", "0", v.Text)); string(raw) != "+OK\r\n" {
		t.Fatalf("restored: %q", raw)
	}
}

// shown returns the replies of show, those without an order sorted, without times.
func shown(t *testing.T, call func([][]byte) []byte) (all []string) {
	t.Helper()
	for _, line := range show {
		v, err := commandtest.Parse(call(commandtest.Args(strings.Fields(line)...)))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case v.IsError():
			v = resp.Value{Kind: v.Kind}
		case strings.HasPrefix(line, "SMEMBERS"):
			slices.SortFunc(v.Elems, func(a, b resp.Value) int {
				return strings.Compare(a.Text, b.Text)
			})
		case strings.HasPrefix(line, "HGETALL"):
			var pairs []string
			for i := 0; i+1 < len(v.Elems); i += 2 {
				pairs = append(pairs, v.Elems[i].Text+"="+v.Elems[i+1].Text)
			}
			slices.Sort(pairs)
			v = resp.Value{Text: strings.Join(pairs, " ")}
		case strings.HasSuffix(line, "two"):
			for i := range v.Elems {
				v.Elems[i].Elems[2] = resp.Value{} // idle
			}
		}
		all = append(all, v.String())
	}
	return all
}

// Fields that expire pass between nodes of coordd, with their times.
func TestDumpOfFieldsThatExpire(t *testing.T) {
	m := newWaitMachine(t)
	m.run("HSET k a 1 b 2 c 3")
	m.run("HPEXPIRE k 5000 FIELDS 1 a")
	m.run("HPEXPIRE k 100 FIELDS 1 b")
	v, err := commandtest.Parse(m.apply(lineRequest("DUMP k")))
	if err != nil {
		t.Fatal(err)
	}
	m.reply("DEL k", ":1")
	m.clock += 1000
	restore := commands.Request{Proto: 2, Cmds: [][][]byte{
		commandtest.Args("RESTORE", "k", "20000", v.Text, "REPLACE")}}
	if got := m.text(m.apply(restore)); got != "+OK" {
		t.Fatal(got)
	}
	m.reply("HPTTL k FIELDS 3 a b c", "*3 :4000 :-2 :-1")
	m.reply("PTTL k", ":20000")
	if m.clock += 4001; m.run("HLEN k") != ":1" {
		t.Errorf("%q", m.run("HGETALL k"))
	}
}

// Members that expire do so too, in the two forms that Redis 8.12 has for them.
func TestDumpOfMembersThatExpire(t *testing.T) {
	m := newWaitMachine(t)
	m.run("SADD k a b c")
	m.run("SPEXPIRE k 5000 MEMBERS 1 a")
	m.run("SPEXPIRE k 100 MEMBERS 1 b")
	v, err := commandtest.Parse(m.apply(lineRequest("DUMP k")))
	if err != nil {
		t.Fatal(err)
	}
	packed := &rdb.ListpackWriter{}
	for member, atMs := range map[string]int64{"a": m.clock + 5000, "b": m.clock + 100, "c": 0} {
		packed.Text([]byte(member))
		packed.Int(atMs)
	}
	listpack := binary.LittleEndian.AppendUint64([]byte{34}, uint64(m.clock+100))
	m.clock += 1000
	for _, dump := range []string{v.Text,
		string(rdb.Seal(rdb.AppendText(listpack, packed.Bytes()), 17))} {
		restore := commands.Request{Proto: 2, Cmds: [][][]byte{
			commandtest.Args("RESTORE", "k", "20000", dump, "REPLACE")}}
		if got := m.text(m.apply(restore)); got != "+OK" {
			t.Fatalf("%q: %s", dump, got)
		}
		m.reply("SPTTL k MEMBERS 3 a b c", "*3 :4000 :-2 :-1")
		m.reply("PTTL k", ":20000")
	}
	if m.clock += 4001; m.run("SCARD k") != ":1" {
		t.Errorf("%q", m.run("SMEMBERS k"))
	}
	m.sweeps = -1 // so that it is still there
	m.run("SADD dead a b")
	m.run("SPEXPIRE dead 10 MEMBERS 1 a")
	m.clock += 11
	v, err = commandtest.Parse(m.apply(lineRequest("DUMP dead")))
	if want := "\x02\x01\x01b"; err != nil || !strings.HasPrefix(v.Text, want) {
		t.Errorf("the dump of what lasts begins with %q, want %q", v.Text, want)
	}
}

// What XNACK has released belongs to the consumer without a name then.
func TestDumpOfReleasedEntries(t *testing.T) {
	m := newWaitMachine(t)
	for _, line := range []string{"XADD k 1-1 a b", "XADD k 2-1 a b", "XGROUP CREATE k g 0",
		"XREADGROUP GROUP g c STREAMS k >", "XNACK k g FAIL IDS 1 1-1"} {
		if got := m.run(line); got[0] == '-' {
			t.Fatalf("%s: %q", line, got)
		}
	}
	pass(t, func([][]byte) []byte { return m.apply(lineRequest("DUMP k")) },
		func(words [][]byte) []byte {
			words[1] = []byte("n")
			return m.apply(commands.Request{Proto: 2, Cmds: [][][]byte{words}})
		})
	m.reply("XPENDING n g", "*4 :2 $3 1-1 $3 2-1 *2 *2 $0  $1 1 *2 $1 c $1 1")
}

func TestRestoreRefuses(t *testing.T) {
	m := newWaitMachine(t)
	m.run("SET k text")
	v, err := commandtest.Parse(m.apply(lineRequest("DUMP k")))
	if err != nil {
		t.Fatal(err)
	}
	good := v.Text
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"k", "0", good}, "-BUSYKEY Target key name already exists."},
		{[]string{"k", "0", good, "REPLACE"}, "+OK"},
		{[]string{"n", "-1", good}, "-ERR Invalid TTL value, must be >= 0"},
		{[]string{"n", "x", good}, "-ERR value is not an integer or out of range"},
		{[]string{"n", "0", good + "x"}, "-ERR DUMP payload version or checksum are wrong"},
		{[]string{"n", "0", ""}, "-ERR DUMP payload version or checksum are wrong"},
		{[]string{"n", "0", good, "IDLETIME", "-1"}, "-ERR Invalid IDLETIME value, must be >= 0"},
		{[]string{"n", "0", good, "FREQ", "256"},
			"-ERR Invalid FREQ value, must be >= 0 and <= 255"},
		{[]string{"n", "0", good, "IDLETIME", "1", "FREQ", "1"}, "-ERR syntax error"},
		{[]string{"n", "0", good, "NX"}, "-ERR syntax error"},
		{[]string{"n", "1", good, "ABSTTL"}, "+OK"}, // and is gone
		{[]string{"n", "0", good, "FREQ", "255"}, "+OK"},
	} {
		q := commands.Request{Proto: 2, Cmds: [][][]byte{
			commandtest.Args(append([]string{"RESTORE"}, c.words...)...)}}
		if got := m.text(m.apply(q)); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
	m.reply("MGET k n", "*2 $4 text $4 text")
	m.reply("DUMP none", "$-1")
}

// Entries of a stream share the names of their fields: a short value must not unpack to a long one.
func TestRestoreOfSharedNames(t *testing.T) {
	detector.Skip(t)
	m := newWaitMachine(t)
	node := func(name string, entries int) string {
		var w rdb.ListpackWriter
		for _, n := range []int{entries, 0, 1} {
			w.Int(int64(n))
		}
		w.Text([]byte(name))
		w.Int(0)
		for i := range entries {
			const sameFields = 2
			for _, n := range []int{sameFields, 0, i, 7, 4} { // 7 is the value
				w.Int(int64(n))
			}
		}
		body := rdb.AppendLength([]byte{15}, 1)
		body = rdb.AppendText(body, "\x00\x00\x00\x00\x00\x00\x00\x01"+strings.Repeat("\x00", 8))
		body = rdb.AppendText(body, w.Bytes())
		for _, n := range []int{entries, 1, entries - 1, 0} { // entries, last id, groups
			body = rdb.AppendLength(body, uint64(n))
		}
		q := commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args("RESTORE", "k", "0",
			string(rdb.Seal(body, 9)), "REPLACE")}}
		return m.text(m.apply(q))
	}
	if got := node("name", 1000); got != "+OK" {
		t.Fatal(got)
	}
	m.reply("XREVRANGE k + - COUNT 1", "*1 *2 $5 1-999 *2 $4 name $1 7")
	if got := node(strings.Repeat("n", 100_000), 1000); got != "-ERR Bad data format" {
		t.Error(got)
	}
}

// FuzzRestore has hostile values refused, or restored to what is dumped as the same value again.
func FuzzRestore(f *testing.F) {
	table := testTable()
	maker := newestMachine(table)
	apply := func(m *Machine, words ...string) []byte {
		q := commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(words...)}}
		e := &Entry{ClockMs: 1000, Batches: [][]byte{commands.AppendRequest(nil, &q)}}
		r, err := m.Apply(m.Index()+1, e, true)
		if err != nil {
			panic(err)
		}
		return r.Replies[0]
	}
	for _, calls := range dumped() {
		apply(maker, "FLUSHALL")
		for _, line := range calls {
			words, _ := commandtest.SplitArgs(line)
			var texts []string
			for _, w := range words {
				texts = append(texts, string(w))
			}
			apply(maker, texts...)
		}
		v, err := commandtest.Parse(apply(maker, "DUMP", "k"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(v.Text[:len(v.Text)-10]))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := newestMachine(table)
		reply := apply(m, "RESTORE", "k", "0", string(rdb.Seal(body, 12)))
		if bytes.Contains(reply, []byte("internal error")) {
			t.Fatalf("%q", reply)
		}
		if string(reply) != "+OK\r\n" {
			if reply = apply(m, "EXISTS", "k"); string(reply) != ":0\r\n" {
				t.Fatalf("refused, but there: %q", reply)
			}
			return
		}
		v, err := commandtest.Parse(apply(m, "DUMP", "k"))
		if err != nil || v.IsError() || v.Null { // fields may have expired
			return
		}
		sum := m.ks.DB(0).Find([]byte("k"))
		again := newestMachine(table)
		if reply := apply(again, "RESTORE", "k", "0", v.Text); string(reply) != "+OK\r\n" {
			t.Fatalf("what was dumped is refused: %q", reply)
		}
		if c := again.ks.DB(0).Find([]byte("k")); c.Kind() != sum.Kind() ||
			c.Collection() != nil && c.Collection().Sum() != sum.Collection().Sum() ||
			!bytes.Equal(c.Bytes(), sum.Bytes()) {
			t.Fatal("restored to another value")
		}
	})
}
