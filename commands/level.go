package commands

// This file holds the feature level, by which what commands do changes on all nodes at one place in the log.

// The feature levels. A release that makes an entry do what it did not do before adds a level, and does it only where the machine's own level
// has come to that: the level is in the log, and rises when every member of the cluster knows the new one. docs/adr/0008 says why.
const (
	// LevelFirst is all that release 0.1 does.
	LevelFirst = 1
	// LevelBounded bounds what one request may do, and what an entry may, by MaxRequestWork, and makes TIME rise strictly from request to request.
	LevelBounded = 2

	releaseLevel = LevelBounded
)

// FeatureLevel is the newest level of replicated behavior that this release knows.
const FeatureLevel = releaseLevel + levelsAhead
