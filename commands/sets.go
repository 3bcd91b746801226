// The Specs of the commands on sets, and the commands on single members. Random picks are in
// sets_random.go, set operations in sets_combine.go.

package commands

import (
	"bytes"
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

var setSpecs = []Spec{
	{Name: "sadd", Kind: Write, Arity: -3, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: "set", Since: "1.0.0",
		Syntax: "key member [member ...]",
		Summary: "Adds members to a set and returns how many are new. Creates the set if it " +
			"doesn't exist.",
		Complexity: "O(1) a member", Handler: sadd},
	{Name: "srem", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyDelete),
		Group: "set", Since: "1.0.0",
		Syntax:     "key member [member ...]",
		Summary:    "Removes members from a set. Deletes the set with its last member.",
		Complexity: "O(1) a member", Handler: srem},
	{Name: "smove", Kind: Write, Arity: 4, Flags: Fast,
		Keys:  KeySpec{First: 1, Last: 2, Step: 1}.does(KeyRW|KeyAccess|KeyDelete, KeyRW|KeyInsert),
		Group: "set", Since: "1.0.0",
		Syntax:     "source:key destination:key member",
		Summary:    "Moves a member from one set to another.",
		Complexity: "O(1)", Handler: smove},
	{Name: "smembers", Kind: Read, Arity: 2, Flags: WholeValues,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "set", Since: "1.0.0",
		Syntax:     "key",
		Summary:    "Returns the members of a set.",
		Complexity: "O(n) in the members of the set", Handler: smembers},
	{Name: "sismember", Kind: Read, Arity: 3, Flags: Fast, Keys: collectionKey.does(KeyRO),
		Group: "set", Since: "1.0.0",
		Syntax:     "key member",
		Summary:    "Reports whether a set has a member.",
		Complexity: "O(1)", Handler: sismember},
	{Name: "smismember", Kind: Read, Arity: -3, Flags: Fast,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "set", Since: "6.2.0",
		Syntax:     "key member [member ...]",
		Summary:    "Reports which of several members a set has.",
		Complexity: "O(1) a member", Handler: smismember},
	{Name: "scard", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO),
		Group: "set", Since: "1.0.0",
		Syntax:     "key",
		Summary:    "Returns the number of members of a set.",
		Complexity: "O(1)", Handler: scard},
	{Name: "spop", Kind: Write, Arity: -2, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyDelete), Group: "set", Since: "1.0.0",
		Syntax:     "key [count:integer]",
		Summary:    "Removes and returns random members of a set.",
		Complexity: "O(log n) a member", Handler: spop},
	{Name: "srandmember", Kind: Read, Arity: -2, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "set", Since: "1.0.0",
		Syntax:     "key [count:integer]",
		Summary:    "Returns random members of a set.",
		Complexity: "O(log n) a member", Handler: srandmember},
	{Name: "sscan", Kind: Read, Arity: -3, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "set", Since: "2.8.0",
		Syntax:     "key cursor:integer [MATCH pattern] [COUNT count:integer]",
		Summary:    "Iterates over the members of a set.",
		Complexity: "O(count) a step, O(n) for all the members", Handler: sscan},
	{Name: "sinter", Kind: Read, Arity: -2, Keys: allKeys.does(KeyRO | KeyAccess), Group: "set",
		Since:      "1.0.0",
		Syntax:     "key [key ...]",
		Summary:    "Returns the intersection of sets.",
		Complexity: "O(n m) for n members of the smallest of m sets",
		Handler:    scombine(intersection)},
	{Name: "sinterstore", Kind: Write, Arity: -3, Flags: DenyOOM,
		Keys: allKeys.does(KeyRW|KeyUpdate, KeyRO|KeyAccess), Group: "set", Since: "1.0.0",
		Syntax:     "destination:key key [key ...]",
		Summary:    "Stores the intersection of sets in a key.",
		Complexity: "O(n m) for n members of the smallest of m sets",
		Handler:    scombineStore(intersection, "sinterstore")},
	{Name: "sintercard", Kind: Read, Arity: -3, Flags: MovableKeys,
		Keys: KeySpec{Numkeys: 1}.does(KeyRO | KeyAccess), Group: "set", Since: "7.0.0",
		Syntax:     "numkeys:integer key [key ...] [LIMIT limit:integer]",
		Summary:    "Returns the number of members of the intersection of sets.",
		Complexity: "O(n m) for n members of the smallest of m sets", Handler: sintercard},
	{Name: "sunioncard", Kind: Read, Arity: -3, Flags: MovableKeys, Level: LevelSecond,
		Keys: KeySpec{Numkeys: 1}.does(KeyRO | KeyAccess), Group: "set", Since: "8.10.0",
		Syntax:     "numkeys:integer key [key ...] [APPROX] [LIMIT limit:integer]",
		Summary:    "Returns the number of members of the union of sets.",
		Complexity: "O(n) in the members of all the sets", Handler: sunioncard},
	{Name: "sdiffcard", Kind: Read, Arity: -3, Flags: MovableKeys, Level: LevelSecond,
		Keys: KeySpec{Numkeys: 1}.does(KeyRO | KeyAccess), Group: "set", Since: "8.10.0",
		Syntax:     "numkeys:integer key [key ...] [LIMIT limit:integer]",
		Summary:    "Returns the number of members of the difference of sets.",
		Complexity: "O(n m) for n members of the first of m sets", Handler: sdiffcard},
	{Name: "sunion", Kind: Read, Arity: -2, Flags: WholeValues,
		Keys: allKeys.does(KeyRO | KeyAccess), Group: "set", Since: "1.0.0",
		Syntax:     "key [key ...]",
		Summary:    "Returns the union of sets.",
		Complexity: "O(n) in the members of all the sets", Handler: scombine(union)},
	{Name: "sunionstore", Kind: Write, Arity: -3, Flags: DenyOOM,
		Keys: allKeys.does(KeyOW|KeyUpdate, KeyRO|KeyAccess), Group: "set", Since: "1.0.0",
		Syntax:     "destination:key key [key ...]",
		Summary:    "Stores the union of sets in a key.",
		Complexity: "O(n) in the members of all the sets",
		Handler:    scombineStore(union, "sunionstore")},
	{Name: "sdiff", Kind: Read, Arity: -2, Flags: WholeValues,
		Keys: allKeys.does(KeyRO | KeyAccess), Group: "set", Since: "1.0.0",
		Syntax:     "key [key ...]",
		Summary:    "Returns the difference of sets.",
		Complexity: "O(n m) for n members of the first of m sets", Handler: scombine(difference)},
	{Name: "sdiffstore", Kind: Write, Arity: -3, Flags: DenyOOM,
		Keys: allKeys.does(KeyOW|KeyUpdate, KeyRO|KeyAccess), Group: "set", Since: "1.0.0",
		Syntax:     "destination:key key [key ...]",
		Summary:    "Stores the difference of sets in a key.",
		Complexity: "O(n m) for n members of the first of m sets",
		Handler:    scombineStore(difference, "sdiffstore")},
}

