// The Specs of the commands on hashes, and the commands of Redis 7.2 and before.

package commands

import (
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

// errInfiniteIncrement is HINCRBYFLOAT's error for an infinite increment.
const errInfiniteIncrement Error = "ERR value is NaN or Infinity"

var hashSpecs = []Spec{
	{Name: "hset", Kind: Write, Acts: actFields, Arity: -4, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "2.0.0",
		Syntax: "key field value [field value ...]",
		Summary: "Sets fields of a hash and returns how many are new. Creates the hash if it " +
			"doesn't exist.",
		Complexity: "O(1) a field", Grows: growsByFields, Handler: hset},
	{Name: "hsetnx", Kind: Write, Acts: actFields, Arity: 4, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: "hash", Since: "2.0.0",
		Syntax:     "key field value",
		Summary:    "Sets a field of a hash only if the field doesn't exist.",
		Complexity: "O(1)", Grows: growsField, Handler: hsetnx},
	{Name: "hmset", Kind: Write, Acts: actFields, Arity: -4, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyUpdate), Group: "hash", Since: "2.0.0",
		Syntax:     "key field value [field value ...]",
		Summary:    "Sets fields of a hash. An older form of HSET that replies OK.",
		Complexity: "O(1) a field", Grows: growsByFields, Handler: hmset},
	{Name: "hget", Kind: Read, Arity: 3, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess),
		Acts:  actField,
		Group: "hash", Since: "2.0.0",
		Syntax:     "key field",
		Summary:    "Returns the value of a hash field.",
		Complexity: "O(1)", Handler: hget},
	{Name: "hmget", Kind: Read, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRO | KeyAccess),
		Acts:  actLook,
		Group: "hash", Since: "2.0.0",
		Syntax:     "key field [field ...]",
		Summary:    "Returns the values of several hash fields.",
		Complexity: "O(1) a field", Handler: hmget},
	{Name: "hgetall", Kind: Read, Acts: actLook, Arity: 2, Flags: WholeValues,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "hash", Since: "2.0.0",
		Syntax:     "key",
		Summary:    "Returns all fields and values of a hash.",
		Complexity: "O(n) in the fields of the hash", Handler: hgetall},
	{Name: "hkeys", Kind: Read, Arity: 2, Flags: WholeValues,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "hash", Since: "2.0.0",
		Syntax:     "key",
		Summary:    "Returns the field names of a hash.",
		Complexity: "O(n) in the fields of the hash", Handler: hkeys},
	{Name: "hvals", Kind: Read, Arity: 2, Flags: WholeValues,
		Keys: collectionKey.does(KeyRO | KeyAccess), Group: "hash", Since: "2.0.0",
		Syntax:     "key",
		Summary:    "Returns the values of a hash.",
		Complexity: "O(n) in the fields of the hash", Handler: hvals},
	{Name: "hdel", Kind: Write, Arity: -3, Flags: Fast, Keys: collectionKey.does(KeyRW | KeyDelete),
		Acts:  actDrop,
		Group: "hash", Since: "2.0.0",
		Syntax:     "key field [field ...]",
		Summary:    "Deletes fields of a hash. Deletes the hash with its last field.",
		Complexity: "O(1) a field", Handler: hdel},
	{Name: "hexists", Kind: Read, Arity: 3, Flags: Fast, Keys: collectionKey.does(KeyRO),
		Acts:  actField,
		Group: "hash", Since: "2.0.0",
		Syntax:     "key field",
		Summary:    "Reports whether a field of a hash exists.",
		Complexity: "O(1)", Handler: hexists},
	{Name: "hlen", Kind: Read, Arity: 2, Flags: Fast, Keys: collectionKey.does(KeyRO),
		Group: "hash", Since: "2.0.0",
		Syntax:     "key",
		Summary:    "Returns the number of fields of a hash.",
		Complexity: "O(1)", Handler: hlen},
	{Name: "hstrlen", Kind: Read, Arity: 3, Flags: Fast, Keys: collectionKey.does(KeyRO),
		Group: "hash", Since: "3.2.0",
		Syntax:     "key field",
		Summary:    "Returns the length in bytes of the value of a hash field.",
		Complexity: "O(1)", Handler: hstrlen},
	{Name: "hincrby", Kind: Write, Acts: actEnter, Arity: 4, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "hash", Since: "2.0.0",
		Syntax:     "key field increment:integer",
		Summary:    "Increments the integer value of a hash field. A missing field counts as 0.",
		Complexity: "O(1)", Grows: growsField, Handler: hincrby},
	{Name: "hincrbyfloat", Kind: Write, Arity: 4, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "hash", Since: "2.6.0",
		Syntax: "key field increment:double",
		Summary: "Increments the floating-point value of a hash field. A missing field counts " +
			"as 0.",
		Complexity: "O(1)", Handler: hincrbyfloat},
	{Name: "hrandfield", Kind: Read, Arity: -2, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "hash", Since: "6.2.0",
		Syntax:     "key [count:integer [WITHVALUES]]",
		Summary:    "Returns random fields of a hash.",
		Complexity: "O(N) in the fields picked", Handler: hrandfield},
	{Name: "hscan", Kind: Read, Arity: -3, Keys: collectionKey.does(KeyRO | KeyAccess),
		Group: "hash", Since: "2.8.0",
		Syntax:     "key cursor:integer [MATCH pattern] [COUNT count:integer] [NOVALUES]",
		Summary:    "Iterates over the fields of a hash.",
		Complexity: "O(count) a step, O(n) for all the fields", Handler: hscan},
}

