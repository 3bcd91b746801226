// coordd completion: scripts that complete the command line in a shell. They derive from the tables
// of subcommands and options.

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
)

func runCompletion(_ context.Context, args []string, c console) error {
	names, err := parseArgs(newFlagSet("coordd completion"), args, "a shell: bash, zsh or fish")
	if err != nil {
		return err
	}
	switch shell := names[0]; shell {
	case "bash":
		writeBash(c.stdout)
	case "zsh":
		writeZsh(c.stdout)
	case "fish":
		writeFish(c.stdout)
	default:
		return usageError{fmt.Errorf("unknown shell %q: must be bash, zsh or fish", shown(shell))}
	}
	return nil
}

// writeBash writes a function that completes words: subcommands, flags, and else files.
func writeBash(w io.Writer) {
	list := func(flags []flagText) string {
		var names []string
		for _, f := range flags {
			names = append(names, "--"+f.name)
		}
		return strings.Join(append(names, "--help"), " ")
	}
	var names []string
	for _, c := range subcommands() {
		names = append(names, c.name)
	}
	fmt.Fprintf(w, `# bash completion for coordd: source it, or put it in
# /usr/share/bash-completion/completions/coordd
_coordd() {
	local word=${COMP_WORDS[COMP_CWORD]} words
	COMPREPLY=()
	if [[ $word != -* ]]; then
		# subcommands come first; other words are left to the shell, for files
		[[ $COMP_CWORD == 1 ]] && COMPREPLY=($(compgen -W '%s' -- "$word"))
		return
	fi
	case ${COMP_WORDS[1]} in
`, strings.Join(names, " "))
	for _, c := range subcommands() {
		fmt.Fprintf(w, "\t%s) words='%s' ;;\n", c.name, list(c.flags()))
	}
	fmt.Fprintf(w, `	*) words='%s' ;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _coordd coordd
`, list(flagsOfNode()))
}

// writeZsh writes a completion function with descriptions.
func writeZsh(w io.Writer) {
	quote := strings.NewReplacer(`\`, `\\`, `'`, `'\''`, "[", `\[`, "]", `\]`)
	arguments := func(indent string, flags []flagText) {
		fmt.Fprintf(w, "%s_arguments", indent)
		for _, f := range flags {
			value := ":value:_files"
			if f.isSwitch {
				value = ""
			}
			fmt.Fprintf(w, " \\\n%s\t'--%s[%s]%s'", indent, f.name, quote.Replace(f.usage), value)
		}
		fmt.Fprintf(w, " \\\n%s\t'--help[describes the flags]' '*:file:_files'\n", indent)
	}
	fmt.Fprint(w, "#compdef coordd\n\n_coordd() {\n"+
		"\tif (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"+
		"\t\tlocal -a commands=(\n")
	for _, c := range subcommands() {
		fmt.Fprintf(w, "\t\t\t'%s:%s'\n", c.name, quote.Replace(c.does))
	}
	fmt.Fprint(w, "\t\t)\n\t\t_describe command commands\n\t\treturn\n\tfi\n"+
		"\tcase $words[2] in\n")
	for _, c := range subcommands() {
		fmt.Fprintf(w, "\t%s)\n\t\tshift words\n\t\t(( CURRENT-- ))\n", c.name)
		arguments("\t\t", c.flags())
		fmt.Fprint(w, "\t\t;;\n")
	}
	fmt.Fprint(w, "\t*)\n")
	arguments("\t\t", flagsOfNode())
	fmt.Fprint(w, "\t\t;;\n\tesac\n}\n\n_coordd \"$@\"\n")
}

// writeFish writes a line for each subcommand and each flag.
func writeFish(w io.Writer) {
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	flags := func(when string, flags []flagText) {
		for _, f := range flags {
			value := " -r"
			if f.isSwitch {
				value = ""
			}
			fmt.Fprintf(w, "complete -c coordd -n '%s' -l %s%s -d '%s'\n", when, f.name, value,
				quote.Replace(f.usage))
		}
	}
	fmt.Fprint(w, "# fish completion for coordd\n")
	var names []string
	for _, c := range subcommands() {
		names = append(names, c.name)
		fmt.Fprintf(w, "complete -c coordd -n __fish_use_subcommand -a %s -d '%s'\n", c.name,
			quote.Replace(c.does))
	}
	for _, c := range subcommands() {
		flags("__fish_seen_subcommand_from "+c.name, c.flags())
	}
	flags("not __fish_seen_subcommand_from "+strings.Join(names, " "), flagsOfNode())
}
