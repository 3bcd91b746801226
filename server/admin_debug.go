// DEBUG: ERROR, SLEEP, and OBJECT for what is known about a key's value. The rest is rejected.

package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
)

var debugSpecs = []commands.Spec{{
	Name: "debug", Kind: commands.Admin, Arity: -2, Group: "server", Since: "1.0.0",
	Flags:      commands.NoScript | commands.Loading | commands.Stale,
	Syntax:     "<ERROR string | SLEEP seconds:integer | OBJECT key | HELP>",
	Summary:    "Suspends the connection, describes the value of a key, or returns an error.",
	Complexity: "O(1)",
	Audit:      commands.AuditFirst,
	Handler:    debugHandler, Local: &commands.Local{Raw: true, Run: serve(debugCommand)},
}}

// debugCommand sends subcommands about data to the machine.
func debugCommand(s *session, spec *commands.Spec, args [][]byte) {
	if is(args[1], "object") {
		s.batch.cmd[0] = args
		s.addRequest(false, s.batch.cmd[:], pending{step: plain, args: args, spec: spec})
		return
	}
	s.flush()
	s.answer(func() { s.runCounted(&commands.Local{Run: serve(debugLocal)}, spec, args) })
}

func debugLocal(s *session, _ *commands.Spec, args [][]byte) {
	switch {
	case is(args[1], "sleep") && len(args) == 3:
		seconds, err := strconv.ParseFloat(string(args[2]), 64)
		if err != nil || !(seconds >= 0 && seconds < 1<<31) {
			s.fail(commands.ErrNotFloat)
			return
		}
		if !s.sleep(time.Duration(seconds * float64(time.Second))) {
			s.quit = true
			return
		}
		s.w.Status("OK")
	case is(args[1], "error") && len(args) == 3:
		// not counted as one, as on Redis
		s.w.Error(strings.NewReplacer("\r", " ", "\n", " ").Replace(string(args[2])))
	case is(args[1], "help") && len(args) == 2:
		help(s, "DEBUG", debugHelp)
	default:
		s.fail(refusedError(args, nil))
	}
}

var debugHelp = []string{
	"ERROR <string>", "    Return an error with <string> as its text.",
	"OBJECT <key>", "    Show low level info about `key` and associated value.",
	"SLEEP <seconds>", "    Stop the connection for <seconds>. Decimals allowed.",
}

// sleep pauses only this connection. It returns false if the client or the server has gone away.
func (s *session) sleep(d time.Duration) bool {
	if s.send() != nil { // the client sees earlier replies
		return false
	}
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return true
		}
		if !s.linger(left) {
			return false
		}
	}
}

// debugHandler answers DEBUG OBJECT. In a transaction it rejects all else: nodes must not sleep
// there.
func debugHandler(x *commands.Call) error {
	if !is(x.Args[1], "object") || len(x.Args) != 3 {
		return commands.Error("ERR only DEBUG OBJECT key is allowed here")
	}
	e := x.DB().Find(x.Args[2])
	if e == nil {
		return commands.ErrNoSuchKey
	}
	x.Spend(defaultSamples)
	x.Out.Status(fmt.Sprintf("Value at:0 refcount:1 encoding:%s memory:%d created:%d changed:%d",
		commands.Encoding(e), e.Memory(defaultSamples), e.Created(), e.Changed()))
	return nil
}
