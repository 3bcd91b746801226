// The simulated disk of a node: what is not synced is lost, kept or torn when the power fails.

package sim

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/simnet"
)

const sector = 512 // bytes that reach the disk together

// disk holds one node's files and snapshots.
type disk struct {
	segment int // bytes

	mu        sync.Mutex
	rnd       *rand.Rand
	names     map[string]*file // as the process sees them
	saved     map[string]*file // those that are on the disk
	level     uint64
	snapshots []*snapshot // newest first
	latency   time.Duration
	stuck     chan struct{} // closed when the disk continues; nil: it does
	failing   bool          // writes of the log fail
	full      bool          // … for lack of space
	crashAt   int           // steps until the process ends; 0: never
	crash     func()
	lies      string // what becomes of the next write to the log, unnoticed; empty: it is written
	healing   []func()
}

func newDisk(seed uint64) *disk {
	rnd := rand.New(rand.NewPCG(seed, 0x6469736b))
	return &disk{
		rnd: rnd, segment: []int{16 << 10, 256 << 10, 4 << 20, 4 << 20}[rnd.IntN(4)],
		names: map[string]*file{}, saved: map[string]*file{}, level: 1,
		latency: []time.Duration{20, 200, 1000, 5000}[rnd.IntN(4)] * time.Microsecond,
	}
}

// step is before each change of the disk: it takes its time, and may fail.
func (d *disk) step(logs bool) error {
	d.mu.Lock()
	wait := time.Duration(0)
	if patched {
		wait = time.Duration(d.rnd.ExpFloat64() * float64(d.latency))
	}
	stuck := d.stuck
	if d.crashAt > 0 {
		if d.crashAt--; d.crashAt == 0 {
			d.mu.Unlock()
			d.crash()
			d.mu.Lock()
		}
	}
	var err error
	switch {
	case logs && d.full:
		err = syscall.ENOSPC
	case logs && d.failing:
		err = syscall.EIO
	}
	d.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
	if stuck != nil && patched {
		<-stuck
	}
	return err
}

// survivor is the disk that the next process finds. Its data: "kill", everything, not all of it
// durable yet; "synced", what was synced; "torn", by chance more.
func (d *disk) survivor(mode string) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := &disk{segment: d.segment, rnd: rand.New(rand.NewPCG(d.rnd.Uint64(), 0)),
		names: map[string]*file{}, saved: map[string]*file{},
		level: d.level, snapshots: slices.Clone(d.snapshots),
		latency: d.latency, failing: d.failing, full: d.full}
	if mode == "kill" {
		files := map[*file]*file{}
		for from, to := range map[*map[string]*file]map[string]*file{&d.names: next.names,
			&d.saved: next.saved} {
			for name, f := range *from {
				if files[f] == nil {
					files[f] = &file{d: next, small: f.small, size: f.size,
						data:  slices.Clone(f.data),
						saved: slices.Clone(f.saved), savedSize: f.savedSize,
						dirty: slices.Clone(f.dirty)}
				}
				to[name] = files[f]
			}
		}
		return next
	}
	names := d.saved
	if mode == "torn" && d.rnd.IntN(2) == 0 {
		names = d.names
	}
	for _, name := range sortedNames(names) {
		f := names[name]
		data, size := slices.Clone(f.saved), f.savedSize
		if mode == "torn" {
			for _, w := range f.dirty {
				for i := 0; i < len(w.data); i += sector {
					if d.rnd.IntN(2) == 0 {
						data = patch(data, w.at+i, w.data[i:min(i+sector, len(w.data))])
					}
				}
			}
			size = max(size, len(data))
		}
		next.names[name] = &file{d: next, small: f.small, data: data, size: size,
			saved:     slices.Clone(data),
			savedSize: size}
	}
	next.saved = maps.Clone(next.names)
	return next
}

// world is what a node runs on, with this disk.
func (d *disk) world(m *simnet.Machine) cluster.World {
	return cluster.World{Dial: m.Dial, LogFiles: d,
		LogSegment: d.segment, Snapshots: snapshots{d}, Level: d.level,
		NoteLevel: func(level uint64) error {
			err := d.step(false)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.level = level
			return err
		}}
}

// file is a file. Bytes after data are zero, up to size.
type file struct {
	d         *disk
	small     bool // one of those beside the log, which are written in place
	data      []byte
	size      int
	saved     []byte
	savedSize int
	dirty     []written
}

