// How far the log was durable, in a file of its own: a second source, without which an end of the
// log that somebody cut off, or whose bytes have changed, looks like one where the power failed
// (docs/adr/0056).

package cluster

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/types"
)

// markName is the file, beside the segments. It has two slots of markSlot bytes, far enough apart
// that a torn write damages one of them, which are written in turn.
const (
	markName  = "durable"
	markSlot  = 4096
	markBytes = 40
	markMagic = uint64(0x6b72616d64726f63) // "cordmark", little endian
)

// markedLevel is the feature level from which on a directory's log has its mark: a release that
// writes none refuses the directory.
const markedLevel = 3

// markSync is how long a mark may wait to be synced. After a power failure it may be so much older
// than the log; after a kill it is exact.
const markSync = time.Second

// mark is one state of the file: the log was durable up to an entry of that index and term.
type mark struct{ seq, last, term uint64 }

func (m mark) encode() []byte {
	b := make([]byte, 0, markBytes)
	for _, n := range []uint64{markMagic, m.seq, m.last, m.term} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return binary.LittleEndian.AppendUint64(b, uint64(crc32.Checksum(b, castagnoli)))
}

func decodeMark(b []byte) (m mark, ok bool) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	m = mark{word(1), word(2), word(3)}
	return m, word(0) == markMagic && word(4) == uint64(crc32.Checksum(b[:32], castagnoli))
}

// readMark reads the newest mark in a file. It reports false if there is none.
func readMark(f io.ReaderAt) (newest mark, ok bool, err error) {
	for i := range int64(2) {
		b := make([]byte, markBytes)
		if _, err := f.ReadAt(b, i*markSlot); errors.Is(err, io.EOF) {
			continue
		} else if err != nil {
			return newest, false, err
		}
		if m, valid := decodeMark(b); valid && (!ok || m.seq > newest.seq) {
			newest, ok = m, true
		}
	}
	return newest, ok, nil
}

// durableMark keeps the file.
type durableMark struct {
	files  fileLayer
	dir    string
	logger *slog.Logger

	mu      sync.Mutex
	f       types.WritableFile
	newest  mark
	known   bool // newest was read from the file, or written
	pending *time.Timer
	failing bool
	closed  bool
}

// open opens the file, or creates it. On a full disk it does that later.
func (d *durableMark) open() error {
	f, err := d.files.OpenWriter(d.dir, markName)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = d.files.Create(d.dir, markName, 0); err == nil {
			_, err = f.WriteAt(make([]byte, 2*markSlot), 0)
			if err = errors.Join(err, f.Sync(), d.files.SyncDir(d.dir)); err != nil {
				err = errors.Join(err, f.Close(), d.files.Delete(d.dir, markName))
			}
		}
		if noSpace(err) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	d.f = f
	d.newest, d.known, err = readMark(f)
	return err
}

// note notes that the log is durable up to an entry. What fails leaves an earlier mark, which is
// true too.
func (d *durableMark) note(last, term uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.f == nil && !d.closed {
		err = d.open()
	}
	if d.f != nil && err == nil {
		err = d.writeLocked(last, term)
	}
	if err != nil {
		if !d.failing {
			d.logger.Warn("cannot note how far the log is durable", "error", err)
		}
		d.failing = true
		return
	}
	d.failing = false
	if d.pending == nil {
		d.pending = time.AfterFunc(markSync, d.sync)
	}
}

func (d *durableMark) writeLocked(last, term uint64) error {
	next := mark{d.newest.seq + 1, last, term}
	if _, err := d.f.WriteAt(next.encode(), int64(next.seq%2)*markSlot); err != nil {
		return err
	}
	d.newest, d.known = next, true
	return nil
}

// sync makes the newest mark durable.
func (d *durableMark) sync() {
	d.mu.Lock()
	f := d.f
	d.pending = nil
	d.mu.Unlock()
	if f == nil {
		return
	}
	if err := f.Sync(); err != nil && !errors.Is(err, fs.ErrClosed) {
		d.logger.Warn("cannot sync the note how far the log is durable", "error", err)
	}
}

// lower durably says that the log may end at an entry, before entries after it go. Both slots say
// so: neither may contradict the log if the other is damaged.
func (d *durableMark) lower(last, term uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.f == nil || d.known && d.newest.last <= last {
		return nil
	}
	for range 2 {
		if err := d.writeLocked(last, term); err != nil {
			return err
		}
	}
	return d.f.Sync()
}

func (d *durableMark) close() error {
	d.mu.Lock()
	f := d.f
	d.f, d.closed = nil, true
	if d.pending != nil {
		d.pending.Stop()
	}
	d.mu.Unlock()
	if f == nil {
		return nil
	}
	return errors.Join(f.Sync(), f.Close())
}
