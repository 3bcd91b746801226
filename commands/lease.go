// LEASE: leases that clients renew, and what lives as long (docs/adr/0064). A key or field that is
// attached has the deadline of its lease as its own, so nothing else needs to know of leases.
// lease_items.go attaches, lease_holders.go ends leases with connections.

package commands

import (
	"strconv"

	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/leases"
)

var leaseSpec = Spec{
	Name: "lease", Kind: Write, Arity: -2, Group: "generic", Since: "0.2.0", Level: LevelSecond,
	Summary:    "Grants, renews and revokes leases, on which keys and locks depend.",
	Complexity: "Depends on the subcommand", Syntax: "subcommand",
	Subcommands: []Spec{
		{
			Name: "grant", Kind: Write, Arity: -3, Flags: DenyOOM | Fast | AnyDB | NamesConnection,
			Group: "generic", Since: "0.2.0", Level: LevelSecond,
			Syntax: "ttl-milliseconds:integer [DELAY delay-milliseconds:integer] [CONNECTION " +
				"[GRACE grace-milliseconds:integer]] [ID request]",
			Summary:    "Grants a lease, and returns its id.",
			Complexity: "O(1)", Handler: leaseGrant,
			RequestID: func(args [][]byte) []byte { return requestID(args, 3) },
		},
		{
			Name: "keepalive", Kind: Write, Arity: -3, Flags: AnyDB | NamesConnection,
			Group: "generic", Since: "0.2.0", Level: LevelSecond,
			Syntax:  "id:integer [id:integer ...]",
			Summary: "Renews leases, and returns how long each has left: 0 if it has ended.",
			Complexity: "O(N) where N is the number of leases, and of the keys attached to " +
				"them",
			Handler: leaseKeepalive,
		},
		{
			Name: "revoke", Kind: Write, Arity: 3, Flags: AnyDB, Group: "generic", Since: "0.2.0",
			Level: LevelSecond, Syntax: "id:integer",
			Summary:    "Ends a lease at once, and deletes the keys attached to it.",
			Complexity: "O(N) where N is the number of keys attached to it",
			Handler:    leaseRevoke,
		},
		{
			Name: "info", Kind: Read, Arity: 3, Flags: AnyDB, Group: "generic", Since: "0.2.0",
			Level: LevelSecond, Syntax: "id:integer",
			Summary:    "Returns the terms of a lease, and the keys attached to it.",
			Complexity: "O(N) where N is the number of keys attached to it",
			Handler:    leaseInfo,
		},
		{
			Name: "list", Kind: Read, Arity: -2, Flags: AnyDB, Group: "generic", Since: "0.2.0",
			Level: LevelSecond, Syntax: "[COUNT count:integer] [CURSOR cursor]",
			Summary:    "Iterates over the leases that the user may see.",
			Complexity: "O(1) for every call. O(N) for a complete iteration, N being the leases.",
			Handler:    leaseList,
		},
		{
			Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale | AnyDB, Group: "generic",
			Since: "0.2.0", Level: LevelSecond, Summary: "Lists the subcommands of LEASE.",
			Complexity: "O(1)", Handler: leaseHelp,
		},
	},
}

func leaseHelp(x *Call) error {
	replyHelp(x.Out,
		"LEASE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"GRANT <ttl-ms> [DELAY <ms>] [CONNECTION [GRACE <ms>]] [ID <request>]",
		"    Grant a lease and return its id. DELAY keeps its keys after an end that is not",
		"    REVOKE, CONNECTION ends it so long after this connection has closed.",
		"INFO <id>",
		"    Return the terms of the lease, and its keys.",
		"KEEPALIVE <id> [<id> ...]",
		"    Renew leases. Return how many ms each has left, 0 if it has ended.",
		"LIST [COUNT <count>] [CURSOR <cursor>]",
		"    Iterate over the leases.",
		"REVOKE <id>",
		"    End the lease and delete its keys.",
		"HELP",
		"    Print this help.",
	)
	return nil
}

// Errors of leases.
const (
	errNoLease      Error = "NOLEASE no such lease"
	errForeignLease Error = "NOPERM this lease belongs to another user"
	errNoHolder     Error = "TRYAGAIN the command did not run: CONNECTION needs a call by a " +
		"client itself, whose id its node has got"
	errManyLeases    Error = "ERR too many leases, or too many keys attached to them"
	errManyLeaseKeys Error = "ERR a lease has at most 10000 keys"
)

// defaultGraceMs is how long a lease goes on without its connection, if it does not say so.
const defaultGraceMs = 5000

// leaseWork is the cost of finding and changing a lease, in units of Env.Work.
const leaseWork = 64

// grantOptions are the options of LEASE GRANT.
type grantOptions struct {
	ttlMs, delayMs, graceMs int64
	binds                   bool // CONNECTION
}

