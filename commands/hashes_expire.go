// TTLs of hash fields: HEXPIRE, HTTL, HPERSIST and their kin, of Redis 7.4. As with keys, deadlines
// are compared and kept in ms of the cluster clock.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Errors of the commands on field TTLs.
const (
	errFieldsWord Error = "ERR Mandatory argument FIELDS is missing or not at the right " +
		"position"
	errFieldsCount Error = "ERR Number of fields must be a positive integer"
	// of the HEXPIRE family alone
	errFieldsNumber   Error = "ERR Parameter `numFields` should be greater than 0"
	errFieldsMatch    Error = "ERR The `numfields` parameter must match the number of arguments"
	errFieldsInvalid  Error = "ERR invalid number of fields" // of HSETEX alone
	errNegativeExpire Error = "ERR invalid expire time, must be >= 0"
	errNoExpire       Error = "ERR missing expire time"
	errOneExpire      Error = "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be " +
		"specified"
	errOneCondition    Error = "ERR Only one of FXX or FNX arguments can be specified"
	errOneKeyCondition Error = "ERR Only one of NX or XX arguments can be specified"
)

// Replies of the commands on field TTLs.
const (
	fieldMissing = -2 // no such field or key
	fieldStays   = -1 // no deadline
	fieldRefused = 0  // condition not met
	fieldDone    = 1
	fieldDeleted = 2 // the given time is past
)

// maxFieldTTLMs is Redis's bound on TTLs and deadlines of fields, ms: Redis keeps them in 46 bits.
const maxFieldTTLMs = 1<<46 - 1

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

// parseFieldDeadline parses the expire time of a field and returns its deadline, which may be past.
func (x *Call) parseFieldDeadline(unit ttlUnit, arg []byte) (deadlineMs int64, err error) {
	n, ok := ParseInt(arg)
	if !ok {
		return 0, ErrNotInteger
	}
	if n < 0 {
		return 0, errNegativeExpire
	}
	absolute := unit == ttlEXAT || unit == ttlPXAT
	most := int64(maxFieldTTLMs)
	if unit == ttlEX || unit == ttlEXAT {
		if n > most/1000 {
			return 0, InvalidExpire(x.Spec.FullName())
		}
		n *= 1000
	}
	if !absolute {
		most -= x.WallMs()
	}
	if n > most {
		return 0, InvalidExpire(x.Spec.FullName())
	}
	return x.deadline(n, absolute), nil
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

// hashEdit is a change of fields by a command that may turn out to change none. It opens the hash
// at the first real change.
type hashEdit struct {
	x *Call
	h *keyspace.Hash
	e *keyspace.Entry // nil: nothing has changed
}

// begin opens the hash for changes.
func (c *hashEdit) begin() {
	if c.e == nil {
		c.e, c.h = editHash(c.x, c.x.Args[1])
	}
}

// remove deletes an existing field.
func (c *hashEdit) remove(name []byte) {
	spendOld(c.x, c.h, name)
	c.begin()
	c.h.Delete(name)
}

// expire sets the deadline of an existing field, 0 for none. If the deadline is past it deletes the
// field and returns true.
func (c *hashEdit) expire(name []byte, deadlineMs int64) (deleted bool) {
	if deadlineMs != 0 && c.x.past(deadlineMs) {
		c.remove(name)
		return true
	}
	c.begin()
	c.h.SetDeadline(c.x.Keyspace, name, deadlineMs)
	return false
}

// finish ends the change, if there was one, and notifies event.
func (c *hashEdit) finish(event string) {
	if c.e != nil {
		c.x.changed(c.e, NotifyHash, event)
	}
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
	deadlineMs, err := x.parseFieldDeadline(unit, x.Args[2])
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
	edit := hashEdit{x: x, h: h}
	event := "hexpire"
	x.Out.Array(len(names))
	for _, name := range names {
		oldMs, exists := edit.h.Deadline(name)
		switch {
		case !exists:
			x.Out.Int(fieldMissing)
		case !o.allow(oldMs, deadlineMs):
			x.Out.Int(fieldRefused)
		case edit.expire(name, deadlineMs):
			event = "hdel"
			x.Out.Int(fieldDeleted)
		default:
			x.Out.Int(fieldDone)
		}
	}
	edit.finish(event)
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
	edit := hashEdit{x: x, h: h}
	x.Out.Array(len(names))
	for _, name := range names {
		switch deadlineMs, exists := edit.h.Deadline(name); {
		case !exists:
			x.Out.Int(fieldMissing)
		case deadlineMs == 0:
			x.Out.Int(fieldStays)
		default:
			edit.expire(name, 0)
			x.Out.Int(fieldDone)
		}
	}
	edit.finish("hpersist")
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

func httlCommand(x *Call) error {
	return x.replyFieldTTLs(func(deadlineMs int64) int64 {
		return ceilSeconds(x.remainingMs(deadlineMs))
	})
}

func hpttlCommand(x *Call) error { return x.replyFieldTTLs(x.remainingMs) }

func hexpiretimeCommand(x *Call) error {
	// A deadline given as wall time may be shown 1 ms late (docs/compatibility.md). That must not
	// become a second.
	return x.replyFieldTTLs(func(deadlineMs int64) int64 {
		return ceilSeconds(max(x.expiryMs(deadlineMs)-1, 0))
	})
}

func hpexpiretimeCommand(x *Call) error { return x.replyFieldTTLs(x.expiryMs) }

// ceilSeconds converts a time that is not negative to seconds, rounded up. Redis rounds the TTLs of
// fields so, but not those of keys.
func ceilSeconds(ms int64) int64 { return (ms + 999) / 1000 }

// replyFieldTTLs replies with show of each field's deadline.
func (x *Call) replyFieldTTLs(show func(deadlineMs int64) int64) error {
	h, names, err := x.hashFields()
	if err != nil {
		return err
	}
	x.Out.Array(len(names))
	for _, name := range names {
		switch deadlineMs, exists := h.Deadline(name); {
		case !exists:
			x.Out.Int(fieldMissing)
		case deadlineMs == 0:
			x.Out.Int(fieldStays)
		default:
			x.Out.Int(show(deadlineMs))
		}
	}
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
