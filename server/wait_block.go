// The life of a command that waits: tried once, asleep until one of its keys changes, tried again,
// until it succeeds, times out, or the client disconnects.

package server

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

const errUnblocked commands.Error = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

// leastLook is how long a command that may find something without a change waits before it looks
// again.
const leastLook = 100 * time.Millisecond

// Backoff of a waiting command whose attempt could not run for lack of a leader.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// waitedKeys returns the keys that a call may wait for. There are none if the call is invalid.
func waitedKeys(spec *commands.Spec, args [][]byte) [][]byte {
	indexes := spec.WaitedKeys(args)
	keys := make([][]byte, len(indexes))
	for i, at := range indexes {
		keys[i] = args[at]
	}
	return keys
}

// block runs a command that may wait. It runs alone: the batch before it is answered first.
func (s *session) block(spec *commands.Spec, args [][]byte) {
	b := blocked{s: s, spec: spec, start: time.Now()}
	keys := waitedKeys(spec, args)
	if len(keys) == 0 {
		s.enqueue(spec, args, pending{}) // answered with an error
		return
	}
	s.flush()
	takes := argBytes(keys) + waitedKeyCost*len(keys) // the arguments are added once they are kept
	s.memory.add(memoryKeys, takes)
	owes := pending{}
	// before the first attempt, so that no change is missed
	if s.srv.inMachine(spec) {
		b.w = s.srv.machineWaits.join(s)
		owes.wait = s.srv.machineWaits.request(b.w)
	} else {
		b.w, owes.behind = s.srv.waitQueues.join(s.conn, s.db, keys, spec, args)
		s.srv.observe()
	}
	b.request = commands.Request{DB: s.db, Proto: s.proto, Woken: true, Client: s.requestClient(),
		User: s.userID(), Wait: owes.wait, Cmds: [][][]byte{args}}
	keys = nil // the queues have copies
	defer func() {
		b.unregister()
		s.memory.add(memoryKeys, -takes)
	}()
	s.enqueue(spec, args, owes)
	b.judgedBy = s.srv.users()
	replies, err := s.ask()
	b.took = s.lap()
	b.kept = err != nil && !notRun(err) // for all that is known
	block, waits := replies.Block()
	if err == nil && (waits || b.repeats(replies)) {
		owed := s.batch.pending[0]
		s.dropBatch()
		if kept := s.keepArgs(args); kept != nil {
			size := argBytes(kept) + argCost*len(kept)
			takes += size
			s.memory.add(memoryKeys, size)
			owed.args, b.request.Cmds[0] = kept, kept
		}
		if replies, err = b.await(block); b.left {
			s.quit = true
			return
		}
		owed.denied = owed.denied || b.denied
		s.batch.pending = append(s.batch.pending, owed)
	}
	unknown := endingOf(err) == endedUnknown
	if unknown {
		_ = s.send() // the replies to earlier commands; if it fails, the session ends all the same
	}
	s.takeReplies(replies, err, b.took)
	s.dropBatch()
	if unknown {
		// A worker takes an error for a mistake of its own, and ends. It connects again when its
		// connection ends, as that of a blocked client does when a Redis dies (docs/adr/0048).
		s.reply.Buf, s.quit = s.reply.Buf[:0], true
	}
}

// unregister takes the command out of what waits.
func (b *blocked) unregister() {
	srv := b.s.srv
	b.looksNoMore()
	if b.w.number == 0 {
		srv.waitQueues.leave(b.w)
		srv.observe()
		return
	}
	if b.kept {
		srv.leaveLater(b.w, b.request)
		return
	}
	srv.machineWaits.forget(b.w)
}

// keepArgs copies the arguments of a command that starts to wait, so that the session's buffers
// can be freed, or returns nil if the buffers stay.
func (s *session) keepArgs(args [][]byte) (kept [][]byte) {
	if s.more == 0 && s.in.start == s.in.end && len(s.in.buf) > minReadBuffer {
		kept = copyArgs(args, argBytes(args))
		s.in.freeBuffers()
		s.batch.bytes, s.batch.pending, s.batch.literals.Buf = nil, nil, nil
	}
	s.srv.intake.leaveOut(s)
	return kept
}

