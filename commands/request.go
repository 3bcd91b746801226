package commands

import (
	"encoding/binary"
	"errors"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/wire"
)

// ErrCorruptRequest means that an encoded request cannot be decoded.
var ErrCorruptRequest = errors.New("commands: corrupt request")

// Request is what a connection hands to the machine: a command or a transaction. Its encoding is
// part of the log-entry format, whose version the entry carries.
type Request struct {
	DB    int
	Proto int // the client's protocol: 2 or 3
	Multi bool
	Woken bool // a blocking command that was woken and runs again
	// Behind is set for a new blocking command if others wait for the same keys. It reports errors,
	// but takes nothing.
	Behind bool
	// System means that Cmds[0] is no command of a client but a system request: a name (see
	// SettingNotify, SystemClaim and those beside them) and its arguments. The reply is OK or an
	// error, if the name says no other.
	System bool
	// Client identifies the client in the whole cluster, for the events that the request causes; 0
	// if no event needs it.
	Client uint64
	// User is the client's user, from LevelSecond on.
	User UserID
	// TellReads makes the reply begin with the keys that scripts read, see Answer.Read. It needs
	// LevelSecond.
	TellReads bool
	// Wait makes the machine keep a blocking command that finds nothing, and serve it in the entry
	// that brings something. nil: the client's node tries again. It needs LevelSecond.
	Wait *Wait
	// Holder is the client's connection, if Spec.Binds says so: a lease may end with it. It needs
	// LevelSecond.
	Holder *Holder
	Watch  []WatchedKey // only with Multi
	// Conditional means that the first of Cmds is EXEC with conditions, on which the others depend.
	// It needs Multi and LevelSecond.
	Conditional bool
	Cmds        [][][]byte // one, unless Multi
}

// Wait names a command that may wait in the machine.
type Wait struct {
	Node   []byte // id of the client's node
	Era    uint64 // era of the node's waits, see Place
	Number uint64 // unique in the cluster
	// Order is the command's place among all that wait, if it waited before; 0: it is new.
	Order uint64
}

// Holder names a connection that leases can be bound to.
type Holder struct {
	Node []byte // id of the client's node
	ID   uint64 // id of the connection, which is unique in the cluster
}

// UserID names a user by name and by the revision that created it, since a later user of the same
// name is another one. An empty Name means that nobody has authenticated: the default user, as long
// as it needs no password.
type UserID struct {
	Name    []byte
	Created uint64
}

// WatchedKey is a key that must not have changed since WATCH. Changed was its change revision then,
// 0 if it did not exist.
type WatchedKey struct {
	DB      int
	Key     []byte
	Changed keyspace.Revision
}

const (
	requestMulti = 1 << iota
	requestRESP3
	requestWoken
	requestSystem
	requestClient // the client's number follows the database
	requestBehind
	requestUser // the user's name and creation follow
	requestMore // another byte of flags follows the first, from LevelSecond on

	// in the second byte
	requestTellReads
	requestWait // node, era, number and order follow the user
	requestConditional
	requestHolder // node and connection follow what waits

	requestFlags = requestHolder<<1 - 1
)

// AppendRequest appends the encoding of r to dst.
func AppendRequest(dst []byte, r *Request) []byte {
	flags := 0
	if r.Multi {
		flags |= requestMulti
	}
	if r.Proto == 3 {
		flags |= requestRESP3
	}
	if r.Woken {
		flags |= requestWoken
	}
	if r.Behind {
		flags |= requestBehind
	}
	if r.System {
		flags |= requestSystem
	}
	if r.Client != 0 {
		flags |= requestClient
	}
	if r.User.Name != nil {
		flags |= requestUser
	}
	if r.TellReads {
		flags |= requestTellReads
	}
	if r.Wait != nil {
		flags |= requestWait
	}
	if r.Conditional {
		flags |= requestConditional
	}
	if r.Holder != nil {
		flags |= requestHolder
	}
	if more := byte(flags >> 8); more != 0 {
		dst = append(dst, byte(flags)|requestMore, more, byte(r.DB))
	} else {
		dst = append(dst, byte(flags), byte(r.DB))
	}
	if r.Client != 0 {
		dst = binary.AppendUvarint(dst, r.Client)
	}
	if r.User.Name != nil {
		dst = wire.AppendBytes(dst, r.User.Name)
		dst = binary.AppendUvarint(dst, r.User.Created)
	}
	if w := r.Wait; w != nil {
		dst = wire.AppendBytes(dst, w.Node)
		dst = binary.AppendUvarint(dst, w.Era)
		dst = binary.AppendUvarint(dst, w.Number)
		dst = binary.AppendUvarint(dst, w.Order)
	}
	if h := r.Holder; h != nil {
		dst = wire.AppendBytes(dst, h.Node)
		dst = binary.AppendUvarint(dst, h.ID)
	}
	if r.Multi {
		dst = binary.AppendUvarint(dst, uint64(len(r.Watch)))
		for _, w := range r.Watch {
			dst = append(dst, byte(w.DB))
			dst = wire.AppendBytes(dst, w.Key)
			dst = binary.AppendUvarint(dst, uint64(w.Changed))
		}
		dst = binary.AppendUvarint(dst, uint64(len(r.Cmds)))
	}
	for _, cmd := range r.Cmds {
		dst = wire.AppendList(dst, cmd)
	}
	return dst
}

