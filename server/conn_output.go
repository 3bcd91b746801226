// The output of a session: replies and messages in one order. A session without subscriptions
// writes its own replies. From its first subscription on, everything goes through a queue, so that
// delivering a message never waits for a client. Whoever has queued something writes what the
// socket takes at once, and a goroutine writes the rest.

package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/coordd/coordd/internal/lockorder"
)

var errKilled = errors.New("server: the connection was closed")

const (
	// softReplyBytes is the size of unread replies at which a subscribed client's commands wait.
	softReplyBytes = 1 << 20
	// steadyBytes is the size of one write: a slow client that keeps reading parts of a large
	// reply is not idle.
	steadyBytes = 256 << 10
	// writeBytes is what is gathered for one write. Larger messages are written in place.
	writeBytes = 32 << 10
	// keptItems is the capacity that an empty queue keeps.
	keptItems = 256
)

type output struct {
	conn   net.Conn
	limit  func() int     // bytes of messages that may wait
	sent   *atomic.Uint64 // byte counter
	beats  *atomic.Uint32 // incremented by each write
	memory *account       // charged for queued output as memoryOutput

	mu      lockorder.Mutex
	wake    sync.Cond
	queued  bool // everything goes through queue
	writing bool // somebody writes, and then sees what was queued meanwhile
	holds   bool // messages wait in held until the current replies are queued
	owes    bool // … and these do not have the reply yet that messages wait for
	shut    bool // accepts no more messages
	dead    bool // writes nothing more
	over    bool // dead because messages exceeded the limit
	ended   bool // the account is closed
	// how the client reads what is queued next: changes after the reply that says so
	as       framing
	queue    []item // waiting to be written
	first    int    // index in queue; items before it are written
	held     []*message
	bytes    int // what queue and the current write hold
	holding  int // bytes of held
	inFlight []item
	since    time.Time       // when items were last taken to be written
	moved    time.Time       // when the client last took all of those
	raw      syscall.RawConn // set by open; nil: what is written waits for the client
	wg       *sync.WaitGroup // set by open: waits for the goroutine that writes
}

// item is a message and its head, or a reply.
type item struct {
	m    *message
	head string
}

func (i *item) bytes() int { return i.m.size() + referenceCost }

func (o *output) init(conn net.Conn, limit func() int, sent *atomic.Uint64, beats *atomic.Uint32,
	memory *account) {
	o.conn, o.limit, o.sent, o.beats, o.memory = conn, limit, sent, beats, memory
	o.as.proto = 2
	o.wake.L = &o.mu
}

// itemCost is the size of an item in a queue.
const itemCost = int(unsafe.Sizeof(item{}))

// account charges for queued output. Messages count in full for each client, as in Redis, although
// they are shared. The caller holds mu.
func (o *output) account() {
	if !o.ended {
		o.memory.set(memoryOutput, o.bytes+o.holding+(cap(o.queue)+cap(o.inFlight))*itemCost)
	}
}

// writeChunks writes to the connection piece by piece.
func (o *output) writeChunks(b []byte) error {
	for len(b) > 0 {
		n, err := o.conn.Write(b[:min(len(b), steadyBytes)])
		o.sent.Add(uint64(n))
		o.beats.Add(1)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// write sends replies, followed by the held messages unless holdOn is set. The client reads
// whatever follows the replies as f says. On return b belongs to the caller again, unless its
// capacity exceeds maxBatchBytes.
func (o *output) write(b []byte, holdOn bool, f framing) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.as = f
	if !o.queued {
		return o.writeNow(b)
	}
	if o.dead { // nobody would write it, and end would wait for that
		return errKilled
	}
	o.reply(b)
	if !holdOn && !o.owes {
		o.releaseHeld()
	}
	o.account()
	o.flush()
	for !o.dead && o.bytes > softReplyBytes {
		o.wake.Wait()
	}
	if o.dead {
		return errKilled
	}
	return nil
}

// writeNow writes directly, before there is a queue. If one is created meanwhile, its items follow
// b. The caller holds mu.
func (o *output) writeNow(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	o.writing = true
	o.mu.Unlock()
	err := o.writeChunks(b)
	o.mu.Lock()
	o.writing = false
	o.flush()
	return err
}

// reply queues replies. The caller holds mu.
func (o *output) reply(b []byte) {
	if len(b) == 0 {
		return
	}
	if last := len(o.queue) - 1; last >= o.first && o.queue[last].m.reply &&
		len(o.queue[last].m.body)+len(b) <= writeBytes {
		m := o.queue[last].m
		m.body = append(m.body, b...)
		o.bytes += len(b)
		return
	}
	if cap(b) <= maxBatchBytes { // otherwise the session gives it up: see send
		b = bytes.Clone(b)
	}
	o.put(item{m: &message{reply: true, body: b}})
}

// put queues an item. The caller holds mu.
func (o *output) put(i item) {
	i.m.retain()
	o.queue = append(o.queue, i)
	o.bytes += i.bytes()
}

// releaseHeld queues the held messages. The caller holds mu.
func (o *output) releaseHeld() {
	for _, m := range o.held {
		if head, sent := m.head(o.as); sent {
			o.put(item{m, head})
		}
		m.release()
	}
	o.held, o.holding, o.holds = nil, 0, false
}

// dropHeld drops the held messages that f reports.
func (o *output) dropHeld(f func(*message) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.held[:0]
	for _, m := range o.held {
		if !f(m) {
			kept = append(kept, m)
			continue
		}
		o.holding -= m.size() + referenceCost
		m.release()
	}
	clear(o.held[len(kept):])
	o.held = kept
	o.account()
}

// direct lets f write to the connection itself, for a reply too large to buffer. What was queued
// before is written first, and messages wait until f returns.
func (o *output) direct(f func(w io.Writer) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.flush(); !o.dead && (o.writing || o.first < len(o.queue)); {
		o.wake.Wait()
	}
	if o.dead {
		return errKilled
	}
	o.writing = true
	o.mu.Unlock()
	err := f(o.conn)
	o.mu.Lock()
	o.writing = false
	if err != nil {
		o.drop() // nothing may follow half a reply
	}
	o.flush()
	o.wake.Broadcast()
	return err
}

// hold makes messages wait for the next write, and has the output queued from now on. It returns
// false if the connection has ended.
func (o *output) hold(wg *sync.WaitGroup) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds = true
	o.start(wg)
	return !o.dead
}

