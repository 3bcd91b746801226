// Simulations with a bug planted.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/coordd/coordd/internal/tests/mutations"
)

const simulations = "internal/tests/sim"

// simulateAll runs simulations with each mutation, and prints which of them found it. A bug that
// they do not find is no error: most need what is not simulated, or more luck.
func simulateAll(ctx context.Context, t *tree, list []mutations.Mutation, seeds int) error {
	overlay := filepath.Join(t.dir, "overlay")
	if err := os.Mkdir(overlay, 0o755); err != nil {
		return err
	}
	if out, err := t.command(ctx, simulations, nil, "run", "./runtimepatch",
		overlay).CombinedOutput(); err != nil {
		return fmt.Errorf("patching the runtime: %w\n%s", err, out)
	}
	if seen, err := simulate(ctx, t, overlay, seeds); err != nil || seen != "" {
		return errors.Join(fmt.Errorf("without a mutation: %s", seen), err)
	}
	for _, m := range list {
		if err := t.apply(ctx, m.Path, false); err != nil {
			return err
		}
		seen, err := simulate(ctx, t, overlay, seeds)
		if err := errors.Join(err, t.apply(ctx, m.Path, true)); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if seen == "" {
			seen = fmt.Sprintf("not in %d seeds", seeds)
		}
		fmt.Printf("%s: %s\n", m.Name, seen)
	}
	return nil
}

var (
	failedSeed = regexp.MustCompile(`(?m)^seed \d+ failed$`)
	violation  = regexp.MustCompile(`VIOLATION .{0,150}`)
)

// simulate runs simulations until one fails, and returns what that says, "" if none did. With a bug
// one may never end.
func simulate(ctx context.Context, t *tree, overlay string, seeds int) (string, error) {
	binary := filepath.Join(t.dir, "mutated.test")
	if out, err := t.command(ctx, simulations, nil, "test", "-c", "-vet=off", "-overlay",
		filepath.Join(overlay, "overlay.json"), "-tags", "coordd_sim,coordd_trace", "-o", binary,
		".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	limited, stop := context.WithTimeout(ctx, limit)
	defer stop()
	out, err := exec.CommandContext(limited, binary, "-test.run", "^TestWorker$", "-test.timeout",
		"0", "-sim.first", "-sim.seed", "1", "-sim.seeds", fmt.Sprint(seeds)).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return "", ctx.Err()
	}
	seed := failedSeed.Find(out)
	if limited.Err() != nil {
		return fmt.Sprintf("not in %v", limit), nil
	}
	if seed == nil { // the process ended
		return fmt.Sprintf("%.300s", out[max(0, len(out)-300):]), nil
	}
	return fmt.Sprintf("%s: %s", seed, violation.Find(out)), nil
}
