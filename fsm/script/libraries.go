// The function libraries, which are replicated state, and how they are read from source.
// libraries_load.go runs their code.

package script

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/wire"
)

const (
	// libraryChunk is the chunk name that Redis gives its libraries. Errors show it.
	libraryChunk = "user_function"
	// loadInstructions and loadBytes bound what a library may execute and allocate while it loads.
	loadInstructions = 1_000_000
	loadBytes        = 16 << 20
	// maxLoadCost bounds the instructions of all libraries together: FUNCTION RESTORE and a node
	// that starts from a snapshot load them all.
	maxLoadCost = 10_000_000
)

// lenientLoad is the budget of a library that was loaded before: an older release may have counted
// less for the same code.
var lenientLoad = lua.Budget{Instructions: 10 * loadInstructions, Bytes: 4 * loadBytes}

// The errors of libraries, byte-equal with Redis 7.0.
const (
	errNoMetadata  commands.Error = "ERR Missing library metadata"
	errBadMetadata commands.Error = "ERR Invalid library metadata"
	errNamedTwice  commands.Error = "ERR Invalid metadata value, name argument was given " +
		"multiple times"
	errNameMissing    commands.Error = "ERR Library name was not given"
	errNameCharacters commands.Error = "ERR Library names can only contain letters, numbers, " +
		"or underscores(_) and must be at least one character long"
	errNothingRegistered commands.Error = "ERR No functions registered"
	// errLoadTimeout is Redis's text: both stop a library whose code runs too long
	errLoadTimeout commands.Error = "ERR FUNCTION LOAD timeout"
)

// library is a library with what is derived from its source.
type library struct {
	commands.Library
	program *program
	sha     string // SHA1 of the source, in hexadecimal
	cost    int64  // instructions to load it
	bytes   int64  // memory to load it
}

// size is the library's share of commands.MaxLibraryBytes.
func (l *library) size() int {
	n := len(l.Source)
	for i := range l.Functions {
		n += len(l.Functions[i].Name) + len(l.Functions[i].Description)
	}
	return n
}

// librarySet is a set of libraries whose functions have distinct names, but for some that were
// loaded below LevelSecond: see reload.
type librarySet struct {
	list       []*library               // in order of name
	byFunction map[string]functionPlace // by the name in lower case: the first in list that has it
	shared     bool                     // there may be a name that several have
	bytes      int                      // sum of library.size
	compiled   int                      // sum of program.size
	cost       int64                    // what loading all takes, instructions
	kept       int64                    // work to load those that interpreters keep
}

// functionPlace is where a function is: the first of its library that has the name.
type functionPlace struct {
	library *library
	index   int
}

func newLibrarySet() *librarySet { return &librarySet{byFunction: map[string]functionPlace{}} }

func (s *librarySet) search(name string) (index int, found bool) {
	return slices.BinarySearchFunc(s.list, name, func(l *library, name string) int {
		return strings.Compare(l.Name, name)
	})
}

func (s *librarySet) has(name string) bool {
	_, found := s.search(name)
	return found
}

// conflict fails if a library that does not leave has a function of l.
func (s *librarySet) conflict(l *library, leaves map[*library]bool) error {
	for i := range l.Functions {
		at, taken := s.byFunction[ascii.Lower(l.Functions[i].Name)]
		if taken && !leaves[at.library] {
			return commands.Errorf("ERR Function %s already exists", l.Functions[i].Name)
		}
	}
	return nil
}

// add adds a library whose name is free.
func (s *librarySet) add(l *library) {
	s.index(l)
	index, _ := s.search(l.Name)
	s.list = slices.Insert(s.list, index, l)
	s.count(l, 1)
}

// index adds the functions of a library to byFunction.
func (s *librarySet) index(l *library) {
	for i := range l.Functions {
		name := ascii.Lower(l.Functions[i].Name)
		if at, taken := s.byFunction[name]; !taken {
			s.byFunction[name] = functionPlace{l, i}
		} else if at.library != l {
			s.shared = true
		}
	}
}

// indexAll indexes all libraries: byFunction depends on those that there are, not on how they came.
func (s *librarySet) indexAll() {
	s.byFunction, s.shared = map[string]functionPlace{}, false
	for _, l := range s.list {
		s.index(l)
	}
}

// count counts a library that comes, or goes if sign is -1.
func (s *librarySet) count(l *library, sign int) {
	s.bytes += sign * l.size()
	s.compiled += sign * l.program.size
	s.cost += int64(sign) * l.cost
}

