// The command path: look a command up, refuse it, queue it, answer it from the session, or gather
// it with its neighbors into a batch for the backend.

package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/invariant"
)

// repliesComplete holds of what the state machine answers.
var repliesComplete = invariant.New("replies-complete", "each request that ran has a reply",
	"the request gets UNKNOWN, and its connection is closed")

// serve makes run, which answers a command outside of a transaction, a Local's Run.
func serve(
	run func(*session, *commands.Spec, [][]byte),
) func(commands.Client, *commands.Spec, [][]byte) {
	return func(c commands.Client, spec *commands.Spec, args [][]byte) {
		run(c.(*session), spec, args)
	}
}

// IsClient makes a session what a Local runs for.
func (s *session) IsClient() {}

// step says how a request's reply becomes the client's.
type step uint8

const (
	plain     step = iota // passed on unchanged
	literal               // no request: the reply is in batch.literals
	delivered             // PUBLISH: see replyReceivers
	watched               // revisions for the session
	executed              // the replies of a transaction
)

// pending is a reply that a batch owes.
type pending struct {
	step     step
	muted    bool
	behind   bool           // a command that may wait queued behind other waiters
	wait     *commands.Wait // … or waits in the machine
	end      int            // where a literal ends in batch.literals
	args     [][]byte       // the command; valid until more is read
	db       int            // selected for the command
	block    []queued       // commands of an executed transaction
	looks    bool           // no command of block can write
	recorded                // for a client that tracks; of executed, for the scripts of the block
	locks    bool           // it may take locks: see expectLocks
	hint     hintKey
	spec     *commands.Spec
}

// linearizable reports whether the request has a command that is commands.Linearizable.
func (p *pending) linearizable() bool {
	return p.spec.Has(commands.Linearizable) || slices.ContainsFunc(p.block,
		func(q queued) bool { return q.spec.Has(commands.Linearizable) })
}

// batch is the set of requests that goes to the backend next.
type batch struct {
	bytes    []byte // encoded requests
	count    int
	write    bool // contains a write
	fresh    bool // contains a command that is commands.Linearizable
	pending  []pending
	literals commands.RESP
	req      commands.Request
	cmd      [1][][]byte
	room     int // maximum requests in a batch with a write, see fitRoom

	// Dry runs, see batch_hints.go: the writes of the batch, those eligible for a dry run, those
	// likely to change nothing, and the first eligible one.
	writes, eligible, likely int
	first                    hintKey
	load                     Workload // load of the first request, without the source
	dryRan                   bool     // the newest replies come from a dry run
}

// dispatch handles one command. Its reply goes to s.reply, or is owed by s.batch.
func (s *session) dispatch(args [][]byte) {
	s.srv.stats.commands.Add(1)
	s.skipping, s.skipNext = s.skipNext, false
	if len(args) == 0 {
		s.cachingPast(nil)
		if err := s.in.early; err != nil {
			s.in.early = nil
			s.refuse(nil, err)
			return
		}
		s.refuse(nil, commands.Errorf("ERR request exceeds %d bytes; it did not run",
			s.srv.cfg.MaxRequestBytes))
		return
	}
	if s.unvetted && !s.vetted(args) {
		return
	}
	spec, err := s.srv.table.Resolve(args)
	if err != nil {
		if s.browser(args[0]) {
			return
		}
		s.cachingPast(nil)
		s.refuse(s.srv.table.Get(args[0]), refusedError(args, err))
		return
	}
	s.last = spec
	if s.at(placeTried) && !s.mayTry(spec, args) && !s.mayStay() {
		s.srv.stats.rejected.Add(1)
		s.refuse(spec, errMaxClients)
		s.quit = true
		return
	}
	if s.caching {
		defer s.cachingPast(spec)
	}
	if err := s.admit(spec, args); err != nil {
		s.refuse(spec, err)
		return
	}
	if err := spec.CarriedError(args); err != nil { // its arguments may be secret
		s.refuse(spec, err)
		return
	}
	call := queued{spec: spec, args: args}
	if spec.Rewrite != nil {
		switch args, err = spec.Rewrite(s, args); {
		case err == nil:
			call.args = args
		case s.tx.open:
			call.invalid = err
		default:
			s.refuse(spec, err)
			return
		}
	}
	if err := s.refusedByMode(spec); err != nil {
		s.refuse(spec, err)
		return
	}
	if s.monitoring {
		// a command that MONITOR shows to its own client follows its reply
		_ = s.out.hold(&s.srv.wg)
	}
	if !s.waitPaused(spec, args) {
		s.quit = true
		return
	}
	if err := s.elsewhere(spec, args); err != nil {
		s.refuse(spec, err)
		return
	}
	if s.tx.open && !spec.Has(commands.NotQueued) {
		s.queue(call)
		return
	}
	if spec.Local != nil && !s.runsInMachine(spec) {
		s.runLocal(spec.Local, spec, args)
		return
	}
	s.request(spec, args)
	if spec.Ran != nil {
		s.flush() // what it does concerns the next command
	}
}

