// The help texts: the overview of coordd --help, and what --help says of each subcommand.

package main

import (
	"context"
	"errors"
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
	fmt.Fprint(w, "  coordd COMMAND --help\n        describes the flags of a command\n\n"+
		"ADDR is host:port, redis://host:port, or rediss://host:port with TLS.\n\n"+
		"Flags of a node, each with its environment variable:\n\n")
	h.printFlags(w)
}

func (c subcommand) print(w io.Writer, indent string) {
	printWrapped(w, indent, indent+"    ", "coordd "+c.name+" "+c.args)
	printWrapped(w, indent+"      ", indent+"      ", c.does)
}

// printFlags describes the flags.
func (h helpRequest) printFlags(w io.Writer) {
	live := false
	for _, f := range describe(h.flags) {
		if f.live && !live {
			live = true
			fmt.Fprintf(w, "\n%s:\n\n", liveTitle)
		}
		usage := f.usage
		if f.env != "" {
			usage += " [" + f.env + "]"
		}
		fmt.Fprintf(w, "  --%s\n", f.name)
		printWrapped(w, "        ", "        ", usage)
	}
}

// liveTitle stands above the flags that a running node can change.
const liveTitle = "These change while the node runs, by CONFIG SET or SIGHUP"

// flagText describes a flag to people and shells.
type flagText struct {
	name, usage string
	env         string // its variable; empty: none
	isSwitch    bool   // it may stand alone
	live        bool   // a running node can change it
}

// describe returns the flags of a set: those of a subcommand, then those of a node.
func describe(flags *flag.FlagSet) (all []flagText) {
	ofNode := map[string]bool{}
	if flags.Lookup(configOption) != nil {
		for _, o := range options {
			ofNode[o.name] = true
		}
	}
	flags.VisitAll(func(f *flag.Flag) {
		if !ofNode[currentName(f.Name)] {
			b, ok := f.Value.(interface{ IsBoolFlag() bool })
			all = append(all, flagText{name: f.Name, usage: f.Usage,
				isSwitch: ok && b.IsBoolFlag()})
		}
	})
	for i, o := range options {
		usage := o.usage
		if o.value != "" {
			usage += " (default " + o.value + ")"
		}
		if ofNode[o.name] {
			all = append(all, flagText{o.name, usage, o.env(), o.isSwitch(),
				i >= len(startOptions)})
		}
	}
	return all
}

// flags returns the flags of the subcommand.
func (c subcommand) flags() []flagText {
	var help helpRequest
	none := console{func(string) string { return "" }, io.Discard, io.Discard}
	if !errors.As(c.run(context.Background(), []string{"--help"}, none), &help) {
		return nil
	}
	return describe(help.flags)
}

// flagsOfNode returns the flags of coordd without a subcommand.
func flagsOfNode() []flagText {
	fs := newFlagSet("coordd")
	nodeFlags(fs)
	return describe(fs)
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