// remove removes a library and reports whether it existed.
func (s *librarySet) remove(name string) bool {
	index, found := s.search(name)
	if !found {
		return false
	}
	for _, f := range s.list[index].Functions {
		delete(s.byFunction, ascii.Lower(f.Name)) // share adds what others have
	}
	s.count(s.list[index], -1)
	s.list[index].program.keep = false
	s.list = slices.Delete(s.list, index, index+1)
	return true
}

// share follows each change. It marks the libraries that interpreters keep loaded: as many as fit,
// in order of name. A call of any other runs the library's code, and is charged for it. It returns
// the work to load those that were not kept before, and to find functions again.
func (s *librarySet) share() (more int64) {
	if s.shared {
		s.indexAll()
		more = removeUnits * int64(len(s.byFunction))
	}
	bytes := int64(0)
	s.kept = 0
	for i, l := range s.list {
		bytes += l.bytes
		before := l.program.keep
		l.program.keep = i < maxKeptLibraries && bytes <= maxKeptLibraryBytes
		if !l.program.keep {
			continue
		}
		work := loadWork(l.cost, l.bytes)
		s.kept += work
		if !before {
			more += work
		}
	}
	return more
}

// checkLibraries fails if so many libraries exceed the limits.
func checkLibraries(n, bytes int, cost int64) error {
	if n > commands.MaxLibraries || bytes > commands.MaxLibraryBytes || cost > maxLoadCost {
		return commands.ErrLibrariesFull
	}
	return nil
}

// HasFunction reports whether FCALL finds a function at a feature level.
func (e *Engine) HasFunction(level uint64, name []byte) bool {
	_, f := e.libraries.find(level, name)
	return f != nil
}

// find returns the function that FCALL calls by a name at a feature level, and its library; nil if
// there is none. Below LevelSecond the case of all Unicode letters is ignored, as in 0.1.
func (s *librarySet) find(level uint64, name []byte) (*library, *commands.Function) {
	at, ok := s.byFunction[string(name)]
	if !ok {
		at, ok = s.byFunction[ascii.Lower(name)]
	}
	if !ok && level < commands.LevelSecond {
		at, ok = s.byFunction[strings.ToLower(string(name))] //purity: 0.1 did, its log is replayed
		ok = ok && strings.EqualFold(                        //purity: 0.1 did, its log is replayed
			at.library.Functions[at.index].Name, string(name))
	}
	if !ok {
		return nil, nil
	}
	return at.library, &at.library.Functions[at.index]
}

// LoadLibrary loads a library. An error is a reply, and nothing changed.
func (e *Engine) LoadLibrary(x *commands.Call, source []byte,
	replace bool) (name string, err error) {
	l, err := e.readLibrary(x, source, func(name string) bool {
		return !replace && e.libraries.has(name)
	})
	if err != nil {
		return "", err
	}
	return l.Name, e.join(x, []*library{l}, commands.RestoreReplace)
}

// RestoreLibraries loads libraries, all or none.
func (e *Engine) RestoreLibraries(x *commands.Call, sources iter.Seq2[[]byte, error],
	policy commands.RestorePolicy) error {
	restored := newLibrarySet()
	for source, err := range sources {
		if err != nil {
			return err
		}
		l, err := e.readLibrary(x, source, restored.has)
		if err != nil {
			return err
		}
		if err := restored.conflict(l, nil); err != nil {
			return err
		}
		restored.add(l)
		// at once, so that no more is loaded than the limits allow
		err = checkLibraries(len(restored.list), restored.bytes, restored.cost)
		if err != nil {
			return err
		}
	}
	if policy == commands.RestoreFlush {
		e.libraries = restored
		e.share(x)
		return nil
	}
	return e.join(x, restored.list, policy)
}

// join adds libraries without conflicts to the state, or fails and changes nothing. It touches
// nothing of the libraries that stay.
func (e *Engine) join(x *commands.Call, list []*library, policy commands.RestorePolicy) error {
	s := e.libraries
	n, bytes, cost := len(s.list)+len(list), s.bytes, s.cost
	leaves := map[*library]bool{} // looked up only
	for _, l := range list {
		bytes, cost = bytes+l.size(), cost+l.cost
		index, found := s.search(l.Name)
		switch {
		case !found:
			continue
		case policy != commands.RestoreReplace:
			return commands.Errorf("ERR Library %s already exists", l.Name)
		}
		old := s.list[index]
		leaves[old] = true
		n, bytes, cost = n-1, bytes-old.size(), cost-old.cost
	}
	for _, l := range list {
		if err := s.conflict(l, leaves); err != nil {
			return err
		}
	}
	if err := checkLibraries(n, bytes, cost); err != nil {
		return err
	}
	for _, l := range list {
		e.remove(x, l.Name)
	}
	for _, l := range list {
		s.add(l)
	}
	e.share(x)
	return nil
}

