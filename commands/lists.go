// The Specs of the commands on lists, and what their handlers share.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// twoKeys is the KeySpec of a command whose first two arguments are keys.
var twoKeys = KeySpec{First: 1, Last: 2, Step: 1}

var listSpecs = []Spec{
	{Name: "lpush", Kind: Write, Arity: -3, ArgWork: cheapArg, Flags: DenyOOM | Fast | Ends,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: "list", Since: "1.0.0",
		Syntax:     "key element [element ...]",
		Summary:    "Prepends elements to a list. Creates the list if it doesn't exist.",
		Complexity: "O(1) an element", Handler: push(leftEnd, false)},
	{Name: "rpush", Kind: Write, Arity: -3, ArgWork: cheapArg, Flags: DenyOOM | Fast | Ends,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: "list", Since: "1.0.0",
		Syntax:     "key element [element ...]",
		Summary:    "Appends elements to a list. Creates the list if it doesn't exist.",
		Complexity: "O(1) an element", Handler: push(rightEnd, false)},
	{Name: "lpushx", Kind: Write, Arity: -3, ArgWork: cheapArg, Flags: DenyOOM | Fast | Ends,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: "list", Since: "2.2.0",
		Syntax:     "key element [element ...]",
		Summary:    "Prepends elements to a list only if the list exists.",
		Complexity: "O(1) an element", Handler: push(leftEnd, true)},
	{Name: "rpushx", Kind: Write, Arity: -3, ArgWork: cheapArg, Flags: DenyOOM | Fast | Ends,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: "list", Since: "2.2.0",
		Syntax:     "key element [element ...]",
		Summary:    "Appends elements to a list only if the list exists.",
		Complexity: "O(1) an element", Handler: push(rightEnd, true)},
	{Name: "lpop", Kind: Write, Arity: -2, Flags: Fast | Ends,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyDelete), Group: "list", Since: "1.0.0",
		Syntax: "key [count:integer]",
		Summary: "Removes and returns the first elements of a list. Deletes the list with its " +
			"last element.",
		Complexity: "O(k + log n) for k elements taken", Handler: pop(leftEnd)},
	{Name: "rpop", Kind: Write, Arity: -2, Flags: Fast | Ends,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyDelete), Group: "list", Since: "1.0.0",
		Syntax: "key [count:integer]",
		Summary: "Removes and returns the last elements of a list. Deletes the list with its " +
			"last element.",
		Complexity: "O(k + log n) for k elements taken", Handler: pop(rightEnd)},
	{Name: "llen", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO),
		Group: "list", Since: "1.0.0",
		Syntax:     "key",
		Summary:    "Returns the length of a list.",
		Complexity: "O(1)", Handler: llen},
	{Name: "lindex", Kind: Read, Arity: 3, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "list", Since: "1.0.0",
		Syntax:     "key index:integer",
		Summary:    "Returns the element at an index of a list.",
		Complexity: "O(log n)", Handler: lindex},
	{Name: "lrange", Kind: Read, Arity: 4, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "list", Since: "1.0.0",
		Syntax:     "key start:integer stop:integer",
		Summary:    "Returns a range of elements of a list.",
		Complexity: "O(k + log n) for k elements read", Handler: lrange},
	{Name: "lpos", Kind: Read, Arity: -3, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "list", Since: "6.0.6",
		Syntax: "key element [RANK rank:integer] [COUNT num-matches:integer] [MAXLEN " +
			"len:integer]",
		Summary:    "Returns the indexes of elements in a list that equal a value.",
		Complexity: "O(n) in the elements looked at", Handler: lpos},
	{Name: "linsert", Kind: Write, Arity: 5, Flags: DenyOOM,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: "list", Since: "2.2.0",
		Syntax:     "key <BEFORE | AFTER> pivot element",
		Summary:    "Inserts an element before or after another one in a list.",
		Complexity: "O(n) in the elements up to that one", Handler: linsert},
	{Name: "lset", Kind: Write, Arity: 4, Flags: DenyOOM,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "list", Since: "1.0.0",
		Syntax:     "key index:integer element",
		Summary:    "Sets the element at an index of a list.",
		Complexity: "O(log n)", Handler: lset},
	{Name: "lrem", Kind: Write, Arity: 4,
		Keys: collectionKey.does(KeyRW | KeyDelete), Group: "list", Since: "1.0.0",
		Syntax:     "key count:integer element",
		Summary:    "Removes elements that equal a value from a list.",
		Complexity: "O(n + k log n) for k elements removed", Handler: lrem},
	{Name: "ltrim", Kind: Write, Arity: 4,
		Keys: collectionKey.does(KeyRW | KeyDelete), Group: "list", Since: "1.0.0",
		Syntax:     "key start:integer stop:integer",
		Summary:    "Trims a list to a range of elements.",
		Complexity: "O(log n)", Handler: ltrim},
	{Name: "lmove", Kind: Write, Arity: 5, Flags: DenyOOM | Ends,
		Keys: twoKeys.does(KeyRW|KeyAccess|KeyDelete, KeyRW|KeyInsert), Group: "list",
		Since:      "6.2.0",
		Syntax:     "source:key destination:key <LEFT | RIGHT> <LEFT | RIGHT>",
		Summary:    "Moves an element from one end of a list to an end of another and returns it.",
		Complexity: "O(log n)", Handler: lmove},
	{Name: "lmovem", Kind: Write, Arity: -5, Flags: DenyOOM | Ends, Level: LevelSecond,
		Keys: twoKeys.does(KeyRW|KeyAccess|KeyDelete, KeyRW|KeyInsert), Group: "list",
		Since: "8.10.0",
		Syntax: "source:key destination:key <LEFT | RIGHT> <LEFT | RIGHT> [<COUNT count:integer " +
			"| EXACTLY exactly:integer> <OBO | BULK>]",
		Summary:    "Moves elements from one end of a list to an end of another and returns them.",
		Complexity: "O(n log n) for n elements moved", Handler: lmovem},
	{Name: "rpoplpush", Kind: Write, Arity: 3, Flags: DenyOOM | Ends,
		Keys: twoKeys.does(KeyRW|KeyAccess|KeyDelete, KeyRW|KeyInsert), Group: "list",
		Since:      "1.2.0",
		Syntax:     "source:key destination:key",
		Summary:    "Moves the last element of a list to the front of another and returns it.",
		Complexity: "O(log n)", Handler: rpoplpush},
	{Name: "lmpop", Kind: Write, Arity: -4, Flags: MovableKeys | Ends,
		Keys: KeySpec{Numkeys: 1}.does(KeyRW | KeyAccess | KeyDelete), Group: "list",
		Since:      "7.0.0",
		Syntax:     "numkeys:integer key [key ...] <LEFT | RIGHT> [COUNT count:integer]",
		Summary:    "Removes and returns elements of the first non-empty list.",
		Complexity: "O(m + k + log n) for m keys and k elements taken",
		Handler:    multipopHandler(false, endWords, lmultipop)},
	{Name: "blpop", Kind: Write, Waits: AlwaysWaits, Arity: -3, Flags: NoScript | Blocking | Ends,
		Keys:  KeySpec{First: 1, Last: -2, Step: 1}.does(KeyRW | KeyAccess | KeyDelete),
		Group: "list", Since: "2.0.0",
		Syntax: "key [key ...] timeout:double",
		Summary: "Removes and returns the first element of the first non-empty list. Blocks " +
			"until one is available.",
		Complexity: "O(m + log n) for m keys", Handler: bpop(leftEnd)},
	{Name: "brpop", Kind: Write, Waits: AlwaysWaits, Arity: -3, Flags: NoScript | Blocking | Ends,
		Keys:  KeySpec{First: 1, Last: -2, Step: 1}.does(KeyRW | KeyAccess | KeyDelete),
		Group: "list", Since: "2.0.0",
		Syntax: "key [key ...] timeout:double",
		Summary: "Removes and returns the last element of the first non-empty list. Blocks " +
			"until one is available.",
		Complexity: "O(m + log n) for m keys", Handler: bpop(rightEnd)},
	{Name: "blmove", Kind: Write, Waits: AlwaysWaits, Arity: 6,
		Flags: DenyOOM | NoScript | Blocking | Ends,
		Keys:  twoKeys.does(KeyRW|KeyAccess|KeyDelete, KeyRW|KeyInsert), Group: "list",
		Since:  "6.2.0",
		Syntax: "source:key destination:key <LEFT | RIGHT> <LEFT | RIGHT> timeout:double",
		Summary: "Moves an element from one list to another and returns it. Blocks until one " +
			"is available.",
		Complexity: "O(log n)", Handler: blmove},
	{Name: "blmovem", Kind: Write, Waits: AlwaysWaits, Arity: -6,
		Flags: DenyOOM | Blocking | Ends, Level: LevelSecond,
		Keys:  twoKeys.does(KeyRW|KeyAccess|KeyDelete, KeyRW|KeyInsert).needs(leastMoved),
		Group: "list",
		Since: "8.10.0",
		Syntax: "source:key destination:key <LEFT | RIGHT> <LEFT | RIGHT> timeout:double " +
			"[<COUNT count:integer | EXACTLY exactly:integer> <OBO | BULK>]",
		Summary: "Moves elements from one list to another and returns them. Blocks until they " +
			"are available.",
		Complexity: "O(n log n) for n elements moved", Handler: blmovem},
	{Name: "brpoplpush", Kind: Write, Waits: AlwaysWaits, Arity: 4,
		Flags: DenyOOM | NoScript | Blocking | Ends,
		Keys:  twoKeys.does(KeyRW|KeyAccess|KeyDelete, KeyRW|KeyInsert), Group: "list",
		Since:  "2.2.0",
		Syntax: "source:key destination:key timeout:double",
		Summary: "Moves the last element of a list to the front of another and returns it. " +
			"Blocks until one is available.",
		Complexity: "O(log n)", Handler: brpoplpush},
	{Name: "blmpop", Kind: Write, Waits: AlwaysWaits, Arity: -5,
		Flags: Blocking | MovableKeys | Ends,
		Keys:  KeySpec{Numkeys: 2}.does(KeyRW | KeyAccess | KeyDelete), Group: "list",
		Since: "7.0.0",
		Syntax: "timeout:double numkeys:integer key [key ...] <LEFT | RIGHT> [COUNT " +
			"count:integer]",
		Summary: "Removes and returns elements of the first non-empty list. Blocks until one " +
			"is available.",
		Complexity: "O(m + k + log n) for m keys and k elements taken",
		Handler:    multipopHandler(true, endWords, lmultipop)},
}

