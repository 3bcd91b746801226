// The engine finds, compiles and runs what a script command calls.

package script

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/lockorder"
)

// The limits of scripts. All are counts, so that every node stops at the same place.
const (
	// scriptInstructions bounds the work of one script with the commands that it calls, in units of
	// Env.Work. It occupies the machine for 100 ms in plain Lua, and for about 250 ms in the worst
	// case found.
	scriptInstructions = commands.MaxRequestWork
	// scriptBytes bounds what one script allocates: strings, tables, functions and coroutines.
	// Garbage counts too.
	scriptBytes = 64 << 20
	// maxDerivedPrograms and maxDerivedSize bound the compiled scripts of reads, which are not part
	// of the state.
	maxDerivedPrograms = 256
	maxDerivedSize     = 16 << 20
)

// Engine implements commands.Scripts for entries. The script cache and the libraries are replicated
// state: only entries change them (EVAL, EVALSHA, SCRIPT LOAD, FUNCTION LOAD …). EVAL_RO,
// EVALSHA_RO and FCALL_RO, which reads may run concurrently, do not.
type Engine struct {
	table *commands.Table

	bySHA       map[string]*cachedScript
	bySource    map[string]*cachedScript
	loaded      scriptList // in the order of loading
	cached      scriptList // by EVAL, in the order of use
	cachedCount int
	cachedBytes int // memory of the scripts in cached
	loadedBytes int // sources of the scripts in loaded
	loadedSize  int // memory of the scripts in loaded

	libraries *librarySet
	level     uint64 // the machine's, at which libraries are counted

	verdicts []commands.ScriptVerdict // in the order of the first about each

	writer *interpreter // runs the scripts of entries; nil: the next one needs a new interpreter

	mu      lockorder.Mutex // guards what follows: reads run concurrently
	usage   Usage
	readers []*interpreter
	derived map[string]*program // by source
	order   []string            // the sources in derived, oldest first

	derivedSize int // bytes
}

// Usage is what scripts and functions have done since the engine was made.
type Usage struct {
	Runs         uint64 // runs by entries, reads and dry runs
	Stopped      uint64 // runs that exceeded their budgets
	Instructions uint64 // the larger share of their budgets, as in Call.Work
}

// count adds the newest run of an interpreter.
func (u *Usage) count(in *interpreter) {
	u.Runs++
	u.Instructions += in.used
	if in.stopped {
		u.Stopped++
	}
}

// Usage returns what was counted.
func (e *Engine) Usage() Usage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.usage
}

// Seconds returns the processor time of the runs by os.clock, an estimate that is the same on every
// node.
func (u Usage) Seconds() float64 { return float64(u.Instructions) / instructionsPerSecond }

// NewEngine returns an engine without scripts, whose scripts call the commands of table.
func NewEngine(table *commands.Table) *Engine {
	e := &Engine{table: table, libraries: newLibrarySet(), derived: map[string]*program{},
		level: commands.FeatureLevel}
	e.Flush()
	return e
}

// SetLevel tells the engine the machine's feature level, before it restores or runs anything.
// LevelSecond counts the loading of libraries again: a node that restores them counts the same.
func (e *Engine) SetLevel(level uint64) {
	changed := strict(level) != strict(e.level)
	e.level = level
	if !changed {
		return
	}
	e.mu.Lock()
	// they were counted as at the other level
	e.derived, e.order, e.derivedSize = map[string]*program{}, nil, 0
	e.mu.Unlock()
	before := e.libraries.list
	err := e.reload(func(yield func([]byte, error) bool) {
		for _, l := range before {
			if !yield([]byte(l.Source), nil) {
				return
			}
		}
	})
	if err != nil {
		panic(err) // they were loaded
	}
}

// compile compiles a script from a request, and charges the request.
func (e *Engine) compile(x *commands.Call, source []byte) (*program, error) {
	p, work, err := compileScriptWithin(source, limitsAt(x.Level))
	if x.Level >= commands.LevelSecond {
		x.Spend(work)
	}
	return p, err
}

// chosen is what a call runs.
type chosen struct {
	script  commands.Script // ReadOnly and AllowOOM are also set if a function declares that
	source  string          // a script's source
	cached  *cachedScript   // nil: a function, or a script that EVALSHA cannot call
	name    string          // the SHA1 of a script that is cached, or the name of a function
	program *program        // nil: not compiled yet
	library *library        // the library that has the function; nil: a script
}

// Flags returns what the caller of a script or function knows of it before it runs: the flags that
// it declares. There are none for a script without a first line for them, for one that is unknown
// or too long, and for a line that cannot be read.
func (e *Engine) Flags(
	x *commands.Call, script commands.Script,
) (flags commands.FunctionFlags, declared bool) {
	flags, declared, read := e.Declared(x.Level, script)
	x.Spend(read / bytesPerWork)
	return flags, declared
}

// Declared is Flags without its price, and how many bytes of the source it read.
func (e *Engine) Declared(
	level uint64, script commands.Script,
) (flags commands.FunctionFlags, declared bool, read int) {
	switch {
	case script.Function != nil:
		if _, f := e.libraries.find(level, script.Function); f != nil {
			return f.Flags, true, 0
		}
	case len(script.Source) > commands.MaxScriptBytes:
	case script.Source != nil:
		var line firstLine
		body, err := line.readShebang(script.Source)
		read = len(script.Source) - len(body)
		if err == nil {
			return line.flags, line.shebang, read
		}
	default:
		if s := e.find(script.SHA); s != nil {
			return s.flags, s.shebang, 0
		}
	}
	return 0, false, read
}

