// Reading client input. It frames commands under limits before redcon parses them: redcon does not
// bound what a client announces, rescans a growing command at every packet, and accepts some input
// differently from Redis. Framed commands are rewritten to the plain form, so redcon never fails
// on them.

package server

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"

	"github.com/tidwall/redcon"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

const (
	maxInline     = 64 << 10  // bytes of a line, as in Redis
	maxArgs       = 1 << 20   // arguments of a command
	maxBulk       = 512 << 20 // bytes of an argument, as in Redis
	minReadBuffer = 4 << 10
	maxReadBuffer = 1 << 20 // bytes; a larger buffer serves one larger command
	// freeReadBuffer is free for every connection. A larger buffer is charged to the node: see
	// intake.
	freeReadBuffer = 64 << 10
	minArena       = 16  // arguments
	arenaSize      = 512 // arguments, of pipelines
)

// protocolError is input that violates the protocol: the rest of the connection cannot be parsed.
type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

const (
	errMultibulkLength protocolError = "invalid multibulk length"
	errArgsBeforeAuth  protocolError = "unauthenticated multibulk length"
	errBulkBeforeAuth  protocolError = "unauthenticated bulk length"
	errBigBeforeAuth   protocolError = "unauthenticated request length"
	errBulkLength      protocolError = "invalid bulk length"
	errBigInline       protocolError = "too big inline request"
	errBigMultibulk    protocolError = "too big mbulk count string"
	errBigBulk         protocolError = "too big bulk count string"
	errQuotes          protocolError = "unbalanced quotes in request"
)

var (
	errIncomplete = errors.New("server: more bytes are needed")
	// errEmpty is of a request without a word, which has no reply.
	errEmpty = errors.New("server: an empty request")
)

// stream extracts commands from client input.
type stream struct {
	src      io.Reader
	maxBytes int // the longest command: a larger one is skipped and reported
	// grow asks to replace the buffer by one of size bytes, larger or smaller. need says that a
	// command does not fit the current one: then grow waits, and fails if the session must check
	// its state. lent reports that others wait for the room of the new buffer.
	grow  func(size int, need bool) (lent bool, err error)
	small bool      // the limits of clients that must authenticate apply: see exceeds
	early error     // the reply to the command that skip skips
	most  allowance // what one take may return
	lent  bool      // the buffer is for one request, and returned after it

	buf              []byte
	start, scan, end int  // buf[start:end] is not taken yet, buf[start:scan] is scanned
	searched         int  // bytes after scan without a line end
	count, left      int  // arguments of the current command, and how many are missing
	bulk             int  // bytes of the current argument with its line end; -1: its head is next
	skipping         bool // the current command is too large
	partial          bool // the last take reached a bound: there may be more commands

	cmds  [][][]byte
	arena [][]byte
	ahead []byte // read by peek

	idle idleReader
}

// allowance bounds the commands that one take returns. The last of them may exceed bytes.
type allowance struct{ requests, bytes int }

var unlimited = allowance{requests: maxInt, bytes: maxInt}

func newStream(src io.Reader, maxBytes int) *stream {
	s := &stream{src: src, maxBytes: maxBytes, bulk: -1, most: unlimited,
		grow: func(size int, _ bool) (bool, error) {
			return size > maxReadBuffer, nil
		}}
	s.idle.init(src)
	return s
}

// bytes returns the memory that the stream holds.
func (s *stream) bytes() int {
	return len(s.buf) + cap(s.ahead) + (cap(s.arena)+cap(s.cmds))*argBytesEach
}

// freeBuffers frees what the next command does not need.
func (s *stream) freeBuffers() {
	if s.start == s.end {
		s.lent, _ = s.grow(0, false)
		s.buf, s.start, s.scan, s.end, s.searched = nil, 0, 0, 0, 0
	}
	s.cmds, s.arena = nil, nil
	if len(s.ahead) == 0 {
		s.ahead = nil
	}
}

// nextCommands returns the complete commands that were read, up to a bound: one with small limits,
// most otherwise. With small limits an empty request counts, though it is not returned. They are
// valid until makeRoom is called. An empty command stands for one that was too large. An error
// concerns the input after the commands.
func (s *stream) nextCommands() ([][][]byte, error) {
	clear(s.cmds) // makeRoom clears those of the newest take
	s.cmds, s.partial = s.cmds[:0], false
	most := s.most
	if s.small {
		most.requests = 1
	}
	for from := s.start; len(s.cmds) < most.requests && s.start-from < most.bytes; {
		cmd, err := s.next()
		switch {
		case err == errIncomplete:
			return s.cmds, nil
		case err == errEmpty && s.small:
			s.partial = true
			return s.cmds, nil
		case err == errEmpty:
		case err != nil:
			return s.cmds, err
		default:
			s.cmds = append(s.cmds, cmd)
		}
	}
	s.partial = true
	return s.cmds, nil
}

