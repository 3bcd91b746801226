// The user of a connection: AUTH, and what a user may do. This node decides about the commands that
// it answers itself and about those that it queues for EXEC. The machine decides about all others,
// when it runs them.

package server

import (
	"bytes"
	"context"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/keyspace"
)

// Users are the users as this node has applied them.
type Users struct {
	*acl.Users
	Level   uint64            // feature level of the state: below LevelSecond nothing changes them
	Changed keyspace.Revision // the newest change; 0: nobody has changed them yet
	// Open: a connection that has not authenticated may do everything.
	Open bool
}

// UsersAwaited stands for the users that this node is about to give a new cluster. Until then
// nobody may do anything.
var UsersAwaited = &Users{}

// identity is the user that a session has authenticated as: its name, and the revision that created
// it, since a later user of that name is another one.
type identity struct {
	name    []byte
	created uint64
}

// is reports whether two identities, of which each may be nil, are one user's.
func (id *identity) is(o *identity) bool {
	return id != nil && o != nil && id.created == o.created && bytes.Equal(id.name, o.name)
}

const (
	errHelloNoAuth commands.Error = "NOAUTH HELLO must be called with the client already " +
		"authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to " +
		"authenticate the client and select the RESP protocol version at the same time"
	errUsersUnknown commands.Error = "LOADING the command did not run: this node does not know " +
		"the users yet"
	errUsersLevel commands.Error = "users need feature level 3, which the cluster has once every " +
		"node runs coordd 0.2"
	errUsersAwaited commands.Error = "LOADING the command did not run: the cluster does not have " +
		"its first users yet"
)

// userName is the session's user as others see it.
func (s *session) userName() string {
	if id := s.user.Load(); id != nil {
		return string(id.name)
	}
	return userDefault
}

// userID is the session's user as requests carry it.
func (s *session) userID() commands.UserID {
	if id := s.user.Load(); id != nil {
		return commands.UserID{Name: id.name, Created: id.created}
	}
	return commands.UserID{}
}

// of returns the user of an identity, or an error if there is none: it was removed, or the default
// user needs a password.
func (v *Users) of(id *identity) (*acl.User, error) {
	switch {
	case v == UsersAwaited:
		return nil, errUsersAwaited
	case id == nil:
		if u := v.Default(); u.On() && u.NoPass() {
			return u, nil
		}
		return nil, commands.ErrNoAuth
	}
	u := v.Get(id.name)
	if u == nil || u.Created() != id.created {
		return nil, commands.ErrUserGone
	}
	return u, nil
}

// admit returns the error for a command that the session's user may not run, as far as this node
// decides. In EXEC these are the commands of the session.
func (s *session) admit(spec *commands.Spec, args [][]byte) error {
	if first := s.founding(spec); first != nil {
		return s.admitFounding(first, spec, args)
	}
	if err := s.authenticateByCertificate(); err != nil && !spec.Has(commands.NoAuth) {
		return err
	}
	users, id := s.srv.users(), s.user.Load()
	s.admittedBy = users
	switch {
	case users != nil && users.Open && id == nil, spec.Has(commands.NoAuth):
		return nil
	case users == UsersAwaited && s.showsUnknown(spec):
		return nil
	case users == nil:
		if s.servedUnknown(spec) {
			return nil
		}
		if !s.awaitUsers() {
			return errUsersUnknown
		}
		return s.admit(spec, args)
	}
	u, err := users.of(id)
	if err == commands.ErrUserGone {
		s.deny(refusedCall{reason: acl.DeniedCommand.String(), context: s.context(),
			object: spec.FullName(), user: s.userName()}, 1)
	}
	if err != nil {
		return err
	}
	if decidedByMachine(spec) && !s.tx.open && !s.inExec {
		return nil
	}
	d, denied, _ := spec.Check(u, args)
	if !denied {
		return nil
	}
	s.deny(refusedCall{reason: d.Reason.String(), context: s.context(), object: d.Object,
		user: s.userName()}, 1)
	if s.inExec {
		return commands.DeniedInExec(d)
	}
	return commands.DeniedError(d)
}

// founding returns the first users of the cluster that a command could found, nil if it could not.
func (s *session) founding(spec *commands.Spec) *acl.Users {
	if !spec.Has(commands.Founding) {
		return nil
	}
	return s.srv.backend.FoundingUsers()
}

// admitFounding is admit for RAFT FOUND before there is a cluster: it asks the first users of that.
// Without a password, protected mode decides, as it would afterwards.
func (s *session) admitFounding(first *acl.Users, spec *commands.Spec, args [][]byte) error {
	given, _ := foundingWords(args[2:])
	err := s.mayFound(first, spec, args, given)
	if given != nil && err != nil {
		s.auditTry(spec.FullName(), given, err)
	}
	return err
}

