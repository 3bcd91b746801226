// What the node knows of the other members: their addresses, and a link to each.

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
			l.close()
			delete(n.links, id)
		}
	}
	n.closeRemovedInbounds()
}

// endLinks stops all links and ends what is in flight on them.
func (n *Node) endLinks() {
	n.linksMu.Lock()
	for id, l := range n.links {
		l.close()
		delete(n.links, id)
	}
	n.linksMu.Unlock()
	n.linkWG.Wait()
}

// link returns the link to a member, nil if there is none.
func (n *Node) link(id string) *link {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	return n.links[id]
}

// retiredPrefix begins the address of a removed member. The configuration keeps the ids of removed
// members forever, as non-voters without a usable address, so that no id is given to a second node.
// docs/adr/0007 says why there.
const retiredPrefix = "removed/"

func isRetired(s raft.Server) bool { return strings.HasPrefix(string(s.Address), retiredPrefix) }

// configuration returns the newest configuration in this node's log. The caller must not change it.
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

// retiredIDs returns the ids of removed members.
func retiredIDs(c raft.Configuration) map[string]bool {
	ids := map[string]bool{}
	for _, s := range c.Servers {
		if isRetired(s) {
			ids[string(s.ID)] = true
		}
	}
	return ids
}

// retired reports whether a member was removed by the newest configuration in this node's log,
// which may not be committed.
func (n *Node) retired(id string) bool { return n.view().retired[id] }

// awaitsJoin reports whether the node waits to be added to a cluster: its log has no configuration
// yet.
func (n *Node) awaitsJoin() bool {
	return n.joining && len(n.view().source) == 0
}

// addresses returns where a member may be, likeliest first: what it announces, what this node was
// started with (the address may have changed since the configuration was logged), and the
// configuration. The link finds out which is right.
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

// peerAddr returns the address at which a member was last reached, else the likeliest.
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

// noteAddr notes the peer address that a member announces.
func (n *Node) noteAddr(h hello) {
	if _, err := peerHost(h.peerAddr); err != nil {
		return // an older version, or it does not know
	}
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	n.announced[h.id] = h.peerAddr
}

// ServerAddr lets Raft's transport find members by id. Once the cluster is founded, only registered
// incarnations have an address.
func (n *Node) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if string(id) == n.cfg.ID {
		return raftAddr(n.cfg.ID, n.incarnation, n.mux.Addr().String()), nil
	}
	r := n.view().register
	if addr, ok := n.peerAddr(string(id)); ok && !n.retired(string(id)) &&
		(r.cluster == "" || r.incarnations[string(id)] != "") {
		return raftAddr(string(id), r.incarnations[string(id)], addr), nil
	}
	return "", fmt.Errorf("no address is known for member %q", id)
}

// trackInbound keeps track of the connections that members opened.
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

// closeRemovedInbounds closes the connections of members whose removal is committed, after
// answering what is in flight. When such a node connects again, it learns of its removal.
func (n *Node) closeRemovedInbounds() {
	for in := range n.inbounds {
		if !n.machine.removed(in.peer) || in.retired.Swap(true) {
			continue
		}
		n.linkWG.Go(func() { // ends within flightWait
			for began := time.Now(); len(in.slots) > 0 && time.Since(began) < flightWait; {
				time.Sleep(drainCheck)
			}
			in.w.close()
		})
	}
}
