// The help texts. Package cobra prints them; here is what it prints of flags.

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is that of help texts, in columns.
const helpWidth = 100

// The titles of groups of flags.
const (
	commandTitle = "Flags"
	nodeTitle    = "Flags of a node, each with its environment variable"
	liveTitle    = "These change while the node runs, by CONFIG SET or SIGHUP"
)

// titleOf is the annotation of a flag with the title of its group; none: commandTitle.
const titleOf = "title"

// groupsOf returns the flags of a command in groups with titles for names, each in the order of
// their declaration.
func groupsOf(cmd *cobra.Command) (groups []*pflag.FlagSet) {
	cmd.InitDefaultHelpFlag()
	for _, title := range []string{commandTitle, nodeTitle, liveTitle} {
		all := pflag.NewFlagSet(title, pflag.ContinueOnError)
		all.SortFlags = false
		add := func(f *pflag.Flag) {
			if cmp.Or(strings.Join(f.Annotations[titleOf], ""), commandTitle) == title {
				all.AddFlag(f)
			}
		}
		cmd.LocalFlags().VisitAll(add)
		cmd.InheritedFlags().VisitAll(add)
		if all.HasAvailableFlags() {
			groups = append(groups, all)
		}
	}
	return groups
}

// printUsage prints how a command is called, its subcommands, and its flags.
func printUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n\nCommands:\n", cmd.CommandPath())
		for _, sub := range available(cmd) {
			fmt.Fprintf(w, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
		fmt.Fprintf(w, "\ncoordd help%s COMMAND describes a command and its flags.\n",
			strings.TrimPrefix(cmd.CommandPath(), "coordd"))
	}
	for _, g := range groupsOf(cmd) {
		fmt.Fprintf(w, "\n%s:\n%s", g.Name(), g.FlagUsagesWrapped(helpWidth))
	}
	return nil
}

// available returns the subcommands of a command, without help.
func available(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand()
	})
}
