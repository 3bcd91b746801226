// What a command that waited for a lock was granted is claimed before its client learns of it: the
// machine gives a lock that nobody claims in time to the next (docs/adr/0064).

package server

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

// claimLimit is how long a node tries to claim. It is below the time for which the machine knows
// that it has: its answer to a later attempt is the same.
const claimLimit = 5 * time.Second

// freshMs is how old a grant may be, by the cluster clock, that was claimed with its entry: as old
// as one that is claimed behind it. The answer to a claim may be as old.
const freshMs = commands.ClaimMs

// claims reports whether what a call gets that waited is claimed.
func claims(args [][]byte) bool { return is(args[0], "lock.acquire") }

// claimed claims what the machine gave to a command that waited. done is false if somebody else may
// have it: the command waits on, in its place, or if that happens again at the end of the queue,
// since each time costs the others the time for which the machine waited.
func (b *blocked) claimed(replies commands.Replies) (commands.Replies, error, bool) {
	token := grantsToken(replies)
	if !b.spec.Claims() || token == "" {
		return replies, nil, true
	}
	switch err := b.s.srv.claim(b.s, b.w.number, token); err {
	case nil:
		return replies, nil, true
	case commands.ErrNotWaiting:
		if b.late++; b.late > 1 {
			b.w.order = 0
		}
		// The news may be of what it was granted before it was sent again: then it leaves first.
		b.kept, b.missed = b.resent, b.resent
	default:
		b.kept = true // its end is to give up what it was granted
		if b.spec.RequestID(b.request.Cmds[0]) != nil {
			// if it is claimed, its reply is remembered
			return commands.Replies{}, errWaitLost, true
		}
		b.missed = true // it leaves, and comes again unless its time is over
	}
	b.w.mu.Lock()
	b.w.woken = true // it is sent again
	b.w.mu.Unlock()
	return commands.Replies{}, nil, false
}

// grantsToken returns the token with which a reply grants a lock, "" if it grants none.
func grantsToken(replies commands.Replies) string {
	a, ok := replies.Next()
	if !ok || a.Err() != nil {
		return ""
	}
	v, err := resp.NewReader(bytes.NewReader(a.Reply)).Value()
	if err != nil || v.Kind != resp.Array || len(v.Elems) == 0 || v.Elems[0].Text == "0" {
		return ""
	}
	return v.Elems[0].Text
}

// claim claims what a wait was granted with a token, until its end is known, or the client is gone.
func (s *Server) claim(of *session, number uint64, token string) error {
	ctx, cancel := context.WithTimeout(s.ctx, claimLimit)
	defer cancel()
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2, System: true,
		Cmds: [][][]byte{{[]byte(commands.SystemClaim), strconv.AppendUint(nil, number, 10),
			[]byte(token)}}})
	asked := 0
	for pause := firstPause; ctx.Err() == nil && clientConnected(of.conn); pause = s.rest(pause) {
		sentMs := s.backend.ClockMs()
		replies, err := s.backend.Write(ctx, Workload{}, batch, 1)
		if err != nil {
			continue
		}
		if a, ok := replies.Next(); ok {
			if a.Err() != nil {
				return commands.ErrNotWaiting
			}
			// Else this node was away, and the lock may be over. It asks once more: where all
			// answers are late, nobody would get a lock.
			if asked++; asked > 1 || s.backend.ClockMs()-sentMs <= freshMs {
				return nil
			}
		}
	}
	return errWaitLost
}