func (s *session) mayFound(first *acl.Users, spec *commands.Spec, args, given [][]byte) error {
	if s.srv.config.protected.Load() && outside(s.conn) && first.Default().NoPass() {
		return errProtected
	}
	name, hash := []byte(userDefault), []byte(nil)
	if given != nil {
		name, hash = given[0], []byte(acl.Hash(given[1]))
	}
	key := s.srv.guessing.guesser(s.conn, name)
	if !s.waitToGuess(key) {
		s.quit = true
		return commands.ErrNoAuth
	}
	u := first.Get(name)
	known := u != nil && u.Accepts(hash)
	s.srv.guessing.finish(key, !known && given != nil)
	refused := refusedCall{reason: "auth", context: s.context(), object: spec.FullName(),
		user: string(name)}
	switch {
	case !known && given == nil:
		return commands.ErrNoAuth
	case !known:
		s.deny(refused, 1)
		return commands.ErrWrongPass
	}
	d, denied, _ := spec.Check(u, args)
	if !denied {
		return nil
	}
	refused.reason, refused.object = d.Reason.String(), d.Object
	s.deny(refused, 1)
	return commands.DeniedError(d)
}

// mayRun reports whether the session's user may run a command, as far as this node knows.
func (s *session) mayRun(spec *commands.Spec, args [][]byte) bool {
	users, id := s.srv.users(), s.user.Load()
	switch {
	case users == nil:
		return false
	case users.Open && id == nil:
		return true
	}
	u, err := users.of(id)
	if err != nil {
		return false
	}
	_, denied, _ := spec.Check(u, args)
	return !denied
}

// MayRun reports whether a user may run a command, as far as this node knows. Without a name it is
// who has not authenticated.
func (s *Server) MayRun(user string, words ...string) bool {
	users := s.users()
	if users == nil {
		return false
	}
	var u *acl.User
	if user != "" {
		u = users.Get([]byte(user))
	} else if users.Open {
		return true
	} else {
		u, _ = users.of(nil)
	}
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	spec, _ := s.table.Resolve(args)
	if u == nil || spec == nil {
		return false
	}
	_, denied, _ := spec.Check(u, args)
	return !denied
}

// context is where the session denies something, as ACL LOG shows it.
func (s *session) context() string {
	if s.tx.open || s.inExec {
		return "multi"
	}
	return "toplevel"
}

// admitAgain is admit for a command that users of before admitted.
func (s *session) admitAgain(spec *commands.Spec, args [][]byte) error {
	if s.srv.users() == s.admittedBy {
		return nil
	}
	return s.admit(spec, args)
}

// decidedByMachine reports whether the machine runs a command outside of transactions. DEBUG, of
// kind Admin, has a handler, but the session answers most of its subcommands.
func decidedByMachine(spec *commands.Spec) bool {
	return spec.Handler != nil && spec.Kind != commands.Admin &&
		(spec.Local == nil || spec.Local.Raw)
}

// A node that has just started hears from the leader within usersWait. A connection waits once.
const usersWait = 2 * time.Second

// awaitUsers waits until the node knows the users, unless it loads its data, which takes longer. It
// reports whether the node knows them.
func (s *session) awaitUsers() bool {
	known := func() bool { return s.srv.users() != nil }
	switch {
	case known():
		return true
	case s.srv.backend.Status().Loading:
		return false
	case s.usersUntil.IsZero():
		s.usersUntil = time.Now().Add(usersWait)
	}
	return s.awaitNode(s.usersUntil, known)
}

// knownUsers returns the users, or an error if this node does not know them yet.
func (s *session) knownUsers() (*Users, error) {
	s.awaitUsers()
	users := s.srv.users()
	switch users {
	case nil:
		return nil, errUsersUnknown
	case UsersAwaited:
		return nil, errUsersAwaited
	}
	return users, nil
}

// steering are the commands that decide what those behind them do: refused while the machine runs
// the others, they would split a transaction, or have a write go to another database.
var steering = words("client|reply discard exec multi readonly readwrite select unwatch watch")

// servedUnknown reports whether a command runs while the node does not know the users. Whoever has
// not authenticated may need to: the machine decides about the commands that it runs, and an
// operator on this machine sees the members.
func (s *session) servedUnknown(spec *commands.Spec) bool {
	return decidedByMachine(spec) || steering[spec.FullName()] || s.showsUnknown(spec)
}