// setFields sets the fields and values that follow the key and returns the number of new fields.
func setFields(x *Call) (created int64, err error) {
	if len(x.Args)%2 != 0 {
		return 0, x.Spec.ArityError()
	}
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return 0, err
	}
	x.spendOld(h, x.Args[2:], 2)
	e, h := editHash(x, x.Args[1])
	for i := 2; i < len(x.Args); i += 2 {
		spendOld(x, h, x.Args[i])
		if h.Set(x.Args[i], x.Args[i+1]) {
			created++
		}
	}
	x.changed(e, NotifyHash, "hset")
	return created, nil
}

// spendOld adds the work of hashing the value that a field loses.
func spendOld(x *Call, h *keyspace.Hash, name []byte) {
	if x.Tx.Script && x.Level < LevelSecond {
		// from there on Call.spendOld did so, for all fields and earlier
		old, _ := h.Get(name)
		x.spendBytes(len(old))
	}
}

func hset(x *Call) error {
	created, err := setFields(x)
	if err != nil {
		return err
	}
	x.Out.Int(created)
	return nil
}

func hmset(x *Call) error {
	if _, err := setFields(x); err != nil {
		return err
	}
	x.Out.Status("OK")
	return nil
}

func hsetnx(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	if _, ok := h.Get(x.Args[2]); ok {
		x.Out.Int(0)
		return nil
	}
	updateField(x, x.Args[3], "hset")
	x.Out.Int(1)
	return nil
}

// updateField sets the field x.Args[2], keeps its deadline, and notifies event. The key's type was
// checked.
func updateField(x *Call, value []byte, event string) {
	e, h := editHash(x, x.Args[1])
	h.Update(x.Args[2], value)
	x.changed(e, NotifyHash, event)
}

func hget(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	replyField(x, h, x.Args[2])
	return nil
}

func replyField(x *Call, h *keyspace.Hash, name []byte) {
	if value, ok := h.Get(name); ok {
		x.Out.Bulk(value)
		return
	}
	x.Out.Null()
}

func hmget(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Array(len(x.Args) - 2)
	for _, name := range x.Args[2:] {
		replyField(x, h, name)
	}
	return nil
}

