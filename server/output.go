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

type output struct {
	conn  net.Conn
	limit int            // bytes of messages that may wait
	sent  *atomic.Uint64 // counts bytes

	mu     sync.Mutex
	wake   sync.Cond
	queued bool   // the writer goroutine runs: all goes through queue
	holds  bool   // messages wait in held until the replies under way are queued
	shut   bool   // no more messages are taken
	dead   bool   // nothing is written any more
	over   bool   // dead because messages passed the limit
	queue  []byte // waits for the writer
	held   []byte
	flying int // bytes that the writer is writing
}

func (o *output) init(conn net.Conn, limit int, sent *atomic.Uint64) {
	o.conn, o.limit, o.sent = conn, limit, sent
	o.wake.L = &o.mu
}

// write sends replies; the messages that were held follow them, unless they are to be held on. b is the caller's again when it returns.
func (o *output) write(b []byte, holdOn bool) error {
	o.mu.Lock()
	if !o.queued {
		o.mu.Unlock()
		if len(b) == 0 {
			return nil
		}
		n, err := o.conn.Write(b)
		o.sent.Add(uint64(n))
		return err
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
		return false
	}
	o.queue = append(o.queue, message...)
	o.wake.Broadcast()
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
	var spare []byte
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
		o.queue, o.flying = spare[:0], len(b)
		o.mu.Unlock()
		n, err := o.conn.Write(b)
		o.sent.Add(uint64(n))
		o.mu.Lock()
		o.flying = 0
		if spare = b; cap(b) > softReplyBytes {
			spare = nil
		}
		if err != nil {
			o.dead, o.queue = true, nil
		}
		o.wake.Broadcast()
	}
}

// waiting is the number of bytes that wait for the client.
func (o *output) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) + len(o.held) + o.flying
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