type written struct {
	at   int
	data []byte
}

func patch(data []byte, at int, p []byte) []byte {
	if grow := at + len(p) - len(data); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[at:], p)
	return data
}

func (d *disk) ListDir(string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names)), nil
}

func (d *disk) Create(_, name string, size uint64) (types.WritableFile, error) {
	err := d.step(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.names[name] != nil:
		return nil, fs.ErrExist
	case err != nil:
		return nil, err
	}
	f := &file{d: d, size: int(size), small: !strings.HasSuffix(name, ".wal")}
	d.names[name] = f
	return f, nil
}

// Delete removes a name. It comes back with a power failure unless the directory is synced.
func (d *disk) Delete(_, name string) error {
	_ = d.step(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] == nil {
		return fs.ErrNotExist
	}
	delete(d.names, name)
	return nil
}

func (d *disk) open(name string) (*file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] == nil {
		return nil, fs.ErrNotExist
	}
	return d.names[name], nil
}

func (d *disk) OpenReader(_, name string) (types.ReadableFile, error) { return d.open(name) }
func (d *disk) OpenWriter(_, name string) (types.WritableFile, error) { return d.open(name) }

func (d *disk) SyncDir(string) error {
	if err := d.step(true); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.saved = maps.Clone(d.names)
	return nil
}

func (f *file) Close() error   { return nil }
func (f *file) Reserved() bool { return true }

func (f *file) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(f.size), nil
}