// parse parses the arguments behind GRANT.
func (o *grantOptions) parse(x *Call, args [][]byte) (err error) {
	if o.ttlMs, err = x.parseTerm(args[0], 1); err != nil {
		return err
	}
	o.graceMs = min(defaultGraceMs, o.ttlMs)
	for i := 1; i < len(args); i++ {
		more := i+1 < len(args)
		switch {
		case isWord(args[i], "CONNECTION"):
			o.binds = true
			continue
		case !more:
			return ErrSyntax
		case isWord(args[i], "DELAY"):
			o.delayMs, err = x.parseTerm(args[i+1], 0)
		case isWord(args[i], "GRACE") && o.binds:
			o.graceMs, err = x.parseTerm(args[i+1], 0)
			o.graceMs = min(o.graceMs, o.ttlMs)
		case isWord(args[i], "ID") && i == len(args)-2:
		default:
			return ErrSyntax
		}
		if err != nil {
			return err
		}
		i++
	}
	return nil
}

// parseTerm parses a number of ms, least or more, and not longer than locks are held: RESTORE takes
// no fields that expire much later.
func (x *Call) parseTerm(arg []byte, least int64) (int64, error) {
	ms, ok := ParseInt(arg)
	switch {
	case !ok:
		return 0, ErrNotInteger
	case ms < least || ms > maxLockMs:
		return 0, InvalidExpire(x.Spec.FullName())
	}
	return ms, nil
}

// bindsLease reports whether a call of LEASE GRANT binds the lease to its connection.
func bindsLease(args [][]byte) bool {
	for _, a := range args[min(3, len(args)):] {
		if isWord(a, "CONNECTION") {
			return true
		}
	}
	return false
}

// holder returns the connection that the request names, none if it names none.
func (x *Call) holder() leases.Connection {
	if x.Holder == nil {
		return leases.Connection{}
	}
	return leases.Connection{Node: string(x.Holder.Node), ID: x.Holder.ID}
}

// sender returns the name of the user of the request, and the revision that created it.
func (x *Call) sender() (name string, created uint64) {
	if x.Sender.Name != nil {
		return string(x.Sender.Name), x.Sender.Created
	}
	return acl.DefaultUser, x.Users.Default().Created()
}

func leaseGrant(x *Call) error {
	var o grantOptions
	if err := o.parse(x, x.Args[2:]); err != nil {
		return err
	}
	terms := leases.Lease{TTLMs: o.ttlMs, UntilMs: addMs(x.ClockMs, o.ttlMs), DelayMs: o.delayMs}
	if o.binds {
		if terms.Connection, terms.GraceMs = x.holder(), o.graceMs; terms.Connection.Node == "" {
			return errNoHolder
		}
	}
	terms.User, terms.Created = x.sender()
	x.Spend(leaseWork)
	x.changesLeases()
	id, ok := x.Leases.Grant(uint64(x.Keyspace.CurrentRevision()), terms)
	if !ok {
		return errManyLeases
	}
	x.foldLease(leaseGranted, id, uint64(terms.UntilMs))
	x.Out.Int(int64(id))
	return nil
}

// lease returns the lease that an argument names, which the user of the call may use. It is for
// reading only, until the next change of a lease.
func (x *Call) lease(arg []byte) (*leases.Lease, error) {
	l, err := x.findLease(arg)
	if l == nil && err == nil {
		err = errNoLease
	}
	return l, err
}

// findLease is lease, but returns nil if there is none, or it has ended.
func (x *Call) findLease(arg []byte) (*leases.Lease, error) {
	id, ok := ParseInt(arg)
	if !ok || id < 0 {
		return nil, ErrNotInteger
	}
	x.Spend(leaseWork)
	l := x.Leases.Find(uint64(id), x.Keyspace.Now())
	switch {
	case l == nil:
		return nil, nil
	case x.DryRun && l.EndMs() < x.ClockMs:
		x.changesLeases() // by the time of an entry it has ended
	case !x.mayUse(l):
		x.denyLease()
		return nil, errForeignLease
	}
	return l, nil
}

// denyLease has the ACL LOG and the audit trail learn that the user may not use a lease, as they do
// of all that is answered with NOPERM.
func (x *Call) denyLease() {
	context := "toplevel"
	switch {
	case x.Deny == nil:
		return
	case x.Tx.Script:
		context = "lua"
	case x.Tx.Multi:
		context = "multi"
	}
	x.Deny(context, acl.Denial{Reason: acl.DeniedCommand, Object: x.Spec.FullName()})
}

// mayUse reports whether the user of the call may use a lease: it is his own, or he may do
// everything.
func (x *Call) mayUse(l *leases.Lease) bool {
	return x.User == nil || x.User.Full() ||
		x.User.Name() == l.User && x.User.Created() == l.Created
}

// changesLeases notes that the command is about to change leases. It does not return in a dry run.
func (x *Call) changesLeases() {
	if x.DryRun {
		panic(keyspace.ErrClosed)
	}
	x.Commit()
}

