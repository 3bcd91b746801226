// The script engine: what the script commands of package commands run their scripts with, and the replicated script cache.
// How a script is compiled is in compile.go, what it runs in is in interpreter.go.

package script

import (
	"sync"

	"github.com/coordd/coordd/commands"
)

// The limits of scripts. All are counts, so that every node stops at the same place.
const (
	// scriptInstructions is what one script may do, in units of Env.Work, with the commands that it calls. In that time the machine does nothing
	// else: a tenth of a second for plain Lua, and about a quarter for the worst that we found to do.
	scriptInstructions = commands.MaxRequestWork
	// scriptBytes is what one script may build: strings, tables, functions and coroutines. It is not given back when a value is dropped.
	scriptBytes = 64 << 20
	// maxDerivedPrograms and maxDerivedSize bound the compiled scripts of reads, which are no part of the state.
	maxDerivedPrograms = 256
	maxDerivedSize     = 16 << 20
)

// Engine implements commands.Scripts. The cache and the libraries are state: only what entries run changes them (EVAL, EVALSHA, SCRIPT LOAD, FUNCTION LOAD …).
// EVAL_RO, EVALSHA_RO and FCALL_RO, which may run in several reads at a time, leave it alone.
type Engine struct {
	table *commands.Table

	bySHA       map[string]*cachedScript
	bySource    map[string]*cachedScript
	loaded      scriptList // in the order of loading
	cached      scriptList // by EVAL, in the order of use
	cachedCount int
	cachedSize  int // of the footprints
	loadedCount int
	loadedBytes int // of the sources

	libraries *librarySet

	writer *interpreter // of the scripts that entries run

	mu      sync.Mutex // guards what follows: reads run at the same time
	readers []*interpreter
	derived map[string]*program // by source
	order   []string            // of the keys of derived, oldest first

	derivedSize int // of the footprints
}

// NewEngine returns an engine without scripts, whose scripts call the commands of table.
func NewEngine(table *commands.Table) *Engine {
	e := &Engine{table: table, libraries: newLibrarySet(), derived: map[string]*program{}}
	e.Flush()
	return e
}

// compile compiles a script that a request brings, and has the request pay for it.
func (e *Engine) compile(x *commands.Call, source []byte) (*program, error) {
	p, work, err := compileScriptWithin(source, tokenLimit(x.Level))
	if x.Level >= commands.LevelBounded {
		x.Spend(work)
	}
	return p, err
}

// chosen is what a call of a script or a function comes to.
type chosen struct {
	script  commands.Script // as it is run: ReadOnly also where a function promises that
	source  string          // of a script
	cached  *cachedScript   // nil: a function, or a script that EVALSHA cannot call
	name    string          // the SHA1 of a script that is cached, or the name of a function
	program *program        // nil: it is not compiled yet
}

// choose finds what is called and changes nothing. Errors: EVALSHA does not know the script, or a function that may write is called as one that
// only reads.
func (e *Engine) choose(script commands.Script) (chosen, error) {
	if script.Function != nil {
		return e.chooseFunction(script)
	}
	s := e.bySource[string(script.Source)]
	if script.Source == nil {
		if s = e.find(script.SHA); s == nil {
			return chosen{}, commands.ErrNoScript
		}
	}
	if s == nil {
		return chosen{script: script, source: string(script.Source)}, nil
	}
	return chosen{script: script, source: s.source, cached: s, name: s.sha, program: s.program.Load()}, nil
}

// Eval runs a script or a function and writes its reply to x.Out. What it changed before an error stays; a runtime error is a reply,
// not an error of Eval. Errors: the script is unknown or does not compile, or it may write and is called as one that only reads, and
// nothing ran.
func (e *Engine) Eval(x *commands.Call, script commands.Script) error {
	c, err := e.choose(script)
	switch {
	case err != nil:
		return err
	case script.ReadOnly:
		return e.runReader(x, c)
	}
	return e.runWriter(x, c)
}

// runWriter runs what an entry asks for, and notes the use of a script.
func (e *Engine) runWriter(x *commands.Call, c chosen) (err error) {
	switch {
	case c.program != nil:
	case c.cached != nil: // it was paid for when it came
		c.program, err = compileScript([]byte(c.source))
	default:
		c.program, err = e.compile(x, []byte(c.source))
	}
	if err != nil {
		return err
	}
	if c.script.Function == nil {
		c.name = e.note(c, x.Level)
	}
	if !e.entryInterpreter().account(x, c.program, c.name, c.script) {
		e.writer = nil
	}
	return nil
}

// note makes a script, which is compiled, the newest in use, and returns its SHA1.
func (e *Engine) note(c chosen, level uint64) (sha string) {
	s := c.cached
	if s == nil {
		return e.remember(c.source, c.program, level).sha
	}
	s.program.Store(c.program)
	e.touch(s)
	return s.sha
}

// entryInterpreter is the interpreter of what entries run.
func (e *Engine) entryInterpreter() *interpreter {
	if e.writer == nil {
		e.writer = newInterpreter(e.table)
	}
	return e.writer
}

// runReader runs what leaves the engine as it is: what reads ask for, which several do at the same time, what is tried, and what an entry calls as
// something that only reads.
func (e *Engine) runReader(x *commands.Call, c chosen) (err error) {
	switch {
	case c.program != nil:
	case c.cached != nil: // it was paid for when it came, and stays compiled from now on
		if c.program, err = compileScript([]byte(c.source)); err == nil {
			c.cached.program.Store(c.program)
		}
	default:
		var work int
		c.program, work, err = e.derive(c.source, tokenLimit(x.Level))
		if x.Level >= commands.LevelBounded { // whether it was derived before or not, which is no part of the state
			x.Spend(work)
		}
	}
	if err != nil {
		return err
	}
	if c.name == "" {
		c.name = shaOf(c.source)
	}
	if c.script.ReadOnly && c.program.shebang && !c.program.noWrites {
		return errWritesInReadOnly
	}
	in := e.takeReader()
	if in.account(x, c.program, c.name, c.script) {
		e.mu.Lock()
		e.readers = append(e.readers, in)
		e.mu.Unlock()
	}
	return nil
}

func (e *Engine) takeReader() *interpreter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.readers); n > 0 {
		in := e.readers[n-1]
		e.readers = e.readers[:n-1]
		return in
	}
	return newInterpreter(e.table)
}

// derive returns the compiled form of a source, from a small store beside the state, and what compiling it costs. It compiles outside of the
// lock.
func (e *Engine) derive(source string, limit int) (p *program, work int, err error) {
	if p = e.known(source); p != nil && (limit == 0 || p.tokens <= limit) {
		return p, p.work, nil
	}
	p, work, err = compileScriptWithin([]byte(source), limit)
	if err != nil {
		return nil, work, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.derived[source] != nil { // another read has compiled it as well
		return p, work, nil
	}
	e.derived[source] = p
	e.order = append(e.order, source)
	e.derivedSize += footprint(len(source))
	for len(e.order) > maxDerivedPrograms || e.derivedSize > maxDerivedSize && len(e.order) > 1 {
		e.derivedSize -= footprint(len(e.order[0]))
		delete(e.derived, e.order[0])
		e.order = append(e.order[:0], e.order[1:]...)
	}
	return p, work, nil
}

// known is what derive has compiled before, or nil.
func (e *Engine) known(source string) *program {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.derived[source]
}

var _ commands.Scripts = (*Engine)(nil)