// runsInMachine reports whether the machine runs a command that the connection can answer too.
func (s *session) runsInMachine(spec *commands.Spec) bool {
	return spec.HandlerLevel > 0 && s.srv.backend.Level() >= spec.HandlerLevel &&
		!s.isClusterReplica()
}

// refusedByMode returns an error for a command that a subscribed connection of RESP2, or one with
// MONITOR, may not run.
func (s *session) refusedByMode(spec *commands.Spec) error {
	switch {
	case s.proto == 2 && !spec.Has(commands.SubscribeMode) && s.subscribed():
		return commands.Errorf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / "+
			"PING / QUIT / RESET are allowed in this context", spec.FullName())
	case s.monitoring && keptFromMonitor(spec):
		return errMonitorData
	}
	return nil
}

// browser closes connections that browsers are tricked into opening, as Redis does.
func (s *session) browser(word []byte) bool {
	if !ascii.Equal(word, "post") && !ascii.Equal(word, "host:") {
		return false
	}
	s.srv.warnings.Warn("closed an HTTP client", "client", s.addr)
	s.flush()
	s.quit = true
	return true
}

// refuse answers a command that does not run with an error, and marks its transaction as failed. A
// refused EXEC discards the transaction.
func (s *session) refuse(spec *commands.Spec, err error) {
	s.countRejected(spec)
	word := codeOf(err.Error())
	switch {
	case spec != nil && spec.Has(commands.RunsQueue):
		s.flush() // a pending WATCH belongs to the discarded transaction
		s.tx = transaction{}
		err = commands.Error("EXECABORT Transaction discarded because of: " +
			strings.TrimPrefix(err.Error(), "ERR "))
	case s.tx.open:
		s.tx.failed = true
	}
	s.answer(func() { s.w.Error(err.Error()) })
	s.countError(word)
	s.trace(spec, "rejected")
	s.auditRefusal(spec, word)
}

// fail answers a session command with an error.
func (s *session) fail(err error) {
	s.fails++
	s.w.Error(err.Error())
	s.countError(codeOf(err.Error()))
}

func (s *session) runLocal(l *commands.Local, spec *commands.Spec, args [][]byte) {
	if s.batch.fresh {
		s.flush() // watched keys are session state
	}
	if l.Raw {
		l.Run(s, spec, args)
		return
	}
	if !l.Early {
		s.flush() // may take long, and users may lose rights meanwhile
	}
	if err := s.admitAgain(spec, args); err != nil {
		s.refuse(spec, err)
		return
	}
	s.answer(func() { s.runCounted(l, spec, args) })
	if s.monitoring && s.admitAgain(spec, args) != nil {
		s.quit = true // revoke did not see what it now receives
	}
}

const errReplySize commands.Error = "ERR reply exceeds 64 MiB; the command ran"

// runCounted answers a session command and counts it.
func (s *session) runCounted(l *commands.Local, spec *commands.Spec, args [][]byte) {
	var ahead error
	if l.Ahead != nil {
		ahead = l.Ahead(s, spec, args)
	}
	fails, start, before := s.fails, len(s.w.Buf), s.written(s.w)
	end := endedError // if it fails
	s.w.Limit = start + s.srv.cfg.answerBytes
	if ahead != nil {
		s.fail(ahead)
		end = endingOf(ahead)
	} else if !l.Works {
		l.Run(s, spec, args)
	} else if err := s.srv.backend.Schedule(s.localWorkload(spec, args), func() {
		if s.killed.Load() { // while it waited for its turn
			s.fail(errNotSent)
			return
		}
		s.runBounded(l, spec, args)
	}); err != nil {
		s.fail(err)
		end = endingOf(err)
	}
	if l.Behind != nil {
		l.Behind(s, spec, args)
	}
	s.w.Limit = 0
	if s.w.Full {
		// part of it may be sent already
		s.w.Full, s.w.Buf = false, s.w.Buf[:min(start, len(s.w.Buf))]
		s.fail(errReplySize)
	}
	if !s.inExec {
		s.showMonitors(spec, args)
	}
	if s.fails == fails {
		end = ranEnding(s.w.Buf[min(start, len(s.w.Buf)):]) // a part may be sent already
	}
	s.count(spec, args, end, s.lap(), s.written(s.w)-before)
}

