//go:build linux

// Leases with keys: a string, a lock, and a lock beside others. They are there together, never gone
// early, and never back.

package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/resp"
)

const (
	attachedTTL   = 300 * time.Millisecond
	attachedGrace = 250 * time.Millisecond
	// boundTTL is that of leases which end with their connections: the test would see that they
	// outlive those.
	boundTTL = 90 * time.Second
)

// attachments are the leases of the clients. Any client reads the keys of any.
type attachments struct {
	mu     sync.Mutex
	leases []*attachment
}

// attachment is a lease with its keys, as its client knows it.
type attachment struct {
	id       string
	name     string
	bound    bool
	ttl      time.Duration // unless it is bound
	complete bool          // all its keys have been attached
	until    time.Duration // it does not end sooner
	gone     time.Duration // a read that began then has not found its keys; 0: none
	revoked  bool          // the client has sent REVOKE
	deleted  time.Duration // … and had the reply; 0: it has not
}

func attachedKeys(*work) player { return &attachments{} }

func (l *attachment) keys() []string {
	return []string{l.name + ":string", l.name + ":lock", l.name + ":shared"}
}

func (t *attachments) turn(a *actor) {
	own, _ := a.mem.(*attachment)
	switch {
	case a.rnd.IntN(3) == 0:
		t.look(a)
	case own == nil:
		t.grant(a)
	case a.rnd.IntN(50) == 0:
		a.mem = nil // it ends by itself
		if own.bound && a.rnd.IntN(2) == 0 {
			a.disconnect()
		}
	case a.rnd.IntN(50) == 0:
		t.revoke(a, own)
		a.mem = nil
	default:
		t.renew(a, own)
	}
	time.Sleep(time.Duration(a.rnd.IntN(30)) * time.Millisecond)
}

// ask sends a command of a lease: on the client's own connection if the lease is bound to that.
func (a *actor) ask(bound bool, words ...any) *event {
	return a.send(bound, call{key: "{lease}", op: fmt.Sprint(words[0], " ", words[1]),
		args: texts(words), reads: true}, words...)
}

// send sends a command that uses a lease, as ask does. That there is no such lease is a reply.
func (a *actor) send(bound bool, c call, words ...any) *event {
	c.ask = orNoLease(command(words...))
	if !bound {
		return a.do(c)
	}
	e := &event{Actor: a.id, Key: c.key, Op: c.op, Args: c.args, Call: a.run.now()}
	v, err := a.conn.call(texts(words)...)
	e.Return = a.run.now()
	if errorWord(err) == noLease {
		v.Text, err = noLease, nil
	}
	if e.What = a.note(err, e.Return); e.What == acked {
		if e.Reply = v.Text; v.Kind == resp.Array {
			var all []any
			for _, elem := range v.Elems {
				all = append(all, elem.Text)
			}
			e.Reply = text(all)
		}
	} else {
		e.Error = err.Error()
		a.disconnect()
	}
	if e.What != refused {
		a.keep(e)
	}
	return e
}

func texts(words []any) (all []string) {
	for _, word := range words {
		all = append(all, fmt.Sprint(word))
	}
	return all
}

func (t *attachments) grant(a *actor) {
	l := &attachment{name: fmt.Sprintf("{attached}:%s", a.value()), bound: a.rnd.IntN(3) == 0}
	if !l.grantTo(a, attachedTTL) {
		return
	}
	keys := l.keys()
	for _, words := range [][]any{
		{"SET", keys[0], "v", "LEASE", l.id},
		{"LOCK.ACQUIRE", keys[1], "me", "LEASE", l.id},
		{"LOCK.ACQUIRE", keys[2], "me", "LEASE", l.id, "SHARED"},
	} {
		if e := a.do(call{key: l.name, op: "attach", ask: orNoLease(command(words...)),
			reads: true}); e.What != acked || e.Reply == noLease {
			return // the lease ends by itself
		}
	}
	a.mem = l
	t.mu.Lock()
	defer t.mu.Unlock()
	l.complete = true
	t.leases = append(t.leases, l)
}