// blocked is a command that waits.
type blocked struct {
	s      *session
	spec   *commands.Spec
	w      *waiter
	start  time.Time
	took   time.Duration // by attempts, without the waiting
	left   bool          // the client or the server has gone away
	kept   bool          // the machine has it, for all that is known
	missed bool          // … and a snapshot may have skipped what it did with it
	leaves bool          // a request to leave may be under way: how it ended is not known
	resent bool          // news may be of what the machine gave up when it was sent again
	behind bool          // an earlier request with its id is under way: it waits for its end

	until  time.Time     // timeout; zero: none
	resume time.Time     // earliest next attempt after one that could not run; zero: immediately
	pause  time.Duration // before that attempt
	look   time.Time     // when there may be something without a change; zero: never
	looks  bool          // that caused the current attempt
	// its part of Server.looks
	looksHourly int64
	request     commands.Request

	late       int              // grants that were claimed too late
	denied     bool             // an attempt was denied, as in recorded
	judgedBy   *Users           // those that this node knew when the newest attempt had all keys
	keyIndexes []int            // where the keys are in the request's arguments; nil: not looked up
	due        map[int]struct{} // keys that changed since the newest attempt that ran
	dueAll     bool             // all keys may have changed
}

// await sleeps and retries until there is a reply.
func (b *blocked) await(first []byte) (replies commands.Replies, err error) {
	s := b.s
	timeoutMs, _, waits := commands.CutBlock(first)
	if !waits {
		timeoutMs, _ = commands.LockWait(b.request.Cmds[0])
	}
	if timeoutMs > 0 {
		b.until = b.start.Add(time.Duration(min(timeoutMs, 1<<43)) * time.Millisecond)
	}
	b.due = map[int]struct{}{}
	if waits {
		b.again(first)
		b.lookAgain(first)
	}
	b.show(len(b.request.Cmds[0]))
	defer b.hide()
	for s.send() == nil { // the client sees earlier replies before it waits
		reason := b.sleep()
		if reason != wokeChange {
			return b.giveUp(reason)
		}
		if b.pausable() {
			if b.left = !s.waitPaused(b.spec, b.request.Cmds[0]); b.left {
				return replies, nil
			}
			s.blocked = true // the end of a pause cleared it
		}
		replies, err, done := b.attempt()
		if done {
			return b.served(replies, err)
		}
	}
	b.left = true
	return replies, nil
}

// pausable reports whether a pause holds back the next attempt. It does not if the command has a
// place in the queue for a lock: the others there would wait for it too.
func (b *blocked) pausable() bool { return !b.spec.Claims() || b.behind && !b.kept }

// giveUp ends the wait without its keys having changed.
func (b *blocked) giveUp(reason wakeReason) (replies commands.Replies, err error) {
	if reason == wokeClosed && (b.s.gone || b.s.killed.Load()) {
		b.left = true
		return replies, nil
	}
	if replies, err, served := b.leave(); served {
		return b.served(replies, err)
	}
	switch {
	case reason == wokeClosed:
		b.left = true
		return replies, nil
	case b.w.unblock == unblockError:
		return replies, errUnblocked
	}
	return b.nothing(), nil
}

// served notes how long the command waited for its reply. It goes back if nobody is there any more.
func (b *blocked) served(replies commands.Replies, err error) (commands.Replies, error) {
	if err == nil && (b.s.cut.Load() || !clientConnected(b.s.conn)) { // nobody gets it any more
		if b.kept = b.spec.Claims(); !b.kept {
			b.s.srv.putBackServed(b.w.number, b.request, replies)
		}
		b.left = true
		return commands.Replies{}, nil
	}
	peek := replies
	// waits for locks are known of the machine: see locks.Stats.Waited
	if a, ok := peek.Next(); err == nil && ok && a.Err() == nil && !b.spec.Claims() {
		key := waitedKeys(b.spec, b.request.Cmds[0])[0]
		b.s.srv.cfg.Locks.Served(key, time.Since(b.start))
	}
	return replies, err
}

// show publishes that the session waits.
func (b *blocked) show(args int) {
	s := b.s
	b.publish()
	s.blocked = true
	s.show(args)
	s.srv.waitQueues.blocked.Add(1) // who sees that one waits can find it, and unblock it
}

