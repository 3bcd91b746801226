// What the command line has beside that of package pflag: flags with one dash, switches before yes
// or no, and the words of its errors.

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// switchFlag is a flag that may stand alone, which means yes, or before yes or no.
type switchFlag string

// String implements pflag.Value.
func (f *switchFlag) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *switchFlag) Set(v string) error {
	if v == "true" { // the flag alone
		v = "yes"
	}
	*f = switchFlag(v)
	return nil
}

// Type implements pflag.Value.
func (*switchFlag) Type() string { return "bool" }

// doubleDashes returns a command line as package pflag reads it: each flag begins with two dashes,
// and an equals sign is between a switch and its value. Where no argument may stand alone, any
// argument after a switch is its value.
func doubleDashes(cmd *cobra.Command, args []string) []string {
	plain := []string{} // nil would be the arguments of the process
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return append(plain, args...) // a shell asks, also about what is not written yet
	}
	for ; len(args) > 0; args = args[1:] {
		arg := args[0]
		if arg == "--" {
			break
		}
		if !isFlag(arg) {
			cmd, _, _ = cmd.Find(args[:1]) // a subcommand of that name, or the same again
			plain = append(plain, arg)
			continue
		}
		name, _, valued := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		arg = "--" + strings.TrimPrefix(arg[1:], "-")
		if arg == "--h" {
			arg = "--help"
		}
		if f := cmd.Flag(name); f != nil && !valued && len(args) > 1 {
			_, isSwitch := f.Value.(*switchFlag)
			switch next := args[1]; {
			case f.NoOptDefVal == "":
				plain, arg, args = append(plain, arg), next, args[1:]
			case isSwitch && !isFlag(next) &&
				(next == "yes" || next == "no" || cmd.ValidateArgs([]string{next}) != nil):
				arg, args = arg+"="+next, args[1:]
			}
		}
		plain = append(plain, arg)
	}
	return append(plain, args...)
}

func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// flagError returns an error of package pflag in the words of package flag, which coordd had in
// earlier releases. An argument that should not be there comes first: it may be a misspelt command,
// whose flags are unknown.
func flagError(cmd *cobra.Command, err error) error {
	if others := cmd.Flags().Args(); len(others) > 0 && !cmd.HasParent() {
		return cmd.ValidateArgs(others)
	}
	switch e := err.(type) {
	case *pflag.NotExistError:
		err = fmt.Errorf("flag provided but not defined: -%s", e.GetSpecifiedName())
	case *pflag.ValueRequiredError:
		err = fmt.Errorf("flag needs an argument: -%s", e.GetSpecifiedName())
	case *pflag.InvalidValueError:
		what, why := "value %q for flag", "parse error"
		if e.GetFlag().Value.Type() == "bool" {
			what = "boolean value %q for"
		}
		if errors.Is(err, strconv.ErrRange) {
			why = "value out of range"
		}
		err = fmt.Errorf("invalid "+what+" -%s: %s", e.GetValue(), e.GetFlag().Name, why)
	}
	return usageError{err}
}

// arguments accepts one argument for each name.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usageError{fmt.Errorf("%s requires %s", cmd.CommandPath(), names[len(args)])}
		}
		return atMost(len(names))(cmd, args)
	}
}

// atMost accepts so many arguments. One more may be a misspelt command.
func atMost(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= most {
			return nil
		}
		says := fmt.Sprintf("unexpected argument %q", shown(args[most]))
		if near := cmd.SuggestionsFor(args[most]); args[most] != "" && len(near) > 0 {
			says += fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
		}
		return usageError{errors.New(says)}
	}
}