func (f *file) ReadAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if at >= int64(f.size) {
		return 0, io.EOF
	}
	n := min(len(p), f.size-int(at))
	clear(p[:n])
	if int(at) < len(f.data) {
		copy(p[:n], f.data[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	switch {
	case f.small:
	case f.d.full:
		return 0, syscall.ENOSPC
	case f.d.failing:
		return 0, syscall.EIO
	}
	n := len(p)
	f.size = max(f.size, int(at)+n)
	// zeros where nothing was written need no room
	if over := min(n, max(0, len(f.data)-int(at))); zero(p[over:]) {
		p = p[:over]
	}
	if len(p) == 0 {
		return n, nil
	}
	if !f.small && !zero(p) {
		meant, lies := int(at), f.d.lies
		if lies == "stray" {
			if len(f.data) <= len(p) {
				lies = ""
			} else {
				at = int64(f.d.rnd.IntN(len(f.data) - len(p)))
				f.keep(int(at), len(p))
			}
		}
		if lies != "" {
			f.d.lies = ""
			text := bytes.Clone(p)
			f.d.healing = append(f.d.healing, func() { f.data = patch(f.data, meant, text) })
		}
		if lies == "lost" {
			return n, nil
		}
	}
	f.data = patch(f.data, int(at), p)
	f.dirty = append(f.dirty, written{int(at), bytes.Clone(p)})
	return n, nil
}

func sortedNames(files map[string]*file) []string { return slices.Sorted(maps.Keys(files)) }

// keep has the disk restore a part of the file when its process has ended: what that still does is
// of no effect, and a process that finds damage would have ended at once.
func (f *file) keep(at, n int) {
	at = min(at, len(f.data))
	before := bytes.Clone(f.data[at:min(at+max(n, 0), len(f.data))])
	f.d.healing = append(f.d.healing, func() { copy(f.data[min(at, len(f.data)):], before) })
}

// heal undoes the rot, in the opposite order.
func (d *disk) heal() {
	for _, undo := range slices.Backward(d.healing) {
		undo()
	}
	d.healing, d.lies = nil, ""
}

// rot changes what the disk holds, or will hold, without an error, and says what.
func (d *disk) rot(how string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.level < commands.LevelSecond {
		return "nothing, since no mark is believed yet"
	}
	if how == "lost" || how == "stray" {
		d.lies = how
		return "the next write to the log"
	}
	if how == "snapshot" {
		if len(d.snapshots) == 0 || d.snapshots[0].data.Len() == 0 {
			return "nothing"
		}
		// what is being sent or read back has been read
		k := *d.snapshots[0]
		b := bytes.Clone(k.data.Bytes())
		at := d.rnd.IntN(len(b))
		b[at] ^= 1 << d.rnd.IntN(8)
		k.data = *bytes.NewBuffer(b)
		d.snapshots = append([]*snapshot{&k}, d.snapshots[1:]...)
		return fmt.Sprintf("byte %d of snapshot %s", at, k.meta.ID)
	}
	names := slices.DeleteFunc(sortedNames(d.names), func(name string) bool {
		return len(d.names[name].saved) == 0
	})
	if len(names) == 0 {
		return "nothing"
	}
	name := names[d.rnd.IntN(len(names))]
	f := d.names[name]
	at := d.rnd.IntN(len(f.saved))
	change := func(change func([]byte)) { // in the file, and in what a power failure leaves of it
		f.keep(at, len(f.data)-at)
		for _, data := range [][]byte{f.data, f.saved} {
			if at < len(data) {
				change(data[at:])
			}
		}
	}
	switch how {
	case "flip":
		bit := d.rnd.IntN(8)
		change(func(b []byte) { b[0] ^= 1 << bit })
	case "zeros": // a sector
		at -= at % sector
		change(func(b []byte) { clear(b[:min(len(b), sector)]) })
	case "cut": // the end is lost; the size remains
		change(func(b []byte) { clear(b) })
	default:
		panic("no rot " + how)
	}
	return fmt.Sprintf("byte %d of %s", at, name)
}

func zero(p []byte) bool {
	for len(p) >= len(nothing) {
		if !bytes.Equal(p[:len(nothing)], nothing[:]) {
			return false
		}
		p = p[len(nothing):]
	}
	return bytes.Equal(p, nothing[:len(p)])
}

var nothing [4096]byte

func (f *file) Truncate(size int64) error {
	_ = f.d.step(false)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.size = int(size)
	f.data = f.data[:min(len(f.data), f.size)]
	return nil
}

func (f *file) Sync() error {
	if err := f.d.step(!f.small); err != nil {
		return err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.size < len(f.saved) {
		f.saved = f.saved[:f.size]
	}
	for _, w := range f.dirty {
		if w.at < f.size {
			f.saved = patch(f.saved, w.at, w.data[:min(len(w.data), f.size-w.at)])
		}
	}
	f.dirty, f.savedSize = nil, f.size
	return nil
}

func (f *file) SyncData() error { return f.Sync() }

// snapshots is the snapshot store: a snapshot is there once it is closed, and then durable.
type snapshots struct{ d *disk }

type snapshot struct {
	d    *disk
	meta raft.SnapshotMeta
	data bytes.Buffer
	done bool
}

func (s snapshots) Create(version raft.SnapshotVersion, index, term uint64,
	conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if err := s.d.step(true); err != nil {
		return nil, err
	}
	return &snapshot{d: s.d, meta: raft.SnapshotMeta{Version: version,
		ID: fmt.Sprintf("%d-%d-%d", term, index, time.Now().UnixMilli()), Index: index, Term: term,
		Configuration: conf, ConfigurationIndex: confIndex}}, nil
}

func (s snapshots) List() (list []*raft.SnapshotMeta, err error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, k := range s.d.snapshots {
		m := k.meta
		list = append(list, &m)
	}
	return list, nil
}

func (s snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, k := range s.d.snapshots {
		if k.meta.ID == id {
			m := k.meta
			return &m, io.NopCloser(bytes.NewReader(k.data.Bytes())), nil
		}
	}
	return nil, nil, fs.ErrNotExist
}

func (k *snapshot) ID() string { return k.meta.ID }

func (k *snapshot) Write(p []byte) (int, error) {
	if err := k.d.step(true); err != nil {
		return 0, err
	}
	return k.data.Write(p)
}

func (k *snapshot) Cancel() error { k.done = true; return nil }

func (k *snapshot) Close() error {
	if k.done {
		return nil
	}
	k.done = true
	if err := k.d.step(true); err != nil {
		return err
	}
	k.meta.Size = int64(k.data.Len())
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	k.d.snapshots = append(k.d.snapshots, k)
	slices.SortStableFunc(k.d.snapshots, func(a, b *snapshot) int {
		if a.meta.Term != b.meta.Term {
			return int(b.meta.Term) - int(a.meta.Term)
		}
		return int(b.meta.Index) - int(a.meta.Index)
	})
	k.d.snapshots = k.d.snapshots[:min(len(k.d.snapshots), 2)]
	return nil
}
