// The feature level of a machine in entries, in snapshots, and for commands of a later level.

package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/wire"
)

const unknownLevel = commands.FeatureLevel + 1

func TestUnknownLevelIsNotApplied(t *testing.T) {
	m := NewMachine(testTable())
	mustApply(t, m, 1, &Entry{
		ClockMs: 1, Level: commands.FeatureLevel, Batches: [][]byte{calls("SET a 1")}},
		true)
	before := snapshotBytes(t, m.Snapshot())
	_, err := m.Apply(2, &Entry{ClockMs: 2, Level: unknownLevel,
		Batches: [][]byte{calls("SET a 2")}}, true)
	want := fmt.Sprintf(
		"a later version of coordd is needed: log entry 2 has feature level %d, and this one "+
			"knows levels up to %d", unknownLevel, commands.FeatureLevel)
	if !errors.Is(err, ErrLevel) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if !bytes.Equal(before, snapshotBytes(t, m.Snapshot())) {
		t.Error("the machine was changed")
	}
}

func TestLevelNeverFalls(t *testing.T) {
	m := NewMachine(testTable())
	m.level = unknownLevel
	mustApply(t, m, 1, &Entry{ClockMs: 1, Level: commands.FeatureLevel}, false)
	mustApply(t, m, 2, &Entry{ClockMs: 1}, false)
	if m.Level() != unknownLevel {
		t.Errorf("level %d", m.Level())
	}
}

// Who overwrites a lock is its new holder from the entry on that raises the level, on each machine:
// also on one that was restored before, or after.
func TestTakeoversOfLevels(t *testing.T) {
	m := NewMachine(testTable())
	token := func(of *Machine) keyspace.Revision { return of.ks.DB(0).Creation([]byte("lock")) }
	index := uint64(0)
	apply := func(level uint64, call string) (before, after keyspace.Revision) {
		t.Helper()
		restored, err := ReadSnapshot(bytes.NewReader(snapshotBytes(t, m.Snapshot())), m.table)
		if err != nil {
			t.Fatal(err)
		}
		index++
		before = token(m)
		for _, of := range []*Machine{m, restored} {
			mustApply(t, of, index, &Entry{ClockMs: int64(index), Level: level,
				Batches: [][]byte{calls(call)}}, true)
		}
		if token(m) != token(restored) {
			t.Errorf("%s: token %d, %d on a restored machine", call, token(m), token(restored))
		}
		return before, token(m)
	}
	apply(0, "SET lock a NX PX 60000")
	for _, c := range []struct {
		level uint64
		call  string
		taken bool
	}{
		{0, "SET lock b PX 60000", false},
		{commands.LevelSecond, "SET lock b PX 60000", false}, // renewed
		{0, "SET lock d PX 60000", true},
	} {
		if before, after := apply(c.level, c.call); (after > before) != c.taken {
			t.Errorf("%s: token %d and then %d", c.call, before, after)
		}
	}
}

// Reading only the level of an entry agrees with decoding it.
func TestEntryLevel(t *testing.T) {
	for _, check := range []Check{{}, {Index: 1 << 40, Sum: 5}} {
		for _, level := range []uint64{0, 1, 2, 1 << 40} {
			b := AppendEntry(nil, &Entry{Origin: 9, ClockMs: 1 << 30, WallUs: -5, Check: check,
				Level: level, Batches: [][]byte{{1, 2}}})
			e, err := DecodeEntry(b)
			if err != nil || e.Level != level || entryLevel(b) != level {
				t.Errorf("level %d is read as %d, %+v %v", level, entryLevel(b), e, err)
			}
		}
	}
	for _, b := range [][]byte{nil, {entryVersion, flagLevel, 0, 0, 0, 0},
		{entryVersion + 1, flagLevel, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 5}} {
		if level := entryLevel(b); level != 0 {
			t.Errorf("%x has level %d", b, level)
		}
	}
	later := AppendEntry(nil, &Entry{Level: unknownLevel})
	// other additions of a later level do not hide the level
	later[1] |= entryFlags + 1
	if level := entryLevel(later); level != unknownLevel {
		t.Errorf("an entry with something unknown has level %d", level)
	}
	zero := AppendEntry(nil, &Entry{Level: 1})
	zero = bytes.Clone(zero[:len(zero)-4])
	zero[len(zero)-2] = 0 // the level is before the number of batches
	if _, err := DecodeEntry(withChecksum(zero)); !errors.Is(err, ErrEntryCorrupt) {
		t.Errorf("an entry that raises to level 0: %v", err)
	}
}

