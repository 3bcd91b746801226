// The feature level of a machine: where it starts, how an entry raises it, and what is refused.

package fsm

import (
	"errors"
	"fmt"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/wire"
)

// firstLevel is the level of every machine that no entry has raised.
const firstLevel = commands.LevelFirst

// ErrLevel reports a feature level that this release does not know.
var ErrLevel = errors.New("a later version of coordd is needed")

// CheckLevel fails with ErrLevel if this release does not know the level of what.
func CheckLevel(what string, level uint64) error {
	if level <= commands.FeatureLevel {
		return nil
	}
	return fmt.Errorf("%w: %s has feature level %d, and this one knows levels up to %d",
		ErrLevel, what, level, commands.FeatureLevel)
}

// Level returns the machine's feature level, from 1.
func (m *Machine) Level() uint64 { return m.level }

// raise applies the level of an entry, 0 if it has none. The level never falls.
func (m *Machine) raise(index, level uint64) error {
	if err := CheckLevel(fmt.Sprintf("log entry %d", index), level); err != nil {
		return err
	}
	if level > m.level {
		m.level = level
		m.engine.SetLevel(level)
		m.raiseUsers()
	}
	return nil
}

// entryLevel reads the level that an encoded entry raises the machine to, without checking the
// rest; 0 if it has none.
func entryLevel(b []byte) uint64 {
	head, ok := entryHead(b)
	if !ok {
		return 0
	}
	return head.Level
}

// snapshotHead is how many bytes of a snapshot file snapshotLevel needs: up to the end of the
// longest header.
const snapshotHead = 128

// snapshotLevel reads the level of a snapshot from the beginning of its file, without checking the
// rest. It is 0 if the file is damaged or of a later format.
func snapshotLevel(head []byte) uint64 {
	c := wire.NewCursor(head)
	magic, version := string(c.Take(uint64(len(snapshotMagic)))), c.Take(4)
	if magic != snapshotMagic || len(version) < 4 || version[0] != snapshotVersion {
		return 0
	}
	record := wire.NewCursor(c.Take(c.Uint64()))
	header := readHeader(&record)
	if c.Failed() || record.Failed() {
		return 0
	}
	return header.level
}
