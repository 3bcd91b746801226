package once

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/tidwall/btree"

	"github.com/coordd/coordd/internal/resp"
)

// Bounds of what is remembered. Past them the oldest call is forgotten: of its user, or of the user
// whose calls count most, so that nobody's calls are forgotten for those of one who sends many.
const (
	LifeMs       = 60_000   // how long a call is remembered, ms of the cluster clock
	MaxUserCalls = 65_536   // calls of one user
	MaxBytes     = 64 << 20 // what the calls of all users may count
	MaxReply     = 16 << 10 // a longer reply is not kept, only that its call ran
	MaxID        = 128      // bytes of an id
)

// What a call and a user count besides their bytes.
const (
	callBytes = 256
	userBytes = 512
)

// User is who sent a call. A later user of the same name has another creation.
type User struct {
	Name    string
	Created uint64
}

// Reply is the reply to a call.
type Reply struct {
	Call  uint64 // hash of the call
	Proto int    // the protocol of Bytes, 2 or 3
	Bytes []byte // nil: it was too long to be kept
}

// In returns the reply in protocol proto. If that is not the protocol in which the call ran, the
// types are those of proto, as far as they are known: what RESP2 has flattened stays flat.
func (r *Reply) In(proto int) []byte {
	if r.Proto == proto {
		return r.Bytes
	}
	v, err := resp.NewReader(bytes.NewReader(r.Bytes)).Value()
	if err != nil {
		return r.Bytes // it is nested too deeply for any client
	}
	return v.Append(nil, proto)
}

// Calls are the calls that have run, with their replies. Machines that agree on the calls agree on
// all of it. It is not safe for concurrent use.
type Calls struct {
	users  map[User]*user           // for look-ups: nothing follows its order
	sizes  *btree.BTreeG[*user]     // by what they count
	all    btree.Map[uint64, *call] // by sequence
	newest uint64                   // sequence
	bytes  int

	maxUserCalls, maxBytes int
}

// user has the calls of one user.
type user struct {
	User
	calls          map[string]*call // by id, for look-ups
	oldest, newest *call
	bytes          int // what it counts, with its calls
}

// lessThan orders users by what they count. No two are equal.
func (u *user) lessThan(o *user) bool {
	return cmp.Or(cmp.Compare(u.bytes, o.bytes), strings.Compare(u.Name, o.Name),
		cmp.Compare(u.Created, o.Created)) < 0
}

type call struct {
	user         *user
	id           string
	sequence     uint64
	atMs         int64 // when it ran
	reply        Reply
	older, newer *call // those of the same user
}

func (c *call) cost() int { return callBytes + len(c.id) + len(c.reply.Bytes) }

func (u *user) cost() int { return userBytes + len(u.Name) }

// New returns a Calls that remembers nothing.
func New() *Calls {
	return &Calls{users: map[User]*user{}, sizes: btree.NewBTreeGOptions((*user).lessThan,
		btree.Options{NoLocks: true}), maxUserCalls: MaxUserCalls, maxBytes: MaxBytes}
}

// Bytes returns what the calls count.
func (c *Calls) Bytes() int { return c.bytes }

// Len returns the number of calls, also of those whose time is over and that Sweep has not reached.
func (c *Calls) Len() int { return c.all.Len() }

// Find returns the reply to a call of a user, or nil. A call whose time is over does not exist.
func (c *Calls) Find(by User, id []byte, nowMs int64) *Reply {
	u := c.users[by]
	if u == nil {
		return nil
	}
	if found := u.calls[string(id)]; found != nil && nowMs-found.atMs <= LifeMs {
		return &found.reply
	}
	return nil
}

// Remember keeps a copy of the reply to a call that ran now, in place of what it had for that id.
// nowMs never falls from call to call.
func (c *Calls) Remember(by User, id []byte, r Reply, nowMs int64) {
	c.Forget(by, id)
	c.Sweep(nowMs, sweptEach)
	r.Bytes = bytes.Clone(r.Bytes)
	c.add(by, string(id), r, nowMs)
	for u := c.users[by]; len(u.calls) > c.maxUserCalls; {
		c.remove(u.oldest)
	}
	for c.bytes > c.maxBytes {
		largest, _ := c.sizes.Max()
		c.remove(largest.oldest)
	}
}

// sweptEach is how many calls Remember removes whose time is over.
const sweptEach = 16

func (c *Calls) add(by User, id string, r Reply, atMs int64) {
	u := c.users[by]
	if u == nil {
		u = &user{User: by, calls: map[string]*call{}}
		c.users[by] = u
		c.count(u, u.cost())
	}
	c.newest++
	added := &call{user: u, id: id, sequence: c.newest, atMs: atMs, reply: r, older: u.newest}
	if u.newest != nil {
		u.newest.newer = added
	} else {
		u.oldest = added
	}
	u.newest = added
	u.calls[id] = added
	c.all.Set(added.sequence, added)
	c.count(u, added.cost())
}

// count adds bytes to what a user counts, who is dropped from the order with the last of them.
func (c *Calls) count(u *user, bytes int) {
	c.sizes.Delete(u)
	c.bytes += bytes
	if u.bytes += bytes; u.bytes > 0 {
		c.sizes.Set(u)
	}
}

func (c *Calls) remove(gone *call) {
	u := gone.user
	c.all.Delete(gone.sequence)
	c.count(u, -gone.cost())
	if delete(u.calls, gone.id); len(u.calls) == 0 {
		delete(c.users, u.User)
		c.count(u, -u.cost())
		return
	}
	if gone.older != nil {
		gone.older.newer = gone.newer
	} else {
		u.oldest = gone.newer
	}
	if gone.newer != nil {
		gone.newer.older = gone.older
	} else {
		u.newest = gone.older
	}
}

// Forget forgets a call, which may run again then. It reports whether there was one.
func (c *Calls) Forget(by User, id []byte) bool {
	u := c.users[by]
	if u == nil {
		return false
	}
	found := u.calls[string(id)]
	if found != nil {
		c.remove(found)
	}
	return found != nil
}

// Over reports whether the time of a call is over that Sweep has not reached.
func (c *Calls) Over(nowMs int64) bool {
	_, oldest, some := c.all.Min()
	return some && nowMs-oldest.atMs > LifeMs
}

// Sweep removes calls whose time is over, at most that many, the oldest first.
func (c *Calls) Sweep(nowMs int64, most int) {
	for ; most > 0 && c.Over(nowMs); most-- {
		_, oldest, _ := c.all.Min()
		c.remove(oldest)
	}
}
