package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/wire"
)

// A snapshot file is a magic, the format version (4 bytes), records (a length in 8 bytes, then the
// content), an empty record, and a CRC-32C of all that. The first record is the header, the second
// the scripts and libraries, from commands.LevelSecond on the third the users, then what the header
// says that there is: what waits, what waits for locks, the scripts that were refused, a time that
// was set, what requests may do, the counts of subscribers, leases, and the requests that run once.
// Then comes one record per key in the keyspace's order, from that level on with what the key is
// used for: equal machines give equal bytes.
const (
	snapshotMagic   = "coordd snapshot\n"
	snapshotVersion = 1
	// maxRecord bounds a record's length. Memory grows with the bytes read, not with that length.
	maxRecord = 1 << 40
)

// Errors of ReadSnapshot.
var (
	ErrSnapshotCorrupt = errors.New("snapshot is corrupt")
	ErrSnapshotVersion = errors.New("snapshot has a newer format")
)

// header is the first record of a snapshot file: numbers in the order of the fields. Trailing
// fields are omitted while they have a new machine's values.
type header struct {
	index, epoch uint64
	clockMs      int64
	sum          uint64
	notify       uint64 // 0
	level        uint64 // firstLevel
	// from LevelSecond on
	timeUs int64  // instants.lastUs
	limit  uint64 // memoryLimit.encode
	parts  uint64 // which optional records there are
	blocks uint64 // Machine.idBlocks, if parts has partIDBlocks
}

// maxIDBlocks are so many that no connection's id is 2^62 or more.
const maxIDBlocks = 1 << 41

func (h *header) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, h.index)
	dst = binary.AppendUvarint(dst, h.epoch)
	dst = binary.AppendUvarint(dst, uint64(h.clockMs))
	dst = binary.LittleEndian.AppendUint64(dst, h.sum)
	if h.notify != 0 || h.level != firstLevel {
		dst = binary.AppendUvarint(dst, h.notify)
	}
	if h.level != firstLevel {
		for _, v := range [...]uint64{h.level, uint64(h.timeUs), h.limit, h.parts} {
			dst = binary.AppendUvarint(dst, v)
		}
		if h.blocks != 0 {
			dst = binary.AppendUvarint(dst, h.blocks)
		}
	}
	return dst
}

// readHeader reads a header. Fields after the level are only for releases that know that level.
func readHeader(c *wire.Cursor) header {
	h := header{index: c.Uvarint(), epoch: c.Uvarint(), clockMs: int64(c.Uvarint()),
		sum: c.Uint64(), level: firstLevel}
	if h.clockMs < 0 {
		c.Fail()
	}
	if c.Len() == 0 {
		return h
	}
	if h.notify = c.Uvarint(); h.notify != uint64(commands.NotifyFlags(h.notify)) {
		c.Fail()
	}
	if c.Len() == 0 {
		if h.notify == 0 {
			c.Fail()
		}
		return h
	}
	if h.level = c.Uvarint(); h.level <= firstLevel {
		c.Fail()
	}
	if h.level > commands.FeatureLevel {
		return h
	}
	h.timeUs, h.limit, h.parts = int64(c.Uvarint()), c.Uvarint(), c.Uvarint()
	if h.parts&partIDBlocks != 0 {
		if h.blocks = c.Uvarint(); h.blocks == 0 || h.blocks > maxIDBlocks {
			c.Fail()
		}
	}
	if h.timeUs < 0 || decodeLimit(h.limit).bytes < 0 || h.parts > knownParts {
		c.Fail()
	}
	return h
}

// Snapshot is the state of a machine at one index. It may be written while the machine applies
// more.
type Snapshot struct {
	header  []byte
	scripts []byte
	users   []byte                        // nil below commands.LevelSecond
	parts   []func(record func(b []byte)) // what writes those that there are
	keys    *keyspace.Frozen
	marks   bool
}

// Snapshot freezes the current state; the pause does not depend on the number of keys.
func (m *Machine) Snapshot() *Snapshot {
	h := header{
		index: m.index, epoch: m.epoch, clockMs: m.ks.Now(), sum: m.ks.Sum(),
		notify: uint64(m.events.notify), level: m.level, timeUs: m.time.lastUs,
		limit: m.limit.encode(), blocks: m.idBlocks,
	}
	if h.blocks != 0 {
		h.parts |= partIDBlocks
	}
	s := &Snapshot{scripts: m.engine.AppendTo(nil), keys: m.ks.Freeze()}
	for i := range snapshotParts {
		if write := snapshotParts[i].freeze(m); write != nil {
			h.parts |= snapshotParts[i].bit
			s.parts = append(s.parts, write)
		}
	}
	if s.header = h.appendTo(nil); m.level >= commands.LevelSecond {
		s.marks = true
		s.users = m.appendUsers(nil)
	}
	return s
}

// WriteTo writes the snapshot file.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	out := &snapshotWriter{w: bufio.NewWriterSize(w, 1<<16), sum: crc32.New(crcTable)}
	out.write([]byte(snapshotMagic))
	out.write(binary.LittleEndian.AppendUint32(nil, snapshotVersion))
	out.record(s.header)
	out.record(s.scripts)
	if s.users != nil {
		out.record(s.users)
	}
	for _, write := range s.parts {
		write(out.record)
	}
	_ = s.keys.Records(s.marks, func(record []byte) error { // the writer keeps its first error
		out.record(record)
		return out.err
	})
	out.write(make([]byte, 8))
	out.write(binary.LittleEndian.AppendUint32(nil, out.sum.Sum32()))
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.n, out.err
}

