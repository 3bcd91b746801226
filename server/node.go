package server

// This file declares the commands about the node, and holds ROLE and WAIT.

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

const databases = keyspace.Databases

// onlineContact is how lately the leader must have heard from a member to count it as connected.
const onlineContact = 5 * time.Second

var serverSpecs = []commands.Spec{
	{
		Name: "info", Kind: commands.Session, Arity: -1, Group: "server", Since: "1.0.0", Flags: commands.Loading | commands.Stale,
		Categories: "dangerous", Syntax: "[section [section ...]]", Summary: "Tells about the node and its cluster.", Complexity: "O(1)",
		Local: local{run: info},
	},
	{
		Name: "role", Kind: commands.Session, Arity: 1, Group: "server", Since: "2.8.12",
		Flags: commands.NoScript | commands.Loading | commands.Stale | commands.Fast, Categories: "admin dangerous",
		Summary: "Tells the node's part in replication.", Complexity: "O(1)",
		Local: local{run: role},
	},
	{
		Name: "wait", Kind: commands.Session, Arity: 3, Group: "generic", Since: "3.0.0", Flags: commands.NoScript, Categories: "connection",
		Syntax: "numreplicas timeout", Summary: "Waits until so many other voters hold the connection's writes. A quorum holds every write that was answered.",
		Complexity: "O(1)", Local: local{run: wait},
	},
	{
		Name: "waitaof", Kind: commands.Session, Arity: 4, Group: "generic", Since: "7.2.0", Flags: commands.NoScript, Categories: "connection",
		Syntax: "numlocal numreplicas timeout", Summary: "Waits until this node, and so many other voters, hold the connection's writes on disk.",
		Complexity: "O(1)", Local: local{run: waitAOF},
	},
	{
		Name: "config", Kind: commands.Session, Arity: -2, Group: "server", Since: "2.0.0",
		Summary: "Reads and changes parameters of the node.", Complexity: "That of the subcommand",
		Subcommands: []commands.Spec{
			configSub("get", -3, "parameter [parameter ...]", "Reads parameters by name or pattern.", configGet),
			configSub("set", -4, "parameter value [parameter value ...]", "Changes parameters until the node stops.", configSet),
			configSub("resetstat", 2, "", "Sets the counters of INFO to zero.", configResetStat),
			configSub("rewrite", 2, "", "Refused: there is no configuration file.", configRewrite),
			helpSpec("CONFIG", "5.0.0", "server",
				"GET <pattern>", "    Return parameters matching the glob-like <pattern> and their values.",
				"SET <directive> <value>", "    Set the configuration <directive> to <value>.",
				"RESETSTAT", "    Reset statistics reported by the INFO command.",
				"REWRITE", "    Rewrite the configuration file."),
		},
	},
}

func configSub(name string, arity int, syntax, summary string, run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Group: "server", Since: "2.0.0",
		Flags:  commands.NoScript | commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of parameters", Local: local{run: run},
	}
}

// online gives the members that follow this leader.
func (st *Status) online() []Member {
	var members []Member
	for _, m := range st.Members {
		if m.ID != st.NodeID && m.LastContact >= 0 && m.LastContact < onlineContact {
			members = append(members, m)
		}
	}
	return members
}

// clientHostPort is the member's address for clients as far as it is known, its peer address otherwise.
func (m *Member) clientHostPort() (host, port string) {
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
	st := s.srv.backend.Status()
	if st.Role == "leader" {
		online := st.online()
		s.w.Array(3)
		s.w.BulkString("master")
		s.w.Int(int64(st.Commit))
		s.w.Array(len(online))
		for i := range online {
			host, port := online[i].clientHostPort()
			s.w.Array(3)
			s.w.BulkString(host)
			s.w.BulkString(port)
			s.w.BulkString(formatInt(int64(online[i].Match)))
		}
		return
	}
	host, port := hostPort(st.LeaderAddr)
	n, _ := commands.ParseInt([]byte(port))
	state := "connected"
	if st.LeaderID == "" {
		state = "connect"
	}
	s.w.Array(5)
	s.w.BulkString("slave")
	s.w.BulkString(host)
	s.w.Int(n)
	s.w.BulkString(state)
	s.w.Int(int64(st.Applied))
}

