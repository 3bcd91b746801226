// Package locks observes what clients do with locks and windows: it counts, and remembers for a
// while who held what and who waits (docs/adr/0024-observing-locks.md).
//
// Its Observer receives the facts that the machine tells from requests. What it knows is the node's
// own: it is in no log and no snapshot. Its memory is bounded: see the constants of each file. How
// long locks are held follows from their creation revisions, so a million locks cost nothing.
package locks