type snapshotWriter struct {
	w   *bufio.Writer
	sum hash.Hash32
	n   int64
	err error
}

func (w *snapshotWriter) write(b []byte) {
	if w.err != nil {
		return
	}
	w.sum.Write(b)
	var n int
	n, w.err = w.w.Write(b)
	w.n += int64(n)
}

func (w *snapshotWriter) record(b []byte) {
	w.write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
	w.write(b)
}

// ReadSnapshot makes a machine of a snapshot file. It fails unless the whole file is valid.
func ReadSnapshot(r io.Reader, table *commands.Table) (*Machine, error) {
	in := newSnapshotReader(r)
	m, err := in.machine(table)
	if err != nil {
		return nil, err
	}
	load := m.ks.Load
	if m.level < commands.LevelSecond {
		load = m.ks.LoadUnmarked
	}
	if err := in.keys(load); err != nil {
		return nil, err
	}
	return m, nil
}

// machine reads all that precedes the keys.
func (r *snapshotReader) machine(table *commands.Table) (*Machine, error) {
	if err := r.begin(); err != nil {
		return nil, err
	}
	m := NewMachine(table)
	h, err := m.loadHeader(r)
	if err != nil {
		return nil, err
	}
	if err := m.engine.Restore(r.record()); err != nil {
		return nil, r.error(err.Error())
	}
	if m.level >= commands.LevelSecond {
		if err := m.restoreUsers(r.record()); err != nil {
			return nil, r.error(err.Error())
		}
	}
	for i := range snapshotParts {
		if p := &snapshotParts[i]; h.parts&p.bit != 0 {
			if err := p.restore(m, r.record); err != nil {
				return nil, r.error(err.Error())
			}
		}
	}
	return m, nil
}

// keys calls f with each record of the keyspace, and then reads the rest of the file.
func (r *snapshotReader) keys(f func(record []byte) error) error {
	for record := r.record(); len(record) > 0; record = r.record() {
		if err := f(record); err != nil {
			return r.error(err.Error())
		}
	}
	return r.finish()
}

func (m *Machine) loadHeader(in *snapshotReader) (header, error) {
	h, err := in.header()
	if err != nil {
		return h, err
	}
	m.index, m.epoch, m.level = h.index, h.epoch, h.level
	m.idBlocks = h.blocks
	m.ks.SweepQuietly(m.level >= commands.LevelSecond)
	m.engine.SetLevel(m.level)
	m.raiseUsers()
	m.ks.RestoreClock(h.clockMs)
	m.time.lastUs = h.timeUs
	m.limit = decodeLimit(h.limit)
	m.ks.RestoreSum(h.sum)
	m.events.notify = commands.NotifyFlags(h.notify)
	return h, nil
}

// header reads the first record. It reports an unknown level before any other error.
func (r *snapshotReader) header() (header, error) {
	c := wire.NewCursor(r.record())
	h := readHeader(&c)
	if r.err == nil && !c.Failed() {
		if err := CheckLevel("the snapshot", h.level); err != nil {
			return h, err
		}
	}
	if r.err != nil || !c.Done() {
		return h, r.error("its header is invalid")
	}
	return h, nil
}

type snapshotReader struct {
	r   *bufio.Reader
	sum hash.Hash32
	buf []byte
	err error
}

func newSnapshotReader(r io.Reader) *snapshotReader {
	return &snapshotReader{r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(crcTable)}
}

// begin reads what precedes the records.
func (r *snapshotReader) begin() error {
	if string(r.read(len(snapshotMagic))) != snapshotMagic {
		return r.error("its magic is missing")
	}
	if v := r.uint32(); r.err == nil && v != snapshotVersion {
		return fmt.Errorf("%w: version %d, this release reads %d", ErrSnapshotVersion, v,
			snapshotVersion)
	}
	return nil
}

// finish reads what follows the records: only the checksum.
func (r *snapshotReader) finish() error {
	sum := r.sum.Sum32()
	if r.uint32() != sum || r.err != nil {
		return r.error("its checksum does not match")
	}
	if _, err := r.r.ReadByte(); err != io.EOF {
		return r.error("it has data after its end")
	}
	return nil
}

func (r *snapshotReader) error(what string) error {
	if r.err != nil {
		what = r.err.Error()
	}
	return fmt.Errorf("%w: %s", ErrSnapshotCorrupt, what)
}

// read returns the next n bytes, valid until the next call, or nil after an error. Its buffer grows
// with the bytes read, not with n.
func (r *snapshotReader) read(n int) []byte {
	r.buf = r.buf[:0]
	for r.err == nil && len(r.buf) < n {
		step := min(n-len(r.buf), 1<<20)
		at := len(r.buf)
		r.buf = append(r.buf, make([]byte, step)...)
		_, r.err = io.ReadFull(r.r, r.buf[at:])
	}
	if r.err != nil {
		return nil
	}
	r.sum.Write(r.buf)
	return r.buf
}

func (r *snapshotReader) uint32() uint32 {
	if b := r.read(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *snapshotReader) record() []byte {
	var n uint64
	if b := r.read(8); b != nil {
		n = binary.LittleEndian.Uint64(b)
	}
	if n > maxRecord {
		r.err = errors.New("a record is too long")
	}
	if n == 0 || r.err != nil {
		return nil
	}
	return r.read(int(n))
}
