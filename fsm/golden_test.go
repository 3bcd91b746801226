// The files that this and every later release must read. testdata/golden holds entries and
// snapshots of each format version, created once by
//
//	go test ./fsm -run Golden -update
//
// which never overwrites a file. After changing a format, raise its version, keep reading the old
// one, and create the new files.

package fsm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/detector"
)

var update = flag.Bool("update", false, "make golden files that are missing")

const goldenFiles = "../testdata/golden/"

func readGolden(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// makeGolden writes a file if -update is set and it does not exist.
func makeGolden(t *testing.T, path string, content []byte) {
	t.Helper()
	if !*update {
		return
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("made %s", path)
}

// goldenRequests are the requests of the golden entry: a call, a call of another database with
// arbitrary bytes, and a transaction.
var goldenRequests = []commands.Request{
	{Proto: 2, Cmds: [][][]byte{commandtest.Args("SET", "lock", "owner", "NX", "PX", "30000")}},
	{DB: 15, Proto: 3, Cmds: [][][]byte{commandtest.Args("SET", "bin\x00\xff", "")}},
	{
		Proto: 3, Multi: true,
		Watch: []commands.WatchedKey{{DB: 2, Key: []byte("w"),
			Changed: keyspace.NewRevision(1, 1<<33, keyspace.MaxPosition)}, {Key: []byte{}}},
		Cmds: [][][]byte{commandtest.Args("INCR", "n"), commandtest.Args("PING")},
	},
	{Proto: 2, Multi: true},
}

func goldenEntry() *Entry {
	e := &Entry{
		Origin: 0x0123456789abcdef, ClockMs: 1 << 40, WallUs: 1_700_000_000_123_456,
		Check: Check{Index: 1 << 33, Sum: 0xfedcba9876543210}, Batches: [][]byte{nil, {}},
	}
	for i := range goldenRequests {
		e.Batches[i%2] = commands.AppendRequest(e.Batches[i%2], &goldenRequests[i])
	}
	return e
}

// goldenTick is an entry without requests, from before 1970.
func goldenTick() *Entry { return &Entry{Origin: 1, ClockMs: 5, WallUs: -1, Batches: [][]byte{}} }

// askedRequests are the requests of the golden entry "asked": each property of a request besides
// its call, alone and with all that can be combined.
var askedRequests = []commands.Request{
	{Proto: 2, Client: 1, Cmds: [][][]byte{commandtest.Args("SET", "k", "v")}},
	{Proto: 2, Woken: true, Cmds: [][][]byte{commandtest.Args("BLPOP", "list", "0")}},
	{Proto: 2, Behind: true, Cmds: [][][]byte{commandtest.Args("BLPOP", "list", "0")}},
	{Proto: 2, System: true, Cmds: [][][]byte{commandtest.Args("notify-keyspace-events", "KEA")}},
	{DB: 9, Proto: 3, Client: 1 << 60, Woken: true, Behind: true,
		Cmds: [][][]byte{commandtest.Args("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")}},
	{DB: 1, Proto: 3, Client: 2, Multi: true,
		Watch: []commands.WatchedKey{{DB: 15, Key: []byte("w"), Changed: 1}},
		Cmds:  [][][]byte{commandtest.Args("DEL", "w")}},
}

// userRequests are the requests of the golden entry "users": a command, a transaction and a
// setting, each with its user.
var userRequests = []commands.Request{
	{Proto: 2, User: commands.UserID{Name: []byte("default")},
		Cmds: [][][]byte{commandtest.Args("GET", "k")}},
	{DB: 3, Proto: 3, Client: 7, User: commands.UserID{Name: []byte("al\x00ice"), Created: 1 << 62},
		Multi: true, Watch: []commands.WatchedKey{{DB: 15, Key: []byte("w"), Changed: 1}},
		Cmds: [][][]byte{commandtest.Args("DEL", "w")}},
	{Proto: 2, System: true, User: commands.UserID{Name: []byte{}, Created: 1},
		Cmds: [][][]byte{commandtest.Args("notify-keyspace-events", "KEA")}},
}

// toldRequests are the requests of the golden entry "told": with flags of the second byte, alone
// and with all of the first that can be combined.
var toldRequests = []commands.Request{
	{Proto: 2, TellReads: true, Cmds: [][][]byte{commandtest.Args("EVAL", "return 1", "0")}},
	{DB: 3, Proto: 3, Client: 7, TellReads: true, Multi: true,
		User:  commands.UserID{Name: []byte("alice"), Created: 1},
		Watch: []commands.WatchedKey{{DB: 15, Key: []byte("w"), Changed: 1}},
		Cmds:  [][][]byte{commandtest.Args("FCALL", "f", "0")}},
}

// waitRequests are the requests of the golden entry "waits": commands that may wait in the machine,
// and the ends of waits.
var waitRequests = []commands.Request{
	{Proto: 2, Wait: &commands.Wait{Node: []byte("n1"), Number: 1},
		Cmds: [][][]byte{commandtest.Args("BLPOP", "l", "0")}},
	{DB: 9, Proto: 3, Client: 7, User: commands.UserID{Name: []byte("alice"), Created: 1},
		Woken: true, TellReads: true,
		Wait: &commands.Wait{Node: []byte("n\x00"), Era: 1 << 40, Number: 1 << 62, Order: 300},
		Cmds: [][][]byte{commandtest.Args("BZMPOP", "0", "1", "z", "MIN")}},
	{Proto: 2, System: true, Cmds: [][][]byte{commandtest.Args("leave-wait", "1")}},
	{Proto: 2, System: true, Cmds: [][][]byte{commandtest.Args("drop-waits", "n1")}},
}

// holderRequests are the requests of the golden entry "holders": commands that bind leases to
// connections, alone and with all that can be combined, and the ends of connections.
var holderRequests = []commands.Request{
	{Proto: 2, Holder: &commands.Holder{Node: []byte("n1"), ID: 1 << 32},
		Cmds: [][][]byte{commandtest.Args("LEASE", "KEEPALIVE", "1")}},
	{DB: 9, Proto: 3, Client: 7, User: commands.UserID{Name: []byte("alice"), Created: 1},
		TellReads: true, Multi: true, Conditional: true,
		Holder: &commands.Holder{Node: []byte("n\x00"), ID: 1 << 62},
		Watch:  []commands.WatchedKey{{DB: 15, Key: []byte("w"), Changed: 1}},
		Cmds: [][][]byte{commandtest.Args("EXEC", "NX", "k"),
			commandtest.Args("LEASE", "GRANT", "9", "CONNECTION")}},
	{Proto: 2, System: true, Cmds: [][][]byte{commandtest.Args("end-holder", "n1", "1")}},
	{Proto: 2, System: true, Cmds: [][][]byte{commandtest.Args("drop-holders", "n1")}},
	{Proto: 2, System: true, Cmds: [][][]byte{commandtest.Args("keep-holder", "n1", "1")}},
}

func holdersEntry() *Entry { return entryOf(7, holderRequests) }

func waitsEntry() *Entry { return entryOf(6, waitRequests) }

func toldEntry() *Entry { return entryOf(5, toldRequests) }

func askedEntry() *Entry { return entryOf(2, askedRequests) }

func usersEntry() *Entry { return entryOf(4, userRequests) }

// entryOf returns an entry with one batch.
func entryOf(origin uint64, requests []commands.Request) *Entry {
	e := &Entry{Origin: origin, ClockMs: 1, WallUs: 1, Batches: [][]byte{nil}}
	for i := range requests {
		e.Batches[0] = commands.AppendRequest(e.Batches[0], &requests[i])
	}
	return e
}

// goldenRaise is an entry that raises the feature level and has a check, as the format allows.
func goldenRaise() *Entry {
	return &Entry{Origin: 3, ClockMs: 300, WallUs: 7, Check: Check{Index: 200, Sum: 1 << 63},
		Level: 300, Batches: [][]byte{}}
}

func TestGoldenEntries(t *testing.T) {
	for name, e := range map[string]*Entry{"entry": goldenEntry(), "tick": goldenTick(),
		"asked": askedEntry(), "users": usersEntry(), "told": toldEntry(), "waits": waitsEntry(),
		"holders": holdersEntry(), "raise": goldenRaise()} {
		current := fmt.Sprintf("%s%s-v%d.bin", goldenFiles, name, entryVersion)
		makeGolden(t, current, AppendEntry(nil, e))
		for version := 1; version <= entryVersion; version++ {
			path := fmt.Sprintf("%s%s-v%d.bin", goldenFiles, name, version)
			got, err := DecodeEntry(readGolden(t, path))
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if !reflect.DeepEqual(got, e) {
				t.Errorf("%s is read as\n%+v, want\n%+v", path, got, e)
			}
		}
		if !bytes.Equal(AppendEntry(nil, e), readGolden(t, current)) {
			t.Errorf("%s is written otherwise now: a new format needs a new version", current)
		}
	}
}

// The requests of the golden entries are read as they were written.
func TestGoldenRequests(t *testing.T) {
	checkRequests(t, "entry-v1.bin", goldenRequests)
	checkRequests(t, "asked-v1.bin", askedRequests)
	checkRequests(t, "users-v1.bin", userRequests)
	checkRequests(t, "told-v1.bin", toldRequests)
	checkRequests(t, "waits-v1.bin", waitRequests)
	checkRequests(t, "holders-v1.bin", holderRequests)
}

// checkRequests reads the requests of an entry, and compares those of each batch with the next
// list.
func checkRequests(t *testing.T, file string, requests []commands.Request) {
	e, err := DecodeEntry(readGolden(t, goldenFiles+file))
	if err != nil {
		t.Fatal(err)
	}
	readers := make([]commands.RequestReader, len(e.Batches))
	for i := range readers {
		readers[i].Reset(e.Batches[i])
	}
	for i := range requests {
		got, err := readers[i%len(readers)].Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := requestText(*got), requestText(requests[i]); got != want {
			t.Errorf("%s: request %d is read as\n%s, want\n%s", file, i, got, want)
		}
	}
	for i := range readers {
		if readers[i].More() {
			t.Errorf("%s: batch %d goes on", file, i)
		}
	}
}

func requestText(q commands.Request) string {
	wait, holder := commands.Wait{}, commands.Holder{}
	if q.Wait != nil {
		wait, q.Wait = *q.Wait, nil
	}
	if q.Holder != nil {
		holder, q.Holder = *q.Holder, nil
	}
	return fmt.Sprintf("%v %v %v", q, wait, holder)
}

// goldenCalls create the state of the golden snapshot: each kind of value, small and large, with
// and without a deadline, in several databases, a loaded script and one that was run, and a key
// that was changed after its creation.
func goldenCalls() []commands.Request {
	var all []commands.Request
	add := func(db int, words ...string) {
		all = append(all, commands.Request{DB: db, Proto: 2,
			Cmds: [][][]byte{commandtest.Args(words...)}})
	}
	add(0, "SET", "text", "value")
	add(0, "SET", "lock", "owner", "PX", "30000")
	add(0, "SET", "", "empty key")
	add(0, "SET", "bin\x00\r\n\xff", "\x00\xff")
	add(0, "SET", "empty value", "")
	add(0, "INCRBY", "counter", "41")
	add(0, "INCR", "counter")
	add(3, "HSET", "hash", "f2", "v2", "f1", "v1", "", "")
	add(3, "PEXPIRE", "hash", "60000")
	add(15, "ZADD", "zset", "1.5", "b", "-inf", "a", "1.5", "a2", "inf", "z")
	large := []string{"HSET", "large hash"}
	ranks := []string{"ZADD", "large zset"}
	for i := range 600 {
		large = append(large, fmt.Sprint("field", i), fmt.Sprint("value", i))
	}
	for i := range 200 {
		ranks = append(ranks, fmt.Sprint(i%7), fmt.Sprint("member", i))
	}
	add(0, large...)
	add(0, ranks...)
	add(0, "SCRIPT", "LOAD", "return {KEYS[1], ARGV[1]}")
	add(0, "EVAL", "return 'run'", "0")
	return all
}

// valueCalls create the state of the golden snapshot "values": the content of the first release's
// data directories.
func valueCalls(t *testing.T) []commands.Request {
	files, err := commandtest.Load(firstRelease + "calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []commands.Request
	db := 0
	for _, s := range files[0].Steps {
		q := commands.Request{DB: db, Proto: 2, Cmds: [][][]byte{s.Args}}
		switch {
		case s.Directive == "db":
			db = int(s.Number)
			continue
		case string(s.Args[0]) == "CONFIG": // what a node makes of CONFIG SET
			q.System, q.Cmds[0] = true, s.Args[2:]
		}
		all = append(all, q)
	}
	return all
}

const firstRelease = "../testdata/datadirs/v0.1/"

// TestGoldenSnapshots reads the snapshots of all versions. A scenario with a reply on each line
// describes their content.
func TestGoldenSnapshots(t *testing.T) {
	checkSnapshots(t, "snapshot", goldenCalls(), goldenFiles+"snapshot-v1.txt")
	m := checkSnapshots(t, "values", valueCalls(t), firstRelease+"content.txt")
	if got := m.Notify().String(); got != "xKE" {
		t.Errorf("the setting of notifications is %q", got)
	}
}

// checkSnapshots reads all versions of one snapshot, which calls create, and compares them with the
// scenario. It returns the machine of the newest.
func checkSnapshots(t *testing.T, name string, calls []commands.Request, scenario string) *Machine {
	table := testTable()
	m := NewMachine(table)
	for i, q := range calls {
		run := commands.AppendRequest(nil, &q)
		e := &Entry{ClockMs: 1000 + int64(i), WallUs: 1_700_000_000_000_000, Batches: [][]byte{run}}
		if r := mustApply(t, m, uint64(100+i), e, true); r.Replies[0][0] == '-' {
			t.Fatalf("%q: %q", q.Cmds, r.Replies[0])
		}
	}
	current := fmt.Sprintf("%s%s-v%d.bin", goldenFiles, name, snapshotVersion)
	makeGolden(t, current, snapshotBytes(t, m.Snapshot()))
	for version := 1; version <= snapshotVersion; version++ {
		content := readGolden(t, fmt.Sprintf("%s%s-v%d.bin", goldenFiles, name, version))
		node := &scenarioNode{table: table}
		commandtest.Run(t, scenario, commandtest.Server{
			Reset: func() error {
				machine := restore(t, content, table)
				*node = scenarioNode{table: table, machine: machine, index: machine.Index(),
					clockMs: machine.ClockMs()}
				return nil
			},
			Open: func() (commandtest.Target, error) {
				return &scenarioSession{node: node, proto: 2}, nil
			},
			Advance: node.advance,
		})
	}
	content := readGolden(t, current)
	restored := restore(t, content, table)
	if !bytes.Equal(snapshotBytes(t, restored.Snapshot()), content) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", current)
	}
	return restored
}

// A file that is truncated, changed anywhere, or of a later version is refused.
func TestGoldenDamaged(t *testing.T) {
	detector.Skip(t)
	table := testTable()
	entry, snapshot := readGolden(t, goldenFiles+"entry-v1.bin"),
		readGolden(t, goldenFiles+"snapshot-v1.bin")
	for i := range entry {
		damaged := bytes.Clone(entry)
		damaged[i] ^= 0x40
		if _, err := DecodeEntry(damaged); !errors.Is(err, ErrEntryCorrupt) {
			t.Errorf("an entry with byte %d changed: %v", i, err)
		}
		if _, err := DecodeEntry(entry[:i]); !errors.Is(err, ErrEntryCorrupt) {
			t.Errorf("an entry of %d bytes: %v", i, err)
		}
	}
	// All of the header, and the rest in steps.
	for i := 0; i < len(snapshot); i += 1 + i/100 {
		damaged := bytes.Clone(snapshot)
		damaged[i] ^= 0x40
		if _, err := ReadSnapshot(bytes.NewReader(damaged), table); err == nil {
			t.Errorf("a snapshot with byte %d changed is accepted", i)
		}
		for _, file := range [][]byte{damaged, snapshot[:i]} {
			if _, err := CheckSnapshot(bytes.NewReader(file), table); err == nil {
				t.Errorf("CheckSnapshot accepts a snapshot changed or truncated at byte %d", i)
			}
		}
		if _, err := ReadSnapshot(bytes.NewReader(snapshot[:i]), table); !errors.Is(err,
			ErrSnapshotCorrupt) {
			t.Errorf("a snapshot of %d bytes: %v", i, err)
		}
	}
	if _, err := ReadSnapshot(bytes.NewReader(append(bytes.Clone(snapshot), 0)),
		table); !errors.Is(err, ErrSnapshotCorrupt) {
		t.Errorf("a snapshot with trailing data: %v", err)
	}
	later := bytes.Clone(entry[:len(entry)-4])
	later[0] = entryVersion + 1
	if _, err := DecodeEntry(withChecksum(later)); !errors.Is(err, ErrEntryVersion) {
		t.Errorf("an entry of a later version: %v", err)
	}
	later = bytes.Clone(snapshot)
	later[len(snapshotMagic)] = snapshotVersion + 1
	if _, err := ReadSnapshot(bytes.NewReader(later), table); !errors.Is(err, ErrSnapshotVersion) {
		t.Errorf("a snapshot of a later version: %v", err)
	}
}

// The golden snapshot has sets whose members expire: small, large, with one that is dead, and one
// that had a deadline.
func TestGoldenMembersThatExpire(t *testing.T) {
	m := newestMachine(testTable())
	m.sweeps = -1
	large := "SADDEX large PX 5000 MEMBERS 200"
	for i := range 200 {
		large += fmt.Sprintf(" m%d", i)
	}
	for i, batch := range [][]byte{calls("SADD s a b c", "SPEXPIRE s 100 MEMBERS 1 a",
		"SPEXPIRE s 9000 MEMBERS 1 b", large, "SADD ints 1 2", "SPEXPIRE ints 50 MEMBERS 1 1",
		"SPERSIST ints MEMBERS 1 1"), calls("PING")} {
		mustApply(t, m, uint64(i+1), &Entry{ClockMs: 1000 + int64(i)*500, WallUs: 1_700_000_000_000,
			Batches: [][]byte{batch}}, true)
	}
	path := goldenFiles + "mortal-members-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, m.Snapshot()))
	file := readGolden(t, path)
	restored := restore(t, file, testTable())
	for line, want := range map[string]string{
		"SPTTL s MEMBERS 3 a b c":       "*3\r\n:-2\r\n:8500\r\n:-1\r\n",
		"SCARD s":                       ":2\r\n",
		"SPTTL large MEMBERS 2 m0 m199": "*2\r\n:4500\r\n:4500\r\n",
		"SCARD large":                   ":200\r\n",
		"SPTTL ints MEMBERS 1 1":        "*1\r\n:-1\r\n",
		"OBJECT ENCODING ints":          "$9\r\nhashtable\r\n",
		"EVAL_RO return{redis.call('SISMEMBER','s','a')} 0": "*1\r\n:0\r\n",
	} {
		if got := string(restored.Read(nil, calls(line), 1500, 1)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if s := restored.ks.DB(0).Find([]byte("s")).Collection().(*keyspace.Set); s.Dead() != 1 {
		t.Errorf("%d dead members", s.Dead())
	}
	if !bytes.Equal(snapshotBytes(t, restored.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
}
