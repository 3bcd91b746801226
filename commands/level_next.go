//go:build coordd_next

// The next release as tests see it, built with -tags coordd_next: one more level, and a command
// that it introduces. No release contains this file.

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
