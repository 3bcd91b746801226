// The PF family: HyperLogLogs in strings, byte for byte as Redis makes them. A read stores no
// estimate in the string, see docs/adr/0037.

package commands

import (
	"errors"

	"github.com/coordd/coordd/commands/hll"
	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of the PF family.
const (
	errNotHLL Error = "WRONGTYPE Key is not a valid HyperLogLog string value."
	errBadHLL Error = "INVALIDOBJ Corrupted HLL object detected"
)

const hllGroup = "hyperloglog"

var hllSpecs = []Spec{
	{Name: "pfadd", Kind: Write, Arity: -2, Flags: DenyOOM | Fast, Level: LevelSecond,
		Keys: collectionKey.does(KeyRW | KeyInsert), Group: hllGroup, Since: "2.8.9",
		Syntax:     "key [element [element ...]]",
		Summary:    "Adds elements to a HyperLogLog, which is created if the key does not exist.",
		Complexity: "O(1) an element", Handler: pfaddCommand},
	{Name: "pfcount", Kind: Read, Arity: -2, Flags: MayReplicate, Level: LevelSecond,
		Keys:  KeySpec{First: 1, Last: -1, Step: 1}.does(KeyRW | KeyAccess),
		Group: hllGroup, Since: "2.8.9",
		Syntax:     "key [key ...]",
		Summary:    "Estimates how many different elements were added to HyperLogLogs together.",
		Complexity: "O(N) in the keys, with a high constant", Handler: pfcountCommand},
	{Name: "pfmerge", Kind: Write, Arity: -2, Flags: DenyOOM, Level: LevelSecond,
		Keys: KeySpec{First: 1, Last: -1, Step: 1}.does(KeyRW|KeyAccess|KeyInsert,
			KeyRO|KeyAccess),
		Group: hllGroup, Since: "2.8.9",
		Syntax:     "destkey:key sourcekey:key [sourcekey:key ...]",
		Summary:    "Merges HyperLogLogs into one.",
		Complexity: "O(N) in the keys, with a high constant", Handler: pfmergeCommand},
}

// Work in units of Env.Work.
const (
	hllJoinWork = 2048 // reading or counting all registers
	hllRunBytes = 16   // bytes of runs that one unit looks through
)

// findHLL returns the HyperLogLog of a key, nil if the key does not exist.
func (x *Call) findHLL(key []byte) (*keyspace.Entry, []byte, error) {
	e, err := x.findString(key)
	if err != nil || e == nil {
		return nil, nil, err
	}
	b := e.Bytes()
	if hll.Check(b) != nil {
		return nil, nil, errNotHLL
	}
	return e, b, nil
}

// ownHLL returns a copy of the HyperLogLog of a key that may be changed, an empty one if the key
// does not exist.
func (x *Call) ownHLL(key []byte) (e *keyspace.Entry, own []byte, err error) {
	e, b, err := x.findHLL(key)
	switch {
	case err != nil:
		return nil, nil, err
	case e == nil:
		return nil, hll.New(), nil
	}
	x.Spend(len(b) / hllRunBytes)
	return e, append(make([]byte, 0, len(b)+16), b...), nil
}

func hllError(err error) error {
	if errors.Is(err, hll.ErrCorrupt) {
		return errBadHLL
	}
	return err
}

func pfaddCommand(x *Call) error {
	e, b, err := x.ownHLL(x.Args[1])
	if err != nil {
		return err
	}
	changed := e == nil
	for _, element := range x.Args[2:] {
		x.Spend((hll.Runs(b) + len(element)) / hllRunBytes)
		var rose bool
		if b, rose, err = hll.Add(b, element); err != nil {
			return hllError(err)
		}
		changed = changed || rose
	}
	if !changed {
		x.Out.Int(0)
		return nil
	}
	hll.Outdate(b)
	x.replace(e != nil, b, "pfadd")
	x.Out.Int(1)
	return nil
}

// joinHLLs joins the HyperLogLogs of all keys, and reports whether one of them is dense.
func (x *Call) joinHLLs(r *hll.Registers) (dense bool, err error) {
	for _, key := range x.Args[1:] {
		e, b, err := x.findHLL(key)
		switch {
		case err != nil:
			return false, err
		case e == nil:
			continue
		}
		x.Spend(hllJoinWork)
		isDense, err := r.Join(b)
		if err != nil {
			return false, hllError(err)
		}
		dense = dense || isDense
	}
	return dense, nil
}

func pfcountCommand(x *Call) error {
	if len(x.Args) == 2 {
		e, b, err := x.findHLL(x.Args[1])
		if err != nil {
			return err
		}
		if e == nil {
			x.Out.Int(0)
			return nil
		}
		if n, ok := hll.Cached(b); ok {
			x.Out.Int(int64(n))
			return nil
		}
	}
	var r hll.Registers
	if _, err := x.joinHLLs(&r); err != nil {
		return err
	}
	x.Spend(hllJoinWork)
	x.Out.Int(int64(r.Count()))
	return nil
}

func pfmergeCommand(x *Call) error {
	var r hll.Registers
	dense, err := x.joinHLLs(&r)
	if err != nil {
		return err
	}
	e, b, err := x.ownHLL(x.Args[1])
	if err != nil {
		return err
	}
	x.Spend(hllJoinWork)
	if !dense { // each register is looked up in runs that grow up to their limit
		n, runs := r.Filled(), hll.Runs(b)
		if runs <= hll.MaxSparse { // SET can make more runs, which stay until one of them rises
			n = min(n, hll.MaxSparse)
		}
		x.Spend(n * max(min(2*n, hll.MaxSparse), runs) / hllRunBytes)
	}
	if b, err = hll.Merge(b, &r, dense); err != nil {
		return hllError(err)
	}
	hll.Outdate(b)
	x.replace(e != nil, b, "pfadd")
	x.Out.Status("OK")
	return nil
}
