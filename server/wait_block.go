package server

// This file holds the life of a command that waits: tried once, asleep until one of its keys changed, tried again, until there is
// something, the time is over, or the client has gone.

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
)

const errUnblocked commands.Error = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

// How long a waiting command pauses when a try could not run because no leader was there, and how long at most after several.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// mayWait says whether a call of a command can come to wait: always, or only with its word BLOCK.
func mayWait(spec *commands.Spec, args [][]byte) bool {
	if !spec.Has(commands.Blocking) || spec.Handler == nil {
		return false
	}
	if !strings.Contains(spec.Syntax, "[BLOCK ") {
		return true
	}
	for _, a := range args[1:] {
		if is(a, "block") {
			return true
		}
	}
	return false
}

// waitedKeys are the keys that a call may wait for: those that it takes or reads something of, not those that it only adds to. There are none
// where the call is wrong.
func waitedKeys(spec *commands.Spec, args [][]byte) [][]byte {
	if len(spec.Keys.Parts) > 1 {
		uses, _ := spec.KeyUses(args)
		var keys [][]byte
		for _, u := range uses {
			if u.Flags&commands.KeyAccess != 0 {
				keys = append(keys, args[u.Place])
			}
		}
		return keys
	}
	indexes, _ := spec.KeyIndexes(args)
	keys := make([][]byte, len(indexes))
	for i, at := range indexes {
		keys[i] = args[at]
	}
	return keys
}

// block runs a command that may wait. It goes alone: what the run owes is answered before.
func (s *session) block(spec *commands.Spec, args [][]byte) {
	keys := waitedKeys(spec, args)
	if len(keys) == 0 {
		s.enqueue(spec, args, false) // it is answered with an error
		return
	}
	s.flush()
	b := blocked{s: s, spec: spec, start: time.Now()}
	behind := false
	b.w, behind = s.srv.waitQueues.join(s.conn, s.db, keys, spec, args) // before the first try, so that no change is missed
	takes := argBytes(keys) + waitedKeyCost*len(keys)                   // and the arguments, once they are kept
	s.memory.add(memoryKeys, takes)
	keys = nil // the lines have their own
	defer func() {
		s.srv.waitQueues.leave(b.w)
		s.memory.add(memoryKeys, -takes)
		s.srv.observe()
	}()
	s.srv.observe()
	s.enqueue(spec, args, behind)
	replies, err := s.ask()
	b.took = s.lap()
	if timeoutMs, again, waits := commands.CutBlock(replies); err == nil && waits {
		owed := s.batch.pending[0]
		s.dropBatch()
		if kept := s.keepArgs(args); kept != nil {
			size := argBytes(kept) + argCost*len(kept)
			takes += size
			s.memory.add(memoryKeys, size)
			args, owed.args = kept, kept
		}
		if replies, err = b.await(args, timeoutMs, again); b.left {
			s.quit = true
			return
		}
		s.batch.pending = append(s.batch.pending, owed)
	}
	s.takeReplies(replies, err, b.took)
	s.dropBatch()
}

// keepArgs copies the arguments of a command that is going to wait, so that the buffers of its session go, or returns nil where these stay. They are
// none that others wait for any more.
func (s *session) keepArgs(args [][]byte) (kept [][]byte) {
	if s.more == 0 && s.in.start == s.in.end && len(s.in.buf) > minReadBuffer {
		kept = copyArgs(args, argBytes(args))
		s.giveInputBack()
		s.batch.bytes, s.batch.pending, s.batch.literals.Buf = nil, nil, nil
	}
	s.srv.intake.leaveOut(s)
	return kept
}

// blocked is a command that waits.
type blocked struct {
	s     *session
	spec  *commands.Spec
	w     *waiter
	start time.Time
	took  time.Duration // by tries, without the waiting
	left  bool          // the client, or the server, has gone away

	until   time.Time     // when the time is over; zero: never
	resume  time.Time     // when the next try may begin after one that could not run; zero: at once
	pause   time.Duration // before the next such try
	request commands.Request

	keyIndexes []int              // where in the request's arguments its keys are; nil: not looked up
	due        map[int32]struct{} // keys that changed since the newest try that ran
	dueAll     bool               // or all of them
}

