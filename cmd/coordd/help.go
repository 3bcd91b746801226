// The help texts: the overview of coordd --help, and what --help says of each subcommand.

package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// helpRequest is --help for the flag set's command.
type helpRequest struct{ flags *flag.FlagSet }

// Error implements error.
func (helpRequest) Error() string { return flag.ErrHelp.Error() }

// helpFor returns the command that prints the help of the subcommand in args.
func helpFor(args []string) string {
	if len(args) > 0 && findSubcommand(args[0]) != nil {
		return "coordd " + args[0] + " --help"
	}
	return "coordd --help"
}

// print prints the help.
func (h helpRequest) print(w io.Writer) {
	for _, c := range subcommands() {
		if h.flags.Name() == "coordd "+c.name {
			c.print(w, "")
			fmt.Fprint(w, "\nFlags:\n\n")
			h.printFlags(w)
			return
		}
	}
	fmt.Fprint(w, "coordd is a coordination server that speaks the Redis protocol.\n\n"+
		"  coordd [flags]\n        runs a node\n")
	for _, c := range subcommands() {
		c.print(w, "  ")
	}
	fmt.Fprint(w, "  coordd COMMAND --help\n        describes the flags of a command\n"+
		"  coordd --version\n        prints the version\n\n"+
		"ADDR is host:port, redis://host:port, or rediss://host:port with TLS.\n\n"+
		"Flags of a node, each with its environment variable:\n\n")
	h.printFlags(w)
}

func (c subcommand) print(w io.Writer, indent string) {
	printWrapped(w, indent, indent+"    ", "coordd "+c.name+" "+c.args)
	printWrapped(w, indent+"      ", indent+"      ", c.does)
}

// printFlags describes the flags: those of the subcommand, then those of a node.
func (h helpRequest) printFlags(w io.Writer) {
	ofNode := map[string]bool{}
	if h.flags.Lookup("id") != nil {
		for _, o := range options {
			ofNode[o.name] = true
		}
	}
	h.flags.VisitAll(func(f *flag.Flag) {
		if !ofNode[f.Name] {
			printFlag(w, f.Name, f.Usage)
		}
	})
	for _, o := range options {
		usage := o.usage
		if o.value != "" {
			usage += " (default " + o.value + ")"
		}
		if ofNode[o.name] {
			printFlag(w, o.name, usage+" ["+o.env()+"]")
		}
	}
}

func printFlag(w io.Writer, name, usage string) {
	fmt.Fprintf(w, "  --%s\n", name)
	printWrapped(w, "        ", "        ", usage)
}

// printWrapped prints a text as lines of at most 100 columns: the first one, and the rest.
func printWrapped(w io.Writer, first, rest, text string) {
	line, empty := first, true
	for _, word := range strings.Fields(text) {
		if !empty && len(line)+len(word) >= 100 {
			fmt.Fprintln(w, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	fmt.Fprintln(w, line)
}
