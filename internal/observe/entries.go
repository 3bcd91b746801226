package observe

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// Groups of keys, by what clients use them for.
const (
	Locks   = "locks"
	Windows = "windows"
	Queues  = "queues"
	All     = "all" // also others
)

// Entry is a key with what it is used for.
type Entry struct {
	Key   string `json:"key"` // as Show shows it
	ID    string `json:"id"`  // names it in requests; empty: it is too long for that
	Group string `json:"group"`
	Kind  string `json:"kind"` // as LOCKS names it; for All: the key's type
	TTLMs int64  `json:"ttl"`  // -1: there is none

	// For a lock:
	Owner   string `json:"owner"`   // one or more, as Show shows them
	OwnerID string `json:"ownerId"` // names the first one in requests
	Owners  []Name `json:"owners"`  // the first ones
	Holders int    `json:"holders"`
	Token   string `json:"token"` // the fencing token
	HeldMs  int64  `json:"held"`  // -1: unknown
	Waiters int64  `json:"waiters"`
	Queued  int64  `json:"queued"` // those of the waiters that are in the queue of the cluster
	Lease   string `json:"lease"`  // id of the lease that it lives as long as; empty: none

	// For others: elements, or the value of a number; -1: unknown.
	Size int64 `json:"size"`

	raw string
}

// Name is what a client has typed.
type Name struct {
	Text string `json:"text"` // as Show shows it
	ID   string `json:"id"`   // names it in requests; empty: it is too long for that
}

func newName(typed string) Name {
	n := Name{Text: Show(typed)}
	if len(typed) <= maxID {
		n.ID = base64.RawURLEncoding.EncodeToString([]byte(typed))
	}
	return n
}

func newEntry(key string) Entry {
	n := newName(key)
	return Entry{Key: n.Text, ID: n.ID, Owners: []Name{}, raw: key}
}

// Query says which entries to return.
type Query struct {
	Group  string // Locks, Windows, Queues or All
	DB     int
	Prefix string // what the keys begin with
	Cursor string // where to go on; empty: from the start
	Most   int    // entries
}

// Entries are some of those that a query matches.
type Entries struct {
	Shown  []Entry `json:"shown"`
	Cursor string  `json:"cursor"` // where to go on; empty: these were the last
}

const (
	// queryTime bounds the search of one query: half a second passes about a million keys.
	queryTime = 500 * time.Millisecond
	// SCAN looks at few keys first, and at more as long as it finds nothing.
	scanLeast = 100
	scanMost  = 5000
	scanLess  = 16   // times, if the reply is too large
	maxID     = 1024 // bytes of a key or an owner that can be named in requests
	maxNumber = 20   // digits of a counter
)

// Entries returns entries in the order of SCAN, sorted by key. It searches for a bounded time: in a
// large database there may be none in one part, and more behind it.
func (c *Client) Entries(ctx context.Context, q Query) (*Entries, error) {
	find := c.listUsed
	if q.Group == All {
		find = c.listAll
	}
	found := &Entries{Shown: []Entry{}, Cursor: cmp.Or(q.Cursor, "0")}
	step := scanLeast
	for began := time.Now(); time.Since(began) < queryTime; {
		entries, next, err := find(ctx, &q, found.Cursor, step)
		if tooLarge(err) && step > 1 { // somebody has keys of a megabyte
			step = max(step/scanLess, 1)
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			step = min(4*step, scanMost)
		} else if step > scanLeast && len(entries) > q.Most { // they are dense here
			step = scanLeast
			continue
		}
		found.Shown, found.Cursor = append(found.Shown, entries...), next
		if next == "" || len(found.Shown) >= q.Most {
			break
		}
	}
	slices.SortFunc(found.Shown, func(a, b Entry) int { return strings.Compare(a.raw, b.raw) })
	return found, nil
}

// tooLarge reports whether the reply to a command would have been too large.
func tooLarge(err error) bool {
	reply, ok := err.(ReplyError)
	return ok && strings.Contains(string(reply), "go before it, is larger than")
}

