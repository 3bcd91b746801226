// Tests of the log under power failures, kills and errors at every step.

package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/tests/logdisk"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// model is what a log must hold.
type model struct {
	first, last uint64 // 0: nothing
	data        map[uint64]string
}

func (m model) clone() model { return model{m.first, m.last, maps.Clone(m.data)} }

func (m *model) append(logs []*raft.Log) {
	if m.last == 0 {
		m.first = logs[0].Index
	}
	for _, l := range logs {
		m.data[l.Index], m.last = string(l.Data), l.Index
	}
}

// differs returns how a log differs from the model.
func (m model) differs(log *WAL) string {
	first, err1 := log.FirstIndex()
	last, err2 := log.LastIndex()
	if err1 != nil || err2 != nil || first != m.first || last != m.last {
		return fmt.Sprintf("it holds entries %d to %d (%v, %v), not %d to %d", first, last, err1,
			err2, m.first, m.last)
	}
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil || l.Index != i || string(l.Data) != m.data[i] {
			return fmt.Sprintf("entry %d is %d, %d bytes, %v", i, l.Index, len(l.Data), err)
		}
	}
	return ""
}

// crashRun is a log, and what it must hold: now, or after the current step.
type crashRun struct {
	log        *WAL
	open       func() (*WAL, error)
	mu         sync.Mutex // a segment is made in the background
	have, want model
	// errors are those of a disk that goes on: what failed is tried again, as Raft does
	retry bool
}

// do takes a step.
func (r *crashRun) do(change func(*model), step func() error) error {
	want := r.have.clone()
	change(&want)
	r.mu.Lock()
	r.want = want
	r.mu.Unlock()
	err := step()
	for try := 0; err != nil && r.retry && try < 3; try++ {
		err = step()
	}
	if err == nil {
		r.mu.Lock()
		r.have = r.want
		r.mu.Unlock()
	}
	return err
}

func (r *crashRun) append(logs []*raft.Log) error {
	return r.do(func(m *model) { m.append(logs) }, func() error { return r.log.StoreLogs(logs) })
}

func (r *crashRun) next(word string, sizes ...int) error {
	return r.append(logdisk.Entries(r.have.last+1, word, sizes...))
}

func (r *crashRun) cut(low, high uint64) error {
	return r.do(func(m *model) {
		for i := low; i <= high; i++ {
			delete(m.data, i)
		}
		switch {
		case low <= m.first && high >= m.last:
			m.first, m.last = 0, 0
		case low <= m.first:
			m.first = high + 1
		default:
			m.last = low - 1
		}
	}, func() error { return r.log.DeleteRange(low, high) })
}

// settle waits for the segment that is created in the background.
func (r *crashRun) settle() { _ = r.log.w.Load().DeleteRange(1<<40, 1<<40) }

func (r *crashRun) reopen() error {
	return r.do(func(*model) {}, func() (err error) {
		if r.log != nil {
			_ = r.log.Close()
		}
		r.log, err = r.open()
		return err
	})
}

