// CLUSTER: the cluster as Redis Cluster clients see it, one shard that owns all slots. The leader
// is its master, the other members are its replicas, each at its client address.

package server

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

const (
	errNoCluster commands.Error = "ERR This instance has cluster support disabled"
	errNoLeader  commands.Error = "CLUSTERDOWN the leader or its client address is unknown"
	errNotMaster commands.Error = "ERR The specified node is not a master"
)

var clusterSpecs = []commands.Spec{{
	Name: "cluster", Kind: commands.Session, Arity: -2, Group: "cluster", Since: "3.0.0",
	Summary: "Describes the cluster to cluster clients.", Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		clusterSub("slots", 2, "3.0.0", "",
			"Returns the slots, all of which the leader serves, and the readable members.",
			clusterSlots),
		clusterSub("shards", 2, "7.0.0", "", "Describes the single shard and all members.",
			clusterShards),
		clusterSub("nodes", 2, "3.0.0", "", "Lists the members, one per line.", clusterNodes),
		clusterSub("info", 2, "3.0.0", "", "Reports whether the cluster is available.",
			clusterInfo),
		clusterSub("myid", 2, "3.0.0", "", "Returns the id of this node, derived from its name.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.BulkString(clusterID(s.srv.backend.Status().ID))
			}),
		clusterSub("myshardid", 2, "7.2.0", "", "Returns the id of the single shard.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.BulkString(hexSum("coordd shard"))
			}),
		clusterSub("links", 2, "7.0.0", "", "Lists the connections of this node to other members.",
			clusterLinks),
		clusterSub("keyslot", 3, "3.0.0", "string", "Returns the slot of a key.",
			func(s *session, _ *commands.Spec, args [][]byte) {
				s.w.Int(int64(commands.Slot(args[2])))
			}),
		slotSub("countkeysinslot", 3, "3.0.0", "slot:integer",
			"Counts the keys of the selected database in a slot.", commands.CountKeysInSlot),
		slotSub("getkeysinslot", 4, "3.0.0", "slot:integer count:integer",
			"Lists keys of the selected database in a slot.", commands.GetKeysInSlot),
		slotStats(),
		clusterAdmin("replicas", "5.0.0", "Lists the followers of the leader, one per line.",
			clusterReplicas),
		clusterAdmin("slaves", "3.0.0",
			"Lists the followers of the leader. An older name of CLUSTER REPLICAS.",
			clusterReplicas),
		clusterAdmin("count-failure-reports", "3.0.0",
			"Returns 0, since members elect a leader instead of reporting each other.",
			clusterReports),
		inCluster(helpSpec("CLUSTER", "5.0.0", "cluster",
			"COUNT-FAILURE-REPORTS <node-id>",
			"    Return number of failure reports for <node-id>.",
			"COUNTKEYSINSLOT <slot>", "    Return the number of keys in <slot>.",
			"GETKEYSINSLOT <slot> <count>",
			"    Return key names stored by current node in a slot.",
			"INFO", "    Return information about the cluster.",
			"KEYSLOT <key>", "    Return the hash slot for <key>.",
			"MYID", "    Return the node id.",
			"MYSHARDID", "    Return the shard id.",
			"NODES", "    Return cluster configuration seen by node. Output format:",
			"    <id> <ip:port> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...",
			"REPLICAS <node-id>", "    Return <node-id> replicas.",
			"SLOTS", "    Return information about slots range mappings. Each range is made of:",
			"    start, end, master and replicas IP addresses, ports and ids",
			"SLOT-STATS",
			"    Return an array of slot usage statistics for slots assigned to the current node.",
			"SHARDS", "    Return information about slot range mappings and the nodes associated "+
				"with them.",
			"LINKS", "    Return information about all network links between this node and its "+
				"peers.",
			"    Output format is an array where each array element is a map containing "+
				"attributes of a link")),
	},
}}

func clusterSub(name string, arity int, since, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return inCluster(commands.Spec{
		Name: name, Kind: commands.Session, Arity: arity, Group: "cluster", Since: since,
		Flags:  commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of members",
		Local: &commands.Local{Run: serve(run)},
	})
}

func clusterAdmin(name, since, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	c := clusterSub(name, 3, since, "node-id", summary, run)
	c.Kind = commands.Admin
	return shows(c)
}

