package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// openMarked opens a log that must agree with its mark.
func openMarked(d *crashDisk) (*walLog, error) {
	return openWAL("wal", d, nil, crashSegment, func() uint64 { return markedLevel },
		slog.New(slog.DiscardHandler))
}

// filledLog is a disk with a log that has lived: several segments, ends that were cut off, and
// entries of all sizes.
func filledLog(t *testing.T) (*crashDisk, model) {
	t.Helper()
	d := newCrashDisk(-1)
	r := newCrashRun(d)
	if err := r.live(); err != nil {
		t.Fatal(err)
	}
	for _, sizes := range [][]int{{10, 500, 1}, {3000, 100}, {900}, {700, 700}, {1, 2, 3}, {40}} {
		if err := r.next("q", sizes...); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	return d.killed(), r.have
}

// bytesOf copies all that is on a disk.
func bytesOf(d *crashDisk) map[string]string {
	all := map[string]string{}
	for name, f := range d.names {
		all[name] = string(f.data)
	}
	return all
}

// holdsOrRefuses opens a damaged log. It returns what is wrong: neither does the log have all that
// it had, also when it is opened again, nor is it refused with a word about damage, as it was.
func holdsOrRefuses(d *crashDisk, want model) (refused bool, wrong string) {
	before := bytesOf(d)
	for range 2 {
		log, err := openMarked(d)
		if err != nil {
			switch {
			case !refused && !maps.Equal(before, bytesOf(d)):
				return true, fmt.Sprintf("it was changed, and then refused: %v", err)
			case !errors.Is(err, ErrDamaged):
				return true, fmt.Sprintf("the error does not say that it is damaged: %v", err)
			}
			return true, ""
		}
		wrong := want.differs(log)
		if err := log.Close(); err != nil && wrong == "" {
			wrong = err.Error()
		}
		if wrong != "" {
			return false, wrong
		}
	}
	return false, ""
}

// bitsApart is how far apart the bits are that are changed: in make soak it is each.
func bitsApart() int {
	switch {
	case tier.Soaking():
		return 1
	case tier.Checking():
		return 61
	}
	return 1021
}

// bitsOf returns the bits of a file's content to change: those near what is not zero.
func bitsOf(content string, from int) (bits []int) {
	last := -1 << 20
	for at := range len(content) {
		if content[at] != 0 {
			last = at
		}
		near := at-last < 64 || strings.Trim(content[at:min(at+8, len(content))], "\x00") != ""
		for bit := 8 * at; near && bit < 8*at+8; bit++ {
			if bit%bitsApart() == from {
				bits = append(bits, bit)
			}
		}
	}
	return bits
}

// begin is the first bit that is changed.
func begin(t *testing.T) int {
	return rand.New(rand.NewPCG(seeds.Of(t), 0)).IntN(bitsApart())
}

// Each bit of each file of a log is changed in turn, after a kill. Either nothing is missing, or
// the log is refused and nothing on the disk has changed.
func TestEachBitOfTheLog(t *testing.T) {
	t.Parallel()
	d, want := filledLog(t)
	if log, err := openMarked(d.killed()); err != nil || want.differs(log) != "" {
		t.Fatal(err)
	}
	from := begin(t)
	for _, name := range slices.Sorted(maps.Keys(bytesOf(d))) {
		refused, tried := 0, 0
		for _, bit := range bitsOf(bytesOf(d)[name], from) {
			tried++
			s := d.killed()
			at, mask := bit/8, byte(1)<<(bit%8)
			s.names[name].data[at] ^= mask
			was, wrong := holdsOrRefuses(s, want)
			if wrong != "" {
				t.Fatalf("bit %d of byte %d of %s: %s", bit%8, at, name, wrong)
			}
			if was {
				refused++
			}
		}
		t.Logf("%s: %d of %d bits are found", name, refused, tried)
		if refused == 0 && strings.HasSuffix(name, ".wal") {
			t.Errorf("no changed bit of %s is found", name)
		}
	}
}

// Each bit is changed in turn while the log is open: an entry is read as it was written, or the
// error says that the file is damaged. Of any other the process would die without a word.
func TestEachBitOfAnOpenLog(t *testing.T) {
	t.Parallel()
	d, want := filledLog(t)
	from := begin(t)
	for _, name := range slices.Sorted(maps.Keys(bytesOf(d))) {
		refused := 0
		for _, bit := range bitsOf(bytesOf(d)[name], from) {
			s := d.killed()
			log, err := openMarked(s)
			if err != nil {
				t.Fatal(err)
			}
			at, mask := bit/8, byte(1)<<(bit%8)
			s.names[name].data[at] ^= mask
			for index := want.first; index <= want.last; index++ {
				var l raft.Log
				switch err := log.GetLog(index, &l); {
				case errors.Is(err, ErrDamaged):
					refused++
				case err != nil || string(l.Data) != want.data[index]:
					t.Fatalf("bit %d of byte %d of %s: entry %d: %v", bit%8, at, name, index, err)
				}
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if refused == 0 && strings.HasSuffix(name, ".wal") {
			t.Errorf("no changed bit of %s is found", name)
		}
	}
}

// An entry whose segment is deleted while it is read is not there: it is not damaged, which would
// end the node. raft-wal lets a reader begin that has not been counted yet.
func TestReadBesideCompaction(t *testing.T) {
	d, want := filledLog(t)
	log, err := openMarked(d)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for id := range maps.Clone(log.sums.of) {
		log.sums.drop(id) // as Delete begins
	}
	var l raft.Log
	if err := log.GetLog(want.first, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Error(err)
	}
}

// What a disk or a person does to whole files.
func TestMissingPartsOfTheLog(t *testing.T) {
	t.Parallel()
	d, want := filledLog(t)
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		for what, do := range map[string]func(s *crashDisk, f *crashFile){
			"emptied": func(_ *crashDisk, f *crashFile) { f.data = nil },
			"zeros":   func(_ *crashDisk, f *crashFile) { clear(f.data) },
			"deleted": func(s *crashDisk, _ *crashFile) { delete(s.names, name) },
			"cut": func(_ *crashDisk, f *crashFile) {
				f.data = f.data[:rnd.IntN(len(f.data))]
			},
			"a sector": func(_ *crashDisk, f *crashFile) { clear(sectorOf(rnd, f.data)) },
			"another's": func(s *crashDisk, f *crashFile) {
				f.data = slices.Clone(s.names[slices.Sorted(maps.Keys(s.names))[0]].data)
			},
			"misdirected": func(_ *crashDisk, f *crashFile) {
				copy(sectorOf(rnd, f.data), sectorOf(rnd, f.data))
			},
		} {
			for range 20 {
				s := d.killed()
				do(s, s.names[name])
				if _, wrong := holdsOrRefuses(s, want); wrong != "" {
					t.Fatalf("%s, %s: %s", name, what, wrong)
				}
			}
		}
	}
}

func sectorOf(rnd *rand.Rand, data []byte) []byte {
	at := rnd.IntN(len(data)/crashSector) * crashSector
	return data[at : at+crashSector]
}

// After a power failure the mark may be older than the log. A changed bit is found all the same, in
// the last batch too: one that the power failure broke has zeros where a sector was lost.
func TestBitsBehindAnOldMark(t *testing.T) {
	t.Parallel()
	d := newCrashDisk(-1)
	r := newCrashRun(d)
	if err := errors.Join(r.reopen(), r.next("a", 10)); err != nil {
		t.Fatal(err)
	}
	mark := bytes.Clone(d.names[markName].data)
	for _, sizes := range [][]int{{10, 50, 1}, {300}, {20, 200}, {1}, {90}} {
		if err := r.next("b", sizes...); err != nil {
			t.Fatal(err)
		}
	}
	d.names[markName].data = mark
	from := begin(t)
	for name, f := range d.names {
		for _, bit := range bitsOf(string(f.data), from) {
			s := d.killed()
			s.names[name].data[bit/8] ^= 1 << (bit % 8)
			if _, wrong := holdsOrRefuses(s, r.have); wrong != "" {
				t.Fatalf("bit %d of byte %d of %s: %s", bit%8, bit/8, name, wrong)
			}
		}
	}
}

// A disk without room for the mark takes entries, and the mark once there is room. Until then the
// directory's level stays below that which demands it.
func TestMarkWithoutRoom(t *testing.T) {
	t.Parallel()
	d := newCrashDisk(-1)
	d.fail = func(_ int, what string) (error, bool) {
		if what == "create "+markName {
			return syscall.ENOSPC, false
		}
		return nil, false
	}
	log, err := openCrashDisk(d, crashSegment)
	if err != nil {
		t.Fatal(err)
	}
	g := &levelGuard{levels: knows(markedLevel), dir: t.TempDir(), marked: log.mark.exists}
	if err := log.StoreLogs(entriesFrom(1, "a", 10)); err != nil || log.mark.dirty {
		t.Error("without room:", err)
	}
	if err := g.pass("an entry", markedLevel); !errors.Is(err, syscall.ENOSPC) || g.noted != 0 {
		t.Errorf("the level is noted as %d, %v", g.noted, err)
	}
	d.fail = nil
	if err := log.StoreLogs(entriesFrom(2, "a", 10)); err != nil {
		t.Error(err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if log, err = openMarked(d); err != nil {
		t.Fatal("with its mark:", err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

// A node syncs its mark without being asked.
func TestMarkIsSynced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		c.write(lead, "a")
		time.Sleep(2 * markSync)
		lead.mark.mu.Lock()
		defer lead.mark.mu.Unlock()
		if !lead.mark.known || lead.mark.newest.last != lead.raft.LastIndex() || lead.mark.dirty {
			t.Errorf("%+v of a log that ends at %d", lead.mark.newest, lead.raft.LastIndex())
		}
	})
}
