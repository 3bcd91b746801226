// coordd check-config: whether a node would start with a configuration.

package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/internal/node"
)

func newCheckConfig(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "check-config",
		Short: "Checks that a node would start with these flags, environment and file"}
	read := nodeFlags(cmd.Flags())
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err := read.checked(c.getenv)
		if err != nil {
			return err
		}
		problems := node.Check(cfg.Config, newLogger(c.stderr, slog.LevelWarn, "text"))
		for _, p := range problems {
			fmt.Fprintf(c.stderr, "coordd: %v\n", p)
		}
		if len(problems) > 0 {
			return fmt.Errorf("node %s would not start", cfg.ID)
		}
		fmt.Fprintf(c.stdout, "the configuration of node %s is valid\n", cfg.ID)
		return nil
	}
	return cmd
}
