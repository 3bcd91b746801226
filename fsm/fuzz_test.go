// The fuzz targets of the formats and of apply. testdata/fuzz keeps what they found as seeds.

package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
)

// fuzzSeed makes the generated seeds the same in every run, as a fuzzer requires.
const fuzzSeed = 1

// withChecksum appends the checksum of entries and snapshots, which no fuzzer finds.
func withChecksum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crcTable))
}

// Any bytes give an entry or an error, and an entry survives being encoded again. Announced lengths
// cost nothing.
func FuzzDecodeEntry(f *testing.F) {
	g := random.NewCalls(testTable(), fuzzSeed)
	for range 20 {
		e := randomEntry(g)
		e.Check = Check{Index: g.Uint64N(3), Sum: g.Uint64()}
		b := AppendEntry(nil, e)
		f.Add(b[:len(b)-4])
	}
	f.Add([]byte{entryVersion})
	f.Add(append([]byte{entryVersion, flagCheck}, bytes.Repeat([]byte{0xff}, 40)...))
	f.Fuzz(func(t *testing.T, body []byte) {
		if e, err := DecodeEntry(body); err == nil && len(body) < 6 {
			t.Errorf("an entry of %d bytes: %+v", len(body), e)
		}
		b := withChecksum(body)
		clock, _, hasClock := entryClock(b)
		e, err := DecodeEntry(b)
		if err != nil {
			if !errors.Is(err, ErrEntryCorrupt) && !errors.Is(err, ErrEntryVersion) {
				t.Errorf("an unexpected error: %v", err)
			}
			return
		}
		if !hasClock || clock != e.ClockMs {
			t.Errorf("clock %d, %v, but the entry has %d", clock, hasClock, e.ClockMs)
		}
		again, err := DecodeEntry(AppendEntry(nil, e))
		if err != nil {
			t.Fatal(err)
		}
		if e.Check.Index == 0 {
			e.Check.Sum = 0 // without a check its sum is not written
		}
		if len(e.Batches) == 0 {
			e.Batches, again.Batches = nil, nil
		}
		if !reflect.DeepEqual(e, again) {
			t.Errorf("%+v is read back as %+v", e, again)
		}
	})
}

// Any batch is applied or refused without a panic, and a machine that was restored in between does
// the same.
func FuzzApply(f *testing.F) {
	detector.Skip(f)
	table := testTable()
	for _, calls := range scenarioCalls(f) {
		var run []byte
		for i, args := range calls {
			run = commands.AppendRequest(run,
				&commands.Request{Proto: 2 + i%2, Cmds: [][][]byte{args}})
		}
		f.Add(run)
	}
	g := random.NewCalls(table, fuzzSeed)
	for range 200 {
		f.Add(commands.AppendRequest(nil, g.Request()))
	}
	f.Fuzz(func(t *testing.T, run []byte) { applyTwice(t, table, run) })
}

// The same for calls as text, one per line, in the notation of scenario files: a fuzzer mutates
// them better than bytes with lengths.
func FuzzCalls(f *testing.F) {
	detector.Skip(f)
	table := testTable()
	for _, calls := range scenarioCalls(f) {
		f.Add(callsText(calls))
	}
	g := random.NewCalls(table, fuzzSeed)
	for range 100 {
		f.Add(callsText([][][]byte{g.Call(g.Specs), g.Call(g.Specs), g.Call(g.Specs)}))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var run []byte
		for line := range strings.Lines(text) {
			args, err := commandtest.SplitArgs(line)
			if err == nil && len(args) > 0 {
				run = commands.AppendRequest(run,
					&commands.Request{Proto: 2 + len(args)%2, Cmds: [][][]byte{args}})
			}
		}
		applyTwice(t, table, run)
	})
}

// scenarioCalls are the calls of each scenario file, in pieces of a few lines: later lines need
// earlier ones.
func scenarioCalls(f *testing.F) (pieces [][][][]byte) {
	files, err := commandtest.Load(scenarioFiles)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		var calls [][][]byte
		for _, s := range file.Steps {
			if len(s.Args) > 0 {
				calls = append(calls, s.Args)
			}
		}
		pieces = slices.AppendSeq(pieces, slices.Chunk(calls, 8))
	}
	return pieces
}

func callsText(calls [][][]byte) string {
	var text strings.Builder
	for _, args := range calls {
		for _, a := range args {
			text.WriteString(resp.Quote(string(a)) + " ")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// applyTwice applies a batch, and applies it again some time later, on two machines, one of which
// is restored in between.
func applyTwice(t *testing.T, table *commands.Table, run []byte) {
	e := &Entry{ClockMs: 1000, WallUs: 1_700_000_000_000_000, Batches: [][]byte{run}}
	a, b := newestMachine(table), newestMachine(table)
	if !applyBoth(t, a, b, 1, e) {
		return
	}
	b = restore(t, snapshotBytes(t, b.Snapshot()), table)
	e.ClockMs += 50
	applyBoth(t, a, b, 2, e)
	if !bytes.Equal(snapshotBytes(t, a.Snapshot()), snapshotBytes(t, b.Snapshot())) {
		t.Errorf("snapshots differ%s", entryText(e))
	}
}

// applyBoth applies an entry to two machines, which must agree. It reports whether the batch can be
// read.
func applyBoth(t *testing.T, a, b *Machine, index uint64, e *Entry) (readable bool) {
	t.Helper()
	x, errA := a.Apply(index, e, true)
	y, errB := b.Apply(index, e, true)
	if errA != nil || errB != nil {
		if !errors.Is(errA, commands.ErrCorruptRequest) ||
			!errors.Is(errB, commands.ErrCorruptRequest) {
			t.Fatalf("errors %v and %v", errA, errB)
		}
		return false
	}
	sameReplies(t, index, e, x, y)
	if a.Sum() != b.Sum() {
		t.Fatalf("entry %d: the running hashes differ%s", index, entryText(e))
	}
	if bytes.Contains(x.Replies[0], []byte("ERR internal error")) {
		t.Fatalf("%q%s", x.Replies[0], entryText(e))
	}
	if _, err := commandtest.ParseAll(x.Replies[0]); err != nil {
		t.Fatalf("%v%s", err, entryText(e))
	}
	return true
}

// Any bytes give a machine or an error, and a machine's snapshot gives the same machine.
func FuzzReadSnapshot(f *testing.F) {
	table := testTable()
	m := newestMachine(table)
	g := random.NewCalls(table, fuzzSeed)
	add := func() {
		b := snapshotBytes(f, m.Snapshot())
		f.Add(b[:len(b)-4])
	}
	add()
	for index := uint64(1); index <= 100; index++ {
		mustApply(f, m, index, randomEntry(g), false)
	}
	add()
	golden, _ := filepath.Glob(goldenFiles + "snapshot-v*.bin")
	for _, path := range golden {
		b := readGolden(f, path)
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ReadSnapshot(bytes.NewReader(withChecksum(body)), table)
		if err != nil {
			if !errors.Is(err, ErrSnapshotCorrupt) && !errors.Is(err, ErrSnapshotVersion) {
				t.Errorf("an unexpected error: %v", err)
			}
			return
		}
		b := snapshotBytes(t, m.Snapshot())
		if !bytes.Equal(b, snapshotBytes(t, restore(t, b, table).Snapshot())) {
			t.Error("a machine's snapshot gives another machine")
		}
	})
}