// slotSub returns a subcommand that the machine answers.
func slotSub(name string, arity int, since, syntax, summary string,
	handler commands.Handler) commands.Spec {
	c := clusterSub(name, arity, since, syntax, summary, nil)
	c.Handler, c.Complexity = handler, "O(N) where N is the number of keys in the database"
	c.Local = &commands.Local{Raw: true,
		Run: serve(func(s *session, spec *commands.Spec, args [][]byte) {
			s.enqueue(spec, args, pending{})
		})}
	return inCluster(c)
}

func slotStats() commands.Spec {
	c := slotSub("slot-stats", -4, "8.2.0", "<SLOTSRANGE start-slot:integer end-slot:integer | "+
		"ORDERBY metric [LIMIT limit:integer] [ASC | DESC]>",
		"Counts the keys of the selected database in each slot.", commands.SlotStats)
	c.Level = commands.LevelSecond
	return c
}

// clusterID returns a member's id as cluster clients know it, 40 hexadecimal digits. Every member
// derives the same id from the same name.
func clusterID(id string) string { return hexSum("coordd node " + id) }

func hexSum(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// serves reports whether clients can read from a member: it is up, has a client address, and has
// caught up. A permanent learner that has not says so itself.
func (st *Status) serves(m *Member) bool {
	return m.ClientAddr != "" && (m.Voter || m.Learner) && st.up(m)
}

// clusterSlots fails if no leader is known: clients then ask another node.
func clusterSlots(s *session, _ *commands.Spec, _ [][]byte) {
	s.noteDiscovery()
	st := s.settledStatus()
	leader := st.leader()
	if leader == nil {
		s.fail(errNoLeader)
		return
	}
	members := []*Member{leader}
	for i := range st.Members {
		if m := &st.Members[i]; m != leader && st.serves(m) {
			members = append(members, m)
		}
	}
	s.w.Array(1)
	s.w.Array(2 + len(members))
	s.w.Int(0)
	s.w.Int(commands.Slots - 1)
	for _, m := range members {
		host, port := hostPort(m.ClientAddr)
		s.w.Array(4)
		s.w.BulkString(host)
		s.w.Int(portNumber(port))
		s.w.BulkString(clusterID(m.ID))
		if m.Zone == "" {
			s.w.Map(0)
			continue
		}
		s.w.Map(1)
		s.w.BulkString(zoneField)
		s.w.BulkString(m.Zone)
	}
}

// zoneField names a member's zone, as in Valkey. It is left out where there is none.
const zoneField = "availability-zone"

func portNumber(port string) int64 {
	n, _ := commands.ParseInt([]byte(port))
	return n
}

// clusterRole returns a member's role in Redis Cluster's terms.
func (st *Status) clusterRole(m *Member) string {
	if m.ID == st.LeaderID {
		return "master"
	}
	return "replica"
}

// clusterShards omits members without a known address.
func clusterShards(s *session, _ *commands.Spec, _ [][]byte) {
	s.noteDiscovery()
	st := s.settledStatus()
	var members []*Member
	for i := range st.Members {
		if m := &st.Members[i]; m.ClientAddr != "" {
			members = append(members, m)
		}
	}
	s.w.Array(1)
	s.w.Map(2)
	s.w.BulkString("slots")
	s.w.Array(2)
	s.w.Int(0)
	s.w.Int(commands.Slots - 1)
	s.w.BulkString("nodes")
	s.w.Array(len(members))
	for _, m := range members {
		host, port := hostPort(m.ClientAddr)
		health := "online"
		switch {
		case !st.up(m):
			health = "fail"
		case !m.Voter && !m.Learner:
			health = "loading" // it has not caught up
		}
		offset := int64(m.Applied) // 0 if unknown
		if m.ID == st.ID {
			offset = int64(st.Applied)
		}
		fields := 7
		if m.Zone != "" {
			fields++
		}
		s.w.Map(fields)
		s.w.BulkString("id")
		s.w.BulkString(clusterID(m.ID))
		if s.seesTLS {
			s.w.BulkString("tls-port")
		} else {
			s.w.BulkString("port")
		}
		s.w.Int(portNumber(port))
		s.w.BulkString("ip")
		s.w.BulkString(host)
		s.w.BulkString("endpoint")
		s.w.BulkString(host)
		s.w.BulkString("role")
		s.w.BulkString(st.clusterRole(m))
		s.w.BulkString("replication-offset")
		s.w.Int(offset)
		s.w.BulkString("health")
		s.w.BulkString(health)
		if m.Zone != "" {
			s.w.BulkString(zoneField)
			s.w.BulkString(m.Zone)
		}
	}
}

// clusterLine returns a member's line of CLUSTER NODES.
func (st *Status) clusterLine(m *Member) string {
	host, port := "", "0"
	if m.ClientAddr != "" {
		host, port = hostPort(m.ClientAddr)
	}
	_, peerPort := hostPort(m.PeerAddr)
	address := host + ":" + port + "@" + peerPort
	if host != "" && net.ParseIP(host) == nil {
		address += "," + host
	}
	var flags []string
	master, slots := "-", ""
	if m.ID == st.ID {
		flags = append(flags, "myself")
	}
	if m.ID == st.LeaderID {
		flags, slots = append(flags, "master"), fmt.Sprintf(" 0-%d", commands.Slots-1)
	} else {
		flags = append(flags, "slave")
		if st.LeaderID != "" {
			master = clusterID(st.LeaderID)
		}
	}
	link := "connected"
	if !st.up(m) {
		flags, link = append(flags, "fail"), "disconnected"
	}
	if m.ClientAddr == "" {
		flags = append(flags, "noaddr")
	}
	if !m.Voter {
		flags = append(flags, "nofailover")
	}
	return fmt.Sprintf("%s %s %s %s 0 0 %d %s%s", clusterID(m.ID), address,
		strings.Join(flags, ","), master, st.Term, link, slots)
}

func clusterNodes(s *session, _ *commands.Spec, _ [][]byte) {
	s.noteDiscovery()
	st := s.settledStatus()
	var b strings.Builder
	for i := range st.Members {
		b.WriteString(st.clusterLine(&st.Members[i]))
		b.WriteByte('\n')
	}
	s.w.Verbatim("txt", b.String())
}

func clusterInfo(s *session, _ *commands.Spec, _ [][]byte) {
	st := s.settledStatus()
	state, served, failed := "ok", commands.Slots, 0
	if !st.Ready {
		state, served, failed = "fail", 0, commands.Slots
	}
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value any
	}{
		{"state", state}, {"slots_assigned", commands.Slots}, {"slots_ok", served},
		{"slots_pfail", 0}, {"slots_fail", failed},
		{"known_nodes", len(st.Members)}, {"size", 1}, {"current_epoch", st.Term},
		{"my_epoch", st.Term},
	} {
		fmt.Fprintf(&b, "cluster_%s:%v\r\n", f.name, f.value)
	}
	s.w.Verbatim("txt", b.String())
}

