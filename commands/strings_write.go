// APPEND and SETRANGE, and what a write into a string costs.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// maxString bounds the length of a string, Redis's proto-max-bulk-len.
const maxString = 512 << 20

func appendCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	n := len(x.Args[2])
	if e != nil {
		n += len(e.Bytes())
	}
	if n > maxString {
		return ErrTooLong
	}
	if len(x.Args[2]) > 0 {
		// The string may move to a larger buffer. Whether it does differs between nodes: a restored
		// one has other spare room.
		x.spendBytes(n)
	}
	// an empty tail is a change too, as on Redis: WATCH and notifications show it
	x.DB().AppendString(x.Args[1], x.Args[2])
	x.notify(NotifyString, "append", x.Args[1])
	x.Out.Int(int64(n))
	return nil
}

// errOffset is SETRANGE's error for an offset before the string.
const errOffset Error = "ERR offset is out of range"

func setrangeCommand(x *Call) error {
	offset, ok := ParseInt(x.Args[2])
	if !ok {
		return ErrNotInteger
	}
	if offset < 0 {
		return errOffset
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	size := len(stringBytes(e))
	if len(x.Args[3]) > 0 { // else nothing changes, and no key is created
		if offset > maxString-int64(len(x.Args[3])) {
			return ErrTooLong
		}
		if err := x.checkGap(e, int(offset)); err != nil {
			return err
		}
		x.writeAt(e, int(offset), x.Args[3], "setrange")
		size = max(size, int(offset)+len(x.Args[3]))
	}
	x.Out.Int(int64(size))
	return nil
}

// maxGap is how many zero bytes a command may add to a string: an offset of ten digits must not
// take half a gigabyte on every node.
const maxGap = 16 << 20

const errGap Error = "ERR offset is more than 16777216 bytes past the end of the string"

// checkGap refuses a write into the string e, or nil, that starts too far past its end.
func (x *Call) checkGap(e *keyspace.Entry, offset int) error {
	if x.Level >= LevelSecond && offset-len(stringBytes(e)) > maxGap {
		return errGap
	}
	return nil
}

// writeAt writes part into the string of the key x.Args[1], which is e, or creates it if e is nil,
// and notifies event.
func (x *Call) writeAt(e *keyspace.Entry, offset int, part []byte, event string) {
	x.spendWrite(e, offset+len(part))
	x.DB().WriteAt(x.Args[1], offset, part)
	x.notify(NotifyString, event, x.Args[1])
}

// FreshBytes is how many bytes of fresh memory cost a unit of work, besides the work of filling
// them: the system clears its pages first.
const FreshBytes = 16

// spendWrite adds the work of writing into a string, e or nil, that will have at least size bytes.
// The string may be copied: at the first write of a request, and when it outgrows its room, which
// happens once in one write, and once in keyspace.RoomAhead bytes that are added in small steps.
// Whether it is copied differs between nodes.
func (x *Call) spendWrite(e *keyspace.Entry, size int) {
	n := len(stringBytes(e))
	bytes := 0
	switch {
	case e == nil:
	case x.Level >= LevelSecond && !x.DB().RewrittenValue(e), !x.DB().Rewritten(e):
		bytes = n
	}
	grown := max(size-n, 0)
	if x.Level < LevelSecond {
		x.spendBytes(grown * (1 + n/keyspace.RoomAhead))
		x.spendBytes(bytes)
		return
	}
	bytes += grown + min(n, grown*(n/keyspace.RoomAhead))
	x.spendBytes(bytes)
	if !x.Tx.Script {
		x.Spend(grown / FreshBytes)
		return
	}
	x.Copied += uint64(bytes) // so a script pays for fresh memory
	if bytes > x.RoomLeft() {
		x.refuse(ErrCommandWork)
	}
}

// stringBytes returns the string of e, nil if e is nil.
func stringBytes(e *keyspace.Entry) []byte {
	if e == nil {
		return nil
	}
	return e.Bytes()
}
