// SENTINEL: every node answers as a Sentinel that monitors one master, the leader, under one name.
// The other members are its replicas and the other Sentinels.

package server

import (
	"github.com/coordd/coordd/commands"
)

const errNoMaster commands.Error = "ERR No such master with that name"

var sentinelSpecs = []commands.Spec{{
	Name: "sentinel", Kind: commands.Admin, Arity: -2, Group: "sentinel", Since: "2.8.4",
	Summary:    "Describes the leader and the other members to Sentinel clients.",
	Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		sentinelSub("masters", 2, "2.8.4", "", "Describes the single master, which is the leader.",
			sentinelMasters),
		sentinelSub("master", 3, "2.8.4", "master-name", "Describes the leader.",
			ofMaster(sentinelMaster)),
		sentinelSub("replicas", 3, "5.0.0", "master-name", "Describes the followers of the leader.",
			ofMaster(sentinelReplicas)),
		sentinelSub("slaves", 3, "2.8.0", "master-name",
			"Describes the followers of the leader. An older name of SENTINEL REPLICAS.",
			ofMaster(sentinelReplicas)),
		sentinelSub("sentinels", 3, "2.8.4", "master-name",
			"Describes the other members, each of which answers SENTINEL.",
			ofMaster(sentinelSentinels)),
		sentinelSub("get-master-addr-by-name", 3, "2.8.4", "master-name",
			"Returns the host and the port of the leader.", sentinelAddress),
		sentinelSub("ckquorum", 3, "2.8.4", "master-name",
			"Reports whether enough members are reachable to elect a leader.",
			ofMaster(sentinelQuorum)),
		sentinelSub("myid", 2, "6.2.0", "", "Returns the id of this node, derived from its name.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.BulkString(clusterID(s.srv.backend.Status().ID))
			}),
		helpSpec("SENTINEL", "6.2.0", "sentinel",
			"CKQUORUM <master-name>",
			"    Check if the current Sentinel configuration is able to reach the quorum",
			"    needed to failover a master and the majority needed to authorize the",
			"    failover.",
			"GET-MASTER-ADDR-BY-NAME <master-name>",
			"    Return the ip and port number of the master with that name.",
			"MASTER <master-name>", "    Show the state and info of the specified master.",
			"MASTERS", "    Show a list of monitored masters and their state.",
			"MYID", "    Return the ID of the Sentinel instance.",
			"REPLICAS <master-name>",
			"    Show a list of replicas for this master and their state.",
			"SENTINELS <master-name>",
			"    Show a list of Sentinel instances for this master and their state."),
	},
}}

func sentinelSub(name string, arity int, since, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Group: "sentinel", Since: since,
		Flags:  commands.NoScript | commands.Stale | commands.Discovery | commands.Shows,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of members",
		Local: &commands.Local{Run: serve(run)},
	}
}

// isMaster reports whether a client uses the configured name.
func (s *session) isMaster(name []byte) bool { return string(name) == s.srv.cfg.SentinelName }

// ofMaster returns a subcommand about the master that its argument names.
func ofMaster(run func(s *session, st *Status)) func(*session, *commands.Spec, [][]byte) {
	return func(s *session, _ *commands.Spec, args [][]byte) {
		if !s.isMaster(args[2]) {
			s.fail(errNoMaster)
			return
		}
		st := s.settledStatus()
		run(s, &st)
	}
}

// errNoAddress sends clients to the next Sentinel. A null would, too, but go-redis hands that to
// the program as what a command on a missing key replies.
const errNoAddress commands.Error = "IDONTKNOW no leader is known, or not its client address"

// sentinelAddress replies with the address of the leader, and null for a name that is unknown.
func sentinelAddress(s *session, _ *commands.Spec, args [][]byte) {
	if !s.isMaster(args[2]) {
		s.w.NullArray()
		return
	}
	st := s.settledStatus()
	leader := st.leader()
	if leader == nil {
		s.fail(errNoAddress)
		return
	}
	host, port := hostPort(leader.ClientAddr)
	s.w.Array(2)
	s.w.BulkString(host)
	s.w.BulkString(port)
}

// instance collects the fields of one node as SENTINEL shows them.
type instance struct{ fields [][2]string }

func (i *instance) add(name, value string) { i.fields = append(i.fields, [2]string{name, value}) }

func (i *instance) number(name string, n int64) { i.add(name, formatInt(n)) }