// await waits and tries until there is a reply.
func (b *blocked) await(args [][]byte, timeoutMs int64, again []byte) (replies []byte, err error) {
	s := b.s
	if timeoutMs > 0 {
		b.until = b.start.Add(time.Duration(min(timeoutMs, 1<<43)) * time.Millisecond)
	}
	b.request = commands.Request{DB: s.db, Proto: s.proto, Woken: true, Client: s.asker(), Cmds: [][][]byte{args}}
	b.retryWith(again)
	b.due = map[int32]struct{}{}
	b.begin(len(args))
	defer b.end()
	for s.send() == nil { // the client sees what was answered, and held back, before it waits
		switch b.sleep() {
		case wokeUnblocked:
			if b.w.unblock == unblockError {
				return nil, errUnblocked
			}
			return b.nothing(), nil
		case wokeTimeout:
			return b.nothing(), nil
		case wokeClosed:
			b.left = true
			return nil, nil
		}
		if b.left = !s.waitPaused(b.spec); b.left {
			return nil, nil
		}
		s.blocked = true // a pause ends with its opposite
		replies, err, done := b.attempt()
		if done {
			return replies, err
		}
	}
	b.left = true
	return nil, nil
}

// begin shows that the session waits.
func (b *blocked) begin(args int) {
	s := b.s
	s.srv.waitQueues.blocked.Add(1)
	s.waiter.Store(b.w)
	b.w.mu.Lock()
	b.w.waits = true
	b.w.mu.Unlock()
	s.blocked = true
	s.show(args)
}

func (b *blocked) end() {
	b.s.srv.waitQueues.blocked.Add(-1)
	b.s.waiter.Store(nil)
	b.s.blocked = false
	_ = b.s.conn.SetReadDeadline(time.Time{})
}

// nothing is the reply when the time is over.
func (b *blocked) nothing() []byte {
	out := commands.RESP{Proto: b.s.proto}
	out.NullArray()
	return out.Buf
}

// try runs the command again. done is false where it goes on waiting.
func (b *blocked) attempt() (replies []byte, err error, done bool) {
	s := b.s
	s.clock = time.Now()
	request, whole := b.request, b.dueAll || len(b.due) == 0
	if !whole {
		if b.keyIndexes == nil {
			b.keyIndexes, _ = b.spec.KeyIndexes(b.request.Cmds[0])
		}
		request.Cmds = [][][]byte{onlyKeys(b.spec, b.request.Cmds[0], b.keyIndexes, b.due)}
	}
	batch := commands.AppendRequest(nil, &request)
	owed := []pending{{spec: b.spec, args: request.Cmds[0], db: request.DB}}
	replies, err = s.askFor(batch, 1, owed, b.spec.Kind == commands.Write, false, false)
	b.took += s.lap()
	if err != nil {
		if !notRun(err) {
			return nil, err, true
		}
		b.pause = min(max(2*b.pause, firstPause), longestPause)
		b.resume = time.Now().Add(b.pause)
		return nil, nil, false
	}
	b.pause, b.resume = 0, time.Time{}
	b.dueAll = false
	clear(b.due)
	_, again, waits := commands.CutBlock(replies)
	if !waits {
		return replies, nil, true
	}
	if whole {
		b.retryWith(again)
	}
	b.w.mu.Lock()
	b.w.turn = false
	b.w.mu.Unlock()
	return nil, nil, false
}

