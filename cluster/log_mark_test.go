package cluster

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/raftlog"
)

// syncedFiles notes whether the newest mark is durable.
type syncedFiles struct {
	disk.System
	synced *atomic.Bool
}

type syncedFile struct {
	disk.File
	synced *atomic.Bool
}

func (v syncedFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.System.Create(dir, name, size)
	if err == nil && name == raftlog.MarkName {
		f = syncedFile{f.(disk.File), v.synced}
	}
	return f, err
}

func (f syncedFile) WriteAt(p []byte, at int64) (int, error) {
	f.synced.Store(false)
	return f.File.WriteAt(p, at)
}

func (f syncedFile) SyncData() error {
	err := f.File.SyncData()
	f.synced.Store(err == nil)
	return err
}

// A node syncs its mark without being asked.
func TestMarkIsSynced(t *testing.T) {
	var synced atomic.Bool
	was := logFiles
	logFiles = syncedFiles{disk.NewSystem(), &synced}
	defer func() { logFiles = was }()
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		c.write(lead, "a")
		time.Sleep(2 * markSync)
		dir := filepath.Join(lead.cfg.DataDir, walName)
		last, ok, err := raftlog.ReadMark(disk.NewSystem(), dir)
		if !ok || err != nil || last != lead.raft.LastIndex() || !synced.Load() {
			t.Errorf("%d, %v, %v, synced %v, of a log that ends at %d", last, ok, err,
				synced.Load(), lead.raft.LastIndex())
		}
	})
}
