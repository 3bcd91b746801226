// The script engine: what the script commands of package commands run their scripts with, and the replicated script cache.
// How a script is compiled is in compile.go, what it runs in is in interpreter.go.

package script

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/wire"
)

// The limits of scripts. All are counts, so that every node stops at the same place.
const (
	// scriptInstructions is what one script may do, in units of Env.Work, with the commands that it calls. In that time the machine does nothing
	// else: a tenth of a second for plain Lua, and about a quarter for the worst that we found to do.
	scriptInstructions = commands.MaxRequestWork
	// scriptBytes is what one script may build: strings, tables, functions and coroutines. It is not given back when a value is dropped.
	scriptBytes = 64 << 20
	// maxCachedScripts is how many scripts that came by EVAL stay for EVALSHA. Programs that build their scripts' text
	// anew for every call would fill the memory otherwise. It is the number of Redis 7.4.
	maxCachedScripts = 500
	// maxCachedSize bounds what they take in memory, by footprint. The newest one stays in any case.
	maxCachedSize = 16 << 20
	// maxLoadedBytes bounds the sources that SCRIPT LOAD keeps, which are never dropped, below LevelBounded, and maxLoadedSize from there on
	// what they take in memory, by footprint.
	maxLoadedBytes = 64 << 20
	maxLoadedSize  = 256 << 20
	// maxDerivedPrograms and maxDerivedSize bound the compiled scripts of reads, which are no part of the state.
	maxDerivedPrograms = 256
	maxDerivedSize     = 16 << 20
)

// footprint is about what a script takes in memory, compiled, at most: it goes by the source alone, so that a node that has not compiled it yet
// counts the same.
func footprint(source int) int { return 1024 + 22*source }

const errScriptsFull commands.Error = "OOM too many scripts are loaded: SCRIPT FLUSH forgets them"

// cachedScript is a script that EVALSHA can call.
type cachedScript struct {
	source     string
	sha        string                  // SHA1 of source in lower-case hexadecimal
	loaded     bool                    // came by SCRIPT LOAD: it stays until SCRIPT FLUSH
	program    atomic.Pointer[program] // derived; nil until the script is first run, by an entry or a read
	prev, next *cachedScript
}

// scriptList is a ring of scripts in the order of their use, the oldest first.
type scriptList struct{ root cachedScript }

func (l *scriptList) init() { l.root.prev, l.root.next = &l.root, &l.root }

func (l *scriptList) first() *cachedScript {
	if l.root.next == &l.root {
		return nil
	}
	return l.root.next
}

func (l *scriptList) pushBack(s *cachedScript) {
	s.prev, s.next = l.root.prev, &l.root
	s.prev.next, l.root.prev = s, s
}

func (s *cachedScript) unlink() { s.prev.next, s.next.prev = s.next, s.prev }

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

// Len is the number of scripts that EVALSHA can call.
func (e *Engine) Len() int { return len(e.bySHA) }

// Exists says whether EVALSHA can call the script with this SHA1 (40 hexadecimal digits in any case).
func (e *Engine) Exists(sha []byte) bool { return e.find(sha) != nil }

// Flush forgets all scripts.
func (e *Engine) Flush() {
	e.bySHA, e.bySource = map[string]*cachedScript{}, map[string]*cachedScript{}
	e.loaded.init()
	e.cached.init()
	e.cachedCount, e.cachedSize, e.loadedCount, e.loadedBytes = 0, 0, 0, 0
}

// Load compiles and keeps a script, and returns its SHA1 in hexadecimal. Errors are replies: the script does not compile,
// or too much is loaded.
func (e *Engine) Load(x *commands.Call, source []byte) (sha string, err error) {
	s := e.bySource[string(source)]
	switch {
	case s != nil && s.loaded:
		return s.sha, nil
	case e.loadedFull(x.Level, len(source)):
		return "", errScriptsFull
	case s != nil:
		e.uncache(s)
	default:
		p, err := e.compile(x, source)
		if err != nil {
			return "", err
		}
		s = e.add(string(source))
		s.program.Store(p)
	}
	e.keep(s)
	return s.sha, nil
}

