// What a node presents itself as: clients differ in what they are given, one address or all, and in
// what they make of a node that is not the master (ADR 0039).

package server

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

// Presentation is what a node presents itself as. Every node takes every command as either of the
// first two.
type Presentation string

// Values of Config.PresentAs.
const (
	// a server with replicas, or a replica of one, that names the others to cluster and Sentinel
	// clients; the default
	PresentReplicated Presentation = "replicated"
	// a server without others
	PresentStandalone Presentation = "standalone"
	// a node of a Redis Cluster: a follower replies MOVED to commands with keys
	PresentCluster Presentation = "cluster"
)

// alone reports whether the node shows clients no other node.
func (s *Server) alone() bool { return s.cfg.PresentAs == PresentStandalone }

// mode returns the mode that clients see: a client that finds the leader only by MOVED must see a
// cluster.
func (s *Server) mode() string {
	if s.cfg.PresentAs == PresentCluster {
		return "cluster"
	}
	return "standalone"
}

// presentsMaster reports whether clients see a node of this Raft role as a master.
func (s *Server) presentsMaster(raftRole string) bool { return raftRole == "leader" || s.alone() }

// followers returns the members that clients see as the replicas of this master.
func (s *Server) followers(st *Status) []Member {
	if s.alone() {
		return nil
	}
	return st.online()
}

// clusterConnections returns the number of other nodes that clients see.
func (s *Server) clusterConnections(st *Status) int {
	if s.alone() {
		return 0
	}
	return max(len(st.Members)-1, 0)
}

// noteDiscovery tells the log of the first client that asks where all nodes are: it goes there,
// also if it was given one address, of a mapped port perhaps, and the others are out of its reach.
func (s *session) noteDiscovery() {
	if s.srv.cfg.PresentAs != PresentReplicated {
		return
	}
	s.srv.discovered.Do(func() {
		s.srv.log.Info("a client asked where all nodes are, and may connect to the addresses that "+
			"they advertise; for clients that do not reach these there is --present-as standalone",
			"client", s.addr, "library", resp.Shown(s.libName))
	})
}

// inCluster has a command fail if the node is alone, as on a Redis without cluster support.
func inCluster(spec commands.Spec) commands.Spec {
	run := spec.Local.Run
	spec.Local.Run = func(c commands.Client, spec *commands.Spec, args [][]byte) {
		s := c.(*session)
		switch {
		case !s.srv.alone():
			run(c, spec, args)
		case spec.Local.Raw:
			s.failRaw(spec, args, errNoCluster)
		default:
			s.fail(errNoCluster)
		}
	}
	return spec
}
