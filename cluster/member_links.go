// This file holds what the node knows of the other members: their addresses, and a link to each.
package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
	if n.removal.removed.Load() {
		return // its links end by themselves
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
	n.closeRemovedInbounds()
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

// retiredPrefix begins the address of a member that was removed. The configuration keeps the ids of removed members for ever, as members
// without a vote and without an address that anybody could dial: so no id is given to a second node. docs/adr/0007 says why it is kept there.
const retiredPrefix = "removed/"

func isRetired(s raft.Server) bool { return strings.HasPrefix(string(s.Address), retiredPrefix) }

// configuration returns the members in the newest configuration in this node's log. It is not to be changed.
func (n *Node) configuration() raft.Configuration { return n.view().members }

// member finds a member of the newest configuration in this node's log.
func (n *Node) member(id string) (raft.Server, bool) {
	for _, s := range n.configuration().Servers {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

func (n *Node) isMember(id string) bool {
	_, ok := n.member(id)
	return ok
}

// retiredIDs returns the ids of the members that were removed.
func retiredIDs(c raft.Configuration) map[string]bool {
	ids := map[string]bool{}
	for _, s := range c.Servers {
		if isRetired(s) {
			ids[string(s.ID)] = true
		}
	}
	return ids
}

// retired reports whether a member was removed, by the newest configuration in this node's log, which may not be committed.
func (n *Node) retired(id string) bool { return n.view().retired[id] }

// unborn reports whether the node waits to be taken into a cluster: its log has no configuration yet.
func (n *Node) awaitsJoin() bool {
	return n.joining && len(n.view().source) == 0
}

// addresses returns where a member may be, the likeliest first: what it says itself, what this node was started with, since the address may
// have changed since the configuration was logged, and the configuration's. The link finds out which one is right.
func (n *Node) addresses(id string) []string {
	var addrs []string
	add := func(addr string) {
		if addr != "" && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	n.linksMu.Lock()
	add(n.announced[id])
	n.linksMu.Unlock()
	add(n.members[id])
	if n.raft != nil {
		if s, ok := n.member(id); ok {
			add(string(s.Address))
		}
	}
	return addrs
}

// peerAddr returns the peer address of a member: the one that it was last reached at, else the likeliest.
func (n *Node) peerAddr(id string) (string, bool) {
	if l := n.link(id); l != nil {
		l.mu.Lock()
		addr := l.addr
		l.mu.Unlock()
		if addr != "" {
			return addr, true
		}
	}
	if addrs := n.addresses(id); len(addrs) > 0 {
		return addrs[0], true
	}
	return "", false
}

// noteAddr notes the address that a member says it is to be reached at.
func (n *Node) noteAddr(h hello) {
	if h.peerAddr == "" {
		return
	}
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	n.announced[h.id] = h.peerAddr
}

// ServerAddr lets Raft's transport find members by id. Once the cluster is founded, there are none but those whose incarnation is registered.
func (n *Node) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if string(id) == n.cfg.ID {
		return raftAddr(n.cfg.ID, n.incarnation, n.mux.Addr().String()), nil
	}
	r := n.view().register
	if addr, ok := n.peerAddr(string(id)); ok && !n.retired(string(id)) && (r.cluster == "" || r.incarnations[string(id)] != "") {
		return raftAddr(string(id), r.incarnations[string(id)], addr), nil
	}
	return "", fmt.Errorf("no address is known for member %q", id)
}

// trackInbound keeps account of the connections that members opened.
func (n *Node) trackInbound(in *inbound, open bool) {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	if open {
		n.inbounds[in] = struct{}{}
		if n.draining.Load() {
			in.interrupt()
		}
	} else {
		delete(n.inbounds, in)
	}
}

// closeRemovedInbounds ends the connections of members whose removal is committed: what is under way on them is answered, and nothing more is
// taken. When such a node connects again, it is told.
func (n *Node) closeRemovedInbounds() {
	for in := range n.inbounds {
		if !n.machine.removed(in.peer) || in.retired.Swap(true) {
			continue
		}
		go func() { // it ends within flightWait
			for began := time.Now(); len(in.slots) > 0 && time.Since(began) < flightWait; {
				time.Sleep(drainCheck)
			}
			in.w.close()
		}()
	}
}
