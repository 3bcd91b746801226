//go:build coordd_tests

// The next release as tests see it: one more level, and a command that it introduces. No release
// contains this file.

package commands

var (
	next string // "yes": this is the next release. The linker sets it, see internal/tests/binaries.

	// FeatureLevel is the newest level that this release knows.
	FeatureLevel uint64 = releaseLevel

	nextSpecs []Spec
)

func init() {
	if next == "" {
		return
	}
	FeatureLevel++
	nextSpecs = []Spec{{
		Name: "setnext", Kind: Write, Arity: 3, Level: FeatureLevel, Group: "string", Since: "next",
		Keys:   KeySpec{First: 1, Last: 1, Step: 1, Flags: KeyOW | KeyUpdate},
		Syntax: "key value", Summary: "Sets a key as the next release does.", Complexity: "O(1)",
		Handler: setNext,
	}}
}

func setNext(x *Call) error {
	x.set(x.Args[1], append([]byte("next:"), x.Args[2]...), false, 0)
	x.Out.Status("OK")
	return nil
}
