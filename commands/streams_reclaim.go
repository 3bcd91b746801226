// XREADGROUP … CLAIM of Redis 8.4: a consumer takes over what has been pending for long before it
// reads on.

package commands

import (
	"cmp"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// reclaim finds the pending entries of a group that are idle: those to claim, the one that was
// delivered first before the others, at most COUNT, and those that were deleted from the stream.
// lookMs is how long it takes until there can be another one.
func (a *readArgs) reclaim(x *Call, s *keyspace.Stream, g *keyspace.Group,
	p *parcel) (claims, deleted []claim, lookMs int64) {
	idle, lookMs := a.idle(x, g, p)
	change := claimedWork * deep(g.Pending())
	for _, pending := range idle {
		if a.count > 0 && int64(len(claims)) == a.count {
			break
		}
		p.charge(change+x.nameWork(1, len(pending.Consumer)), 0)
		e, exists := s.Get(pending.ID)
		switch {
		case !exists:
			if p.charge(pendingWork, 0); !p.full {
				deleted = append(deleted, claim{pending: pending, deleted: true})
			}
		case p.reserve(e):
			claims = append(claims, claim{entry: e, pending: pending})
		}
		if p.full {
			break
		}
	}
	return claims, deleted, lookMs
}

// idle returns the pending entries that are idle for long enough, in the order of their last
// delivery, those of no consumer first; none if there is too little room to look at all.
func (a *readArgs) idle(x *Call, g *keyspace.Group,
	p *parcel) (idle []keyspace.Pending, lookMs int64) {
	lookMs = a.minIdleMs // of what is delivered next
	// lookWork is also enough for an entry's place among the others
	g.EachPending(keyspace.StreamID{}, func(pending keyspace.Pending) bool {
		if p.charge(lookWork, 0); p.full {
			idle = nil
			return false
		}
		x.Spend(lookWork)
		if x.idleFor(pending, a.minIdleMs) {
			idle = append(idle, pending)
		} else {
			lookMs = min(lookMs, a.minIdleMs-max(x.idleMs(pending.DeliveredMs), 0))
		}
		return true
	})
	slices.SortFunc(idle, func(a, b keyspace.Pending) int {
		return cmp.Or(cmp.Compare(a.DeliveredMs, b.DeliveredMs), cmp.Compare(a.ID.Ms, b.ID.Ms),
			cmp.Compare(a.ID.Seq, b.ID.Seq))
	})
	return idle, lookMs
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
