// coordd refetch: lets a node whose state cannot be read get it from the other members again.

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

func runRefetch(_ context.Context, args []string, c console) error {
	fs := newFlagSet("coordd refetch")
	dir := fs.String("data-dir", c.getenv("COORDD_DATA_DIR"),
		"data directory of the node [COORDD_DATA_DIR]")
	if _, err := parseArgs(fs, args); err != nil {
		return err
	}
	if *dir == "" {
		return usageError{errors.New("coordd refetch requires --data-dir")}
	}
	if _, err := os.Stat(*dir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := actAsOwner(*dir, c); err != nil {
		return err
	}
	levels := fsm.NewAdapter(commands.NewTable(commands.Specs(), server.Specs()), node.NewOrigin(),
		func([]commands.Event) {}, func(error) {}) // only knows the feature levels
	done, err := cluster.Refetch(*dir, levels, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "Node %s has no state any more; what was there is in %s.\nStart it as "+
		"ever: it gets its state from the other members, and leads once it has entry %d again.\n",
		done.Node, done.Kept, done.Owed)
	return nil
}
