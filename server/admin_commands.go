// Commands that act on the node: SHUTDOWN, FAILOVER, SAVE and its family, and MODULE, whose list
// is empty.

package server

import (
	"net"
	"strconv"

	"github.com/coordd/coordd/commands"
)

var adminSpecs = []commands.Spec{
	{
		Name: "shutdown", Kind: commands.Admin, Arity: -1, Group: "server", Since: "1.0.0",
		Flags: commands.NoScript | commands.Loading | commands.Stale | commands.NoMulti |
			commands.AllowBusy,
		Syntax:  "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
		Summary: "Stops this node, which transfers leadership first.", Complexity: "O(1)",
		Audit: commands.AuditArgs,
		Local: &commands.Local{Run: serve(shutdown)},
	},
	{
		Name: "failover", Kind: commands.Admin, Arity: -1, Group: "server", Since: "6.2.0",
		Flags:      commands.NoScript | commands.Stale,
		Syntax:     "[TO host port:integer [FORCE]] [ABORT] [TIMEOUT milliseconds:integer]",
		Summary:    "Transfers leadership to the most up-to-date voter, or to a given node.",
		Complexity: "O(1)", Audit: commands.AuditArgs,
		Local: &commands.Local{Run: serve(failover)},
	},
	{
		Name: "save", Kind: commands.Admin, Arity: 1, Group: "server", Since: "1.0.0",
		Flags:      commands.NoScript | commands.NoMulti | commands.NoAsyncLoading,
		Summary:    "Writes a snapshot of this node's state and waits until it is complete.",
		Complexity: "O(N) where N is the number of keys", Audit: commands.AuditName,
		Local: &commands.Local{Run: serve(save)},
	},
	{
		Name: "bgsave", Kind: commands.Admin, Arity: -1, Group: "server", Since: "1.0.0",
		Flags:   commands.NoScript | commands.NoAsyncLoading,
		Syntax:  "[SCHEDULE]",
		Summary: "Starts a snapshot of this node's state.", Complexity: "O(1)",
		Audit: commands.AuditArgs,
		Local: &commands.Local{Run: serve(bgsave)},
	},
	{
		Name: "bgrewriteaof", Kind: commands.Admin, Arity: 1, Group: "server", Since: "1.0.0",
		Flags:      commands.NoScript | commands.NoAsyncLoading,
		Summary:    "Starts a snapshot of this node's state, after which the log is compacted.",
		Complexity: "O(1)", Audit: commands.AuditName,
		Local: &commands.Local{Run: serve(bgrewrite)},
	},
	{
		Name: "lastsave", Kind: commands.Session, Arity: 1, Group: "server", Since: "1.0.0",
		Flags:         commands.Loading | commands.Stale | commands.Fast | commands.Shows,
		OwnCategories: "admin dangerous",
		Summary: "Returns the time at which the newest snapshot of this node started, or the " +
			"node itself if there is none.", Complexity: "O(1)",
		Local: &commands.Local{Run: serve(lastSave)},
	},
	{
		Name: "module", Kind: commands.Session, Arity: -2, Group: "server", Since: "4.0.0",
		Summary: "Reports about modules, of which there are none.", Complexity: "O(1)",
		Subcommands: []commands.Spec{
			{
				Name: "list", Kind: commands.Admin, Arity: 2, Group: "server", Since: "4.0.0",
				Flags:   commands.NoScript | commands.Shows,
				Summary: "Returns an empty list, since there are no modules.", Complexity: "O(1)",
				Local: &commands.Local{Early: true,
					Run: serve(func(s *session, _ *commands.Spec, _ [][]byte) {
						s.w.Array(0)
					})},
			},
			helpSpec("MODULE", "5.0.0", "server", "LIST", "    Return a list of loaded modules."),
		},
	},
}

const (
	errNoShutdown    commands.Error = "ERR No shutdown in progress."
	errNoFailover    commands.Error = "ERR No failover in progress."
	errFailover      commands.Error = "ERR FAILOVER already in progress."
	errFollower      commands.Error = "ERR FAILOVER is not valid when server is a replica."
	errNoReplicas    commands.Error = "ERR FAILOVER requires connected replicas."
	errFailoverForce commands.Error = "ERR FAILOVER with force option requires both a timeout " +
		"and target HOST and IP."
	errNotReplica commands.Error = "ERR FAILOVER target HOST and PORT is not a replica."
	errNotOnline  commands.Error = "ERR FAILOVER target replica is not online."
	errSaving     commands.Error = "ERR Background save already in progress"
	errRewriting  commands.Error = "ERR Background append only file rewriting already in " +
		"progress"
)

