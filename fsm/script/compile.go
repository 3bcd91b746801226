// Compiling scripts: the flags of the first line, and the wording of compile errors.

package script

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/fsm/script/lua/parse"
	"github.com/coordd/coordd/internal/resp"

	"github.com/coordd/coordd/commands"
)

// scriptName is the chunk name that Redis gives its scripts. Errors show it.
const scriptName = "user_script"

// errWritesInReadOnly refuses EVAL_RO of a script whose first line does not declare no-writes.
const errWritesInReadOnly commands.Error = "ERR Can not execute a script with write flag using " +
	"*_ro command."

// program is a compiled script. Running does not change it, so interpreters share it; keep changes
// with the set of libraries, under the machine's lock.
type program struct {
	firstLine
	proto  *lua.FunctionProto
	keep   bool // a library that interpreters keep loaded
	tokens int  // size of its source in tokens
	work   int  // what compiling it cost, in units of Env.Work
	size   int  // its memory, bytes
}

// programBytes is what a script takes besides its source and its functions.
const programBytes = 1024

// firstLine is what the first line of a script declares.
type firstLine struct {
	shebang bool // it is #!lua
	flags   commands.FunctionFlags
}

func (l *firstLine) noWrites() bool { return l.flags&commands.NoWrites != 0 }

func (l *firstLine) allowOOM() bool { return l.flags&commands.AllowOOM != 0 }

// The cost of compiling, in units of Env.Work, and the most that a request may compile: about as
// much as it may do.
const (
	tokenWork    = 20
	bytesPerWork = 4
	maxTokens    = commands.MaxRequestWork / tokenWork * 4 / 5
)

// compileWork is the cost of compiling a source.
func compileWork(tokens, bytes int) int { return 100 + tokens*tokenWork + bytes/bytesPerWork }

// limitsAt returns the limits of a source in a request.
func limitsAt(level uint64) lua.Limits {
	if strict(level) {
		return lua.Limits{Tokens: maxTokens}
	}
	return lua.Limits{Released: true}
}

// compileScript compiles the script of an EVAL for a level and those after it. The error is a
// reply.
func compileScript(source []byte, level uint64) (*program, error) {
	p, _, err := compileScriptWithin(source, lua.Limits{Released: !strict(level)})
	return p, err
}

// compileScriptWithin is compileScript within limits. work is the cost, also after a failure.
func compileScriptWithin(source []byte, limits lua.Limits) (p *program, work int, err error) {
	if len(source) > commands.MaxScriptBytes {
		return nil, 0, commands.Errorf("ERR script is longer than %d bytes",
			commands.MaxScriptBytes)
	}
	p = &program{}
	body, err := p.readShebang(source)
	if err != nil {
		return nil, 0, err
	}
	p.proto, p.tokens, err = compileChunk(body, scriptName, limits)
	p.work = compileWork(p.tokens, len(source))
	if err != nil {
		return nil, p.work, commands.Errorf("ERR Error compiling script (new function): %s", err)
	}
	p.size = programBytes + len(source) + p.proto.Size()
	return p, p.work, nil
}

// The errors of a script's first line, byte-equal with Redis 7.0.
const (
	errBadShebang commands.Error = "ERR Invalid script shebang"
	errBadEngine  commands.Error = "ERR Invalid engine in script shebang"
)

// readShebang reads the flags of a first line `#!lua flags=a,b` and returns the script without the
// text of that line.
func (l *firstLine) readShebang(source []byte) (body []byte, err error) {
	if !bytes.HasPrefix(source, []byte("#!")) {
		return source, nil
	}
	words, body, err := splitFirstLine(source, errBadShebang, errBadEngine)
	if err != nil {
		return nil, err
	}
	if string(words[0]) != "#!lua" {
		return nil, commands.Errorf("ERR Unexpected engine in script shebang: %s", words[0])
	}
	l.shebang = true
	for _, word := range words[1:] {
		list, ok := bytes.CutPrefix(word, []byte("flags="))
		if !ok {
			return nil, commands.Errorf("ERR Unknown lua shebang option: %s", word)
		}
		if len(list) > 0 {
			if err := l.readFlags(list); err != nil {
				return nil, err
			}
		}
	}
	return body, nil
}

// splitFirstLine splits a first line that begins with #! into words and returns the rest. The rest
// starts with the line break, so that errors have the author's line numbers. noLine is the error
// for a line that does not end or contains a zero byte, noWords the one for unbalanced quotes.
func splitFirstLine(source []byte, noLine, noWords error) (words [][]byte, body []byte, err error) {
	end := bytes.IndexByte(source, '\n')
	if end < 0 || bytes.IndexByte(source[:end], 0) >= 0 {
		return nil, nil, noLine
	}
	words, ok := resp.SplitLine(source[:end])
	if !ok {
		return nil, nil, noWords
	}
	return words, source[end:], nil
}

func (l *firstLine) readFlags(list []byte) error {
	for name := range bytes.SplitSeq(list, []byte(",")) {
		flag := commands.ParseFunctionFlag(name)
		if flag == 0 {
			return commands.Errorf("ERR Unexpected flag in script shebang: %s", name)
		}
		l.flags |= flag
	}
	return nil
}

// compileChunk compiles a source within limits. Errors call it chunk.
func compileChunk(source []byte, chunk string,
	limits lua.Limits) (proto *lua.FunctionProto, tokens int, err error) {
	if bytes.HasPrefix(source, []byte("\x1b")) {
		return nil, 0, fmt.Errorf("%s: bytecode is not accepted", chunk)
	}
	proto, tokens, err = lua.Compile(string(source), chunk, limits)
	var unreadable *parse.Error
	if errors.As(err, &unreadable) {
		if unreadable.CLua != nil && !limits.Released {
			unreadable = unreadable.CLua
		}
		err = wordParseError(unreadable, source, chunk)
	}
	return proto, tokens, err
}

// wordParseError gives a parser error the form of C Lua's: chunk:line: what near 'token'.
func wordParseError(e *parse.Error, source []byte, chunk string) error {
	line, token := e.Pos.Line, e.Token
	if e.Message == parse.TooDeep || e.Message == parse.TooLong {
		return fmt.Errorf("%s:%d: %s", chunk, max(line, 1), e.Message)
	}
	if line == parse.EOF || token == "" || strings.Contains(e.Message, "end of file") {
		line, token = 1+bytes.Count(source, []byte("\n")), "<eof>"
	}
	return fmt.Errorf("%s:%d: %s near '%s'", chunk, line, e.Message, token)
}
