// Limits on what one XREADGROUP delivers: what fits into the reply and into the work of one
// request, and what MAXCOUNT and MAXSIZE allow. What does not fit stays undelivered, so that no
// entry becomes pending without being sent.

package commands

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

// parcel tracks what remains of the limits.
type parcel struct {
	bounded     bool
	units, room int  // left
	names       int  // units that the consumer's name takes for each entry
	told        int  // integers in the reply behind each entry
	full        bool // the next entry did not fit
	left        *allowance
}

func newParcel(x *Call, left *allowance) *parcel {
	return &parcel{bounded: x.Level >= LevelSecond, units: x.Left() - commandWork,
		room: x.RoomLeft() - scriptElement, left: left}
}

// The share of an entry in a reply, besides its texts: elements, and bytes of its id.
const (
	entryElements = 3
	entryID       = 41
	streamWork    = 100 // work for a stream in the reply, and for looking it up
)

// toldBytes is how much longer an integer may be than scriptElement.
const toldBytes = 8

// open reserves room for a stream. claims says that integers follow each entry.
func (p *parcel) open(key []byte, claims bool) {
	if p.told = 0; claims {
		p.told = 2
	}
	p.left.open(key)
	p.charge(streamWork+len(key)/replyBytes, 3*scriptElement+len(key))
}

// charge subtracts from what is left.
func (p *parcel) charge(units, bytes int) {
	if p.bounded {
		p.units -= units
		p.room -= bytes
		p.full = p.full || p.units < 0 || p.room < 0
	}
}

// reserve reserves room for an entry and reports whether there is enough.
func (p *parcel) reserve(e keyspace.StreamEntry) bool {
	if !p.left.takes(e) {
		return false
	}
	elements := entryElements + e.Fields() + p.told
	p.charge(p.names+pendingWork+readWork+replyWork*elements+e.Size()/replyBytes,
		scriptElement*elements+entryID+e.Size()+toldBytes*p.told)
	return !p.full
}

// refusal returns the error for a lack of room for a single entry.
func (p *parcel) refusal(x *Call) error {
	err := ErrCommandWork
	if p.room < 0 {
		err = ErrReplySize
	}
	x.refuse(err)
	return err
}

// allowance is what MAXCOUNT and MAXSIZE of Redis 8.10 leave for the rest of a reply.
type allowance struct {
	entries, bytes int64
	sized          bool
	some           bool // an entry is in the reply
	spent          bool // the next entry was too much
	head           int  // bytes of the key and what stands around it, before its first entry
}

func newAllowance(a *readArgs) *allowance {
	l := &allowance{entries: math.MaxInt64, bytes: math.MaxInt64, sized: a.maxSize > 0}
	if a.maxCount > 0 {
		l.entries = a.maxCount
	}
	if l.sized {
		l.bytes = a.maxSize - arrayHead
	}
	return l
}

// none reports whether the reply is complete.
func (l *allowance) none() bool { return l.spent || l.entries == 0 }

// open begins a stream.
func (l *allowance) open(key []byte) { l.head = 2*arrayHead + bulkBytes(len(key)) }

// takes reports whether the next entry may be in the reply, and counts it. The first may be in any
// case, so that its reader gets on.
func (l *allowance) takes(e keyspace.StreamEntry) bool {
	size := 0
	if l.sized {
		size = l.head + entryBytes(e)
	}
	if l.none() || l.some && int64(size) > l.bytes {
		l.spent = true
		return false
	}
	l.some, l.head = true, 0
	l.entries--
	l.bytes -= int64(size)
	return true
}

// arrayHead is how many bytes the head of an array takes, at least.
const arrayHead = 4

// bulkBytes returns how many bytes a bulk string of a length takes in a reply.
func bulkBytes(length int) int { return length + len(strconv.Itoa(length)) + 5 }

// entryBytes returns how many bytes an entry takes in a reply, without what CLAIM adds.
func entryBytes(e keyspace.StreamEntry) int {
	size := arrayHead + bulkBytes(len(e.ID.String())) + arrayHead
	e.Each(func(text []byte) { size += bulkBytes(len(text)) })
	return size
}
