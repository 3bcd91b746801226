// This file contains how much XREADGROUP delivers: what fits into the reply and into the work of
// one request. What does not fit stays undelivered, for the next call, so that no entry becomes
// pending that nobody was sent.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// parcel counts what is delivered.
type parcel struct {
	bounded     bool
	units, room int  // left
	full        bool // the next entry did not fit
}

func newParcel(x *Call) *parcel {
	return &parcel{bounded: x.Level >= LevelBounded, units: x.Left() - commandWork,
		room: x.RoomLeft() - scriptElement}
}

// What an entry takes in a reply beside its texts: elements, and bytes of its id.
const (
	entryElements = 3
	entryID       = 41
	streamWork    = 100 // of a stream in the reply, and of looking it up
)

// open takes room for a stream.
func (p *parcel) open(key []byte) {
	p.charge(streamWork+len(key)/replyBytes, 3*scriptElement+len(key))
}

// charge takes from what is left.
func (p *parcel) charge(units, bytes int) {
	if p.bounded {
		p.units -= units
		p.room -= bytes
		p.full = p.full || p.units < 0 || p.room < 0
	}
}

// take reports whether there is room for an entry.
func (p *parcel) take(e keyspace.StreamEntry) bool {
	elements := entryElements + e.Fields()
	p.charge(pendingWork+readWork+replyWork*elements+e.Size()/replyBytes,
		scriptElement*elements+entryID+e.Size())
	return !p.full
}

// refusal is the error where there is no room for a single entry.
func (p *parcel) refusal(x *Call) error {
	err := errCommandWork
	if p.room < 0 {
		err = ErrReplySize
	}
	x.refuse(err)
	return err
}
