// The help texts: the overview of coordd --help, and what --help says of each subcommand.

package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// subcommand is what the first argument may be. Its flags describe themselves.
type subcommand struct {
	name, args, does string
}

var subcommands = []subcommand{
	{"dev", "[--port PORT]",
		"runs a throwaway cluster of three nodes in one process"},
	{"backup", "--from ADDR FILE [--force] [--user NAME] [--password-file FILE] " + tlsArgs,
		"writes the state of a running cluster to FILE"},
	{"restore", "FILE [--epoch N] [flags]",
		"creates a node's data directory from FILE; run it for every node, with its flags"},
	{"recover", "--data-dir DIR [--before-entry INDEX] [--trace-entries] [--accept-lost-writes]",
		"after a majority is lost, or if a log entry cannot be applied: shows what DIR holds, " +
			"and makes its node the only member of a new cluster"},
	{"reset-default-user", "--data-dir DIR [--password-file FILE]",
		"lets an administrator who is locked out in again: at the next start of the node of DIR, " +
			"the default user gets all rights and the password"},
	{"import", "--from ADDR[/DB] --to ADDR [--match PATTERN] [--replace] [--from-user NAME] " +
		"[--from-password-file FILE] [--to-user NAME] [--to-password-file FILE] " + tlsArgs,
		"copies keys and functions from a running Redis or Valkey into a running cluster"},
	{"certs", "DIR [--cluster NAME] [--nodes ID,…] [--hosts HOST,…] [--clients NAME,…] " +
		"[--days N]",
		"creates certificates for trying out TLS"},
}

const tlsArgs = "[--tls-ca FILE] [--tls-cert FILE] [--tls-key FILE]"

// helpRequest is --help for the flag set's command.
type helpRequest struct{ flags *flag.FlagSet }

// Error implements error.
func (helpRequest) Error() string { return flag.ErrHelp.Error() }

// helpFor returns the command that prints the help of the subcommand in args.
func helpFor(args []string) string {
	for _, c := range subcommands {
		if len(args) > 0 && args[0] == c.name {
			return "coordd " + c.name + " --help"
		}
	}
	return "coordd --help"
}

// print prints the help.
func (h helpRequest) print(w io.Writer) {
	for _, c := range subcommands {
		if h.flags.Name() == "coordd "+c.name {
			c.print(w, "")
			fmt.Fprint(w, "\nFlags:\n\n")
			h.printFlags(w)
			return
		}
	}
	fmt.Fprint(w, "coordd is a coordination server that speaks the Redis protocol.\n\n"+
		"  coordd [flags]\n        runs a node\n")
	for _, c := range subcommands {
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