// live does everything that can happen to a log.
func (r *crashRun) live() error {
	steps := []func() error{
		r.reopen,
		func() error { return r.next("a", 10, 500, 1) },
		func() error { return r.next("b", 3000, 100) }, // almost full
		func() error { return r.next("c", 900) },       // full: a rotation
		func() error { return r.next("d", 10, 20, 30) },
		func() error { return r.next("e", 5000) }, // larger than a segment
		func() error { return r.next("f", 700, 700, 700) },
		func() error { return r.cut(r.have.last-1, r.have.last) }, // in the newest segment
		func() error { return r.next("g", 40) },
		func() error { return r.cut(r.have.last, r.have.last) }, // all of it
		func() error { return r.next("h", 1500, 1500, 1500) },
		func() error { return r.next("i", 100) },
		func() error { return r.cut(r.have.last-4, r.have.last) }, // more than that
		func() error { return r.next("j", 600) },
		r.reopen,
		func() error { return r.next("k", 600) },
		func() error { return r.cut(r.have.first, r.have.first+1) }, // a part of the oldest segment
		func() error { return r.cut(r.have.first, r.have.first+4) },
		func() error { return r.next("l", 2000, 2000) },
		func() error { return r.cut(r.have.first, r.have.last-1) },
		// a snapshot took its place
		func() error { return r.cut(r.have.first, r.have.last) },
		// far behind it
		func() error { return r.append(logdisk.Entries(r.want.last+1000, "m", 10, 4000)) },
		func() error { return r.next("n", 10) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		r.settle()
	}
	// A close right after the append that fills a segment.
	if err := r.next("o", 4100); err != nil {
		return err
	}
	if err := r.reopen(); err != nil {
		return err
	}
	return r.next("p", 10)
}

func init() { tornBytes, segmentsSlot = logdisk.Sector, 16<<10 }

// openWith opens a log that says nothing.
func openWith(dir string, files disk.Files, earlier types.MetaStore, segment int,
	marked func() bool) (*WAL, error) {
	return OpenWAL(dir, Options{Files: files, Earlier: earlier, SegmentSize: segment,
		Marked: marked, Logger: slog.New(slog.DiscardHandler), LibLogger: hclog.NewNullLogger()})
}

func openCrashDisk(d *logdisk.Disk, segment int) (*WAL, error) {
	log, err := openWith("wal", d, d.Earlier(), segment, d.Marked)
	if err == nil {
		d.Raised.Store(true)
	}
	return log, err
}

func newCrashRun(d *logdisk.Disk) *crashRun {
	return &crashRun{open: func() (*WAL, error) {
		return openCrashDisk(d, logdisk.Segment)
	}, have: model{data: map[uint64]string{}}}
}

// goesOn checks that a log that was just opened holds one of two states, stores further entries,
// and holds all of them when it is opened again.
func goesOn(log *WAL, open func() (*WAL, error), states ...model) error {
	var why []string
	r := crashRun{log: log, open: open}
	for _, m := range states {
		if d := m.differs(log); d != "" {
			why = append(why, d)
			continue
		}
		r.have = m.clone()
		break
	}
	if len(why) == len(states) {
		return errors.New(strings.Join(why, "; "))
	}
	for _, sizes := range [][]int{{100}, {4100}, {10, 10}} {
		if err := r.next("z", sizes...); err != nil {
			return fmt.Errorf("it takes no entries: %w", err)
		}
	}
	if err := r.reopen(); err != nil {
		return fmt.Errorf("it does not open again: %w", err)
	}
	defer r.log.Close()
	if d := r.have.differs(r.log); d != "" {
		return fmt.Errorf("opened again, %s", d)
	}
	return nil
}

// The power fails at every step of using a log, and again at every step of its next opening. What
// was acknowledged is there, and the log works. In make check it also does in a directory of an
// earlier release.
func TestLogSurvivesPowerFailures(t *testing.T) {
	t.Parallel() // in memory, beside each other
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	points, opened := 0, 0
	old := false
	every := 64 // opening after which the power fails again
	if tier.Checking() {
		every = 4
	}
	for last := 0; ; last++ {
		d := logdisk.New(last)
		d.Old = old
		r := newCrashRun(d)
		err := r.live()
		if !d.Failed() {
			if err != nil {
				t.Fatal(err)
			}
			if old || !tier.Checking() {
				break
			}
			old, last = true, -1 // the same in a directory of an earlier release
			continue
		}
		points++
		for i, mode := range []string{"synced", "whole", "torn", "torn"} {
			// steps of the next opening before the power fails again
			for again := -1; again < 8 && (again < 0 || (last+i)%every == 0); again++ {
				s := d.Survivor(mode, rnd)
				if again >= 0 {
					s.Last = again
					if log, err := openCrashDisk(s, logdisk.Segment); err == nil {
						_ = log.Close()
					}
					if !s.Failed() {
						break
					}
					s = s.Survivor(mode, rnd)
				}
				open := func() (*WAL, error) { return openCrashDisk(s, logdisk.Segment) }
				log, err := open()
				if err == nil {
					err = goesOn(log, open, r.have, r.want)
				}
				if err != nil {
					t.Fatalf("after step %d (%s), %s, again %d: %v\nsteps of the opening: %q", last,
						d.Steps[last], mode, again, err, s.Steps)
				}
				opened++
			}
		}
	}
	t.Logf("%d points, %d logs", points, opened)
}

// One step fails, once or twice, whether it took effect or not, for lack of a descriptor or room or
// by the disk's fault. The log works when it is tried again, and holds no entry twice and no
// refused one. At each step some of these failures are tried, and in make check all.
func TestLogSurvivesErrors(t *testing.T) {
	t.Parallel() // in memory, beside each other
	type failure struct {
		cause error
		taken bool
		times int
	}
	var failures []failure
	for _, cause := range []error{syscall.EMFILE, syscall.EIO, syscall.ENOSPC} {
		for _, taken := range []bool{false, true} {
			failures = append(failures, failure{cause, taken, 1}, failure{cause, taken, 2})
		}
	}
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for at, some := 1, failures; ; at++ {
		if !tier.Checking() {
			rnd.Shuffle(len(failures), func(i, j int) {
				failures[i], failures[j] = failures[j], failures[i]
			})
			some = failures[:1]
		}
		for _, f := range some {
			d := logdisk.New(-1)
			d.Old = at%2 == 1
			left, what := f.times, ""
			d.Fail = func(step int, is string) (error, bool) {
				if step < at || left == 0 {
					return nil, false
				}
				left--
				what = is
				return f.cause, f.taken
			}
			r := newCrashRun(d)
			r.retry = true
			err := r.live()
			if left == f.times {
				return // it takes fewer steps
			}
			left = 0
			if err == nil {
				err = goesOn(r.log, r.open, r.have)
			}
			if err != nil {
				t.Fatalf("%+v at step %d (%s): %v", f, at, what, err)
			}
		}
	}
}

// Raft counts what a log holds when it is opened after a kill as stored. So it survives a power
// failure that follows before anything is written.
func TestLogThatWasOpenedLasts(t *testing.T) {
	for last := 0; ; last++ {
		d := logdisk.New(last)
		r := newCrashRun(d)
		_ = r.live()
		if !d.Failed() {
			break
		}
		s := d.Killed()
		log, err := openCrashDisk(s, logdisk.Segment)
		if err != nil {
			t.Fatal(err)
		}
		have := r.have
		if have.differs(log) != "" {
			have = r.want
		}
		s = s.Survivor("synced", nil)
		if log, err = openCrashDisk(s, logdisk.Segment); err != nil {
			t.Fatal(err)
		}
		if why := have.differs(log); why != "" {
			t.Fatalf("killed after step %d (%s), opened, and the power failed: %s", last,
				d.Steps[last], why)
		}
	}
}

// A segment that could not be created is created with the next entry, which is not refused.
func TestSegmentIsMadeLater(t *testing.T) {
	d := logdisk.New(-1)
	r := newCrashRun(d)
	if err := errors.Join(r.reopen(), r.next("a", 100)); err != nil {
		t.Fatal(err)
	}
	refused := false
	d.Fail = func(_ int, what string) (error, bool) {
		if refused || !strings.HasPrefix(what, "create") {
			return nil, false
		}
		refused = true
		return syscall.EMFILE, false
	}
	if err := errors.Join(r.next("b", logdisk.Segment), r.next("c", 10),
		goesOn(r.log, r.open, r.have)); err != nil || !refused {
		t.Fatal(refused, err)
	}
}

// A segment that ends early keeps no more space than it uses; opening shrinks one that another
// version left larger.
func TestCutsKeepNoRoom(t *testing.T) {
	for _, old := range []bool{false, true} {
		d := logdisk.New(-1)
		if old {
			d.Fail = func(_ int, what string) (error, bool) {
				if strings.HasPrefix(what, "truncate") {
					return syscall.EIO, false
				}
				return nil, false
			}
		}
		r := newCrashRun(d)
		if err := r.reopen(); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			if err := errors.Join(r.next("a", 10, 10),
				r.cut(r.have.last, r.have.last)); err != nil {
				t.Fatal(err)
			}
		}
		size := func() (all int) {
			for name, f := range d.Names {
				if strings.HasSuffix(name, ".wal") {
					all += len(f.Data)
				}
			}
			return all
		}
		if old {
			if got := size(); got < 13*logdisk.Segment {
				t.Fatalf("%d bytes: the test shows nothing", got)
			}
			d.Fail = nil
			if err := r.reopen(); err != nil {
				t.Fatal(err)
			}
		}
		if got := size(); got > 2*logdisk.Segment {
			t.Errorf("12 entries and 12 cuts take %d bytes, a segment has %d", got, logdisk.Segment)
		}
		if err := goesOn(r.log, r.open, r.have); err != nil {
			t.Error(err)
		}
	}
}

