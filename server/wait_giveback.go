// What a command took for a client that was gone by then goes back to where it was: the client left
// while the machine, which cannot know, served it.

package server

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

// A part of what goes back has so many elements and bytes at the most, so that it fits in an entry
// and in the work of a request.
const (
	partElements = 8192
	partBytes    = 4 << 20
)

// undo returns the commands that put back, in this order, what a command took with reply: none if
// there is nothing to put back, as it failed or moved the element to another list.
func undo(args [][]byte, reply []byte) [][][]byte {
	v, err := resp.NewReader(bytes.NewReader(reply)).Value()
	if err != nil || v.Kind != resp.Array || len(v.Elems) < 2 {
		return nil
	}
	p, taken := parts{key: []byte(v.Elems[0].Text), verb: []byte("ZADD")}, v.Elems[1:]
	switch name := lowerWord(args[0]); name {
	case "blpop", "brpop":
		p.verb = pushes(name == "blpop")
		p.add(taken[0].Text)
	case "bzpopmin", "bzpopmax":
		p.addScored(taken)
	case "blmpop":
		p.verb = pushes(popsLeft(args))
		for _, e := range slices.Backward(taken[0].Elems) {
			p.add(e.Text)
		}
	case "bzmpop":
		for _, pair := range taken[0].Elems {
			p.addScored(pair.Elems)
		}
	}
	return p.commands
}

// popsLeft reports whether a BLMPOP takes from the left: its keys may have that name too.
func popsLeft(args [][]byte) bool {
	keys, _ := strconv.Atoi(string(args[min(2, len(args)-1)]))
	at := 3 + keys
	return at > 0 && at < len(args) && is(args[at], "left")
}

// parts makes commands that add elements to a key.
type parts struct {
	verb, key       []byte
	commands        [][][]byte
	elements, bytes int // what the last command has
}

// add adds the words of an element.
func (p *parts) add(words ...string) {
	size := 0
	for _, w := range words {
		size += len(w)
	}
	if p.commands == nil || p.elements == partElements || p.bytes+size > partBytes {
		p.commands = append(p.commands, [][]byte{p.verb, p.key})
		p.elements, p.bytes = 0, 0
	}
	last := &p.commands[len(p.commands)-1]
	for _, w := range words {
		*last = append(*last, []byte(w))
	}
	p.elements, p.bytes = p.elements+1, p.bytes+size
}

// addScored adds a member and its score.
func (p *parts) addScored(pair []resp.Value) {
	if len(pair) == 2 {
		p.add(pair[1].Text, pair[0].Text)
	}
}

// pushes returns the command that adds to an end of a list.
func pushes(left bool) []byte {
	if left {
		return []byte("LPUSH")
	}
	return []byte("RPUSH")
}

// putBackServed puts back what a wait took with its reply for a client that is gone, unless its key
// was changed since in a way that relies on its absence.
func (s *Server) putBackServed(number uint64, q commands.Request, replies commands.Replies) {
	a, ok := replies.Next()
	if !ok || a.Err() != nil {
		return
	}
	s.outlasting(func() { // who applies the log does not wait for it
		cmds := undo(q.Cmds[0], a.Reply)
		for i, args := range cmds {
			words := [][]byte{[]byte(commands.SystemGiveBack), strconv.AppendUint(nil, number, 10),
				strconv.AppendInt(nil, int64(i), 10), strconv.AppendInt(nil, int64(len(cmds)), 10)}
			batch := commands.AppendRequest(nil, &commands.Request{DB: q.DB, Proto: 2,
				System: true, Cmds: [][][]byte{append(words, args...)}})
			if !s.putBack(batch) {
				return
			}
		}
	})
}

// putBack sends a part until its end is known, and reports whether it is back.
func (s *Server) putBack(batch []byte) bool {
	for pause := firstPause; s.ctx.Err() == nil; pause = s.rest(pause) {
		replies, err := s.backend.Write(s.ctx, Workload{}, batch, 1)
		switch {
		case err == nil:
			a, ok := replies.Next()
			return ok && a.Err() == nil
		case outcomeOf(err) == Refused: // an element is larger than a request may be
			s.log.Warn("what a blocked client took that has gone cannot be put back", "bytes",
				len(batch), "error", err)
			return false
		}
	}
	return false
}
