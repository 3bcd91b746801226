//go:build coordd_next

// This file contains what tests take for the next release, built with -tags coordd_next: a level
// more than this one's, and a command that came with it. No release has any of it.

package commands

const levelsAhead = 1

var nextSpecs = []Spec{{
	Name: "setnext", Kind: Write, Arity: 3, Level: FeatureLevel, Group: "string", Since: "next",
	Keys:   KeySpec{First: 1, Last: 1, Step: 1, Flags: KeyOW | KeyUpdate},
	Syntax: "key value", Summary: "Sets a key as the next release does.", Complexity: "O(1)",
	Handler: setNext,
}}

func setNext(x *Call) error {
	x.set(x.Args[1], append([]byte("next:"), x.Args[2]...), false, 0)
	x.Out.Status("OK")
	return nil
}
