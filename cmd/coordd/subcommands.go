// The commands of coordd. Dispatch, help, completion and the manual pages derive from this tree.

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func init() {
	cobra.EnableCommandSorting = false // help has those first that come first in practice
}

// newRoot returns coordd itself, which runs a node, with all its subcommands.
func newRoot(c console) *cobra.Command {
	root := &cobra.Command{
		Use: "coordd",
		Long: `coordd is a coordination server that speaks the Redis protocol. Without a command it runs a node.
ADDR is host:port, redis://host:port, or rediss://host:port with TLS.`,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(printUsage)
	root.AddCommand(newDev(c), newCheckConfig(c), newHealth(c), newFound(c), newBackup(c),
		newRestore(c), newRecover(c), newRefetch(c), newResetDefaultUser(c), newImport(c),
		newCerts(c), newTop(c), newMembers(c), newRestartWait(c), newDoctor(c), newLocks(c),
		newMan(c), newVersion(c))
	addLibraryCommands(root)
	version := root.Flags().Bool("version", false, "print the version")
	read := nodeFlags(root.Flags())
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			_, err := fmt.Fprintln(c.stdout, "coordd", versionText())
			return err
		}
		return runNode(cmd.Context(), read, c)
	}
	finish(root)
	return root
}

// addLibraryCommands adds the commands help and completion of package cobra, which refuse arguments
// that they do not know, as the others do.
func addLibraryCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		found, others, _ := root.Find(args)
		return atMost(0)(found, others)
	}
	man, _, _ := root.Find([]string{"man"})
	man.Args, man.ValidArgsFunction = help.Args, help.ValidArgsFunction

	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	completion.Short = "Prints a script that completes the command line in a shell"
	for _, shell := range completion.Commands() {
		shell.Args = nil // as finish says
	}
}

// finish has a command and its subcommands take no arguments unless they say which, and show their
// flags in the order of their declaration.
func finish(cmd *cobra.Command) {
	switch {
	case !cmd.Runnable():
		cmd.Args, cmd.RunE = requireSubcommand, requireSubcommand
	case cmd.Args == nil:
		cmd.Args = arguments()
	}
	cmd.Flags().SortFlags = false
	cmd.PersistentFlags().SortFlags = false
	for _, sub := range cmd.Commands() {
		finish(sub)
	}
}

// requireSubcommand refuses a command that does nothing without a subcommand.
func requireSubcommand(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	last := len(names) - 1
	return arguments(strings.Join(names[:last], ", ")+" or "+names[last])(cmd, nil)
}
