// Package membership has the words in which a node tells of itself, of its cluster and of the
// members, and is asked to change them. Servers and nodes of a cluster share them.
package membership
