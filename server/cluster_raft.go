// RAFT: operators inspect and change the members of a running cluster. BACKUP is in
// admin_backup.go.

package server

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/commands"
)

const errNoMembers commands.Error = "CLUSTERDOWN this node knows no members yet: it loads its " +
	"data, or has not joined a cluster"

var raftSpecs = []commands.Spec{{
	Name: "raft", Kind: commands.Session, Arity: -2, Group: "cluster", Since: "0.1.0",
	Summary:    "Lists and changes the members of the cluster, and backs up the state.",
	Complexity: "That of the subcommand",
	Audit:      commands.AuditArgs,
	Subcommands: []commands.Spec{
		raftReport("members", -2, "[LOCAL]",
			"Lists the members as the leader knows them, or as this node does.", raftMembers),
		raftReport("status", 2, "", "Returns the Raft state of this node and of its "+
			"leader.", raftStatus),
		foundSpec(),
		raftSub("add", 4, "id host:port",
			"Adds a node to the cluster, which becomes a voter once it has caught up.", raftAdd),
		raftSub("remove", 3, "id", "Removes a node for good; its id can't be used again.",
			raftRemove),
		raftSub("promote", 3, "id", "Makes a node that has caught up a voter now.", raftPromote),
		raftSub("transfer", -2, "[id]",
			"Transfers leadership to the most up-to-date voter, or to a given one.", raftTransfer),
		raftSub("snapshot", 2, "",
			"Writes a snapshot of this node's state and waits until it is complete.", save),
		current(nil, since("0.2.0", raftReport("scripts", 2, "",
			"Lists the scripts that are refused because they held up the cluster, and those that "+
				"were allowed.", raftScripts))),
		since("0.2.0", raftSub("allow-script", 3, "id",
			"Lets a script run that is refused, for good.", raftAllowScript)),
		since("0.2.0", raftSub("set-time", 3, "unix-time-milliseconds:integer",
			"Sets the time of day of the cluster, also back.", raftSetTime)),
		{
			Name: "backup", Kind: commands.Admin, Arity: 2, Group: "cluster", Since: "0.1.0",
			Flags: commands.NoScript | commands.NoMulti,
			Summary: "Returns a backup of the whole state, with every acknowledged write, for " +
				"coordd restore.",
			Complexity: "O(N) where N is the size of the state; other clients do not wait",
			Local:      &commands.Local{Run: serve(backup)},
		},
		helpSpec("RAFT", "0.1.0", "cluster",
			"MEMBERS [LOCAL]",
			"    List the members as the leader knows them, or as this node does, at once.",
			"STATUS", "    Return the Raft state of this node and of its leader.",
			"FOUND [AUTH <username> <password>]",
			"    Found a cluster with the empty nodes that wait for it, and return its id.",
			"ADD <id> <host:port>",
			"    Add a node, which becomes a voter once it has caught up.",
			"REMOVE <id>", "    Remove a node for good. Its id can't be used again.",
			"PROMOTE <id>", "    Make a node that has caught up a voter now.",
			"TRANSFER [<id>]",
			"    Transfer leadership to the most up-to-date voter, or to a given one.",
			"SNAPSHOT", "    Write a snapshot of this node's state and wait until it is complete.",
			"SCRIPTS",
			"    List the scripts that are refused because they held up the cluster.",
			"ALLOW-SCRIPT <id>", "    Let such a script run, for good.",
			"SET-TIME <unix-time-milliseconds>",
			"    Set the time of day of the cluster, also back.",
			"BACKUP", "    Return a backup of the whole state, as one string."),
	},
}}

func raftSub(name string, arity int, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Group: "cluster", Since: "0.1.0",
		Flags:  commands.NoScript | commands.NoMulti | commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of members",
		Local: &commands.Local{Run: serve(run)},
	}
}

// foundSpec is RAFT FOUND. An empty node has no users yet: those that its cluster will have decide,
// by the words after AUTH.
func foundSpec() commands.Spec {
	spec := since("0.2.0", raftSub("found", -2, "[AUTH username password]",
		"Founds a cluster with the empty nodes that wait for it, and returns its id.", raftFound))
	spec.Flags |= commands.Founding
	spec.Secret = commands.SecretFrom(3)
	spec.Audit = auditFound
	return spec
}

// raftReport is raftSub for a subcommand that changes nothing.
func raftReport(name string, arity int, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	spec := raftSub(name, arity, syntax, summary, run)
	spec.Flags |= commands.Discovery | commands.Shows
	return spec
}