// holders is how many voters other than the leader hold every entry up to index. A write that was answered is held by a
// quorum, whoever is asked; only the leader knows of more.
func (st *Status) holders(index uint64) int {
	voters, known := 0, 0
	for _, m := range st.Members {
		if !m.Voter {
			continue
		}
		voters++
		if m.ID != st.NodeID && m.Match >= index && m.Match > 0 {
			known++
		}
	}
	return max(known, voters/2)
}

// wait answers at once where enough voters hold the writes; else it looks again until they do or the time is over.
func wait(s *session, _ *commands.Spec, args [][]byte) {
	want, ok := commands.ParseInt(args[1])
	if !ok {
		s.fail(commands.ErrNotInteger)
		return
	}
	if _, others, ok := s.waitHolders(0, want, args[2]); ok {
		s.w.Int(others)
	}
}

// waitAOF is WAIT for logs on disk, which Raft's all are, this node's own among them.
func waitAOF(s *session, _ *commands.Spec, args [][]byte) {
	local, ok := commands.ParseInt(args[1])
	if !ok {
		s.fail(commands.ErrNotInteger)
		return
	}
	if local < 0 || local > 1 {
		s.fail(commands.Error("ERR value is out of range, value must between 0 and 1"))
		return
	}
	want, ok := commands.ParseInt(args[2])
	if !ok || want < 0 {
		s.fail(commands.ErrNotPositive)
		return
	}
	if own, others, ok := s.waitHolders(local, want, args[3]); ok {
		s.w.Array(2)
		s.w.Int(own)
		s.w.Int(others)
	}
}

// waitHolders waits until so many other voters hold what was written, and this node where local is 1, or the time is over, which
// is given in ms. Where ok is false there is nothing more to answer.
func (s *session) waitHolders(local, want int64, timeout []byte) (own, others int64, ok bool) {
	timeoutMs, ok := commands.ParseInt(timeout)
	switch {
	case !ok:
		s.fail(commands.Error("ERR timeout is not an integer or out of range"))
		return 0, 0, false
	case timeoutMs < 0:
		s.fail(commands.Error("ERR timeout is negative"))
		return 0, 0, false
	}
	st := s.srv.backend.Status()
	index := st.Commit
	enough := func() bool {
		own, others = int64(number(st.LastLog >= index)), int64(st.holders(index))
		return own >= local && others >= want
	}
	start := time.Now()
	if !enough() && !s.inExec && s.send() != nil { // the client sees what was answered while it waits
		s.quit = true
		return 0, 0, false
	}
	for !enough() && !s.inExec {
		pause := 10 * time.Millisecond
		if timeoutMs > 0 {
			left := time.Duration(min(timeoutMs, 1<<40))*time.Millisecond - time.Since(start)
			if left <= 0 {
				break
			}
			pause = min(pause, left)
		}
		if !s.linger(pause) {
			s.quit = true
			return 0, 0, false
		}
		st = s.srv.backend.Status()
	}
	return own, others, true
}

// maxAhead bounds what linger keeps of later commands; with more the client's end is noticed later.
const maxAhead = 64 << 10

// lookAgain is how often who waits in the middle of a command looks around when the connection cannot be read.
const lookAgain = 50 * time.Millisecond

// linger lets time pass in the middle of a command. It returns false when the client, or the server, has gone away.
func (s *session) linger(d time.Duration) bool {
	if s.srv.closing.Load() || s.killed.Load() {
		return false
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(d))
	err := s.watchClient(d)
	_ = s.conn.SetReadDeadline(time.Time{})
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

// watchClient reads the connection up to its deadline, which is d away, to learn whether the client is there. What comes is kept; with too
// much of that it looks again after a while.
func (s *session) watchClient(d time.Duration) error {
	if len(s.in.ahead) < maxAhead {
		return s.in.peek()
	}
	t := time.NewTimer(min(d, lookAgain))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.srv.ctx.Done():
		return s.srv.ctx.Err()
	}
}