// showsUnknown reports whether a command only shows members, to a client on this machine: those run
// while nobody can have shown who he is.
func (s *session) showsUnknown(spec *commands.Spec) bool {
	return spec.Has(commands.Discovery) && near(s.conn)
}

// users returns the users that this node knows; nil: it does not know them yet.
func (s *Server) users() *Users { return s.backend.Users() }

// auth is AUTH: with a password for the default user, or a name and a password.
func auth(s *session, _ *commands.Spec, args [][]byte) {
	if len(args) > 3 {
		s.fail(commands.ErrSyntax)
		return
	}
	if err := s.authenticate(args[0], args[1:]); err != nil {
		s.fail(err)
		return
	}
	s.w.Status("OK")
}

// authenticate makes a user the session's. given is a password, or a name and a password; command
// is the name of the command that gave them. It is here that the trail learns of a try, since one
// HELLO can have several.
func (s *session) authenticate(command []byte, given [][]byte) error {
	err := s.identify(command, given)
	s.auditTry(lowerWord(command), given, err)
	return err
}

func (s *session) identify(command []byte, given [][]byte) error {
	switch users, err := s.knownUsers(); {
	case err != nil:
		return err
	case users.Level < commands.LevelSecond:
		return authenticateFirst(given)
	}
	name, words := []byte(userDefault), [][]byte{[]byte(commands.SystemAuth)}
	if len(given) == 2 {
		name = given[0]
		words = append(words, name)
	}
	key := s.srv.guessing.guesser(s.conn, name)
	if !s.waitToGuess(key) {
		s.quit = true
		return commands.ErrNoAuth
	}
	words = append(words, []byte(acl.Hash(given[len(given)-1])))
	created, err := s.srv.askUser(s.id, words...)
	s.srv.guessing.finish(key, err == commands.ErrWrongPass)
	if err == nil {
		former := s.user.Load()
		return s.welcome(former, s.become(name, created))
	}
	if err == commands.ErrWrongPass {
		s.deny(refusedCall{reason: "auth", context: s.context(), object: string(command),
			user: string(name)}, 1)
	}
	return err
}

// become makes a user the session's, and returns how many connections that one has.
func (s *session) become(name []byte, created uint64) int64 {
	clients := s.setUser(&identity{name: bytes.Clone(name), created: created})
	s.certifiedAs = ""
	s.stand()
	s.tryAgain()
	return clients
}

// knowsPassword makes a session that has not authenticated one that has, after it has given the
// default user the password of a hash. This node may not have applied that yet.
func (s *session) knowsPassword(hash []byte) {
	if hash == nil || s.user.Load() != nil {
		return
	}
	created, err := s.srv.askUser(s.id, []byte(commands.SystemAuth), hash)
	if err == nil {
		s.become([]byte(userDefault), created)
	}
}

// awaitUser waits until this node, which knows users, knows the session's: it may be behind the
// leader, which let the user in.
func (s *session) awaitUser() {
	s.awaitNode(time.Now().Add(ownDelay), func() bool {
		_, err := s.srv.users().of(s.user.Load())
		return err == nil
	})
}

// authenticateFirst answers below LevelSecond, where there is the default user only.
func authenticateFirst(given [][]byte) error {
	switch {
	case len(given) == 1:
		return commands.ErrNoPassword
	case string(given[0]) != userDefault:
		return commands.ErrWrongPass
	}
	return nil
}

// askUser asks the cluster for a user, so that a node that lags takes no password that was changed.
// words are a setting that is read. While no leader is known, this node's own state answers:
// whoever may look at the node gets in. It returns the revision that created the user.
func (s *Server) askUser(conn uint64, words ...[]byte) (created uint64, err error) {
	request := commands.Request{Proto: 2, System: true, Cmds: [][][]byte{words}}
	batch := commands.AppendRequest(nil, &request)
	load := Workload{Conn: conn}
	replies, err := s.backend.Read(context.Background(), load, batch)
	if outcomeOf(err) == NoLeader && err != nil {
		replies, err = s.backend.ReadLocal(load, batch)
	}
	if err != nil {
		return 0, err
	}
	a, _ := replies.Next()
	if err := a.Err(); err != nil {
		return 0, err
	}
	line, number := bytes.CutPrefix(bytes.TrimSuffix(a.Reply, []byte("\r\n")), []byte(":"))
	n, ok := commands.ParseInt(line)
	if !number || !ok {
		return 0, commands.Error(line) // never
	}
	return uint64(n), nil
}

// noteDenied records what the machine denied to a request.
func (s *session) noteDenied(l commands.Denials) {
	for _, d := range l {
		s.deny(refusedCall{reason: d.Reason, context: d.Context, object: d.Object,
			user: s.userName()}, d.Count)
	}
}
