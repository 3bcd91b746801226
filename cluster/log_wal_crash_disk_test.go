// The disk of the log's crash tests: unsynced data can be kept, lost or torn, and each step can
// fail.

package cluster

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

var errPowerless = errors.New("the power failed")

const (
	crashSegment = 4 << 10
	crashSector  = 64 // bytes that reach the disk together
)

func init() { tornBytes, segmentsSlot = crashSector, 16<<10 }

// crashDisk is a file layer, and metadata, in memory. It counts what changes the disk, and fails
// from a given step on.
type crashDisk struct {
	mu         sync.Mutex
	names      map[string]*crashFile // as the process sees them
	saved      map[string]*crashFile // those that are on the disk
	meta       []byte
	metaFailed bool // to be committed
	steps      []string
	// steps that are taken; then the power fails. <0: all
	last int
	// an error for one step, and whether the step is taken
	fail   func(step int, what string) (error, bool)
	power  func() // called before each step, if set
	sparse bool   // files have a size and no blocks
	raised atomic.Bool
	old    bool // the directory is one of an earlier release, with its metadata
}

// earlier is what an earlier release reads.
func (d *crashDisk) earlier() types.MetaStore {
	if d.old {
		return crashMeta{d}
	}
	return nil
}

// level is raised once the log was opened.
func (d *crashDisk) level() uint64 {
	if d.raised.Load() && !d.old {
		return markedLevel
	}
	return firstLevel
}

// newCrashDisk returns an empty disk that takes so many steps, <0: all.
func newCrashDisk(last int) *crashDisk {
	return &crashDisk{names: map[string]*crashFile{}, saved: map[string]*crashFile{}, last: last}
}

type crashFile struct {
	d     *crashDisk
	name  string
	data  []byte
	saved []byte
	dirty []dirtyRange
	cut   bool // truncated since the last sync: dirty does not tell all that changed
}

type dirtyRange struct {
	at   int64
	data []byte
}

// step counts one step, and returns why it is not taken.
func (d *crashDisk) step(what string) (err error, torn bool) {
	if d.power != nil {
		d.power()
	}
	d.steps = append(d.steps, what)
	n := len(d.steps)
	if d.last >= 0 && n > d.last {
		return errPowerless, n == d.last+1
	}
	if d.fail != nil {
		if err, taken := d.fail(n, what); err != nil {
			return err, taken
		}
	}
	return nil, false
}

func (d *crashDisk) failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last >= 0 && len(d.steps) > d.last
}

// survivor is the disk after a power failure. synced: only synced data survives; whole: everything;
// otherwise by chance.
func (d *crashDisk) survivor(mode string, rnd *rand.Rand) *crashDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := newCrashDisk(-1)
	next.meta, next.old = d.meta, d.old
	next.raised.Store(d.raised.Load())
	names := maps.Clone(d.saved)
	if mode == "whole" || mode == "torn" && rnd.IntN(2) == 0 {
		names = maps.Clone(d.names)
	}
	for name, f := range names {
		data := slices.Clone(f.saved)
		switch mode {
		case "whole":
			data = slices.Clone(f.data)
		case "torn":
			for _, w := range f.dirty {
				for i := 0; i < len(w.data); i += crashSector {
					if rnd.IntN(2) == 0 {
						data = patch(data, w.at+int64(i), w.data[i:min(i+crashSector, len(w.data))])
					}
				}
			}
		}
		next.names[name] = &crashFile{d: next, name: name, data: data, saved: slices.Clone(data)}
	}
	next.saved = maps.Clone(next.names)
	return next
}

func patch(data []byte, at int64, p []byte) []byte {
	if grow := at + int64(len(p)) - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[at:], p)
	return data
}

func (d *crashDisk) ListDir(string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names)), nil
}

func (d *crashDisk) Create(_, name string, size uint64) (types.WritableFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] != nil {
		return nil, fs.ErrExist
	}
	if err, _ := d.step("create " + name); err != nil {
		return nil, err
	}
	f := &crashFile{d: d, name: name, data: make([]byte, size)}
	d.names[name] = f
	return f, nil
}