// runBounded runs a command that may compute for long, and refuses it if it does more work than a
// request of the machine may. As there, arguments and replies are charged without its help, and it
// spends what it walks or compares besides. What changes something spends before that.
func (s *session) runBounded(l *commands.Local, spec *commands.Spec, args [][]byte) {
	start := len(s.w.Buf)
	err := bounded(func(work *budget) {
		defer func() { s.work, s.w.Spend = nil, nil }()
		s.work, s.w.Spend = work, work.spend
		work.spend(len(args) * argWork)
		l.Run(s, spec, args)
	})
	if err != nil {
		s.w.Full, s.w.Buf = false, s.w.Buf[:min(start, len(s.w.Buf))]
		s.fail(err)
	}
}

// argWork is what an argument of a session command costs: parsed, hashed, looked up.
const argWork = 8

// budget is what a request may do, in units of work of 25 ns.
type budget struct{ spent int }

// spend spends units. It does not return if there are not so many left: it ends bounded's f.
func (b *budget) spend(units int) {
	if b.spent += units; b.spent > commands.MaxRequestWork {
		panic(commands.ErrCommandWork)
	}
}

// bounded calls f, and ends it with an error if it does more work than a request may.
func bounded(f func(work *budget)) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case commands.ErrCommandWork:
			err = commands.ErrCommandWork
		default:
			panic(p)
		}
	}()
	f(&budget{})
	return nil
}

// answer takes what f writes to s.w as the current command's reply, after those the batch owes.
func (s *session) answer(f func()) {
	behind := len(s.batch.pending) > 0
	if behind {
		s.w = &s.batch.literals
	}
	start, sends := len(s.w.Buf), s.sends
	s.pushed = false
	f()
	if s.silent() && !s.pushed {
		s.takeBack(s.w, start, sends)
	}
	if behind {
		s.batch.pending = append(s.batch.pending,
			pending{step: literal, end: len(s.batch.literals.Buf)})
		s.w = &s.reply
		if len(s.batch.literals.Buf) > maxBatchBytes || len(s.batch.pending) > 2*maxBatchRequests {
			// small requests can have large replies: they must not pile up behind the batch
			s.flush()
		}
	}
}

// takeBack removes what has been replied to a command since w had start bytes and replies had been
// sent so often.
func (s *session) takeBack(w *commands.RESP, start, sends int) {
	if s.sends != sends {
		start = 0 // earlier replies have been sent
	}
	w.Buf = w.Buf[:start]
}

// silent reports whether CLIENT REPLY suppresses the current command's reply.
func (s *session) silent() bool { return s.muted || s.skipping }

// setProto sets the protocol of the replies that follow.
func (s *session) setProto(proto int) {
	s.proto, s.reply.Proto, s.batch.literals.Proto = proto, proto, proto
	s.pushProto.Store(int32(proto))
	if proto != 3 {
		s.srv.maintenance.leave(s)
	}
}

// request adds a command to the batch.
func (s *session) request(spec *commands.Spec, args [][]byte) {
	if spec.Kind != commands.Read && spec.Kind != commands.Write {
		// no way to answer it is declared
		s.refuse(spec, commands.Errorf("ERR '%s' cannot be run here", spec.FullName()))
		return
	}
	if spec.MayWait(args) {
		s.block(spec, args)
		return
	}
	if spec.Has(commands.Unlogged) { // nor may a write be in its batch
		s.flush()
		defer s.flush()
	}
	s.enqueue(spec, args, pending{})
}

// enqueue adds a command for the machine to the batch. owed says how it waits, if it may.
func (s *session) enqueue(spec *commands.Spec, args [][]byte, owed pending) {
	owed.step, owed.args, owed.spec, owed.recorded = plain, args, spec, s.remember(spec, args)
	s.batch.cmd[0] = args
	s.addRequest(spec.Kind == commands.Write, s.batch.cmd[:], owed)
}

