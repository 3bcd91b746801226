// Command tests runs this repository's own tests in other ways than go test does:
//
//	go run ./testdata/tests flakes [FLAGS] [-race PACKAGES] [-plain PACKAGES]
//	go run ./testdata/tests times [-race PACKAGES] [-plain PACKAGES]
//	go run ./testdata/tests before TEST
//
// flakes runs them again and again, shuffled, beside busy processes, and lists what failed how
// often. times runs them alone, and writes how long each takes into docs/testing.md. PACKAGES are
// separated by blanks, those of -race are built with the race detector. before runs a test on the
// commit before the one that brought it. It is run from the top of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say flakes, times or before")
	}
	if args[0] == "before" {
		if len(args) != 2 {
			return errors.New("say which test")
		}
		return before(ctx, args[1])
	}
	if args[0] == busyCommand {
		beBusy()
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	race := flags.String("race", "", "`packages` under the race detector")
	plain := flags.String("plain", "", "`packages` without it")
	runs := flags.Int("runs", 20, "flakes: how often everything runs")
	busy := flags.Int("busy", 6, "flakes: how many processes are busy beside it")
	workers := flags.Int("workers", 3, "flakes: how many packages run at a time")
	logs := flags.String("logs", "", "flakes: an empty `directory` for the output of what fails")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	all := suite{}
	defer all.remove()
	if err := errors.Join(all.build(ctx, strings.Fields(*race), "-race"),
		all.build(ctx, strings.Fields(*plain))); err != nil {
		return err
	}
	switch args[0] {
	case "flakes":
		return flakes(ctx, &all, *runs, *busy, *workers, *logs)
	case "times":
		return times(ctx, &all)
	}
	return fmt.Errorf("no command %q", args[0])
}
