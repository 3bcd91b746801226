// What was granted to those who waited for locks, until their nodes have claimed it. A node claims
// while the client is there, and tells it of the grant only then. So what nobody claims in time can
// be given up, and no client believes to hold it (docs/adr/0064). Who proposes an entry claims with
// it whatever its own clients are granted there.

package fsm

import (
	"encoding/binary"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/wire"
)

const claimMs = commands.ClaimMs

// claimedMs is how long the machine knows that a grant was claimed: its node may ask again, or give
// it up since its client has gone meanwhile.
const claimedMs = 10_000

// maxClaims is how many bytes the claims may count before the oldest are forgotten that are
// claimed: locks that go from one to the next often must not take the room of those who wait.
const maxClaims = maxWaiting / 2

// claimCost is what a claim counts besides what gives it up, bytes.
const claimCost = 256

// claim is a grant to a command that waited.
type claim struct {
	number  uint64 // number of the wait
	node    string
	untilMs int64
	claimed bool
	undo    []byte       // a transaction that gives it up, encoded; nil: an earlier call has it
	call    *grantedCall // that is remembered when it is claimed; nil: it has no id
	gone    bool         // it was removed, and is still in its queue
}

// callName returns the name of a call that is under way until it is claimed, "" if it has no id.
func (c *claim) callName() string {
	if c.call == nil {
		return ""
	}
	return callName(c.call.user, c.call.id)
}

func (c *claim) bytes() int {
	n := claimCost + len(c.undo)
	if c.call != nil {
		n += len(c.call.user.Name) + len(c.call.id) + len(c.call.reply.Bytes)
	}
	return n
}

// release decodes what gives up a grant.
func release(undo []byte) (*commands.Request, error) {
	var reader commands.RequestReader
	reader.Reset(undo)
	return reader.Next()
}

// claims are part of the state.
type claims struct {
	opened  []*claim // that are not claimed, the oldest first; the first is there
	kept    []*claim // that are, likewise
	numbers map[uint64]*claim
	bytes   int
}

// openClaim notes what the running request was granted, as the wait of a number. Tx.Undo gives it
// up. It reports whether that is claimed already. A call with an id is not claimed by its entry: it
// could not be given up any more if its client has gone meanwhile, see claimed.
func (r *runner) openClaim(number uint64, node string, db int) (claimed bool) {
	now := r.m.ks.Now()
	c := &claim{number: number, node: node, untilMs: now + claimMs, call: r.unclaimed}
	if len(r.tx.Undo) > 0 {
		c.undo = commands.AppendRequest(nil, &commands.Request{DB: db, Proto: 2, Multi: true,
			Cmds: r.tx.Undo})
	}
	own := sentBy(r.m.waiting.proposer, number)
	if c.claimed = c.undo == nil || c.call == nil && own; c.claimed {
		c.untilMs = now + claimedMs
	}
	v := &r.m.waiting.locks
	v.openClaim(c)
	for v.claims.bytes > maxClaims && len(v.claims.kept) > 0 {
		v.claims.take(v.claims.kept[0])
		r.env.Work += lookWork
	}
	return c.claimed
}

// open adds a claim.
func (v *claims) open(c *claim) {
	if v.numbers == nil {
		v.numbers = map[uint64]*claim{}
	}
	if before := v.numbers[c.number]; before != nil { // never: see sentAgain, waitsNoMore
		v.take(before)
	}
	if c.claimed {
		v.kept = append(v.kept, c)
	} else {
		v.opened = append(v.opened, c)
	}
	v.numbers[c.number] = c
	v.bytes += c.bytes()
}

// take removes a claim.
func (v *claims) take(c *claim) {
	if c.gone = true; v.numbers[c.number] == c {
		delete(v.numbers, c.number)
	}
	v.bytes -= c.bytes()
	c.undo, c.call = nil, nil // those before it in its queue may stay for long
	v.opened, v.kept = withoutGone(v.opened), withoutGone(v.kept)
}

// withoutGone returns a queue without those at its beginning that are gone.
func withoutGone(queue []*claim) []*claim {
	for len(queue) > 0 && queue[0].gone {
		queue[0] = nil
		queue = queue[1:]
	}
	return queue
}

// next returns when the first grant that is not claimed is given up.
func (v *claims) next() (untilMs int64, some bool) {
	if len(v.opened) == 0 {
		return 0, false
	}
	return v.opened[0].untilMs, true
}

func (v *claims) empty() bool { return len(v.numbers) == 0 }

// claim claims what the wait of a number, in decimal, was granted, if it has the token.
func (c *systemCall) claim() error {
	m, env := c.m, c.env
	number, _ := commands.ParseInt(c.args[0])
	granted := m.waiting.locks.claims.numbers[uint64(number)]
	if granted != nil && len(c.args) > 1 {
		env.Work += uint64(len(granted.undo) / requestBytes)
		if !granted.has(c.args[1]) {
			return commands.ErrNotWaiting // its node does not know yet what it was granted since
		}
	}
	switch {
	case granted == nil:
		return commands.ErrNotWaiting
	case !granted.claimed && granted.untilMs < m.ks.Now(), // this entry had no more work for it
		!m.stillHeld(env, granted): // or its node was away for long
		m.giveUpClaim(env, granted)
		return commands.ErrNotWaiting
	case granted.claimed:
		return nil
	default:
		m.claimed(granted)
		return nil
	}
}

// has reports whether a claim is of what was granted with a token, as far as known.
func (c *claim) has(token []byte) bool {
	if c.undo == nil {
		return true
	}
	q, err := release(c.undo)
	granted, _ := commands.ParseInt(token)
	return err == nil && commands.GrantedToken(q.Cmds) == granted
}

