// GET, MGET, STRLEN and GETRANGE; GETDEL and GETEX, which also change the key.

package commands

func getCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.Out.Null()
		return nil
	}
	x.Out.Bulk(e.Bytes())
	return nil
}

func mgetCommand(x *Call) error {
	x.Out.Array(len(x.Args) - 1)
	for _, key := range x.Args[1:] {
		if e, err := x.findString(key); e != nil && err == nil {
			x.Out.Bulk(e.Bytes())
		} else {
			x.Out.Null() // as on Redis, also for another type
		}
	}
	return nil
}

func strlenCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.Out.Int(0)
		return nil
	}
	x.Out.Int(int64(len(e.Bytes())))
	return nil
}

func getrangeCommand(x *Call) error {
	start, ok := ParseInt(x.Args[2])
	end, ok2 := ParseInt(x.Args[3])
	if !ok || !ok2 {
		return ErrNotInteger
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	var b []byte
	if e != nil {
		b = e.Bytes()
	}
	x.Out.Bulk(part(b, start, end))
	return nil
}

// part returns b from start to end, inclusive and counted from the end of b if negative.
func part(b []byte, start, end int64) []byte {
	if start < 0 && end < 0 && start > end {
		return nil
	}
	start, end, ok := clip(int64(len(b)), start, end)
	if !ok {
		return nil
	}
	return b[start : end+1]
}

// clip converts a range of n elements, ends inclusive and counted from the end if negative, into
// positions from 0 to n-1. It returns false if the range is empty. As on Redis, a range before the
// elements is the first of them, unless the caller checks.
func clip(n, start, end int64) (from, to int64, ok bool) {
	if start < 0 {
		start = max(start+n, 0)
	}
	if end < 0 {
		end = max(end+n, 0)
	}
	end = min(end, n-1)
	return start, end, start <= end
}

func getdelCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.Out.Null()
		return nil
	}
	x.Out.Bulk(e.Bytes()) // first: a refused reply must take nothing
	x.DB().Delete(x.Args[1])
	x.notify(NotifyGeneric, "del", x.Args[1])
	return nil
}

func getexCommand(x *Call) error {
	unit, ttl, persist := ttlNone, []byte(nil), false
	for i := 2; i < len(x.Args); i++ {
		u := parseTTLUnit(x.Args[i])
		switch {
		case u != ttlNone && !persist && (unit == ttlNone || unit == u) && i+1 < len(x.Args):
			i++
			unit, ttl = u, x.Args[i]
		case isWord(x.Args[i], "PERSIST") && unit == ttlNone:
			persist = true
		default:
			return ErrSyntax
		}
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.Out.Null()
		return nil
	}
	var deadlineMs int64
	if unit != ttlNone {
		if deadlineMs, err = x.parseDeadline(unit, ttl); err != nil {
			return err
		}
	}
	x.Out.Bulk(e.Bytes())
	if unit != ttlNone || (persist && e.Deadline() != 0) {
		x.setDeadline(x.Args[1], deadlineMs)
	}
	return nil
}

// deleteKey deletes a key if it exists, and notifies.
func (x *Call) deleteKey(key []byte) {
	if x.find(key) == nil {
		x.DB().Lacks(key)
		return
	}
	x.DB().Delete(key)
	x.notify(NotifyGeneric, "del", key)
}

// setDeadline sets the deadline of an existing key, 0 for none, or deletes the key if the deadline
// is past, and notifies.
func (x *Call) setDeadline(key []byte, deadlineMs int64) {
	db := x.DB()
	switch {
	case deadlineMs == 0:
		db.SetDeadline(db.Edit(key), 0)
		x.notify(NotifyGeneric, "persist", key)
	case x.past(deadlineMs):
		db.Delete(key)
		x.notify(NotifyGeneric, "del", key)
	default:
		db.SetDeadline(db.Edit(key), deadlineMs)
		x.notify(NotifyGeneric, "expire", key)
	}
}
