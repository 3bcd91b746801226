// XCLAIM and XAUTOCLAIM, which give pending entries to another consumer.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of XCLAIM and XAUTOCLAIM.
const (
	errClaimIdle       Error = "ERR Invalid min-idle-time argument for XCLAIM"
	errClaimIdleOption Error = "ERR Invalid IDLE option argument for XCLAIM"
	errClaimTime       Error = "ERR Invalid TIME option argument for XCLAIM"
	errClaimRetry      Error = "ERR Invalid RETRYCOUNT option argument for XCLAIM"
	errAutoClaimIdle   Error = "ERR Invalid min-idle-time argument for XAUTOCLAIM"
	errAutoClaimCount  Error = "ERR COUNT must be > 0"
)

// claimArgs are the arguments of XCLAIM after the consumer.
type claimArgs struct {
	minIdleMs     int64
	ids           []keyspace.StreamID
	deliveredMs   int64 // ms of the cluster clock
	retries       int64 // negative: not given
	force, justID bool
	last          keyspace.StreamID
}

// parse parses the arguments. The ids end at the first argument that is not an id.
func (a *claimArgs) parse(x *Call) error {
	args := x.Args[4:]
	var ok bool
	if a.minIdleMs, ok = ParseInt(args[0]); !ok {
		return errClaimIdle
	}
	for args = args[1:]; len(args) > 0; args = args[1:] {
		id, err := parseStreamID(args[0], 0)
		if err != nil {
			break
		}
		a.ids = append(a.ids, id)
	}
	nowMs := x.WallMs()
	deliveredMs := int64(-1)
	a.retries = -1
	for ; len(args) > 0; args = args[1:] {
		word, more := args[0], len(args) > 1
		switch {
		case isWord(word, "FORCE"):
			a.force = true
		case isWord(word, "JUSTID"):
			a.justID = true
		case more && isWord(word, "IDLE"):
			args = args[1:]
			idle, ok := ParseInt(args[0])
			if !ok {
				return errClaimIdleOption
			}
			deliveredMs = nowMs - idle
		case more && isWord(word, "TIME"):
			args = args[1:]
			if deliveredMs, ok = ParseInt(args[0]); !ok {
				return errClaimTime
			}
		case more && isWord(word, "RETRYCOUNT"):
			args = args[1:]
			if a.retries, ok = ParseInt(args[0]); !ok {
				return errClaimRetry
			}
		case more && isWord(word, "LASTID"):
			args = args[1:]
			var err error
			if a.last, err = parseStreamID(args[0], 0); err != nil {
				return err
			}
		default:
			return Errorf("ERR Unrecognized XCLAIM option '%s'", resp.CText(word))
		}
	}
	if deliveredMs < 0 || deliveredMs > nowMs { // not given, or from a wrong clock
		deliveredMs = nowMs
	}
	a.deliveredMs = x.DeadlineAt(deliveredMs)
	return nil
}

// claiming gives pending entries to a consumer and records what has changed.
type claiming struct {
	x        *Call
	consumer []byte
	justID   bool
	s        *keyspace.Stream
	g        *keyspace.Group
	e        *keyspace.Entry // nil: nothing has changed
	name     string          // name of the consumer, as the group has it
	seen     bool            // the consumer was marked as seen
	claimed  []keyspace.StreamEntry
}

// expect adds the work of that many entries, and refuses the command if a reply of them, with that
// many texts and bytes, would not fit or be too much.
func (c *claiming) expect(entries, texts, bytes int) {
	if c.x.Level < LevelSecond {
		return
	}
	if c.x.Spend((pendingWork + deep(c.g.Pending())) * entries); c.justID {
		texts, bytes = 0, 0
	}
	// an entry that is named twice is taken from the consumer itself
	c.x.Spend(c.x.nameWork(2*entries, len(c.consumer)))
	c.x.Expect(entryElements*entries+texts, entryID*entries+bytes)
}

// spend adds the work of an unexpected change of an entry.
func (c *claiming) spend() {
	if c.x.Level < LevelSecond {
		c.x.Spend(pendingWork)
	}
}

// edit opens the stream and the group for changes.
func (c *claiming) edit() {
	if c.e == nil {
		c.e, c.s = editStream(c.x, c.x.Args[1])
		c.g = c.s.EditGroup(c.x.Args[2])
	}
}

// drop removes a pending entry that was deleted from the stream.
func (c *claiming) drop(id keyspace.StreamID) {
	c.edit()
	c.spend()
	c.g.Acknowledge(id)
}

// claim gives a pending entry to the consumer.
func (c *claiming) claim(e keyspace.StreamEntry, p keyspace.Pending) {
	c.edit()
	c.spend()
	if !c.seen {
		see(c.x, c.x.Args[1], c.g, c.consumer, true)
		known, _ := c.g.Consumer(c.consumer)
		c.name, c.seen = known.Name, true
	}
	p.Consumer = c.name
	c.g.SetPending(p)
	c.claimed = append(c.claimed, e)
}

// record records the change. It wakes those that claim if entries may be idle for longer now.
func (c *claiming) record(idle bool) {
	if c.e != nil {
		c.x.DB().Noted(c.e, idle)
	}
}

