package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

// What lives here: coordd recover, which makes a surviving node's data directory the beginning of a new cluster when the majority is lost.

func runRecover(args []string, getenv func(string) string, stdout io.Writer) (err error) {
	fs := newFlagSet("coordd recover")
	dir := fs.String("data-dir", getenv("COORDD_DATA_DIR"), "")
	accept := fs.Bool("accept-lost-writes", false, "")
	before := fs.Uint64("before-entry", 0, "")
	trace := fs.Bool("trace-entries", false, "")
	if _, err := parseArgs(fs, args); err != nil {
		return err
	}
	if *dir == "" {
		return usageError{errors.New("coordd recover needs --data-dir, the directory of a node that survived")}
	}
	if _, err := os.Stat(*dir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	state := fsm.NewAdapter(commands.NewTable(commands.Specs(), server.Specs()), node.NewOrigin(), func([]commands.Event) {}, func(err error) {
		fmt.Fprintf(os.Stderr, "coordd: data directory %s cannot be replayed: %v\n", *dir, err)
		os.Exit(1) // nothing was written; the machine cannot go on
	})
	o, err := cluster.OpenOffline(*dir, state, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	held, err := o.Contents()
	if err != nil {
		return err
	}
	if *before > held.LastIndex {
		return fmt.Errorf("--before-entry %d: the log in data directory %s ends with entry %d", *before, *dir, held.LastIndex)
	}
	var each func(uint64)
	if *trace {
		each = func(index uint64) { fmt.Fprintf(stdout, "applying log entry %d\n", index) }
	}
	if err := o.Replay(*before, each); err != nil {
		return err
	}
	printHeld(stdout, *dir, held, state)
	if err := o.CheckAlone(); err != nil {
		return err
	}
	epoch := state.Epoch() + 1
	fmt.Fprintf(stdout, recoverWarning, held.Node, epoch)
	again := "--data-dir " + *dir
	if *before > 0 {
		fmt.Fprintf(stdout, leaveOutWarning, *before, held.LastIndex)
		again += fmt.Sprint(" --before-entry ", *before)
	}
	if !*accept {
		fmt.Fprintf(stdout, "Nothing was written. To go on: coordd recover %s --accept-lost-writes\n", again)
		return nil
	}
	return recoverAlone(o, state, held, epoch, stdout)
}

// recoverAlone does it.
func recoverAlone(o *cluster.Offline, state *fsm.Adapter, held cluster.Contents, epoch uint64, stdout io.Writer) error {
	index, term, err := state.EnterEpoch(epoch)
	if err != nil {
		return fmt.Errorf("epoch %d: %w", epoch, err)
	}
	kept, err := o.RecoverAlone(epoch, index, term, func(w io.Writer) error {
		_, err := state.Freeze().WriteTo(w)
		return err
	})
	if err != nil {
		return err
	}
	var gone []string
	for _, id := range append(append(held.Voters, held.Learners...), held.Removed...) {
		if id != held.Node {
			gone = append(gone, id)
		}
	}
	fmt.Fprintf(stdout, "Node %s is the only member of a new cluster, in epoch %d. What was there before is in %s.\n", held.Node, epoch, kept)
	fmt.Fprintf(stdout, "Start it, and let empty nodes under new ids --join it; these are used up: %s.\n", strings.Join(gone, ", "))
	return nil
}

const recoverWarning = `
WARNING. This makes node %s the only voter of a new cluster that goes on from the state above. What may be lost:
  - The newest writes, although they were acknowledged: a majority has each of them on disk, and this node may not be part of it.
  - With them, locks: one that was taken last may be granted a second time while its holder still works; one that was released last
    may be held again until its life ends. Fencing tokens still rise: all that are given out from now on, in epoch %d, are larger than
    every one before, so a resource that checks them is safe.
  - The other way round, writes that were under way and never acknowledged may come true.
If a majority of the voters above can be brought back on their disks, do that instead: it loses nothing.
Of several survivors take the one with the largest log term, and of those with the same the one with the largest index: run this on each of them first.
No other node may ever be started again on its old data. One alone is refused by the new cluster, but a majority of the old voters would go on as the old cluster.

`

const leaveOutWarning = `Log entries %d to %d are left out. If no node could apply the first of them, none of their writes was acknowledged, and nothing is lost by that.

`

// printHeld shows what a data directory holds.
func printHeld(w io.Writer, dir string, h cluster.Contents, state *fsm.Adapter) {
	keys := 0
	for _, n := range state.Stats().Keys {
		keys += n
	}
	snapshot, newest := "none", "not known, it is in the snapshot"
	if h.SnapshotIndex > 0 {
		snapshot = fmt.Sprint("index ", h.SnapshotIndex)
	}
	if e, err := fsm.DecodeEntry(h.LastEntry); err == nil {
		newest = time.UnixMicro(e.WallUs).UTC().Format(time.RFC3339Nano)
	}
	fmt.Fprintf(w, "%s: data of node %s\n", dir, h.Node)
	for _, line := range [][2]string{
		{"cluster", h.Cluster}, {"voters", strings.Join(h.Voters, ", ")}, {"learners", strings.Join(h.Learners, ", ")}, {"removed", strings.Join(h.Removed, ", ")},
		{"log", fmt.Sprintf("term %d, index %d", h.LastTerm, h.LastIndex)}, {"snapshot", snapshot},
		{"state", fmt.Sprintf("%d keys, epoch %d, cluster clock %d ms", keys, state.Epoch(), state.Clock())},
		{"newest write", newest},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "  %-13s %s\n", line[0], line[1])
		}
	}
}