func (d *crashDisk) Delete(_, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] == nil {
		return fs.ErrNotExist
	}
	if err, _ := d.step("delete " + name); err != nil {
		return err
	}
	delete(d.names, name)
	// the name comes back with a power failure, unless another sync of the directory follows
	return nil
}

func (d *crashDisk) open(name string) (*crashFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] == nil {
		return nil, fs.ErrNotExist
	}
	return d.names[name], nil
}

func (d *crashDisk) OpenReader(_, name string) (types.ReadableFile, error) { return d.open(name) }
func (d *crashDisk) OpenWriter(_, name string) (types.WritableFile, error) { return d.open(name) }

func (d *crashDisk) SyncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err, _ := d.step("sync directory"); err != nil {
		return err
	}
	d.saved = maps.Clone(d.names)
	return nil
}

func (f *crashFile) Close() error { return nil }

func (f *crashFile) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.data)), nil
}

func (f *crashFile) ReadAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if at >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *crashFile) WriteAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err, torn := f.d.step(fmt.Sprintf("write %s at %d", f.name, at))
	if err == nil || torn {
		f.data = patch(f.data, at, p)
		f.dirty = append(f.dirty, dirtyRange{at, slices.Clone(p)})
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *crashFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err, _ := f.d.step("truncate " + f.name); err != nil {
		return err
	}
	f.data, f.cut = f.data[:size:size], true
	return nil
}

func (f *crashFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err, taken := f.d.step("sync " + f.name); err != nil && !taken {
		if !errors.Is(err, errPowerless) {
			f.dirty = nil // as on Linux: they count as written, and a later sync writes nothing
		}
		return err
	} else if err == nil || !errors.Is(err, errPowerless) {
		f.save()
		return err
	} else {
		return err
	}
}

// save copies only what changed: files are large, and the race detector looks at every byte.
func (f *crashFile) save() {
	if f.cut || len(f.saved) != len(f.data) {
		f.saved = slices.Clone(f.data)
	} else {
		for _, r := range f.dirty {
			copy(f.saved[r.at:], r.data)
		}
	}
	f.dirty, f.cut = nil, false
}

func (f *crashFile) SyncData() error { return f.Sync() }

func (f *crashFile) Reserved() bool { return !f.d.sparse }

// crashMeta is metadata that changes as a whole or not at all. As bbolt, it panics if it is used
// after a commit that failed, without having been closed.
type crashMeta struct{ d *crashDisk }

func (m crashMeta) Load(string) (state types.PersistentState, err error) {
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

func (m crashMeta) CommitState(state types.PersistentState) error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.checkMeta()
	err, taken := m.d.step("metadata")
	m.d.metaFailed = err != nil
	if err == nil || taken && !errors.Is(err, errPowerless) {
		var err error
		if m.d.meta, err = json.Marshal(state); err != nil {
			return err
		}
	}
	return err
}

func (crashMeta) GetStable([]byte) ([]byte, error) { return nil, nil }
func (crashMeta) SetStable([]byte, []byte) error   { return nil }

func (m crashMeta) Close() error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.metaFailed = false
	return nil
}

func (d *crashDisk) checkMeta() {
	if d.metaFailed {
		panic("metadata that could not be committed were not closed")
	}
}

// killed is the disk after a kill: unsynced data is still to be written.
func (d *crashDisk) killed() *crashDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := newCrashDisk(-1)
	next.meta, next.old = d.meta, d.old
	next.raised.Store(d.raised.Load())
	files := map[*crashFile]*crashFile{}
	for _, names := range []struct{ from, to map[string]*crashFile }{{d.names, next.names},
		{d.saved, next.saved}} {
		for name, f := range names.from {
			if files[f] == nil {
				files[f] = &crashFile{d: next, name: name, data: slices.Clone(f.data),
					saved: slices.Clone(f.saved), dirty: slices.Clone(f.dirty), cut: f.cut}
			}
			names.to[name] = files[f]
		}
	}
	return next
}
