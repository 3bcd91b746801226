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

// undo returns the command that puts back what a command took with reply, nil if there is nothing
// to put back: it failed, or moved the element to another list.
func undo(args [][]byte, reply []byte) [][]byte {
	v, err := resp.NewReader(bytes.NewReader(reply)).Value()
	if err != nil || v.IsError() || len(v.Elems) < 2 {
		return nil
	}
	key := []byte(v.Elems[0].Text)
	switch name := lowerWord(args[0]); name {
	case "blpop", "brpop":
		return [][]byte{pushes(name == "blpop"), key, []byte(v.Elems[1].Text)}
	case "bzpopmin", "bzpopmax":
		return [][]byte{[]byte("ZADD"), key, []byte(v.Elems[2].Text), []byte(v.Elems[1].Text)}
	case "blmpop":
		words := [][]byte{nil, key}
		for _, e := range slices.Backward(v.Elems[1].Elems) {
			words = append(words, []byte(e.Text))
		}
		n, _ := strconv.Atoi(string(args[2]))
		words[0] = pushes(is(args[3+n], "left"))
		return words
	case "bzmpop":
		words := [][]byte{[]byte("ZADD"), key}
		for _, pair := range v.Elems[1].Elems {
			words = append(words, []byte(pair.Elems[1].Text), []byte(pair.Elems[0].Text))
		}
		return words
	}
	return nil
}

// pushes returns the command that adds to an end of a list.
func pushes(left bool) []byte {
	if left {
		return []byte("LPUSH")
	}
	return []byte("RPUSH")
}

// giveBack puts back what a wait took with reply for a client that is gone, unless its key was
// changed since in a way that relies on its absence.
func (s *Server) giveBack(number uint64, q commands.Request, reply []byte) {
	args := undo(q.Cmds[0], reply)
	if args == nil || s.ctx.Err() != nil {
		return
	}
	words := append([][]byte{[]byte(commands.SettingGiveBack), strconv.AppendUint(nil, number, 10)},
		args...)
	batch := commands.AppendRequest(nil, &commands.Request{DB: q.DB, Proto: 2, Setting: true,
		Cmds: [][][]byte{words}})
	s.inBackground(func() {
		for pause := firstPause; s.ctx.Err() == nil; pause = s.rest(pause) {
			_, err := s.backend.Write(s.ctx, Workload{}, batch, 1)
			if err == nil || !notRun(err) {
				return
			}
		}
	})
}
