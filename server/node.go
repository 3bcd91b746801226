package server

// This file declares the commands about the node, and holds ROLE and WAIT.

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

const databases = keyspace.Databases

// onlineContact is how lately the leader must have heard from a member to count it as connected. It asks all of them once a second.
const onlineContact = 3 * time.Second

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
		if m.ID != st.NodeID && m.Connected && m.LastContact >= 0 && m.LastContact < onlineContact {
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

// assured is how many voters other than the leader hold every write that was answered: with the leader they are a majority. It is one less for an
// even number of voters: it is true then of writes from before one of them came, and where one that held them has left.
func assured(voters int) int64 { return int64(max(voters-1, 0) / 2) }

// wait answers at once where enough voters hold the writes; else it asks the leader again until they do or the time is over.
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
	voters, _ := st.voters()
	q := holdersQuestion{s: s, others: assured(voters)}
	if timeoutMs > 0 {
		q.until = time.Now().Add(time.Duration(min(timeoutMs, 1<<40)) * time.Millisecond)
	}
	own, others = q.ask(firstAsk)
	if own >= local && others >= want || s.inExec {
		return own, others, true
	}
	if s.send() != nil { // the client sees what was answered while it waits
		s.quit = true
		return 0, 0, false
	}
	for pause := leastPause; (own < local || others < want) && !q.late(); pause = min(2*pause, mostPause) {
		if !s.linger(q.left(pause)) {
			s.quit = true
			return 0, 0, false
		}
		own, others = q.ask(laterAsk)
	}
	return own, others, true
}

const (
	// firstAsk and laterAsk bound one question to the leader: the first comes before the answers to earlier commands are sent, and all of
	// them before it is seen that the client has gone.
	firstAsk = 50 * time.Millisecond
	laterAsk = time.Second
	// leastPause and mostPause are between questions. Followers hear within some 10 ms that what they hold is committed.
	leastPause = 2 * time.Millisecond
	mostPause  = 20 * time.Millisecond
)

// holdersQuestion is what WAIT asks the leader, until it is answered well enough.
type holdersQuestion struct {
	s      *session
	until  time.Time // zero: without end
	index  uint64    // that is to be held: of the first answer; 0: none came yet
	others int64     // voters other than the leader that hold it; before the first answer by what this node knows of the members, which may be old
}

func (q *holdersQuestion) late() bool { return !q.until.IsZero() && !time.Now().Before(q.until) }

// left is a pause, or what is left of the time where that is less.
func (q *holdersQuestion) left(pause time.Duration) time.Duration {
	if q.until.IsZero() {
		return pause
	}
	return max(min(pause, time.Until(q.until)), 0)
}

// ask asks once, within a limit. Where the leader does not answer it gives what was known before.
func (q *holdersQuestion) ask(limit time.Duration) (own, others int64) {
	backend := q.s.srv.backend
	ctx, cancel := context.WithTimeout(q.s.srv.ctx, max(q.left(limit), leastPause))
	defer cancel()
	h, err := backend.Holders(ctx)
	if err == nil {
		if q.index == 0 {
			q.index, q.others = h.Index, assured(len(h.Others)+1)
		}
		known := int64(0)
		for _, index := range h.Others {
			if index >= q.index {
				known++
			}
		}
		q.others = max(q.others, known)
	}
	if q.index > 0 && backend.Status().Applied >= q.index {
		own = 1
	}
	return own, q.others
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