// grantTo grants a lease: for a time, or as long as the client's connection.
func (l *attachment) grantTo(a *actor, ttl time.Duration) bool {
	words := []any{"LEASE", "GRANT", ttl.Milliseconds()}
	if l.ttl = ttl; l.bound {
		if !a.connect() {
			return false
		}
		words = []any{"LEASE", "GRANT", boundTTL.Milliseconds(), "CONNECTION", "GRACE",
			attachedGrace.Milliseconds()}
	}
	e := a.ask(l.bound, words...)
	if e.What != acked {
		return false
	}
	l.id = e.Reply
	l.lasts(e)
	return true
}

// lasts notes that a lease was granted or renewed.
func (l *attachment) lasts(e *event) {
	if l.bound {
		l.until = e.Call + attachedGrace // its connection may have ended right behind
	} else {
		l.until = e.Call + l.ttl
	}
}

func (t *attachments) renew(a *actor, l *attachment) {
	if l.bound && !a.connect() {
		a.mem = nil
		return
	}
	e := a.ask(l.bound, "LEASE", "KEEPALIVE", l.id)
	if e.What != acked {
		return
	}
	left, _ := strconv.ParseInt(strings.Trim(e.Reply, "[]"), 10, 64)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case left > 0 && l.gone != 0 && l.gone < e.Call:
		a.problem("lease %s of %s is renewed, and its keys were gone at %v: %v", l.id, l.name,
			l.gone, e)
	case left > 0:
		l.lasts(e)
	default:
		if e.Return < l.until {
			a.problem("lease %s of %s has ended before %v: %v", l.id, l.name, l.until, e)
		}
		a.mem = nil
	}
}

func (t *attachments) revoke(a *actor, l *attachment) {
	t.mu.Lock()
	l.revoked = true
	t.mu.Unlock()
	if e := a.ask(false, "LEASE", "REVOKE", l.id); e.What == acked {
		t.mu.Lock()
		l.deleted = e.Return
		t.mu.Unlock()
	}
}

// look reads the keys of some lease.
func (t *attachments) look(a *actor) {
	t.mu.Lock()
	if len(t.leases) == 0 {
		t.mu.Unlock()
		return
	}
	recent := t.leases[max(0, len(t.leases)-8):]
	l := recent[a.rnd.IntN(len(recent))]
	before := *l
	t.mu.Unlock()
	keys := l.keys()
	e := a.do(call{key: l.name, op: "exists", reads: true,
		ask: command("EXISTS", keys[0], keys[1], keys[2])})
	if e.What != acked {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(a.work, l, before, e)
}

// check compares a read with what was known before it. What its client has learned meanwhile
// prolongs the lease, and does not end it.
func (t *attachments) check(w *work, l *attachment, before attachment, e *event) {
	switch e.Reply {
	case "3":
		if before.gone != 0 || before.deleted != 0 {
			w.problem("keys of lease %s are back, gone at %v, revoked by %v: %v", l.id,
				before.gone, before.deleted, e)
		}
	case "0":
		if !l.revoked && e.Return < before.until {
			w.problem("keys of lease %s are gone before %v: %v", l.id, before.until, e)
		}
		if l.gone == 0 || e.Return < l.gone {
			l.gone = e.Return
		}
	default:
		w.problem("keys of lease %s end one by one: %v", l.id, e)
	}
}

// judge: leases end with their connections, and nothing of them remains.
func (t *attachments) judge(w *work) {
	for _, a := range w.actors {
		a.disconnect()
	}
	left := ""
	if len(w.actors) > 0 && !await(equalLimit, func() bool {
		v, err := w.admin.Do(context.Background(), "LEASE", "LIST", "COUNT", 1000).Slice()
		left = fmt.Sprint(text(v), err)
		return err == nil && len(v) == 2 && text(v[1]) == "[]"
	}) {
		w.problem("leases remain: %s", left)
	}
}

// noLease begins the error for a lease that has ended.
const noLease = "NOLEASE"

// orNoLease has that error be a reply.
func orNoLease(
	ask func(context.Context, redis.UniversalClient) (any, error),
) func(context.Context, redis.UniversalClient) (any, error) {
	return func(ctx context.Context, c redis.UniversalClient) (any, error) {
		v, err := ask(ctx, c)
		if errorWord(err) == noLease {
			return noLease, nil
		}
		return v, err
	}
}
