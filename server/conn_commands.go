// Connection commands: PING, SELECT, HELLO, AUTH, RESET, QUIT, READONLY and more.

package server

import (
	"iter"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

const sessionFlags = commands.NoScript | commands.Loading | commands.Stale | commands.Fast

var connectionSpecs = []commands.Spec{
	{
		Name: "ping", Kind: commands.Session, Arity: -1, Group: "connection", Since: "1.0.0",
		Flags:  commands.Fast | commands.SubscribeMode | commands.AnyDB,
		Syntax: "[message]", Summary: "Returns PONG, or the given message.", Complexity: "O(1)",
		Handler: pingHandler, Local: &commands.Local{Early: true, Run: serve(ping)},
	},
	{
		Name: "echo", Kind: commands.Session, Arity: 2, Group: "connection", Since: "1.0.0",
		Flags:  commands.Loading | commands.Stale | commands.Fast | commands.AnyDB,
		Syntax: "message", Summary: "Returns the given message.", Complexity: "O(1)",
		Handler: echoHandler,
		Local: &commands.Local{Early: true,
			Run: serve(func(s *session, _ *commands.Spec, args [][]byte) {
				s.w.Bulk(args[1])
			})},
	},
	{
		Name: "select", Kind: commands.Session, Arity: 2, Group: "connection", Since: "1.0.0",
		Flags:  commands.Loading | commands.Stale | commands.Fast | commands.SelectsDB,
		Syntax: "index:integer", Summary: "Changes the selected database of the connection.",
		Complexity: "O(1)",
		Handler:    selectHandler, Local: &commands.Local{Early: true, Run: serve(selectDB)},
		Ran: func(c commands.Client, args [][]byte) {
			if db, err := commands.ParseDB(args[1]); err == nil {
				c.(*session).db = db
			}
		},
	},
	{
		Name: "hello", Kind: commands.Session, Arity: -1, Group: "connection", Since: "6.0.0",
		Flags:   sessionFlags | commands.NoAuth | commands.AllowBusy,
		Syntax:  "[protover:integer [AUTH username password] [SETNAME clientname]]",
		Summary: "Starts a session: sets the protocol, the user and the name.", Complexity: "O(1)",
		Secret: helloSecret, Audit: auditTries, Local: &commands.Local{Run: serve(hello)},
	},
	{
		Name: "auth", Kind: commands.Session, Arity: -2, Group: "connection", Since: "1.0.0",
		Flags:  sessionFlags | commands.NoAuth | commands.AllowBusy,
		Syntax: "[username] password", Summary: "Authenticates the connection.",
		Complexity: "O(1)",
		Secret:     commands.SecretFrom(1),
		Audit:      auditTries,
		Local:      &commands.Local{Run: serve(auth)},
	},
	{
		Name: "quit", Kind: commands.Session, Arity: -1, Group: "connection", Since: "1.0.0",
		Flags: sessionFlags | commands.NoAuth | commands.AllowBusy | commands.SubscribeMode |
			commands.NotQueued,
		Summary: "Closes the connection.", Complexity: "O(1)",
		Local: &commands.Local{Run: serve(func(s *session, _ *commands.Spec, _ [][]byte) {
			s.hearOut()
			s.w.Status("OK")
			s.quit = true
			s.leaves.Store(true)
		})},
	},
	{
		Name: "reset", Kind: commands.Session, Arity: 1, Group: "connection", Since: "6.2.0",
		Flags: sessionFlags | commands.NoAuth | commands.AllowBusy | commands.SubscribeMode |
			commands.NotQueued,
		Summary: "Resets the connection to its initial state.", Complexity: "O(1)",
		Local: &commands.Local{Run: serve(reset)},
	},
	inCluster(commands.Spec{
		Name: "readonly", Kind: commands.Session, Arity: 1, Group: "cluster", Since: "3.0.0",
		Flags:         commands.Loading | commands.Stale | commands.Fast,
		OwnCategories: "connection",
		Summary:       "Allows reads from this node's own state, which may be stale.",
		Complexity:    "O(1)",
		Local: &commands.Local{Run: serve(func(s *session, _ *commands.Spec, _ [][]byte) {
			s.stale = true
			s.w.Status("OK")
		})},
	}),
	inCluster(commands.Spec{
		Name: "readwrite", Kind: commands.Session, Arity: 1, Group: "cluster", Since: "3.0.0",
		Flags:         commands.Loading | commands.Stale | commands.Fast,
		OwnCategories: "connection", Summary: "Makes reads linearizable again, as is the default.",
		Complexity: "O(1)",
		Local: &commands.Local{Run: serve(func(s *session, _ *commands.Spec, _ [][]byte) {
			s.stale = false
			s.w.Status("OK")
		})},
	}),
	inCluster(commands.Spec{
		Name: "asking", Kind: commands.Session, Arity: 1, Group: "cluster", Since: "3.0.0",
		Flags:         commands.Fast,
		OwnCategories: "connection",
		Summary:       "Accepts the command without effect, since slots never migrate.",
		Complexity:    "O(1)",
		Local: &commands.Local{Early: true,
			Run: serve(func(s *session, _ *commands.Spec, _ [][]byte) { s.w.Status("OK") })},
	}),
	{
		Name: "time", Kind: commands.Read, Arity: 1, Group: "server", Since: "2.6.0",
		Flags: commands.Loading | commands.Stale | commands.Fast | commands.AnyDB,
		Summary: "Returns the time of day of the cluster, later at each call, in seconds and " +
			"microseconds.", Complexity: "O(1)",
		Handler: timeHandler,
	},
}

// helloOption is an option of HELLO with its words. It is empty for a word that is no option.
type helloOption [][]byte

// authenticates reports whether the option is AUTH, and no other.
func (o helloOption) authenticates() bool { return len(o) == 3 }

// helloOptions returns the options of HELLO in order, each with the index where it begins. A word
// that is no option is the last one.
func helloOptions(args [][]byte) iter.Seq2[int, helloOption] {
	return func(yield func(int, helloOption) bool) {
		for i := 2; i < len(args); {
			var option helloOption
			switch left := args[i:]; {
			case is(left[0], "auth") && len(left) > 2:
				option = left[:3]
			case is(left[0], "setname") && len(left) > 1:
				option = left[:2]
			}
			if !yield(i, option) || option == nil {
				return
			}
			i += len(option)
		}
	}
}

// helloSecret hides the users and passwords of HELLO, and all that is no option: of a call without
// a version, or a password with a space, that may be one.
func helloSecret(args [][]byte, hide func(i int)) {
	if len(args) > 1 {
		if _, version := commands.ParseInt(args[1]); !version {
			commands.SecretFrom(1)(args, hide)
			return
		}
	}
	for at, option := range helloOptions(args) {
		switch {
		case option == nil:
			commands.SecretFrom(at)(args, hide)
		case option.authenticates():
			hide(at + 1)
			hide(at + 2)
		}
	}
}

func pingHandler(x *commands.Call) error {
	switch len(x.Args) {
	case 1:
		x.Out.Status("PONG")
	case 2:
		x.Out.Bulk(x.Args[1])
	default:
		return x.Spec.ArityError()
	}
	return nil
}

func ping(s *session, spec *commands.Spec, args [][]byte) {
	if len(args) > 2 {
		s.fail(spec.ArityError())
		return
	}
	if s.proto == 2 && s.subscribed() {
		s.w.Array(2)
		s.w.BulkString("pong")
		if len(args) == 2 {
			s.w.Bulk(args[1])
		} else {
			s.w.BulkString("")
		}
		return
	}
	if len(args) == 2 {
		s.w.Bulk(args[1])
		return
	}
	s.w.Status("PONG")
}

func echoHandler(x *commands.Call) error {
	x.Out.Bulk(x.Args[1])
	return nil
}

func timeHandler(x *commands.Call) error {
	us := x.TimeUs()
	x.Out.Array(2)
	x.Out.BulkString(formatInt(us / 1e6))
	x.Out.BulkString(formatInt(us % 1e6))
	return nil
}

// selectHandler changes the database for the rest of a transaction or script. After a transaction
// the session follows.
func selectHandler(x *commands.Call) error {
	db, err := commands.ParseDB(x.Args[1])
	if err != nil {
		return err
	}
	x.Tx.DB = db
	x.Out.Status("OK")
	return nil
}

func selectDB(s *session, _ *commands.Spec, args [][]byte) {
	db, err := commands.ParseDB(args[1])
	if err != nil {
		s.fail(err)
		return
	}
	s.db = db
	s.w.Status("OK")
}

// maxGreeting is how many arguments HELLO has at the most: each AUTH asks the cluster.
const maxGreeting = 256

// hello keeps the protocol if an option is invalid. Each user or name takes effect immediately, as
// in Redis 7.0.
func hello(s *session, _ *commands.Spec, args [][]byte) {
	proto := s.proto
	if len(args) > 1 {
		n, ok := commands.ParseInt(args[1])
		if !ok {
			s.fail(commands.Error("ERR Protocol version is not an integer or out of range"))
			return
		}
		if n != 2 && n != 3 {
			s.fail(commands.Error("NOPROTO unsupported protocol version"))
			return
		}
		proto = int(n)
	}
	if len(args) > maxGreeting {
		s.fail(commands.ErrCommandWork)
		return
	}
	for at, option := range helloOptions(args) {
		if err := s.greetAs(option, args[at], args[0]); err != nil {
			s.fail(err)
			return
		}
	}
	if err := s.mayGreet(); err != nil {
		s.fail(err)
		return
	}
	s.setProto(proto)
	s.greet()
}

// greetAs does what an option of HELLO says, and returns the error for a word that is none. command
// is HELLO as the client wrote it.
func (s *session) greetAs(option helloOption, word, command []byte) error {
	switch {
	case option == nil:
		return commands.Errorf("ERR Syntax error in HELLO option '%s'", resp.Shown(word))
	case option.authenticates():
		return s.authenticate(command, option[1:])
	}
	if err := checkName(clientNames, option[1]); err != nil {
		return err
	}
	s.name = string(option[1])
	return nil
}

// mayGreet returns the error for HELLO of a client that must authenticate. While the node does not
// know the users, it greets clients on its machine, which servedUnknown serves.
func (s *session) mayGreet() error {
	if users := s.srv.users(); (users == nil || users == UsersAwaited) && near(s.conn) {
		return nil
	}
	users, err := s.knownUsers()
	if err != nil {
		return err
	}
	_, err = users.of(s.user.Load())
	if err == commands.ErrNoAuth {
		return errHelloNoAuth
	}
	return err
}

func (s *session) greet() {
	role := "master"
	if !s.srv.presentsMaster(s.srv.backend.Role()) {
		role = "replica"
	}
	fields, zone := 7, s.srv.cfg.Zone
	if zone != "" {
		fields++
	}
	s.w.Map(fields)
	s.w.BulkString("server")
	s.w.BulkString("redis")
	s.w.BulkString("version")
	s.w.BulkString(s.srv.cfg.RedisVersion)
	s.w.BulkString("proto")
	s.w.Int(int64(s.proto))
	s.w.BulkString("id")
	s.w.Int(s.clientID())
	s.w.BulkString("mode")
	s.w.BulkString(s.srv.mode())
	s.w.BulkString("role")
	s.w.BulkString(role)
	s.w.BulkString("modules")
	s.w.Array(0)
	if zone != "" { // as in Valkey 8.1
		s.w.BulkString("availability_zone")
		s.w.BulkString(zone)
	}
}

const (
	// clientNames is what errors call the names of connections.
	clientNames = "Client names"
	// maxName bounds the bytes of the name of a connection or library: CLIENT LIST shows them all.
	maxName = 1024
)

// checkName returns why a name, which errors call what, is refused: Redis's reason, or its length.
func checkName(what string, name []byte) error {
	for _, c := range name {
		if c < '!' || c > '~' {
			return commands.Errorf("ERR %s cannot contain spaces, newlines or special characters.",
				what)
		}
	}
	if len(name) > maxName {
		return commands.Errorf("ERR %s cannot be longer than %d bytes.", what, maxName)
	}
	return nil
}

func reset(s *session, _ *commands.Spec, _ [][]byte) {
	s.hearOut()
	for kind := range s.subs {
		for name := range s.subs[kind] {
			s.unsubscribe(subKind(kind), name)
		}
	}
	s.tx, s.caching = transaction{}, false
	s.srv.tracking.stop(s)
	s.srv.observe()
	s.endMonitor()
	s.redirects, s.leaderWaitMs = false, -1
	// noEvict stays, as in Redis 7.0.
	s.db, s.name, s.stale, s.muted, s.noTouch = 0, "", false, false, false
	s.setUser(nil)
	s.stand()
	s.tryAgain()
	s.setProto(2)
	s.w.Status("RESET")
}