// RequestReader decodes a batch of requests. It reuses its memory: what Next returns is valid until
// the next call.
type RequestReader struct {
	in   wire.Cursor
	req  Request
	wait Wait
	hold Holder
	args [][]byte
}

// Reset makes the reader start on batch.
func (r *RequestReader) Reset(batch []byte) { r.in = wire.NewCursor(batch) }

// More reports whether another request follows.
func (r *RequestReader) More() bool { return r.in.Len() > 0 }

// Rest returns what follows the requests that were read.
func (r *RequestReader) Rest() []byte { return r.in.Rest() }

// Next returns the next request. Its arguments are parts of the batch.
func (r *RequestReader) Next() (*Request, error) { return r.body(r.head()) }

// head reads a request up to its watched keys and commands.
func (r *RequestReader) head() (flags int) {
	q := &r.req
	flags = int(r.in.Byte())
	if flags&requestMore != 0 {
		more := r.in.Byte()
		if more == 0 {
			r.in.Fail()
		}
		flags |= int(more) << 8
	}
	q.DB = int(r.in.Byte())
	q.Client = 0
	if flags&requestClient != 0 {
		q.Client = r.in.Uvarint()
	}
	q.User = UserID{}
	if flags&requestUser != 0 {
		q.User = UserID{Name: r.in.Bytes(), Created: r.in.Uvarint()}
	}
	q.Wait = nil
	if flags&requestWait != 0 {
		r.wait = Wait{Node: r.in.Bytes(), Era: r.in.Uvarint(), Number: r.in.Uvarint(),
			Order: r.in.Uvarint()}
		q.Wait = &r.wait
	}
	q.Holder = nil
	if flags&requestHolder != 0 {
		r.hold = Holder{Node: r.in.Bytes(), ID: r.in.Uvarint()}
		q.Holder = &r.hold
	}
	return flags
}

// body reads what follows the head.
func (r *RequestReader) body(flags int) (*Request, error) {
	q := &r.req
	q.Multi, q.Woken, q.System = flags&requestMulti != 0, flags&requestWoken != 0,
		flags&requestSystem != 0
	q.Behind, q.TellReads = flags&requestBehind != 0, flags&requestTellReads != 0
	q.Conditional = flags&requestConditional != 0
	q.Proto = 2
	if flags&requestRESP3 != 0 {
		q.Proto = 3
	}
	q.Watch, q.Cmds, r.args = q.Watch[:0], q.Cmds[:0], r.args[:0]
	cmds := 1
	if q.Multi {
		for range r.in.Count(3) {
			w := WatchedKey{DB: int(r.in.Byte()), Key: r.in.Bytes()}
			w.Changed = keyspace.Revision(r.in.Uvarint())
			if w.DB >= keyspace.Databases {
				r.in.Fail()
			}
			q.Watch = append(q.Watch, w)
		}
		cmds = r.in.Count(2)
	}
	for range cmds {
		n := r.in.Count(1)
		start := len(r.args)
		for range n {
			r.args = append(r.args, r.in.Bytes())
		}
		if n == 0 {
			r.in.Fail()
		}
		q.Cmds = append(q.Cmds, r.args[start:len(r.args):len(r.args)])
	}
	if r.in.Failed() || q.DB >= keyspace.Databases || flags&^requestFlags != 0 ||
		(q.Multi && (q.Woken || q.Behind || q.System)) ||
		(q.Conditional && (!q.Multi || len(q.Cmds) == 0)) ||
		(q.Wait != nil && (q.Multi || q.System)) ||
		(q.Holder != nil && (len(q.Holder.Node) == 0 || q.Holder.ID == 0 || q.System)) {
		r.in.Fail()
		return nil, ErrCorruptRequest
	}
	return q, nil
}

// NextKey skips the next request and guesses which key it looks up first: its first argument, or
// that of its first command; of a script the first after the number of keys. key is nil if there is
// none.
func (r *RequestReader) NextKey() (db int, key []byte) {
	flags := r.head()
	if flags&requestMulti != 0 {
		q, err := r.body(flags)
		if err != nil || len(q.Cmds) == 0 || len(q.Cmds[0]) < 2 {
			return 0, nil
		}
		return q.DB, q.Cmds[0][1]
	}
	n := r.in.Count(1)
	if n == 0 {
		r.in.Fail()
		return 0, nil
	}
	at := 1
	if name := r.in.Bytes(); runsScript(name) {
		at = 3
	}
	for i := 1; i < n; i++ {
		if arg := r.in.Bytes(); i == at {
			key = arg
		}
	}
	if r.in.Failed() || r.req.DB >= keyspace.Databases {
		return 0, nil
	}
	return r.req.DB, key
}

// runsScript reports whether a command's name begins as those of EVAL, EVALSHA and FCALL do.
func runsScript(name []byte) bool {
	return len(name) >= 4 && (name[0]|' ' == 'e' && name[1]|' ' == 'v' ||
		name[0]|' ' == 'f' && name[1]|' ' == 'c')
}