// shutdown stops the node. Every acknowledged write is on disk, so SAVE and NOSAVE are equal; as
// in Redis, there is no reply.
func shutdown(s *session, _ *commands.Spec, args [][]byte) {
	words := map[string]bool{}
	for _, a := range args[1:] {
		word := lowerWord(a)
		switch word {
		case "nosave", "save", "now", "force", "abort":
			words[word] = true
		default:
			s.fail(commands.ErrSyntax)
			return
		}
	}
	switch {
	case words["save"] && words["nosave"], words["abort"] && len(words) > 1:
		s.fail(commands.ErrSyntax)
	case words["abort"]:
		s.fail(errNoShutdown)
	default:
		s.srv.log.Info("client requested shutdown", "client", s.addr)
		s.quit = true
		s.srv.backend.Stop()
	}
}

// failoverCall holds the arguments of FAILOVER.
type failoverCall struct {
	abort, force bool
	timed        bool
	host, port   string // empty: any node
}

func parseFailover(args [][]byte) (c failoverCall, err error) {
	for i := 1; i < len(args); i++ {
		left := len(args) - 1 - i
		switch {
		case is(args[i], "abort") && len(args) == 2:
			c.abort = true
		case is(args[i], "timeout") && left >= 1 && !c.timed:
			ms, ok := commands.ParseInt(args[i+1])
			if !ok {
				return c, commands.ErrNotInteger
			}
			if ms <= 0 {
				return c, commands.Error("ERR FAILOVER timeout must be greater than 0")
			}
			c.timed = true
			i++
		case is(args[i], "to") && left >= 2 && c.host == "":
			port, ok := commands.ParseInt(args[i+2])
			if !ok {
				return c, commands.ErrNotInteger
			}
			c.host, c.port = string(args[i+1]), strconv.FormatInt(port, 10)
			i += 2
		case is(args[i], "force") && !c.force:
			c.force = true
		default:
			return c, commands.ErrSyntax
		}
	}
	return c, nil
}

// failover transfers leadership and replies when it is done. The time is bounded, whatever
// TIMEOUT says. FORCE has no effect: only a node with every entry can lead.
func failover(s *session, _ *commands.Spec, args [][]byte) {
	c, err := parseFailover(args)
	switch {
	case err != nil:
		s.fail(err)
		return
	case c.abort:
		s.fail(errNoFailover) // who was asked to stand for election cannot be stopped
		return
	}
	st := s.srv.backend.Status()
	id, err := st.successor(&c)
	if err != nil {
		s.fail(err)
		return
	}
	if !s.srv.failingOver.CompareAndSwap(false, true) {
		s.fail(errFailover)
		return
	}
	defer s.srv.failingOver.Store(false)
	if err := s.srv.backend.TransferLeadership(id); err != nil {
		s.fail(err)
		return
	}
	s.w.Status("OK")
}

// successor returns the id of the member to lead; "" means the most up-to-date one.
func (st *Status) successor(c *failoverCall) (id string, err error) {
	if st.Role != "leader" {
		return "", errFollower
	}
	online := st.online()
	if len(online) == 0 {
		return "", errNoReplicas
	}
	if c.force && (!c.timed || c.host == "") {
		return "", errFailoverForce
	}
	if c.host == "" {
		return "", nil
	}
	to := net.JoinHostPort(c.host, c.port)
	for _, m := range online {
		if isAt(&m, to) {
			return m.ID, nil
		}
	}
	for _, m := range st.Members {
		if m.ID != st.ID && isAt(&m, to) {
			return "", errNotOnline
		}
	}
	return "", errNotReplica
}

func save(s *session, _ *commands.Spec, _ [][]byte) {
	if !s.srv.saving.begin() {
		s.fail(errSaving)
		return
	}
	if err := s.srv.snapshot(); err != nil {
		s.fail(commands.Errorf("ERR snapshot failed: %v", err))
		return
	}
	s.w.Status("OK")
}

func bgsave(s *session, _ *commands.Spec, args [][]byte) {
	schedule := len(args) == 2 && is(args[1], "schedule")
	switch {
	case len(args) > 1 && !schedule:
		s.fail(commands.ErrSyntax)
	case s.srv.snapshotLater():
		s.w.Status("Background saving started")
	case schedule: // the one in progress holds every acknowledged write
		s.w.Status("Background saving scheduled")
	default:
		s.fail(errSaving)
	}
}

func bgrewrite(s *session, _ *commands.Spec, _ [][]byte) {
	if !s.srv.snapshotLater() {
		s.fail(errRewriting)
		return
	}
	s.w.Status("Background append only file rewriting started")
}

func lastSave(s *session, _ *commands.Spec, _ [][]byte) {
	st := s.srv.backend.Status()
	s.w.Int(s.srv.lastSave(&st))
}

// lastSave returns the time of the newest snapshot, or that of the start, in seconds since 1970.
func (s *Server) lastSave(st *Status) int64 {
	if st.Snapshot.Time.IsZero() {
		return s.started.Unix()
	}
	return st.Snapshot.Time.Unix()
}
