// What the machine tells a session about a request besides its reply: RESP3 attributes before the
// reply, first what it denied, then what scripts have read.

package commands

import (
	"bytes"

	"github.com/coordd/coordd/internal/resp"
)

// Replies are what the machine answers to the requests of a batch, in their order and as it encodes
// them. As what it tells comes before a reply, the first bytes are not the reply's: only Next gives
// that, so that nobody takes one for the other.
type Replies struct{ raw []byte }

// Answer is what the machine answers to one request.
type Answer struct {
	Reply  []byte // for the client: a whole value
	Denied Denials
	Read   []string // keys, of a request that says TellReads
	// ReadsUnknown: its scripts have read more than can be told.
	ReadsUnknown bool
}

// RepliesOf returns the replies that a machine has encoded.
func RepliesOf(raw []byte) Replies { return Replies{raw} }

// Size returns the bytes that are left; 0: no reply is.
func (r Replies) Size() int { return len(r.raw) }

// Block returns what Block wrote in place of a reply, if that is what comes next.
func (r Replies) Block() (block []byte, waits bool) {
	_, _, waits = CutBlock(r.raw)
	return r.raw, waits
}

// Next takes off the answer to the next request. ok is false if there is none that is whole.
func (r *Replies) Next() (a Answer, ok bool) {
	n := resp.Len(r.raw)
	a.Denied, a.Reply = CutDenials(r.raw[:max(n, 0)])
	a.Read, a.ReadsUnknown, a.Reply = cutReads(a.Reply)
	r.raw = r.raw[max(n, 0):]
	return a, len(a.Reply) > 0
}

// Err returns the error that the reply is, if it is one.
func (a *Answer) Err() error {
	if text, failed := bytes.CutPrefix(a.Reply, []byte("-")); failed {
		return Error(bytes.TrimSuffix(text, []byte("\r\n")))
	}
	return nil
}

// Denied is something that a request was not allowed, Count times.
type Denied struct {
	Reason  string // command, key or channel
	Context string // toplevel, multi or lua
	Object  string // the name of the command, the key or the channel
	Count   int64
}

const (
	// maxDenials bounds the different denials that one request reports.
	maxDenials = 16
	// maxDeniedObject bounds the bytes of a key or channel in a denial.
	maxDeniedObject = 1024
)

// deniedHead begins the attribute: the only key, whose value is a list of four elements a denial.
var deniedHead = resp.AppendBulk(resp.AppendHead(nil, resp.Attribute, 1), "denied")

// Denials gathers what a request was denied.
type Denials []Denied

// Add adds a denial.
func (l *Denials) Add(reason, context, object string) {
	d := Denied{Reason: reason, Context: context, Count: 1,
		Object: object[:min(len(object), maxDeniedObject)]}
	for i := range *l {
		known := &(*l)[i]
		if known.Reason == d.Reason && known.Context == d.Context && known.Object == d.Object {
			known.Count++
			return
		}
	}
	if len(*l) < maxDenials {
		*l = append(*l, d)
	}
}

// AppendTo appends the attribute.
func (l Denials) AppendTo(dst []byte) []byte {
	dst = append(dst, deniedHead...)
	dst = resp.AppendHead(dst, resp.Array, int64(4*len(l)))
	for _, d := range l {
		dst = resp.AppendBulk(dst, d.Reason)
		dst = resp.AppendBulk(dst, d.Context)
		dst = resp.AppendBulk(dst, d.Object)
		dst = resp.AppendHead(dst, resp.Int, d.Count)
	}
	return dst
}

// CutDenials takes the attribute off a reply that may begin with one.
func CutDenials(reply []byte) (l Denials, rest []byte) {
	in, ok := bytes.CutPrefix(reply, deniedHead)
	if !ok {
		return nil, reply
	}
	list, rest := cutValue(in)
	n, in, _ := resp.Elements(list)
	for range n / 4 {
		var f [4][]byte
		for i := range f {
			f[i], in = cutValue(in)
		}
		count, _ := ParseInt([]byte(textOf(f[3])))
		l = append(l, Denied{Reason: textOf(f[0]), Context: textOf(f[1]), Object: textOf(f[2]),
			Count: count})
	}
	return l, rest
}

// cutValue takes the first value off b.
func cutValue(b []byte) (value, rest []byte) {
	n := max(resp.Len(b), 0)
	return b[:n], b[n:]
}

// textOf is the text of an encoded bulk string or number.
func textOf(value []byte) string {
	head, text, bulk := bytes.Cut(value, []byte("\r\n"))
	switch {
	case len(head) < 2:
		return ""
	case head[0] == resp.Bulk && bulk:
		return string(bytes.TrimSuffix(text, []byte("\r\n")))
	}
	return string(head[1:])
}

// maxScriptReads bounds the keys that a request reports as read by scripts, each with readCost,
// bytes.
const (
	maxScriptReads = 1 << 20
	readCost       = 64
)

// readHead begins the attribute: the only key, whose value is the list of keys, or null if there
// were too many.
var readHead = resp.AppendBulk(resp.AppendHead(nil, resp.Attribute, 1), "read")

// ScriptReads gathers the keys that reading commands of a request's scripts name.
type ScriptReads struct {
	keys  []string
	known map[string]struct{}
	bytes int
	many  bool // more than are kept
}

// Add adds the keys of a command that a script calls.
func (l *ScriptReads) Add(spec *Spec, args [][]byte) {
	if spec.Kind != Read || l.many {
		return
	}
	indexes, _ := spec.KeyIndexes(args) // none if the call is invalid
	for _, at := range indexes {
		if _, known := l.known[string(args[at])]; known {
			continue
		}
		key := string(args[at])
		if l.bytes += len(key) + readCost; l.bytes > maxScriptReads {
			l.keys, l.known, l.many = nil, nil, true
			return
		}
		if l.known == nil {
			l.known = map[string]struct{}{}
		}
		l.known[key] = struct{}{}
		l.keys = append(l.keys, key)
	}
}

// AppendTo appends the attribute, unless nothing was read.
func (l *ScriptReads) AppendTo(dst []byte) []byte {
	switch {
	case l.many:
		return append(append(dst, readHead...), "_\r\n"...)
	case len(l.keys) == 0:
		return dst
	}
	dst = resp.AppendHead(append(dst, readHead...), resp.Array, int64(len(l.keys)))
	for _, key := range l.keys {
		dst = resp.AppendBulk(dst, key)
	}
	return dst
}

// cutReads takes what ScriptReads appended off a reply. many reports that the keys are not known.
func cutReads(reply []byte) (keys []string, many bool, rest []byte) {
	in, ok := bytes.CutPrefix(reply, readHead)
	if !ok {
		return nil, false, reply
	}
	list, rest := cutValue(in)
	n, in, ok := resp.Elements(list)
	if !ok {
		return nil, true, rest
	}
	keys = make([]string, 0, n)
	for range n {
		var key []byte
		key, in = cutValue(in)
		keys = append(keys, textOf(key))
	}
	return keys, false, rest
}