// onlyKeys gives the arguments of a waiting command with only some of its keys, by their order in the call: the others are as they were when it found nothing. The
// cost of a change does not depend on how many keys the command waits for.
func onlyKeys(spec *commands.Spec, args [][]byte, indexes []int, due map[int32]struct{}) [][]byte {
	if len(indexes) <= len(due) || len(spec.Keys.Parts) > 1 {
		return args
	}
	first, end := indexes[0], indexes[len(indexes)-1]+1
	rest := args[end:]
	count := -1 // the place of the number of keys
	switch spec.Name {
	case "blpop", "brpop", "bzpopmin", "bzpopmax":
	case "blmpop", "bzmpop":
		count = first - 1
	case "xread", "xreadgroup": // an id for every key stands behind them
		if len(rest) != len(indexes) {
			return args
		}
	default:
		return args
	}
	some := slices.Clone(args[:first])
	order := slices.Sorted(maps.Keys(due))
	for _, i := range order {
		some = append(some, args[indexes[i]])
	}
	switch {
	case count >= 0:
		some[count] = []byte(formatInt(int64(len(order))))
		return append(some, rest...)
	case spec.Group == groupStream:
		for _, i := range order {
			some = append(some, rest[i])
		}
		return some
	}
	return append(some, rest...)
}

// notRun says whether an error promises that the command did not run and never will: it may be tried again.
func notRun(err error) bool {
	word := errorWord(err.Error())
	return word == noLeaderWord || word == "TRYAGAIN" || word == "LOADING"
}

// noLeaderWord is the code word of what did not run for want of a leader.
const noLeaderWord = "CLUSTERDOWN"

// errorWord is the code word of an error reply, by which clients know what became of the command.
func errorWord(reply string) string {
	word, _, _ := strings.Cut(reply, " ")
	return word
}

// retryWith takes the arguments that the handler wants to be called with the next time, if it gave any.
func (b *blocked) retryWith(again []byte) {
	n, rest, ok := elements(again)
	if !ok || n == 0 {
		return
	}
	args := make([][]byte, 0, n)
	for range n {
		size := replyLen(rest)
		if size <= 0 {
			return
		}
		at := strings.IndexByte(string(rest[:size]), '\n') + 1
		args = append(args, rest[at:size-2])
		rest = rest[size:]
	}
	b.request.Cmds[0], b.keyIndexes = args, nil
}

// woke is why a sleep ended.
type wakeReason uint8

const (
	wokeNot       wakeReason = iota
	wokeChange               // a key changed
	wokeUnblocked            // CLIENT UNBLOCK
	wokeTimeout              // the time is over
	wokeClosed               // the client, the session or the server ends
)

// sleep waits for something to do. It reads the connection meanwhile, to learn that the client has gone.
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
		if s.srv.closing.Load() || s.killed.Load() { // after the deadline was set: who ends the session sets another behind it
			return wokeClosed
		}
		if err := b.sleepOnce(until); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.gone = true
			return wokeClosed
		}
	}
}

// lieDown says why the command cannot sleep, or prepares its sleep, until a time or without end where that is zero.
func (b *blocked) prepareSleep() (until time.Time, reason wakeReason) {
	w := b.w
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
		w.woken = true // the try that did not run is owed
		if now.Before(b.resume) {
			break
		}
		fallthrough
	case w.woken:
		w.woken, w.turn = false, true
		b.dueAll = w.takeDue(b.due) || b.dueAll
		_ = w.conn.SetReadDeadline(time.Time{})
		return until, wokeChange
	}
	until = b.until
	if !b.resume.IsZero() && (until.IsZero() || b.resume.Before(until)) {
		until = b.resume
	}
	w.asleep = true
	_ = w.conn.SetReadDeadline(until)
	return until, wokeNot
}

// rest sleeps once. What the client sends meanwhile is kept, up to a limit from which on it is not read any more.
func (b *blocked) sleepOnce(until time.Time) error {
	if len(b.s.in.ahead) < maxAhead {
		return b.s.in.peek()
	}
	var over <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		over = t.C
	}
	select {
	case <-b.w.wakeup:
	case <-over:
	case <-b.s.srv.ctx.Done():
	}
	return nil
}
