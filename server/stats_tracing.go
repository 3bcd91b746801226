// Spans of requests, for a server with a tracer.

package server

import (
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tracing"
)

// maxWaitingSpans bounds the requests of a session whose replies are not sent yet, keptSpans the
// room for them that it keeps.
const (
	maxWaitingSpans = 512
	keptSpans       = 16
)

// traces is what a session notes for spans.
type traces struct {
	received time.Time // when the current requests were read
	together int       // so many
	// the newest question to the backend about the batch; how is empty before it
	how             string
	requests        int
	asked, answered time.Time
	waiting         []tracing.Request // answered, but not sent yet
}

// endings are the outcomes of coordd_commands_total.
var endings = [...]string{endedOK: "ok", endedIdle: "ok", endedError: "error",
	endedNotRun: "not_run", endedUnknown: "unknown"}

// begin notes that requests were read.
func (t *traces) begin(at time.Time, requests int) {
	if t != nil {
		t.received, t.together = at, requests
	}
}

// ask notes that the backend is asked about so many requests.
func (t *traces) ask(how string, requests int) {
	if t != nil {
		t.how, t.requests, t.asked = how, requests, time.Now()
	}
}

// tell notes that the backend has answered.
func (t *traces) tell() {
	if t != nil {
		t.answered = time.Now()
	}
}

// forget notes that the batch is answered.
func (t *traces) forget() {
	if t != nil {
		t.how = ""
	}
}

// trace notes a request that is answered, if it is to have spans. A transaction is one request.
func (s *session) trace(spec *commands.Spec, outcome string) {
	t := s.traces
	if t == nil || s.inExec || !s.srv.cfg.Tracing.Sampled() {
		return
	}
	if len(t.waiting) >= maxWaitingSpans {
		s.srv.cfg.Tracing.Drop()
		return
	}
	r := tracing.Request{Command: "unrecognized", DB: s.db, Batch: t.together, Outcome: outcome,
		Address: s.addr, Received: t.received}
	if spec != nil {
		r.Command = spec.FullName()
	}
	if outcome != endings[endedOK] {
		r.Code = errorCode(string(s.failure))
	}
	if t.how != "" {
		r.How, r.Asked, r.Answered, r.Together = t.how, t.asked, t.answered, t.requests
	}
	t.waiting = append(t.waiting, r)
}

// traceSent makes the spans of the requests whose replies were sent.
func (s *session) traceSent() {
	t := s.traces
	if t == nil || len(t.waiting) == 0 {
		return
	}
	now := time.Now()
	for i := range t.waiting {
		t.waiting[i].Sent = now
		s.srv.cfg.Tracing.Record(&t.waiting[i])
	}
	if t.waiting = t.waiting[:0]; cap(t.waiting) > keptSpans {
		t.waiting = nil
	}
}

// errorCode returns what a span shows of an error word. Operators read spans: the word of a script
// is shown if it looks like a code.
func errorCode(word string) string {
	if word == "" || len(word) > 24 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return otherCode
	}
	return word
}