// since returns a command of a later release.
func since(release string, spec commands.Spec) commands.Spec {
	spec.Since = release
	return spec
}

// raftMembers replies with one map per member. The leader knows most about them; if it does not
// answer, or need not, this node replies with what it knows, and says so in source. It knows
// nothing until its data is open or while it joins: no list that lacks a member may be taken for
// one without it.
func raftMembers(s *session, _ *commands.Spec, args [][]byte) {
	local := len(args) == 3 && is(args[2], "local")
	if len(args) > 2 && !local {
		s.fail(subcommandSyntax(args))
		return
	}
	var members []Member
	var err error
	if !local {
		members, err = s.srv.backend.LeaderMembers()
	}
	st := s.srv.backend.Status() // as of now: who leads may have been waited for
	source, asked := "leader", st.LeaderID
	if local || err != nil {
		source, asked = st.ownView(local), st.ID
		if members = st.Members; len(members) == 0 {
			s.fail(cmp.Or[error](err, errNoMembers))
			return
		}
	}
	var last uint64
	for _, m := range members {
		if m.ID == st.LeaderID {
			last = m.LastLog
		}
	}
	s.w.Array(len(members))
	for _, m := range members {
		role := "learner"
		switch {
		case st.Removed && m.ID == st.ID:
			role = "removed"
		case m.ID == st.LeaderID:
			role = "leader"
		case m.Voter:
			role = "voter"
		}
		contact := int64(-1)
		if m.LastContact >= 0 {
			contact = m.LastContact.Milliseconds()
		}
		behind := int64(-1)
		if m.ID == st.LeaderID {
			behind = 0
		} else if last > 0 && m.LastLog > 0 {
			at := last
			if m.LastContact >= 0 && m.LastContact < 2*time.Second {
				// its report is up to a second old: under load much was committed since
				at = cmp.Or(m.ReportedAt, last)
			}
			behind = int64(at - min(m.LastLog, at))
		}
		uptime := int64(-1)
		if m.Version != "" {
			uptime = int64(m.Uptime.Seconds())
		}
		to, from := cmp.Or(m.Fault, "down"), "down"
		if m.Connected {
			to = "up"
		}
		if m.Inbound {
			from = "up"
		}
		if m.ID == asked {
			to, from = "", ""
		}
		s.pairs([]pair{
			{"id", m.ID}, {"role", role}, {"peer-address", m.PeerAddr},
			{"client-address", m.ClientAddr}, {"tls-address", m.TLSAddr},
			{"entries-behind", behind}, {"last-contact-ms", contact},
			{"known-feature-level", int64(m.KnownLevel)},
			{"version", m.Version}, {"uptime-seconds", uptime},
			{"availability-zone", m.Zone}, {"leader-priority", int64(m.Priority)},
			{"permanent-learner", int64(number(m.Learner))},
			{"removed-in-seconds", removedIn(&m)},
			{"build", m.Build}, {"state", m.State}, {"log-trouble", m.LogTrouble},
			{"connection-to", to}, {"connection-from", from}, {"source", source},
		})
	}
}

// ownView says whose list of members this is, and how old: it was asked for (wanted), or no leader
// answers.
func (st *Status) ownView(wanted bool) string {
	switch {
	case st.Removed:
		return "this node, which was removed from the cluster"
	case wanted && st.LeaderID != "":
		return "this node"
	case st.LeaderID != "":
		return "this node, since the leader did not answer"
	case st.LastContact > 0:
		return fmt.Sprintf("this node, which last heard from a leader %v ago",
			st.LastContact.Round(time.Millisecond))
	}
	return "this node, which has heard from no leader since it started"
}

func raftStatus(s *session, _ *commands.Spec, _ [][]byte) {
	st := s.status()
	voters, _ := st.voters()
	role := st.Role
	switch {
	case st.Removed:
		role = "removed"
	case st.Joining:
		role = "joining"
	}
	state, next := st.trouble()
	s.pairs([]pair{
		{"id", st.ID}, {"role", role}, {"state", cmp.Or(state, "ready")}, {"next", next},
		{"leader", st.LeaderID}, {"leader-address", st.LeaderAddr},
		{"voters", int64(voters)}, {"learners", int64(len(st.Members) - voters)},
		{"term", int64(st.Term)}, {"commit", int64(st.Commit)},
		{"applied", int64(st.Applied)}, {"last-log", int64(st.LastLog)},
		{"snapshot", int64(st.Snapshot.Index)},
		{"feature-level", int64(st.Level)}, {"known-feature-level", int64(st.KnownLevel)},
	})
}

