// Command coordd is a coordination server that speaks the Redis protocol, replicated by Raft.
//
// Without a subcommand it runs a node:
//
//	coordd --id n1 --data-dir DIR --cluster n1=host:port,n2=host:port,n3=host:port
//
// Its subcommands work on clusters and data directories: dev runs a throwaway cluster, backup and
// restore copy the state of a cluster to a file and back, recover continues from one node after a
// majority is lost, and import copies the data of a Redis. coordd --help describes them, and every
// flag with its environment variable. docs/operations.md is the guide for operators.
//
// This package holds flags, subcommands and signals; internal/node puts a node together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/node"
)

func main() {
	node.PrepareProcess()
	redis.SetLogger(silent{}) // its lines would repeat errors that are returned
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type silent struct{}

// Printf implements go-redis's logger.
func (silent) Printf(context.Context, string, ...any) {}

// run returns the exit code: 0, 1 after an error, 2 after an invalid command line.
func run(ctx context.Context, args []string, getenv func(string) string, stdout,
	stderr io.Writer) int {
	root := newRoot(console{getenv, stdout, stderr})
	root.SetArgs(doubleDashes(root, args))
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(usageError)):
		fmt.Fprintf(stderr, "coordd: %v; see %s --help\n", err, cmd.CommandPath())
		return 2
	}
	fmt.Fprintf(stderr, "coordd: %s\n", inOneLine(err))
	return 1
}

// inOneLine is the text of an error, which may be several that were joined.
func inOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// console is what a subcommand has of its process.
type console struct {
	getenv         func(string) string
	stdout, stderr io.Writer
}

// runNode runs one node until ctx ends.
func runNode(ctx context.Context, read readConfig, c console) error {
	// first, for SIGHUP ends a process that does not expect it, and loading the data takes a while
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer func() {
		signal.Stop(hangups)
		close(hangups)
	}()
	cfg, err := read.checked(c.getenv)
	if err != nil {
		return err
	}
	if err := refuseRoot(cfg.DataDir); err != nil {
		return err
	}
	r := &reloader{read: read, getenv: c.getenv, file: cfg.ConfigFile, level: new(slog.LevelVar),
		now: cfg.said}
	setLevel(r.level, cfg.logLevel)
	log := newLogger(c.stderr, r.level, cfg.logFormat)
	r.log = log
	if cfg.ConfigFile != "" {
		cfg.Rewrite = r.rewrite
	}
	n, err := node.Start(cfg.Config, node.Listeners{}, log)
	if err != nil {
		return err
	}
	go node.ReleaseMemory(ctx)
	sup := &supervisor{node: n, log: log}
	go sup.run(ctx, leaderPatience)
	go func() {
		for range hangups {
			sup.reload(func() { r.reload(n) })
		}
	}()
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case <-n.Stopping():
		log.Info("stopping on a client's request")
	case err = <-n.Failed():
	}
	sup.stopping()
	err = errors.Join(err, n.Close())
	log.Info("stopped")
	return err
}
