// Tests of the instants that requests name.

package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// instantsOf returns the instants in replies, in order. The replies hold TIME's pairs and nothing
// that looks like one.
func instantsOf(t *testing.T, raw []byte) (us []int64) {
	t.Helper()
	var words []string
	for _, line := range strings.Split(string(raw), "\r\n") {
		if line != "" && line[0] >= '0' && line[0] <= '9' {
			words = append(words, line)
		}
	}
	for i := 0; i+1 < len(words); i += 2 {
		s, err1 := strconv.ParseInt(words[i], 10, 64)
		frac, err2 := strconv.ParseInt(words[i+1], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("no instants: %q", raw)
		}
		us = append(us, s*1e6+frac)
	}
	return us
}

func timeRun(n int) (run []byte) {
	for range n {
		run = commands.AppendRequest(run, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("TIME")}})
	}
	return run
}

func timeTransaction(n int) []byte {
	q := &commands.Request{Proto: 2, Multi: true}
	for range n {
		q.Cmds = append(q.Cmds, commandtest.Args("TIME"))
	}
	return commands.AppendRequest(nil, q)
}

const timeTwice = `local a, b = redis.call('TIME'), redis.call('TIME') return {a[1], a[2], b[1], b[2]}`

func timeScript(n int) (run []byte) {
	for range n {
		run = commands.AppendRequest(run, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("EVAL_RO", timeTwice, "0")}})
	}
	return run
}

// TestInstantsRiseFromRequestToRequest applies entries whose stamps go back and forth, with
// batches, transactions and scripts, to a machine and to one that is sometimes restored from a
// snapshot.
func TestInstantsRiseFromRequestToRequest(t *testing.T) {
	seed := seeds.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	table := testTable()
	m, twin := newestMachine(table), newestMachine(table)
	last, wallUs := int64(0), int64(1_700_000_000_000_000)
	for index := uint64(1); index <= 400; index++ {
		wallUs += random.Int64N(60) - 20
		e := &Entry{ClockMs: int64(index), WallUs: wallUs}
		for range 1 + random.IntN(3) {
			n := 1 + random.IntN(5)
			e.Batches = append(e.Batches, [][]byte{timeRun(n), timeTransaction(n),
				timeScript(n)}[random.IntN(3)])
		}
		for i, reply := range mustApply(t, m, index, e, true).Replies {
			us := instantsOf(t, reply)
			if strings.Contains(string(e.Batches[i]), "EVAL") {
				var each []int64
				for k := 0; k < len(us); k += 2 {
					if us[k] != us[k+1] {
						t.Fatalf("entry %d: time advances within a script: %v", index, us)
					}
					each = append(each, us[k])
				}
				us = each
			}
			for _, now := range us {
				if now <= last || now < e.WallUs {
					t.Fatalf("entry %d of %d: %d was named after %d", index, e.WallUs, now, last)
				}
				last = now
			}
		}
		mustApply(t, twin, index, e, false)
		if random.IntN(10) == 0 {
			twin = restored(t, twin)
		}
	}
	if got := m.NewestUs(); got != last || twin.NewestUs() != last {
		t.Errorf("the newest instant is %d, and %d after snapshots; want %d", got, twin.NewestUs(),
			last)
	}
	// At the first level it stays put.
	first := NewMachine(table)
	r := mustApply(t, first, 1, &Entry{ClockMs: 1, WallUs: 7_000_000,
		Batches: [][]byte{timeRun(2)}}, true)
	if us := instantsOf(t, r.Replies[0]); len(us) != 2 || us[0] != 7_000_000 ||
		us[1] != 7_000_000 || first.NewestUs() != 0 {
		t.Errorf("at the first level %v were named, and %d is remembered", us, first.NewestUs())
	}
}