func hgetall(x *Call) error {
	h, err := walkHash(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Map(h.Len())
	h.Each(func(name string, value []byte) bool {
		x.walked()
		x.Out.BulkString(name)
		x.Out.Bulk(value)
		return true
	})
	return nil
}

func hkeys(x *Call) error {
	h, err := walkHash(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Array(h.Len())
	h.Each(func(name string, _ []byte) bool {
		x.walked()
		x.Out.BulkString(name)
		return true
	})
	return nil
}

func hvals(x *Call) error {
	h, err := walkHash(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Array(h.Len())
	h.Each(func(_ string, value []byte) bool {
		x.walked()
		x.Out.Bulk(value)
		return true
	})
	return nil
}

func hdel(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	x.spendLookups(h.Len()) // found, and removed
	x.spendOld(h, x.Args[2:], 1)
	if h.Volatile() > 0 {
		x.spendDeadlines(h, x.Args[2:], 1)
	}
	edit := x.hashEdit(h)
	var removed int64
	for _, name := range x.Args[2:] {
		if _, exists := edit.c.Get(name); exists {
			edit.remove(name)
			removed++
		}
	}
	edit.finish("hdel")
	x.Out.Int(removed)
	return nil
}

func hexists(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	var n int64
	if _, ok := h.Get(x.Args[2]); ok {
		n = 1
	}
	x.Out.Int(n)
	return nil
}

func hlen(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Int(int64(h.Len()))
	return nil
}

func hstrlen(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	value, _ := h.Get(x.Args[2])
	x.Out.Int(int64(len(value)))
	return nil
}

func hincrby(x *Call) error {
	by, ok := ParseInt(x.Args[3])
	if !ok {
		return ErrNotInteger
	}
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	var n int64
	if value, exists := h.Get(x.Args[2]); exists {
		if n, ok = ParseInt(value); !ok {
			return ErrHashNotInteger
		}
	}
	sum := n + by
	if (by > 0 && sum < n) || (by < 0 && sum > n) {
		return ErrOverflow
	}
	var buf [20]byte
	updateField(x, strconv.AppendInt(buf[:0], sum, 10), "hincrby")
	x.Out.Int(sum)
	return nil
}

func hincrbyfloat(x *Call) error {
	x.spendDigits(x.Args[3])
	by, ok := ParseExtended(x.Args[3])
	if !ok {
		return ErrNotFloat
	}
	if by.IsInf() {
		return errInfiniteIncrement
	}
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	sum := by
	if value, exists := h.Get(x.Args[2]); exists {
		x.spendDigits(value)
		n, ok := ParseExtended(value)
		if !ok {
			return ErrHashNotFloat
		}
		if sum, ok = AddExtended(n, by); !ok {
			return ErrNaN
		}
	}
	text := []byte(FormatExtended(sum))
	x.spendDigits(text)
	updateField(x, text, "hincrbyfloat")
	x.Out.Bulk(text)
	return nil
}

// hrandfield returns one random field, or count of them: distinct ones, or with repetition if count
// is negative.
func hrandfield(x *Call) error {
	o, err := x.parseRandom("WITHVALUES")
	if err != nil {
		return err
	}
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	if dead := h.Dead(); dead > 0 {
		x.Spend(h.Len() + dead) // Pick skips them
	}
	if !o.counted {
		if h.Len() == 0 {
			x.Out.Null()
			return nil
		}
		name, _ := h.Pick()(x.draws().below(h.Len()))
		x.Out.BulkString(name)
		return nil
	}
	at := h.Pick()
	if err := x.chargePicks(o.count, h.Len()); err != nil {
		return err
	}
	if x.Level >= LevelSecond && h.Len() > 0 {
		x.Spend(picks(o.count, h.Len()) * 2 * deep(h.Len())) // each is searched by its position
	}
	positions, err := pickFields(x, h.Len(), o, at)
	if err != nil {
		return err
	}
	size := len(positions)
	if o.pairs && x.Tx.Proto < 3 {
		size *= 2
	}
	x.Out.Array(size)
	for _, i := range positions {
		name, value := at(i)
		if o.pairs && x.Tx.Proto == 3 {
			x.Out.Array(2)
		}
		x.Out.BulkString(name)
		if o.pairs {
			x.Out.Bulk(value)
		}
	}
	return nil
}

// pickFields picks positions of n fields at random as HRANDFIELD counts them. Asked for all fields,
// it keeps their order.
func pickFields(x *Call, n int, o randomOptions,
	at func(i int) (name string, value []byte)) ([]int, error) {
	switch {
	case n == 0:
		return nil, nil
	case o.count < 0:
		return x.draws().repeated(n, -o.count, func(i int) int {
			name, value := at(i)
			return len(name) + len(value)
		})
	case o.count < int64(n):
		return x.draws().distinct(n, int(o.count)), nil
	}
	positions := make([]int, n)
	for i := range positions {
		positions[i] = i
	}
	return positions, nil
}

func hscan(x *Call) error {
	return scanElements(x, findHash, func(h *keyspace.Hash, s *elementScan, cursor uint64) uint64 {
		x.spendDeadElements(h, s.count)
		return h.Scan(cursor, s.count, func(name string, value []byte) {
			if s.matches(name) {
				s.keep(name, value)
			}
		})
	})
}
