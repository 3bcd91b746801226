// Function libraries: what FUNCTION LIST shows of them, and their limits.

package commands

// Limits of sources.
const (
	// MaxScriptBytes bounds the source of a script or a library: compiling is not charged, and
	// takes longer for a longer source.
	MaxScriptBytes = 1 << 20
	// MaxLibraries and MaxLibraryBytes bound the libraries together, and their sources, names and
	// descriptions together: FUNCTION RESTORE, and a node that starts from a snapshot, compile and
	// run them all.
	MaxLibraries    = 1000
	MaxLibraryBytes = 4 << 20
)

// ErrLibrariesFull is the error past the limits of libraries.
const ErrLibrariesFull Error = "OOM too many libraries are loaded: FUNCTION DELETE and FUNCTION " +
	"FLUSH forget them"

// engineName is the only engine of functions.
const engineName = "LUA"

// Library is a library of functions.
type Library struct {
	Name      string
	Source    string     // with the shebang line
	Functions []Function // in order of registration
}

// Function is one function of a library.
type Function struct {
	Name        string
	Description string
	Described   bool // has a description, which may be empty
	Flags       FunctionFlags
}

// FunctionFlags are the flags that a function or a script declares.
type FunctionFlags uint8

// The flags in Redis's order. Only NoWrites and AllowOOM have an effect here: coordd has no slots,
// and any script may read stale data after READONLY.
const (
	NoWrites FunctionFlags = 1 << iota
	AllowOOM
	AllowStale
	NoCluster
	AllowCrossSlotKeys
)

var functionFlagNames = [...]string{"no-writes", "allow-oom", "allow-stale", "no-cluster",
	"allow-cross-slot-keys"}

// ParseFunctionFlag returns the flag of a name in lower case, or 0.
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

// RestorePolicy says what FUNCTION RESTORE does with existing libraries.
type RestorePolicy uint8

const (
	RestoreAppend  RestorePolicy = iota // fail if one has the name of a restored one
	RestoreReplace                      // replace those with the name of a restored one
	RestoreFlush                        // remove all first
)