// noList is what a lookup returns for a missing key, for reading only.
var noList = keyspace.NewList()

// findList is findHash for lists.
func findList(x *Call, key []byte) (*keyspace.List, error) { return findCollection(x, key, noList) }

// editList is editHash for lists.
func editList(x *Call, key []byte) (*keyspace.Entry, *keyspace.List) {
	return editCollection(x, key, keyspace.NewList)
}

// listEnd is an end of a list. Seen from an end, a list starts there.
type listEnd uint8

const (
	leftEnd listEnd = iota
	rightEnd
)

// endWords are the words for the ends.
var endWords = [...]string{leftEnd: "LEFT", rightEnd: "RIGHT"}

// parseEnd parses the word for an end.
func parseEnd(arg []byte) (listEnd, error) {
	for end, word := range endWords {
		if isWord(arg, word) {
			return listEnd(end), nil
		}
	}
	return 0, ErrSyntax
}

// span returns the positions of the first n elements as seen from the end, the nearest first.
func (end listEnd) span(l *keyspace.List, n int) (first, last int) {
	if end == leftEnd {
		return 0, n - 1
	}
	return l.Len() - 1, l.Len() - n
}

// push adds an element at the end of a list that is open for changes.
func (end listEnd) push(l *keyspace.List, values ...[]byte) {
	if end == leftEnd {
		l.PushFront(values...)
		return
	}
	for _, v := range values {
		l.PushBack(v)
	}
}

