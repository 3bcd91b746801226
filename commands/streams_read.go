// XREAD and XREADGROUP.

package commands

import (
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of XREAD and XREADGROUP.
const (
	errReadUnbalanced Error = "ERR Unbalanced XREAD list of streams: for each stream key an ID " +
		"or '$' must be specified."
	errReadGroup Error = "ERR The GROUP option is only supported by XREADGROUP. You called " +
		"XREAD instead."
	errReadNoAck Error = "ERR The NOACK option is only supported by XREADGROUP. You called " +
		"XREAD instead."
	errReadClaim Error = "ERR The CLAIM option is only supported by XREADGROUP. You called " +
		"XREAD instead."
	errReadMaxCount      Error = "ERR MAXCOUNT must be a positive integer"
	errReadMaxCountLower Error = "ERR MAXCOUNT must not be smaller than COUNT"
	errReadMaxSize       Error = "ERR MAXSIZE must be a positive integer"

	errReadIdle    Error = "ERR min-idle-time is not an integer"
	errReadIdleLow Error = "ERR min-idle-time must be a positive integer"
	errReadNoGroup Error = "ERR Missing GROUP option for XREADGROUP"
	errReadNew     Error = "ERR The > ID can be specified only when calling XREADGROUP using " +
		"the GROUP <group> <consumer> option."
	errReadDollar Error = "ERR The $ ID is meaningless in the context of XREADGROUP: you " +
		"want to read the history of this consumer " +
		"by specifying a proper ID, or use the > ID to get new messages. The $ ID would just " +
		"return an empty result set."
	errReadKeyGone   Error = "UNBLOCKED the stream key no longer exists"
	errReadGroupGone Error = "NOGROUP the consumer group this client was blocked on no longer " +
		"exists"
)

// streamPositions finds the keys of XREAD and XREADGROUP: the first half of what follows STREAMS.
func streamPositions(args [][]byte) []int {
	at := 1
	for at < len(args) && !isWord(args[at], "STREAMS") {
		switch {
		case isWord(args[at], "COUNT"), isWord(args[at], "BLOCK"), isWord(args[at], "CLAIM"),
			isWord(args[at], "MAXCOUNT"), isWord(args[at], "MAXSIZE"):
			at += 2
		case isWord(args[at], "GROUP"):
			at += 3
		case isWord(args[at], "NOACK"):
			at++
		default:
			return nil
		}
	}
	n := len(args) - at - 1
	if n <= 0 || n%2 != 0 {
		return nil
	}
	positions := make([]int, n/2)
	for i := range positions {
		positions[i] = at + 1 + i
	}
	return positions
}

// readArgs are the arguments of XREAD or XREADGROUP.
type readArgs struct {
	group, consumer []byte // what XREADGROUP names
	noAck           bool
	claims          bool
	minIdleMs       int64 // least idle time of what it claims
	count           int64 // 0: all
	maxCount        int64 // most entries from all streams together; 0: all
	maxSize         int64 // bytes of the reply; 0: any
	blocks          bool
	timeoutMs       int64
	keys, ids       [][]byte
}

func (a *readArgs) parse(x *Call, grouped bool) (err error) {
	args := x.Args[1:]
	for ; len(args) > 0 && a.keys == nil; args = args[1:] {
		switch more := len(args) - 1; {
		case isWord(args[0], "BLOCK") && more > 0:
			if x.Tx.Script {
				return Errorf("ERR %s command is not allowed with BLOCK option from scripts",
					resp.CText(x.Args[0]))
			}
			args = args[1:]
			a.blocks = true
			if a.timeoutMs, err = x.timeoutMilliseconds(args[0]); err != nil {
				return err
			}
		case isWord(args[0], "COUNT") && more > 0:
			args = args[1:]
			n, ok := ParseInt(args[0])
			if !ok {
				return ErrNotInteger
			}
			a.count = max(n, 0)
		case isWord(args[0], "MAXCOUNT") && more > 0 && x.Level >= LevelSecond:
			args = args[1:]
			var ok bool
			if a.maxCount, ok = ParseInt(args[0]); !ok || a.maxCount < 1 {
				return errReadMaxCount
			}
		case isWord(args[0], "MAXSIZE") && more > 0 && x.Level >= LevelSecond:
			args = args[1:]
			var ok bool
			if a.maxSize, ok = ParseInt(args[0]); !ok || a.maxSize < 1 {
				return errReadMaxSize
			}
		case isWord(args[0], "STREAMS") && more > 0:
			if more%2 != 0 {
				return errReadUnbalanced
			}
			a.keys, a.ids = args[1:1+more/2], args[1+more/2:]
		case isWord(args[0], "GROUP") && more > 1:
			if !grouped {
				return errReadGroup
			}
			a.group, a.consumer = args[1], args[2]
			args = args[2:]
		case isWord(args[0], "NOACK"):
			if !grouped {
				return errReadNoAck
			}
			a.noAck = true
		case isWord(args[0], "CLAIM") && more > 0 && x.Level >= LevelSecond:
			if !grouped {
				return errReadClaim
			}
			args = args[1:]
			if err = a.parseIdle(args[0]); err != nil {
				return err
			}
		default:
			return ErrSyntax
		}
	}
	switch {
	case a.keys == nil:
		return ErrSyntax
	case grouped && a.group == nil:
		return errReadNoGroup
	case a.maxCount > 0 && a.maxCount < a.count:
		return errReadMaxCountLower
	}
	return nil
}

// parseIdle parses how long entries must have been pending to be claimed, ms.
func (a *readArgs) parseIdle(arg []byte) error {
	ms, ok := ParseInt(arg)
	switch {
	case !ok:
		return errReadIdle
	case ms < 0:
		return errReadIdleLow
	}
	a.claims, a.minIdleMs = true, ms
	return nil
}

// limit returns how many of n entries of one stream are read.
func (a *readArgs) limit(n int) int {
	if a.count == 0 {
		return n
	}
	return int(min(a.count, int64(n)))
}

// streamRead is what was read of one stream: what was claimed, then the entries.
type streamRead struct {
	key     []byte
	told    bool // with each entry, how long it was pending, and how often delivered
	claims  []claim
	entries []keyspace.StreamEntry
}

// reply writes what was read.
func (r *streamRead) reply(x *Call) {
	if !r.told {
		replyEntries(x.Out, r.entries)
		return
	}
	x.Out.Array(len(r.claims) + len(r.entries))
	for _, c := range r.claims {
		idleMs := int64(releasedIdle)
		if !c.pending.Released() {
			idleMs = max(x.idleMs(c.pending.DeliveredMs), 0)
		}
		replyEntry(x.Out, c.entry, idleMs, c.pending.Deliveries)
	}
	for _, e := range r.entries {
		replyEntry(x.Out, e, 0, 0)
	}
}

// reply writes what was read.
func (a *readArgs) reply(x *Call, read []streamRead) {
	if x.Tx.Proto == 3 {
		x.Out.Map(len(read))
	} else {
		x.Out.Array(len(read))
	}
	for _, r := range read {
		if x.Tx.Proto != 3 {
			x.Out.Array(2)
		}
		x.Out.Bulk(r.key)
		r.reply(x)
	}
}

// nothing replies that there is nothing to read, or waits for it. again are the ids to wait with,
// nil for the same. lookMs is as in Call.BlockAndLook.
func (a *readArgs) nothing(x *Call, again []keyspace.StreamID, lookMs int64) {
	if !a.blocks || !x.mayBlock() {
		x.Out.NullArray()
		return
	}
	var args [][]byte
	if again != nil {
		args = append(args, x.Args[:len(x.Args)-len(a.ids)]...)
		for _, id := range again {
			args = append(args, []byte(id.String()))
		}
	}
	x.BlockAndLook(a.timeoutMs, lookMs, args)
}

// readWork is the cost of reading one entry, in units of Env.Work. A stream may be named many
// times.
const readWork = 16

func xread(x *Call) error {
	var a readArgs
	if err := a.parse(x, false); err != nil {
		return err
	}
	streams := make([]*keyspace.Stream, len(a.keys))
	after := make([]keyspace.StreamID, len(a.keys))
	for i, key := range a.keys {
		s, err := findStream(x, key)
		if err != nil && !x.Tx.Woken { // Redis keeps a waiter whose key changed its type
			return err
		}
		streams[i] = s
		if after[i], err = readAfter(a.ids[i], s); err != nil {
			return err
		}
	}
	var read []streamRead
	left := newAllowance(&a)
	for i, s := range streams {
		if s == nil {
			continue
		}
		if top, ok := s.Top(); ok && after[i].Less(top.ID) {
			first, _ := after[i].Next()
			left.open(a.keys[i])
			entries := streamRange(x, s, first, keyspace.MaxStreamID, a.count, false, left.takes)
			if x.Spend(readWork * len(entries)); x.overworked() {
				return ErrCommandWork
			}
			if len(entries) == 0 {
				continue // the reply is complete
			}
			read = append(read, streamRead{key: a.keys[i], entries: entries})
		}
	}
	if len(read) == 0 {
		a.nothing(x, after, noLook)
		return nil
	}
	a.reply(x, read)
	return nil
}

// readAfter parses an id of XREAD for a stream, which may be nil. The entries after it are read.
func readAfter(arg []byte, s *keyspace.Stream) (keyspace.StreamID, error) {
	switch string(resp.CText(arg)) {
	case ">":
		return keyspace.StreamID{}, errReadNew
	case "+": // since Redis 7.4: the last entry
		if s != nil {
			if top, ok := s.Top(); ok {
				before, _ := top.ID.Prev()
				return before, nil
			}
		}
		return lastID(s), nil
	}
	return parseLastID(arg, s, false)
}

// groupRead is what XREADGROUP reads of one stream.
type groupRead struct {
	stream  *keyspace.Stream
	after   keyspace.StreamID
	history bool // pending entries of the consumer, not new ones
}

// find looks up what to read of the stream at key, which must have the group.
func (a *readArgs) find(x *Call, key, id []byte) (r groupRead, err error) {
	s, g, err := findGroup(x, key, a.group)
	switch {
	case x.Tx.Woken && s == nil: // or a key of another type
		return r, errReadKeyGone
	case err != nil:
		return r, err
	case g == nil && x.Tx.Woken:
		return r, errReadGroupGone
	case g == nil:
		return r, Errorf(
			"NOGROUP No such key '%s' or consumer group '%s' in XREADGROUP with GROUP option",
			resp.CText(key), resp.CText(a.group))
	}
	r.stream = s
	switch string(resp.CText(id)) {
	case "$":
		return r, errReadDollar
	case ">":
		return r, nil
	}
	r.after, err = parseStreamID(id, 0)
	r.history = r.after != keyspace.MaxStreamID // as Redis represents >
	return r, err
}

func xreadgroup(x *Call) error {
	var a readArgs
	if err := a.parse(x, true); err != nil {
		return err
	}
	// each stream looks up its key, the group and the consumer again and again
	for _, key := range a.keys {
		x.Spend(x.nameWork(2, len(key)+len(a.group)+len(a.consumer)))
	}
	reads := make([]groupRead, len(a.keys))
	again := 0 // upper bound: a stream may be named many times
	for i, key := range a.keys {
		var err error
		if reads[i], err = a.find(x, key, a.ids[i]); err != nil {
			return err
		}
		if !reads[i].history {
			continue
		}
		c, _ := reads[i].stream.Group(a.group).Consumer(a.consumer)
		if again += a.limit(c.Pending); x.Level < LevelSecond &&
			again > maxCommandWork/pendingWork {
			return ErrCommandWork
		}
	}
	parcel := newParcel(x, newAllowance(&a))
	parcel.names = x.nameWork(2, len(a.consumer))
	var read []streamRead
	lookMs, changed := int64(noLook), false
	for i, r := range reads {
		if parcel.left.none() {
			break
		}
		key := a.keys[i]
		s, _ := findStream(x, key) // not r.stream: the key may occur twice
		g := s.Group(a.group)
		claims := a.claims && !r.history
		top, ok := s.Top()
		unread := !x.Tx.Behind && ok && g.Last().Less(top.ID)
		if !r.history && !unread && !claims {
			continue
		}
		got := streamRead{key: key, told: claims}
		var dropped []claim
		parcel.open(key, claims)
		if claims {
			var ms int64
			got.claims, dropped, ms = a.reclaim(x, s, g, parcel)
			if lookMs == noLook || ms < lookMs {
				lookMs = ms
			}
		}
		switch {
		case r.history:
			got.entries = a.again(s, g, r.after, parcel)
		case unread && (a.count == 0 || int64(len(got.claims)) < a.count):
			got.entries = a.next(s, g, parcel, a.count-int64(len(got.claims)))
		}
		delivers := len(got.entries)+len(got.claims) > 0
		switch {
		case delivers || len(dropped) > 0 || r.history && !parcel.full && !parcel.left.none():
		case parcel.full && len(read) == 0 && !changed:
			return parcel.refusal(x)
		default:
			continue
		}
		e, s := editStream(x, key)
		g = s.EditGroup(a.group)
		if changed = true; delivers || r.history {
			see(x, key, g, a.consumer, len(got.claims) > 0 || !r.history && !a.noAck)
			read = append(read, got)
		}
		a.take(x, g, got.claims, dropped)
		a.deliver(x, s, g, got.entries, r.history)
		x.DB().Noted(e, false)
	}
	if len(read) == 0 {
		a.nothing(x, nil, lookMs)
		return nil
	}
	a.reply(x, read)
	return nil
}

// next returns the entries that the group has not delivered yet, at most count if that is above 0.
func (a *readArgs) next(s *keyspace.Stream, g *keyspace.Group, p *parcel,
	count int64) (entries []keyspace.StreamEntry) {
	first, _ := g.Last().Next()
	s.Range(first, keyspace.MaxStreamID, func(e keyspace.StreamEntry) bool {
		if !p.reserve(e) {
			return false
		}
		entries = append(entries, e)
		return int64(len(entries)) != count
	})
	return entries
}

// again returns the pending entries of the consumer. Of deleted ones only the id is left.
func (a *readArgs) again(s *keyspace.Stream, g *keyspace.Group, after keyspace.StreamID,
	p *parcel) (entries []keyspace.StreamEntry) {
	for start, ok := after.Next(); ok && (a.count == 0 || int64(len(entries)) < a.count); {
		pending, found := g.NextPendingOf(a.consumer, start)
		if !found {
			break
		}
		e, _ := s.Get(pending.ID)
		if e.ID = pending.ID; !p.reserve(e) {
			break
		}
		entries = append(entries, e)
		start, ok = pending.ID.Next()
	}
	return entries
}

// deliver records that the consumer received the entries, of its history or new ones.
func (a *readArgs) deliver(x *Call, s *keyspace.Stream, g *keyspace.Group,
	entries []keyspace.StreamEntry, history bool) {
	c, _ := g.Consumer(a.consumer)
	for _, e := range entries {
		pending := keyspace.Pending{ID: e.ID, Consumer: c.Name, Deliveries: 1}
		if history {
			if _, exists := s.Get(e.ID); !exists {
				continue
			}
			pending, _ = g.FindPending(e.ID)
			x.countDelivery(&pending)
		} else {
			g.Advance(e.ID)
		}
		if history || !a.noAck {
			x.Spend(pendingWork + x.nameWork(2, len(c.Name)))
			pending.DeliveredMs = x.ClockMs
			g.SetPending(pending)
		}
	}
	if x.Level >= LevelSecond {
		x.Spend(readWork * len(entries))
	}
}
