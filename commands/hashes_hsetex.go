// HSETEX, which sets fields of a hash together with their deadline.

package commands

import "github.com/coordd/coordd/internal/resp"

// hsetexOptions are the options and fields of HSETEX.
type hsetexOptions struct {
	key  setCondition // setAlways; setNX or setXX for the key, of Valkey 9.1
	when setCondition // … for all fields
	lifetime
	pairs [][]byte // field, value, field, value …
}

// parse checks the options in Redis's order: the time where it stands, and nothing after FIELDS.
func (o *hsetexOptions) parse(x *Call) (err error) {
	args := x.Args
	for i := 2; i < len(args); i++ {
		switch {
		case isWord(args[i], "FIELDS"):
			return o.parsePairs(x, args[i+1:])
		case isLifetime(args[i]):
			if i, err = o.lifetime.parse(x, i); err != nil {
				return err
			}
		case isWord(args[i], "FXX") || isWord(args[i], "FNX"):
			if o.when != setAlways {
				return errOneCondition
			}
			o.when = setXX
			if isWord(args[i], "FNX") {
				o.when = setNX
			}
		case x.Level >= LevelSecond && (isWord(args[i], "NX") || isWord(args[i], "XX")):
			if o.key != setAlways {
				return errOneKeyCondition
			}
			o.key = setXX
			if isWord(args[i], "NX") {
				o.key = setNX
			}
		default:
			return Errorf("ERR unknown argument: %s", resp.CText(args[i]))
		}
	}
	return x.Spec.ArityError()
}

// parsePairs parses what follows FIELDS: a number, and as many fields with their values.
func (o *hsetexOptions) parsePairs(x *Call, args [][]byte) error {
	if len(args) < 3 {
		return x.Spec.ArityError()
	}
	n, ok := ParseInt(args[0])
	if !ok || n < 1 || n > maxFields {
		return errFieldsInvalid
	}
	o.pairs = args[1:]
	if int64(len(o.pairs)) != 2*n {
		return x.Spec.ArityError()
	}
	return nil
}

// maxFields is the largest number of fields that HSETEX parses as a count.
const maxFields = 1<<31 - 1

func hsetexCommand(x *Call) error {
	var o hsetexOptions
	if err := o.parse(x); err != nil {
		return err
	}
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	if o.key != setAlways && (h.Len() > 0) != (o.key == setXX) {
		x.Out.Int(0)
		return nil
	}
	for i := 0; o.when != setAlways && i < len(o.pairs); i += 2 {
		if _, exists := h.Get(o.pairs[i]); exists != (o.when == setXX) {
			x.Out.Int(0)
			return nil
		}
	}
	x.spendOld(h, o.pairs, 2)
	if o.over(x) {
		x.setDeadFields(&o)
		x.Out.Int(1)
		return nil
	}
	if o.unit != ttlNone {
		x.spendDeadlines(h, o.pairs, 2)
	}
	e, h := editHash(x, x.Args[1])
	for i := 0; i < len(o.pairs); i += 2 {
		name, value := o.pairs[i], o.pairs[i+1]
		spendOld(x, h, name)
		if o.keep {
			h.Update(name, value)
			continue
		}
		h.Set(name, value)
		if o.unit != ttlNone {
			h.SetDeadline(x.Keyspace, name, o.deadlineMs)
		}
	}
	x.changed(e, NotifyHash, "hset")
	if o.unit != ttlNone {
		x.notify(NotifyHash, "hexpire", x.Args[1])
	}
	x.Out.Int(1)
	return nil
}

// setDeadFields runs HSETEX with a time that is past: the fields are deleted. As Redis does, it
// notifies that they were set, then deleted.
func (x *Call) setDeadFields(o *hsetexOptions) {
	key := x.Args[1]
	h, _ := findHash(x, key)
	edit := x.hashEdit(h)
	if x.find(key) == nil {
		x.notify(NotifyNew, "new", key)
	}
	x.notify(NotifyHash, "hset", key)
	for i := 0; i < len(o.pairs); i += 2 {
		if _, exists := edit.c.Get(o.pairs[i]); exists {
			edit.remove(o.pairs[i])
		}
	}
	if edit.e != nil {
		edit.finish("hdel")
		return
	}
	x.notify(NotifyHash, "hdel", key)
	if x.find(key) == nil {
		x.DB().Lacks(key)
		x.notify(NotifyGeneric, "del", key)
	}
}
