package server

// This file holds the reading of a client's bytes. It frames commands under limits before redcon takes them apart: redcon has no
// bound on what a client announces, reads a growing command from its beginning at every packet, and takes some input
// otherwise than Redis does. What is framed here is rewritten to the plain form, so redcon never fails on it.

import (
	"bytes"
	"errors"
	"io"

	"github.com/tidwall/redcon"

	"github.com/coordd/coordd/commands"
)

const (
	maxInline     = 64 << 10  // bytes of a line, as Redis
	maxArgs       = 1 << 20   // arguments of a command
	maxBulk       = 512 << 20 // bytes of an argument, as Redis
	minReadBuffer = 4 << 10
	maxReadBuffer = 1 << 20 // bytes; a larger one serves a larger command alone
	// freeReadBuffer is what every connection may have. A larger buffer needs room on the node: see intake.
	freeReadBuffer = 64 << 10
	arenaSize      = 512 // arguments
)

// protocolError is what a client sent that is not the protocol: the rest of the connection cannot be understood.
type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

const (
	errMultibulkLength protocolError = "invalid multibulk length"
	errBulkLength      protocolError = "invalid bulk length"
	errBigInline       protocolError = "too big inline request"
	errBigMultibulk    protocolError = "too big mbulk count string"
	errBigBulk         protocolError = "too big bulk count string"
	errQuotes          protocolError = "unbalanced quotes in request"
)

var errIncomplete = errors.New("server: more bytes are needed")

// stream takes the commands out of what a client sends.
type stream struct {
	src      io.Reader
	maxBytes int // of one command: a larger one is skipped and told of
	// grow asks for a buffer of so many bytes in the place of the one that there is, which may be larger. need says that a command does not fit
	// into that: grow waits then, and fails where the session is to look around. lent says that others wait for the room of the new one.
	grow func(size int, need bool) (lent bool, err error)
	lent bool // the buffer is for one request: it goes back behind it

	buf              []byte
	start, scan, end int  // buf[start:end] is not taken yet, buf[start:scan] has been looked through
	searched         int  // bytes behind scan in which no line ends
	count, left      int  // arguments of the command under way, and how many of them have not come
	bulk             int  // bytes of the argument under way with its line end; -1: its head comes next
	skipping         bool // the command under way is too large

	cmds  [][][]byte
	arena [][]byte
	ahead []byte // read by peek
}

func newStream(src io.Reader, maxBytes int) *stream {
	return &stream{src: src, maxBytes: maxBytes, bulk: -1, grow: func(size int, _ bool) (bool, error) { return size > maxReadBuffer, nil }}
}

// bytes is what it holds.
func (s *stream) bytes() int {
	return len(s.buf) + cap(s.ahead) + (cap(s.arena)+cap(s.cmds))*argBytesEach
}

// giveBack lets go of what the next command does not need.
func (s *stream) giveBack() {
	if s.start == s.end {
		s.lent, _ = s.grow(0, false)
		s.buf, s.start, s.scan, s.end, s.searched = nil, 0, 0, 0, 0
	}
	s.cmds, s.arena = nil, nil
	if len(s.ahead) == 0 {
		s.ahead = nil
	}
}

// take returns all complete commands that were read. They are valid until makeRoom is called. An empty command stands for one
// that was too large. An error concerns what follows the commands.
func (s *stream) take() ([][][]byte, error) {
	s.cmds = s.cmds[:0]
	for {
		cmd, err := s.next()
		if err == errIncomplete {
			return s.cmds, nil
		}
		if err != nil {
			return s.cmds, err
		}
		s.cmds = append(s.cmds, cmd)
	}
}

// fill reads once, behind makeRoom. n is the number of bytes that came.
func (s *stream) fill() (n int, err error) {
	if len(s.ahead) > 0 {
		n = copy(s.buf[s.end:], s.ahead)
		s.ahead = s.ahead[n:]
	} else {
		n, err = s.src.Read(s.buf[s.end:s.upTo()])
	}
	s.end += n
	if n > 0 {
		err = nil // it comes again
	}
	return n, err
}

// peek reads a little without moving what was taken, to learn whether the client is still there.
func (s *stream) peek() error {
	var b [512]byte
	n, err := s.src.Read(b[:])
	s.ahead = append(s.ahead, b[:n]...)
	return err
}

