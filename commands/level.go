package commands

// The feature levels. A release that changes what an entry does adds a level, and does so only on a
// machine of that level. The machine's level is replicated: an entry raises it once every member of
// the cluster knows the new one, and it never falls (docs/adr/0008).
const (
	// LevelFirst is the behavior of release 0.1. Every machine starts with it.
	LevelFirst = 1

	// LevelSecond bounds the work of a request by MaxRequestWork, and that of batches and entries;
	// charges commands by what they do; and makes the instants that TIME names strictly increase.
	LevelSecond = 2

	// LevelSecond has users: the machine holds them, a request carries its own, and a command runs
	// only with its user's permission. The data can have a limit. Intersections, differences and
	// ZRANGESTORE are charged less, strings that grow more, and messages for what is kept of them.
	// An entry removes fewer expired keys.
	// There is LOCKS. Who overwrites a key with another value is its new holder (FENCE). Entries
	// carry no hash of the leader's state, and one that does ends no node.
	LevelSecond = 3

	// releaseLevel is the newest level that this release may use. A new level goes above this line.
	releaseLevel = LevelSecond
)

// FeatureLevel is the newest level that this release knows.
const FeatureLevel = releaseLevel + levelsAhead
