// ROLE, and the specs of commands about the node.

package server

import (
	"net"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

const databases = keyspace.Databases

// onlineContact is how recently the leader must have heard from a member to count it as connected.
// It contacts each one every second.
const onlineContact = 3 * time.Second

var serverSpecs = []commands.Spec{
	{
		Name: "info", Kind: commands.Session, Arity: -1, Group: "server", Since: "1.0.0",
		Flags:         commands.Loading | commands.Stale | commands.Shows,
		OwnCategories: "dangerous", Syntax: "[section [section ...]]",
		Summary:    "Returns information and statistics about the node and its cluster.",
		Complexity: "O(1)",
		Local:      &commands.Local{Run: serve(info), Works: true},
	},
	{
		Name: "role", Kind: commands.Session, Arity: 1, Group: "server", Since: "2.8.12",
		Flags: commands.NoScript | commands.Loading | commands.Stale | commands.Fast |
			commands.Shows,
		OwnCategories: "admin dangerous",
		Summary:       "Returns the replication role of the node.", Complexity: "O(1)",
		Local: &commands.Local{Run: serve(role)},
	},
	{
		Name: "wait", Kind: commands.Session, Arity: 3, Group: "generic", Since: "3.0.0",
		Flags: commands.NoScript, OwnCategories: "connection",
		Syntax: "numreplicas:integer timeout:integer",
		Summary: "Waits until a number of other voters hold the connection's writes. A quorum " +
			"always does.",
		Complexity: "O(1)", Local: &commands.Local{Run: serve(wait)},
	},
	{
		Name: "waitaof", Kind: commands.Session, Arity: 4, Group: "generic", Since: "7.2.0",
		Flags: commands.NoScript, OwnCategories: "connection",
		Syntax: "numlocal:integer numreplicas:integer timeout:integer",
		Summary: "Waits until this node and a number of other voters hold the connection's " +
			"writes on disk.",
		Complexity: "O(1)", Local: &commands.Local{Run: serve(waitAOF)},
	},
	{
		Name: "config", Kind: commands.Session, Arity: -2, Group: "server", Since: "2.0.0",
		Summary: "Reads and changes parameters of the node.", Complexity: "That of the subcommand",
		Audit: commands.AuditArgs,
		Subcommands: []commands.Spec{
			current(seesShared, shows(configSub("get", -3, "parameter [parameter ...]",
				"Returns parameters by name or pattern.", configGet))),
			audited(auditConfigSet, secret(configSub("set", -4,
				"parameter value [parameter value ...]",
				"Sets parameters: those of all nodes for good, others until the node stops.",
				configSet), func(args [][]byte, hide func(i int)) {
				for i := 3; i < len(args); i++ {
					if is(args[i-1], "requirepass") || is(args[i-1], "masterauth") {
						hide(i)
					}
				}
			})),
			configSub("resetstat", 2, "", "Resets the counters of INFO.", configResetStat),
			configSub("rewrite", 2, "",
				"Writes what CONFIG SET changed into the configuration file.",
				configRewrite),
			helpSpec("CONFIG", "5.0.0", "server",
				"GET <pattern>",
				"    Return parameters matching the glob-like <pattern> and their values.",
				"SET <directive> <value>", "    Set the configuration <directive> to <value>.",
				"RESETSTAT", "    Reset statistics reported by the INFO command.",
				"REWRITE", "    Rewrite the configuration file."),
		},
	},
}

func configSub(name string, arity int, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Group: "server", Since: "2.0.0",
		Flags:  commands.NoScript | commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of parameters",
		Local: &commands.Local{Run: serve(run), Works: name == "get"},
	}
}

// online returns the members that follow this leader.
func (st *Status) online() []Member {
	var members []Member
	for _, m := range st.Members {
		if m.ID != st.ID && m.Connected && m.LastContact >= 0 && m.LastContact < onlineContact {
			members = append(members, m)
		}
	}
	return members
}

// isAt reports whether an address is one of the member's.
func isAt(m *Member, addr string) bool {
	return addr == m.ClientAddr || addr == m.TLSAddr || addr == m.PeerAddr
}

// clientHostPort returns the member's client address if known, otherwise its peer address.
func clientHostPort(m *Member) (host, port string) {
	addr := m.ClientAddr
	if addr == "" {
		addr = m.PeerAddr
	}
	return hostPort(addr)
}

func hostPort(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, "0"
	}
	return host, port
}

func role(s *session, _ *commands.Spec, _ [][]byte) {
	st := s.status()
	if s.srv.presentsMaster(st.Role) {
		online := s.srv.followers(&st)
		s.w.Array(3)
		s.w.BulkString("master")
		s.w.Int(int64(st.Commit))
		s.w.Array(len(online))
		for i := range online {
			host, port := clientHostPort(&online[i])
			s.w.Array(3)
			s.w.BulkString(host)
			s.w.BulkString(port)
			s.w.BulkString(formatInt(int64(online[i].Applied)))
		}
		return
	}
	host, port := hostPort(st.LeaderAddr)
	n, _ := commands.ParseInt([]byte(port))
	state := "connected"
	switch {
	case st.LeaderID == "":
		state = "connect"
	case !st.Ready:
		state = "connecting"
	}
	s.w.Array(5)
	s.w.BulkString("slave")
	s.w.BulkString(host)
	s.w.Int(n)
	s.w.BulkString(state)
	s.w.Int(int64(st.Applied))
}

// assured returns how many voters besides the leader hold every acknowledged write: with the
// leader they are a majority. It is one less for an even number of voters, so that it also covers
// writes from before a voter joined or after one that held them left.
func assured(voters int) int64 { return int64(max(voters-1, 0) / 2) }
