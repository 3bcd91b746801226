// The list of the log's segments, which raft-wal keeps in a file of bbolt: without a checksum, and
// with panics where its bytes were changed. Earlier releases read that one, so it is
// written beside ours until none of them can open the directory.

package raftlog

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/lockorder"
)

const segmentsName = "segments"

// segmentsSlot has room for some 40,000 segments, 2.5 TB. What is not used takes no space. Tests
// lower it.
var segmentsSlot = int64(8 << 20)

// segmentList implements types.MetaStore.
type segmentList struct {
	files disk.Files
	// marked: only this file is believed, see walOptions.
	marked func() bool
	// earlier is what earlier releases read; nil: they never did.
	earlier types.MetaStore

	mu    lockorder.Mutex // a segment is made in the background
	slots *disk.Slots
}

// Load implements types.MetaStore.
func (l *segmentList) Load(dir string) (state types.PersistentState, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, err := l.open(dir)
	if err != nil {
		return state, err
	}
	marked := l.marked()
	file := filepath.Join(dir, segmentsName)
	switch {
	case marked && l.slots == nil:
		return state, disk.Damagedf(file, "the file is missing")
	case marked && content == nil:
		return state, disk.Damagedf(file, "it says nothing that can be read")
	case marked || l.earlier == nil && content != nil:
		if err := json.Unmarshal(content, &state); err != nil {
			return state, disk.Damagedf(file, "%v", err)
		}
		return state, nil
	case l.earlier != nil:
		if state, err = l.earlier.Load(dir); err != nil {
			return state, err
		}
	}
	text, err := json.Marshal(state)
	switch {
	case err != nil || string(text) == string(content):
	case l.slots == nil:
		l.slots, err = disk.MakeSlots(l.files, dir, segmentsName, segmentsSlot, text)
	default:
		err = l.slots.Commit(text)
	}
	return state, err
}

// open opens the file, if there is one, and returns what it says.
func (l *segmentList) open(dir string) ([]byte, error) {
	if l.slots != nil {
		return l.slots.Newest()
	}
	slots, content, err := disk.OpenSlots(l.files, dir, segmentsName, segmentsSlot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	l.slots = slots
	return content, err
}

// renew writes the list again, see slotFile.
func (l *segmentList) renew() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots.Renew()
}

// CommitState implements types.MetaStore.
func (l *segmentList) CommitState(state types.PersistentState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if l.earlier != nil && !l.marked() {
		if err := l.earlier.CommitState(state); err != nil {
			return err
		}
	}
	return l.slots.Commit(text)
}

// GetStable implements types.MetaStore. raft-wal's own store for terms and votes is not used.
func (*segmentList) GetStable([]byte) ([]byte, error) { return nil, errors.ErrUnsupported }

// SetStable implements types.MetaStore.
func (*segmentList) SetStable([]byte, []byte) error { return errors.ErrUnsupported }

// Close implements types.MetaStore.
func (l *segmentList) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots := l.slots
	l.slots = nil
	err := slots.Close()
	if l.earlier != nil {
		err = errors.Join(err, l.earlier.Close())
	}
	return err
}
