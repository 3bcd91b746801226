// Package discovery looks up where the nodes of a cluster may be: the addresses behind host names
// and SRV records, asked again each time.
package discovery
