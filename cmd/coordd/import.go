// coordd import: copies a running Redis or Valkey into a running cluster.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/internal/migrate"
)

func newImport(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "import --from ADDR[/DB] --to ADDR",
		Short: "Copies keys and functions from a running Redis or Valkey into a cluster"}
	flags := cmd.Flags()
	from := flags.String("from", "",
		"the source: host:port, or redis://host:port[/DB] for one database")
	to := flags.String("to", "", "any node of the cluster: host:port or redis://host:port")
	fromAs := addCredentials(flags, "from-user", "from-password-file", "COORDD_FROM_PASSWORD")
	toAs := addCredentials(flags, "to-user", "to-password-file", "COORDD_TO_PASSWORD")
	files := addTLS(flags)
	var cfg migrate.Config
	flags.StringVar(&cfg.Match, "match", "",
		"copy only keys that match the pattern, and no functions")
	flags.BoolVar(&cfg.Replace, "replace", false,
		"overwrite keys and function libraries that exist")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if *from == "" || *to == "" {
			return usageError{errors.New(
				"coordd import requires --from and --to, the addresses of two servers")}
		}
		if cfg.From, err = fromAs.server("from", *from, c.getenv); err != nil {
			return err
		}
		cfg.OneDB = namesDatabase(*from)
		if cfg.To, err = toAs.server("to", *to, c.getenv); err != nil {
			return err
		}
		if err := useTLS(files, cfg.From, cfg.To); err != nil {
			return err
		}
		return copyAll(cmd.Context(), cfg, c)
	}
	return cmd
}

// copyAll copies, and prints what came of it.
func copyAll(ctx context.Context, cfg migrate.Config, c console) error {
	p := newProgress(c.stderr, "import", 0)
	cfg.Progress = func(r *migrate.Report) {
		p.show(func() string {
			return fmt.Sprintf("import: %d of %d keys scanned, %d copied", r.Seen, r.Total,
				r.CopiedKeys())
		})
	}
	report, err := migrate.Run(ctx, cfg)
	p.clear()
	printReport(c.stdout, &cfg, report)
	switch {
	case err != nil:
		return fmt.Errorf("import incomplete, run it again to continue: %w", err)
	case report.Failed > 0:
		return fmt.Errorf("%d keys were not copied", report.Failed)
	case len(report.LibraryFailures) > 0:
		return errors.New("function libraries were not copied")
	}
	return nil
}

// namesDatabase reports whether a URL names a database.
func namesDatabase(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Query().Has("db") || u.Host != "" && strings.Trim(u.Path, "/") != "")
}

func printReport(w io.Writer, cfg *migrate.Config, r *migrate.Report) {
	fmt.Fprintf(w, "%d keys of %s copied to %s\n", r.CopiedKeys(), cfg.From.Addr, cfg.To.Addr)
	for _, kind := range slices.Sorted(maps.Keys(r.Copied)) {
		fmt.Fprintf(w, "  %-8s %d\n", kind, r.Copied[kind])
	}
	if r.Shard {
		fmt.Fprintf(w, "%s is a node of a Redis Cluster: import each of its masters\n",
			cfg.From.Addr)
	}
	if r.Libraries > 0 {
		fmt.Fprintf(w, "%d function libraries copied\n", r.Libraries)
	}
	if r.LibrariesPresent > 0 {
		fmt.Fprintf(w, "%d function libraries left as they are in %s; --replace overwrites them\n",
			r.LibrariesPresent, cfg.To.Addr)
	}
	for _, f := range r.LibraryFailures {
		if f.Key == "" {
			fmt.Fprintf(w, "function libraries not copied: %s\n", f.Reason)
			continue
		}
		fmt.Fprintf(w, "function library %q not copied: %s\n", f.Key, f.Reason)
	}
	if r.Present > 0 {
		fmt.Fprintf(w, "%d keys left as they are in %s; --replace overwrites them\n", r.Present,
			cfg.To.Addr)
	}
	if r.Vanished > 0 {
		fmt.Fprintf(w, "%d keys expired or were deleted meanwhile\n", r.Vanished)
	}
	if r.Pending > 0 {
		fmt.Fprintf(w,
			"%d pending entries of consumer groups left out: their messages are deleted\n",
			r.Pending)
	}
	if r.Failed == 0 {
		return
	}
	fmt.Fprintf(w, "%d keys not copied:\n", r.Failed)
	for _, f := range r.Failures {
		if f.Key == "" {
			fmt.Fprintf(w, "  database %d: %s\n", f.DB, f.Reason)
			continue
		}
		fmt.Fprintf(w, "  database %d, %q: %s\n", f.DB, f.Key, f.Reason)
	}
	if more := r.Failed - int64(len(r.Failures)); more > 0 &&
		len(r.Failures) >= migrate.MaxFailures {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}