func (i *instance) write(w *commands.RESP) {
	w.Map(len(i.fields))
	for _, f := range i.fields {
		w.BulkString(f[0])
		w.BulkString(f[1])
	}
}

// instance starts the fields of a member. flag is its role: master, slave or sentinel.
func (st *Status) instance(m *Member, name, flag string) *instance {
	host, port := hostPort(m.ClientAddr)
	if name == "" {
		name = host + ":" + port
	}
	i := &instance{}
	i.add("name", name)
	i.add("ip", host)
	i.add("port", port)
	i.add("runid", clusterID(m.ID))
	if !st.up(m) {
		flag += ",s_down,disconnected"
	}
	i.add("flags", flag)
	i.number("link-pending-commands", 0)
	i.number("link-refcount", 1)
	heard := max(m.LastContact.Milliseconds(), 0)
	i.number("last-ok-ping-reply", heard)
	i.number("last-ping-reply", heard)
	return i
}

// others returns the members with a known address, except one.
func (st *Status) others(id string) []*Member {
	var found []*Member
	for i := range st.Members {
		if m := &st.Members[i]; m.ID != id && m.ClientAddr != "" {
			found = append(found, m)
		}
	}
	return found
}

// voters counts the voters, and those that are up.
func (st *Status) voters() (all, up int) {
	for i := range st.Members {
		if m := &st.Members[i]; m.Voter {
			all++
			if st.up(m) {
				up++
			}
		}
	}
	return all, up
}

func (st *Status) masterInstance(name string, leader *Member) *instance {
	voters, _ := st.voters()
	i := st.instance(leader, name, "master")
	i.add("role-reported", "master")
	i.number("config-epoch", int64(st.Term))
	i.number("num-slaves", int64(len(st.others(leader.ID))))
	i.number("num-other-sentinels", int64(len(st.others(st.ID))))
	i.number("quorum", int64(voters/2+1))
	return i
}

// sentinelMasters replies with an empty list if no leader is known, as a Sentinel that has just
// started: clients then ask another.
func sentinelMasters(s *session, _ *commands.Spec, _ [][]byte) {
	st := s.settledStatus()
	leader := st.leader()
	if leader == nil {
		s.w.Array(0)
		return
	}
	s.w.Array(1)
	st.masterInstance(s.srv.cfg.SentinelName, leader).write(s.w)
}

func sentinelMaster(s *session, st *Status) {
	leader := st.leader()
	if leader == nil {
		s.fail(errNoLeader)
		return
	}
	st.masterInstance(s.srv.cfg.SentinelName, leader).write(s.w)
}

func sentinelReplicas(s *session, st *Status) {
	host, port, link := "?", "0", "err"
	if leader := st.leader(); leader != nil {
		host, port = hostPort(leader.ClientAddr)
		link = "ok"
	}
	members := st.others(st.LeaderID)
	s.w.Array(len(members))
	for _, m := range members {
		i := st.instance(m, "", "slave")
		state, priority := link, int64(100)
		if !st.up(m) {
			state = "err"
		}
		if !m.Voter {
			priority = 0 // Redis's value for a replica that never becomes master
		}
		i.add("role-reported", "slave")
		i.add("master-link-status", state)
		i.add("master-host", host)
		i.add("master-port", port)
		i.number("slave-priority", priority)
		if m.ID == st.ID {
			i.number("slave-repl-offset", int64(st.Applied))
		} else if m.Applied > 0 {
			i.number("slave-repl-offset", int64(m.Applied))
		}
		i.number("replica-announced", 1)
		i.write(s.w)
	}
}

func sentinelSentinels(s *session, st *Status) {
	members := st.others(st.ID)
	s.w.Array(len(members))
	for _, m := range members {
		st.instance(m, "", "sentinel").write(s.w)
	}
}

// sentinelQuorum counts the members that this node is connected to.
func sentinelQuorum(s *session, st *Status) {
	all, up := st.voters()
	if up > all/2 {
		s.w.Status(commands.Errorf(
			"OK %d usable Sentinels. Quorum and failover authorization can be reached", up).Error())
		return
	}
	s.fail(commands.Errorf(
		"NOQUORUM %d usable Sentinels. Not enough available Sentinels to reach the specified "+
			"quorum for this master. "+
			"Not enough available Sentinels to reach the majority and authorize a failover", up))
}
