// Parsing of flags, of a node and of subcommands.

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// shown returns an argument as an error may quote it, without what may be a password.
func shown(arg string) string {
	if scheme, _, url := strings.Cut(arg, "://"); url {
		return scheme + "://…"
	}
	if i := strings.LastIndexByte(arg, '@'); i >= 0 {
		return "…" + arg[i:]
	}
	return arg
}

// usageError is an invalid command line; the process exits with 2.
type usageError struct{ error }

// newFlagSet returns a flag set that prints nothing: the caller reports errors.
func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// switchFlag is a flag that may stand alone, which means yes, or before yes or no.
type switchFlag string

// IsBoolFlag lets package flag accept the flag without a value.
func (*switchFlag) IsBoolFlag() bool { return true }

// String implements flag.Value.
func (f *switchFlag) String() string { return string(*f) }

// Set implements flag.Value.
func (f *switchFlag) Set(v string) error {
	if v == "true" { // the flag alone
		v = "yes"
	}
	*f = switchFlag(v)
	return nil
}

// parseArgs parses flags and, between or after them, one other argument for each name, which it
// returns.
func parseArgs(fs *flag.FlagSet, args []string, names ...string) ([]string, error) {
	others, err := parseAtMost(fs, args, len(names))
	if err == nil && len(others) < len(names) {
		err = usageError{fmt.Errorf("%s requires %s", fs.Name(), names[len(others)])}
	}
	return others, err
}

// parseAtMost is parseArgs for up to most other arguments.
func parseAtMost(fs *flag.FlagSet, args []string, most int) ([]string, error) {
	var others []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, helpRequest{fs}
			}
			return nil, usageError{err}
		}
		if fs.NArg() == 0 {
			break
		}
		if f := switchBefore(fs, args, most == 0); f != nil {
			if err := f.Set(fs.Arg(0)); err != nil {
				return nil, usageError{err}
			}
			args = fs.Args()[1:]
			continue
		}
		if len(others) == most {
			return nil, usageError{fmt.Errorf("unexpected argument %q", shown(fs.Arg(0)))}
		}
		others, args = append(others, fs.Arg(0)), fs.Args()[1:]
	}
	return others, nil
}

// switchBefore returns the switch whose value is the first argument that fs did not parse, for
// which package flag wants an equals sign, or nil. Where no argument may stand alone (only) any
// value is one.
func switchBefore(fs *flag.FlagSet, args []string, only bool) flag.Value {
	last := len(args) - fs.NArg() - 1
	if value := fs.Arg(0); last < 0 || !only && value != "yes" && value != "no" {
		return nil
	}
	f := fs.Lookup(strings.TrimLeft(args[last], "-"))
	if f == nil {
		return nil
	}
	v, ok := f.Value.(*switchFlag)
	if !ok {
		return nil
	}
	return v
}
