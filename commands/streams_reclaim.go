// XREADGROUP … CLAIM of Redis 8.4: a consumer takes over what has been pending for long before it
// reads on.

package commands

import (
	"cmp"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// reclaim finds the pending entries of a group that are idle: those to claim, the ones that were
// delivered first before the others, at most COUNT, and those that were deleted from the stream, as
// many as half of what is left allows. lookMs is how long it takes until there can be another one.
func (a *readArgs) reclaim(x *Call, s *keyspace.Stream, g *keyspace.Group,
	p *parcel) (claims, deleted []claim, lookMs int64) {
	change := claimedWork * deep(g.Pending())
	idle, gone, lookMs := a.idle(x, s, g, p)
	spare := p.units / 2
	for _, pending := range gone {
		units := change + pendingWork + x.nameWork(1, len(pending.Consumer))
		if spare -= units; spare < 0 {
			break
		}
		p.charge(units, 0)
		deleted = append(deleted, claim{pending: pending, deleted: true})
	}
	for _, pending := range idle {
		e, _ := s.Get(pending.ID)
		p.charge(change+x.nameWork(1, len(pending.Consumer)), 0)
		if !p.reserve(e) {
			break
		}
		claims = append(claims, claim{entry: e, pending: pending})
		if p.left.none() {
			break
		}
	}
	return claims, deleted, lookMs
}

// idle returns the pending entries that are idle for long enough: those to claim, in the order of
// their last delivery, those of no consumer first, at most COUNT, and those that were deleted from
// the stream; none if there is too little room to look at all, nor more than there is work left
// for.
func (a *readArgs) idle(x *Call, s *keyspace.Stream, g *keyspace.Group,
	p *parcel) (idle, deleted []keyspace.Pending, lookMs int64) {
	lookMs = a.minIdleMs // until what is delivered next is idle enough
	most := p.units/pendingWork + 1
	first := oldest{most: a.limit(most)}
	find := s.Finder()
	// lookWork is also enough for an entry's place among the others
	g.EachPending(keyspace.StreamID{}, func(pending keyspace.Pending) bool {
		if p.charge(lookWork, 0); p.full {
			return false
		}
		x.Spend(lookWork)
		if !x.idleFor(pending, a.minIdleMs) {
			lookMs = min(lookMs, a.minIdleMs-max(x.idleMs(pending.DeliveredMs), 0))
		} else if _, exists := find(pending.ID); exists {
			first.add(pending)
		} else if len(deleted) < most {
			deleted = append(deleted, pending)
		}
		return true
	})
	if p.full {
		return nil, nil, lookMs
	}
	return first.sorted(), deleted, lookMs
}

// oldest keeps the pending entries that were delivered first. It does not sort all others.
type oldest struct {
	most int // how many
	kept []keyspace.Pending
	full bool // the first of kept are sorted, so many
}

func (o *oldest) add(p keyspace.Pending) {
	const spare = 256 // at least so many come before it sorts again
	if o.full && deliveredLater(o.kept[o.most-1], p) < 0 {
		return
	}
	if o.kept = append(o.kept, p); len(o.kept) >= 2*o.most+spare {
		o.kept = o.sorted()
	}
}

func (o *oldest) sorted() []keyspace.Pending {
	slices.SortFunc(o.kept, deliveredLater)
	o.full = len(o.kept) >= o.most
	return o.kept[:min(len(o.kept), o.most)]
}

// deliveredLater compares the last deliveries of two entries, or their ids.
func deliveredLater(a, b keyspace.Pending) int {
	return cmp.Or(cmp.Compare(a.DeliveredMs, b.DeliveredMs), cmp.Compare(a.ID.Ms, b.ID.Ms),
		cmp.Compare(a.ID.Seq, b.ID.Seq))
}

// take gives what it claims to the consumer, and removes what was deleted from the stream.
func (a *readArgs) take(x *Call, g *keyspace.Group, claims, deleted []claim) {
	c, _ := g.Consumer(a.consumer)
	change := pendingWork + claimedWork*deep(g.Pending())
	for _, claim := range deleted {
		x.Spend(change + x.nameWork(1, len(claim.pending.Consumer)))
		g.Acknowledge(claim.pending.ID)
	}
	for _, claim := range claims {
		p := claim.pending
		x.Spend(change + readWork + x.nameWork(1, len(p.Consumer)) + x.nameWork(2, len(c.Name)))
		p.Consumer, p.DeliveredMs = c.Name, x.ClockMs
		x.countDelivery(&p)
		g.SetPending(p)
	}
}
