// This file contains what a library of functions is: what FUNCTION LIST tells of it, and its
// limits.

package commands

// The limits of sources.
const (
	// MaxScriptBytes bounds the source of a script or a library: compiling is not counted, and its
	// work grows with the length.
	MaxScriptBytes = 1 << 20
	// MaxLibraries and MaxLibraryBytes bound the libraries and what their sources, names and
	// descriptions have together: FUNCTION RESTORE and a node that starts from a snapshot compile
	// and run them all.
	MaxLibraries    = 1000
	MaxLibraryBytes = 4 << 20
)

// ErrLibrariesFull says that libraries are beyond their limits.
const ErrLibrariesFull Error = "OOM too many libraries are loaded: FUNCTION DELETE and FUNCTION " +
	"FLUSH forget them"

// engineName is the one engine that runs functions.
const engineName = "LUA"

// Library is a library of functions.
type Library struct {
	Name      string
	Source    string     // with its first line
	Functions []Function // in the order in which they were registered
}

// Function is one function of a library.
type Function struct {
	Name        string
	Description string
	Described   bool // it has a description, which may be empty
	Flags       FunctionFlags
}

// FunctionFlags are what a function or a script says of itself.
type FunctionFlags uint8

// The flags in Redis's order. Only NoWrites means anything here: coordd has no slots, reads after
// READONLY may be old in any script, and writes are refused for lack of memory before they come to
// the log.
const (
	NoWrites FunctionFlags = 1 << iota
	AllowOOM
	AllowStale
	NoCluster
	AllowCrossSlotKeys
)

var functionFlagNames = [...]string{"no-writes", "allow-oom", "allow-stale", "no-cluster",
	"allow-cross-slot-keys"}

// ParseFunctionFlag is the flag of a name, which is in lower case, or 0.
func ParseFunctionFlag(name []byte) FunctionFlags {
	for i, n := range functionFlagNames {
		if string(name) == n {
			return 1 << i
		}
	}
	return 0
}

func (f FunctionFlags) names() []string {
	var names []string
	for i, n := range functionFlagNames {
		if f&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// RestorePolicy says what FUNCTION RESTORE does with the libraries that are there.
type RestorePolicy uint8

const (
	RestoreAppend  RestorePolicy = iota // none may have the name of a restored one
	RestoreReplace                      // those with the name of a restored one go
	RestoreFlush                        // all go
)