// holdFor is hold until the write behind pay: the reply for which messages wait comes from
// elsewhere, and the session may be writing others.
func (o *output) holdFor(wg *sync.WaitGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds, o.owes = true, true
	o.start(wg)
}

// pay says that the session has the reply of holdFor.
func (o *output) pay() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owes = false
}

// open has the output queued from now on, so that messages can be pushed. Other sessions may call
// it.
func (o *output) open(wg *sync.WaitGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.start(wg)
}

func (o *output) start(wg *sync.WaitGroup) {
	if o.queued || o.dead {
		return
	}
	o.queued, o.wg = true, wg
	if c, ok := o.conn.(syscall.Conn); ok {
		o.raw, _ = c.SyscallConn()
	}
}

// push queues a message. It never blocks. unsent asks the caller to call flushQueued later. over
// reports that the limit is exceeded and the connection must end.
func (o *output) push(m *message) (unsent, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.shut {
		return false, false
	}
	head, sent := m.head(o.as)
	if !sent && !o.holds {
		return false, false
	}
	cost, limit := m.size()+referenceCost, o.limit()
	if o.bytes+o.holding+cost > limit {
		o.drop()
		return false, true
	}
	if o.holds {
		m.retain()
		o.held = append(o.held, m)
		o.holding += cost
	} else {
		unsent = !o.writing && o.first == len(o.queue)
		o.put(item{m, head})
		if o.bytes >= min(yieldBytes, limit/2) {
			o.flush() // the limit is for what the socket does not take
		}
	}
	o.account()
	return unsent, false
}

// cutOff ends the output and drops the queue. The connection must end.
func (o *output) cutOff() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop()
}

// drop is cutOff for a caller that holds mu.
func (o *output) drop() {
	if !o.over {
		o.release() // they count as written
	}
	o.dead, o.over = true, true
	o.forget()
	for _, m := range o.held {
		m.release()
	}
	o.held, o.holding = nil, 0
	o.account()
	o.wake.Broadcast()
}

// forget empties the queue. The caller holds mu.
func (o *output) forget() {
	for i := o.first; i < len(o.queue); i++ {
		o.bytes -= o.queue[i].bytes()
		o.queue[i].m.release()
	}
	o.queue, o.first = nil, 0
}

// shutOut accepts no more messages. Queued ones are still written.
func (o *output) shutOut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
}

// flushQueued writes what push has queued. It never blocks.
func (o *output) flushQueued() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
}

// flush writes what the socket takes at once, and leaves the rest to a goroutine. The caller holds
// mu, which is released meanwhile.
func (o *output) flush() {
	if o.writing || o.first == len(o.queue) {
		return
	}
	o.writing = true
	size := o.dequeue()
	var rest []byte
	if o.raw != nil && size <= writeBytes {
		o.mu.Unlock()
		var err error
		rest, err = o.sendReady(o.inFlight)
		o.mu.Lock()
		if len(rest) == 0 || o.over {
			o.landed(err)
		}
	}
	if len(o.inFlight) > 0 || o.first < len(o.queue) {
		o.wg.Add(1) // end waits for the queue, and the session's own count for end
		go o.pump(rest)
		return
	}
	o.writing = false
	o.wake.Broadcast()
}

// pump writes what is in flight, or the rest of it, and the queue.
func (o *output) pump(rest []byte) {
	defer o.wg.Done()
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.inFlight) > 0 || o.first < len(o.queue) {
		if len(o.inFlight) == 0 {
			o.dequeue()
		}
		o.mu.Unlock()
		var err error
		if len(rest) > 0 {
			err = o.writeChunks(rest)
			rest = nil
		} else {
			err = o.send(o.inFlight)
		}
		o.mu.Lock()
		o.landed(err)
	}
	o.writing = false
	o.wake.Broadcast()
}