// addRequest encodes a command, or a transaction if owed.step is executed, into the batch.
func (s *session) addRequest(write bool, cmds [][][]byte, owed pending) {
	b := &s.batch
	size := 16
	for _, args := range cmds {
		size += 2
		for _, a := range args {
			size += len(a) + 3
		}
	}
	most := maxBatchRequests
	if write || b.write {
		most = b.room
	}
	if b.count > 0 && (b.count >= most || len(b.bytes)+size > maxBatchBytes) {
		s.flush()
	}
	b.req = commands.Request{DB: s.db, Proto: s.proto, User: s.userID(), Behind: owed.behind,
		TellReads: owed.asks, Wait: owed.wait, Cmds: cmds}
	if owed.bindsLease() {
		b.req.Holder = s.holder()
	}
	owed.db = s.db
	owed.locks = s.expectLocks(&owed)
	b.req.Client = s.requestClient()
	if owed.step == executed {
		b.req.Multi, b.req.Watch = true, s.tx.watch
		if b.req.Conditional = len(owed.args) > 1; b.req.Conditional {
			b.req.Cmds = slices.Concat([][][]byte{owed.args}, cmds)
		}
	} else {
		s.showMonitors(owed.spec, owed.args)
	}
	if write {
		b.consider(&s.srv.hints, s.db, cmds, &owed, s.srv.monitors.size.Load() > 0)
	}
	if b.count == 0 {
		b.load = workloadOf(s.db, owed.spec, cmds)
	} else {
		b.load.Light = b.load.Light && isLight(owed.spec)
	}
	b.bytes = commands.AppendRequest(b.bytes, &b.req)
	b.req, b.cmd[0] = commands.Request{}, nil // the arguments are kept no longer than their replies
	b.count++
	b.write, b.fresh = b.write || write, b.fresh || owed.linearizable()
	owed.muted = s.silent()
	b.pending = append(b.pending, owed)
}

// flush sends the batch to the backend and takes its replies into s.reply.
func (s *session) flush() {
	b := &s.batch
	if len(b.pending) == 0 {
		return
	}
	replies, err := s.ask()
	s.takeReplies(replies, err, s.lap()/time.Duration(max(b.count, 1)))
	s.dropBatch()
}

// Reply size limits the next batch. The machine runs every request of a batch with a write, and
// replies past commands.MaxReplyBytes are lost: a client that pipelines a thousand pops of large
// elements must not get there. So a connection starts with short batches, which grow while replies
// stay small.
const (
	firstRoom   = 16
	fewBytes    = 1 << 20 // with fewer of replies, the next batch may be twice as long
	enoughBytes = 8 << 20 // with more of replies, the next batch is sized for these
)

// fitRoom adapts the batch limit to the reply size of a batch of count requests.
func (b *batch) fitRoom(count, bytes int) {
	switch {
	case bytes > enoughBytes:
		b.room = max(1, int(int64(count)*enoughBytes/int64(bytes)))
	case bytes < fewBytes && count >= b.room:
		b.room = min(2*b.room, maxBatchRequests)
	}
}

// ask sends the batch to the backend.
func (s *session) ask() (replies commands.Replies, err error) {
	b := &s.batch
	if b.count == 0 {
		return replies, nil
	}
	return s.askFor(b.bytes, b.count, b.pending, b.write, b.fresh, b.worthDryRun(&s.srv.hints))
}

// errNotSent answers requests that do not run because their connection ends.
var errNotSent = &Error{NotRun, "CLUSTERDOWN the command did not run: its connection was closed"}

// askFor sends a batch to the backend, as a dry run first if dryRun is set. Invalidations that it
// causes for this client follow its replies.
func (s *session) askFor(batch []byte, count int, owed []pending, write, fresh,
	dryRun bool) (replies commands.Replies, err error) {
	if s.killed.Load() {
		s.quit = true
		return replies, errNotSent
	}
	s.awaitCounted()
	if s.track.Load() != nil && !s.out.hold(&s.srv.wg) {
		s.quit = true
	}
	load := s.workload(count)
	if s.namesForeign(owed) {
		load.Shape = load.Command
	}
	if err := s.reserveReply(load, owed); err != nil {
		s.quit = true
		return replies, errNotSent
	}
	defer func() { s.replied(load, replies.Size()) }()
	done := false
	if dryRun {
		s.traces.ask("dry run", count)
		replies, err, done = s.dryRun(load, batch)
	}
	switch {
	case done:
	case write:
		s.traces.ask("write", count)
		replies, err = s.srv.backend.Write(context.Background(), load, batch, count)
		if err == nil {
			s.batch.fitRoom(count, replies.Size())
		}
	case s.stale && !fresh:
		s.traces.ask("local", count)
		replies, err = s.srv.backend.ReadLocal(load, batch)
	default:
		s.traces.ask("read", count)
		replies, err = s.srv.backend.Read(context.Background(), load, batch)
	}
	s.traces.tell()
	return replies, err
}

