// Requests that run once (docs/adr/0064): the machine remembers the replies of those that changed
// something, and answers repeats from there. It does so around the handlers, which do not know of
// ids. What is remembered is state: each node builds these replies, whether or not it answers.

package fsm

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/once"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/wire"
)

// What an id costs, in units of commands.Env.Work.
const (
	recallWork   = 16 // looking a call up
	rememberWork = 80 // remembering one, and forgetting another
	hashedBytes  = 64 // bytes of arguments hashed, or of a reply copied, that are one unit
)

// onceCall is a call with the id of a request that runs once.
type onceCall struct {
	user once.User
	id   []byte
	hash uint64
}

// onceUser returns what names the sender of requests that run once.
func (m *Machine) onceUser(id commands.UserID) once.User {
	if id.Name == nil {
		return once.User{Name: acl.DefaultUser, Created: m.users.Default().Created()}
	}
	return once.User{Name: string(id.Name), Created: id.Created}
}

// onceCall returns the call of x if it has an id, or nil. One that waited is named by the arguments
// that its client sent.
func (r *runner) onceCall(x *commands.Call, spec *commands.Spec) (*onceCall, error) {
	args := x.Args
	if r.woken != nil {
		args = r.woken.admitted
	}
	id, err := x.RequestID(spec, args)
	if id == nil || err != nil {
		return nil, err
	}
	c := &onceCall{user: r.m.onceUser(r.env.Sender), id: id}
	hash := xxhash.New()
	size := r.number(hash, uint64(x.Tx.DB))
	for _, a := range args {
		size += r.number(hash, uint64(len(a))) + len(a)
		_, _ = hash.Write(a) // never fails
	}
	c.hash = hash.Sum64()
	r.env.Work += uint64(recallWork + size/hashedBytes)
	return c, nil
}

// number adds a number to a hash.
func (r *runner) number(hash *xxhash.Digest, n uint64) int {
	var text [binary.MaxVarintLen64]byte
	size := binary.PutUvarint(text[:], n)
	_, _ = hash.Write(text[:size])
	return size
}

// recall replies to a call that has run. It returns false if none is remembered.
func (r *runner) recall(x *commands.Call, spec *commands.Spec, c *onceCall) bool {
	known := r.m.once.Find(c.user, c.id, r.env.ClockMs)
	if known == nil {
		return false
	}
	err := error(nil)
	var reply []byte
	if spec.Claims() && r.tx.Claims {
		if r.readOnly { // there would be nothing that its node could claim
			r.env.Aborted = true
			return true
		}
		r.tx.Undo = [][][]byte{} // its node claims, but an earlier call has it
	}
	switch {
	case known.Call != c.hash:
		err = commands.ErrOtherRequest
	case known.Bytes == nil:
		err = commands.ErrReplyNotKept
	default:
		if known.Proto != r.tx.Proto { // it is taken apart, and elements may be of a few bytes each
			r.env.Work += uint64(len(known.Bytes))
		}
		reply = known.In(r.tx.Proto)
		r.env.Work += uint64(len(reply) / hashedBytes)
		if len(reply) > max(r.room, 0) {
			r.full, err = true, commands.ErrReplySize
		}
	}
	if err != nil {
		r.room -= headBytes
		x.Out.Error(err.Error())
		return true
	}
	r.room -= len(reply)
	if out, ok := x.Out.(*commands.RESP); ok {
		out.Buf = append(out.Buf, reply...)
	}
	return true
}

// underWay returns the error for a call that another one is, which waits, or whose grant is not
// claimed.
func (r *runner) underWay(c *onceCall) error {
	number, is := r.m.waiting.locks.calls[callName(c.user, c.id)]
	if !is || r.woken != nil || number == r.waits {
		return nil
	}
	return commands.ErrUnderWay
}

// runOnce runs a command, and remembers its reply if it changes something. That is decided by the
// running hash, by the messages that it sends, and for what has scripts and functions loaded, which
// the hash does not know, by Call.Commit.
func (r *runner) runOnce(x *commands.Call, spec *commands.Spec, c *onceCall) {
	own := commands.RESP{Proto: r.tx.Proto, Limit: once.MaxReply}
	to, answers := x.Out.(*commands.RESP)
	if answers {
		own.Limit = commands.MaxReplyBytes
	}
	defer func(out commands.Reply) { x.Out = out }(x.Out)
	sum, sent := r.m.ks.Sum(), r.m.events.sent
	x.Out = &own
	x.Run(spec, nil)
	if answers && !own.Full {
		to.Encoded(own.Buf)
	} else if answers {
		to.Full = true
	}
	loads := x.Committed() && len(own.Buf) > 0 && own.Buf[0] != resp.Error
	changed := r.m.ks.Sum() != sum || r.m.events.sent != sent || loads
	if !changed || r.readOnly || r.tx.Blocked {
		return
	}
	reply := once.Reply{Call: c.hash, Proto: r.tx.Proto}
	if !own.Full && len(own.Buf) <= once.MaxReply {
		reply.Bytes = own.Buf
	}
	r.env.Work += uint64(rememberWork + len(reply.Bytes)/hashedBytes)
	if r.tx.Undo != nil { // it is remembered when it is claimed
		c.id = slices.Clone(c.id)
		r.unclaimed = &grantedCall{c, reply}
		return
	}
	r.m.remember(&grantedCall{c, reply})
}

// grantedCall is a call that has run, with its reply.
type grantedCall struct {
	*onceCall
	reply once.Reply
}

// appendTo appends the encoding for a snapshot.
func (c *grantedCall) appendTo(dst []byte) []byte {
	dst = wire.AppendBytes(dst, c.user.Name)
	dst = binary.AppendUvarint(dst, c.user.Created)
	dst = wire.AppendBytes(dst, c.id)
	dst = binary.LittleEndian.AppendUint64(dst, c.hash)
	dst = append(dst, byte(c.reply.Proto))
	return wire.AppendBytes(dst, c.reply.Bytes)
}

// readGrantedCall reads what appendTo wrote, or fails c.
func readGrantedCall(c *wire.Cursor) *grantedCall {
	call := &onceCall{user: once.User{Name: c.Text(), Created: c.Uvarint()},
		id: slices.Clone(c.Bytes()), hash: c.Uint64()}
	reply := once.Reply{Call: call.hash, Proto: int(c.Byte()), Bytes: slices.Clone(c.Bytes())}
	if (reply.Proto != 2 && reply.Proto != 3) || len(call.id) == 0 || len(reply.Bytes) == 0 {
		c.Fail()
	}
	return &grantedCall{call, reply}
}

func (m *Machine) remember(c *grantedCall) {
	m.once.Remember(c.user, c.id, c.reply, m.ks.Now())
	m.ks.Fold(foldedCall(c.user, c.id, &c.reply))
}

// foldedCall is what goes into the running hash.
func foldedCall(by once.User, id []byte, r *once.Reply) []byte {
	text := wire.AppendBytes([]byte("once"), by.Name)
	text = binary.AppendUvarint(text, by.Created)
	text = wire.AppendBytes(text, id)
	text = binary.LittleEndian.AppendUint64(text, r.Call)
	text = append(text, byte(r.Proto))
	return wire.AppendBytes(text, r.Bytes)
}