func restored(t *testing.T, m *Machine) *Machine {
	t.Helper()
	again, err := ReadSnapshot(strings.NewReader(string(snapshotBytes(t, m.Snapshot()))), m.table)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestSetTime: an administrator sets the time of day, back and forth. Requests see it from the next
// one on, on restored machines and in reads too; deadlines stay where they are, and instants rise.
func TestSetTime(t *testing.T) {
	table := testTable()
	m := newestMachine(table)
	const began = int64(1_700_000_000_000) // ms
	index := uint64(0)
	apply := func(batches ...[]byte) [][]byte {
		t.Helper()
		index++
		e := &Entry{ClockMs: int64(index), WallUs: (began + int64(index)) * 1000, Batches: batches}
		again := restored(t, m)
		replies := mustApply(t, m, index, e, true).Replies
		if same := mustApply(t, again, index, e, true).Replies; !slices.EqualFunc(replies, same,
			bytes.Equal) ||
			!bytes.Equal(snapshotBytes(t, m.Snapshot()), snapshotBytes(t, again.Snapshot())) {
			t.Fatalf("entry %d: a restored machine differs: %q, %q", index, same, replies)
		}
		return replies
	}
	set := func(ms int64) []byte {
		return settingOf("", 0, commands.SettingTime, fmt.Sprint(ms))
	}
	apply(calls("SET k v PX 60000"))
	const year = int64(365 * 24 * 3600 * 1000)
	for _, to := range []int64{began - year, began + year, began + 5, 1} {
		replies := apply(set(to), timeRun(2), calls("EXPIRETIME k", "PTTL k"))
		if string(replies[0]) != "+OK\r\n" {
			t.Fatalf("%s", replies[0])
		}
		us := instantsOf(t, replies[1])
		if us[0]/1000 != to || us[1] <= us[0] {
			t.Errorf("set to %d, TIME is %v", to, us)
		}
		left := 60_001 - int64(index)
		want := fmt.Sprintf(":%d\r\n:%d\r\n", (to+left+500)/1000, left)
		if got := string(replies[2]); got != want {
			t.Errorf("set to %d: EXPIRETIME and PTTL are %q, want %q", to, got, want)
		}
		next := instantsOf(t, apply(timeRun(1))[0])
		if next[0]/1000 != to+1 {
			t.Errorf("a ms after it was set to %d, TIME is %v", to, next)
		}
		read, _ := m.ReadWork(nil, timeRun(1), m.ClockMs(), m.NewestUs(), nil, false)
		if us := instantsOf(t, read); us[0] <= next[0] || us[0] > next[0]+1000 {
			t.Errorf("a read names %v after %v", us, next)
		}
	}
	for _, wrong := range []string{"", "x", "0", "-1", "1.5", "100000000000001"} {
		reply := apply(settingOf("", 0, commands.SettingTime, wrong))[0]
		if string(reply) != "-"+string(errTime)+"\r\n" {
			t.Errorf("%q: %s", wrong, reply)
		}
	}
	path := goldenFiles + "time-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, m.Snapshot()))
	file := readGolden(t, path)
	m = restore(t, file, table)
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
	if us := instantsOf(t, apply(timeRun(1))[0]); us[0]/1000 > 1000 {
		t.Errorf("TIME of the golden snapshot is %v", us)
	}
}

// TestInstantsOfReads: reads and dry runs name instants of the leader's clock, one per request. A
// request without one gets no reply.
func TestInstantsOfReads(t *testing.T) {
	table := testTable()
	m := newestMachine(table)
	mustApply(t, m, 1, &Entry{ClockMs: 5, WallUs: 1_000_000,
		Batches: [][]byte{timeRun(3), calls("SET lock x")}}, true)
	at, room := int64(2_000_000), 3
	var asked []string
	next := func(lastUs, stampUs int64) (int64, bool) {
		asked = append(asked, fmt.Sprint(lastUs, stampUs))
		at, room = at+1, room-1
		return at, room >= 0
	}
	if us := instantsOf(t, m.ReadAt(nil, append(timeScript(2), timeRun(3)...), 5, 3_000_000,
		next, false)); fmt.Sprint(us) != "[2000001 2000001 2000002 2000002 2000003]" {
		t.Errorf("reads named %v", us)
	}
	if got, want := fmt.Sprint(asked),
		fmt.Sprint([]string{"1000002 1000000", "1000002 1000000", "1000002 1000000",
			"1000002 1000000"}); got != want {
		t.Errorf("the clock was asked for instants after %v, want %v", got, want)
	}
	room = 0
	for _, run := range [][]byte{timeRun(1), timeTransaction(2), timeScript(1)} {
		if got := m.ReadAt(nil, run, 5, 3_000_000, next, false); len(got) != 0 {
			t.Errorf("without an instant a read was answered %q", got)
		}
	}
	if got := string(m.ReadAt(nil, calls("GET lock"), 5, 3_000_000, next,
		false)); got != "$1\r\nx\r\n" {
		t.Errorf("a read that names none was answered %q", got)
	}
	if us := instantsOf(t, m.Read(nil, timeRun(2), 5,
		3_000_000)); fmt.Sprint(us) != "[3000000 3000001]" {
		t.Errorf("a read without a clock named %v", us)
	}
	if m.NewestUs() != 1_000_002 {
		t.Error("a read changed the machine")
	}
}

// TestIdsFollowTime: an id made by XADD is the instant of its request, which TIME returns in the
// same script.
func TestIdsFollowTime(t *testing.T) {
	m := newestMachine(testTable())
	// 1,500 requests name instants before: they take 1.5 ms.
	script := commands.AppendRequest(nil, &commands.Request{Proto: 2,
		Cmds: [][][]byte{commandtest.Args("EVAL",
			`local t = redis.call('TIME') return {redis.call('XADD', KEYS[1], '*', 'f', 'v'), t[1] * 1000 + math.floor(t[2] / 1000) .. '-0'}`, "1", "s")}})
	r := mustApply(t, m, 1, &Entry{ClockMs: 1, WallUs: 1_700_000_000_000_000,
		Batches: [][]byte{timeRun(1500), script}}, true)
	lines := strings.Split(string(r.Replies[1]), "\r\n")
	if len(lines) < 5 || lines[2] != lines[4] || lines[2] != "1700000000001-0" {
		t.Errorf("the id and the time are %q", lines)
	}
}

// TestAbsoluteTimesComeBack: a key's expiry time reads back as it was set, at any fraction of a
// millisecond, in entries and in reads.
func TestAbsoluteTimesComeBack(t *testing.T) {
	detector.Skip(t)
	seed := seeds.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	m := newestMachine(testTable())
	const offsetMs = 1_700_000_000_000
	clockUs := int64(5_000_000)
	const untilMs = offsetMs + 100_000_000
	show := []byte{}
	for _, line := range []string{"PEXPIRETIME a", "PEXPIRETIME b", "EXPIRETIME c",
		"HPEXPIRETIME h FIELDS 1 f", "HEXPIRETIME h FIELDS 1 g", "SPEXPIRETIME s MEMBERS 1 f",
		"SEXPIRETIME s MEMBERS 1 g"} {
		show = append(show, calls(line)...)
	}
	elements := fmt.Sprintf("*1\r\n:%d\r\n*1\r\n:%d\r\n", int64(untilMs+3), int64(untilMs/1000))
	want := fmt.Sprintf(":%d\r\n:%d\r\n:%d\r\n", int64(untilMs+1), int64(untilMs+2),
		int64(untilMs/1000)) + elements + elements
	for index := uint64(1); index < 300; index++ {
		clockUs += 1 + random.Int64N(2500)
		e := &Entry{ClockMs: clockUs / 1000, WallUs: clockUs + offsetMs*1000}
		if index%3 == 1 {
			e.Batches = [][]byte{calls(
				fmt.Sprintf("SET a v PXAT %d", int64(untilMs+1)), "SET b v",
				fmt.Sprintf("PEXPIREAT b %d", int64(untilMs+2)),
				"SET c v", fmt.Sprintf("EXPIREAT c %d", int64(untilMs/1000)), "HSET h f v g v",
				fmt.Sprintf("HPEXPIREAT h %d FIELDS 1 f", int64(untilMs+3)),
				fmt.Sprintf("HEXPIREAT h %d FIELDS 1 g", int64(untilMs/1000)), "SADD s f g",
				fmt.Sprintf("SPEXPIREAT s %d MEMBERS 1 f", int64(untilMs+3)),
				fmt.Sprintf("SEXPIREAT s %d MEMBERS 1 g", int64(untilMs/1000)))}
		} else {
			// whose instants are ahead of the stamp
			e.Batches = [][]byte{timeRun(random.IntN(2000)), show}
		}
		replies := mustApply(t, m, index, e, true).Replies
		if index%3 != 1 && string(replies[1]) != want {
			t.Fatalf("entry %d shows %q, want %q", index, replies[1], want)
		}
		readUs := clockUs + random.Int64N(3000)
		if got := string(m.Read(nil, show, readUs/1000, readUs+offsetMs*1000)); got != want {
			t.Fatalf("after entry %d a read shows %q, want %q", index, got, want)
		}
		staleUs := clockUs - random.Int64N(3000)
		if got := string(m.Read(nil, show, staleUs/1000, staleUs+offsetMs*1000)); got != want {
			t.Fatalf("after entry %d a read by an older clock shows %q, want %q", index, got, want)
		}
	}
}

// TestReadNamesOneInstant: however often a request of a read names the time, one instant is enough,
// so that it never waits for more than there are. A request that lacks one has run in vain, and
// takes it early when it is retried.
func TestReadNamesOneInstant(t *testing.T) {
	m := newestMachine(testTable())
	mustApply(t, m, 1, &Entry{ClockMs: 5, WallUs: 1_000_000, Batches: [][]byte{
		calls("SET lock x")}}, true)
	at, room := int64(2_000_000), 0
	next := func(_, _ int64) (int64, bool) {
		room--
		at++
		return at, room >= 0
	}
	const many = 20_000
	scripts := &commands.Request{Proto: 2, Multi: true}
	for range 100 {
		scripts.Cmds = append(scripts.Cmds, commandtest.Args("EVAL_RO", timeTwice, "0"))
	}
	dry := &commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{commandtest.Args("TIME"),
		commandtest.Args("SET", "lock", "y", "NX"), commandtest.Args("TIME")}}
	for name, run := range map[string][]byte{
		"TIME":    timeTransaction(many),
		"scripts": commands.AppendRequest(nil, scripts),
		"dry run": commands.AppendRequest(nil, dry),
		"pipe":    append(timeTransaction(3), timeRun(1)...),
	} {
		room = 0
		if got, work := m.ReadWork(nil, run, 5, 3_000_000, next, true); len(got)+int(work) != 0 {
			t.Errorf("%s: without an instant it ran: %q, work %d", name, got, work)
		}
		for _, early := range []bool{false, true} {
			room = 1
			us := instantsOf(t, m.ReadAt(nil, run, 5, 3_000_000, next, early))
			if len(us) < 2 || us[0] != at && name != "pipe" || us[0] != us[len(us)-1] {
				t.Errorf("%s: one instant, and %d were named", name, len(us))
			}
		}
	}
}

