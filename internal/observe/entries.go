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

// Kinds of keys, by what they hold. Clients do not say what a key is for: a string with a TTL is a
// lock unless it is a number, a hash of counts with a TTL is a reentrant lock as Redisson makes it.
const (
	KindLock      = "lock"
	KindReentrant = "reentrant lock"
	KindReadWrite = "read-write lock"
	KindCounter   = "counter" // with a TTL: of a window
	KindWindow    = "window"  // a sorted set with a TTL
	KindList      = "list"
	KindStream    = "stream"
	KindOther     = "other"
)

// Groups of kinds.
const (
	Locks   = "locks"
	Windows = "windows"
	Queues  = "queues"
	All     = "all"
)

// Entry is a key with what it is used for.
type Entry struct {
	Key   string `json:"key"` // as Show shows it
	ID    string `json:"id"`  // names it in requests; empty: it is too long for that
	Kind  string `json:"kind"`
	Type  string `json:"type"` // as TYPE names it
	Owner string `json:"owner"`
	Holds int64  `json:"holds"` // of a reentrant lock
	Token string `json:"token"` // the fencing token
	TTLMs int64  `json:"ttl"`   // -1: there is none
	Size  int64  `json:"size"`  // elements, or the value of a counter

	raw string
}

// group returns the group of an entry's kind.
func (e *Entry) group() string {
	switch {
	case e.IsLock():
		return Locks
	case e.Kind == KindWindow, e.Kind == KindCounter && e.TTLMs >= 0:
		return Windows
	case e.Kind == KindList, e.Kind == KindStream:
		return Queues
	}
	return All
}

// IsLock reports whether the key is a lock.
func (e *Entry) IsLock() bool {
	return slices.Contains([]string{KindLock, KindReentrant, KindReadWrite}, e.Kind)
}

// Query says which entries to return.
type Query struct {
	Group  string // Locks, Windows, Queues or All
	DB     int
	Prefix string // of the keys
	Cursor string // where to go on; empty: from the start
	Most   int    // entries
}

// Entries are some of those that a query matches.
type Entries struct {
	Shown  []Entry `json:"shown"`
	Cursor string  `json:"cursor"` // where to go on; empty: these were the last
}

const (
	// queryTime bounds the search of one query: half a second passes some million keys.
	queryTime = 500 * time.Millisecond
	// SCAN looks at few keys first, and at more as long as it finds nothing.
	scanLeast = 100
	scanMost  = 5000
	maxID     = 1024 // bytes of a key that can be named in requests
	maxOwner  = 256  // bytes of a string that are read
	maxFields = 16   // of a hash that may be a lock
)

// Entries returns entries in the order of SCAN, sorted by key. It searches for a bounded time: in a
// large database there may be none in one part, and more behind it.
func (c *Client) Entries(ctx context.Context, q Query) (*Entries, error) {
	found := &Entries{Shown: []Entry{}, Cursor: cmp.Or(q.Cursor, "0")}
	step := scanLeast
	for began := time.Now(); time.Since(began) < queryTime; {
		keys, next, err := c.scan(ctx, &q, found.Cursor, step)
		if err != nil {
			return nil, err
		}
		if step > scanLeast && len(keys) > q.Most { // they are dense here
			step = scanLeast
			continue
		}
		entries, err := c.examine(ctx, q.DB, keys)
		if err != nil {
			return nil, err
		}
		if q.Group != All {
			entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.group() != q.Group })
		}
		if len(entries) == 0 {
			step = min(4*step, scanMost)
		}
		found.Shown, found.Cursor = append(found.Shown, entries...), next
		if next == "" || len(found.Shown) >= q.Most {
			break
		}
	}
	slices.SortFunc(found.Shown, func(a, b Entry) int { return strings.Compare(a.raw, b.raw) })
	return found, nil
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
	if next = reply[0].Elems[0].Text; next == "0" {
		next = ""
	}
	for _, k := range reply[0].Elems[1].Elems {
		keys = append(keys, k.Text)
	}
	return keys, next, nil
}

// EntryOf returns the entry of a key; nil: there is no such key.
func (c *Client) EntryOf(ctx context.Context, db int, key string) (*Entry, error) {
	entries, err := c.examine(ctx, db, []string{key})
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	return &entries[0], nil
}

