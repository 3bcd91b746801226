// coordd restore: creates the data directory of a node from a backup.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/backups"
	"github.com/coordd/coordd/server"
)

func newRestore(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE|s3://BUCKET/PREFIX/NAME",
		Short: "Creates a node's data directory from a backup; run it with every node's flags",
		Args:  arguments("FILE, the backup to read, or s3://BUCKET/PREFIX/NAME"),
	}
	var above uint64
	tokensVar(cmd.Flags(), &above, ", the same number on every node")
	read := nodeFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		cfg, err := read(c.getenv)
		if err != nil {
			return err
		}
		return restore(cmd.Context(), cfg, files[0], above, c)
	}
	return cmd
}

// restore writes the data directory of a node from a backup.
func restore(ctx context.Context, cfg *config, file string, above uint64, c console) error {
	if cfg.AutoID {
		return usageError{errors.New("coordd restore requires --id, the name of the node")}
	}
	m, _, err := readBackup(ctx, file, c)
	if err != nil {
		return fmt.Errorf("cannot restore %s: %w; nothing was written", shownStore(file), err)
	}
	start, why, err := tokensAbove(above, m)
	if err != nil {
		return err
	}
	members := memberIDs(cfg.Members)
	if above == 0 && len(cfg.Members) > 1 {
		return fmt.Errorf("%s must be restored with equal --tokens-above; %s: --tokens-above %d",
			members, why, start)
	}
	index, term, err := continueAbove(m, start)
	if err != nil {
		return err
	}
	if err := actAsOwner(cfg.DataDir, c); err != nil {
		return err
	}
	state := m.Snapshot()
	seed, sum := cfg.seed(), m.Sum()
	// Every node computes the same cluster id on its own: from the state, where its tokens go on,
	// and the members. One that finds the others when it starts is a cluster of its own.
	id := cluster.ClusterIDOf(fmt.Appendf(nil, "%d %016x %s", start, sum.Sum,
		cmp.Or(members, cfg.ID)))
	err = cluster.Seed(seed, cluster.Origin{Cluster: id, Index: index, Term: term,
		Level: m.Level()}, func(w io.Writer) error {
		p := newProgress(c.stderr, "writing "+cfg.DataDir, state.Size())
		defer p.clear()
		_, err := state.WriteTo(io.MultiWriter(w, p))
		return err
	})
	if err != nil {
		return err
	}
	keys := 0
	for _, db := range m.Stats().Databases {
		keys += db.Keys
	}
	fmt.Fprintf(c.stdout, "%s: data directory of node %s with %d keys, fencing tokens above %d\n",
		cfg.DataDir, cfg.ID, keys, start)
	switch {
	case len(cfg.Members) > 1:
		fmt.Fprintf(c.stdout, "Restore the same file with the same --tokens-above on all of %s "+
			"before starting any of them.\n", members)
	case len(cfg.Members) == 0:
		fmt.Fprintf(c.stdout, "%s alone is the cluster now. Restore on no other node: start the "+
			"others without data, and they join it.\n", cfg.ID)
	}
	return nil
}

// seed returns the configuration for cluster.Seed.
func (c *config) seed() cluster.Config {
	return cluster.Config{ID: c.ID, Members: c.Members, DataDir: c.DataDir, LogStore: c.LogStore,
		PeerAdvertise: c.PeerAdvertise, Logger: slog.New(slog.DiscardHandler)}
}

func memberIDs(members []cluster.Member) string {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}

// readBackup loads a complete backup, which checks every record of it.
func readBackup(ctx context.Context, target string, c console) (*fsm.Machine, *backups.File,
	error) {
	f, err := backups.Open(ctx, target, c.getenv)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	p := newProgress(c.stderr, "reading "+target, f.Bytes)
	defer p.clear()
	m, err := fsm.ReadSnapshot(io.TeeReader(f, p), commands.NewTable(commands.Specs(),
		server.Specs()))
	return m, f, err
}
