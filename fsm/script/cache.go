// The replicated script cache that serves EVALSHA.

package script

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/wire"
)

// The limits of the cache.
const (
	// maxCachedScripts bounds the scripts of EVAL that stay for EVALSHA, as in Redis 7.4. Without
	// it, programs that generate each script would fill the memory.
	maxCachedScripts = 500
	// maxCachedSize bounds their memory, from LevelSecond on. The newest one always stays.
	maxCachedSize = 16 << 20
	// maxLoadedBytes bounds the sources of SCRIPT LOAD, which are never dropped, below
	// LevelSecond; from that level on, maxLoadedSize bounds their memory.
	maxLoadedBytes = 64 << 20
	maxLoadedSize  = 256 << 20
)

const errScriptsFull commands.Error = "OOM too many scripts are loaded: SCRIPT FLUSH forgets them"

// cachedScript is a script that EVALSHA can call.
type cachedScript struct {
	firstLine
	source     string
	sha        string   // SHA1 of source in lower-case hexadecimal
	loaded     bool     // by SCRIPT LOAD: it stays until SCRIPT FLUSH
	program    *program // nil if it compiles at no level any more: a call gets the error
	prev, next *cachedScript
}

// scriptList is a ring of scripts in the order of use, oldest first.
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

// Len returns the number of scripts that EVALSHA can call.
func (e *Engine) Len() int { return len(e.bySHA) }

// Exists reports whether EVALSHA can call the script with this SHA1 (40 hexadecimal digits in any
// case).
func (e *Engine) Exists(sha []byte) bool { return e.find(sha) != nil }

// Source returns the source of a script that Exists.
func (e *Engine) Source(sha []byte) (source string, ok bool) {
	s := e.find(sha)
	if s == nil {
		return "", false
	}
	return s.source, true
}

// Flush forgets all scripts.
func (e *Engine) Flush() {
	e.bySHA, e.bySource = map[string]*cachedScript{}, map[string]*cachedScript{}
	e.loaded.init()
	e.cached.init()
	e.cachedCount, e.cachedBytes = 0, 0
	e.loadedBytes, e.loadedSize = 0, 0
}

// Load compiles and keeps a script, and returns its SHA1 in hexadecimal. It fails with a reply if
// the script does not compile or the cache is full.
func (e *Engine) Load(x *commands.Call, source []byte) (sha string, err error) {
	s := e.bySource[string(source)]
	switch {
	case s != nil && s.loaded:
		return s.sha, nil
	case e.loadedFull(x.Level, len(source), len(source)):
		return "", errScriptsFull
	case s != nil:
		if e.loadedFull(x.Level, len(source), s.size()) {
			return "", errScriptsFull
		}
		e.uncache(s)
	default:
		p, err := e.compile(x, source)
		if err != nil {
			return "", err
		}
		if e.loadedFull(x.Level, len(source), p.size) {
			return "", errScriptsFull
		}
		s = e.add(string(source), p)
	}
	e.keep(s)
	return s.sha, nil
}

// loadedFull reports whether SCRIPT LOAD has no room for another source of n bytes, which takes
// size bytes when it is compiled.
func (e *Engine) loadedFull(level uint64, n, size int) bool {
	if strict(level) {
		return e.loadedSize+size > maxLoadedSize
	}
	return e.loadedBytes+n > maxLoadedBytes
}

// Size returns the memory of scripts and libraries, bytes.
func (e *Engine) Size() int {
	scripts, libraries := e.Sizes()
	return scripts + libraries
}

// Sizes returns the memory of each, bytes.
func (e *Engine) Sizes() (scripts, libraries int) {
	return e.cachedBytes + e.loadedSize, e.libraries.compiled
}

// Counts returns all that the engine counts and decides by from LevelSecond on. It is a function of
// the state: equal on a node that ran the scripts, on one that restored them, and on all
// processors.
func (e *Engine) Counts() [8]uint64 {
	s := e.libraries
	return [...]uint64{uint64(len(e.bySHA)), uint64(e.cachedCount), uint64(e.cachedBytes),
		uint64(e.loadedSize), uint64(len(s.list)), uint64(s.compiled), uint64(s.cost),
		uint64(s.kept)}
}

// keep adds a script to those of SCRIPT LOAD.
func (e *Engine) keep(s *cachedScript) {
	s.loaded = true
	e.loaded.pushBack(s)
	e.loadedBytes += len(s.source)
	e.loadedSize += s.size()
}

// uncache removes a script from those of EVAL.
func (e *Engine) uncache(s *cachedScript) {
	s.unlink()
	e.cachedCount--
	e.cachedBytes -= s.size()
}

// add indexes a script without putting it in a list.
func (e *Engine) add(source string, p *program) *cachedScript {
	s := &cachedScript{source: source, sha: shaOf(source), program: p}
	_, _ = s.readShebang([]byte(source)) // cannot fail: it was compiled
	e.bySHA[s.sha], e.bySource[source] = s, s
	return s
}

// remember caches a script of EVAL, and drops the least recently used ones if there are too many.
func (e *Engine) remember(source string, p *program, level uint64) *cachedScript {
	s := e.add(source, p)
	e.cache(s)
	for e.cachedCount > maxCachedScripts ||
		strict(level) && e.cachedBytes > maxCachedSize && e.cachedCount > 1 {
		old := e.cached.first()
		e.uncache(old)
		delete(e.bySHA, old.sha)
		delete(e.bySource, old.source)
	}
	return s
}

// size returns the script's memory, bytes.
func (s *cachedScript) size() int {
	if s.program != nil {
		return s.program.size
	}
	return programBytes + 22*len(s.source)
}

// cache adds a script to those of EVAL, as the most recently used.
func (e *Engine) cache(s *cachedScript) {
	e.cached.pushBack(s)
	e.cachedCount++
	e.cachedBytes += s.size()
}

// touch makes a script the most recently used.
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
	if s := e.bySHA[string(sha)]; s != nil {
		return s
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

func shaOf(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// errScriptRecord reports a corrupt script cache in a snapshot.
var errScriptRecord = errors.New("its script cache is corrupt")

// AppendTo appends the engine's record of a snapshot to dst: the sources of SCRIPT LOAD and those
// of EVAL, each in order, then the libraries.
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

// Restore replaces cache and libraries by what AppendTo wrote. After an error the engine must not
// be used.
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
		// every node has compiled all of them, so that none works for that when the script runs,
		// and all count the same: what only an earlier level refuses, as one processor may do and
		// another not, is compiled, too
		p, err := compileScript([]byte(source), e.level)
		if err != nil {
			p, _ = compileScript([]byte(source), commands.FeatureLevel)
		}
		s := e.add(source, p)
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
