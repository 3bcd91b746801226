package logdisk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/types"
)

// ErrPowerless is the error of each step after the power has failed.
var ErrPowerless = errors.New("the power failed")

const (
	Segment = 4 << 10 // bytes of the segments of most logs here
	Sector  = 64      // bytes that reach the disk together
)

// Disk is a file layer, and metadata, in memory. It counts what changes the disk, and fails
// from a given step on.
type Disk struct {
	mu         sync.Mutex
	Names      map[string]*File // as the process sees them
	saved      map[string]*File // those that are on the disk
	meta       []byte
	metaFailed bool     // to be committed
	Steps      []string // that were taken or failed
	// Last is how many steps are taken; then the power fails. <0: all
	Last int
	// Fail returns an error for one step, and whether the step is taken; may be nil.
	Fail   func(step int, what string) (error, bool)
	Sparse bool        // files have a size and no blocks
	Raised atomic.Bool // the level of the directory: what opens a log raises it
	Old    bool        // the directory is one of an earlier release, with its metadata
}

// Earlier is what an earlier release reads.
func (d *Disk) Earlier() types.MetaStore {
	if d.Old {
		return meta{d}
	}
	return nil
}

// Marked tells a log whether its mark is demanded.
func (d *Disk) Marked() bool { return d.Raised.Load() && !d.Old }

// New returns an empty disk that takes so many steps, <0: all.
func New(last int) *Disk {
	return &Disk{Names: map[string]*File{}, saved: map[string]*File{}, Last: last}
}

// File is a file of a Disk.
type File struct {
	d     *Disk
	name  string
	Data  []byte // as the process sees it
	saved []byte
	dirty []dirtyRange
	cut   bool // truncated since the last sync: dirty does not tell all that changed
}

type dirtyRange struct {
	at   int64
	data []byte
}

// step counts one step, and returns why it is not taken.
func (d *Disk) step(what string) (err error, torn bool) {
	d.Steps = append(d.Steps, what)
	n := len(d.Steps)
	if d.Last >= 0 && n > d.Last {
		return ErrPowerless, n == d.Last+1
	}
	if d.Fail != nil {
		if err, taken := d.Fail(n, what); err != nil {
			return err, taken
		}
	}
	return nil, false
}

// Failed reports whether the power has failed.
func (d *Disk) Failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Last >= 0 && len(d.Steps) > d.Last
}

// Survivor is the disk after a power failure. synced: only synced data survives; whole: everything;
// otherwise by chance.
func (d *Disk) Survivor(mode string, rnd *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := New(-1)
	next.meta, next.Old = d.meta, d.Old
	next.Raised.Store(d.Raised.Load())
	names := maps.Clone(d.saved)
	if mode == "whole" || mode == "torn" && rnd.IntN(2) == 0 {
		names = maps.Clone(d.Names)
	}
	for name, f := range names {
		data := slices.Clone(f.saved)
		switch mode {
		case "whole":
			data = slices.Clone(f.Data)
		case "torn":
			for _, w := range f.dirty {
				for i := 0; i < len(w.data); i += Sector {
					if rnd.IntN(2) == 0 {
						data = patch(data, w.at+int64(i), w.data[i:min(i+Sector, len(w.data))])
					}
				}
			}
		}
		next.Names[name] = &File{d: next, name: name, Data: data, saved: slices.Clone(data)}
	}
	next.saved = maps.Clone(next.Names)
	return next
}

func patch(data []byte, at int64, p []byte) []byte {
	if grow := at + int64(len(p)) - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[at:], p)
	return data
}

func (d *Disk) ListDir(string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.Names)), nil
}

func (d *Disk) Create(_, name string, size uint64) (types.WritableFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Names[name] != nil {
		return nil, fs.ErrExist
	}
	if err, _ := d.step("create " + name); err != nil {
		return nil, err
	}
	f := &File{d: d, name: name, Data: make([]byte, size)}
	d.Names[name] = f
	return f, nil
}