// allKeys is the KeySpec of a command whose arguments are all keys.
var allKeys = KeySpec{First: 1, Last: -1, Step: 1}

// noSet is what a lookup returns for a missing key, for reading only.
var noSet = keyspace.NewSet()

// findSet is findHash for sets.
func findSet(x *Call, key []byte) (*keyspace.Set, error) { return findCollection(x, key, noSet) }

// walkSet is walkHash for sets.
func walkSet(x *Call, key []byte) (*keyspace.Set, error) {
	s, err := findSet(x, key)
	if err == nil {
		x.spendDeadElements(s, math.MaxInt)
	}
	return s, err
}

// editSet is editHash for sets.
func editSet(x *Call, key []byte) (*keyspace.Entry, *keyspace.Set) {
	return editCollection(x, key, keyspace.NewSet)
}

func sadd(x *Call) error {
	s, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	if s.Dead() > 0 { // they may be among those that come, and go first
		x.Spend(deadlineWork * (len(x.Args) - 2))
	}
	var e *keyspace.Entry
	var added int64
	for _, member := range x.Args[2:] {
		if e == nil {
			if s.Has(member) {
				continue
			}
			e, s = editSet(x, x.Args[1])
		}
		if s.Add(member) {
			added++
		}
	}
	if e != nil {
		x.changed(e, NotifySet, "sadd")
	}
	x.Out.Int(added)
	return nil
}

func srem(x *Call) error {
	s, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	if s.Volatile() > 0 {
		x.Spend(deadlineWork * (len(x.Args) - 2))
	}
	var e *keyspace.Entry
	var removed int64
	for _, member := range x.Args[2:] {
		if e == nil {
			if !s.Has(member) {
				continue
			}
			e, s = editSet(x, x.Args[1])
		}
		if s.Delete(member) {
			removed++
		}
	}
	if e != nil {
		x.changed(e, NotifySet, "srem")
	}
	x.Out.Int(removed)
	return nil
}

func smove(x *Call) error {
	if x.find(x.Args[1]) == nil { // then Redis does not check the destination
		x.Out.Int(0)
		return nil
	}
	source, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	destination, err := findSet(x, x.Args[2])
	if err != nil {
		return err
	}
	member := x.Args[3]
	if !source.Has(member) {
		x.Out.Int(0)
		return nil
	}
	x.Out.Int(1)
	if bytes.Equal(x.Args[1], x.Args[2]) {
		return nil
	}
	deadlineMs, _ := source.Deadline(member)
	oldMs, exists := destination.Deadline(member)
	e, s := editSet(x, x.Args[1])
	s.Delete(member)
	x.changed(e, NotifySet, "srem")
	if exists && oldMs == deadlineMs {
		return nil
	}
	e, s = editSet(x, x.Args[2])
	s.Add(member)
	s.SetDeadline(x.Keyspace, member, deadlineMs) // which moves along
	switch {
	case !exists:
		x.changed(e, NotifySet, "sadd")
		if deadlineMs != 0 {
			x.notify(NotifySet, "sexpire", x.Args[2])
		}
	case deadlineMs != 0:
		x.changed(e, NotifySet, "sexpire")
	default:
		x.changed(e, NotifySet, "spersist")
	}
	return nil
}

func smembers(x *Call) error {
	s, err := walkSet(x, x.Args[1])
	if err != nil {
		return err
	}
	replySet(x, s)
	return nil
}

// membership returns 1 for a member of s, else 0.
func membership(s *keyspace.Set, member []byte) int64 {
	if s.Has(member) {
		return 1
	}
	return 0
}

func sismember(x *Call) error {
	s, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Int(membership(s, x.Args[2]))
	return nil
}

func smismember(x *Call) error {
	s, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Array(len(x.Args) - 2)
	for _, member := range x.Args[2:] {
		x.Out.Int(membership(s, member))
	}
	return nil
}

func scard(x *Call) error {
	s, err := findSet(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Int(int64(s.Len()))
	return nil
}

func sscan(x *Call) error {
	return scanElements(x, findSet, func(s *keyspace.Set, step *elementScan, cursor uint64) uint64 {
		x.spendDeadElements(s, step.count)
		step.noValues = true
		return s.Scan(cursor, step.count, func(member string) {
			if step.matches(member) {
				step.keep(member, nil)
			}
		})
	})
}
