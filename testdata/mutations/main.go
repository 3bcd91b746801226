// Command mutations plants each bug of testdata/mutations in a copy of the repository, and runs the
// test that must find it. It fails if a test passes with a bug, or fails without one, and writes
// the table in docs/testing.md. With -simulate it shows instead which of them simulations find. It
// is run from the top of the repository: go run ./testdata/mutations [-simulate SEEDS] [NAME …]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/coordd/coordd/internal/tests/mutations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	seeds := flag.Int("simulate", 0, "run up to this many simulations with each bug, not its test")
	flag.Parse()
	if err := run(ctx, *seeds, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(1)
	}
}

// run runs the named mutations, all if there are no names: seeds simulations of each, or its test
// if that is 0.
func run(ctx context.Context, seeds int, only []string) error {
	all, err := mutations.Load(".")
	if err != nil {
		return err
	}
	list := all
	if len(only) > 0 {
		list = nil
		for _, m := range all {
			if slices.Contains(only, m.Name) {
				list = append(list, m)
			}
		}
		if len(list) != len(only) {
			return fmt.Errorf("%s does not have all of %q", mutations.Dir, only)
		}
	}
	tree, err := copyTree(ctx)
	if err != nil {
		return err
	}
	defer tree.remove()
	if seeds > 0 {
		return simulateAll(ctx, tree, list, seeds)
	}
	found := map[string]string{}
	var errs []error
	for _, m := range list {
		row, err := find(ctx, tree, m)
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		if err != nil {
			fmt.Printf("%s: %v\n", m.Name, err)
			errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
			continue
		}
		fmt.Println(row)
		found[m.Name] = row
	}
	return errors.Join(append(errs, write(all, found))...)
}

// find has the test of a mutation pass without it and fail with it, and returns the table's row.
func find(ctx context.Context, t *tree, m mutations.Mutation) (row string, err error) {
	if err := t.passes(ctx, m.Find); err != nil {
		return "", fmt.Errorf("without the mutation: %w", err)
	}
	if err := t.apply(ctx, m.Path, false); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, t.apply(ctx, m.Path, true)) }()
	r, err := t.test(ctx, m.Find)
	switch {
	case err != nil:
		return "", err
	case r.panicked:
		return "", fmt.Errorf("a panic, not a test's failure:\n%s", r.output)
	case r.failed == "":
		return "", fmt.Errorf("NOT FOUND by %s", m.Find)
	}
	return mutations.Row(m, r.failed, r.after), nil
}

// write writes the table.
func write(all []mutations.Mutation, found map[string]string) error {
	text, err := os.ReadFile(mutations.Doc)
	if err != nil {
		return err
	}
	changed, err := mutations.Update(string(text), all, found)
	if err != nil {
		return err
	}
	return os.WriteFile(mutations.Doc, []byte(changed), 0o644)
}
