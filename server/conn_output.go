package server

// This file holds the way out of a session: replies and messages in one order. A session without subscriptions writes its replies
// itself. From its first subscription on, a goroutine writes what lies in a queue, so that who delivers a message never
// waits for a client.

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

var (
	errKilled    = errors.New("server: the connection was closed")
	errNotDirect = errors.New("server: messages are sent to this connection")
)

const (
	// softReplyBytes of replies may wait for a client that subscribed and does not read, before its commands wait.
	softReplyBytes = 1 << 20
	// steadyBytes is what is written at once: a slow client that goes on taking parts of a large reply is no idle one.
	steadyBytes = 256 << 10
	// writeBytes is what the writer goroutine gathers for one write. Larger messages are written from where they lie.
	writeBytes = 32 << 10
	// keptItems is for how many items a queue keeps its room when it is empty.
	keptItems = 256
)

type output struct {
	conn   net.Conn
	limit  func() int     // bytes of messages that may wait
	sent   *atomic.Uint64 // counts bytes
	beats  *atomic.Uint32 // rises with each write
	memory *account       // has what waits here as memoryOutput

	mu       sync.Mutex
	wake     sync.Cond
	queued   bool    // the writer goroutine runs: all goes through queue
	writing  bool    // the session writes to the connection itself: the writer waits
	holds    bool    // messages wait in held until the replies under way are queued
	shut     bool    // no more messages are taken
	dead     bool    // nothing is written any more
	over     bool    // dead because messages passed the limit
	ended    bool    // the account is closed
	as       framing // how the client reads what is queued now: it changes behind the reply that says so
	queue    []item  // waits for the writer
	first    int     // in queue; those before it are written
	held     []*message
	bytes    int // of queue and of what is being written
	holding  int // bytes of held
	inFlight []item
	since    time.Time // when the writer last took items
}

// item is a message with the head that goes before it, or a reply.
type item struct {
	m    *message
	head string
}

func (i *item) bytes() int { return i.m.size() + referenceCost }

func (o *output) init(conn net.Conn, limit func() int, sent *atomic.Uint64, beats *atomic.Uint32, memory *account) {
	o.conn, o.limit, o.sent, o.beats, o.memory = conn, limit, sent, beats, memory
	o.as.proto = 2
	o.wake.L = &o.mu
}

// itemCost is what an item takes in a queue.
const itemCost = int(unsafe.Sizeof(item{}))

// account tells what waits. Messages count in full for each client, as on Redis, though they are shared. The caller holds mu.
func (o *output) account() {
	if !o.ended {
		o.memory.set(memoryOutput, o.bytes+o.holding+(cap(o.queue)+cap(o.inFlight))*itemCost)
	}
}

// steadily writes to the connection piece by piece.
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

// write sends replies; the messages that were held follow them, unless they are to be held on. The client reads what follows the replies as f says. b is
// the caller's again when it returns, unless it has room for more than maxRunBytes.
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
	if !holdOn {
		o.releaseHeld()
	}
	o.account()
	o.wake.Broadcast()
	for !o.dead && o.bytes > softReplyBytes {
		o.wake.Wait()
	}
	if o.dead {
		return errKilled
	}
	return nil
}

// writeNow writes past the queue, which does not exist yet. Should it come to exist meanwhile, what it gets goes behind b. The caller holds mu.
func (o *output) writeNow(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	o.writing = true
	o.mu.Unlock()
	err := o.writeChunks(b)
	o.mu.Lock()
	o.writing = false
	if o.queued {
		o.wake.Broadcast()
	}
	return err
}

