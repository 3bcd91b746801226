// How far the log was durable, in a file of its own: a second source, without which an end of the
// log that somebody cut off, or whose bytes have changed, looks like one where the power failed
// (docs/adr/0056).

package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/lockorder"
)

// MarkName is the file of the mark, beside the segments or the file of the log.
const MarkName = "durable"

const markSlot = 4096

// Marked is a log that has a mark, which says less than the log holds at the most.
type Marked interface {
	// EnsureMark makes sure that there is the file, without which no node starts on a directory
	// that demands it.
	EnsureMark() error
	// SyncMark makes the newest mark durable. It may run beside everything else.
	SyncMark()
}

// mark says that the log was durable up to an entry of that index and term; term 0: any.
type mark struct{ last, term uint64 }

const markBytes = 16

func (m mark) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, m.last)
	return binary.LittleEndian.AppendUint64(b, m.term)
}

func decodeMark(b []byte) (m mark, ok bool) {
	if len(b) != markBytes {
		return m, false
	}
	return mark{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, true
}

// durableMark keeps the file.
type durableMark struct {
	files  disk.Files
	dir    string
	logger *slog.Logger

	mu      lockorder.Mutex
	slots   *disk.Slots // nil: there is no file yet
	newest  mark
	known   bool // newest was read from the file, or written
	dirty   bool // to be synced
	failing bool
	closed  bool
}

// open opens the file, or creates it. On a full disk it is created later.
func (d *durableMark) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ensure(); !disk.NoSpace(err) {
		return err
	}
	return nil
}

// ensure opens the file, or creates it, unless that was done. The caller holds mu.
func (d *durableMark) ensure() error {
	if d.slots != nil {
		return nil
	}
	slots, content, err := disk.OpenSlots(d.files, d.dir, MarkName, markSlot)
	if errors.Is(err, fs.ErrNotExist) {
		slots, err = disk.MakeSlots(d.files, d.dir, MarkName, markSlot, nil)
	}
	if err != nil {
		return err
	}
	d.slots = slots
	d.newest, d.known = decodeMark(content)
	return slots.Renew()
}

// start has the mark say where a log ends that was just opened.
func (d *durableMark) start(log raft.LogStore) error {
	if err := d.open(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(d.dir, MarkName), err)
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	var entry raft.Log
	if last > 0 {
		if err := log.GetLog(last, &entry); err != nil {
			return err
		}
	}
	is := mark{last, entry.Term}
	if d.known && d.newest == is {
		return nil
	}
	if err := d.lower(is); err != nil {
		return err
	}
	d.note(is)
	return nil
}

// CheckMark checks that a log in file, which ends at an entry, has all that the mark in a directory
// says.
func CheckMark(files disk.Files, dir, file string, last uint64) error {
	content, err := disk.ReadSlots(files, dir, MarkName, markSlot)
	have, ok := decodeMark(content)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return disk.Damagedf(filepath.Join(dir, MarkName), "the file is missing")
	case err != nil:
		return err
	case !ok:
		return disk.Damagedf(filepath.Join(dir, MarkName), "it says nothing that can be read")
	case have.last > last:
		return disk.Damagedf(file, "the log ends at entry %d, and entries up to %d were stored",
			last, have.last)
	}
	return nil
}

// ReadMark returns the last entry that the log in a directory held for sure; false: that cannot be
// told.
func ReadMark(files disk.Files, dir string) (last uint64, ok bool, err error) {
	content, err := disk.ReadSlots(files, dir, MarkName, markSlot)
	m, ok := decodeMark(content)
	return m.last, ok, err
}

// stored notes entries that were stored.
func (d *durableMark) stored(logs []*raft.Log) {
	if len(logs) > 0 {
		last := logs[len(logs)-1]
		d.note(mark{last.Index, last.Term})
	}
}

// deletes lowers the mark before the end of a log is deleted.
func (d *durableMark) deletes(log raft.LogStore, low, high uint64) error {
	first, err1 := log.FirstIndex()
	last, err2 := log.LastIndex()
	if err := errors.Join(err1, err2); err != nil || high < last {
		return err
	}
	left := mark{}
	if low > first {
		left.last = low - 1
	}
	return d.lower(left)
}

// exists makes sure that there is a file, see Marked.
func (d *durableMark) exists() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.ensure()
	if err == nil && !d.known {
		if err = d.slots.Commit(mark{}.encode()); err == nil {
			d.newest, d.known = mark{}, true
		}
	}
	return err
}

// note notes that the log is durable up to an entry. What fails leaves an earlier mark, which is
// true too.
func (d *durableMark) note(is mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	err := d.ensure()
	if err == nil {
		err = d.slots.Put(is.encode())
	}
	if err != nil {
		if !d.failing {
			d.logger.Warn("cannot note how far the log is durable", "error", err)
		}
		d.failing, d.known = true, false // it may have been written
		return
	}
	d.newest, d.known, d.failing, d.dirty = is, true, false, true
}

// sync makes the newest mark durable. It may run beside everything else.
func (d *durableMark) sync() {
	d.mu.Lock()
	dirty, slots := d.dirty, d.slots
	d.dirty = false
	d.mu.Unlock() // appending does not wait for it
	if !dirty {
		return
	}
	if err := slots.Sync(); err != nil {
		d.logger.Warn("cannot sync the note how far the log is durable", "error", err)
	}
}

// lower durably says that the log may end at an entry, before entries after it go.
func (d *durableMark) lower(to mark) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slots == nil || d.known && d.newest.last <= to.last {
		return nil
	}
	if err := d.slots.Commit(to.encode()); err != nil {
		return err
	}
	d.newest, d.known = to, true
	return d.slots.Sync() // neither slot may say more
}

func (d *durableMark) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.slots.Close()
}
