// coordd recover: turns the data directory of a surviving node into a new cluster after a majority
// is lost.

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

// recovery is one call of coordd recover.
type recovery struct {
	dir           string
	accept, trace bool
	before, above uint64
}

func newRecover(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover --data-dir DIR",
		Short: "Makes one node a new cluster after a majority is lost",
		Long: `After a majority is lost, or if a log entry cannot be applied: shows what DIR holds, and makes its
node the only member of a new cluster.`,
	}
	var r recovery
	flags := cmd.Flags()
	dir := addDataDir(flags, "data directory of a surviving node")
	flags.BoolVar(&r.accept, "accept-lost-writes", false,
		"make the node the only member of a new cluster; without it nothing is written")
	flags.Uint64Var(&r.before, "before-entry", 0,
		"leave out the log entries from this index on")
	tokensVar(flags, &r.above, "")
	flags.BoolVar(&r.trace, "trace-entries", false,
		"print the index of each log entry before applying it")
	cmd.RunE = func(*cobra.Command, []string) error {
		if r.dir = dir(c.getenv); r.dir == "" {
			return usageError{errors.New(
				"coordd recover requires --data-dir, the directory of a surviving node")}
		}
		return r.run(c)
	}
	return cmd
}

func (r *recovery) run(c console) (err error) {
	if _, err := os.Stat(r.dir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := actAsOwner(r.dir, c); err != nil {
		return err
	}
	if r.accept && r.before == 0 { // which must be chosen before anything is staged
		kept, err := cluster.FinishRecovery(r.dir)
		if err != nil {
			return err
		}
		if kept != "" {
			fmt.Fprintf(c.stdout, "The interrupted recovery of %s is finished. What was there "+
				"before it is in %s.\nIt is made again now, as its fencing tokens are of when it "+
				"began. Do not start the node before that has succeeded.\n", r.dir, kept)
		}
	}
	o, state, err := openOffline(r.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	held, err := o.Contents()
	if err != nil {
		return err
	}
	if r.before > held.LastIndex {
		return fmt.Errorf("--before-entry %d: the log in %s ends with entry %d", r.before, r.dir,
			held.LastIndex)
	}
	var each func(uint64)
	if r.trace {
		each = func(index uint64) { fmt.Fprintf(c.stdout, "applying log entry %d\n", index) }
	}
	if err := o.Replay(r.before, each); err != nil {
		return err
	}
	printHeld(c.stdout, r.dir, held, state)
	if err := o.CheckAlone(); err != nil {
		return err
	}
	start, why, err := tokensAbove(r.above, state)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, recoverWarning, held.Node, why)
	if held.Owed > 0 {
		fmt.Fprint(c.stdout, owedWarning)
	}
	again := "--data-dir " + r.dir
	if r.before > 0 {
		fmt.Fprintf(c.stdout, leaveOutWarning, r.before, held.LastIndex)
		again += fmt.Sprint(" --before-entry ", r.before)
	}
	if r.above > 0 {
		again += fmt.Sprint(" --tokens-above ", r.above)
	}
	if !r.accept {
		fmt.Fprintf(c.stdout,
			"Nothing was written. To continue: coordd recover %s --accept-lost-writes\n", again)
		return nil
	}
	return recoverAlone(o, state, held, start, c.stdout)
}

// openOffline opens a data directory on which no node runs, to replay it into state.
func openOffline(dir string) (o *cluster.Offline, state *fsm.Adapter, err error) {
	state = fsm.NewAdapter(commands.NewTable(commands.Specs(), server.Specs()), node.NewOrigin(),
		func([]commands.Event) {}, func(err error) {
			fmt.Fprintf(os.Stderr, "coordd: cannot replay data directory %s: %v\n", dir, err)
			os.Exit(1) // nothing was written
		})
	o, err = cluster.OpenOffline(dir, state, slog.New(slog.DiscardHandler))
	return o, state, err
}

// recoverAlone makes the node the only member of a new cluster.
func recoverAlone(o *cluster.Offline, state *fsm.Adapter, held cluster.Contents,
	start keyspace.Revision, stdout io.Writer) error {
	index, term, err := continueAbove(state, start)
	if err != nil {
		return err
	}
	kept, err := o.RecoverAlone(state.Epoch(), index, term, func(w io.Writer) error {
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
	fmt.Fprintf(stdout,
		"Node %s is the only member of a new cluster. Its previous data is in %s.\n"+
			"Every fencing token is larger than %d from now on.\n", held.Node, kept, start)
	fmt.Fprintf(stdout,
		"Start it, then --join empty nodes with new ids. These ids cannot be reused: %s.\n",
		strings.Join(gone, ", "))
	return nil
}

const recoverWarning = `
WARNING. This makes node %s the only voter of a new cluster that continues from the state above.
  - The newest writes may be lost, even acknowledged ones: a majority stored each, possibly without this node.
  - Locks may be lost with them. A lock taken last may be granted a second time while its holder still works; a lock
    released last may be held again until its TTL expires. Fencing tokens still rise, so a resource that checks them is
    safe: they go on %s. That must be later than each earlier
    recovery and restore of this data or of another copy, and those clusters must have been given up.
  - Writes in flight that were never acknowledged may take effect.
If a majority of the voters above can be started on their disks, do that instead: it loses nothing.
If several nodes survive, run this on each and recover the one with the largest log term; of equal terms, the one with
the largest index.
Never start another node on its old data. The new cluster refuses a single one, but a majority of the old voters would
continue the old cluster.

`

const owedWarning = `This node has not got again all that it had: coordd refetch moved that away, and it is newer than what is here. First
look whether it can be read, and compare it too. The documentation says how (operations.md, "A lost majority").

`

const leaveOutWarning = `Log entries %d to %d are dropped. If no node could apply the first of them, none of their writes was acknowledged, and
nothing is lost.

`

// printHeld prints what a data directory holds.
func printHeld(w io.Writer, dir string, h cluster.Contents, state *fsm.Adapter) {
	keys := 0
	for _, db := range state.Stats().Databases {
		keys += db.Keys
	}
	snapshot, newest := "none", "unknown, it is in the snapshot"
	if h.SnapshotIndex > 0 {
		snapshot = fmt.Sprint("index ", h.SnapshotIndex)
	}
	if e, err := fsm.DecodeEntry(h.LastEntry); err == nil {
		newest = time.UnixMicro(e.WallUs).UTC().Format(time.RFC3339Nano)
	}
	fmt.Fprintf(w, "%s: data of node %s\n", dir, h.Node)
	for _, line := range [][2]string{
		{"cluster", h.Cluster}, {"voters", strings.Join(h.Voters, ", ")},
		{"learners", strings.Join(h.Learners, ", ")}, {"removed", strings.Join(h.Removed, ", ")},
		{"log", fmt.Sprintf("term %d, index %d", h.LastTerm, h.LastIndex)},
		{"owed", h.Owing()}, {"snapshot", snapshot},
		{"promised", fmt.Sprintf("term %d, vote in term %d", h.Term, h.Voted)},
		{"state", fmt.Sprintf("%d keys, epoch %d, cluster clock %d ms", keys, state.Epoch(),
			state.Clock())},
		{"newest write", newest},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "  %-13s %s\n", line[0], line[1])
		}
	}
}
