// Package sample writes data for tests that restart, back up or restore a node.
package sample