// reply queues replies. The caller holds mu.
func (o *output) reply(b []byte) {
	if len(b) == 0 {
		return
	}
	if last := len(o.queue) - 1; last >= o.first && o.queue[last].m.reply && len(o.queue[last].m.body)+len(b) <= writeBytes {
		m := o.queue[last].m
		m.body = append(m.body, b...)
		o.bytes += len(b)
		return
	}
	if cap(b) <= maxBatchBytes { // else the session lets go of it: see send
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

// letGo queues the messages that were held. The caller holds mu.
func (o *output) releaseHeld() {
	for _, m := range o.held {
		if head, sent := m.head(o.as); sent {
			o.put(item{m, head})
		}
		m.release()
	}
	o.held, o.holding, o.holds = nil, 0, false
}

// direct lets f write to the connection itself, a reply that is too large to be kept. Messages wait until f returns. It fails without a
// call of f where a writer goroutine runs.
func (o *output) direct(f func(w io.Writer) error) error {
	o.mu.Lock()
	if o.queued || o.dead {
		o.mu.Unlock()
		return errNotDirect
	}
	o.holds = true
	o.mu.Unlock()
	err := f(o.conn)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseHeld() // another session may have had a message for this one, and started the goroutine
	o.account()
	o.wake.Broadcast()
	return err
}

// hold makes messages wait for the next write, and starts the writer goroutine if it does not run. It returns false
// where the connection has ended.
func (o *output) hold(wg *sync.WaitGroup) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds = true
	o.start(wg)
	return !o.dead
}

// open starts the writer goroutine if it does not run, so that messages can be pushed. Another session may call it.
func (o *output) open(wg *sync.WaitGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.start(wg)
}

func (o *output) start(wg *sync.WaitGroup) {
	if o.queued || o.dead {
		return
	}
	o.queued = true
	wg.Add(1)
	go func() {
		defer wg.Done()
		o.pump()
	}()
}

// push queues a message. It never blocks. over says that the limit was passed and the connection has to end.
func (o *output) push(m *message) (over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.shut {
		return false
	}
	head, sent := m.head(o.as)
	if !sent && !o.holds {
		return false
	}
	cost := m.size() + referenceCost
	if o.bytes+o.holding+cost > o.limit() {
		o.drop()
		return true
	}
	if o.holds {
		m.retain()
		o.held = append(o.held, m)
		o.holding += cost
	} else {
		o.put(item{m, head})
		o.wake.Broadcast()
	}
	o.account()
	return false
}

// cutOff ends the output with all that waits in it. The connection has to end.
func (o *output) cutOff() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop()
}

// drop is cutOff. The caller holds mu.
func (o *output) drop() {
	if !o.over {
		o.release() // they are as good as written
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

// shutOut takes no more messages. Those that came are written.
func (o *output) shutOut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
}

// pump writes the queue until the end.
func (o *output) pump() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for !o.dead && (o.first == len(o.queue) || o.writing) {
			o.wake.Wait()
		}
		if o.dead && (o.over || o.first == len(o.queue)) {
			return
		}
		o.take()
		o.mu.Unlock()
		err := o.send(o.inFlight)
		o.mu.Lock()
		o.landed()
		if err != nil {
			o.dead = true
			o.forget()
		}
		o.account()
		o.wake.Broadcast()
	}
}

// take moves the next items to flying: as much as one write gathers, or one that is larger. The caller holds mu.
func (o *output) take() {
	size, at := 0, o.first
	for at < len(o.queue) && (at == o.first || size+len(o.queue[at].head)+len(o.queue[at].m.body) <= writeBytes) {
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
	case at > keptItems && at > len(o.queue)/2: // what was written takes no more than what waits
		o.queue, o.first = append([]item(nil), o.queue[at:]...), 0
	}
}

// release counts what is being written as written. The caller holds mu.
func (o *output) release() {
	for i := range o.inFlight {
		o.bytes -= o.inFlight[i].bytes()
		o.inFlight[i].m.release()
	}
}

// landed forgets what was written. The caller holds mu.
func (o *output) landed() {
	if !o.over {
		o.release()
	}
	clear(o.inFlight)
	if o.inFlight = o.inFlight[:0]; cap(o.inFlight) > keptItems {
		o.inFlight = nil
	}
}

// writeBuffers are writeBytes long each.
var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeBytes); return &b }}

// send writes items: small ones in one piece.
func (o *output) send(items []item) error {
	if len(items) == 1 && items[0].head == "" {
		return o.writeChunks(items[0].m.body)
	}
	buf := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(buf)
	b := (*buf)[:0]
	for i := range items {
		b = append(b, items[i].head...)
		if body := items[i].m.body; len(b)+len(body) <= writeBytes {
			b = append(b, body...)
			continue
		}
		if err := o.writeChunks(b); err != nil { // it is the only item
			return err
		}
		b = b[:0]
		if err := o.writeChunks(items[i].m.body); err != nil {
			return err
		}
	}
	return o.writeChunks(b)
}

// waiting is the number of bytes that wait for the client.
func (o *output) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes + o.holding
}

// stalled is waiting, and since when the client has taken nothing.
func (o *output) stalled() (bytes int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes + o.holding, o.since
}

// giveBack lets go of what is kept for the next messages.
func (o *output) giveBack() {
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

// settle ends the account of what waits. It is called behind end.
func (o *output) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.memory.set(memoryOutput, 0)
}

// end stops the writer once it has written what is queued; the caller has set a deadline or closed the connection if
// that must not take long.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dead = true
	o.wake.Broadcast()
	for o.queued && !o.over && (len(o.inFlight) > 0 || o.first < len(o.queue)) {
		o.wake.Wait()
	}
	for _, m := range o.held {
		m.release()
	}
	o.held, o.holding = nil, 0
}
