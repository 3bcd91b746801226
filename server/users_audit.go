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
	// wordWrongPass is of a try, which auditTry records with its name.
	wordWrongPass = "WRONGPASS"
)

// wordUnknown is the code word of a reply that says that a command may have run.
const wordUnknown = "UNKNOWN"

// eventDenied is the event of a denial, whose object is the command, key or channel.
const eventDenied = "denied"

// audit records a call that ran. It is a change if its reply does not say that it changed nothing.
func (s *session) audit(spec *commands.Spec, args [][]byte, end ending) {
	spec, args = spec.Carried(args)
	shown, audited := spec.Audited(args)
	if !audited || end.failed() && s.failure == wordNoPerm {
		return
	}
	e := audit.Event{Event: spec.FullName(), Args: texts(shown), Outcome: audit.OK}
	e.Change = end == endedOK // reads are not audited
	switch {
	case end.failed():
		e.Outcome, e.Change = string(s.failure), s.failure == wordUnknown
	case spec.Kind == commands.Write:
		e.Applied = s.srv.backend.Status().Applied
	}
	s.record(e)
}

// auditRefusal records a call that did not run, without its arguments. word is the code word of the
// reply; spec is nil if the command was not looked up.
func (s *session) auditRefusal(spec *commands.Spec, word codeWord) {
	if s.srv.cfg.Audit == nil {
		return
	}
	e := audit.Event{Outcome: string(word)}
	switch {
	case word == wordNoPerm || word == wordWrongPass:
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

// auditTry records a try to be a user. given is a password, or a name and a password; command is
// the full name of the command that gave them.
func (s *session) auditTry(command string, given [][]byte, err error) {
	if s.srv.cfg.Audit == nil {
		return
	}
	e := audit.Event{Event: command, Args: texts(given[:len(given)-1]), Outcome: audit.OK,
		Try: true}
	if err != nil {
		e.Outcome = string(codeOf(err.Error()))
	}
	s.record(e)
}

// auditDenial records what the user may not do. It is auditTry that records who failed to
// authenticate.
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
		s.record(audit.Event{Event: "auth", Args: []string{string(name)}, Outcome: outcome,
			Try: true})
	}
}

// record adds who the client is. A stranger is nobody, or strangers would use up the room that the
// trail has for the default user.
func (s *session) record(e audit.Event) {
	e.Address = s.addr
	e.Client, _ = s.srv.clientIDs.of(s.id)
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

// auditTries is of commands that authenticate: auditTry records what they do. The trail has the
// calls that are refused.
func auditTries([][]byte) ([][]byte, bool) { return nil, false }

// auditReset keeps a call out of the trail that resets nothing.
func auditReset(args [][]byte) ([][]byte, bool) {
	return args, len(args) == 1 && is(args[0], "reset")
}

// auditFound shows the name that RAFT FOUND gives.
func auditFound(args [][]byte) ([][]byte, bool) {
	given, _ := foundingWords(args)
	return given[:min(1, len(given))], true
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