func (d *Disk) Delete(_, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Names[name] == nil {
		return fs.ErrNotExist
	}
	if err, _ := d.step("delete " + name); err != nil {
		return err
	}
	delete(d.Names, name)
	// the name comes back with a power failure, unless another sync of the directory follows
	return nil
}

func (d *Disk) open(name string) (*File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Names[name] == nil {
		return nil, fs.ErrNotExist
	}
	return d.Names[name], nil
}

func (d *Disk) OpenReader(_, name string) (types.ReadableFile, error) { return d.open(name) }

func (d *Disk) OpenWriter(_, name string) (types.WritableFile, error) { return d.open(name) }

func (d *Disk) SyncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err, _ := d.step("sync directory"); err != nil {
		return err
	}
	d.saved = maps.Clone(d.Names)
	return nil
}

func (f *File) Close() error { return nil }

func (f *File) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.Data)), nil
}

func (f *File) ReadAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if at >= int64(len(f.Data)) {
		return 0, io.EOF
	}
	n := copy(p, f.Data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *File) WriteAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err, torn := f.d.step(fmt.Sprintf("write %s at %d", f.name, at))
	if err == nil || torn {
		f.Data = patch(f.Data, at, p)
		f.dirty = append(f.dirty, dirtyRange{at, slices.Clone(p)})
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *File) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err, _ := f.d.step("truncate " + f.name); err != nil {
		return err
	}
	f.Data, f.cut = f.Data[:size:size], true
	return nil
}

func (f *File) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err, taken := f.d.step("sync " + f.name); err != nil && !taken {
		if !errors.Is(err, ErrPowerless) {
			f.dirty = nil // as on Linux: they count as written, and a later sync writes nothing
		}
		return err
	} else if err == nil || !errors.Is(err, ErrPowerless) {
		f.save()
		return err
	} else {
		return err
	}
}

// save copies only what changed: files are large, and the race detector looks at every byte.
func (f *File) save() {
	if f.cut || len(f.saved) != len(f.Data) {
		f.saved = slices.Clone(f.Data)
	} else {
		for _, r := range f.dirty {
			copy(f.saved[r.at:], r.data)
		}
	}
	f.dirty, f.cut = nil, false
}

func (f *File) SyncData() error { return f.Sync() }

func (f *File) Reserved() bool { return !f.d.Sparse }

// meta is metadata that changes as a whole or not at all. As bbolt, it panics if it is used
// after a commit that failed, without having been closed.
type meta struct{ d *Disk }

func (m meta) Load(string) (state types.PersistentState, err error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.checkMeta()
	if m.d.meta == nil {
		return state, nil
	}
	if err := json.Unmarshal(m.d.meta, &state); err != nil {
		return state, fmt.Errorf("%w: %w", types.ErrCorrupt, err)
	}
	return state, nil
}

func (m meta) CommitState(state types.PersistentState) error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.checkMeta()
	err, taken := m.d.step("metadata")
	m.d.metaFailed = err != nil
	if err == nil || taken && !errors.Is(err, ErrPowerless) {
		var err error
		if m.d.meta, err = json.Marshal(state); err != nil {
			return err
		}
	}
	return err
}

func (meta) GetStable([]byte) ([]byte, error) { return nil, nil }

func (meta) SetStable([]byte, []byte) error { return nil }

func (m meta) Close() error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.metaFailed = false
	return nil
}

func (d *Disk) checkMeta() {
	if d.metaFailed {
		panic("metadata that could not be committed were not closed")
	}
}

// Killed is the disk after a kill: unsynced data is still to be written.
func (d *Disk) Killed() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := New(-1)
	next.meta, next.Old = d.meta, d.Old
	next.Raised.Store(d.Raised.Load())
	files := map[*File]*File{}
	for _, names := range []struct{ from, to map[string]*File }{{d.Names, next.Names},
		{d.saved, next.saved}} {
		for name, f := range names.from {
			if files[f] == nil {
				files[f] = &File{d: next, name: name, Data: slices.Clone(f.Data),
					saved: slices.Clone(f.saved), dirty: slices.Clone(f.dirty), cut: f.cut}
			}
			names.to[name] = files[f]
		}
	}
	return next
}
