package observe

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/internal/resp"
)

// Lock is a lock with what the leader knows of it.
type Lock struct {
	Entry
	Holds   []Hold   `json:"holds"`   // what the first owners hold, if that is known
	Queue   []Queued `json:"queue"`   // who is in its queue, the next first
	Waiting []Waiter `json:"waiting"` // who has asked for it without
	History []Holder `json:"history"` // the latest first
}

// Hold is what an owner holds of a lock.
type Hold struct {
	Owner string `json:"owner"`
	Count int64  `json:"count"` // permits, or how often it has entered
	Token string `json:"token"`
	TTLMs int64  `json:"ttl"`   // -1: there is none
	Lease string `json:"lease"` // empty: none

	raw string
}

// LeaseOf returns the lease by which an owner holds the lock, empty for none.
func (l *Lock) LeaseOf(owner string) string {
	for _, h := range l.Holds {
		if h.raw == owner {
			return h.Lease
		}
	}
	return ""
}

// Queued is a client in the queue for a lock.
type Queued struct {
	Owner    string `json:"owner"`
	Kind     string `json:"kind"` // the form in which it wants the lock
	Priority int64  `json:"priority"`
	WaitsMs  int64  `json:"waits"`
}

// Held returns the owner that a token of the lock belongs to, as it was typed. The token of a lock
// that several hold belongs to the first one.
func (l *Lock) Held(token string) (owner string, ok bool) {
	if token == "" {
		return "", false
	}
	for _, h := range l.Holds {
		if h.Token == token {
			return h.raw, true
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(l.OwnerID)
	return string(raw), err == nil && l.Token == token
}

// Waiter is a client that was refused a lock, and has not got it since.
type Waiter struct {
	Owner    string `json:"owner"`
	WaitsMs  int64  `json:"waits"`
	SeenMs   int64  `json:"seen"` // since its newest attempt
	Attempts int64  `json:"attempts"`
}

// Holder held a lock before.
type Holder struct {
	Owner  string `json:"owner"`
	Token  string `json:"token"`
	End    string `json:"end"`  // released or expired
	HeldMs int64  `json:"held"` // -1: unknown
	AgoMs  int64  `json:"ago"`  // since the end
}

// errNoLocks is how a cluster that does not have LOCKS yet fails.
var errNoLocks = errors.New("locks are shown from feature level 3 on, which the cluster has once " +
	"every node runs coordd 0.2")

// lockError makes the refusal of a cluster without LOCKS understandable.
func lockError(err error) error {
	reply, ok := err.(ReplyError)
	if ok && strings.HasPrefix(string(reply), "ERR unknown command") {
		return errNoLocks
	}
	return err
}

// endOf returns where to go on after a cursor; empty: that was the end.
func endOf(cursor string) string {
	if cursor == "0" {
		return ""
	}
	return cursor
}

// lockEntry returns what LOCKS replied of a key.
func lockEntry(m map[string]resp.Value) Entry {
	e := newEntry(m["key"].Text)
	e.Group, e.Kind = Locks, m["kind"].Text
	for _, size := range []string{"fill", "length"} {
		if n, ok := m[size]; ok {
			e.Size = number(n)
		}
	}
	e.Token, e.TTLMs, e.HeldMs = m["token"].Text, number(m["ttl-ms"]), number(m["held-ms"])
	e.Waiters, e.Queued = max(number(m["waiters"]), 0), max(number(m["queued"]), 0)
	e.Lease = leaseID(m["lease"])
	var texts []string
	for _, o := range m["owners"].Elems {
		n := newName(o.Text)
		e.Owners, texts = append(e.Owners, n), append(texts, n.Text)
	}
	if len(e.Owners) > 0 {
		e.OwnerID = e.Owners[0].ID
	}
	e.Holders = int(max(number(m["holders"]), 0))
	if e.Holders > len(texts) {
		texts = append(texts, fmt.Sprintf("%d more", e.Holders-len(texts)))
	}
	e.Owner = strings.Join(texts, ", ")
	return e
}

// leaseID returns the id of a lease, empty for none.
func leaseID(v resp.Value) string {
	if v.Text == "0" {
		return ""
	}
	return v.Text
}

// Lock returns a lock, or what is known of one that nobody holds; nil: nothing is known of it.
func (c *Client) Lock(ctx context.Context, db int, key string) (*Lock, error) {
	reply, err := c.in(ctx, db, []string{"LOCKS", "SHOW", key})
	if err != nil {
		return nil, lockError(err)
	}
	if reply[0].Null || reply[0].Kind == resp.Null {
		return nil, nil
	}
	m := fields(reply[0])
	l := &Lock{Entry: lockEntry(m), Holds: []Hold{}, Queue: []Queued{}, Waiting: []Waiter{},
		History: []Holder{}}
	for _, v := range m["holds"].Elems {
		h := fields(v)
		l.Holds = append(l.Holds, Hold{Owner: Show(h["owner"].Text), Count: number(h["count"]),
			Token: h["token"].Text, TTLMs: number(h["ttl-ms"]), Lease: leaseID(h["lease"]),
			raw: h["owner"].Text})
	}
	for _, v := range m["queue"].Elems {
		q := fields(v)
		l.Queue = append(l.Queue, Queued{Owner: Show(q["owner"].Text), Kind: q["kind"].Text,
			Priority: number(q["priority"]), WaitsMs: number(q["waits-ms"])})
	}
	for _, v := range m["waiting"].Elems {
		w := fields(v)
		l.Waiting = append(l.Waiting, Waiter{Owner: Show(w["owner"].Text),
			WaitsMs: number(w["waits-ms"]), SeenMs: number(w["seen-ms-ago"]),
			Attempts: number(w["attempts"])})
	}
	slices.SortStableFunc(l.Waiting, func(a, b Waiter) int {
		return cmp.Compare(b.WaitsMs, a.WaitsMs)
	})
	for _, v := range m["history"].Elems {
		h := fields(v)
		l.History = append(l.History, Holder{Owner: Show(h["owner"].Text), Token: h["token"].Text,
			End: h["end"].Text, HeldMs: number(h["held-ms"]), AgoMs: number(h["ms-ago"])})
	}
	return l, nil
}

// ErrChanged means that an action on a lock did not run: somebody else has taken the lock since it
// was shown, or it is gone.
var ErrChanged = errors.New("nothing was done: the lock was released or has another holder now")

// Release ends the hold of an owner on a lock, if both are still as they were shown.
func (c *Client) Release(ctx context.Context, db int, key, owner, token string) error {
	return c.change(ctx, db, "LOCKS", "RELEASE", key, owner, token)
}

// Extend gives a lock some milliseconds from now, under the same condition.
func (c *Client) Extend(ctx context.Context, db int, key, owner, token string, ms int64) error {
	return c.change(ctx, db, "LOCKS", "EXTEND", key, owner, token, strconv.FormatInt(ms, 10))
}

func (c *Client) change(ctx context.Context, db int, words ...string) error {
	reply, err := c.in(ctx, db, words)
	if err != nil {
		return lockError(err)
	}
	if reply[0].Text != "1" {
		return ErrChanged
	}
	return nil
}