// publish lets others end the wait.
func (b *blocked) publish() {
	before, unblock := b.s.waiter.Swap(b.w), ""
	if before != nil && before != b.w {
		before.mu.Lock()
		before.waits, unblock = false, before.unblock
		before.mu.Unlock()
	}
	b.w.mu.Lock()
	b.w.waits = true
	if unblock != "" {
		b.w.unblock = unblock
	}
	b.w.mu.Unlock()
}

func (b *blocked) hide() {
	b.s.srv.waitQueues.blocked.Add(-1)
	b.s.waiter.Store(nil)
	b.s.blocked = false
	_ = b.s.conn.SetReadDeadline(time.Time{})
}

// nothing returns the reply to a timeout.
func (b *blocked) nothing() commands.Replies {
	out := commands.RESP{Proto: b.s.proto}
	switch {
	case b.behind: // the earlier one may still be granted
		out.Error(commands.ErrUnderWay.Error())
	case b.spec.Claims():
		commands.ReplyLate(&out)
	default:
		out.NullArray()
	}
	return commands.RepliesOf(out.Buf)
}

// attempt runs the command again, or takes what the machine has done with it. done is false if it
// goes on waiting.
func (b *blocked) attempt() (replies commands.Replies, err error, done bool) {
	s := b.s
	s.clock = time.Now()
	if b.w.number == 0 && b.w.takeNews().raised && s.srv.inMachine(b.spec) {
		b.enter()
	}
	if b.w.number != 0 {
		replies, err, done = b.read(b.w.takeNews())
		left := !done && b.missed
		if left {
			if replies, err, done = b.leave(); !done && b.kept { // it may not be sent again before
				b.pause = min(max(2*b.pause, firstPause), longestPause)
				b.resume = time.Now().Add(b.pause)
			}
		}
		if done || b.kept {
			return replies, err, done
		}
		if b.resent = true; left || b.leaves { // what comes of those must not concern it
			s.srv.machineWaits.renumber(b.w)
			b.leaves, b.resent = false, false
		}
		b.request.Wait = s.srv.machineWaits.request(b.w)
	}
	// new users judge the command as it was admitted
	users := s.srv.users()
	request, whole := b.request, b.dueAll || len(b.due) == 0 || users != b.judgedBy
	looks := b.looks // then it takes no entry that a change brings to one that waits before it
	request.Behind, b.looks = looks, false
	if !whole {
		if b.keyIndexes == nil {
			b.keyIndexes, _ = b.spec.KeyIndexes(b.request.Cmds[0])
		}
		if len(b.keyIndexes) > 0 && b.keyIndexes[0] == 1 {
			b.due[0] = struct{}{} // rules may name the first argument
		}
		some := slices.Sorted(maps.Keys(b.due))
		request.Cmds = [][][]byte{b.spec.OnlyKeys(b.request.Cmds[0], b.keyIndexes, some)}
	}
	// The change that woke it ended the tracking of its key: the client is told the next one, too.
	b.denied = s.remember(b.spec, request.Cmds[0]).denied || b.denied
	batch := commands.AppendRequest(nil, &request)
	owed := []pending{{spec: b.spec, args: request.Cmds[0], db: request.DB}}
	s.batch.first = hintKey{} // a look is a dry run first, whatever others learned
	replies, err = s.askFor(batch, 1, owed, b.spec.Kind == commands.Write, false, looks)
	b.took += s.lap()
	if looks && s.batch.dryRan {
		s.srv.stats.dryRunHits.Add(1)
	}
	if err != nil {
		unknown := !notRun(err)
		if b.kept = unknown && b.w.number != 0; b.kept && b.spec.Claims() {
			b.missed = true // it gives up what it may have been granted, and comes again
		} else if unknown {
			return replies, err, true
		}
		b.pause = min(max(2*b.pause, firstPause), longestPause)
		b.resume = time.Now().Add(b.pause)
		return replies, nil, false
	}
	b.pause, b.resume = 0, time.Time{}
	b.dueAll = false
	clear(b.due)
	block, waits := replies.Block()
	b.behind = false
	switch {
	case !waits && b.repeats(replies):
		return commands.Replies{}, nil, false
	case !waits:
		return b.claimed(replies)
	}
	if whole {
		b.judgedBy = users
		b.look = time.Time{}
		b.looksNoMore() // unless it says so again: it may have got a place behind its first request
		b.again(block)
	}
	b.lookAgain(block)
	b.w.mu.Lock()
	b.w.turn = false
	b.w.mu.Unlock()
	return commands.Replies{}, nil, false
}

