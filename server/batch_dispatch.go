package server

// This file holds the way of a command: look it up, refuse it, queue it, answer it from the session, or gather it with its
// neighbours into a run that goes to the backend in one piece.

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
)

// local is what Spec.Local holds: how a session answers a command outside of a transaction.
type local struct {
	run func(s *session, spec *commands.Spec, args [][]byte)
	// early commands see and change nothing that the requests before them could have changed: they do not wait for these.
	early bool
	// works commands compute, may do so for long, and wait for nobody: they share the processor fairly, see Backend.Share.
	works bool
	// raw commands take care of the order of answers themselves: they call answer, or become requests.
	raw bool
}

// step says what becomes of a request's reply.
type step uint8

const (
	plain     step = iota // it is the answer
	literal               // there was no request: the answer lies in run.literals
	delivered             // the answer is the number of subscribers here
	watched               // revisions for the session
	executed              // a transaction's
)

// pending is an answer that a run owes.
type pending struct {
	step   step
	muted  bool
	behind bool     // a command that may wait has come behind others that wait
	shard  bool     // of delivered
	end    int      // of literal: where it ends in run.literals
	args   [][]byte // of what was asked; valid until more is read
	db     int      // that it was asked in
	block  []queued // of executed
	looks  bool     // of executed: none of its commands can write
	hint   hintKey
	spec   *commands.Spec
}

// run is what goes to the backend next.
type batch struct {
	bytes    []byte // encoded requests
	count    int
	write    bool // one of the requests is a write
	fresh    bool // one of the reads must not be stale
	pending  []pending
	literals commands.RESP
	req      commands.Request
	cmd      [1][][]byte
	room     int // requests that a run with a write may have, see fitRoom

	// See batch_hints.go: the writes among the requests, those that may be tried, and those that are likely to change nothing; the first that may.
	writes, eligible, likely int
	first                    hintKey
	by                       Asker // of the first request, without the source
	dryRan                   bool  // the replies that came last are those of a try
}

