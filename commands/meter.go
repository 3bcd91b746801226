// The bound on the work of a request (docs/adr/0017-bounded-requests.md). A command is charged for
// its arguments, for each element that it replies, and for what its handler spends. If it exceeds
// the bound, it is refused: a panic at the charge, which Handle turns into an error, so no loop has
// to check. A command is refused only while it has changed nothing. So a handler spends before it
// changes: at once what it knows up front, the rest while it walks.
//
// Every node charges the same, whether it builds the reply or not: the size of the reply is
// computed, not measured.

package commands

import (
	"math"
	"math/bits"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// refusal is the panic of a refused command.
type refusal struct{ err Error }

// Charges in units of Env.Work. Benchmarks in commands and fsm check them against real time.
const (
	commandWork = 8  // a command: lookup, call, frame of the reply
	readArg     = 8  // an argument of a command that reads: parsed, hashed, looked up
	writeArg    = 14 // … that writes: also copied, stored, put into trees
	cheapArg    = 4  // … that only keeps it or passes it on: Spec.ArgWork
	replyWork   = 5  // an element of a reply: found, written
	replyBytes  = 16 // bytes of a reply per unit
	walkedWork  = 3  // an element of a tree that is walked
	doubleWork  = 6  // a floating-point number formatted
	decimalWork = 16 // … with up to 17 decimals
)

// Handle calls the handler of spec, which must have one, with x.Args. From LevelSecond on it
// charges and bounds the command.
func (x *Call) Handle(spec *Spec) error {
	x.Spec, x.began = spec, x.Work
	if x.Witness != nil {
		x.Witness.begin(x, spec)
	}
	if x.Runs != nil && spec.Kind == Write {
		x.Runs(spec)
	}
	return x.bounded()
}

// bounded calls the handler, from LevelSecond on within its bounds.
func (x *Call) bounded() (err error) {
	spec := x.Spec
	if x.Level < LevelSecond {
		return spec.Handler(x)
	}
	out := x.meter.begin(x)
	defer func() {
		x.Out, x.meter.out = out, nil
		switch p := recover().(type) {
		case nil:
		case refusal:
			if err = p.err; err == ErrCommandWork {
				err = ErrRequestWork
			}
		default:
			panic(p)
		}
	}()
	x.spendArgs()
	if x.NeedsMemory(spec) {
		return ErrOOM
	}
	if err = spec.Handler(x); err == ErrCommandWork {
		err = ErrRequestWork
	}
	return err
}

// spendArgs charges for the command and its arguments.
func (x *Call) spendArgs() {
	each, size := readArg, 0
	switch {
	case x.Spec.ArgWork > 0:
		each = x.Spec.ArgWork
	case x.Spec.Kind == Write:
		each = writeArg
	}
	for _, a := range x.Args {
		size += len(a)
	}
	args := len(x.Args) - 1
	if k := x.Spec.Keys; k.First == 1 && k.Last != 1 {
		// all are keys, or keys with arguments in between
		each += 2 * deep(x.DB().Size()) / max(k.Step, 1)
	}
	x.Spend(commandWork + args*each + size/bytesSpent)
	x.expectNotifications(size)
}

// deep returns the extra units of a random lookup among n elements, when they do not fit into the
// processor's caches.
func deep(n int) int {
	const cached = 12
	return max(bits.Len(uint(n))-cached, 0)
}

// Spend adds to Env.Work. A handler whose time is not proportional to its arguments and reply calls
// it before it changes anything. units must be the same on every node, since it decides where
// requests are refused and scripts are stopped. So it must not depend on how a value came about,
// such as the capacity of a slice. From LevelSecond on Spend does not return if the command is
// refused.
func (x *Call) Spend(units int) {
	x.Work += uint64(max(units, 0))
	if x.Work > x.meter.stop {
		x.refuse(ErrCommandWork)
	}
}

// spendLookups adds the work of looking up each argument after the key in a collection of n
// elements, and of changing it if the command writes, beyond the charge for any argument. A small
// collection is searched linearly, a large one is a tree.
func (x *Call) spendLookups(n int) {
	args := len(x.Args) - 2
	if x.Level < LevelSecond || args <= 0 || !x.oneKey() {
		return
	}
	if x.Spec.Kind == Write {
		n += args
	}
	if depth := bits.Len(uint(n)); depth > smallDepth {
		x.Spend(args * (depth - smallDepth/2 + 2*deep(n)))
	}
}

// oneKey reports whether the command has a single key, so that the other arguments may name its
// elements.
func (x *Call) oneKey() bool { return x.Spec.Keys.First == 1 && x.Spec.Keys.Last == 1 }

// walked adds the work of a step to the next element of a tree.
func (x *Call) walked() {
	if x.Level >= LevelSecond {
		x.Spend(walkedWork)
	}
}

// spendNumber adds the work of parsing a floating-point number of n bytes, if it is a long one.
func (x *Call) spendNumber(n int) {
	const short = 40
	if x.Level >= LevelSecond && n > short {
		x.Spend(min(n, maxFloatText) / 6)
	}
	if n > maxFloatText { // which is no number, but is looked over
		x.spendBytesOf(n)
	}
}

// smallDepth is the depth of a tree that stays in the processor's cache.
const smallDepth = 8

// Left returns how many units the command may still spend.
func (x *Call) Left() int {
	stop := x.meter.stop
	if x.Level < LevelSecond {
		stop = x.Work + MaxRequestWork
	}
	if x.Most > 0 {
		stop = min(stop, x.Most)
	}
	return int(stop - min(stop, x.Work))
}

// Expect refuses the command if a reply of that many elements, with that many bytes in them, would
// not fit or be too much work. A handler that changes something before it replies calls it first.
func (x *Call) Expect(elements, bytes int) {
	m := &x.meter
	if m.out == nil {
		return
	}
	const head = scriptElement // overhead of an element in bytes, at most
	if m.bytes+bytes+head*elements > m.room {
		x.refuse(ErrReplySize)
	}
	x.Ahead(replyWork*elements + bytes/replyBytes)
}

// Ahead refuses the command if it may not spend that many units more.
func (x *Call) Ahead(units int) {
	if x.Work+uint64(units) > x.meter.stop {
		x.refuse(ErrCommandWork)
	}
}

// RoomLeft returns how many bytes the command may still reply.
func (x *Call) RoomLeft() int { return x.meter.room - x.meter.bytes }

// Commit marks a change outside the keyspace: the command is not refused any more. Changes of the
// keyspace need no Commit.
func (x *Call) Commit() { x.meter.committed = true }

// refuse ends the command with err if it has changed nothing. A read that may do less than others
// is aborted instead.
func (x *Call) refuse(err Error) {
	m := &x.meter
	if x.Most > 0 && err == ErrCommandWork && (m.out != nil || x.Work > x.Most) {
		x.Aborted = true
		panic(keyspace.ErrClosed)
	}
	if m.out == nil || m.committed || x.Keyspace != nil && x.Keyspace.Edits() != m.edits {
		return
	}
	if r, ok := m.out.(*RESP); ok {
		r.Buf = r.Buf[:m.start]
	}
	m.bytes, m.refused = 0, err
	panic(refusal{err})
}

// meter is the Reply of a bounded command: it charges for what passes and counts the bytes.
type meter struct {
	out       Reply // nil: not bounded
	x         *Call
	stop      uint64 // Env.Work past which the command is refused
	room      int    // for the reply, bytes
	bytes     int    // length of the reply so far
	start     int    // start of the reply in the buffer
	edits     uint64 // Keyspace.Edits when the command began
	committed bool
	refused   Error
}

// begin makes the meter the Reply of x and returns the previous one.
func (m *meter) begin(x *Call) Reply {
	out := x.Out
	*m = meter{out: out, x: x, stop: x.Stop, room: x.Room}
	if m.stop == 0 {
		m.stop = x.Work + x.RequestWork()
	}
	if m.room == 0 {
		m.room = MaxReplyBytes
	}
	if x.Keyspace != nil {
		m.edits = x.Keyspace.Edits()
	}
	if r, ok := out.(*RESP); ok {
		m.start = len(r.Buf)
	}
	x.Out = m
	return out
}

// ReplySize returns the size of the command's reply in bytes, also on a node that builds none.
// refused reports whether the command was refused, and so changed nothing, because its reply
// exceeded Call.Room; then n counts the error that Run wrote.
func (x *Call) ReplySize() (n int, refused bool) {
	return x.meter.bytes, x.meter.refused == ErrReplySize
}

// charge charges for an element of that many bytes.
func (m *meter) charge(units, bytes int) {
	if m.bytes += bytes; m.bytes > m.room {
		m.x.refuse(ErrReplySize)
	}
	m.x.Spend(units + bytes/replyBytes)
}

// Overhead of an element in bytes. What scripts receive is counted as their memory budget counts
// it.
const (
	scriptElement = 16
	lineBytes     = 3 // type byte and line end
)

// digits returns the length of n in decimal.
func digits(n int64) int {
	size := 1
	if n < 0 {
		size++
	}
	for n /= 10; n != 0; n /= 10 {
		size++
	}
	return size
}

// text charges for an element that is a line or a bulk string.
func (m *meter) text(n int, bulk bool) {
	switch {
	case m.x.Tx.Script:
		m.charge(replyWork, n)
	case bulk:
		m.charge(replyWork, n+2+lineBytes+digits(int64(n)))
	default:
		m.charge(replyWork, n+lineBytes)
	}
}

// open charges for the head of an array, set or map.
func (m *meter) open(n, elements int) {
	if m.x.Tx.Script {
		m.charge(replyWork, scriptElement*elements)
		return
	}
	if m.x.Tx.Proto != 3 {
		n = elements
	}
	m.charge(replyWork, lineBytes+digits(int64(n)))
}

// Status writes a simple string.
func (m *meter) Status(s string) {
	m.text(len(s), false)
	m.out.Status(s)
}

// Error writes an error.
func (m *meter) Error(msg string) {
	m.text(len(trimmed(msg)), false)
	m.out.Error(msg)
}

// Int writes an integer.
func (m *meter) Int(n int64) {
	m.text(digits(n), false)
	m.out.Int(n)
}

// Bulk writes a bulk string.
func (m *meter) Bulk(b []byte) {
	m.text(len(b), true)
	m.out.Bulk(b)
}

// BulkString writes a bulk string.
func (m *meter) BulkString(s string) {
	m.text(len(s), true)
	m.out.BulkString(s)
}

// null charges for a null.
func (m *meter) null() {
	if m.x.Tx.Proto == 3 {
		m.text(0, false)
	} else {
		m.text(2, false)
	}
}

// Null writes the absence of a value.
func (m *meter) Null() {
	m.null()
	m.out.Null()
}

// NullArray writes the absence of an array.
func (m *meter) NullArray() {
	m.null()
	m.out.NullArray()
}

// Array opens an array of n elements.
func (m *meter) Array(n int) {
	m.open(n, n)
	m.out.Array(n)
}

// Map opens a map.
func (m *meter) Map(pairs int) {
	m.open(pairs, 2*pairs)
	m.out.Map(pairs)
}

// Set opens a set.
func (m *meter) Set(n int) {
	m.open(n, n)
	m.out.Set(n)
}

// Push opens a push message.
func (m *meter) Push(n int) {
	m.open(n, n)
	m.out.Push(n)
}

// Double writes a double.
func (m *meter) Double(f float64) {
	var buf [32]byte
	text := appendFloat(buf[:0], f)
	m.x.Spend(doubleWork)
	m.text(len(text), m.x.Tx.Proto != 3)
	if r, ok := m.out.(*RESP); ok {
		r.double(text)
	} else {
		m.out.Double(f)
	}
}

// Decimal writes a double.
func (m *meter) Decimal(f float64) {
	text := FormatDecimal(f)
	m.x.Spend(decimalWork)
	m.text(len(text), m.x.Tx.Proto != 3)
	if r, ok := m.out.(*RESP); ok {
		r.double([]byte(text))
	} else {
		m.out.Decimal(f)
	}
}

// Bool writes a boolean.
func (m *meter) Bool(b bool) {
	m.text(1, false)
	m.out.Bool(b)
}

// BigNumber writes an integer of any size.
func (m *meter) BigNumber(digits string) {
	m.text(len(digits), m.x.Tx.Proto != 3)
	m.out.BigNumber(digits)
}

// Verbatim writes a text with its format.
func (m *meter) Verbatim(format, text string) {
	n := len(text)
	if m.x.Tx.Proto == 3 {
		n += 4
	}
	m.text(n, true)
	m.out.Verbatim(format, text)
}

var _ Reply = (*meter)(nil)

// ReplySizer is a Reply that only counts the bytes that RESP would write.
type ReplySizer struct{ meter }

// NewReplySizer returns a sizer. Call Begin before its first reply.
func NewReplySizer() *ReplySizer {
	x := &Call{Env: &Env{}, Tx: &Tx{}}
	x.meter.stop = math.MaxUint64
	return &ReplySizer{meter{out: Discard{}, x: x, room: math.MaxInt}}
}

// Begin starts a reply in protocol version proto, 2 or 3.
func (z *ReplySizer) Begin(proto int) { z.bytes, z.x.Work, z.x.Tx.Proto = 0, 0, proto }

// Size returns the number of bytes counted.
func (z *ReplySizer) Size() int { return z.bytes }

// Reserve grows the buffer for n more bytes of the reply at once, instead of step by step. It does
// nothing if they will not fit or no reply is built.
func (x *Call) Reserve(n int) {
	out := x.Out
	if m, ok := out.(*meter); ok {
		out = m.out
	}
	if r, ok := out.(*RESP); ok && (r.Limit == 0 || len(r.Buf)+n <= r.Limit) {
		r.Buf = slices.Grow(r.Buf, n)
	}
}

// resp returns the buffer of the reply, past the meter, or nil if none is built. n bytes go to it,
// or would.
func (x *Call) resp(n int) *RESP {
	out := x.Out
	if m, ok := out.(*meter); ok {
		m.charge(replyWork, n)
		out = m.out
	}
	r, _ := out.(*RESP)
	return r
}

// MaxRequestWork bounds the work of a request, that is a command, a script or a transaction, in
// units of Env.Work: a quarter of a second. Every node replays entries after a restart, and serves
// nobody meanwhile.
const MaxRequestWork = 10_000_000

// RequestWork is what a request may do, from LevelSecond on.
func (e *Env) RequestWork() uint64 { return max(e.Times, 1) * MaxRequestWork }

// maxCommandWork is the bound for one command below LevelSecond.
const maxCommandWork = 1 << 26

// ErrCommandWork refuses a command that does more work than a request may.
const ErrCommandWork Error = "ERR the command goes over too much data, nothing was changed"

// ErrRequestWork is ErrCommandWork from LevelSecond on, where a setting decides.
const ErrRequestWork = ErrCommandWork + moreWork

const moreWork = " (CONFIG SET " + SettingRequestWork + " allows more)"

// overworked reports whether the command has exceeded its work. The handler then stops and returns
// ErrCommandWork. From LevelSecond on Spend stops it, unless it has changed something.
func (x *Call) overworked() bool {
	if x.Level >= LevelSecond {
		return x.Work > x.meter.stop
	}
	return x.Work-x.began > maxCommandWork
}

// bytesSpent is how many bytes of a value a unit of work hashes or copies.
const bytesSpent = 64

// spendBytes adds the work of hashing or copying n bytes of a value.
func (x *Call) spendBytes(n int) { x.Spend(n / bytesSpent) }

// spendBytesOf is spendBytes for stored names and values that release 0.1 hashed, compared or
// copied without a charge.
func (x *Call) spendBytesOf(n int) {
	if x.Level >= LevelSecond {
		x.spendBytes(n)
	}
}

// nameWork returns the work of hashing, copying or comparing a name of size bytes n times. Release
// 0.1 did not charge for it.
func (x *Call) nameWork(n, size int) int {
	if x.Level < LevelSecond {
		return 0
	}
	return n * (size / bytesSpent)
}

// spendDead adds the work of skipping expired keys that are not swept yet, for who looks at so many
// keys at most. Counting those with a deadline of their own would take as long, so one expired key
// charges for all. A collection is looked into, and so each whose elements expire is charged for
// itself.
func (x *Call) spendDead(most int) {
	atMs, ok := x.Keyspace.NextDeadline()
	switch {
	case !ok || atMs >= x.Keyspace.Now():
	case x.Level < LevelSecond:
		x.Spend((x.DB().Volatile() + x.DB().VolatileCollections()) / 8)
	default:
		x.Spend(x.DB().Volatile()/8 + lookedInto*x.DB().PassedCollections(most))
	}
}

// lookedInto is the cost of finding out whether all elements of a collection have expired, in units
// of Env.Work.
const lookedInto = 4