func TestSnapshotHeader(t *testing.T) {
	for _, notify := range []uint64{0, 1, 0x7fff} {
		for _, level := range []uint64{1, commands.FeatureLevel, 1 << 50} {
			h := header{index: 1 << 62, epoch: 1023, clockMs: 1 << 62, sum: 1<<64 - 1,
				notify: notify, level: level}
			if level == commands.FeatureLevel {
				h.timeUs, h.limit, h.parts, h.blocks = 1<<62, 1<<62, knownParts, maxIDBlocks
			}
			b := h.appendTo(nil)
			c := wire.NewCursor(b)
			if got := readHeader(&c); got != h || c.Done() != (level <= commands.FeatureLevel) {
				t.Errorf("%+v is read as %+v, failed %v, with %d bytes left", h, got, c.Failed(),
					c.Len())
			}
			if len(snapshotMagic)+4+8+len(b) > snapshotHead {
				t.Errorf("a header of %d bytes is longer than what is looked at for the level",
					len(b))
			}
		}
	}
	begin := (&header{level: firstLevel}).appendTo(nil)
	for name, rest := range map[string][]byte{"a setting of nothing": {0},
		"the first level": {1, 1}, "no level": {0, 0}, "half a level": {0, 0x80},
		"a large setting":          {0x80, 0x80, 0x80, 1},
		"nothing behind the level": {0, commands.FeatureLevel},
		"no block of ids":          {0, commands.FeatureLevel, 0, 0, partIDBlocks, 0},
		"too many blocks of ids": binary.AppendUvarint([]byte{0, commands.FeatureLevel, 0, 0,
			partIDBlocks}, maxIDBlocks+1),
		"unknown parts": binary.AppendUvarint([]byte{0, commands.FeatureLevel, 0, 0},
			knownParts+1)} {
		c := wire.NewCursor(append(bytes.Clone(begin), rest...))
		if readHeader(&c); !c.Failed() {
			t.Errorf("%s is read", name)
		}
	}
}

// All readers tell a snapshot of a later level from a damaged one, whatever else that level adds to
// the header.
func TestUnknownLevelOfSnapshot(t *testing.T) {
	m := NewMachine(testTable())
	mustApply(t, m, 1, &Entry{ClockMs: 1, Batches: [][]byte{calls("SET a 1")}}, true)
	m.level = unknownLevel
	s := m.Snapshot()
	for _, more := range []string{"", "what the later level has besides"} {
		s.header = append(s.header, more...)
		content := snapshotBytes(t, s)
		want := fmt.Sprintf(
			"a later version of coordd is needed: the snapshot has feature level %d, and this "+
				"one knows levels up to %d", unknownLevel, commands.FeatureLevel)
		if _, err := ReadSnapshot(bytes.NewReader(content), testTable()); !errors.Is(err,
			ErrLevel) || err.Error() != want {
			t.Errorf("ReadSnapshot: %v, want %s", err, want)
		}
		if _, err := CheckSnapshot(bytes.NewReader(content), testTable()); !errors.Is(err,
			ErrLevel) {
			t.Errorf("CheckSnapshot: %v", err)
		}
		if level := snapshotLevel(content[:min(len(content),
			snapshotHead)]); level != unknownLevel {
			t.Errorf("the head has level %d", level)
		}
		if level := snapshotLevel(content[:20]); level != 0 {
			t.Errorf("a part of the head has level %d", level)
		}
	}
}

