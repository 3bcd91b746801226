// Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH. The commands of a transaction go to the
// machine as one request with the revisions of the watched keys. Commands that only the session
// can answer are answered after the machine has replied, and spliced in.

package server

import (
	"bytes"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// transaction is the state between MULTI and EXEC, including earlier WATCHes.
type transaction struct {
	open   bool
	failed bool // a command was refused: EXEC fails
	bytes  int  // the queued arguments and the watched keys, with overhead
	queue  []queued
	watch  []commands.WatchedKey
	known  map[watchedKey]struct{} // the set of watch
}

// watchedKey names a key of a database.
type watchedKey struct {
	db  int
	key string
}

// queued is a command that waits for EXEC.
type queued struct {
	spec    *commands.Spec
	args    [][]byte
	denied  bool  // as in recorded
	local   bool  // the session answers, though the machine could: see runsInMachine
	invalid error // not nil: the arguments must not leave the session, which answers this
}

// inMachine reports whether the machine runs the command, not the session.
func (q *queued) inMachine() bool {
	return q.spec.Handler != nil && q.invalid == nil && !q.local
}

const transactionFlags = commands.NoScript | commands.Loading | commands.Stale | commands.AllowBusy

var transactionSpecs = []commands.Spec{
	{
		Name: "multi", Kind: commands.Session, Arity: 1, Group: "transactions", Since: "1.2.0",
		Flags:      transactionFlags | commands.Fast | commands.NotQueued,
		Summary:    "Starts a transaction: the following commands are queued until EXEC.",
		Complexity: "O(1)",
		Local:      &commands.Local{Early: true, Run: serve(multi)},
	},
	{
		Name: "exec", Kind: commands.Session, Arity: -1, ArityBefore: 1, Group: "transactions",
		Since: "1.2.0",
		Flags: commands.NoScript | commands.Loading | commands.Stale | commands.SkipSlowlog |
			commands.NotQueued | commands.RunsQueue | commands.MovableKeys,
		Keys: commands.KeySpec{Find: commands.ExecKeys, Parts: []commands.KeyPart{
			{Unknown: true, Flags: commands.KeyRO | commands.KeyAccess}}},
		Syntax: "[<IFEQ key value | IFNE key value | NX key | XX key> ...]",
		Summary: "Executes the queued commands atomically, unless a watched key has changed or a " +
			"condition does not hold.",
		Complexity: "That of the queued commands",
		Local:      &commands.Local{Raw: true, Run: serve(exec)},
	},
	{
		Name: "discard", Kind: commands.Session, Arity: 1, Group: "transactions", Since: "2.0.0",
		Flags:      transactionFlags | commands.Fast | commands.NotQueued,
		Summary:    "Discards the queued commands and ends the transaction.",
		Complexity: "O(N) where N is the number of queued commands",
		Local:      &commands.Local{Early: true, Run: serve(discard)},
	},
	{
		Name: "watch", Kind: commands.Read, Arity: -2, Group: "transactions", Since: "2.2.0",
		Flags:      transactionFlags | commands.Fast | commands.NotQueued | commands.Linearizable,
		Keys:       commands.KeySpec{First: 1, Last: -1, Step: 1, Flags: commands.KeyRO},
		Syntax:     "key [key ...]",
		Summary:    "Makes the next EXEC fail if one of the keys changes first.",
		Complexity: "O(1) for every key",
		Handler:    watchHandler, Local: &commands.Local{Raw: true, Run: serve(watch)},
	},
	{
		Name: "unwatch", Kind: commands.Session, Arity: 1, Group: "transactions", Since: "2.2.0",
		Flags:   transactionFlags | commands.Fast,
		Summary: "Forgets all watched keys.", Complexity: "O(1)",
		Local: &commands.Local{Run: serve(unwatch)},
	},
}

// argCost is the per-argument overhead, bytes.
const argCost = 32

// watchCost is the overhead of a watched key, in the list for the machine and in the set.
const watchCost = 128

// growTransaction charges n bytes to the transaction, or returns the error for one that is too
// large. One of a stranger, which there is while the node does not know the users, is no larger
// than a request of a stranger may be: see skipsEarly.
func (s *session) growTransaction(n int) error {
	bytes := s.tx.bytes + n
	if s.in.small && bytes > freeReadBuffer {
		if _, err := s.knownUsers(); err != nil {
			return err
		}
		if s.stand() {
			return commands.ErrNoAuth
		}
	}
	if limit := s.srv.cfg.MaxRequestBytes; bytes > limit {
		return commands.Errorf("ERR transaction exceeds %d bytes", limit)
	}
	s.tx.bytes = bytes
	return nil
}

func argBytes(args [][]byte) int {
	n := 0
	for _, a := range args {
		n += len(a)
	}
	return n
}

func (s *session) queue(q queued) {
	spec, args := q.spec, q.args
	if spec.Has(commands.NoMulti) {
		s.refuse(spec, commands.Error("ERR Command not allowed inside a transaction"))
		return
	}
	size := argBytes(args)
	if err := s.growTransaction(size + argCost*len(args)); err != nil {
		s.refuse(spec, err)
		return
	}
	q.local = spec.HandlerLevel > 0 && !s.runsInMachine(spec)
	if !s.tx.failed {
		q.args = copyArgs(args, size)
		s.tx.queue = append(s.tx.queue, q)
	}
	s.answer(func() { s.w.Status("QUEUED") })
}

// copyArgs copies arguments with a total of size bytes.
func copyArgs(args [][]byte, size int) [][]byte {
	text := make([]byte, 0, size)
	kept := make([][]byte, len(args))
	for i, a := range args {
		start := len(text)
		text = append(text, a...)
		kept[i] = text[start:len(text):len(text)]
	}
	return kept
}

func multi(s *session, _ *commands.Spec, _ [][]byte) {
	if s.tx.open {
		s.fail(commands.Error("ERR MULTI calls can not be nested"))
		return
	}
	s.tx.open = true
	s.w.Status("OK")
}

func discard(s *session, _ *commands.Spec, _ [][]byte) {
	if !s.tx.open {
		s.fail(commands.Error("ERR DISCARD without MULTI"))
		return
	}
	s.tx = transaction{}
	s.w.Status("OK")
}

// exec adds the transaction to the batch; spliceExec answers it.
func exec(s *session, spec *commands.Spec, args [][]byte) {
	switch {
	case !s.tx.open:
		s.failRaw(spec, args, commands.Error("ERR EXEC without MULTI"))
		return
	case s.tx.failed:
		s.tx = transaction{}
		s.failRaw(spec, args, commands.ErrExecAbort)
		return
	}
	if len(args) > 1 {
		switch err := s.growTransaction(argBytes(args) + argCost*len(args)); {
		case s.srv.backend.Level() < commands.LevelSecond:
			s.refuse(spec, spec.ArityError())
			return
		case err != nil:
			s.refuse(spec, err)
			return
		case commands.ExecKeys(args) == nil:
			s.refuse(spec, commands.ErrExecCondition)
			s.showMonitors(spec, args)
			return
		}
	}
	if err := s.queueElsewhere(); err != nil { // the leader has changed since they were queued
		s.tx = transaction{}
		s.failRaw(spec, args, err)
		return
	}
	// Session commands see the effects of earlier commands, and later ones see theirs.
	looks, together, scripts := true, true, recorded{}
	cmds := make([][][]byte, 0, len(s.tx.queue))
	for i := range s.tx.queue {
		q := &s.tx.queue[i]
		looks = looks && q.spec.Kind != commands.Write
		together = together && q.inMachine() && q.spec.Ran == nil
		if q.inMachine() {
			r := s.remember(q.spec, q.args)
			q.denied, scripts.asks = r.denied, scripts.asks || r.asks
			scripts.maybe = append(scripts.maybe, r.maybe...)
			cmds = append(cmds, q.args)
		}
	}
	if len(cmds) == 0 && len(s.tx.watch) == 0 && len(args) == 1 {
		block := s.tx.queue
		s.tx = transaction{}
		s.flush()
		owed := pending{block: block, spec: spec, args: args, db: s.db, muted: s.silent()}
		s.answer(func() { s.spliceExec(&owed, []byte("*0\r\n"), 0) })
		s.count(spec, args, endedOK, 0, 0)
		return
	}
	write := !looks || len(s.tx.watch) > 0
	if !together {
		s.flush() // replies to earlier commands, for which messages must not wait
		s.receiveAhead(s.tx.queue)
	}
	s.addRequest(write, cmds, pending{step: executed, block: s.tx.queue, looks: looks, spec: spec,
		args: args, recorded: scripts})
	s.tx = transaction{}
	if !together {
		s.flush()
		s.awaitRevoked()
		s.forgetAhead()
	}
}

// failRaw answers a raw command with an error.
func (s *session) failRaw(spec *commands.Spec, args [][]byte, err error) {
	s.answer(func() { s.fail(err) })
	s.showMonitors(spec, args)
	s.count(spec, args, endedError, 0, len("-\r\n")+len(err.Error()))
}

// spliceExec answers EXEC with the machine's replies and the session's own, in command order. It
// passes on null, the reply if a watched key has changed. share is each command's part of the
// elapsed time. If CLIENT REPLY suppresses them, only confirmations of subscriptions are left.
func (s *session) spliceExec(p *pending, reply []byte, share time.Duration) {
	block := p.block
	_, rest, ok := resp.Elements(reply)
	s.showBlock(p, ok)
	if !ok {
		s.reply.Buf = append(s.reply.Buf, reply...)
		return
	}
	if !p.muted {
		s.reply.Array(len(block))
	}
	pushed := false
	s.inExec, s.inBlock = true, len(block)
	defer func() { s.inExec, s.pushed, s.held = false, pushed, replicated{} }()
	own := 0 // bytes of the session's replies
	for i := range block {
		q := &block[i]
		start, sends := len(s.reply.Buf), s.sends
		if !q.inMachine() {
			s.pushed = false
			own += s.runQueued(q, own)
			if pushed = pushed || s.pushed; p.muted && !s.pushed {
				s.takeBack(&s.reply, start, sends)
			}
			continue
		}
		n := resp.Len(rest)
		if n <= 0 {
			s.srv.log.Error("transaction returned too few replies", "commands", len(block))
			s.quit = true
			return
		}
		if rest[0] != '-' && q.denied {
			s.uncache(q.spec, q.args)
		}
		switch {
		case rest[0] != '-' && q.spec.Ran != nil:
			q.spec.Ran(s, q.args)
		case rest[0] == '-':
			s.countError(codeOf(rest[1:n]))
		}
		s.count(q.spec, q.args, replyEnding(rest), share, n)
		if publishes(q.spec) && rest[0] == ':' {
			s.replyReceivers(q.spec, q.args, rest[:n])
		} else {
			s.reply.Buf = append(s.reply.Buf, rest[:n]...)
		}
		if p.muted {
			s.takeBack(&s.reply, start, sends)
		}
		rest = rest[n:]
	}
}

// runQueued answers a session command inside EXEC, after own bytes of such replies, and returns
// the bytes of its reply.
func (s *session) runQueued(q *queued, own int) int {
	start := len(s.reply.Buf)
	err := error(errNotSent) // to the end of the transaction, which can take hours
	if !s.killed.Load() {
		err = s.admit(q.spec, q.args)
	}
	switch {
	case err != nil:
		s.fail(err)
	case own > s.srv.cfg.answerBytes:
		s.fail(commands.Error("ERR transaction reply exceeds 64 MiB; the command did not run"))
	case q.invalid != nil:
		s.fail(q.invalid)
		s.count(q.spec, q.args, endedError, 0, len(s.reply.Buf)-start)
	case q.spec.Local != nil:
		s.runCounted(q.spec.Local, q.spec, q.args)
	}
	return len(s.reply.Buf) - start
}

// watchHandler replies with the keys' change revisions, 0 for a missing key. The session reads
// them; clients see OK.
func watchHandler(x *commands.Call) error {
	x.Out.Array(len(x.Args) - 1)
	for _, key := range x.Args[1:] {
		x.Out.Int(int64(x.DB().LastChange(key)))
	}
	return nil
}

func watch(s *session, spec *commands.Spec, args [][]byte) {
	if s.tx.open {
		s.failRaw(spec, args, commands.Error("ERR WATCH inside MULTI is not allowed"))
		return
	}
	if err := s.growTransaction(argBytes(args[1:]) + watchCost*(len(args)-1)); err != nil {
		s.refuse(spec, err)
		return
	}
	s.batch.cmd[0] = args
	s.addRequest(false, s.batch.cmd[:], pending{step: watched, args: args, spec: spec})
}

// keepWatch remembers the revisions that WATCH received. A key that is already watched keeps its
// older revision.
func (s *session) keepWatch(keys [][]byte, reply []byte) {
	_, rest, _ := resp.Elements(reply)
	for _, key := range keys {
		n := resp.Len(rest)
		if n < 4 || rest[0] != ':' {
			s.fail(commands.Error("ERR WATCH received no revision"))
			return
		}
		changed, _ := commands.ParseInt(rest[1 : n-2])
		rest = rest[n:]
		if _, known := s.tx.known[watchedKey{s.db, string(key)}]; known {
			s.tx.bytes -= len(key) + watchCost
			continue
		}
		if s.tx.known == nil {
			s.tx.known = map[watchedKey]struct{}{}
		}
		s.tx.known[watchedKey{s.db, string(key)}] = struct{}{}
		s.tx.watch = append(s.tx.watch, commands.WatchedKey{DB: s.db, Key: bytes.Clone(key),
			Changed: keyspace.Revision(changed)})
	}
	s.reply.Status("OK")
}

// failWatch gives back what WATCH was charged, if p is one: it has failed and watches nothing.
func (s *session) failWatch(p *pending) {
	if p.step == watched {
		keys := p.args[1:]
		s.tx.bytes = max(s.tx.bytes-argBytes(keys)-watchCost*len(keys), 0)
	}
}

func unwatch(s *session, _ *commands.Spec, _ [][]byte) {
	s.tx.watch, s.tx.known = nil, nil
	if !s.tx.open {
		s.tx.bytes = 0
	}
	s.w.Status("OK")
}
