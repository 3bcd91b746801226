package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// A segment holds what was written to it, whatever zeros were written ahead, also if it was
// reopened and written from an earlier position on. It does not grow beyond its reserved size.
func TestZerosStayBehindEntries(t *testing.T) {
	const size = 4 * zeroAhead
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	v, dir := &walFiles{Files: disk.NewSystem()}, t.TempDir()
	f, err := v.Create(dir, "a.wal", size)
	if err != nil {
		t.Fatal(err)
	}
	want, end, checked := make([]byte, size), 0, 0
	for step := 0; end < size; step++ {
		if step%50 == 25 {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if f, err = v.OpenWriter(dir, "a.wal"); err != nil {
				t.Fatal(err)
			}
			end -= rnd.IntN(min(end, 3000) + 1) // the last entries were not whole
			checked = 0
		}
		p := make([]byte, min(1+rnd.IntN(20_000), size-end))
		for i := range p {
			p[i] = byte(1 + rnd.IntN(255))
		}
		if n, err := f.WriteAt(p, int64(end)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		end += copy(want[end:], p)
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if end == size {
			checked = 0
		}
		got := make([]byte, end-checked)
		if _, err := f.ReadAt(got, int64(checked)); err != nil ||
			!bytes.Equal(got, want[checked:end]) {
			t.Fatalf("step %d: the bytes %d to %d that were written are not there: %v", step,
				checked, end, err)
		}
		checked = max(0, end-64<<10) // what stands before is compared now and then
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a.wal")); err != nil || info.Size() != size {
		t.Fatal(info.Size(), err)
	}
}

// Blocks ahead of the entries are zeros on the disk, so that a sync converts no blocks.
func TestBlocksAreReadyAhead(t *testing.T) {
	v, dir := &walFiles{Files: disk.NewSystem()}, t.TempDir()
	made, err := v.Create(dir, "a.wal", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	f := made.(*walFile)
	write := func(at int64, n int) {
		t.Helper()
		if _, err := f.WriteAt(make([]byte, n), at); err != nil {
			t.Fatal(err)
		}
		if at+int64(n) > f.zeroed || f.zeroed > f.size {
			t.Fatalf("written to byte %d, ready to byte %d of %d", at+int64(n), f.zeroed, f.size)
		}
	}
	write(0, 100)
	ready := f.zeroed
	if ready != 100+zeroAhead {
		t.Fatal(ready)
	}
	write(100, zeroAhead)
	if f.zeroed != ready {
		t.Fatalf("zeros were written again: to byte %d", f.zeroed)
	}
	write(ready, 1)
	if f.zeroed != f.size {
		t.Fatalf("ready to byte %d of %d", f.zeroed, f.size)
	}
}

// fullDisk is a file layer that cannot reserve space: like raft-wal's own it leaves the file that
// it created.
type fullDisk struct {
	disk.System
	refused int
}

func (v *fullDisk) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.System.Create(dir, name, 0)
	if err != nil || size == 0 {
		return f, err
	}
	v.refused++
	return nil, errors.Join(&fs.PathError{Op: "fallocate", Path: name, Err: syscall.ENOSPC},
		f.Close())
}

// A log whose disk has no space for another segment stores entries while there is space for those,
// and holds them all when it is opened again.
func TestLogOutlivesASegmentWithoutRoom(t *testing.T) {
	dir, v := t.TempDir(), &fullDisk{System: disk.NewSystem()}
	open := func() *wal.WAL {
		log, err := wal.Open(dir, wal.WithSegmentSize(64<<10),
			wal.WithSegmentFiler(segment.NewFiler(dir, &walFiles{Files: v})))
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	log := open()
	const entries = 400
	data := bytes.Repeat([]byte("x"), 1000)
	for i := range uint64(entries) {
		if err := log.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: data}); err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
	}
	if v.refused < 4 {
		t.Fatalf("%d segments were begun without room", v.refused)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log = open()
	defer log.Close()
	for i := range uint64(entries) {
		var l raft.Log
		if err := log.GetLog(i+1, &l); err != nil || !bytes.Equal(l.Data, data) {
			t.Fatalf("entry %d: %d bytes, %v", i+1, len(l.Data), err)
		}
	}
}

// BenchmarkSync compares a sync of a 2 KB entry in a segment as raft-wal makes it and in one whose
// blocks are ready.
func BenchmarkSync(b *testing.B) {
	for _, ready := range []bool{false, true} {
		b.Run(fmt.Sprintf("ready=%t", ready), func(b *testing.B) {
			dir := b.TempDir()
			f, err := walfs.New().Create(dir, "a.wal", 1<<30)
			if ready {
				f, err = (&walFiles{Files: disk.NewSystem()}).Create(dir, "b.wal", 1<<30)
			}
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			entry := bytes.Repeat([]byte{1}, 2000)
			at := int64(0)
			for b.Loop() {
				if _, err := f.WriteAt(entry, at); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
				at += int64(len(entry))
			}
		})
	}
}