// listUsed returns the keys of a group with the prefix among the next step keys, and where to go
// on.
func (c *Client) listUsed(ctx context.Context, q *Query, cursor string, step int) (all []Entry,
	next string, err error) {
	subcommand := map[string]string{Locks: "LIST", Windows: "WINDOWS", Queues: "QUEUES"}[q.Group]
	reply, err := c.in(ctx, q.DB, []string{"LOCKS", subcommand, "MATCH",
		escapeGlob(q.Prefix) + "*", "COUNT", strconv.Itoa(step), "CURSOR", cursor})
	switch {
	case err != nil:
		return nil, "", lockError(err)
	case len(reply[0].Elems) != 2:
		return nil, "", ReplyError("ERR unexpected reply to LOCKS " + subcommand)
	}
	for _, v := range reply[0].Elems[1].Elems {
		e := lockEntry(fields(v))
		e.Group = q.Group
		all = append(all, e)
	}
	return all, endOf(reply[0].Elems[0].Text), nil
}

// listAll is listUsed for all keys.
func (c *Client) listAll(ctx context.Context, q *Query, cursor string, step int) ([]Entry,
	string, error) {
	keys, next, err := c.scan(ctx, q, cursor, step)
	if err != nil {
		return nil, "", err
	}
	entries, err := c.examine(ctx, q.DB, keys)
	return entries, next, err
}

// scan returns the keys with the prefix among the next step ones, and where to go on; empty: that
// was the end.
func (c *Client) scan(ctx context.Context, q *Query, cursor string, step int) (keys []string,
	next string, err error) {
	reply, err := c.in(ctx, q.DB, []string{"SCAN", cursor, "MATCH", escapeGlob(q.Prefix) + "*",
		"COUNT", strconv.Itoa(step)})
	switch {
	case err != nil:
		return nil, "", err
	case len(reply[0].Elems) != 2:
		return nil, "", ReplyError("ERR unexpected reply to SCAN")
	}
	for _, k := range reply[0].Elems[1].Elems {
		keys = append(keys, k.Text)
	}
	return keys, endOf(reply[0].Elems[0].Text), nil
}

// in sends commands in a database. The first reply that is an error is the error.
func (c *Client) in(ctx context.Context, db int, commands ...[]string) ([]resp.Value, error) {
	replies, err := c.doAllIn(ctx, db, commands)
	if err != nil {
		return nil, err
	}
	for _, v := range replies {
		if err := replyError(v); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// sizes are the commands that tell the size of a type.
var sizes = map[string]string{"hash": "HLEN", "zset": "ZCARD", "list": "LLEN", "stream": "XLEN",
	"set": "SCARD"}

// examine finds out what keys hold, in two rounds.
func (c *Client) examine(ctx context.Context, db int, keys []string) ([]Entry, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var ask [][]string
	for _, k := range keys {
		ask = append(ask, []string{"TYPE", k}, []string{"PTTL", k})
	}
	replies, err := c.in(ctx, db, ask...)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	ask = nil
	for i, k := range keys {
		e := newEntry(k)
		e.Group, e.Kind, e.TTLMs = All, replies[2*i].Text, max(number(replies[2*i+1]), -1)
		switch size := sizes[e.Kind]; {
		case e.Kind == "none": // it has expired since
			continue
		case e.Kind == "string":
			ask = append(ask, []string{"GETRANGE", k, "0", strconv.Itoa(maxNumber)})
		default:
			ask = append(ask, []string{size, k})
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil, nil
	}
	replies, err = c.in(ctx, db, ask...)
	if e, ok := err.(ReplyError); ok && e.Code() == "WRONGTYPE" {
		err = ReplyError("TRYAGAIN a key has changed its type meanwhile")
	}
	if err != nil {
		return nil, err
	}
	for i := range entries {
		entries[i].Size = number(replies[i])
	}
	return entries, nil
}

// escapeGlob returns a pattern that matches a text alone.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
