// ACL LOG: what the clients of this node were denied, and where they failed to authenticate.

package server

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	denialLogLen = 128 // entries by default, as in Redis
	// A denial like one of the newest denialsAlike, within denialsApart of it, is counted there.
	denialsAlike = 10
	denialsApart = time.Minute
	// maxDenied bounds each text of an entry, bytes: clients choose the names in them.
	maxDenied = 1024
)

// refusedCall is what a client was not allowed.
type refusedCall struct {
	reason  string // command, key, channel or auth
	context string // toplevel, multi or lua
	object  string // the command's name, the key or the channel
	user    string // user of the client, or the name that it gave
}

type denialEntry struct {
	refusedCall
	count  int64
	at     time.Time // the newest one
	client string    // the client's line of CLIENT LIST
}

// denialLog keeps the newest denials.
type denialLog struct {
	maxLen atomic.Int64
	counts [4]atomic.Uint64 // by denialReasons

	mu      lockorder.Mutex
	entries []denialEntry // newest first
}

// denialReasons are the reasons in the order of denialLog.counts.
var denialReasons = [...]string{"auth", "command", "key", "channel"}

// counted returns the one of denialReasons with which a reason counts: too many keys or channels
// for a user with many patterns are denied like one of them.
func counted(reason string) string {
	if reason == acl.DeniedWork.String() {
		return acl.DeniedKey.String()
	}
	return reason
}

// deny records that the session was not allowed something, count times.
func (s *session) deny(d refusedCall, count int64) {
	l, now := &s.srv.denials, time.Now()
	l.counts[slices.Index(denialReasons[:], counted(d.reason))].Add(uint64(count))
	s.auditDenial(d, count)
	s.show(0)
	d.object, d.user = beginning(d.object), beginning(d.user)
	client := beginning(s.describe(now))
	l.mu.Lock()
	defer l.mu.Unlock()
	e := denialEntry{refusedCall: d}
	for i := range min(len(l.entries), denialsAlike) {
		if known := &l.entries[i]; known.refusedCall == d && now.Sub(known.at) <= denialsApart {
			e = *known
			l.entries = slices.Delete(l.entries, i, i+1)
			break
		}
	}
	e.count, e.at, e.client = e.count+count, now, client
	l.entries = slices.Insert(l.entries, 0, e)
	if most := int(min(l.maxLen.Load(), int64(len(l.entries)))); most < len(l.entries) {
		clear(l.entries[most:])
		l.entries = l.entries[:most]
	}
}

// beginning returns what a log entry keeps of a text.
func beginning(text string) string {
	if len(text) <= maxDenied {
		return text
	}
	return strings.Clone(text[:maxDenied])
}

// newest returns n entries, the newest first.
func (l *denialLog) newest(n int64) []denialEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[:min(n, int64(len(l.entries)))])
}

func (l *denialLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

// newestDenials is how many entries ACL LOG returns if it names no number.
const newestDenials = 10

func aclLog(s *session, _ *commands.Spec, args [][]byte) {
	count := int64(newestDenials)
	switch {
	case len(args) > 3:
		s.fail(subcommandSyntax(args))
		return
	case len(args) == 3 && is(args[2], "reset"):
		s.srv.denials.reset()
		s.w.Status("OK")
		return
	case len(args) == 3:
		n, ok := commands.ParseInt(args[2])
		if !ok {
			s.fail(commands.ErrNotInteger)
			return
		}
		count = max(n, 0)
	}
	entries, now := s.srv.denials.newest(count), time.Now()
	s.w.Array(len(entries))
	for i := range entries {
		e := &entries[i]
		s.w.Map(7)
		s.w.BulkString("count")
		s.w.Int(e.count)
		for _, f := range [...][2]string{{"reason", e.reason}, {"context", e.context},
			{"object", e.object}, {"username", e.user}} {
			s.w.BulkString(f[0])
			s.w.BulkString(f[1])
		}
		s.w.BulkString("age-seconds")
		s.w.Double(float64(now.Sub(e.at).Milliseconds()) / 1000)
		s.w.BulkString("client-info")
		s.w.BulkString(e.client)
	}
}
