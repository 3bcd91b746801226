// Package node puts a coordd node together from its parts: the replicated machine (fsm), Raft
// (cluster) and the server for clients (server). It binds the sockets, sizes the limits to the
// process, serves the health pages, asks a cluster for membership, and drains the node when it
// stops.
//
// The node is the server's Backend. What a client may conclude from an error is decided here:
// replyError turns each error of the cluster into a server.Error, which carries the error reply and
// reports whether the command ran.
package node