// in sends commands in a database. The first reply that is an error is the error.
func (c *Client) in(ctx context.Context, db int, commands ...[]string) ([]resp.Value, error) {
	if db != 0 { // connections are always given back in database 0
		commands = slices.Concat([][]string{{"SELECT", strconv.Itoa(db)}}, commands,
			[][]string{{"SELECT", "0"}})
	}
	replies, err := c.DoAll(ctx, commands)
	if err != nil {
		return nil, err
	}
	for _, v := range replies {
		if err := replyError(v); err != nil {
			return nil, err
		}
	}
	if db != 0 {
		replies = replies[1 : len(replies)-1]
	}
	return replies, nil
}

// sizes are the commands that tell the size of a type.
var sizes = map[string]string{"hash": "HLEN", "zset": "ZCARD", "list": "LLEN", "stream": "XLEN",
	"set": "SCARD"}

// examine finds out what keys are used for, in three rounds.
func (c *Client) examine(ctx context.Context, db int, keys []string) ([]Entry, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var ask [][]string
	for _, k := range keys {
		ask = append(ask, []string{"TYPE", k}, []string{"PTTL", k}, []string{"FENCE", k})
	}
	replies, err := c.in(ctx, db, ask...)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for i, k := range keys {
		e := Entry{Key: Show(k), Type: replies[3*i].Text, Kind: KindOther,
			TTLMs: max(number(replies[3*i+1]), -1), Token: replies[3*i+2].Text, raw: k}
		if len(k) <= maxID {
			e.ID = base64.RawURLEncoding.EncodeToString([]byte(k))
		}
		if e.Type != "none" { // it has expired since
			entries = append(entries, e)
		}
	}
	return c.examineValues(ctx, db, entries)
}

func (c *Client) examineValues(ctx context.Context, db int, entries []Entry) ([]Entry, error) {
	var ask [][]string
	for i := range entries {
		e := &entries[i]
		switch size := sizes[e.Type]; {
		case e.Type == "string":
			ask = append(ask, []string{"GETRANGE", e.raw, "0", strconv.Itoa(maxOwner - 1)})
		case size != "":
			ask = append(ask, []string{size, e.raw})
		default:
			ask = append(ask, []string{"EXISTS", e.raw})
		}
	}
	replies, err := c.changing(ctx, db, ask)
	if err != nil {
		return nil, err
	}
	var hashes []*Entry
	ask = nil
	for i := range entries {
		e := &entries[i]
		e.classify(replies[i])
		if e.Type == "hash" && e.TTLMs >= 0 && e.Size <= maxFields {
			hashes = append(hashes, e)
			ask = append(ask, []string{"HGETALL", e.raw})
		}
	}
	if replies, err = c.changing(ctx, db, ask); err != nil {
		return nil, err
	}
	for i, e := range hashes {
		e.classifyHash(fields(replies[i]))
	}
	return entries, nil
}

// changing is in for keys whose type may have changed since it was asked for.
func (c *Client) changing(ctx context.Context, db int, ask [][]string) ([]resp.Value, error) {
	if len(ask) == 0 {
		return nil, nil
	}
	replies, err := c.in(ctx, db, ask...)
	if e, ok := err.(ReplyError); ok && e.Code() == "WRONGTYPE" {
		return nil, ReplyError("TRYAGAIN a key has changed its type meanwhile")
	}
	return replies, err
}

// classify sets the kind by the value, or its size.
func (e *Entry) classify(v resp.Value) {
	e.Size = max(number(v), 0)
	switch e.Type {
	case "string":
		_, err := strconv.ParseInt(v.Text, 10, 64)
		switch {
		case err == nil:
			e.Kind = KindCounter
		case e.TTLMs >= 0:
			e.Kind, e.Owner = KindLock, Show(v.Text)
		}
	case "zset":
		if e.TTLMs >= 0 {
			e.Kind = KindWindow
		}
	case "list":
		e.Kind = KindList
	case "stream":
		e.Kind = KindStream
	}
}

// classifyHash recognizes locks of Redisson: a field for each holder, with its number of holds, and
// the field mode in those of read-write locks.
func (e *Entry) classifyHash(hash map[string]resp.Value) {
	kind, holds := KindReentrant, int64(0)
	var owners []string
	for name, v := range hash {
		if name == "mode" && (v.Text == "read" || v.Text == "write") {
			kind = KindReadWrite
			continue
		}
		n := number(v)
		if n < 1 {
			return
		}
		holds += n
		owners = append(owners, Show(name))
	}
	if len(owners) > 0 {
		slices.Sort(owners)
		e.Kind, e.Owner, e.Holds = kind, strings.Join(owners, ", "), holds
	}
}

// escapeGlob returns a pattern that matches a text alone.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