// share shares the libraries after a change, and charges x for what calls will load: they do not
// pay for that.
func (e *Engine) share(x *commands.Call) {
	if more := e.libraries.share(); x.Level >= commands.LevelSecond {
		x.Spend(int(more))
	}
}

// The cost of removing a function, and how many bytes of its name and description a unit pays for.
const (
	removeUnits    = 8
	removedPerUnit = 16
)

// remove removes a library, charges x for it, and reports whether it existed.
func (e *Engine) remove(x *commands.Call, name string) bool {
	index, found := e.libraries.search(name)
	if found && x.Level >= commands.LevelSecond {
		l := e.libraries.list[index]
		x.Spend(removeUnits*len(l.Functions) + (l.size()-len(l.Source))/removedPerUnit)
	}
	return found && e.libraries.remove(name)
}

// DeleteLibrary removes a library and reports whether it existed.
func (e *Engine) DeleteLibrary(x *commands.Call, name []byte) bool {
	found := e.remove(x, string(name))
	if found {
		e.share(x)
	}
	return found
}

// FlushLibraries removes all libraries.
func (e *Engine) FlushLibraries() { e.libraries = newLibrarySet() }

// Libraries returns all libraries in order of name.
func (e *Engine) Libraries() []*commands.Library {
	all := make([]*commands.Library, len(e.libraries.list))
	for i, l := range e.libraries.list {
		all[i] = &l.Library
	}
	return all
}

// LibraryCount returns how many libraries there are.
func (e *Engine) LibraryCount() int { return len(e.libraries.list) }

// chooseFunction is choose for an existing function.
func (e *Engine) chooseFunction(level uint64, script commands.Script) (chosen, error) {
	l, f := e.libraries.find(level, script.Function)
	readOnly := f.Flags&commands.NoWrites != 0
	if script.ReadOnly && !readOnly {
		return chosen{}, errWritesInReadOnly
	}
	script.ReadOnly, script.AllowOOM = readOnly, f.Flags&commands.AllowOOM != 0
	return chosen{script: script, library: l, name: f.Name, program: l.program}, nil
}

func libraryOf(source []byte) *library {
	return &library{Library: commands.Library{Source: string(source)}, sha: shaOf(string(source))}
}

// readLibrary makes a library of its source and runs the code, which registers its functions. taken
// reports whether a name is in use.
func (e *Engine) readLibrary(x *commands.Call, source []byte,
	taken func(name string) bool) (*library, error) {
	if len(source) > commands.MaxScriptBytes {
		return nil, commands.Errorf("ERR library is longer than %d bytes", commands.MaxScriptBytes)
	}
	l := libraryOf(source)
	if x.Level >= commands.LevelSecond {
		line, _, _ := bytes.Cut(source, []byte("\n")) // compiling is charged for the rest
		x.Spend(len(line) / bytesPerWork)
	}
	body, err := l.readMetadata(source)
	if err != nil {
		return nil, err
	}
	if taken(l.Name) {
		return nil, commands.Errorf("ERR Library '%s' already exists", l.Name)
	}
	limits := limitsAt(x.Level)
	tokens, err := l.compile(limits, body)
	if limits.Tokens > 0 {
		x.Spend(compileWork(tokens, len(body)))
	}
	if err != nil {
		return nil, err
	}
	if err := e.refused(&chosen{library: l}); err != nil {
		return nil, err
	}
	switch err := e.load(x, l); {
	case err != nil:
		return nil, commands.Errorf("ERR Error registering functions: %s", err)
	case len(l.Functions) == 0:
		return nil, errNothingRegistered
	}
	return l, nil
}

// load runs the code of a library from a request, which it charges.
func (e *Engine) load(x *commands.Call, l *library) error {
	in := e.entryInterpreter(x.Level)
	reusable, err := in.loadLibrary(x, l,
		lua.Budget{Instructions: loadInstructions, Bytes: loadBytes})
	x.Spend(int(l.cost))
	if err != nil && in.budget.Spent() == lua.ErrInstructions && x.Level >= commands.LevelSecond {
		err = errLoadTimeout
	}
	if !reusable {
		e.writer = nil
		if x.Level >= commands.LevelSecond {
			x.Spend(int(e.libraries.kept)) // calls will load them again, and do not pay for that
		}
	}
	return err
}

