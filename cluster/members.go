// This file holds what the node knows of the other members: their addresses, and a link to each.
package cluster

import (
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// updateLinks keeps one link to each other member of the newest configuration.
func (n *Node) updateLinks() {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	select {
	case <-n.stop:
		return
	default:
	}
	wanted := map[string]bool{}
	for _, s := range n.configuration().Servers {
		id := string(s.ID)
		if id == n.cfg.ID {
			continue
		}
		wanted[id] = true
		if n.links[id] == nil {
			l := newLink(n, id)
			n.links[id] = l
			n.linkWG.Add(1)
			go func() {
				defer n.linkWG.Done()
				l.run()
			}()
		}
	}
	for id, l := range n.links {
		if !wanted[id] {
			l.end()
			delete(n.links, id)
		}
	}
}

// endLinks stops all links; what is under way on them ends.
func (n *Node) endLinks() {
	n.linksMu.Lock()
	for id, l := range n.links {
		l.end()
		delete(n.links, id)
	}
	n.linksMu.Unlock()
	n.linkWG.Wait()
}

// link returns the link to a member, nil when there is none.
func (n *Node) link(id string) *link {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	return n.links[id]
}

// isMember reports whether the newest configuration in this node's log has a member with that id.
func (n *Node) isMember(id string) bool {
	return slices.ContainsFunc(n.configuration().Servers, func(s raft.Server) bool { return string(s.ID) == id })
}

// peerAddr returns the peer address of a member: the one that this node was started with, since a node is known by
// its id and its address may have changed since the configuration was logged; else the one in the configuration.
func (n *Node) peerAddr(id string) (string, bool) {
	if addr, ok := n.members[id]; ok {
		return addr, true
	}
	if n.raft != nil {
		for _, s := range n.configuration().Servers {
			if string(s.ID) == id {
				return string(s.Address), true
			}
		}
	}
	return "", false
}

// ServerAddr lets Raft's transport find members by id.
func (n *Node) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if string(id) == n.cfg.ID {
		return raft.ServerAddress(n.mux.Addr().String()), nil
	}
	if addr, ok := n.peerAddr(string(id)); ok {
		return raft.ServerAddress(addr), nil
	}
	return "", fmt.Errorf("no address is known for member %q", id)
}
