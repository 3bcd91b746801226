// OBJECT. Encodings are Redis's names for the forms that values have here. Uses of a key are not
// tracked, since reads leave no trace in the log.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of OBJECT.
const (
	ErrNoFreq Error = "ERR An LFU maxmemory policy is not selected, access frequency not " +
		"tracked. Please note that when " +
		"switching between policies at runtime LRU and LFU data will take some time to adjust."
	ErrNoIdleTime Error = "ERR idle time is not tracked"
)

// object runs show on the entry of the subcommand's key, or replies null if there is none.
func (x *Call) object(show func(e *keyspace.Entry) error) error {
	e := x.find(x.Args[2])
	if e == nil {
		x.Out.Null()
		return nil
	}
	return show(e)
}

func objectEncodingCommand(x *Call) error {
	return x.object(func(e *keyspace.Entry) error {
		x.Out.BulkString(Encoding(e))
		return nil
	})
}

// embeddedLen is the length up to which Redis stores a string together with its header.
const embeddedLen = 44

// Encoding returns Redis's name for the form of a value. For a string it is the one that Redis
// chooses when a string is set.
func Encoding(e *keyspace.Entry) string {
	switch v := e.Collection().(type) {
	case *keyspace.Hash: //hash: its form alone
		if v.Compact() {
			return "listpack"
		}
		return "hashtable"
	case *keyspace.ZSet:
		if v.Compact() {
			return "listpack"
		}
		return "skiplist"
	case *keyspace.List:
		return "quicklist"
	case *keyspace.Set: //set: its form alone
		if v.Integers() {
			return "intset"
		}
		return "hashtable"
	case *keyspace.Stream:
		return "stream"
	}
	if _, ok := ParseInt(e.Bytes()); ok {
		return "int"
	}
	if len(e.Bytes()) <= embeddedLen {
		return "embstr"
	}
	return "raw"
}

func objectRefcountCommand(x *Call) error {
	return x.object(func(e *keyspace.Entry) error {
		x.Out.Int(references(e))
		return nil
	})
}

// Redis shares the integers below sharedIntegers between all keys, and reports sharedCount as their
// number of references.
const (
	sharedIntegers = 10000
	sharedCount    = math.MaxInt32
)

// references returns the reference count that Redis would report. Like the encoding it depends on
// the value alone.
func references(e *keyspace.Entry) int64 {
	if n, ok := ParseInt(e.Bytes()); ok && n >= 0 && n < sharedIntegers {
		return sharedCount
	}
	return 1
}

func objectFreqCommand(x *Call) error {
	return x.object(func(*keyspace.Entry) error { return ErrNoFreq })
}

// objectIdletimeCommand answers what is never too much: a read leaves no trace, so any key may have
// been used just now.
func objectIdletimeCommand(x *Call) error {
	return x.object(func(*keyspace.Entry) error {
		if x.Level < LevelSecond {
			return ErrNoIdleTime
		}
		x.Out.Int(0)
		return nil
	})
}

func objectHelpCommand(x *Call) error {
	idle := "    0: when keys were used last is not tracked."
	if x.Level < LevelSecond {
		idle = "    An error: when keys were used last is not tracked."
	}
	lines := []string{
		"OBJECT <subcommand> [<argument>], where the subcommand is one of:",
		"ENCODING <key>",
		"    The form in which the key's value is kept.",
		"FREQ <key>",
		"    An error: how often keys are used is not tracked.",
		"HELP",
		"    These lines.",
		"IDLETIME <key>",
		idle,
		"REFCOUNT <key>",
		"    How many references the key's value has: one, or those of a small integer.",
	}
	x.Out.Array(len(lines))
	for _, line := range lines {
		x.Out.Status(line)
	}
	return nil
}
