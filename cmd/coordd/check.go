// coordd check-config: whether a node would start with a configuration.

package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/coordd/coordd/internal/node"
)

// runCheckConfig checks what a node with these flags, environment and file needs to start.
func runCheckConfig(_ context.Context, args []string, c console) error {
	cfg, _, err := parseNode(newFlagSet("coordd check-config"), args, c.getenv)
	if err == nil {
		err = cfg.checkOpenDoors()
	}
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
