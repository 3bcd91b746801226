// Deadlines of set members: SADDEX, SEXPIRE, STTL, SPERSIST and their kin, of Redis 8.12.

package commands

import (
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of the commands on deadlines of members.
const (
	errMembersWord Error = "ERR Mandatory argument MEMBERS is missing or not at the right " +
		"position"
	errMembersCount Error = "ERR Number of members must be a positive integer"
	errMembersMatch Error = "ERR The `nummembers` parameter must match the number of arguments"
	// only the SEXPIRE family and SADDEX have these
	errMembersFew     Error = "ERR MEMBERS requires at least nummembers and one member argument"
	errMembersNumber  Error = "ERR Parameter `numMembers` should be greater than 0"
	errMembersInvalid Error = "ERR invalid number of members"
	errMembersTwice   Error = "ERR MEMBERS keyword specified multiple times"
	errMembersMissing Error = "ERR missing MEMBERS argument"
	errMembersMany    Error = "ERR wrong number of arguments"
	errConditions     Error = "ERR Multiple condition flags specified"
	errOneMembers     Error = "ERR Only one of MXX or MNX arguments can be specified"
)

const (
	membersSyntax      = " MEMBERS nummembers:integer member [member ...]"
	expireMemberSyntax = " [NX | XX | GT | LT]" + membersSyntax
	oneAMember         = "O(1) a member"
)

var setTTLSpecs = []Spec{
	{Name: "saddex", Kind: Write, Arity: -5, Flags: DenyOOM | Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "set", Since: "8.12.0",
		Syntax: "key [MNX | MXX] [EX seconds:integer | PX milliseconds:integer | EXAT " +
			"unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | KEEPTTL]" +
			membersSyntax,
		Summary: "Adds all given members to a set or none, optionally with a condition and a " +
			"time to live.",
		Complexity: oneAMember, Handler: saddexCommand},
	{Name: "sexpire", Kind: Write, Arity: -6, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "set", Since: "8.12.0",
		Syntax:     "key seconds:integer" + expireMemberSyntax,
		Summary:    "Sets the time to live of set members in seconds.",
		Complexity: oneAMember, Handler: sexpireCommand},
	{Name: "spexpire", Kind: Write, Arity: -6, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "set", Since: "8.12.0",
		Syntax:     "key milliseconds:integer" + expireMemberSyntax,
		Summary:    "Sets the time to live of set members in milliseconds.",
		Complexity: oneAMember, Handler: spexpireCommand},
	{Name: "sexpireat", Kind: Write, Arity: -6, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "set", Since: "8.12.0",
		Syntax:     "key unix-time-seconds:unix-time" + expireMemberSyntax,
		Summary:    "Sets the expiration time of set members as a Unix timestamp in seconds.",
		Complexity: oneAMember, Handler: sexpireatCommand},
	{Name: "spexpireat", Kind: Write, Arity: -6, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "set", Since: "8.12.0",
		Syntax:     "key unix-time-milliseconds:unix-time" + expireMemberSyntax,
		Summary:    "Sets the expiration time of set members as a Unix timestamp in milliseconds.",
		Complexity: oneAMember, Handler: spexpireatCommand},
	{Name: "spersist", Kind: Write, Arity: -5, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "set", Since: "8.12.0",
		Syntax:     "key" + membersSyntax,
		Summary:    "Removes the time to live of set members.",
		Complexity: oneAMember, Handler: spersistCommand},
	{Name: "sttl", Kind: Read, Arity: -5, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "set", Since: "8.12.0",
		Syntax:     "key" + membersSyntax,
		Summary:    "Returns the remaining times to live of set members in seconds.",
		Complexity: oneAMember, Handler: sttlCommand},
	{Name: "spttl", Kind: Read, Arity: -5, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "set", Since: "8.12.0",
		Syntax:     "key" + membersSyntax,
		Summary:    "Returns the remaining times to live of set members in milliseconds.",
		Complexity: oneAMember, Handler: spttlCommand},
	{Name: "sexpiretime", Kind: Read, Arity: -5, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "set", Since: "8.12.0",
		Syntax:     "key" + membersSyntax,
		Summary:    "Returns the expiration times of set members as Unix timestamps in seconds.",
		Complexity: oneAMember, Handler: sexpiretimeCommand},
	{Name: "spexpiretime", Kind: Read, Arity: -5, Flags: Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "set", Since: "8.12.0",
		Syntax: "key" + membersSyntax,
		Summary: "Returns the expiration times of set members as Unix timestamps in " +
			"milliseconds.",
		Complexity: oneAMember, Handler: spexpiretimeCommand},
}

// memberBlock is MEMBERS, a number and as many members, anywhere among the options.
type memberBlock [][]byte

// parse parses the block that begins at position i of the arguments, and returns where it ends.
// fewer is the error for less than least arguments behind MEMBERS, notNumber for an invalid number.
func (b *memberBlock) parse(x *Call, i, least int, fewer, notNumber error) (last int, err error) {
	rest := x.Args[i+1:]
	switch {
	case *b != nil:
		return i, errMembersTwice
	case len(rest) < least:
		return i, fewer
	}
	n, ok := ParseInt(rest[0])
	switch {
	case !ok || n < 1 || n > maxFields:
		return i, notNumber
	case n > int64(len(rest)-1):
		return i, errMembersMany
	}
	*b = rest[1 : 1+n]
	return i + 1 + int(n), nil
}

// sexpireOptions are what follows the time in the SEXPIRE family.
type sexpireOptions struct {
	expireOptions
	members memberBlock
}

func (o *sexpireOptions) parse(x *Call) (err error) {
	for i := 3; i < len(x.Args); i++ {
		if arg := x.Args[i]; isWord(arg, "MEMBERS") {
			if i, err = o.members.parse(x, i, 2, errMembersFew, errMembersNumber); err != nil {
				return err
			}
		} else if !o.add(arg) {
			return Errorf("ERR unknown argument: %s", resp.CText(arg))
		}
	}
	given := 0
	for _, is := range []bool{o.nx, o.xx, o.gt, o.lt} {
		if is {
			given++
		}
	}
	switch {
	case o.members == nil:
		return errMembersMissing
	case given > 1:
		return errConditions
	}
	return nil
}

// spendMembers adds the work of changing the deadlines of members of s.
func (x *Call) spendMembers(s *keyspace.Set, members [][]byte) {
	const grown = 8 // a member, if integers become names
	if s.Integers() {
		x.Spend(grown * s.Len())
	}
	x.Spend((deadlineWork + 3*deep(s.Len())) * len(members))
	for _, member := range members {
		x.spendBytes(4 * len(member)) // hashed and compared
	}
}

// setEdit returns the change of members of s, the set at x.Args[1].
func (x *Call) setEdit(s *keyspace.Set) elementEdit[*keyspace.Set] {
	return elementEdit[*keyspace.Set]{x: x, c: s, open: editSet, class: NotifySet}
}

func sexpireCommand(x *Call) error { return x.expireMembers(ttlEX) }

func spexpireCommand(x *Call) error { return x.expireMembers(ttlPX) }

func sexpireatCommand(x *Call) error { return x.expireMembers(ttlEXAT) }

func spexpireatCommand(x *Call) error { return x.expireMembers(ttlPXAT) }

// expireMembers runs the SEXPIRE family.
func (x *Call) expireMembers(unit ttlUnit) error {
	s, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	deadlineMs, err := x.parseElementDeadline(unit, x.Args[2])
	if err != nil {
		return err
	}
	var o sexpireOptions
	if err := o.parse(x); err != nil {
		return err
	}
	x.spendMembers(s, o.members)
	x.Expect(len(o.members), 0)
	edit := x.setEdit(s)
	edit.expireEach(o.members, &o.expireOptions, deadlineMs, "sexpire", "srem")
	return nil
}

// setMembers parses the arguments of a command that takes only a key and members.
func (x *Call) setMembers() (s *keyspace.Set, members [][]byte, err error) {
	if s, err = findSet(x, x.Args[1]); err != nil {
		return nil, nil, err
	}
	n, ok := ParseInt(x.Args[3])
	switch {
	case !isWord(x.Args[2], "MEMBERS"):
		return nil, nil, errMembersWord
	case !ok || n < 1:
		return nil, nil, errMembersCount
	case n != int64(len(x.Args)-4):
		return nil, nil, errMembersMatch
	}
	return s, x.Args[4:], nil
}

func spersistCommand(x *Call) error {
	s, members, err := x.setMembers()
	if err != nil {
		return err
	}
	x.spendMembers(s, members)
	x.Expect(len(members), 0)
	edit := x.setEdit(s)
	edit.persistEach(members, "spersist")
	return nil
}

func sttlCommand(x *Call) error { return x.replyMemberTTLs(x.remainingSeconds) }

func spttlCommand(x *Call) error { return x.replyMemberTTLs(x.remainingMs) }

func sexpiretimeCommand(x *Call) error { return x.replyMemberTTLs(x.expirySeconds) }

func spexpiretimeCommand(x *Call) error { return x.replyMemberTTLs(x.expiryMs) }

// replyMemberTTLs replies with show of each member's deadline.
func (x *Call) replyMemberTTLs(show func(deadlineMs int64) int64) error {
	s, members, err := x.setMembers()
	if err != nil {
		return err
	}
	x.replyTTLs(s, members, show)
	return nil
}

// saddexOptions are the options and members of SADDEX.
type saddexOptions struct {
	when setCondition // setAlways; setNX or setXX for all members
	lifetime
	members memberBlock
}

func (o *saddexOptions) parse(x *Call) (err error) {
	for i := 2; i < len(x.Args); i++ {
		switch arg := x.Args[i]; {
		case isWord(arg, "MEMBERS"):
			i, err = o.members.parse(x, i, 1, x.Spec.ArityError(), errMembersInvalid)
		case isLifetime(arg):
			i, err = o.lifetime.parse(x, i)
		case isWord(arg, "MXX") || isWord(arg, "MNX"):
			if o.when != setAlways {
				return errOneMembers
			}
			o.when = setXX
			if isWord(arg, "MNX") {
				o.when = setNX
			}
		default:
			return Errorf("ERR unknown argument: %s", resp.CText(arg))
		}
		if err != nil {
			return err
		}
	}
	if o.members == nil {
		return errMembersMissing
	}
	return nil
}

func saddexCommand(x *Call) error {
	var o saddexOptions
	if err := o.parse(x); err != nil {
		return err
	}
	s, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	for i := 0; o.when != setAlways && i < len(o.members); i++ {
		if s.Has(o.members[i]) != (o.when == setXX) {
			x.Out.Int(0)
			return nil
		}
	}
	x.spendMembers(s, o.members)
	x.Out.Int(1)
	if o.over(x) { // then Redis removes them
		edit := x.setEdit(s)
		for _, member := range o.members {
			if edit.c.Has(member) {
				edit.remove(member)
			}
		}
		edit.finish("srem")
		return nil
	}
	e, s := editSet(x, x.Args[1])
	for _, member := range o.members {
		s.Add(member)
		if !o.keep {
			s.SetDeadline(x.Keyspace, member, o.deadlineMs)
		}
	}
	x.changed(e, NotifySet, "sadd")
	if o.unit != ttlNone {
		x.notify(NotifySet, "sexpire", x.Args[1])
	}
	return nil
}
