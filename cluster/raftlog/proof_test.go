package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/tests/logdisk"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// openMarked opens a log that must agree with its mark.
func openMarked(d *logdisk.Disk) (*WAL, error) {
	return openWith("wal", d, nil, logdisk.Segment, func() bool { return true })
}

// filledLog is a disk with a log that has lived: several segments, ends that were cut off, and
// entries of all sizes.
func filledLog(t *testing.T) (*logdisk.Disk, model) {
	t.Helper()
	d := logdisk.New(-1)
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
	return d.Killed(), r.have
}

// bytesOf copies all that is on a disk.
func bytesOf(d *logdisk.Disk) map[string]string {
	all := map[string]string{}
	for name, f := range d.Names {
		all[name] = string(f.Data)
	}
	return all
}

// holdsOrRefuses opens a damaged log. It returns what is wrong: neither does the log have all that
// it had, also when it is opened again, nor is it refused with a word about damage, as it was.
func holdsOrRefuses(d *logdisk.Disk, want model) (refused bool, wrong string) {
	before := bytesOf(d)
	for range 2 {
		log, err := openMarked(d)
		if err != nil {
			switch {
			case !refused && !maps.Equal(before, bytesOf(d)):
				return true, fmt.Sprintf("it was changed, and then refused: %v", err)
			case !errors.Is(err, disk.ErrDamaged):
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

// Each bit of each file of a log is changed in turn, after a kill. Either nothing is missing, or
// the log is refused and nothing on the disk has changed.
func TestEachBitOfTheLog(t *testing.T) {
	t.Parallel()
	d, want := filledLog(t)
	if log, err := openMarked(d.Killed()); err != nil || want.differs(log) != "" {
		t.Fatal(err)
	}
	from := logdisk.FirstBit(t)
	for _, name := range slices.Sorted(maps.Keys(bytesOf(d))) {
		refused, tried := 0, 0
		for _, bit := range logdisk.Bits(bytesOf(d)[name], from) {
			tried++
			s := d.Killed()
			at, mask := bit/8, byte(1)<<(bit%8)
			s.Names[name].Data[at] ^= mask
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
	from := logdisk.FirstBit(t)
	for _, name := range slices.Sorted(maps.Keys(bytesOf(d))) {
		refused := 0
		for _, bit := range logdisk.Bits(bytesOf(d)[name], from) {
			s := d.Killed()
			log, err := openMarked(s)
			if err != nil {
				t.Fatal(err)
			}
			at, mask := bit/8, byte(1)<<(bit%8)
			s.Names[name].Data[at] ^= mask
			for index := want.first; index <= want.last; index++ {
				var l raft.Log
				switch err := log.GetLog(index, &l); {
				case errors.Is(err, disk.ErrDamaged):
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
	for _, name := range slices.Sorted(maps.Keys(d.Names)) {
		for what, do := range map[string]func(s *logdisk.Disk, f *logdisk.File){
			"emptied": func(_ *logdisk.Disk, f *logdisk.File) { f.Data = nil },
			"zeros":   func(_ *logdisk.Disk, f *logdisk.File) { clear(f.Data) },
			"deleted": func(s *logdisk.Disk, _ *logdisk.File) { delete(s.Names, name) },
			"cut": func(_ *logdisk.Disk, f *logdisk.File) {
				f.Data = f.Data[:rnd.IntN(len(f.Data))]
			},
			"a sector": func(_ *logdisk.Disk, f *logdisk.File) { clear(sectorOf(rnd, f.Data)) },
			"another's": func(s *logdisk.Disk, f *logdisk.File) {
				f.Data = slices.Clone(s.Names[slices.Sorted(maps.Keys(s.Names))[0]].Data)
			},
			"misdirected": func(_ *logdisk.Disk, f *logdisk.File) {
				copy(sectorOf(rnd, f.Data), sectorOf(rnd, f.Data))
			},
		} {
			for range 20 {
				s := d.Killed()
				do(s, s.Names[name])
				if _, wrong := holdsOrRefuses(s, want); wrong != "" {
					t.Fatalf("%s, %s: %s", name, what, wrong)
				}
			}
		}
	}
}

func sectorOf(rnd *rand.Rand, data []byte) []byte {
	at := rnd.IntN(len(data)/logdisk.Sector) * logdisk.Sector
	return data[at : at+logdisk.Sector]
}

// After a power failure the mark may be older than the log. A changed bit is found all the same, in
// the last batch too: one that the power failure broke has zeros where a sector was lost.
func TestBitsBehindAnOldMark(t *testing.T) {
	t.Parallel()
	d := logdisk.New(-1)
	r := newCrashRun(d)
	if err := errors.Join(r.reopen(), r.next("a", 10)); err != nil {
		t.Fatal(err)
	}
	mark := bytes.Clone(d.Names[MarkName].Data)
	for _, sizes := range [][]int{{10, 50, 1}, {300}, {20, 200}, {1}, {90}} {
		if err := r.next("b", sizes...); err != nil {
			t.Fatal(err)
		}
	}
	d.Names[MarkName].Data = mark
	from := logdisk.FirstBit(t)
	for name, f := range d.Names {
		for _, bit := range logdisk.Bits(string(f.Data), from) {
			s := d.Killed()
			s.Names[name].Data[bit/8] ^= 1 << (bit % 8)
			if _, wrong := holdsOrRefuses(s, r.have); wrong != "" {
				t.Fatalf("bit %d of byte %d of %s: %s", bit%8, bit/8, name, wrong)
			}
		}
	}
}

// A disk without room for the mark takes entries, and the mark once there is room.
func TestMarkWithoutRoom(t *testing.T) {
	t.Parallel()
	d := logdisk.New(-1)
	d.Fail = func(_ int, what string) (error, bool) {
		if what == "create "+MarkName {
			return syscall.ENOSPC, false
		}
		return nil, false
	}
	log, err := openCrashDisk(d, logdisk.Segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.StoreLogs(logdisk.Entries(1, "a", 10)); err != nil || log.mark.dirty {
		t.Error("without room:", err)
	}
	if err := log.EnsureMark(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("there is a mark: %v", err)
	}
	d.Fail = nil
	if err := log.StoreLogs(logdisk.Entries(2, "a", 10)); err != nil {
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