// stillHeld reports whether what a wait was granted has neither ended nor been taken since: its
// client would be told that it holds what somebody else may have been told to hold by now. Of a
// call with an id that is claimed it is not known.
func (m *Machine) stillHeld(env *commands.Env, c *claim) bool {
	if c.undo == nil {
		return true
	}
	env.Work += uint64(len(c.undo) / requestBytes)
	q, err := release(c.undo)
	if err != nil {
		return false // never: the machine wrote it
	}
	for _, args := range q.Cmds {
		held, looked := commands.StillHeld(m.ks.DB(q.DB), args)
		if env.Work += uint64(lookWork * looked); !held {
			return false
		}
	}
	return true
}

// claimed notes that a node has claimed. If the call has an id, it is remembered, and stays: its
// client may have sent it again, and got this reply.
func (m *Machine) claimed(c *claim) {
	v := &m.waiting.locks
	own := *c
	v.takeClaim(c)
	if own.claimed, own.untilMs = true, m.ks.Now()+claimedMs; own.call != nil {
		m.remember(own.call)
		own.undo, own.call = nil, nil
	}
	v.openClaim(&own)
}

// giveUp gives up what a wait was granted, and reports whether there was something.
func (m *Machine) giveUp(env *commands.Env, number uint64) bool {
	c := m.waiting.locks.claims.numbers[number]
	if c != nil {
		m.giveUpClaim(env, c)
	}
	return c != nil
}

// giveUpClaim gives up what a claim is of.
func (m *Machine) giveUpClaim(env *commands.Env, c *claim) {
	undo := c.undo
	if m.waiting.locks.takeClaim(c); undo == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			m.panicked(p)
		}
	}()
	q, err := release(undo)
	if err != nil {
		panic(err) // never: the machine wrote it
	}
	for _, args := range q.Cmds {
		spec, err := m.table.ResolveAt(m.level, args)
		x := &commands.Call{Env: env, Tx: &commands.Tx{DB: q.DB, Proto: 2}, Args: args,
			Out: commands.Discard{}}
		x.Run(spec, err)
	}
}

// giveUpLate gives up what was not claimed in time, and forgets what was claimed long ago.
func (m *Machine) giveUpLate(env *commands.Env, limit uint64) {
	v := &m.waiting.locks.claims
	for len(v.opened) > 0 && v.opened[0].untilMs < m.ks.Now() && env.Work < limit {
		m.giveUpClaim(env, v.opened[0])
	}
	for len(v.kept) > 0 && v.kept[0].untilMs < m.ks.Now() && env.Work < limit {
		v.take(v.kept[0])
		env.Work += lookWork
	}
}

// nodeWork is the work after which no more of what a node's waits were granted is given up at once:
// the rest is when nobody claims it in time.
const nodeWork = commands.MaxRequestWork / 16

// giveUpNode gives up what the waits of a node were granted and have not claimed.
func (m *Machine) giveUpNode(env *commands.Env, node string) {
	stop := env.Work + nodeWork
	for _, c := range slices.Clone(m.waiting.locks.claims.opened) {
		if env.Work >= stop {
			return
		}
		if env.Work++; !c.gone && c.node == node {
			m.giveUpClaim(env, c)
		}
	}
}

// sentAgain gives up what a command was granted that its node sends again: the node did not learn
// of it.
func (r *runner) sentAgain(q *commands.Request) {
	switch {
	case q.Wait == nil || r.m.waiting.locks.claims.numbers[q.Wait.Number] == nil:
	case r.readOnly:
		r.env.Aborted = true
	default:
		r.m.giveUp(r.env, q.Wait.Number)
		r.env.Work += lookWork
	}
}

// freeze returns what appendTo needs, while the machine goes on.
func (v *claims) freeze() (f claims) {
	for _, c := range slices.Concat(v.kept, v.opened) {
		if !c.gone {
			own := *c
			f.opened = append(f.opened, &own)
		}
	}
	return f
}

// appendTo appends the encoding for a snapshot, of what freeze returned.
func (v *claims) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(v.opened)))
	for _, c := range v.opened {
		dst = binary.AppendUvarint(dst, c.number)
		dst = wire.AppendBytes(dst, c.node)
		dst = binary.AppendVarint(dst, c.untilMs)
		dst = append(dst, wire.BoolByte(c.claimed)|wire.BoolByte(c.call != nil)<<1)
		dst = wire.AppendBytes(dst, c.undo)
		if c.call != nil {
			dst = c.call.appendTo(dst)
		}
	}
	return dst
}

// restoreClaims reads what appendTo wrote.
func (v *lockQueues) restoreClaims(c *wire.Cursor) {
	for range c.Count(5) {
		own := &claim{number: c.Uvarint(), node: c.Text(), untilMs: c.Varint()}
		flags := c.Byte()
		own.claimed, own.undo = flags&1 != 0, slices.Clone(c.Bytes())
		if flags&2 != 0 {
			own.call = readGrantedCall(c)
		}
		var reader commands.RequestReader
		if reader.Reset(own.undo); len(own.undo) > 0 || !own.claimed {
			if _, err := reader.Next(); err != nil {
				c.Fail()
			}
		} else {
			own.undo = nil
		}
		if flags > 3 || flags == 3 || v.claims.numbers[own.number] != nil || c.Failed() {
			c.Fail()
			return
		}
		if _, twice := v.calls[own.callName()]; twice {
			c.Fail()
		}
		v.openClaim(own)
	}
}