// loadedFull says whether another source of n bytes is one too many for SCRIPT LOAD.
func (e *Engine) loadedFull(level uint64, n int) bool {
	if level >= commands.LevelBounded {
		return footprint(0)*(e.loadedCount+1)+footprint(e.loadedBytes+n)-footprint(0) > maxLoadedSize
	}
	return e.loadedBytes+n > maxLoadedBytes
}

// keep makes a script one that SCRIPT LOAD loaded.
func (e *Engine) keep(s *cachedScript) {
	s.loaded = true
	e.loaded.pushBack(s)
	e.loadedCount++
	e.loadedBytes += len(s.source)
}

// uncache takes a script out of those that EVAL brought.
func (e *Engine) uncache(s *cachedScript) {
	s.unlink()
	e.cachedCount--
	e.cachedSize -= footprint(len(s.source))
}

// compile compiles a script that a request brings, and has the request pay for it.
func (e *Engine) compile(x *commands.Call, source []byte) (*program, error) {
	p, work, err := compileScriptWithin(source, tokenLimit(x.Level))
	if x.Level >= commands.LevelBounded {
		x.Spend(work)
	}
	return p, err
}

// add makes a script known without putting it in a list.
func (e *Engine) add(source string) *cachedScript {
	s := &cachedScript{source: source, sha: shaOf(source)}
	e.bySHA[s.sha], e.bySource[source] = s, s
	return s
}

// remember caches a script that EVAL ran, and drops those that were not used for longest where there are too many.
func (e *Engine) remember(source string, p *program, level uint64) *cachedScript {
	s := e.add(source)
	s.program.Store(p)
	e.cache(s)
	for e.cachedCount > maxCachedScripts || level >= commands.LevelBounded && e.cachedSize > maxCachedSize && e.cachedCount > 1 {
		old := e.cached.first()
		e.uncache(old)
		delete(e.bySHA, old.sha)
		delete(e.bySource, old.source)
	}
	return s
}

// cache makes a script the newest that EVAL brought.
func (e *Engine) cache(s *cachedScript) {
	e.cached.pushBack(s)
	e.cachedCount++
	e.cachedSize += footprint(len(s.source))
}

// touch makes a script the newest in use.
func (e *Engine) touch(s *cachedScript) {
	if !s.loaded && e.cached.root.prev != s {
		s.unlink()
		e.cached.pushBack(s)
	}
}

func (e *Engine) find(sha []byte) *cachedScript {
	if len(sha) != 2*sha1.Size {
		return nil
	}
	var low [2 * sha1.Size]byte
	for i, c := range sha {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		low[i] = c
	}
	return e.bySHA[string(low[:])]
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

func shaOf(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// errScriptRecord says that the script cache in a snapshot cannot be read.
var errScriptRecord = errors.New("its script cache is corrupt")

// AppendTo appends the cache to dst: the sources that were loaded, then those that EVAL cached, each with its order; then the libraries.
func (e *Engine) AppendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(e.bySHA)-e.cachedCount))
	dst = binary.AppendUvarint(dst, uint64(e.cachedCount))
	for _, l := range []*scriptList{&e.loaded, &e.cached} {
		for s := l.first(); s != nil && s != &l.root; s = s.next {
			dst = wire.AppendBytes(dst, s.source)
		}
	}
	return e.libraries.appendTo(dst)
}

// Restore replaces the cache and the libraries by what AppendTo wrote. After an error the engine must not be used.
func (e *Engine) Restore(b []byte) error {
	e.Flush()
	c := wire.NewCursor(b)
	loaded, cached := c.Uvarint(), c.Uvarint()
	if loaded > uint64(len(b)) || cached > maxCachedScripts {
		return errScriptRecord
	}
	for i := range loaded + cached {
		source := c.Text()
		if c.Failed() || e.bySource[source] != nil {
			return errScriptRecord
		}
		s := e.add(source)
		if s.loaded = i < loaded; s.loaded {
			e.keep(s)
		} else {
			e.cache(s)
		}
	}
	if c.Failed() {
		return errScriptRecord
	}
	return e.loadLibraries(&c)
}

var _ commands.Scripts = (*Engine)(nil)
