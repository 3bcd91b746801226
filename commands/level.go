package commands

// This file holds the feature level, by which what commands do changes on all nodes at one place in the log.

// FeatureLevel is the newest level of replicated behaviour that this release knows. Level 1 is all that the first release does. A later release
// that makes an entry do what it did not do before takes the next number, and does it only where the machine's own level has come to that:
// the level is in the log, and rises when every member of the cluster knows the new one. docs/adr/0008 says why.
const FeatureLevel = releaseLevel + levelsAhead

const releaseLevel = 1
