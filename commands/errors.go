package commands

import (
	"fmt"
	"strings"

	"github.com/coordd/coordd/internal/ascii"
)

// Error is an error reply. Its text is API: the code word first, byte-equal with Redis.
type Error string

func (e Error) Error() string { return string(e) }

// Errorf formats an error reply.
func Errorf(format string, args ...any) error { return Error(fmt.Sprintf(format, args...)) }

// ErrorLine formats an error's text as Redis does: no line breaks at its end, spaces for all
// others.
func ErrorLine(text string) string { return spaceForBreak.Replace(strings.TrimRight(text, "\r\n")) }

var spaceForBreak = strings.NewReplacer("\r", " ", "\n", " ")

// Error replies of several commands.
const (
	ErrWrongType      Error = "WRONGTYPE Operation against a key holding the wrong kind of value"
	ErrSyntax         Error = "ERR syntax error"
	ErrNotInteger     Error = "ERR value is not an integer or out of range"
	ErrNotFloat       Error = "ERR value is not a valid float"
	ErrOverflow       Error = "ERR increment or decrement would overflow"
	ErrNaN            Error = "ERR increment would produce NaN or Infinity"
	ErrHashNotInteger Error = "ERR hash value is not an integer"
	ErrHashNotFloat   Error = "ERR hash value is not a float"
	ErrNoSuchKey      Error = "ERR no such key"
	ErrOutOfRange     Error = "ERR index out of range"
	ErrInvalidCursor  Error = "ERR invalid cursor"
	ErrNoScript       Error = "NOSCRIPT No matching script. Please use EVAL."
	ErrExecAbort      Error = "EXECABORT Transaction discarded because of previous errors."
	ErrOOM            Error = "OOM command not allowed when used memory > 'maxmemory'."
	ErrExecOOM        Error = "EXECABORT Transaction discarded because of: " + ErrOOM
	ErrTooLong        Error = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	ErrDBIndex        Error = "ERR DB index is out of range"
	ErrDBNotInteger   Error = "ERR invalid DB index"
)

// InvalidExpire is the error for an expire time that is zero, negative or too large.
func InvalidExpire(command string) error {
	return Errorf("ERR invalid expire time in '%s' command", command)
}

// outOfRange is the error for an integer that is not from least to most.
func outOfRange(least, most int64) error {
	return Errorf("ERR value is out of range, value must between %d and %d", least, most)
}

// SubcommandSyntax is the error for too many arguments of a subcommand whose arity has no maximum.
func SubcommandSyntax(args [][]byte) error {
	return Errorf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try %s HELP.",
		args[1], ascii.Upper(args[0]))
}