// A segment whose bytes changed on disk does not pass for one that was incompletely written:
// acknowledged entries follow them.
func TestChangedBytesAreNoEnd(t *testing.T) {
	d := logdisk.New(-1)
	r := newCrashRun(d)
	if err := errors.Join(r.reopen(), r.next("a", 100), r.next("b", 100), r.next("c", 100),
		r.log.Close()); err != nil {
		t.Fatal(err)
	}
	for _, f := range d.Names {
		f.Data[200] ^= 1
	}
	if log, err := openCrashDisk(d, logdisk.Segment); !errors.Is(err, types.ErrCorrupt) {
		t.Fatal(log, err)
	}
}

// tracedFiles counts the files that were created and not garbage-collected yet, and the open ones.
type tracedFiles struct {
	*logdisk.Disk
	live, open *atomic.Int32
}

type tracedFile struct {
	disk.File
	open *atomic.Int32
}

func (f *tracedFile) Close() error {
	f.open.Add(-1)
	return f.File.Close()
}

func (v tracedFiles) trace(w any, err error) (*tracedFile, error) {
	if err != nil {
		return nil, err
	}
	f := &tracedFile{w.(disk.File), v.open}
	v.live.Add(1)
	v.open.Add(1)
	runtime.AddCleanup(f, func(live *atomic.Int32) { live.Add(-1) }, v.live)
	return f, nil
}

