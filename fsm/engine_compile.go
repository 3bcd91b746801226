// Compiling scripts: the first line's flags, parsing, the changes to the syntax tree that make gopher-lua behave as Redis's
// Lua where its virtual machine cannot be told to, and the words of a compile error.

package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/coordd/coordd/commands"
)

// scriptName is the chunk name that Redis gives its scripts. Errors show it.
const scriptName = "user_script"

// errWritesInReadOnly is EVAL_RO's refusal of a script whose first line does not promise that it only reads.
const errWritesInReadOnly commands.Error = "ERR Can not execute a script with write flag using *_ro command."

// program is a compiled script. It is not changed by running it, so interpreters share it.
type program struct {
	proto    *lua.FunctionProto
	shebang  bool // the first line is #!lua
	noWrites bool // with the flag no-writes
	longest  int  // bytes of its longest constant
}

// compileScript compiles a script as EVAL gets it. The error is a reply.
func compileScript(source []byte) (*program, error) {
	if len(source) > commands.MaxScriptBytes {
		return nil, commands.Errorf("ERR script is longer than %d bytes", commands.MaxScriptBytes)
	}
	p := &program{}
	body, err := p.readShebang(source)
	if err != nil {
		return nil, err
	}
	p.proto, err = compileChunk(body, scriptName)
	if err != nil {
		return nil, commands.Errorf("ERR Error compiling script (new function): %s", err)
	}
	p.longest = longestConstant(p.proto)
	return p, nil
}

// longestConstant is the length in bytes of the longest string that the source of a function names.
func longestConstant(proto *lua.FunctionProto) int {
	n := 0
	for _, c := range proto.Constants {
		if s, ok := c.(lua.LString); ok {
			n = max(n, len(s))
		}
	}
	for _, inner := range proto.FunctionPrototypes {
		n = max(n, longestConstant(inner))
	}
	return n
}

// searchCost is what compiling a function cost because of its constants: each is searched for among those before it.
func searchCost(proto *lua.FunctionProto) int64 {
	n := int64(len(proto.Constants))
	cost := n * n / 64
	for _, inner := range proto.FunctionPrototypes {
		cost += searchCost(inner)
	}
	return cost
}

// The errors of a script's first line, byte-equal with Redis 7.0.
const (
	errBadShebang commands.Error = "ERR Invalid script shebang"
	errBadEngine  commands.Error = "ERR Invalid engine in script shebang"
)

// readShebang reads the flags of a first line `#!lua flags=a,b` and returns the script without that line's text.
func (p *program) readShebang(source []byte) (body []byte, err error) {
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
	p.shebang = true
	for _, word := range words[1:] {
		list, ok := bytes.CutPrefix(word, []byte("flags="))
		if !ok {
			return nil, commands.Errorf("ERR Unknown lua shebang option: %s", word)
		}
		if len(list) > 0 {
			if err := p.readFlags(list); err != nil {
				return nil, err
			}
		}
	}
	return body, nil
}

// splitFirstLine splits the first line of a script or a library, which begins with #!, into words, and returns what follows it. The line break
// stays, so that errors count lines as the author does. The errors are for a line that does not end, or not before a zero byte, and for quotes that do
// not.
func splitFirstLine(source []byte, noLine, noWords error) (words [][]byte, body []byte, err error) {
	end := bytes.IndexByte(source, '\n')
	if end < 0 || bytes.IndexByte(source[:end], 0) >= 0 {
		return nil, nil, noLine
	}
	words, ok := commands.SplitLine(source[:end])
	if !ok {
		return nil, nil, noWords
	}
	return words, source[end:], nil
}

func (p *program) readFlags(list []byte) error {
	for _, name := range bytes.Split(list, []byte(",")) {
		flag := commands.ParseFunctionFlag(name)
		if flag == 0 {
			return commands.Errorf("ERR Unexpected flag in script shebang: %s", name)
		}
		p.noWrites = p.noWrites || flag == commands.NoWrites
	}
	return nil
}

// compileChunk compiles Lua source. chunk is how errors name it, without a line.
func compileChunk(source []byte, chunk string) (proto *lua.FunctionProto, err error) {
	defer func() {
		if p := recover(); p != nil { // the compiler's own way out where it has no error of its own
			proto, err = nil, fmt.Errorf("%s: cannot be compiled: %v", chunk, p)
		}
	}()
	if bytes.HasPrefix(source, []byte("\x1b")) {
		return nil, fmt.Errorf("%s: bytecode is not accepted", chunk)
	}
	statements, err := parse.Parse(bytes.NewReader(source), chunk)
	if err != nil {
		return nil, wordParseError(err, source, chunk)
	}
	r := rewriter{declared: map[string]int{}}
	r.block(statements)
	if r.problem != "" {
		return nil, fmt.Errorf("%s:%d: %s", chunk, r.problemLine, r.problem)
	}
	proto, err = lua.Compile(statements, chunk)
	if e, ok := err.(*lua.CompileError); ok {
		const vararg = "cannot use '...' outside a vararg function"
		if e.Message == vararg {
			e.Message += " near '...'"
		}
		return nil, fmt.Errorf("%s:%d: %s", chunk, e.Line, e.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", chunk, err)
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg // a chunk has no table arg
	mend(proto)
	return proto, nil
}

// mend changes compiled functions in two ways. One that says `...` does not make the table arg of Lua 5.0, as in C Lua: that costs more
// than the call. And tail calls become calls: where a library function is called last, gopher-lua loses its frame, and a coroutine that
// ends with `return coroutine.yield()` breaks. What tail calls would save is bounded by scriptCallFrames.
func mend(proto *lua.FunctionProto) {
	const opShift = 26
	for i, instruction := range proto.Code {
		switch int(instruction >> opShift) {
		case lua.OP_VARARG:
			proto.IsVarArg &^= lua.VarArgNeedsArg
		case lua.OP_TAILCALL:
			proto.Code[i] = instruction&(1<<opShift-1) | uint32(lua.OP_CALL)<<opShift
		}
	}
	for _, inner := range proto.FunctionPrototypes {
		mend(inner)
	}
}

// wordParseError gives the parser's error the form that C Lua's have: chunk:line: what near 'token'.
func wordParseError(err error, source []byte, chunk string) error {
	var e *parse.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s:1: %w", chunk, err)
	}
	line, token := e.Pos.Line, e.Token
	if line == parse.EOF || token == "" || strings.Contains(e.Message, "end of file") {
		line, token = 1+bytes.Count(source, []byte("\n")), "<eof>"
	}
	return fmt.Errorf("%s:%d: %s near '%s'", chunk, line, e.Message, token)
}
