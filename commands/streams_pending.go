// XPENDING, and the costs of pending entries.

package commands

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

// Costs of looking up a pending entry, and of changing one, in units of Env.Work.
const (
	lookWork    = 6
	pendingWork = 25
	// changing one at random, per doubling of a group that exceeds the processor's caches
	claimedWork = 20
	keptPending = 3 // each entry of a group that loses many at once
)

// releasedIdle is shown as the idle time of an entry that no consumer owns.
const releasedIdle = -1

// idleMs returns how long ago, in ms, sinceMs was.
func (x *Call) idleMs(sinceMs int64) int64 { return x.ClockMs - sinceMs }

// idleFor reports whether a pending entry was delivered ms ago or earlier, or no consumer owns it.
func (x *Call) idleFor(p keyspace.Pending, ms int64) bool {
	return ms <= 0 || p.Released() || x.idleMs(p.DeliveredMs) >= ms
}

// countDelivery counts a delivery of a pending entry. XNACK sets the highest count.
func (x *Call) countDelivery(p *keyspace.Pending) {
	if x.Level < LevelSecond || p.Deliveries < math.MaxInt64 {
		p.Deliveries++
	}
}

// pendingArgs are the arguments of XPENDING after the group.
type pendingArgs struct {
	minIdleMs   int64
	first, last keyspace.StreamID
	count       int64
	consumer    []byte // nil: all
}

func (a *pendingArgs) parse(args [][]byte) (err error) {
	if len(args) < 3 || len(args) > 6 {
		return ErrSyntax
	}
	if isWord(args[0], "IDLE") {
		var ok bool
		if a.minIdleMs, ok = ParseInt(args[1]); !ok {
			return ErrNotInteger
		}
		if args = args[2:]; len(args) < 3 {
			return ErrSyntax
		}
	}
	count, ok := ParseInt(args[2])
	if !ok {
		return ErrNotInteger
	}
	a.count = max(count, 0)
	if a.first, err = parseRangeStart(args[0]); err != nil {
		return err
	}
	if a.last, err = parseRangeEnd(args[1]); err != nil {
		return err
	}
	if len(args) > 3 {
		a.consumer = args[3]
	}
	return nil
}

func xpending(x *Call) error {
	var a pendingArgs
	summary := len(x.Args) == 3
	if !summary {
		if err := a.parse(x.Args[3:]); err != nil {
			return err
		}
	}
	_, g, err := mustFindGroup(x, x.Args[1], x.Args[2])
	if err != nil {
		return err
	}
	if summary {
		replyPendingSummary(x, g)
		return nil
	}
	found := a.walk(x, g)
	x.Out.Array(len(found))
	for _, p := range found {
		x.Out.Array(4)
		x.Out.BulkString(p.ID.String())
		x.Out.BulkString(p.Consumer)
		if p.Released() {
			x.Out.Int(releasedIdle)
		} else {
			x.Out.Int(max(x.idleMs(p.DeliveredMs), 0))
		}
		x.Out.Int(p.Deliveries)
	}
	return nil
}

// walk returns the pending entries that are wanted.
func (a *pendingArgs) walk(x *Call, g *keyspace.Group) (found []keyspace.Pending) {
	if a.count == 0 {
		return nil
	}
	look := func(p keyspace.Pending) bool {
		if a.last.Less(p.ID) {
			return false
		}
		x.Spend(lookWork)
		if x.idleFor(p, a.minIdleMs) {
			found = append(found, p)
		}
		return int64(len(found)) < a.count
	}
	if a.consumer != nil {
		g.EachPendingOf(a.consumer, a.first, look)
	} else {
		g.EachPending(a.first, look)
	}
	return found
}

func replyPendingSummary(x *Call, g *keyspace.Group) {
	x.Out.Array(4)
	x.Out.Int(int64(g.Pending()))
	first, ok := g.NextPending(keyspace.StreamID{})
	if !ok {
		x.Out.Null()
		x.Out.Null()
		x.Out.NullArray()
		return
	}
	last, _ := g.LastPending()
	x.Out.BulkString(first.ID.String())
	x.Out.BulkString(last.ID.String())
	var busy []keyspace.Consumer
	g.EachConsumer(func(c keyspace.Consumer) {
		if c.Pending > 0 {
			busy = append(busy, c)
		}
	})
	x.Spend(g.Consumers())
	x.Out.Array(len(busy))
	for _, c := range busy {
		x.Out.Array(2)
		x.Out.BulkString(c.Name)
		x.Out.BulkString(strconv.Itoa(c.Pending))
	}
}
