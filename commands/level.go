package commands

// The feature levels. A release that changes what an entry does adds a level, and does so only on a
// machine of that level. The machine's level is replicated: an entry raises it once every member of
// the cluster knows the new one, and it never falls (docs/adr/0008).
const (
	// LevelFirst is the behavior of release 0.1. Every machine starts with it.
	LevelFirst = 1

	// LevelSecond is what release 0.2 adds. The work of a request is bounded by MaxRequestWork, and
	// that of batches and entries; commands and messages are charged for what they do and keep. The
	// instants that TIME names strictly increase. The machine holds users: a request carries its
	// own, and a command runs only with its user's permission. The data can have a limit, commands
	// can wait in the machine, and who overwrites a key with another value is its new holder
	// (FENCE). Entries carry no hash of the leader's state, and one that does ends no node. No
	// machine ever has level 2: package cluster marks directories with it that release 0.1 must not
	// use.
	LevelSecond = 3

	// releaseLevel is the newest level that this release may use. A new level goes above this line.
	releaseLevel = LevelSecond
)