// pushed is the event of an element added at the end.
func (end listEnd) pushed() string { return [...]string{leftEnd: "lpush", rightEnd: "rpush"}[end] }

// popped is the event of an element removed from the end.
func (end listEnd) popped() string { return [...]string{leftEnd: "lpop", rightEnd: "rpop"}[end] }

// cutEnd removes the first n elements, as seen from the end, of the list at key, which has at least
// n.
func cutEnd(x *Call, key []byte, end listEnd, n int) {
	e, l := editList(x, key)
	first, last := end.span(l, n)
	l.RemoveRange(min(first, last), max(first, last))
	x.changed(e, NotifyList, end.popped())
}

// takeEnd replies with the first elements of l, the list at key, as seen from the end, at most
// count, and removes them.
func takeEnd(x *Call, key []byte, l *keyspace.List, end listEnd, count int64) {
	n := int(min(count, int64(l.Len())))
	x.Out.Array(n)
	first, last := end.span(l, n)
	replyElements(x, l, first, last)
	cutEnd(x, key, end, n)
}

// replyElements replies with the elements from position first to last, inclusive, which exist; in
// reverse if first > last.
func replyElements(x *Call, l *keyspace.List, first, last int) {
	l.Range(first, last, func(value string) bool {
		x.Out.BulkString(value)
		return true
	})
}

// listSpan converts a range of indexes, where negative ones count from the end, into positions in
// l. If it is empty, last is less than first.
func listSpan(l *keyspace.List, start, stop int64) (first, last int) {
	n := int64(l.Len())
	if start < 0 {
		start = max(start+n, 0)
	}
	if stop < 0 {
		stop += n
	}
	if start >= n || start > stop {
		return 0, -1
	}
	return int(start), int(min(stop, n-1))
}
