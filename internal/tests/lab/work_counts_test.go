//go:build linux

// Subscribers that come and go on all nodes. Each has a channel of its own, so that it knows what
// every node must count.

package lab

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// countedLate bounds how long a count may be wrong while its subscriber is connected: a node that
// reaches no leader confirms what does not count yet, and counts of one that was silent come back.
const countedLate = 10 * time.Second

// counts are its clients' subscriptions, as PUBSUB NUMSUB and PUBLISH count them.
type counts struct{}

// counted is what one client knows: its connection has, or no longer has, its channel.
type counted struct {
	channel    string
	subscribed bool
	compared   bool          // a count was right since
	since      time.Duration // the confirmation
}

func subscriberCounts(*work) player { return counts{} }

func (counts) turn(a *actor) {
	if !a.connect() {
		return
	}
	s, _ := a.mem.(*counted)
	switch {
	case s == nil:
		s = &counted{channel: fmt.Sprintf("counted:%d:%d", a.seat, a.turn)}
		a.mem = s
		a.changes(s, "SUBSCRIBE")
	case !s.compared:
		a.compares(s)
	case s.subscribed:
		a.changes(s, "UNSUBSCRIBE")
	default:
		a.forgets()
	}
}

// forgets has the client begin again, at another node perhaps.
func (a *actor) forgets() {
	a.mem = nil
	if a.rnd.IntN(4) == 0 {
		a.disconnect()
	}
}

// changes subscribes or unsubscribes. The confirmation is a push; the reply to PING comes after it.
func (a *actor) changes(s *counted, word string) {
	question := resp.AppendCommand(resp.AppendCommand(nil, word, s.channel), "PING")
	_, err := a.conn.Write(question)
	if err == nil {
		err = a.awaitReply()
	}
	a.note(err, a.run.now())
	if err != nil {
		a.disconnect()
		a.mem = nil
		return
	}
	s.subscribed, s.compared, s.since = word == "SUBSCRIBE", false, a.run.now()
}

func (a *actor) awaitReply() error {
	late := time.NewTimer(replyLimit)
	defer late.Stop()
	select {
	case v := <-a.conn.replies:
		if v.IsError() {
			return serverError(v.Text)
		}
		return nil
	case <-a.conn.broken:
		return errBroken
	case <-late.C:
		return fmt.Errorf("no reply in %v", replyLimit)
	}
}

// compares has some node count. The connection lived all the while if it answers afterwards.
func (a *actor) compares(s *counted) {
	question := []any{"PUBLISH", s.channel, "x"}
	if a.rnd.IntN(2) == 0 {
		question = []any{"EVAL", "return redis.call('PUBSUB', 'NUMSUB', KEYS[1])[2]", "1",
			s.channel}
	}
	v, err := a.c.Do(context.Background(), question...).Result()
	at := a.run.now()
	if a.note(err, at) != acked {
		time.Sleep(refusedPause)
		return
	}
	got, _ := strconv.Atoi(text(v))
	if _, err := a.conn.call("PING"); err != nil {
		a.disconnect()
		a.mem = nil
		return
	}
	want := 0
	if s.subscribed {
		want = 1
	}
	switch {
	case got == want:
		s.compared = true
	case got > 1 || at-s.since > countedLate:
		a.problem("%v counts %d of %s at %v, want %d since %v", question[0], got, s.channel, at,
			want, s.since)
		a.disconnect()
		a.mem = nil
	}
}

// judge has nothing to do: at the end of the run nobody may be counted.
func (counts) judge(*work) {}