// dequeue moves the next items to inFlight: enough for one write, or one larger item. It returns
// their size. The caller holds mu.
func (o *output) dequeue() (size int) {
	at := o.first
	for at < len(o.queue) && (at == o.first ||
		size+len(o.queue[at].head)+len(o.queue[at].m.body) <= writeBytes) {
		size += len(o.queue[at].head) + len(o.queue[at].m.body)
		at++
	}
	o.since = time.Now()
	o.inFlight = append(o.inFlight[:0], o.queue[o.first:at]...)
	clear(o.queue[o.first:at])
	switch o.first = at; {
	case at == len(o.queue) && cap(o.queue) > keptItems:
		o.queue, o.first = nil, 0
	case at == len(o.queue):
		o.queue, o.first = o.queue[:0], 0
	case at > keptItems && at > len(o.queue)/2:
		// move only when at least as much is written as waits
		o.queue, o.first = append([]item(nil), o.queue[at:]...), 0
	}
	return size
}

// release counts the current items as written. The caller holds mu.
func (o *output) release() {
	for i := range o.inFlight {
		o.bytes -= o.inFlight[i].bytes()
		o.inFlight[i].m.release()
	}
}

// landed forgets the written items, or with an error everything. The caller holds mu.
func (o *output) landed(err error) {
	if !o.over {
		o.release()
	}
	clear(o.inFlight)
	if o.inFlight = o.inFlight[:0]; cap(o.inFlight) > keptItems {
		o.inFlight = nil
	}
	if err != nil {
		o.dead = true
		o.forget()
	} else {
		o.moved = time.Now()
	}
	o.account()
	o.wake.Broadcast()
}

// writeBuffer gathers items for one write.
type writeBuffer struct {
	b     []byte
	write func(fd uintptr) bool // writes b as far as the socket takes it, for syscall.RawConn
	n     int                   // bytes written
	err   error
}

var writeBuffers = sync.Pool{New: func() any {
	w := &writeBuffer{b: make([]byte, 0, writeBytes)}
	w.write = func(fd uintptr) bool {
		for {
			if w.n, w.err = syscall.Write(int(fd), w.b); w.err != syscall.EINTR {
				return true
			}
		}
	}
	return w
}}

// sendReady writes items of writeBytes at most as far as the socket takes them at once, and returns
// a copy of the rest.
func (o *output) sendReady(items []item) (rest []byte, err error) {
	w := writeBuffers.Get().(*writeBuffer)
	defer writeBuffers.Put(w)
	w.b = w.b[:0]
	for i := range items {
		w.b = append(append(w.b, items[i].head...), items[i].m.body...)
	}
	if err := o.raw.Write(w.write); err != nil {
		return nil, err
	}
	n := max(w.n, 0)
	o.sent.Add(uint64(n))
	o.beats.Add(1)
	if w.err != nil && w.err != syscall.EAGAIN {
		return nil, w.err
	}
	return bytes.Clone(w.b[n:]), nil
}

// send writes items: small ones in one write.
func (o *output) send(items []item) error {
	if len(items) == 1 && items[0].head == "" {
		return o.writeChunks(items[0].m.body)
	}
	w := writeBuffers.Get().(*writeBuffer)
	defer writeBuffers.Put(w)
	b := w.b[:0]
	for i := range items {
		b = append(b, items[i].head...)
		if body := items[i].m.body; len(b)+len(body) <= writeBytes {
			b = append(b, body...)
			continue
		}
		if err := o.writeChunks(b); err != nil { // the only item
			return err
		}
		b = b[:0]
		if err := o.writeChunks(items[i].m.body); err != nil {
			return err
		}
	}
	return o.writeChunks(b)
}

// waiting returns the number of bytes that wait for the client.
func (o *output) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes + o.holding
}

// readsLately is how long ago a client that reads took what was written to it.
const readsLately = 100 * time.Millisecond

// stalled returns how much of what waits for all goes if this output does, and since when the
// client has read nothing. Replies are the client's own and not part of that. holds lacks what is
// being written to a client that reads: it may have arrived.
func (o *output) stalled() (frees, holds int64, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		for i := range o.inFlight {
			frees += o.inFlight[i].m.share()
		}
	}
	if time.Since(o.moved) < readsLately {
		holds -= frees
	}
	for i := o.first; i < len(o.queue); i++ {
		frees += o.queue[i].m.share()
	}
	for _, m := range o.held {
		frees += m.share()
	}
	return frees, holds + frees, o.since
}

// freeBuffers frees buffers kept for later messages.
func (o *output) freeBuffers() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.queue, o.first = nil, 0
	}
	if len(o.inFlight) == 0 {
		o.inFlight = nil
	}
	o.account()
}

// closeAccount closes the account of queued output, after drain.
func (o *output) closeAccount() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.memory.set(memoryOutput, 0)
}

// drain returns when the queue is written. To bound that, the caller sets a deadline or closes the
// connection.
func (o *output) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dead = true
	for !o.over && (o.writing || o.first < len(o.queue)) {
		o.wake.Wait()
	}
	for _, m := range o.held {
		m.release()
	}
	o.held, o.holding = nil, 0
}