// beforeAuth reports whether a command is too large for a client that must authenticate alone.
func beforeAuth(err error) bool {
	return err == errArgsBeforeAuth || err == errBulkBeforeAuth || err == errBigBeforeAuth
}

// again has take begin again with the command that beforeAuth was about.
func (s *stream) again() {
	s.scan, s.count, s.left, s.bulk, s.searched = s.start, 0, 0, -1, 0
}

// skip has take skip that command, whose reply is an error.
func (s *stream) skip(reply error) {
	s.again()
	s.skipping, s.early = true, reply
}

// fill reads once, after makeRoom, and returns the number of bytes.
func (s *stream) fill() (n int, err error) {
	switch {
	case len(s.buf) == 0:
		s.buf, n, err = s.idle.read()
	case len(s.ahead) > 0:
		n = copy(s.buf[s.end:], s.ahead)
		s.ahead = s.ahead[n:]
	default:
		n, err = s.src.Read(s.buf[s.end:s.upTo()])
	}
	s.end += n
	if n > 0 {
		err = nil // the error recurs
	}
	return n, err
}

// peekBytes is what peek reads at most.
const peekBytes = 512

// peek reads a little without moving taken commands, to notice a disconnect.
func (s *stream) peek() error {
	var b [peekBytes]byte
	n, err := s.src.Read(b[:])
	s.ahead = append(s.ahead, b[:n]...)
	return err
}

// exceeds has a command of so many bytes be skipped, or returns the error for one that is too large
// for the client. What a client sends before it authenticates never leaves freeReadBuffer, so it
// takes no room from others.
func (s *stream) exceeds(bytes int) error {
	switch {
	case s.skipping:
	case s.small && bytes > freeReadBuffer:
		return errBigBeforeAuth
	case bytes > s.maxBytes:
		s.skipping = true
	}
	return nil
}

// tooLong reports whether a line that has not ended is refused.
func (s *stream) tooLong(bytes int) bool {
	return bytes > maxInline || s.small && bytes >= freeReadBuffer
}

// makeRoom moves untaken input to the start of the buffer. The buffer grows if the last read
// filled it, and shrinks when idle. A small one that is empty goes back: see idleReader.
func (s *stream) makeRoom() error {
	full := s.end == len(s.buf)
	used := s.end - s.start
	size := len(s.buf)
	need := used == size && size > 0
	switch {
	case size == 0:
		size = minReadBuffer
	case need:
		size = max(2*size, s.announced())
	case s.small && size > freeReadBuffer && used <= freeReadBuffer: // after RESET
		size = freeReadBuffer
	case s.lent && used < minReadBuffer:
		size = minReadBuffer
	case full && size < maxReadBuffer && !s.small:
		size *= 2
	case s.end < size/8 && used == 0 && size > minReadBuffer:
		size /= 2
	}
	clear(s.cmds) // they keep buffers
	if s.cmds = s.cmds[:0]; cap(s.cmds) > 4*arenaSize {
		s.cmds = nil
	}
	clear(s.arena)
	if s.arena = s.arena[:0]; cap(s.arena) > arenaSize {
		s.arena = nil
	}
	if size != len(s.buf) {
		lent, err := s.grow(size, need)
		switch {
		case err == nil:
			s.lent = lent
		case need:
			return err
		default:
			size = len(s.buf)
		}
	}
	if size == minReadBuffer && used == 0 && len(s.ahead) == 0 && s.idle.recycle(s.buf) {
		s.buf = nil
	} else if size != len(s.buf) {
		grown := make([]byte, size)
		copy(grown, s.buf[s.start:s.end])
		s.buf = grown
	} else if s.start > 0 {
		copy(s.buf, s.buf[s.start:s.end])
	}
	s.scan, s.start, s.end = s.scan-s.start, 0, used
	return nil
}

// announced returns the buffer size for the current argument if it is so large that growing step
// by step would copy it repeatedly; otherwise 0. It takes effect after the client has sent
// freeReadBuffer bytes: an announcement alone costs nothing.
func (s *stream) announced() int {
	if s.bulk < 0 || s.skipping || s.end-s.start < freeReadBuffer {
		return 0
	}
	return s.scan - s.start + s.bulk
}

// upTo returns the end of the next read: a buffer lent for one request receives next to nothing of
// the next, so that it can be returned.
func (s *stream) upTo() int {
	switch {
	case !s.lent || s.left != 1:
		return len(s.buf)
	case s.bulk < 0:
		return min(len(s.buf), s.end+minReadBuffer/2)
	}
	return min(len(s.buf), max(s.scan+s.bulk, s.end+1))
}

