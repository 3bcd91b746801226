package server

// This file holds the way out of a session: replies and messages in one order. A session without subscriptions writes its replies
// itself. From its first subscription on, a goroutine writes what lies in a queue, so that who delivers a message never
// waits for a client.

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

var (
	errKilled    = errors.New("server: the connection was closed")
	errNotDirect = errors.New("server: messages are sent to this connection")
)

// softReplyBytes of replies may wait for a client that subscribed and does not read, before its commands wait.
const softReplyBytes = 1 << 20

// steadyBytes is what is written at once: a slow client that goes on taking parts of a large reply is no idle one.
const steadyBytes = 256 << 10

type output struct {
	conn   net.Conn
	limit  int            // bytes of messages that may wait
	sent   *atomic.Uint64 // counts bytes
	beats  *atomic.Uint32 // rises with each write
	memory *account       // has what waits here as memoryOutput

	mu     sync.Mutex
	wake   sync.Cond
	queued bool   // the writer goroutine runs: all goes through queue
	holds  bool   // messages wait in held until the replies under way are queued
	shut   bool   // no more messages are taken
	dead   bool   // nothing is written any more
	over   bool   // dead because messages passed the limit
	ended  bool   // the account is closed
	queue  []byte // waits for the writer
	held   []byte
	spare  []byte // an empty queue for the writer
	flying int    // bytes that the writer is writing
}

func (o *output) init(conn net.Conn, limit int, sent *atomic.Uint64, beats *atomic.Uint32, memory *account) {
	o.conn, o.limit, o.sent, o.beats, o.memory = conn, limit, sent, beats, memory
	o.wake.L = &o.mu
}

// account tells what waits. The caller holds mu.
func (o *output) account() {
	if !o.ended {
		o.memory.set(memoryOutput, cap(o.queue)+cap(o.held)+cap(o.spare)+o.flying)
	}
}

// steadily writes to the connection piece by piece.
func (o *output) steadily(b []byte) error {
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

// write sends replies; the messages that were held follow them, unless they are to be held on. b is the caller's again when it returns.
func (o *output) write(b []byte, holdOn bool) error {
	o.mu.Lock()
	if !o.queued {
		o.mu.Unlock()
		return o.steadily(b)
	}
	defer o.mu.Unlock()
	if o.dead { // nobody would write it, and end would wait for that
		return errKilled
	}
	o.queue = append(o.queue, b...)
	if !holdOn {
		o.queue = append(o.queue, o.held...)
		o.held, o.holds = o.held[:0], false
	}
	o.account()
	o.wake.Broadcast()
	for !o.dead && len(o.queue)+o.flying > softReplyBytes {
		o.wake.Wait()
	}
	if o.dead {
		return errKilled
	}
	return nil
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
	o.queue = append(o.queue, o.held...) // another session may have had a message for this one, and started the goroutine
	o.held, o.holds = nil, false
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
func (o *output) push(message []byte) (over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.shut {
		return false
	}
	if len(o.queue)+len(o.held)+o.flying+len(message) > o.limit {
		o.dead, o.over = true, true
		o.wake.Broadcast()
		return true
	}
	if o.holds {
		o.held = append(o.held, message...)
	} else {
		o.queue = append(o.queue, message...)
		o.wake.Broadcast()
	}
	o.account()
	return false
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
		for len(o.queue) == 0 && !o.dead {
			o.wake.Wait()
		}
		if o.dead && (o.over || len(o.queue) == 0) {
			return
		}
		b := o.queue
		o.queue, o.flying = o.spare[:0], len(b)
		o.spare = nil
		o.mu.Unlock()
		err := o.steadily(b)
		o.mu.Lock()
		o.flying = 0
		if cap(b) <= softReplyBytes {
			o.spare = b[:0]
		}
		if err != nil {
			o.dead, o.queue = true, nil
		}
		o.account()
		o.wake.Broadcast()
	}
}

// waiting is the number of bytes that wait for the client.
func (o *output) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) + len(o.held) + o.flying
}

// giveBack lets go of what is kept for the next messages.
func (o *output) giveBack() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = nil
	if len(o.queue) == 0 {
		o.queue = nil
	}
	if len(o.held) == 0 {
		o.held = nil
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
	o.dead = true
	o.wake.Broadcast()
	for o.queued && o.flying+len(o.queue) > 0 && !o.over {
		o.wake.Wait()
	}
	o.mu.Unlock()
}
