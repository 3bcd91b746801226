// Messages pushed to clients: encoded once, shared by all receivers, charged once.

package server

import (
	"strconv"
	"sync/atomic"

	"github.com/coordd/coordd/commands"
)

// Overhead of a message, and of each further queue that it waits in, bytes.
const (
	messageCost   = 128
	referenceCost = 16
)

// message is one push. It is immutable: the queues of all its receivers share it. Its two forms
// differ only in their heads; a connection's form is chosen when the message takes its position in
// that connection's output.
type message struct {
	resp2, resp3      string // what precedes body
	body              []byte
	resp3Only         bool // not sent in RESP2
	needsSubscription bool // in RESP2, sent only to connections with subscriptions
	needsMonitor      bool // sent only to connections that monitor
	reply             bool // replies of one connection: body may grow while they wait

	// the subscription that it is for: the name is nil if it is for none
	kind subKind
	name []byte

	whole *message      // body is a part of that one's; nil: it is its own
	total *atomic.Int64 // counts the bytes of all queued messages of this node; nil: not counted
	refs  atomic.Int32  // queues that it waits in, and parts that do
}

// framing is how a connection reads pushes at one point of its output.
type framing struct {
	proto      int  // 2 or 3
	subscribed bool // has subscriptions
	monitors   bool // MONITOR is on
}

// head returns what precedes the body, and false if the message is not sent: a client that expects
// none would take it for the reply to its next command.
func (m *message) head(f framing) (string, bool) {
	if m.needsMonitor && !f.monitors {
		return "", false
	}
	if f.proto == 3 {
		return m.resp3, true
	}
	return m.resp2, !m.resp3Only && (f.subscribed || !m.needsSubscription)
}

// size is what the message takes in a client's queue, where it counts in full.
func (m *message) size() int { return len(m.resp3) + len(m.body) + messageCost }

// own is what it takes itself.
func (m *message) own() int {
	if m.whole != nil {
		return m.size() - len(m.body)
	}
	return m.size()
}

// countIn has the message counted in a total. Nobody else may have it yet.
func (m *message) countIn(total *atomic.Int64) {
	m.total = total
	if w := m.whole; w != nil && w.total == nil {
		w.total = total
	}
}

// retain counts one more queue.
func (m *message) retain() {
	first := m.refs.Add(1) == 1
	if m.total == nil {
		return
	}
	n := referenceCost
	if first {
		n += m.own()
	}
	m.total.Add(int64(n))
	if first && m.whole != nil {
		m.whole.retain()
	}
}

// release counts one queue less.
func (m *message) release() {
	last := m.refs.Add(-1) == 0
	if m.total == nil {
		return
	}
	n := referenceCost
	if last {
		n += m.own()
	}
	m.total.Add(-int64(n))
	if last && m.whole != nil {
		m.whole.release()
	}
}

// share is what the message takes for each queue that it waits in: so much of the total goes with
// one of them.
func (m *message) share() int64 {
	refs := int64(m.refs.Load())
	if m.total == nil || refs == 0 {
		return 0
	}
	n := int64(m.own())
	if w := m.whole; w != nil {
		n += int64(w.own()) / max(int64(w.refs.Load()), 1)
	}
	return referenceCost + n/refs
}

// published encodes a message of a channel. Messages to patterns share its body: see forPattern.
func published(word string, e *commands.Event) *message {
	f := commands.RESP{Proto: 3, Buf: make([]byte, 0, len(e.Channel)+len(e.Payload)+32)}
	f.Bulk(e.Channel)
	end := len(f.Buf) - len("\r\n")
	f.Bulk(e.Payload)
	head := "3\r\n" + bulkText(word)
	m := &message{resp2: "*" + head, resp3: ">" + head, body: f.Buf, needsSubscription: true,
		kind: subChannel, name: f.Buf[end-len(e.Channel) : end]}
	if e.Shard {
		m.kind = subShard
	}
	return m
}

// forPattern returns the message for the subscribers of a pattern. Only the head is new: one
// message may match very many patterns.
func (m *message) forPattern(pattern []byte) *message {
	head := "4\r\n$8\r\npmessage\r\n" + bulkText(string(pattern))
	return &message{resp2: "*" + head, resp3: ">" + head, body: m.body, whole: m,
		needsSubscription: true, kind: subPattern, name: pattern}
}

func bulkText(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }

// Heads of invalidations.
const (
	invalidateHead2 = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n"
	invalidateHead3 = ">2\r\n$10\r\ninvalidate\r\n"
)

// invalidating encodes the invalidation of keys; nil means all keys. In RESP2 only a redirected
// invalidation has a form, for a subscribed connection. Null is encoded in nullProto.
func invalidating(keys []string, redirected bool, nullProto int) *message {
	f := commands.RESP{Proto: nullProto}
	if keys == nil {
		f.Null()
	} else {
		f.Array(len(keys))
		for _, k := range keys {
			f.BulkString(k)
		}
	}
	return &message{resp2: invalidateHead2, resp3: invalidateHead3, body: f.Buf,
		resp3Only: !redirected, needsSubscription: true}
}

// redirectBroken encodes the notice that the connection that receives the client's invalidations
// has gone.
func redirectBroken(id uint64) *message {
	f := commands.RESP{Proto: 3}
	f.Push(2)
	f.BulkString("tracking-redir-broken")
	f.Int(int64(id))
	return &message{body: f.Buf, resp3Only: true}
}