// reload replaces the libraries by those of sources that were loaded before, counted by the
// machine's level: both a node that restores them and one on which the level rises come here. What
// the first level accepted may fail at a later one, or register nothing there. Then it is run as at
// the first level, but for elementary functions, which no processor may decide any more, and each
// call of its functions fails. If that does not work either, the library stays without functions: a
// state that was written can be read. It may also register what another library has, whose function
// is called then. What a library is depends on its source alone, since that is all that a snapshot
// has: another one may have been beside it when the level rose.
func (e *Engine) reload(sources iter.Seq2[[]byte, error]) error {
	now, all := strict(e.level), newLibrarySet()
	for source, err := range sources {
		if err != nil {
			return err
		}
		l := libraryOf(source)
		body, err := l.readMetadata(source)
		if err == nil && all.has(l.Name) {
			err = errScriptRecord
		}
		if err == nil {
			_, err = l.compile(lua.Limits{Released: !now}, body)
		}
		if err != nil {
			return err
		}
		for _, strict := range []bool{now, false} {
			counted := *l
			in := newRoundingInterpreter(e.table, strict, now)
			_, err := in.loadLibrary(nil, &counted, lenientLoad)
			if err == nil && len(counted.Functions) > 0 {
				l = &counted
				break
			}
		}
		all.add(l)
	}
	all.share()
	e.libraries = all
	return nil
}

// compile compiles the code of a library.
func (l *library) compile(limits lua.Limits, body []byte) (tokens int, err error) {
	proto, tokens, err := compileChunk(body, libraryChunk, limits)
	if err != nil {
		return tokens, commands.Errorf("ERR Error compiling function: %s", err)
	}
	l.program = &program{proto: proto, size: programBytes + len(l.Source) + proto.Size()}
	return tokens, nil
}

// readMetadata reads a first line `#!lua name=x` and returns the code without the text of that
// line.
func (l *library) readMetadata(source []byte) (body []byte, err error) {
	if !bytes.HasPrefix(source, []byte("#!")) {
		return nil, errNoMetadata
	}
	words, body, err := splitFirstLine(source, errBadMetadata, errBadMetadata)
	if err != nil {
		return nil, err
	}
	named := false
	for _, word := range words[1:] {
		const option = "name="
		switch {
		case len(word) < len(option) || !isWord(string(word[:len(option)]), option):
			return nil, commands.Errorf("ERR Invalid metadata value given: %s", word)
		case named:
			return nil, errNamedTwice
		}
		l.Name, named = string(word[len(option):]), true
	}
	switch engine := strings.TrimPrefix(string(words[0]), "#!"); {
	case !named:
		return nil, errNameMissing
	case !isFunctionName(l.Name):
		return nil, errNameCharacters
	case !isWord(engine, "lua"):
		return nil, commands.Errorf("ERR Engine '%s' not found", engine)
	}
	return body, nil
}

// isWord reports whether a name in a library's source is a word. The case of all Unicode letters is
// ignored: a library that 0.1 accepted is loaded again at each restore.
func isWord(name, word string) bool {
	return strings.EqualFold(name, word) //purity: equal on all nodes, for words in the source
}

// isFunctionName reports whether name is valid for a library or a function.
func isFunctionName(name string) bool {
	for i := range len(name) {
		if !isAlnum(name[i]) && name[i] != '_' {
			return false
		}
	}
	return name != ""
}

// appendTo appends the sources to dst, nothing for an empty set.
func (s *librarySet) appendTo(dst []byte) []byte {
	if len(s.list) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.list)))
	for _, l := range s.list {
		dst = wire.AppendBytes(dst, l.Source)
	}
	return dst
}

// loadLibraries replaces the libraries with what appendTo wrote, the rest of c. After an error the
// engine must not be used.
func (e *Engine) loadLibraries(c *wire.Cursor) error {
	e.FlushLibraries()
	if c.Len() == 0 {
		return nil
	}
	n := c.Uvarint()
	if n == 0 || n > commands.MaxLibraries {
		return errScriptRecord
	}
	return e.reload(func(yield func([]byte, error) bool) {
		for range n {
			source := c.Bytes()
			if c.Failed() {
				yield(nil, errScriptRecord)
				return
			}
			if !yield(source, nil) {
				return
			}
		}
		if c.Len() != 0 {
			yield(nil, errScriptRecord)
		}
	})
}
