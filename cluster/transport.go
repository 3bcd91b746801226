// This file holds the transport that Raft sees: hashicorp's network transport over the peer port.
package cluster

import "github.com/hashicorp/raft"

// transport is Raft's network transport. Its methods are those of the embedded one (pre-vote included).
type transport struct {
	*raft.NetworkTransport
	n *Node
}