// makeRoom moves what is not taken to the buffer's beginning, and lets the buffer grow where the last read filled it, or
// shrink where it is idle.
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
	case s.lent && used < minReadBuffer:
		size = minReadBuffer
	case full && size < maxReadBuffer:
		size *= 2
	case s.end < size/8 && used == 0 && size > minReadBuffer:
		size /= 2
	}
	if cap(s.cmds) > 4*arenaSize {
		s.cmds = nil
	}
	if cap(s.arena) > arenaSize {
		s.arena = nil
	}
	s.arena = s.arena[:0]
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
	if size != len(s.buf) {
		grown := make([]byte, size)
		copy(grown, s.buf[s.start:s.end])
		s.buf = grown
	} else if s.start > 0 {
		copy(s.buf, s.buf[s.start:s.end])
	}
	s.scan, s.start, s.end = s.scan-s.start, 0, used
	return nil
}

// announced is how large the buffer has to be for the argument under way, where that is so large that growing step by step would copy it
// again and again; 0 otherwise. A client gets it only after it has sent freeReadBuffer bytes: what is announced alone costs nothing.
func (s *stream) announced() int {
	if s.bulk < 0 || s.skipping || s.end-s.start < freeReadBuffer {
		return 0
	}
	return s.scan - s.start + s.bulk
}

// upTo is where the next read ends: a buffer that was lent for a request gets next to nothing of the next one, so that it can go back.
func (s *stream) upTo() int {
	switch {
	case !s.lent || s.left != 1:
		return len(s.buf)
	case s.bulk < 0:
		return min(len(s.buf), s.end+minReadBuffer/2)
	}
	return min(len(s.buf), max(s.scan+s.bulk, s.end+1))
}

// next returns the next command, or errIncomplete.
func (s *stream) next() ([][]byte, error) {
	for s.left == 0 {
		if s.scan == s.end {
			return nil, errIncomplete
		}
		if s.buf[s.scan] != '*' {
			cmd, err := s.inline()
			if err != nil || len(cmd) > 0 {
				return cmd, err
			}
			continue
		}
		n, ok, err := s.head(errBigMultibulk, '*')
		if err != nil {
			return nil, err
		}
		if !ok || n > maxArgs {
			return nil, errMultibulkLength
		}
		if n <= 0 {
			s.start = s.scan
			continue
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
		s.arena = make([][]byte, 0, max(arenaSize, s.count))
	}
	free := s.arena[len(s.arena):len(s.arena)]
	complete, args, _, _, err := redcon.ReadNextCommand(framed, free)
	if err != nil || !complete || len(args) != s.count {
		return nil, protocolError("unreadable command") // framing and redcon disagree: never seen
	}
	s.arena = s.arena[:len(s.arena)+len(args)]
	return args[:len(args):len(args)], nil
}

// argument looks through one argument, head and text.
func (s *stream) argument() error {
	if s.bulk < 0 {
		n, ok, err := s.head(errBigBulk, '$')
		if err != nil {
			return err
		}
		if !ok || n < 0 || n > maxBulk {
			return errBulkLength
		}
		s.bulk = int(n) + 2
		if s.scan-s.start+s.bulk > s.maxBytes {
			s.skipping = true
		}
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
		s.buf[s.scan-2], s.buf[s.scan-1] = '\r', '\n' // Redis does not look at them
	}
	s.bulk = -1
	s.left--
	return nil
}

// head reads a line of kind and a number. ok is false where the number is none.
func (s *stream) head(tooLong protocolError, kind byte) (n int64, ok bool, err error) {
	b := s.buf[s.scan:s.end]
	i := s.find(b, '\r')
	if i < 0 && len(b) > maxInline {
		return 0, false, tooLong
	}
	if i < 0 || i+1 >= len(b) {
		return 0, false, errIncomplete
	}
	s.searched = 0
	if b[0] != kind {
		return 0, false, protocolError("expected '" + string(kind) + "', got '" + string(b[:1]) + "'")
	}
	b[i+1] = '\n' // Redis does not look at it
	s.scan += i + 2
	n, ok = commands.ParseInt(b[1:i])
	return n, ok, nil
}

// inline takes a command that was typed as a line. An empty line is no command.
func (s *stream) inline() ([][]byte, error) {
	b := s.buf[s.scan:s.end]
	i := s.find(b, '\n')
	if i >= 0 && bytes.IndexByte(b[:i], 0) >= 0 {
		i = -1 // Redis sees no line end after a zero byte
	}
	if i < 0 {
		if len(b) > maxInline {
			return nil, errBigInline
		}
		return nil, errIncomplete
	}
	args, ok := commands.SplitLine(bytes.TrimSuffix(b[:i], []byte{'\r'}))
	if !ok {
		return nil, errQuotes
	}
	s.searched = 0
	s.scan += i + 1
	s.start = s.scan
	return args, nil
}

// find looks for c in b, which begins at scan, where it was not looked for yet.
func (s *stream) find(b []byte, c byte) int {
	i := bytes.IndexByte(b[s.searched:], c)
	if i < 0 {
		s.searched = len(b)
		return i
	}
	s.searched += i
	return s.searched
}