// next returns the next command; see nextCommands.
func (s *stream) next() ([][]byte, error) {
	if s.left == 0 {
		if s.scan == s.end {
			return nil, errIncomplete
		}
		if s.buf[s.scan] != '*' {
			return s.inline()
		}
		n, ok, err := s.head(errBigMultibulk, '*')
		if err != nil {
			return nil, err
		}
		switch {
		case !ok || n > math.MaxInt32:
			return nil, errMultibulkLength
		case s.small && !s.skipping && n > maxArgsBeforeAuth:
			return nil, errArgsBeforeAuth
		case n > maxArgs:
			return nil, errMultibulkLength
		}
		if n <= 0 {
			s.start = s.scan
			return nil, errEmpty
		}
		s.count, s.left, s.bulk = int(n), int(n), -1
	}
	for s.left > 0 {
		if err := s.argument(); err != nil {
			return nil, err
		}
	}
	if s.skipping {
		s.skipping = false
		s.start = s.scan
		return nil, nil
	}
	framed := s.buf[s.start:s.scan]
	s.start = s.scan
	if cap(s.arena)-len(s.arena) < s.count {
		s.arena = make([][]byte, 0, max(min(2*cap(s.arena), arenaSize), minArena, s.count))
	}
	free := s.arena[len(s.arena):len(s.arena)]
	complete, args, _, _, err := redcon.ReadNextCommand(framed, free)
	if err != nil || !complete || len(args) != s.count {
		return nil, protocolError("unreadable command") // framing and redcon disagree: never seen
	}
	s.arena = s.arena[:len(s.arena)+len(args)]
	return args[:len(args):len(args)], nil
}

// argument scans one argument, head and text.
func (s *stream) argument() error {
	if s.bulk < 0 {
		n, ok, err := s.head(errBigBulk, '$')
		if err != nil {
			if err == errIncomplete {
				err = cmp.Or(s.exceeds(s.end-s.start+1), err)
			}
			if s.skipping {
				s.start = s.scan
			}
			return err
		}
		if !ok || n < 0 || n > maxBulk {
			return errBulkLength
		}
		if s.small && !s.skipping && n > maxBulkBeforeAuth {
			return errBulkBeforeAuth
		}
		s.bulk = int(n) + 2
	}
	if err := s.exceeds(s.scan - s.start + s.bulk); err != nil {
		return err
	}
	if s.skipping {
		n := min(s.bulk, s.end-s.scan)
		s.scan += n
		s.bulk -= n
		s.start = s.scan
		if s.bulk > 0 {
			return errIncomplete
		}
	} else {
		if s.end-s.scan < s.bulk {
			return errIncomplete
		}
		s.scan += s.bulk
		s.buf[s.scan-2], s.buf[s.scan-1] = '\r', '\n' // Redis does not check them
	}
	s.bulk = -1
	s.left--
	return nil
}

// head reads a line of kind and a number. ok is false if the number is invalid.
func (s *stream) head(tooLong protocolError, kind byte) (n int64, ok bool, err error) {
	b := s.buf[s.scan:s.end]
	i := s.find(b, '\r')
	if i < 0 || i+1 >= len(b) {
		if s.tooLong(len(b)) {
			return 0, false, tooLong
		}
		return 0, false, errIncomplete
	}
	s.searched = 0
	if b[0] != kind {
		return 0, false, protocolError("expected '" + string(kind) + "', got '" + string(b[:1]) +
			"'")
	}
	b[i+1] = '\n' // Redis does not check it
	s.scan += i + 2
	n, ok = commands.ParseInt(b[1:i])
	return n, ok, nil
}

// inline parses a command typed as a line.
func (s *stream) inline() ([][]byte, error) {
	b := s.buf[s.scan:s.end]
	i := s.find(b, '\n')
	if i >= 0 && bytes.IndexByte(b[:i], 0) >= 0 {
		i = -1 // Redis sees no line end after a zero byte
	}
	if i < 0 {
		if s.tooLong(len(b)) {
			return nil, errBigInline
		}
		return nil, errIncomplete
	}
	args, ok := resp.SplitLine(bytes.TrimSuffix(b[:i], []byte{'\r'}))
	if !ok {
		return nil, errQuotes
	}
	s.searched = 0
	s.scan += i + 1
	s.start = s.scan
	if len(args) == 0 {
		return nil, errEmpty
	}
	return args, nil
}

// find searches b, which begins at scan, for c, skipping what was already searched.
func (s *stream) find(b []byte, c byte) int {
	i := bytes.IndexByte(b[s.searched:], c)
	if i < 0 {
		s.searched = len(b)
		return i
	}
	s.searched += i
	return s.searched
}