// removedIn returns in how many seconds the leader removes an unreachable member; -1: it is not
// counted down, 0: it is due.
func removedIn(m *Member) int64 {
	if m.RemoveIn == 0 {
		return -1
	}
	return int64(m.RemoveIn.Seconds())
}

// pair is a field of a map reply; the value is a string or an int64.
type pair struct {
	name  string
	value any
}

func (s *session) pairs(fields []pair) {
	s.w.Map(len(fields))
	for _, f := range fields {
		s.w.BulkString(f.name)
		switch v := f.value.(type) {
		case string:
			s.w.BulkString(v)
		case int64:
			s.w.Int(v)
		}
	}
}

// change asks the leader, on whichever node, to change the membership.
func (s *session) change(c MemberChange) {
	if err := s.srv.backend.ChangeMembers(c); err != nil {
		s.fail(err)
		return
	}
	s.srv.log.Info("client changed the membership", "client", s.addr, "change", c.Kind, "member",
		c.ID)
	s.w.Status("OK")
}

// foundingWords returns the name and the password that the words after RAFT FOUND give; ok is false
// if they are wrong.
func foundingWords(words [][]byte) (given [][]byte, ok bool) {
	if len(words) == 3 && is(words[0], "auth") {
		return words[1:], true
	}
	return nil, len(words) == 0
}

func raftFound(s *session, _ *commands.Spec, args [][]byte) {
	if _, ok := foundingWords(args[2:]); !ok {
		s.fail(subcommandSyntax(args))
		return
	}
	cluster, err := s.srv.backend.Found()
	if err != nil {
		s.fail(err)
		return
	}
	s.srv.log.Info("client asked for the founding of the cluster", "client", s.addr, "cluster",
		cluster)
	s.w.BulkString(cluster)
}

func raftAdd(s *session, _ *commands.Spec, args [][]byte) {
	s.change(MemberChange{Kind: membership.Add, ID: string(args[2]), PeerAddr: string(args[3])})
}

func raftRemove(s *session, _ *commands.Spec, args [][]byte) {
	s.change(MemberChange{Kind: membership.Remove, ID: string(args[2])})
}

func raftPromote(s *session, _ *commands.Spec, args [][]byte) {
	s.change(MemberChange{Kind: membership.Promote, ID: string(args[2])})
}

// raftScripts replies with one map per script.
func raftScripts(s *session, _ *commands.Spec, _ [][]byte) {
	verdicts := s.srv.backend.ScriptVerdicts()
	s.w.Array(len(verdicts))
	for _, v := range verdicts {
		state := "refused"
		if v.Allowed {
			state = "allowed"
		}
		s.pairs([]pair{{"id", v.ID}, {"state", state}, {"took-ms", v.TookMs}})
	}
}

func raftAllowScript(s *session, _ *commands.Spec, args [][]byte) {
	id := string(args[2])
	err := s.share([]setting{{
		words: [][]byte{[]byte(commands.SystemAllowScript), args[2]},
		applied: func(s *Server) bool {
			return !slices.ContainsFunc(s.backend.ScriptVerdicts(),
				func(v commands.ScriptVerdict) bool { return v.ID == id && !v.Allowed })
		},
	}})
	if err != nil {
		s.fail(err)
		return
	}
	s.srv.log.Info("client allowed a script", "client", s.addr, "id", id)
	s.w.Status("OK")
}

func raftSetTime(s *session, _ *commands.Spec, args [][]byte) {
	err := s.share([]setting{{
		words:   [][]byte{[]byte(commands.SettingTime), args[2]},
		applied: func(*Server) bool { return true }, // TIME asks the leader
	}})
	if err != nil {
		s.fail(err)
		return
	}
	s.srv.log.Warn("client set the time of day", "client", s.addr, "unix-time-ms",
		string(args[2]))
	s.w.Status("OK")
}

func raftTransfer(s *session, _ *commands.Spec, args [][]byte) {
	c := MemberChange{Kind: membership.Transfer}
	switch len(args) {
	case 2:
	case 3:
		c.ID = string(args[2])
	default:
		s.fail(subcommandSyntax(args))
		return
	}
	s.change(c)
}

// DropWaiting disconnects all clients that wait for events (subscribers, blocked and tracking
// clients) and rejects later ones with why. A node removed from its cluster receives no more
// events; such clients reconnect elsewhere.
func (s *Server) DropWaiting(why error) {
	s.pubsub.disable(why)
	for _, c := range s.all() {
		if c.subscriptions.Load() > 0 || c.waiter.Load() != nil || c.track.Load() != nil {
			c.dismiss()
		}
	}
}
