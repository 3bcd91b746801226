// coordd refetch: lets a node whose state cannot be read get it from the other members again.

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

func newRefetch(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refetch --data-dir DIR",
		Short: "Sets a node's state aside, so that it gets that of the others",
		Long: `If a node's snapshot cannot be read and the other members are well: sets the node's state aside, so
that it gets theirs when it is started.`,
	}
	dir := addDataDir(cmd.Flags(), "data directory of the node")
	cmd.RunE = func(*cobra.Command, []string) error {
		dir := dir(c.getenv)
		if dir == "" {
			return usageError{errors.New("coordd refetch requires --data-dir")}
		}
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("--data-dir: %w", err)
		}
		if err := actAsOwner(dir, c); err != nil {
			return err
		}
		table := commands.NewTable(commands.Specs(), server.Specs())
		levels := fsm.NewAdapter(table, node.NewOrigin(), func([]commands.Event) {},
			func(error) {}) // only knows the feature levels
		done, err := cluster.Refetch(dir, levels, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "Node %s has no state any more; what was there is in %s.\nStart it "+
			"as ever: it gets its state from the other members, and leads once it has entry %d "+
			"again.\n", done.Node, done.Kept, done.Owed)
		return nil
	}
	return cmd
}
