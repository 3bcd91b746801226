// coordd man: the manual page, from the tables of subcommands and options.

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
)

func runMan(_ context.Context, args []string, c console) error {
	if _, err := parseArgs(newFlagSet("coordd man"), args); err != nil {
		return err
	}
	writeMan(c.stdout)
	return nil
}

// roff returns text as a page has it: a dash is one that can be copied, and no line is a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

func writeMan(w io.Writer) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	flags := func(all []flagText) {
		live := false
		for _, f := range all {
			if f.live && !live {
				live = true
				p(".SS %s", roff(liveTitle))
			}
			p(".TP\n.B %s", roff("--"+f.name))
			p("%s", roff(f.usage))
			if f.env != "" {
				p(".br\n.I %s", roff(f.env))
			}
		}
	}
	day, _, _ := strings.Cut(thisBuild().Time, "T")
	p(`.TH COORDD 1 %s "coordd %s" "User Commands"`, cmp.Or(day, "undated"), roff(versionText()))
	p(".SH NAME\ncoordd \\- coordination server that speaks the Redis protocol")
	p(".SH SYNOPSIS\n.B coordd\n[\\fIflags\\fR]\n.br\n.B coordd\n\\fIcommand\\fR [\\fIflags\\fR]")
	p(".SH DESCRIPTION\n%s", roff("Redis clients, unmodified, point at coordd and get locks, "+
		"leases, counters and rate-limit windows that a majority of nodes holds on disk. Without "+
		"a command, coordd runs one node of a cluster until it receives SIGTERM or SIGINT."))
	p(".SH COMMANDS\n%s", roff("ADDR is host:port, redis://host:port, or rediss://host:port with "+
		"TLS."))
	for _, c := range subcommands() {
		p(".SS %s", roff("coordd "+c.name))
		if c.args != "" {
			p(".B %s\n%s\n.PP", roff("coordd "+c.name), roff(c.args))
		}
		p("%s", roff(strings.ToUpper(c.does[:1])+c.does[1:]+"."))
		all := c.flags()
		if len(all) > 0 && all[len(all)-1].env == "" { // those of a node stand below, once
			flags(all)
		}
	}
	p(".SH OPTIONS\n%s", roff("Of a node, each with its environment variable. The file of "+
		"--config has them too, one a line, as name and value."))
	flags(flagsOfNode())
	p(".SH SIGNALS\n.TP\n.B SIGTERM, SIGINT\n%s", roff("The node transfers leadership, finishes "+
		"the requests that it has received, and exits with 0. A second one ends it at once."))
	p(".TP\n.B SIGHUP\n%s", roff("Reads certificates and the configuration file again, and "+
		"reopens the audit log."))
	p(".SH EXIT STATUS\n0, 1 after an error, 2 after an invalid command line.")
	p(".SH FILES\n.TP\n.I %s\n%s", roff("/etc/coordd/coordd.conf"),
		roff("The configuration file of the packages."))
	p(".TP\n.I %s\nThe data directory of the packages.", roff("/var/lib/coordd"))
}