func leaseKeepalive(x *Call) error {
	ids, found := x.Args[2:], make([]*leases.Lease, 0, len(x.Args)-2)
	depth := x.depth()
	for _, arg := range ids {
		l, err := x.findLease(arg)
		if err != nil {
			return err
		}
		if l != nil {
			x.Spend(x.itemsWorkAt(l, depth))
		}
		found = append(found, l)
	}
	by := x.holder()
	x.Out.Array(len(ids))
	for _, l := range found { // first: what cannot be answered is not renewed
		if l == nil {
			x.Out.Int(0)
			continue
		}
		renewed := l.Renewed(x.ClockMs, by)
		x.Out.Int(x.remainingMs(renewed.EndMs()))
	}
	for _, l := range found {
		if l == nil {
			continue
		}
		x.changesLeases()
		l = x.Leases.Find(l.ID, 0) // as it is now: it may be renewed twice
		before := l.DeadlineMs()
		l = x.Leases.Renew(l.ID, x.ClockMs, by)
		x.moveItems(l, before)
		x.foldLease(leaseRenewed, l.ID, uint64(l.UntilMs))
	}
	return nil
}

func leaseRevoke(x *Call) error {
	l, err := x.findLease(x.Args[2])
	switch {
	case err != nil:
		return err
	case l == nil:
		x.Out.Int(0)
		return nil
	}
	size := 0
	for _, i := range l.Items() {
		size += len(i.Key) + len(i.Member)
	}
	x.Spend(x.itemsWork(l) + (deletedWork+ItemDropped)*len(l.Items()) + size/lockNameBytes)
	if x.Notify != nil {
		x.ExpectMessages(2 * (size + EventBytes*len(l.Items()))) // del, and lock-lost
	}
	x.Out.Int(1)
	x.changesLeases()
	items, deadlineMs := l.Items(), l.DeadlineMs()
	x.Leases.End(l.ID)
	x.foldLease(leaseRevoked, l.ID, 0)
	for _, i := range items {
		x.deleteItem(i, deadlineMs)
	}
	return nil
}

// leaseNames is how many names of keys LEASE INFO shows.
const leaseNames = 64

func leaseInfo(x *Call) error {
	l, err := x.lease(x.Args[2])
	if err != nil {
		return err
	}
	x.Spend(x.itemsWork(l))
	keys, names := 0, []string{}
	for _, i := range l.Items() {
		if !x.attached(i, l.DeadlineMs()) {
			continue
		}
		keys++
		if n := len(names); n < leaseNames && (n == 0 || names[n-1] != i.Key) {
			names = append(names, i.Key)
		}
	}
	x.replyLease(l, 2)
	x.replyNumber("keys", int64(keys))
	x.Out.BulkString("names")
	x.Out.Array(len(names))
	for _, name := range names {
		x.Out.BulkString(name)
	}
	return nil
}

// replyLease writes the terms of a lease as a map with more fields.
func (x *Call) replyLease(l *leases.Lease, more int) {
	graceMs := int64(-1)
	if l.Connection.Node != "" {
		graceMs = l.GraceMs
	}
	x.Out.Map(8 + more)
	x.replyNumber("id", int64(l.ID))
	x.replyNumber("ttl-ms", l.TTLMs)
	x.replyNumber("left-ms", x.remainingMs(l.EndMs()))
	x.replyNumber("delay-ms", l.DelayMs)
	x.Out.BulkString("user")
	x.Out.BulkString(l.User)
	x.Out.BulkString("node")
	x.Out.BulkString(l.Connection.Node)
	x.replyNumber("connection", int64(l.Connection.ID))
	x.replyNumber("grace-ms", graceMs)
}

// defaultLeaseCount is how many leases a call of LEASE LIST looks at.
const defaultLeaseCount = 10

func leaseList(x *Call) error {
	cursor, count := uint64(0), int64(defaultLeaseCount)
	for i := 2; i < len(x.Args); i += 2 {
		var err error
		switch {
		case i+1 == len(x.Args):
			return ErrSyntax
		case isWord(x.Args[i], "CURSOR"):
			cursor, err = parseCursor(x.Args[i+1])
		case isWord(x.Args[i], "COUNT"):
			n, ok := ParseInt(x.Args[i+1])
			if count = n; !ok {
				err = ErrNotInteger
			} else if n < 1 {
				err = ErrSyntax
			}
		default:
			return ErrSyntax
		}
		if err != nil {
			return err
		}
	}
	var shown []*leases.Lease
	looked, next, now := int64(0), uint64(0), x.Keyspace.Now()
	x.Spend(leaseWork)
	x.Leases.After(cursor, func(l *leases.Lease) bool {
		if looked == count {
			return false
		}
		x.Spend(lockWork)
		if looked++; l.EndMs() >= now && x.mayUse(l) {
			shown = append(shown, l)
		}
		next = l.ID
		return true
	})
	if next >= x.Leases.Last() || looked < count {
		next = 0
	}
	x.Out.Array(2)
	x.Out.BulkString(strconv.FormatUint(next, 10))
	x.Out.Array(len(shown))
	for _, l := range shown {
		x.replyLease(l, 0)
	}
	return nil
}