func (v tracedFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	return orNil[types.WritableFile](v.trace(v.Disk.Create(dir, name, size)))
}

func (v tracedFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	return orNil[types.WritableFile](v.trace(v.Disk.OpenWriter(dir, name)))
}

func (v tracedFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	return orNil[types.ReadableFile](v.trace(v.Disk.OpenReader(dir, name)))
}

// orNil is a file as an interface, which is nil where there is an error.
func orNil[T any](f *tracedFile, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return any(f).(T), nil
}

func newTracedRun() (tracedFiles, *crashRun) {
	v := tracedFiles{logdisk.New(-1), &atomic.Int32{}, &atomic.Int32{}}
	return v, &crashRun{have: model{data: map[uint64]string{}}, open: func() (*WAL, error) {
		return openWith("wal", v, v.Earlier(), logdisk.Segment, v.Marked)
	}}
}

// Nothing stays of a truncated segment: neither its file nor the memory for writing it.
func TestSegmentsThatAreCutOffAreForgotten(t *testing.T) {
	v, r := newTracedRun()
	if err := r.reopen(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := r.next("a", logdisk.Segment+1); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	if err := r.cut(1, r.have.last-1); err != nil {
		t.Fatal(err)
	}
	const beside = 2 // mark and list
	forgotten := func() bool {
		runtime.GC()
		return v.open.Load() == beside+2 && v.live.Load() <= beside+3
	}
	wait.For(t, 20*time.Second, "two segments are left, and at most one state before that",
		forgotten)
	runtime.KeepAlive(r.log)
}

// A log that cannot be opened leaves no file open.
func TestFailedOpeningsLeaveNoFileOpen(t *testing.T) {
	v, r := newTracedRun()
	if err := errors.Join(r.reopen(), r.next("a", logdisk.Segment+1),
		r.next("b", logdisk.Segment+1), r.next("c", 10), r.log.Close()); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(f *logdisk.File){
		"a segment that was ended has another header": func(f *logdisk.File) { f.Data[0] ^= 1 },
		"it has none": func(f *logdisk.File) { f.Data = nil },
	} {
		f := v.Names[slices.Min(slices.Collect(maps.Keys(v.Names)))]
		was := f.Data
		f.Data = slices.Clone(was)
		damage(f)
		if log, err := r.open(); err == nil || v.open.Load() != 0 {
			t.Errorf("%s: %v, %v, and %d files are open", name, log, err, v.open.Load())
		}
		f.Data = was
	}
}

// A process is killed at every step, with the files and bbolt of the real one.
func TestLogSurvivesKills(t *testing.T) {
	never := func() bool { return false }
	openDir := func(dir string) (*WAL, error) {
		return openWith(dir, disk.NewSystem(), &metadb.BoltMetaDB{}, logdisk.Segment, never)
	}
	dir, copies := filepath.Join(t.TempDir(), "wal"), t.TempDir()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	type moment struct{ have, want model }
	var moments []moment
	files := killedFiles{Files: disk.NewSystem()}
	r := &crashRun{have: model{data: map[uint64]string{}}}
	r.want = r.have
	files.before = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := os.CopyFS(filepath.Join(copies, fmt.Sprint(len(moments))),
			os.DirFS(dir)); err != nil {
			t.Error(err)
		}
		moments = append(moments, moment{r.have.clone(), r.want.clone()})
	}
	r.open = func() (*WAL, error) {
		return openWith(dir, files, &killedMeta{BoltMetaDB: &metadb.BoltMetaDB{},
			before: files.before}, logdisk.Segment, never)
	}
	if err := r.live(); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	for i, m := range moments {
		at := filepath.Join(copies, fmt.Sprint(i))
		open := func() (*WAL, error) { return openDir(at) }
		log, err := open()
		if err == nil {
			err = goesOn(log, open, m.have, m.want)
		}
		if err != nil {
			t.Fatalf("killed before step %d of %d: %v", i, len(moments), err)
		}
	}
	t.Logf("%d kills", len(moments))
}

// killedFiles reports each step before and after it.
type killedFiles struct {
	disk.Files
	before func()
}

func (v killedFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	v.before()
	defer v.before()
	return v.wrap(v.Files.Create(dir, name, size))
}

func (v killedFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	return v.wrap(v.Files.OpenWriter(dir, name))
}

func (v killedFiles) wrap(w types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	return killedFile{w.(disk.File), v.before}, nil
}

func (v killedFiles) Delete(dir, name string) error {
	v.before()
	return v.Files.Delete(dir, name)
}

type killedFile struct {
	disk.File
	before func()
}

func (f killedFile) WriteAt(p []byte, at int64) (int, error) {
	f.before()
	return f.File.WriteAt(p, at)
}

func (f killedFile) Truncate(size int64) error {
	f.before()
	return f.File.Truncate(size)
}

type killedMeta struct {
	*metadb.BoltMetaDB
	before func()
}

func (m *killedMeta) CommitState(s types.PersistentState) error {
	m.before()
	defer m.before()
	return m.BoltMetaDB.CommitState(s)
}