// clusterLinks lists the connections that this node has opened, without values it does not
// measure.
func clusterLinks(s *session, _ *commands.Spec, _ [][]byte) {
	st := s.srv.backend.Status()
	var members []Member
	for _, m := range st.Members {
		if m.Connected && m.ID != st.ID {
			members = append(members, m)
		}
	}
	s.w.Array(len(members))
	for _, m := range members {
		s.w.Map(3)
		s.w.BulkString("direction")
		s.w.BulkString("to")
		s.w.BulkString("node")
		s.w.BulkString(clusterID(m.ID))
		s.w.BulkString("events")
		s.w.BulkString("rw")
	}
}

// byClusterID finds a member by its CLUSTER id.
func (st *Status) byClusterID(id []byte) (*Member, error) {
	for i := range st.Members {
		if m := &st.Members[i]; is(id, clusterID(m.ID)) {
			return m, nil
		}
	}
	return nil, commands.Errorf("ERR Unknown node %s", resp.Shown(id))
}

func clusterReplicas(s *session, _ *commands.Spec, args [][]byte) {
	st := s.settledStatus()
	leader, err := st.byClusterID(args[2])
	switch {
	case err != nil:
		s.fail(err)
		return
	case leader.ID != st.LeaderID:
		s.fail(errNotMaster)
		return
	}
	s.w.Array(len(st.Members) - 1)
	for i := range st.Members {
		if m := &st.Members[i]; m != leader {
			s.w.BulkString(st.clusterLine(m))
		}
	}
}

func clusterReports(s *session, _ *commands.Spec, args [][]byte) {
	st := s.srv.backend.Status()
	if _, err := st.byClusterID(args[2]); err != nil {
		s.fail(err)
		return
	}
	s.w.Int(0)
}