// Commands and subcommands do not exist below their level, for clients, scripts and reads.
func TestCommandsOfALevel(t *testing.T) {
	answer := func(x *commands.Call) error { x.Out.Status("RAN"); return nil }
	read := commands.Spec{Name: "later", Kind: commands.Read, Arity: 2, Handler: answer, Level: 2}
	box := commands.Spec{Name: "box", Arity: -2,
		Subcommands: []commands.Spec{{Name: "later", Kind: commands.Read, Arity: 3, Handler: answer,
			Level: 2}}}
	table := commands.NewTable(commands.Specs(), []commands.Spec{read, box})
	const script = `EVAL return(redis.pcall('LATER',1).err)or'ran' 0`
	const inBox = `EVAL return(redis.pcall('BOX','LATER').err)or'ran' 0`
	const check = `EVAL return(pcall(redis.acl_check_cmd,'LATER'))and'known'or'unknown' 0`
	const checkBox = `EVAL return(pcall(redis.acl_check_cmd,'BOX','LATER'))and'known'or'unknown' 0`
	for level, want := range map[uint64][]string{
		1: {"-ERR unknown command 'LATER', with args beginning with: 'x' ",
			"-ERR unknown subcommand 'LATER'. Try BOX HELP.",
			"ERR Unknown Redis command called from script",
			"ERR Unknown Redis command called from script", "unknown", "unknown"},
		2: {"+RAN", "+RAN", "ran", "ERR Wrong number of args calling Redis command from script",
			"\r\nknown", "\r\nknown"},
	} {
		m := NewMachine(table)
		m.level = level
		for i, call := range []string{"LATER x", "BOX LATER x", script, inBox, check, checkBox} {
			wrote := string(mustApply(t, m, uint64(i+1),
				&Entry{ClockMs: 1, Batches: [][]byte{calls(call)}}, true).Replies[0])
			seen := string(m.Read(nil, calls(strings.Replace(call, "EVAL", "EVAL_RO", 1)), 1, 1))
			if !strings.Contains(wrote, want[i]) || seen != wrote {
				t.Errorf("level %d: %s: %q as a write, %q as a read, want %q", level, call, wrote,
					seen, want[i])
			}
		}
	}
}

// What a level adds to a command does not exist below it: at replay, a call answers as it did.
func TestAdditionsOfALevel(t *testing.T) {
	for call, want := range map[string][2]string{
		"BITOP DIFF d a b":         {"-ERR syntax error", ":1"},
		"HSETEX h XX FIELDS 1 a 1": {"-ERR unknown argument: XX", ":0"},
		"BITOP ONE d a":            {"-ERR syntax error", ":1"},
		"EVAL return(#redis.call('XINFO','CONSUMERS','x','g')[1]) 0": {":6", ":8"},
		"XREADGROUP GROUP g c CLAIM 0 STREAMS x >":                   {"-ERR syntax error", "*-1"},
		"XADD x IDMP p i * f v": {"-ERR Invalid stream ID specified as stream command argument",
			"$3\r\n0-1"},
		"XADD x IDMPAUTO p * f v": {"-ERR Invalid stream ID specified as stream command argument",
			"$3\r\n0-1"},
		"XREADGROUP GROUP g c MAXCOUNT 1 STREAMS x >": {"-ERR syntax error", "*-1"},
		"XREAD MAXSIZE 1 STREAMS x 9":                 {"-ERR syntax error", "*-1"},
		"XREAD CLAIM 0 STREAMS x 0": {"-ERR syntax error", "-ERR The CLAIM option is only " +
			"supported by XREADGROUP. You called XREAD instead."},
	} {
		for i, level := range []uint64{commands.LevelFirst, commands.LevelSecond} {
			m := NewMachine(testTable())
			mustApply(t, m, 1, &Entry{ClockMs: 1, Level: level,
				Batches: [][]byte{calls("SET a 1", "SET b 2",
					"XGROUP CREATE x g 0 MKSTREAM", "XGROUP CREATECONSUMER x g c")}}, true)
			got := string(mustApply(t, m, 2, &Entry{ClockMs: 1,
				Batches: [][]byte{calls(call)}}, true).Replies[0])
			if strings.TrimSpace(got) != want[i] {
				t.Errorf("level %d: %s: %q, want %q", level, call, got, want[i])
			}
		}
	}
}

// How many expired keys an entry removes is the level's, also at replay.
func TestSweepAtLevels(t *testing.T) {
	var lines []string
	for i := range maxFirstSweep + 1 {
		lines = append(lines, fmt.Sprintf("SET key:%d v PX 1", i))
	}
	for level := uint64(firstLevel); level <= commands.FeatureLevel; level++ {
		want := uint64(entrySweep)
		if level < commands.LevelSecond {
			want = maxFirstSweep
		}
		m := NewMachine(testTable())
		mustApply(t, m, 1, &Entry{ClockMs: 1, Level: level,
			Batches: [][]byte{calls(lines...)}}, false)
		mustApply(t, m, 2, &Entry{ClockMs: 1000, Batches: [][]byte{}}, false)
		if got := m.ks.Expired(); got != want {
			t.Errorf("level %d: an entry removed %d keys, want %d", level, got, want)
		}
	}
}
