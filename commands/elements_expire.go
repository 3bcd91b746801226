// What the commands on deadlines of hash fields and of set members share. As with keys, deadlines
// are compared and kept in ms of the cluster clock.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Errors of the commands on deadlines of elements.
const (
	errNegativeExpire Error = "ERR invalid expire time, must be >= 0"
	errNoExpire       Error = "ERR missing expire time"
	errOneExpire      Error = "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be " +
		"specified"
)

// Replies of the commands on deadlines of elements.
const (
	elementMissing = -2 // no such element or key
	elementStays   = -1 // no deadline
	elementRefused = 0  // condition not met
	elementDone    = 1
	elementDeleted = 2 // the given time is past
)

// maxElementTTLMs is Redis's bound on TTLs and deadlines of elements, ms: Redis keeps them in 46
// bits.
const maxElementTTLMs = 1<<46 - 1

// parseElementDeadline parses the expire time of an element and returns its deadline, which may be
// past.
func (x *Call) parseElementDeadline(unit ttlUnit, arg []byte) (deadlineMs int64, err error) {
	n, ok := ParseInt(arg)
	if !ok {
		return 0, ErrNotInteger
	}
	if n < 0 {
		return 0, errNegativeExpire
	}
	absolute := unit == ttlEXAT || unit == ttlPXAT
	most := int64(maxElementTTLMs)
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

// lifetime is the option of a command that sets elements together with their deadline.
type lifetime struct {
	unit       ttlUnit
	keep       bool // KEEPTTL
	deadlineMs int64
}

// isLifetime reports whether an argument begins the option.
func isLifetime(arg []byte) bool { return parseTTLUnit(arg) != ttlNone || isWord(arg, "KEEPTTL") }

// parse parses the option that begins at position i of the arguments, and returns where it ends.
func (l *lifetime) parse(x *Call, i int) (last int, err error) {
	if l.unit != ttlNone || l.keep {
		return i, errOneExpire
	}
	if l.unit = parseTTLUnit(x.Args[i]); l.unit == ttlNone {
		l.keep = true
		return i, nil
	}
	if i++; i == len(x.Args) {
		return i, errNoExpire
	}
	l.deadlineMs, err = x.parseElementDeadline(l.unit, x.Args[i])
	return i, err
}

// over reports whether there is a deadline and it is past.
func (l *lifetime) over(x *Call) bool { return l.unit != ttlNone && x.past(l.deadlineMs) }

// elementEdit is a change of elements by a command that may turn out to change none. It opens the
// collection at x.Args[1] at the first real change.
type elementEdit[C mortal] struct {
	x     *Call
	c     C
	e     *keyspace.Entry // nil: nothing has changed
	open  func(x *Call, key []byte) (*keyspace.Entry, C)
	class NotifyClass
}

// begin opens the collection for changes.
func (d *elementEdit[C]) begin() {
	if d.e == nil {
		d.e, d.c = d.open(d.x, d.x.Args[1])
	}
}

// remove deletes an existing element.
func (d *elementEdit[C]) remove(name []byte) {
	if h, ok := any(d.c).(*keyspace.Hash); ok { //hash: of one field
		spendOld(d.x, h, name)
	}
	d.begin()
	d.c.Delete(name)
}

// expire sets the deadline of an existing element, 0 for none. If the deadline is past it deletes
// the element and returns true.
func (d *elementEdit[C]) expire(name []byte, deadlineMs int64) (deleted bool) {
	if deadlineMs != 0 && d.x.past(deadlineMs) {
		d.remove(name)
		return true
	}
	d.begin()
	d.c.SetDeadline(d.x.Keyspace, name, deadlineMs)
	return false
}

// finish ends the change, if there was one, and notifies event.
func (d *elementEdit[C]) finish(event string) {
	if d.e != nil {
		d.x.changed(d.e, d.class, event)
	}
}

// expireEach sets the deadlines of elements if o allows it, replies with what became of each, and
// notifies one of the events.
func (d *elementEdit[C]) expireEach(names [][]byte, o *expireOptions, deadlineMs int64, set,
	deleted string) {
	event := set
	d.x.Out.Array(len(names))
	for _, name := range names {
		oldMs, exists := d.c.Deadline(name)
		switch {
		case !exists:
			d.x.Out.Int(elementMissing)
		case !o.allow(oldMs, deadlineMs):
			d.x.Out.Int(elementRefused)
		case d.expire(name, deadlineMs):
			event = deleted
			d.x.Out.Int(elementDeleted)
		default:
			d.x.Out.Int(elementDone)
		}
	}
	d.finish(event)
}

// persistEach removes the deadlines of elements and replies whether each had one.
func (d *elementEdit[C]) persistEach(names [][]byte, event string) {
	d.x.Out.Array(len(names))
	for _, name := range names {
		switch deadlineMs, exists := d.c.Deadline(name); {
		case !exists:
			d.x.Out.Int(elementMissing)
		case deadlineMs == 0:
			d.x.Out.Int(elementStays)
		default:
			d.expire(name, 0)
			d.x.Out.Int(elementDone)
		}
	}
	d.finish(event)
}

// replyTTLs replies with show of each element's deadline.
func (x *Call) replyTTLs(c mortal, names [][]byte, show func(deadlineMs int64) int64) {
	x.Out.Array(len(names))
	for _, name := range names {
		switch deadlineMs, exists := c.Deadline(name); {
		case !exists:
			x.Out.Int(elementMissing)
		case deadlineMs == 0:
			x.Out.Int(elementStays)
		default:
			x.Out.Int(show(deadlineMs))
		}
	}
}

// remainingSeconds is remainingMs in seconds.
func (x *Call) remainingSeconds(deadlineMs int64) int64 {
	return ceilSeconds(x.remainingMs(deadlineMs))
}

// expirySeconds is expiryMs in seconds. A deadline given as wall time may be shown 1 ms late
// (docs/compatibility.md). That must not become a second.
func (x *Call) expirySeconds(deadlineMs int64) int64 {
	return ceilSeconds(max(x.expiryMs(deadlineMs)-1, 0))
}

// ceilSeconds converts a time that is not negative to seconds, rounded up. Redis rounds the TTLs of
// elements so, but not those of keys.
func ceilSeconds(ms int64) int64 { return (ms + 999) / 1000 }
