// What the audit trail records of sessions: the calls that Spec.Audit names, and denials.

package server

import (
	"net"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/audit"
)

// The code words of refusals that are denials, whatever the command.
const (
	wordNoPerm = "NOPERM" // auditDenial records it, with its reason
	wordNoAuth = "NOAUTH"
	wordDenied = "DENIED" // protected mode
)

// wordUnknown is the code word of a reply that says that a command may have run.
const wordUnknown = "UNKNOWN"

// eventDenied is the event of a denial, whose object is the command, key or channel.
const eventDenied = "denied"

// audit records a call that ran.
func (s *session) audit(spec *commands.Spec, args [][]byte, failed bool) {
	shown, audited := spec.Audited(args)
	if !audited || failed && s.failure == wordNoPerm {
		return
	}
	e := audit.Event{Event: spec.FullName(), Args: texts(shown), Outcome: audit.OK}
	e.Change = spec.Name != "auth" && spec.Name != "hello" // reads are not audited
	switch {
	case failed:
		e.Outcome = s.failure
		e.Change = e.Change && s.failure == wordUnknown
	case spec.Kind == commands.Write:
		e.Applied = s.srv.backend.Status().Applied
	}
	s.record(e)
}

// auditRefusal records a call that did not run, without its arguments. word is the code word of the
// reply; spec is nil if the command was not looked up.
func (s *session) auditRefusal(spec *commands.Spec, word string) {
	if s.srv.cfg.Audit == nil {
		return
	}
	e := audit.Event{Outcome: word}
	switch {
	case word == wordNoPerm:
		return
	case word == wordNoAuth || word == wordDenied:
		e.Event = eventDenied
		if spec != nil {
			e.Object = spec.FullName()
		}
	case spec == nil || spec.Audit == nil:
		return
	default:
		e.Event = spec.FullName()
	}
	s.record(e)
}

// auditDenial records what the user may not do. A failed authentication is recorded as the call
// that failed.
func (s *session) auditDenial(d refusedCall, count int64) {
	if s.srv.cfg.Audit == nil || d.reason == denialReasons[0] {
		return
	}
	e := audit.Event{Event: eventDenied, Outcome: wordNoPerm, Reason: d.reason,
		Context: d.context, Object: d.object}
	if count > 1 {
		e.Count = count
	}
	s.record(e)
}

// auditCertificate records the authentication by a client's certificate.
func (s *session) auditCertificate(name []byte, outcome string) {
	if s.srv.cfg.Audit != nil {
		s.record(audit.Event{Event: "auth", Args: []string{string(name)}, Outcome: outcome})
	}
}

// record adds who the client is. A stranger is nobody, or strangers would use up the room that the
// trail has for the default user.
func (s *session) record(e audit.Event) {
	e.Address, e.Client = s.addr, s.id
	if !s.mustAuthenticate() {
		e.User = s.userName()
	}
	if chain := s.certificates(); len(chain) > 0 {
		e.TLSSubject = chain[0].Subject.String()
	}
	s.srv.cfg.Audit.Record(e)
}

// auditTurnedAway records a connection that protected mode refuses.
func (s *Server) auditTurnedAway(conn net.Conn) {
	s.cfg.Audit.Record(audit.Event{Event: eventDenied, Outcome: wordDenied,
		Address: conn.RemoteAddr().String()})
}

func texts(args [][]byte) (all []string) {
	for _, a := range args {
		all = append(all, string(a))
	}
	return all
}

// auditAuth shows the name that AUTH gives.
func auditAuth(args [][]byte) ([][]byte, bool) {
	if len(args) != 2 {
		return nil, true
	}
	return args[:1], true
}

// auditHello shows the name that HELLO gives. Without AUTH the trail does not have it.
func auditHello(args [][]byte) ([][]byte, bool) {
	for i, a := range args {
		if i > 0 && is(a, "auth") {
			return args[min(i+1, len(args)):min(i+2, len(args))], true
		}
	}
	return nil, false
}

// auditReset keeps a call out of the trail that resets nothing.
func auditReset(args [][]byte) ([][]byte, bool) {
	return args, len(args) == 1 && is(args[0], "reset")
}

// auditFound shows the name that RAFT FOUND gives.
func auditFound(args [][]byte) ([][]byte, bool) {
	return args[min(1, len(args)):min(2, len(args))], true
}

// auditConfigSet shows the parameters that CONFIG SET names, but no word that may be a value.
func auditConfigSet(args [][]byte) (names [][]byte, audited bool) {
	for i := 0; i < len(args); i += 2 {
		if findParam(args[i]) != nil {
			names = append(names, args[i])
		}
	}
	return names, true
}
