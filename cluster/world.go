// What is below a node in a simulation, in place of the network and the file system.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/raftlog"
)

// World is the network and the disk of a simulated node: Config.World, which is nil elsewhere. The
// node uses all that is set here, and nothing of Config.DataDir.
type World struct {
	// Dial opens a connection to another node's peer address.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// LogFiles are the files of the log, with segments of LogSegment bytes, and those beside it.
	LogFiles   disk.Files
	LogSegment int
	Snapshots  raft.SnapshotStore
	// Level is the noted feature level, from 1, and NoteLevel notes a later one.
	Level     uint64
	NoteLevel func(level uint64) error
	// KnownLevel is the newest feature level that the node pretends to know; 0: that of its release
	KnownLevel uint64
}

// olderLevels are those of a release that knows fewer.
type olderLevels struct {
	Leveled
	known uint64
}

func (o olderLevels) KnownLevel() uint64 { return o.known }

func (o olderLevels) CheckLevel(what string, level uint64) error {
	if level > o.known {
		return fmt.Errorf("%s has feature level %d, and this simulated release knows %d", what,
			level, o.known)
	}
	return o.Leveled.CheckLevel(what, level)
}

// levels returns the machine's levels as the simulated release knows them.
func (w *World) levels(all Leveled) Leveled {
	if w == nil || w.KnownLevel == 0 {
		return all
	}
	return olderLevels{all, w.KnownLevel}
}

// openStores is openStores of a simulated disk.
func (w *World) openStores(logger *slog.Logger) (*stores, error) {
	level := func() uint64 { return w.Level }
	log, err := raftlog.OpenWAL("", raftlog.Options{Files: w.LogFiles, SegmentSize: w.LogSegment,
		Marked: marked(level), Logger: logger, LibLogger: newRaftLogger(logger)})
	if err != nil {
		return nil, fmt.Errorf("cannot open the simulated log: %w", err)
	}
	snapshots, err := newSnapshotStore(w.Snapshots, log, "", logger)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	stable, err := openStable(w.LogFiles, "", nil, level)
	if err == nil {
		err = stable.renew()
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &stores{stable: stable, log: log, snapshots: snapshots,
		closers: closers{log, stable}}, nil
}
