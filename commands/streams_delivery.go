// Limits on what one XREADGROUP delivers: what fits into the reply and into the work of one
// request. What does not fit stays undelivered, so that no entry becomes pending without being
// sent.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// parcel tracks what remains of the limits.
type parcel struct {
	bounded     bool
	units, room int  // left
	names       int  // units that the consumer's name takes for each entry
	told        int  // integers in the reply behind each entry
	full        bool // the next entry did not fit
}

func newParcel(x *Call) *parcel {
	return &parcel{bounded: x.Level >= LevelSecond, units: x.Left() - commandWork,
		room: x.RoomLeft() - scriptElement}
}

// The share of an entry in a reply, besides its texts: elements, and bytes of its id.
const (
	entryElements = 3
	entryID       = 41
	streamWork    = 100 // of a stream in the reply, and of looking it up
)

// toldBytes is how much longer an integer may be than scriptElement.
const toldBytes = 8

// open reserves room for a stream. claims says that integers follow each entry.
func (p *parcel) open(key []byte, claims bool) {
	if p.told = 0; claims {
		p.told = 2
	}
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