// choose finds what is called, without any change. It fails if EVALSHA does not know the script, if
// FCALL_RO calls a function that may write, and if the script is refused.
func (e *Engine) choose(level uint64, script commands.Script) (chosen, error) {
	c, err := e.called(level, script)
	if err == nil {
		err = e.refused(&c)
	}
	return c, err
}

// called is choose without what is refused.
func (e *Engine) called(level uint64, script commands.Script) (chosen, error) {
	if script.Function != nil {
		return e.chooseFunction(level, script)
	}
	var s *cachedScript
	if script.Source == nil {
		if s = e.find(script.SHA); s == nil {
			return chosen{}, commands.ErrNoScript
		}
	} else if s = e.bySource[string(script.Source)]; s == nil {
		return chosen{script: script, source: string(script.Source)}, nil
	}
	return chosen{script: script, source: s.source, cached: s, name: s.sha,
		program: s.program}, nil
}

// Eval runs a script or a function and writes its reply to x.Out. A runtime error is a reply, and
// what the script changed before it stays. Eval fails, and nothing ran, if the script is unknown,
// does not compile, or may write but is called as read-only.
func (e *Engine) Eval(x *commands.Call, script commands.Script) error {
	c, err := e.choose(x.Level, script)
	switch {
	case err != nil:
		return err
	case script.ReadOnly:
		return e.runReader(x, c)
	}
	return e.runWriter(x, c)
}

// runWriter runs a script or function of an entry, and records the use of a script.
func (e *Engine) runWriter(x *commands.Call, c chosen) (err error) {
	switch {
	case c.program != nil:
	case c.cached != nil: // it was charged
		c.program, err = compileScript([]byte(c.source), x.Level)
	default:
		c.program, err = e.compile(x, []byte(c.source))
	}
	if err != nil {
		return err
	}
	if c.script.Function == nil {
		c.name = e.note(c, x.Level)
	}
	in := e.entryInterpreter(x.Level)
	e.writer = nil // after a panic, too: what the script left behind is nobody's
	if in.account(x, &c) {
		e.writer = in
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.usage.count(in)
	return nil
}

// note makes a compiled script the most recently used, and returns its SHA1.
func (e *Engine) note(c chosen, level uint64) (sha string) {
	s := c.cached
	if s == nil {
		return e.remember(c.source, c.program, level).sha
	}
	e.touch(s)
	return s.sha
}

// entryInterpreter returns the interpreter of entries.
func (e *Engine) entryInterpreter(level uint64) *interpreter {
	if e.writer == nil || e.writer.L.G.Strict != strict(level) {
		e.writer = newInterpreter(e.table, strict(level))
	}
	return e.writer
}

// runReader runs what does not change the engine: scripts of reads, which run concurrently, dry
// runs, and read-only calls of entries.
func (e *Engine) runReader(x *commands.Call, c chosen) (err error) {
	switch {
	case c.program != nil:
	case c.cached != nil:
		c.program, err = compileScript([]byte(c.source), x.Level)
	default:
		var work int
		c.program, work, err = e.derive(c.source, limitsAt(x.Level))
		if x.Level >= commands.LevelSecond {
			// also if known: the derived programs are not part of the state
			x.Spend(work)
		}
	}
	if err != nil {
		return err
	}
	if c.name == "" {
		c.name = shaOf(c.source)
	}
	if c.script.ReadOnly && c.program.shebang && !c.program.noWrites() {
		return errWritesInReadOnly
	}
	in := e.takeReader(x.Level)
	reusable := in.account(x, &c)
	e.mu.Lock()
	defer e.mu.Unlock()
	if reusable {
		e.readers = append(e.readers, in)
	}
	e.usage.count(in)
	return nil
}

// takeReader returns an interpreter of reads, and drops those of another level.
func (e *Engine) takeReader(level uint64) *interpreter {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := len(e.readers); n > 0; n = len(e.readers) {
		in := e.readers[n-1]
		e.readers = e.readers[:n-1]
		if in.L.G.Strict == strict(level) {
			return in
		}
	}
	return newInterpreter(e.table, strict(level))
}

// derive returns the compiled form of a source, from a small cache outside the state, and the cost
// of compiling it. It compiles outside the lock.
func (e *Engine) derive(source string, limits lua.Limits) (p *program, work int, err error) {
	if p = e.known(source); p != nil && (limits.Tokens == 0 || p.tokens <= limits.Tokens) {
		return p, p.work, nil
	}
	p, work, err = compileScriptWithin([]byte(source), limits)
	if err != nil {
		return nil, work, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.derived[source] != nil { // another read compiled it meanwhile
		return p, work, nil
	}
	e.derived[source] = p
	e.order = append(e.order, source)
	e.derivedSize += p.size
	for len(e.order) > maxDerivedPrograms || e.derivedSize > maxDerivedSize && len(e.order) > 1 {
		e.derivedSize -= e.derived[e.order[0]].size
		delete(e.derived, e.order[0])
		e.order = append(e.order[:0], e.order[1:]...)
	}
	return p, work, nil
}

// known returns what derive has cached, or nil.
func (e *Engine) known(source string) *program {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.derived[source]
}

var _ commands.Scripts = (*Engine)(nil)
