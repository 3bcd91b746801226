// TTLs of hash fields: HEXPIRE, HTTL, HPERSIST and their kin, of Redis 7.4. As with keys, deadlines
// are compared and kept in ms of the cluster clock.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Errors of the commands on field TTLs.
const (
	errFieldsWord Error = "ERR Mandatory argument FIELDS is missing or not at the right " +
		"position"
	errFieldsCount Error = "ERR Number of fields must be a positive integer"
	// only the HEXPIRE family has this one
	errFieldsNumber    Error = "ERR Parameter `numFields` should be greater than 0"
	errFieldsMatch     Error = "ERR The `numfields` parameter must match the number of arguments"
	errFieldsInvalid   Error = "ERR invalid number of fields" // only HSETEX has it
	errOneCondition    Error = "ERR Only one of FXX or FNX arguments can be specified"
	errOneKeyCondition Error = "ERR Only one of NX or XX arguments can be specified"
)

const (
	fieldsSyntax = " FIELDS numfields:integer field [field ...]"
	expireSyntax = " [NX | XX | GT | LT]" + fieldsSyntax
	oneAField    = "O(1) a field"
)

var hashTTLSpecs = []Spec{
	{Name: "hexpire", Kind: Write, Arity: -6, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "7.4.0",
		Syntax:     "key seconds:integer" + expireSyntax,
		Summary:    "Sets the time to live of hash fields in seconds.",
		Complexity: oneAField, Grows: growsNothing, Handler: hexpireCommand},
	{Name: "hpexpire", Kind: Write, Arity: -6, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "7.4.0",
		Syntax:     "key milliseconds:integer" + expireSyntax,
		Summary:    "Sets the time to live of hash fields in milliseconds.",
		Complexity: oneAField, Grows: growsNothing, Handler: hpexpireCommand},
	{Name: "hexpireat", Kind: Write, Arity: -6, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "7.4.0",
		Syntax:     "key unix-time-seconds:unix-time" + expireSyntax,
		Summary:    "Sets the expiration time of hash fields as a Unix timestamp in seconds.",
		Complexity: oneAField, Grows: growsNothing, Handler: hexpireatCommand},
	{Name: "hpexpireat", Kind: Write, Arity: -6, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "7.4.0",
		Syntax:     "key unix-time-milliseconds:unix-time" + expireSyntax,
		Summary:    "Sets the expiration time of hash fields as a Unix timestamp in milliseconds.",
		Complexity: oneAField, Grows: growsNothing, Handler: hpexpireatCommand},
	{Name: "hpersist", Kind: Write, Arity: -5, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "7.4.0",
		Syntax:     "key" + fieldsSyntax,
		Summary:    "Removes the time to live of hash fields.",
		Complexity: oneAField, Handler: hpersistCommand},
	{Name: "httl", Kind: Read, Arity: -5, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "hash", Since: "7.4.0",
		Syntax:     "key" + fieldsSyntax,
		Summary:    "Returns the remaining times to live of hash fields in seconds.",
		Complexity: oneAField, Handler: httlCommand},
	{Name: "hpttl", Kind: Read, Arity: -5, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "hash", Since: "7.4.0",
		Syntax:     "key" + fieldsSyntax,
		Summary:    "Returns the remaining times to live of hash fields in milliseconds.",
		Complexity: oneAField, Handler: hpttlCommand},
	{Name: "hexpiretime", Kind: Read, Arity: -5, Flags: Fast,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "hash", Since: "7.4.0",
		Syntax:     "key" + fieldsSyntax,
		Summary:    "Returns the expiration times of hash fields as Unix timestamps in seconds.",
		Complexity: oneAField, Handler: hexpiretimeCommand},
	{Name: "hpexpiretime", Kind: Read, Arity: -5, Flags: Fast,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "hash", Since: "7.4.0",
		Syntax: "key" + fieldsSyntax,
		Summary: "Returns the expiration times of hash fields as Unix timestamps in " +
			"milliseconds.",
		Complexity: oneAField, Handler: hpexpiretimeCommand},
	{Name: "hgetex", Kind: Write, Arity: -5, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "hash", Since: "8.0.0",
		Syntax: "key [EX seconds:integer | PX milliseconds:integer | EXAT " +
			"unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST]" +
			fieldsSyntax,
		Summary:    "Returns the values of hash fields and sets or removes their time to live.",
		Complexity: oneAField, Handler: hgetexCommand},
	{Name: "hsetex", Kind: Write, Arity: -6, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "8.0.0",
		Syntax: "key [NX | XX] [FNX | FXX] [EX seconds:integer | PX milliseconds:integer | EXAT " +
			"unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | KEEPTTL] " +
			"FIELDS numfields:integer field value [field value ...]",
		Summary: "Sets all given fields of a hash or none, optionally with a condition and a " +
			"time to live.",
		Complexity: oneAField, Handler: hsetexCommand},
	{Name: "hgetdel", Kind: Write, Arity: -5, Flags: Fast,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyDelete), Group: "hash", Since: "8.0.0",
		Syntax:     "key" + fieldsSyntax,
		Summary:    "Returns the values of hash fields and deletes the fields.",
		Complexity: oneAField, Handler: hgetdelCommand},
}

