// coordd man: a manual page for coordd and for each subcommand, from the tree of commands. Package
// cobra/doc takes texts for Markdown: words in angle brackets are gone, and a star is no star.

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "man [COMMAND]",
		Short: "Prints the manual page of coordd, or of a command"}
	to := cmd.Flags().String("to", "",
		"write the pages of coordd and of all commands to this directory")
	cmd.RunE = func(cmd *cobra.Command, names []string) error { // addLibraryCommands checks names
		root := cmd.Root()
		if *to == "" {
			of, _, _ := root.Find(names)
			writeMan(c.stdout, of)
			return nil
		}
		for _, of := range append(available(root), root) {
			var page bytes.Buffer
			writeMan(&page, of)
			if err := os.WriteFile(filepath.Join(*to, manName(of)+".1"), page.Bytes(),
				0o644); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// manName returns the name of a command's page.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// roff returns text as a page has it: a dash is one that can be copied, and no line is a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func writeMan(w io.Writer, cmd *cobra.Command) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	day, _, _ := strings.Cut(thisBuild().Time, "T")
	p(`.TH %s 1 %s "coordd %s" "User Commands"`, roff(strings.ToUpper(manName(cmd))),
		cmp.Or(day, "undated"), roff(versionText()))
	p(".SH NAME\n%s \\- %s", roff(manName(cmd)),
		roff(cmp.Or(cmd.Short, "coordination server that speaks the Redis protocol")))
	p(".SH SYNOPSIS\n.B %s", roff(cmd.UseLine()))
	if cmd.HasAvailableSubCommands() {
		p(".br\n.B %s\n\\fIcommand\\fR [\\fIflags\\fR]", roff(cmd.CommandPath()))
	}
	p(".SH DESCRIPTION\n%s", roff(cmp.Or(strings.TrimSpace(cmd.Long), cmd.Short+".")))
	if !cmd.HasParent() {
		p(".PP\n%s", roff("Redis clients, unmodified, point at it and get locks, leases, counters "+
			"and rate-limit windows that a majority of nodes holds on disk. A node runs until it "+
			"receives SIGTERM or SIGINT."))
	}
	if cmd.HasAvailableSubCommands() {
		p(".SH COMMANDS")
		for _, sub := range available(cmd) {
			p(".TP\n.B %s\n%s.", roff(cmd.CommandPath()+" "+sub.Use), roff(sub.Short))
		}
	}
	writeManFlags(w, cmd)
	if !cmd.HasParent() {
		p(".SH SIGNALS\n.TP\n.B SIGTERM, SIGINT\n%s", roff("The node transfers leadership, "+
			"finishes the requests that it has received, and exits with 0. A second one ends it "+
			"at once."))
		p(".TP\n.B SIGHUP\n%s", roff("Reads certificates and the configuration file again, and "+
			"reopens the audit log."))
	}
	p(".SH EXIT STATUS\n0, 1 after an error, 2 after an invalid command line.")
	if cmd.HasParent() {
		p(".SH SEE ALSO\n.BR coordd (1)")
		return
	}
	p(".SH FILES\n.TP\n.I %s\n%s", roff("/etc/coordd/coordd.conf"),
		roff("The configuration file of the packages."))
	p(".TP\n.I %s\nThe data directory of the packages.", roff("/var/lib/coordd"))
}

// writeManFlags describes the flags of a command. Those of a node are in the page of coordd alone.
func writeManFlags(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintln(w, ".SH OPTIONS")
	for _, g := range groupsOf(cmd) {
		switch {
		case g.Name() == commandTitle:
		case !cmd.HasParent():
			fmt.Fprintf(w, ".SS %s\n", roff(g.Name()))
		case g.Name() == nodeTitle:
			fmt.Fprintln(w, ".PP\nThe flags of a node, which are in\n.BR coordd (1).")
			fallthrough
		default:
			continue
		}
		g.VisitAll(func(f *pflag.Flag) {
			one := pflag.NewFlagSet("", pflag.ContinueOnError)
			one.AddFlag(f)
			_, text, _ := strings.Cut(strings.TrimSpace(one.FlagUsages()), "   ") // and default
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff("--"+f.Name), roff(text))
		})
	}
}
