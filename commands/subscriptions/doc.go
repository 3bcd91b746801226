// Package subscriptions counts the subscribers of channels and patterns on all nodes of a cluster.
// It knows no clients: each node tells how many of its own there are of each.
package subscriptions