// parseFields parses FIELDS, a number, and as many names. notNumber is the command's error for an
// invalid number.
func parseFields(args [][]byte, notNumber error) (names [][]byte, err error) {
	if !isWord(args[0], "FIELDS") {
		return nil, errFieldsWord
	}
	if len(args) < 2 {
		return nil, notNumber
	}
	n, ok := ParseInt(args[1])
	if !ok || n < 1 {
		return nil, notNumber
	}
	if n != int64(len(args)-2) {
		return nil, errFieldsMatch
	}
	return args[2:], nil
}

// deadlineWork is the cost of changing the deadline of a field of a large hash, or of removing the
// field, besides the lookup, in units of Env.Work.
const deadlineWork = 36

// spendDeadlines adds the work of changing the deadlines of fields of h, whose names are every
// step'th of names.
func (x *Call) spendDeadlines(h *keyspace.Hash, names [][]byte, step int) {
	if x.Level >= LevelSecond && !h.Compact() {
		x.Spend((deadlineWork + 3*deep(h.Len())) * (len(names) / step))
		// hashed once more than the value of a removed field
		x.spendBytes(valueBytes(h, names, step))
	}
}

// spendOld adds the work of hashing the values of fields that h loses or that get another deadline.
// Their names are every step'th of names.
func (x *Call) spendOld(h *keyspace.Hash, names [][]byte, step int) {
	if x.Level >= LevelSecond && !h.Compact() {
		x.spendBytes(valueBytes(h, names, step))
	}
}

// valueBytes returns the size of the values of fields of h, whose names are every step'th of names.
func valueBytes(h *keyspace.Hash, names [][]byte, step int) (size int) {
	for i := 0; i < len(names); i += step {
		value, _ := h.Get(names[i])
		size += len(value)
	}
	return size
}

// hashEdit returns the change of fields of h, the hash at x.Args[1].
func (x *Call) hashEdit(h *keyspace.Hash) elementEdit[*keyspace.Hash] {
	return elementEdit[*keyspace.Hash]{x: x, c: h, open: editHash, class: NotifyHash}
}

func hexpireCommand(x *Call) error { return x.expireFields(ttlEX) }

func hpexpireCommand(x *Call) error { return x.expireFields(ttlPX) }

func hexpireatCommand(x *Call) error { return x.expireFields(ttlEXAT) }

func hpexpireatCommand(x *Call) error { return x.expireFields(ttlPXAT) }

// expireFields runs the HEXPIRE family.
func (x *Call) expireFields(unit ttlUnit) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	deadlineMs, err := x.parseElementDeadline(unit, x.Args[2])
	if err != nil {
		return err
	}
	rest := x.Args[3:]
	var o expireOptions
	if o.parse(rest[:1]) == nil { // one condition at most
		rest = rest[1:]
	}
	names, err := parseFields(rest, errFieldsNumber)
	if err != nil {
		return err
	}
	x.spendDeadlines(h, names, 1)
	x.spendOld(h, names, 1)
	x.Expect(len(names), 0)
	edit := x.hashEdit(h)
	edit.expireEach(names, &o, deadlineMs, "hexpire", "hdel")
	return nil
}

func hpersistCommand(x *Call) error {
	h, names, err := x.hashFields()
	if err != nil {
		return err
	}
	x.spendDeadlines(h, names, 1)
	x.spendOld(h, names, 1)
	x.Expect(len(names), 0)
	edit := x.hashEdit(h)
	edit.persistEach(names, "hpersist")
	return nil
}

// hashFields parses the arguments of a command that takes only a key and fields.
func (x *Call) hashFields() (h *keyspace.Hash, names [][]byte, err error) {
	if h, err = findHash(x, x.Args[1]); err != nil {
		return nil, nil, err
	}
	names, err = parseFields(x.Args[2:], errFieldsCount)
	return h, names, err
}

func httlCommand(x *Call) error { return x.replyFieldTTLs(x.remainingSeconds) }

func hpttlCommand(x *Call) error { return x.replyFieldTTLs(x.remainingMs) }

func hexpiretimeCommand(x *Call) error { return x.replyFieldTTLs(x.expirySeconds) }

func hpexpiretimeCommand(x *Call) error { return x.replyFieldTTLs(x.expiryMs) }

// replyFieldTTLs replies with show of each field's deadline.
func (x *Call) replyFieldTTLs(show func(deadlineMs int64) int64) error {
	h, names, err := x.hashFields()
	if err != nil {
		return err
	}
	x.replyTTLs(h, names, show)
	return nil
}

// expectFields refuses a command that removes or changes fields of h if their values do not fit
// into its reply.
func (x *Call) expectFields(h *keyspace.Hash, names [][]byte) {
	if x.Level < LevelSecond {
		return
	}
	x.spendDeadlines(h, names, 1)
	x.spendOld(h, names, 1)
	x.spendLookups(h.Len())
	x.Expect(len(names), valueBytes(h, names, 1))
}