// reply writes what was claimed.
func (c *claiming) reply() {
	if !c.justID {
		replyEntries(c.x.Out, c.claimed)
		return
	}
	c.x.Out.Array(len(c.claimed))
	for _, e := range c.claimed {
		c.x.Out.BulkString(e.ID.String())
	}
}

func xclaim(x *Call) error {
	s, g, err := mustFindGroup(x, x.Args[1], x.Args[2])
	if err != nil {
		return err
	}
	var a claimArgs
	if err := a.parse(x); err != nil {
		return err
	}
	c := claiming{x: x, consumer: x.Args[3], justID: a.justID, s: s, g: g}
	texts, size := 0, 0
	for _, id := range a.ids {
		e, _ := s.Get(id)
		texts, size = texts+e.Fields(), size+e.Size()
	}
	if x.Level >= LevelSecond {
		x.Spend(claimedWork * deep(g.Pending()) * len(a.ids))
	}
	x.spendOwners(g, a.ids)
	c.expect(len(a.ids), texts, size)
	if g.Last().Less(a.last) {
		c.edit()
		c.g.SetPosition(a.last, c.g.Reads())
	}
	for _, id := range a.ids {
		p, pending := c.g.FindPending(id)
		e, exists := c.s.Get(id)
		switch {
		case !exists && pending:
			c.drop(id)
		case !exists || (!pending && !a.force):
		case pending && !x.idleFor(p, a.minIdleMs):
		default:
			if !pending {
				p = keyspace.Pending{ID: id, Deliveries: 1}
			}
			p.DeliveredMs = a.deliveredMs
			if a.retries >= 0 {
				p.Deliveries = a.retries
			} else if !a.justID {
				x.countDelivery(&p)
			}
			c.claim(e, p)
		}
	}
	c.record(a.deliveredMs < x.ClockMs)
	c.reply()
	return nil
}

// autoClaimArgs are the arguments of XAUTOCLAIM after the consumer.
type autoClaimArgs struct {
	minIdleMs int64
	start     keyspace.StreamID
	count     int64
	justID    bool
}

// attemptsFactor is how many entries XAUTOCLAIM checks for each that it may return, as on Redis.
const attemptsFactor = 10

func (a *autoClaimArgs) parse(args [][]byte) (err error) {
	var ok bool
	if a.minIdleMs, ok = ParseInt(args[0]); !ok {
		return errAutoClaimIdle
	}
	if a.start, err = parseRangeStart(args[1]); err != nil {
		return err
	}
	a.count = 100
	for args = args[2:]; len(args) > 0; args = args[1:] {
		switch {
		case isWord(args[0], "COUNT") && len(args) > 1:
			args = args[1:]
			const most = math.MaxInt64 / 16 // an id has 16 bytes
			if a.count, ok = ParseInt(args[0]); !ok || a.count < 1 || a.count > most {
				return errAutoClaimCount
			}
		case isWord(args[0], "JUSTID"):
			a.justID = true
		default:
			return ErrSyntax
		}
	}
	return nil
}

// claim is a pending entry that XAUTOCLAIM gives to its consumer, or removes because it was deleted
// from the stream.
type claim struct {
	entry   keyspace.StreamEntry
	pending keyspace.Pending
	deleted bool
}

// look finds what to claim, and the id to continue from.
func (a *autoClaimArgs) look(x *Call, s *keyspace.Stream,
	g *keyspace.Group) (claims []claim, next keyspace.StreamID) {
	attempts := a.count * attemptsFactor
	const usual = 100
	claims = make([]claim, 0, min(int(min(a.count, usual)), g.Pending()))
	find := s.Finder()
	g.EachPending(a.start, func(p keyspace.Pending) bool {
		if attempts == 0 || int64(len(claims)) == a.count {
			next = p.ID
			return false
		}
		attempts--
		x.Spend(lookWork)
		e, exists := find(p.ID)
		if !exists || x.idleFor(p, a.minIdleMs) {
			claims = append(claims, claim{e, p, !exists})
		}
		return true
	})
	return claims, next
}

func xautoclaim(x *Call) error {
	var a autoClaimArgs
	if err := a.parse(x.Args[4:]); err != nil {
		return err
	}
	s, g, err := mustFindGroup(x, x.Args[1], x.Args[2])
	if err != nil {
		return err
	}
	claims, next := a.look(x, s, g)
	c := claiming{x: x, consumer: x.Args[3], justID: a.justID, s: s, g: g}
	texts, size := 0, 0
	for _, claim := range claims {
		texts, size = texts+claim.entry.Fields(), size+claim.entry.Size()
		x.Spend(x.nameWork(1, len(claim.pending.Consumer)))
	}
	c.expect(len(claims), texts, size)
	var deleted []keyspace.StreamID
	for _, claim := range claims {
		p := claim.pending
		if claim.deleted {
			c.drop(p.ID)
			deleted = append(deleted, p.ID)
			continue
		}
		p.DeliveredMs = x.ClockMs
		if !a.justID {
			x.countDelivery(&p)
		}
		c.claim(claim.entry, p)
	}
	c.record(false)
	x.Out.Array(3)
	x.Out.BulkString(next.String())
	c.reply()
	x.Out.Array(len(deleted))
	for _, id := range deleted {
		x.Out.BulkString(id.String())
	}
	return nil
}