// askRest sends the remaining requests of the batch after the backend has answered done of them
// and not run the others.
func (s *session) askRest(rest *commands.RequestReader, done int,
	owed []pending) (replies commands.Replies, err error) {
	if len(s.reply.Buf) > maxBatchBytes && s.send() != nil {
		s.quit = true // nobody receives more
		return replies, errKilled
	}
	for range done {
		if _, err := rest.Next(); err != nil {
			return replies, &Error{Unknown,
				"UNKNOWN the command may or may not have run: unreadable batch: " + err.Error()}
		}
	}
	s.batch.count -= done
	return s.askFor(rest.Rest(), s.batch.count, owed, s.batch.write, s.batch.fresh, false)
}

// dropBatch forgets the answered batch.
func (s *session) dropBatch() {
	b := &s.batch
	clear(b.pending)
	s.inHand = 0
	s.traces.forget()
	b.pending, b.count, b.write, b.fresh = b.pending[:0], 0, false, false
	b.writes, b.eligible, b.likely, b.dryRan = 0, 0, 0, false
	if b.bytes = b.bytes[:0]; cap(b.bytes) > 2*maxBatchBytes {
		b.bytes = nil
	}
	if b.literals.Buf = b.literals.Buf[:0]; cap(b.literals.Buf) > maxBatchBytes {
		b.literals.Buf = nil
	}
}

// takeReplies puts the replies of the batch in order, and asks for missing ones. share is each
// request's part of the elapsed time.
func (s *session) takeReplies(replies commands.Replies, err error, share time.Duration) {
	s.refused = s.refused || err != nil && outcomeOf(err) == NoLeader
	start, done := 0, 0
	var rest commands.RequestReader
	rest.Reset(s.batch.bytes)
	for i := range s.batch.pending {
		p := &s.batch.pending[i]
		if len(s.reply.Buf) > maxBatchBytes && s.send() != nil {
			s.quit = true
			return
		}
		if p.step == literal {
			s.reply.Buf = append(s.reply.Buf, s.batch.literals.Buf[start:p.end]...)
			start = p.end
			continue
		}
		if err == nil && replies.Size() == 0 && done > 0 {
			if s.batch.dryRan {
				s.dryRunMissed(p.hint)
			}
			if replies, err = s.askRest(&rest, done, s.batch.pending[i:]); s.quit {
				return
			}
			share, done = s.lap()/time.Duration(max(s.batch.count, 1)), 0
		}
		before, sends, end := len(s.reply.Buf), s.sends, endedOK
		replied := s.written(&s.reply)
		s.pushed = false
		if err != nil {
			s.lockReply(p, nil)
			s.decide(&p.recorded, commands.Answer{})
			s.failWatch(p)
			s.fail(err)
			end = endingOf(err)
		} else {
			a, ok := replies.Next()
			if !ok {
				repliesComplete.Broken("requests", s.batch.count)
				s.fail(commands.Error("UNKNOWN the command may or may not have run: missing reply"))
				s.quit = true
				return
			}
			s.noteDenied(a.Denied)
			s.decide(&p.recorded, a)
			s.lockReply(p, a.Reply)
			end = replyEnding(a.Reply)
			s.learn(p.hint, a.Reply)
			s.answerRequest(p, a.Reply, share)
			done++
		}
		s.count(p.spec, p.args, end, share, s.written(&s.reply)-replied)
		if p.muted && !s.pushed {
			s.takeBack(&s.reply, before, sends)
		}
	}
}

// answerRequest answers one request from its reply.
func (s *session) answerRequest(p *pending, reply []byte, took time.Duration) {
	if reply[0] == '-' {
		s.countError(codeOf(reply[1:]))
		s.failWatch(p)
		s.reply.Buf = append(s.reply.Buf, reply...)
		return
	}
	if p.denied {
		s.uncache(p.spec, p.args)
	}
	switch p.step {
	case delivered:
		s.replyReceivers(p.spec, p.args, reply)
	case watched:
		s.keepWatch(p.args[1:], reply)
	case executed:
		s.spliceExec(p, reply, took/time.Duration(max(len(p.block), 1)))
	default:
		if p.spec.Ran != nil {
			p.spec.Ran(s, p.args)
		}
		if len(reply) > maxBatchBytes && !p.muted {
			// the session owns it: a large reply is not copied
			if len(s.reply.Buf) > 0 && s.send() != nil {
				s.quit = true
			}
			s.reply.Buf = reply[:len(reply):len(reply)]
			return
		}
		s.reply.Buf = append(s.reply.Buf, reply...)
	}
}
