// Command coordd is the server: flags and configuration, wiring, signals.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// version is set by the release build; otherwise the module's own version is shown.
var version = ""

func main() {
	relax()
	tune()
	limitMemory()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// gcPercent lets the heap grow to three times what lives before it is collected: the collector walks every key, and was a
// quarter of the cost of a pipelined write at Go's own 100.
const gcPercent = 200

// tune sets Go's runtime up, where GOGC and GOMAXPROCS do not say otherwise. A node runs its Go code on half of the processors. The rest
// is the kernel's, which does as much work for a write (sockets, fsync); and what a processor less saves in hand-overs between threads is
// worth more than it: measured on two processors, one client was served a quarter faster, and fifty a fifth.
func tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

// run is main without the process: it returns the exit code, 0, 1 for what went wrong, 2 for a command line that cannot be read.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) > 0 && args[0] == "dev":
		err = runDev(ctx, args[1:], stdout, stderr)
	case len(args) > 0 && args[0] == "backup":
		err = runBackup(ctx, args[1:], stdout, stderr)
	case len(args) > 0 && args[0] == "restore":
		err = runRestore(args[1:], getenv, stdout, stderr)
	case len(args) > 0 && args[0] == "recover":
		err = runRecover(args[1:], getenv, stdout)
	case len(args) > 0 && args[0] == "import":
		err = runImport(ctx, args[1:], stdout, stderr)
	case len(args) == 1 && (args[0] == "--version" || args[0] == "-version"):
		fmt.Fprintln(stdout, "coordd", versionText())
	default:
		err = runNode(ctx, args, getenv, stderr)
	}
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		printHelp(stdout)
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "coordd: %v; coordd --help shows the flags\n", err)
		return 2
	}
	fmt.Fprintf(stderr, "coordd: %v\n", err)
	return 1
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// runNode runs one node until ctx ends.
func runNode(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	cfg, err := parseConfig(args, getenv)
	if err != nil {
		return err
	}
	n, err := startNode(cfg, listeners{}, newLogger(stderr, cfg.logLevel, cfg.logFormat))
	if err != nil {
		return err
	}
	go new(scavenger).run(ctx)
	select {
	case <-ctx.Done():
		n.log.Info("stopping")
	case <-n.stop:
		n.log.Info("stopping, as a client asked")
	case err = <-n.failed:
	}
	err = errors.Join(err, n.close())
	n.log.Info("stopped")
	return err
}
