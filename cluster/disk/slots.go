// Small files that must be believed: what is in them has a checksum, and is there twice.

package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/hashicorp/raft-wal/types"
)

// Slots is a file of two slots, each with a number that rises and a checksum. A write that the
// power failure breaks leaves the other slot.
//
// A slot: slotMagic, number, and length of the content as little-endian uint64, the content, and
// the CRC-32C of all that as uint32.
type Slots struct {
	f      types.WritableFile
	size   int64  // the most bytes that a slot takes
	number uint64 // the newest
	next   int64  // the slot to write to: the other one is durable
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	slotMagic = uint64(0x746f6c7364726f63) // "cordslot"
	slotHead  = 24
	slotSum   = 4
)

// OpenSlots opens a file. It returns the newest content, nil if there is none that can be read; the
// error is fs.ErrNotExist if there is no file. Who believes the content calls Renew.
func OpenSlots(files Files, dir, name string, size int64) (*Slots, []byte, error) {
	f, err := files.OpenWriter(dir, name)
	if err != nil {
		return nil, nil, err
	}
	s := &Slots{f: f, size: size}
	content, err := s.read(f)
	if err != nil {
		err = unreadable(dir, name, err)
	} else { // a killed process may have left the name as it is in memory
		err = files.SyncDir(dir)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return s, content, nil
}

// MakeSlots creates the file, with this content.
func MakeSlots(files Files, dir, name string, size int64, content []byte) (*Slots, error) {
	f, err := files.Create(dir, name, 0)
	if err != nil {
		return nil, err
	}
	s := &Slots{f: f, size: size}
	if err = s.Commit(content); err == nil {
		err = files.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), files.Delete(dir, name))
	}
	return s, nil
}

// ReadSlots reads a file without writing; the content is nil if there is none that can be read.
func ReadSlots(files Files, dir, name string, size int64) (content []byte, err error) {
	f, err := files.OpenReader(dir, name)
	if err != nil {
		return nil, err
	}
	if content, err = (&Slots{size: size}).read(f); err != nil {
		err = unreadable(dir, name, err)
	}
	return content, errors.Join(err, f.Close())
}

// unreadable is an error of the disk. The other slot does not help: it may say what was before.
func unreadable(dir, name string, err error) error {
	return Damagedf(filepath.Join(dir, name), "it cannot be read: %v", err)
}

// Newest returns the newest content, nil if there is none that can be read.
func (s *Slots) Newest() ([]byte, error) { return s.read(s.f) }

// read reads the newest content.
func (s *Slots) read(f io.ReaderAt) (newest []byte, err error) {
	s.number, s.next = 0, 0
	for i := range int64(2) {
		number, content, err := s.slot(f, i)
		if err != nil {
			return nil, err
		}
		if content != nil && (newest == nil || number > s.number) {
			s.number, s.next, newest = number, 1-i, content
		}
	}
	return newest, nil
}

// slot reads a slot; its content is nil if it has none.
func (s *Slots) slot(f io.ReaderAt, i int64) (number uint64, content []byte, err error) {
	head := make([]byte, slotHead)
	if err := readAll(f, head, i*s.size); err != nil {
		return 0, nil, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(head[8*i:]) }
	n := word(2)
	if word(0) != slotMagic || n > uint64(s.size)-slotHead-slotSum {
		return 0, nil, nil
	}
	rest := make([]byte, n+slotSum)
	if err := readAll(f, rest, i*s.size+slotHead); err != nil {
		return 0, nil, err
	}
	content = rest[:n:n]
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, content)
	if binary.LittleEndian.Uint32(rest[n:]) != sum {
		return 0, nil, nil
	}
	return word(1), content, nil
}

// readAll reads what there is, and zeros behind it.
func readAll(f io.ReaderAt, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	clear(p[n:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Put writes a content to one slot, without syncing it. The other slot keeps the one before.
func (s *Slots) Put(content []byte) error {
	if err := s.write(content); err != nil {
		return err
	}
	s.next = 1 - s.next
	return nil
}

// Commit makes a content durable. Then it is in both slots: neither says what was before, if the
// other is damaged.
func (s *Slots) Commit(content []byte) error {
	if err := s.write(content); err != nil {
		return err
	}
	if err := s.Sync(); err != nil {
		return err
	}
	s.next = 1 - s.next
	return s.write(content)
}

// Renew writes the content again, to both slots, which a power failure has left different. What an
// earlier process wrote and could not sync Linux would not sync now.
func (s *Slots) Renew() error {
	if s == nil {
		return nil
	}
	content, err := s.Newest()
	if err != nil || content == nil {
		return err
	}
	return s.Commit(content)
}

func (s *Slots) write(content []byte) error {
	if slotHead+len(content)+slotSum > int(s.size) {
		return fmt.Errorf("%d bytes do not fit into a slot of %d", len(content), s.size)
	}
	s.number++
	b := make([]byte, 0, slotHead+len(content)+slotSum)
	for _, n := range []uint64{slotMagic, s.number, uint64(len(content))} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, content...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	_, err := s.f.WriteAt(b, s.next*s.size)
	return err
}

// Sync makes what was put durable.
func (s *Slots) Sync() error {
	if f, ok := s.f.(File); ok {
		return f.SyncData()
	}
	return s.f.Sync()
}

// Close makes all that was put durable.
func (s *Slots) Close() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.f.Sync(), s.f.Close())
}