// notRun reports whether the command did not run, so that it may be tried again.
func notRun(err error) bool {
	o := outcomeOf(err)
	return o == NotRun || o == NoLeader
}

// again takes what an attempt that found nothing answered: the arguments for the next one, if they
// differ, and the command's place in the machine.
func (b *blocked) again(block []byte) {
	if b.w.number != 0 {
		b.takePlace(block)
	}
	_, again, _ := commands.CutBlock(block)
	n, rest, ok := resp.Elements(again)
	if !ok || n == 0 {
		return
	}
	args := make([][]byte, 0, n)
	for range n {
		size := resp.Len(rest)
		if size <= 0 {
			return
		}
		at := strings.IndexByte(string(rest[:size]), '\n') + 1
		args = append(args, rest[at:size-2])
		rest = rest[size:]
	}
	b.request.Cmds[0], b.keyIndexes = args, nil
}

// lookAgain takes from what an attempt that found nothing answered when there may be something in
// the keys that it looked at, though none of them changes.
func (b *blocked) lookAgain(block []byte) {
	ms, ok := commands.CutLook(block)
	if !ok {
		return
	}
	wait := b.pace(max(time.Duration(min(ms, 1<<43))*time.Millisecond, leastLook))
	if at := time.Now().Add(wait); b.look.IsZero() || at.Before(b.look) {
		b.look = at
	}
}

// wakeReason says why a sleep ended.
type wakeReason uint8

const (
	wokeNot wakeReason = iota
	wokeChange
	wokeUnblocked // CLIENT UNBLOCK
	wokeTimeout
	wokeClosed // the client, the session or the server ends
)

// sleep waits for something to do. Meanwhile it reads the connection to notice a disconnect.
func (b *blocked) sleep() wakeReason {
	s := b.s
	for {
		until, reason := b.prepareSleep()
		if reason == wokeChange && !clientConnected(s.conn) {
			return wokeClosed
		}
		if reason != wokeNot {
			return reason
		}
		// checked after setting the deadline: closing sets a later one
		if s.srv.closing.Load() || s.killed.Load() {
			return wokeClosed
		}
		if err := b.sleepOnce(until); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.gone = true
			return wokeClosed
		}
	}
}

// prepareSleep returns the reason to stay awake, or prepares a sleep until a time (zero: no
// limit).
func (b *blocked) prepareSleep() (until time.Time, reason wakeReason) {
	w, paused := b.w, b.s.srv.pause.holds()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asleep = false
	now := time.Now()
	late := !b.until.IsZero() && !now.Before(b.until)
	switch {
	case w.unblock != "":
		return until, wokeUnblocked
	case late:
		return until, wokeTimeout
	case !b.resume.IsZero():
		w.woken = true // the attempt that did not run is still due
		if now.Before(b.resume) {
			break
		}
		fallthrough
	case w.woken:
		w.woken, w.turn = false, true
		b.dueAll = w.takeDue(b.due) || b.dueAll
		_ = w.conn.SetReadDeadline(time.Time{})
		return until, wokeChange
	case !b.look.IsZero() && !now.Before(b.look) && paused:
		b.look = now.Add(leastLook) // it times out in a pause, too
	case !b.look.IsZero() && !now.Before(b.look):
		b.look, b.looks = time.Time{}, true
		_ = w.conn.SetReadDeadline(time.Time{})
		return until, wokeChange
	}
	until = b.until
	for _, t := range []time.Time{b.resume, b.look} {
		if !t.IsZero() && (until.IsZero() || t.Before(until)) {
			until = t
		}
	}
	w.asleep = true
	_ = w.conn.SetReadDeadline(until)
	return until, wokeNot
}

// sleepOnce sleeps once, and fails when the client has disconnected.
func (b *blocked) sleepOnce(until time.Time) error {
	limit := pollInterval
	if !until.IsZero() {
		limit = min(limit, time.Until(until))
	}
	return b.s.lookForEnd(limit, b.w.wakeup)
}
