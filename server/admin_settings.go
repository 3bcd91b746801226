// Settings that all nodes share: set on one, they apply on all, are part of snapshots and survive
// restarts.

package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
)

// ownDelay is how long CONFIG SET of a shared setting and AUTH wait for this node, which may be
// behind the leader.
const ownDelay = time.Second

// setting is a value for all nodes.
type setting struct {
	words   [][]byte           // what the request for the machine says
	applied func(*Server) bool // reports whether this node has it
	hash    []byte             // the default user's password, hashed; nil: there is none
	log     func(*slog.Logger) // tells that it is in force; nil: nobody needs to know
}

// share puts settings into the log, in the name of the session's user, and waits until this node
// has applied them.
func (s *session) share(settings []setting) error {
	var batch []byte
	for i := range settings {
		request := commands.Request{Proto: 2, System: true, User: s.userID(),
			Cmds: [][][]byte{settings[i].words}}
		batch = commands.AppendRequest(batch, &request)
	}
	replies, err := s.srv.backend.Write(context.Background(), Workload{Conn: s.id}, batch,
		len(settings))
	if err != nil {
		return err
	}
	for a, ok := replies.Next(); ok; a, ok = replies.Next() {
		s.noteDenied(a.Denied)
		switch err := a.Err(); err {
		case nil:
		case commands.ErrNoSystemRequest: // this release knows it, the machine not yet
			return errSettingLevel
		default:
			return err
		}
	}
	until := time.Now().Add(ownDelay)
	for i := range settings {
		if log := settings[i].log; log != nil {
			log(s.srv.log)
		}
		s.awaitNode(until, func() bool { return settings[i].applied(s.srv) })
		s.knowsPassword(settings[i].hash)
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	s.awaitDelivery(ctx) // whom they allow nothing more is revoked
	return nil
}

const errSettingLevel commands.Error = "ERR this needs a newer feature level, which the cluster " +
	"has once every node runs this release"

// errTooEarly refuses a setting that needs LevelSecond before anything changes: others of the same
// CONFIG SET do not.
const errTooEarly commands.Error = "some nodes run an older release without it; try again when " +
	"all run this one"

// belowSecond reports whether the state, which this node knows, is below LevelSecond.
func (s *Server) belowSecond() bool {
	users := s.users()
	return users != nil && users.Level < commands.LevelSecond
}

// ParseMaxMemory parses a limit of the data: bytes, or a size such as 64mb.
func ParseMaxMemory(text string) (bytes int64, err error) {
	bytes, ok := parseMemory(text)
	if !ok && text != "" {
		return 0, errNotMemory
	}
	return bytes, nil
}

// shareMaxMemory returns the setting for the limit of the data.
func shareMaxMemory(s *Server, text string) (setting, error) {
	want, err := ParseMaxMemory(text)
	if err == nil && s.belowSecond() {
		err = errTooEarly
	}
	return setting{
		words:   [][]byte{[]byte(commands.SettingMaxMemory), []byte(formatInt(want))},
		applied: func(s *Server) bool { return s.backend.Stats().MaxMemory == want },
	}, err
}

// maxMemoryText returns the limit that this node has applied.
func maxMemoryText(s *Server) string { return formatInt(s.backend.Stats().MaxMemory) }

// neverEvict is the maxmemory-policy in effect.
const neverEvict = "noeviction"

const errRequestWork commands.Error = "argument must be between 1 and 10 inclusive"

// shareRequestWork returns the setting for how much a request may do.
func shareRequestWork(s *Server, text string) (setting, error) {
	times, ok := commands.ParseInt([]byte(text))
	switch {
	case !ok || times < 1 || times > commands.MostRequestWork:
		return setting{}, errRequestWork
	case s.belowSecond():
		return setting{}, errTooEarly
	}
	return setting{
		words:   [][]byte{[]byte(commands.SettingRequestWork), []byte(formatInt(times))},
		applied: func(s *Server) bool { return s.backend.Stats().RequestWork == uint64(times) },
		log: func(log *slog.Logger) {
			if times == 1 {
				log.Info("one request may do the usual work again")
				return
			}
			log.Warn("one request may do more work than usual, and hold up all nodes for as long",
				"times", times, "until", "CONFIG SET "+commands.SettingRequestWork+" 1")
		},
	}, nil
}

// requestWorkText returns the setting that this node has applied.
func requestWorkText(s *Server) string { return formatInt(int64(s.backend.Stats().RequestWork)) }

// shareNotify returns the setting for flags of keyspace notifications.
func shareNotify(_ *Server, text string) (setting, error) {
	want, err := commands.ParseNotifyFlags(text)
	return setting{
		words:   [][]byte{[]byte(commands.SettingNotify), []byte(text)},
		applied: func(s *Server) bool { return s.backend.Stats().Notify == want },
	}, err
}

// notifyText returns the setting on this node.
func notifyText(s *Server) string { return s.backend.Stats().Notify.String() }

// sharePassword returns the setting for the default user's password. The password does not leave
// the session.
func sharePassword(s *Server, text string) (setting, error) {
	if s.belowSecond() {
		return setting{}, errUsersLevel
	}
	words, hash := [][]byte{[]byte(commands.SettingPassword)}, []byte(nil)
	if text != "" {
		hash = []byte(acl.Hash([]byte(text)))
		words = append(words, hash)
	}
	return setting{words: words, hash: hash, applied: func(s *Server) bool {
		users := s.users()
		if users == nil || users == UsersAwaited {
			return false
		}
		u := users.Default()
		return u.NoPass() == (hash == nil) && (hash == nil || u.Accepts(hash) || !u.On())
	}}, nil
}

// passwordText shows whether there is a password: nobody knows which.
func passwordText(s *Server) string {
	if users := s.users(); users != nil && users != UsersAwaited && users.Default().NoPass() {
		return ""
	}
	return string(redactedArg)
}

// catchUp waits until this node has applied every setting that was acknowledged before, on any
// node: what the session shows next is no older. A client that said READONLY sees the node's own
// state, also while the node reaches no leader.
func (s *session) catchUp() error {
	s.mayWait()
	if s.stale {
		return nil
	}
	if !s.inExec && s.send() != nil { // the client sees earlier replies while it waits
		s.quit = true
		return errNotSent
	}
	return s.srv.backend.Barrier(s.srv.ctx)
}

// current has a command that shows settings of all nodes show none that is older than what was
// acknowledged before. when says which calls do so; nil: all.
func current(when func(args [][]byte) bool, spec commands.Spec) commands.Spec {
	spec.Local.Ahead = func(c commands.Client, _ *commands.Spec, args [][]byte) error {
		if when != nil && !when(args) {
			return nil
		}
		return c.(*session).catchUp()
	}
	return spec
}

// mayWait panics in the turn of a session command, which holds up others: a bug.
func (s *session) mayWait() {
	if s.work != nil {
		panic("a session command waits in its turn")
	}
}