// TestGoldenInstants: from LevelSecond on, a snapshot holds the newest instant. One of the first
// level is unchanged (TestGoldenSnapshots).
func TestGoldenInstants(t *testing.T) {
	const file = goldenFiles + "time-v1.bin"
	m := NewMachine(testTable())
	m.level = commands.LevelSecond
	mustApply(t, m, 7, &Entry{ClockMs: 9, WallUs: 1_700_000_000_000_000,
		Batches: [][]byte{timeRun(3)}}, true)
	content := snapshotBytes(t, m.Snapshot())
	makeGolden(t, file, content)
	golden := readGolden(t, file)
	if string(golden) != string(content) {
		t.Errorf("%s is written otherwise now", file)
	}
	if got := restore(t, golden, m.table).NewestUs(); got != 1_700_000_000_000_002 {
		t.Errorf("%s holds the instant %d", file, got)
	}
}

// The loop that notices a lost leadership asks for the shift: it waits for no entry.
func TestShiftMsNeverWaits(t *testing.T) {
	a := NewAdapter(testTable(), 1, func([]commands.Event) {}, func(error) {})
	a.mu.Lock() // as Apply
	defer a.mu.Unlock()
	if got := a.ShiftMs(); got != 0 {
		t.Errorf("the shift is %d", got)
	}
}

// A cluster whose time of day was ahead, and was set back, is restored by a clock that is right.
func TestNextStartAfterSetTime(t *testing.T) {
	const day, year = 24 * 3600 * 1000, 365 * 24 * 3600 * 1000
	now := int64(1_800_000_000_000) // ms
	m := newestMachine(testTable())
	e := &Entry{Origin: 1, ClockMs: 1, WallUs: (now + year) * 1000, Batches: [][]byte{
		settingOf("", 0, commands.SettingTime, fmt.Sprint(now))}}
	mustApply(t, m, 1, e, true)
	if _, behindUs := m.NextStart((now + day) * 1000); behindUs != 0 {
		t.Errorf("a day later the clock counts as %d us behind", behindUs)
	}
	if _, behindUs := m.NextStart((now - day) * 1000); behindUs == 0 {
		t.Error("a clock that is a day behind counts as right")
	}
}
