// What maxmemory refuses while the data exceeds it: commands that may use more memory, unless the
// call only replaces what exists. Redis refuses those calls too. But they renew and release locks,
// and who holds one must be able to do both.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// NeedsMemory reports whether maxmemory refuses the call x of spec, and charges for finding out.
func (x *Call) NeedsMemory(spec *Spec) bool {
	switch {
	case !x.Tx.OOM:
		return false
	case spec.Script != nil:
		return x.declaresGrowth(spec.Script(x.Args))
	case spec.Grows != nil:
		x.Spec = spec
		return spec.Grows(x)
	}
	return spec.Has(DenyOOM)
}

// growsKey is for calls that change the number in a key, or nothing if the key exists.
func growsKey(x *Call) bool { return x.find(x.Args[1]) == nil }

// growsByValue is for calls that set the key to the first argument after it.
func growsByValue(x *Call) bool { return x.longer(x.Args[2]) }

// growsByLast is for SETEX and PSETEX.
func growsByLast(x *Call) bool { return x.longer(x.Args[3]) }

// longer reports whether the key holds no string, or one that is shorter than value.
func (x *Call) longer(value []byte) bool {
	e := x.find(x.Args[1])
	return e == nil || e.Kind() != keyspace.KindString || len(value) > len(e.Bytes())
}

// growsField is for calls that change the number in a field, or nothing if the field exists.
func growsField(x *Call) bool {
	h, _ := findHash(x, x.Args[1]) // no fields if the key holds another type
	_, exists := h.Get(x.Args[2])
	return !exists
}

// growsByFields is for calls that set fields to values.
func growsByFields(x *Call) bool {
	h, _ := findHash(x, x.Args[1])
	x.Spend(readArg * len(x.Args))
	for i := 2; i+1 < len(x.Args); i += 2 {
		if old, exists := h.Get(x.Args[i]); !exists || len(x.Args[i+1]) > len(old) {
			return true
		}
	}
	return false
}

// growsNothing is for commands that set deadlines of what exists, as EXPIRE does.
func growsNothing(*Call) bool { return false }

// growsMember is for ZINCRBY.
func growsMember(x *Call) bool {
	z, _ := findZSet(x, x.Args[1])
	_, exists := z.Score(x.Args[3])
	return !exists
}

// growsMembers is for ZADD.
func growsMembers(x *Call) bool {
	z, _ := findZSet(x, x.Args[1])
	x.Spend(readArg * len(x.Args))
	var a zaddition
	if a.parse(x.Args[2:]) != nil {
		return true
	}
	for i := 1; i < len(a.pairs); i += 2 {
		if _, exists := z.Score(a.pairs[i]); !exists {
			return true
		}
	}
	return false
}

// declaresGrowth: a script or function that declares flags says with them whether it needs memory.
// One that declares none ends at its first command that does.
func (x *Call) declaresGrowth(s Script) bool {
	flags, declared := x.Scripts.Flags(x, s)
	return declared && flags&(NoWrites|AllowOOM) == 0
}