// dispatch takes one command. Its answer is in s.reply, or owed by s.run.
func (s *session) dispatch(args [][]byte) {
	s.srv.stats.commands.Add(1)
	s.skipping, s.skipNext = s.skipNext, false
	if len(args) == 0 {
		s.refuse(nil, commands.Errorf("ERR request exceeds %d bytes; it did not run", s.srv.cfg.MaxRequestBytes))
		return
	}
	spec, err := s.srv.table.Resolve(args)
	if err != nil {
		if s.browser(args[0]) {
			return
		}
		s.refuse(s.srv.table.Get(args[0]), refusedError(args, err))
		return
	}
	s.last = spec
	if s.caching {
		defer s.cachingPast(spec)
	}
	if s.proto == 2 && !spec.Has(commands.SubscribeMode) && s.subscribed() {
		s.refuse(spec, commands.Errorf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", spec.FullName()))
		return
	}
	if s.monitoring {
		if keptFromMonitor(spec) {
			s.refuse(spec, errMonitorData)
			return
		}
		_ = s.out.hold(&s.srv.wg) // what it is shown of itself comes behind its reply
	}
	if !s.waitPaused(spec) {
		s.quit = true
		return
	}
	if err := s.elsewhere(spec, args); err != nil {
		s.refuse(spec, err)
		return
	}
	if s.tx.open && !unqueued(spec) {
		s.queue(spec, args)
		return
	}
	if l, ok := spec.Local.(local); ok {
		s.runLocal(&l, spec, args)
		return
	}
	s.request(spec, args)
}

// browser ends the connection of a web page that was made to talk to us, as Redis does.
func (s *session) browser(word []byte) bool {
	if !bytes.EqualFold(word, []byte("post")) && !bytes.EqualFold(word, []byte("host:")) {
		return false
	}
	s.srv.warnings.Warn("closed an HTTP client", "client", s.addr)
	s.flush()
	s.quit = true
	return true
}

// refuse answers a command that does not run with an error. A transaction that it should have been part of fails; where it is
// EXEC, at once.
func (s *session) refuse(spec *commands.Spec, err error) {
	s.countRejected(spec)
	switch {
	case spec != nil && spec.Group == "transactions" && spec.Name == "exec":
		s.flush() // a WATCH under way belongs to what is dropped
		s.tx = transaction{}
		err = commands.Error("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(err.Error(), "ERR "))
	case s.tx.open:
		s.tx.failed = true
	}
	s.answer(func() { s.w.Error(err.Error()) })
	s.countError(err.Error())
}

// fail is the error answer of a session command.
func (s *session) fail(err error) {
	s.fails++
	s.w.Error(err.Error())
	s.countError(err.Error())
}

// runLocal answers a session command.
func (s *session) runLocal(l *local, spec *commands.Spec, args [][]byte) {
	if s.batch.fresh {
		s.flush() // what was watched is state of the session
	}
	if l.raw {
		l.run(s, spec, args)
		return
	}
	if !l.early {
		s.flush()
	}
	s.answer(func() { s.runCounted(l, spec, args) })
}

const errReplySize commands.Error = "ERR reply exceeds 64 MiB; the command ran"

// runCounted answers a session command and counts it.
func (s *session) runCounted(l *local, spec *commands.Spec, args [][]byte) {
	fails, start := s.fails, len(s.w.Buf)
	s.w.Limit = start + commands.MaxReplyBytes
	if !l.works {
		l.run(s, spec, args)
	} else if err := s.srv.backend.Share(s.asksLocally(spec, args), func() { l.run(s, spec, args) }); err != nil {
		s.fail(err)
	}
	s.w.Limit = 0
	if s.w.Full {
		s.w.Full, s.w.Buf = false, s.w.Buf[:min(start, len(s.w.Buf))] // less than there was where some of it was sent
		s.fail(errReplySize)
	}
	if !s.inExec {
		s.showMonitors(spec, args)
	}
	s.count(spec, args, s.fails != fails, s.lap())
}

// answer takes what f writes to s.w as the answer of the current command, behind those that the run owes.
func (s *session) answer(f func()) {
	behind := len(s.batch.pending) > 0
	if behind {
		s.w = &s.batch.literals
	}
	start, sends := len(s.w.Buf), s.sends
	s.pushed = false
	f()
	if s.sends != sends {
		start = 0 // what stood before has gone out
	}
	if s.silent() && !s.pushed {
		s.w.Buf = s.w.Buf[:start]
	}
	if behind {
		s.batch.pending = append(s.batch.pending, pending{step: literal, end: len(s.batch.literals.Buf)})
		s.w = &s.reply
		if len(s.batch.literals.Buf) > maxBatchBytes || len(s.batch.pending) > 2*maxBatchRequests {
			s.flush() // small requests can have large answers: they must not pile up behind what the run owes
		}
	}
}

// silent says whether the current command's answer is not sent, because of CLIENT REPLY.
func (s *session) silent() bool { return s.muted || s.skipping }

// setProto changes the protocol of what is answered from now on.
func (s *session) setProto(proto int) {
	s.proto, s.reply.Proto, s.batch.literals.Proto = proto, proto, proto
	s.pushProto.Store(int32(proto))
}

// request adds a command to the run.
func (s *session) request(spec *commands.Spec, args [][]byte) {
	if spec.Kind != commands.Read && spec.Kind != commands.Write {
		s.refuse(spec, commands.Errorf("ERR '%s' cannot be run here", spec.FullName())) // declared without a way to answer it
		return
	}
	if mayWait(spec, args) {
		s.block(spec, args)
		return
	}
	s.enqueue(spec, args, false)
}

// enqueue adds a command that the machine answers to the run. behind says that it waits behind others and is to take nothing.
func (s *session) enqueue(spec *commands.Spec, args [][]byte, behind bool) {
	s.remember(spec, args)
	s.batch.cmd[0] = args
	s.addRequest(spec.Kind == commands.Write, s.batch.cmd[:], pending{step: plain, args: args, spec: spec, behind: behind})
}

// addRequest encodes a command, or a transaction where owed.step is executed, into the run.
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
	b.req = commands.Request{DB: s.db, Proto: s.proto, Client: s.asker(), Behind: owed.behind, Cmds: cmds}
	owed.db = s.db
	if owed.step == executed {
		b.req.Multi, b.req.Watch = true, s.tx.watch
	} else {
		s.showMonitors(owed.spec, owed.args)
	}
	if write {
		b.consider(&s.srv.hints, s.db, cmds, &owed, s.srv.monitors.size.Load() > 0)
	}
	if b.count == 0 {
		b.by = askerOf(s.db, owed.spec, cmds)
	}
	b.bytes = commands.AppendRequest(b.bytes, &b.req)
	b.count++
	b.write = b.write || write
	owed.muted = s.silent()
	b.pending = append(b.pending, owed)
}

// flush sends the run to the backend and takes its answers into s.reply.
func (s *session) flush() {
	b := &s.batch
	if len(b.pending) == 0 {
		return
	}
	replies, err := s.ask()
	s.takeReplies(replies, err, s.lap()/time.Duration(max(b.count, 1)))
	s.dropBatch()
}

// What the replies of a run with a write amount to decides how many requests the next one has. The machine runs them all whatever they answer, and
// replies past commands.MaxReplyBytes are lost: a client that sends a thousand pops of large elements at once must not come to
// that. So a connection begins with short runs, which become longer while replies stay small.
const (
	firstRoom   = 16
	fewBytes    = 1 << 20 // of replies: the next run may be twice as long
	enoughBytes = 8 << 20 // the next run is to have no more
)

// fitRoom takes in that a run of count requests was answered with so many bytes.
func (b *batch) fitRoom(count, bytes int) {
	switch {
	case bytes > enoughBytes:
		b.room = max(1, int(int64(count)*enoughBytes/int64(bytes)))
	case bytes < fewBytes && count >= b.room:
		b.room = min(2*b.room, maxBatchRequests)
	}
}

// ask sends the run to the backend.
func (s *session) ask() (replies []byte, err error) {
	b := &s.batch
	if b.count == 0 {
		return nil, nil
	}
	return s.askFor(b.bytes, b.count, b.pending, b.write, b.fresh, b.worthDryRun(&s.srv.hints))
}

// errNotAsked answers what did not run because its connection ends.
const errNotSent commands.Error = "CLUSTERDOWN the command did not run: its connection was closed"

// askFor sends a run to the backend. A run with a write is tried before it is logged where try says so. What it brings about is told to this client behind its replies.
func (s *session) askFor(batch []byte, count int, owed []pending, write, fresh, dryRun bool) (replies []byte, err error) {
	if s.track.Load() != nil && !s.out.hold(&s.srv.wg) {
		s.quit = true
	}
	by := s.asks(count)
	if err := s.reserveReply(by, owed); err != nil {
		s.quit = true
		return nil, errNotSent
	}
	defer func() { s.replied(by, len(replies)) }()
	done := false
	if dryRun {
		replies, err, done = s.dryRun(batch, count)
	}
	switch {
	case done:
	case write:
		if replies, err = s.srv.backend.Write(context.Background(), s.asks(count), batch, count); err == nil {
			s.batch.fitRoom(count, len(replies))
		}
	case s.stale && !fresh:
		replies, err = s.srv.backend.ReadLocal(s.asks(count), batch, count)
	default:
		replies, err = s.srv.backend.Read(context.Background(), s.asks(count), batch, count)
	}
	if err != nil && err.Error() == "" {
		err = commands.Error("UNKNOWN the command may or may not have run")
	}
	return replies, err
}

// askRest sends what is left of the run behind done requests, which is owed: the backend has answered these, and not run the others.
func (s *session) askRest(rest *commands.RequestReader, done int, owed []pending) (replies []byte, err error) {
	if len(s.reply.Buf) > maxBatchBytes && s.send() != nil {
		s.quit = true // nobody is there to hear more
		return nil, errKilled
	}
	for range done {
		if _, err := rest.Next(); err != nil {
			return nil, commands.Errorf("UNKNOWN the command may or may not have run: unreadable batch: %v", err)
		}
	}
	s.batch.count -= done
	return s.askFor(rest.Rest(), s.batch.count, owed, s.batch.write, s.batch.fresh, false)
}

// dropRun forgets the run, which was answered.
func (s *session) dropBatch() {
	b := &s.batch
	clear(b.pending)
	s.inHand = 0
	b.pending, b.count, b.write, b.fresh = b.pending[:0], 0, false, false
	b.writes, b.eligible, b.likely, b.dryRan = 0, 0, 0, false
	if b.bytes = b.bytes[:0]; cap(b.bytes) > 2*maxBatchBytes {
		b.bytes = nil
	}
	if b.literals.Buf = b.literals.Buf[:0]; cap(b.literals.Buf) > maxBatchBytes {
		b.literals.Buf = nil
	}
}

// takeReplies puts the answers of the run in order, and asks for those that are missing. share is each request's part of the time that the
// run took.
func (s *session) takeReplies(replies []byte, err error, share time.Duration) {
	s.refused = s.refused || err != nil && errorWord(err.Error()) == noLeaderWord
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
		if err == nil && len(replies) == 0 && done > 0 {
			if s.batch.dryRan {
				s.dryRunMissed(p.hint)
			}
			if replies, err = s.askRest(&rest, done, s.batch.pending[i:]); s.quit {
				return
			}
			share, done = s.lap()/time.Duration(max(s.batch.count, 1)), 0
		}
		before, failed := len(s.reply.Buf), true
		if err != nil {
			s.fail(err)
		} else {
			n := replyLen(replies)
			if n <= 0 {
				s.srv.log.Error("batch returned too few replies", "requests", s.batch.count)
				s.fail(commands.Error("UNKNOWN the command may or may not have run: missing reply"))
				s.quit = true
				return
			}
			failed = replies[0] == '-'
			s.learn(p.hint, replies[:n])
			s.settle(p, replies[:n], share)
			replies, done = replies[n:], done+1
		}
		s.count(p.spec, p.args, failed, share)
		if p.muted {
			s.reply.Buf = s.reply.Buf[:before]
		}
	}
}

// settle answers a request by its reply, which took so long.
func (s *session) settle(p *pending, reply []byte, took time.Duration) {
	if reply[0] == '-' {
		line, _, _ := strings.Cut(string(reply[1:min(len(reply), 64)]), "\r")
		s.countError(line)
		s.reply.Buf = append(s.reply.Buf, reply...)
		return
	}
	switch p.step {
	case delivered:
		s.reply.Int(int64(s.srv.pubsub.receivers(p.args[1], p.shard)))
	case watched:
		s.keepWatch(p.args[1:], reply)
	case executed:
		s.spliceExec(p, reply, took/time.Duration(max(len(p.block), 1)))
	default:
		if len(reply) > maxBatchBytes && !p.muted { // it is the session's: what is so large is not copied
			if len(s.reply.Buf) > 0 && s.send() != nil {
				s.quit = true
			}
			s.reply.Buf = reply[:len(reply):len(reply)]
			return
		}
		s.reply.Buf = append(s.reply.Buf, reply...)
	}
}
