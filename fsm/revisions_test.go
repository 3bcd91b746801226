// Requests of one entry have revisions of their own, however many there are and however many wait.

package fsm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// applyAll applies requests as a leader does: what an entry leaves goes into the next.
func (w *waitMachine) applyAll(requests ...commands.Request) (replies []commandtest.Value) {
	w.t.Helper()
	for entries := 0; len(requests) > 0; entries++ {
		some, err := commandtest.ParseAll(w.apply(requests...))
		if err != nil {
			w.t.Fatal(err)
		}
		if len(some) == 0 && entries > len(replies)+10 {
			w.t.Fatalf("entries without replies, %d requests left", len(requests))
		}
		replies, requests = append(replies, some...), requests[len(some):]
	}
	return replies
}

// crowd has as many commands wait for the list q.
func (w *waitMachine) crowd(n int) {
	for i := range n {
		w.wait("n1", uint64(i+1), "BLPOP q 0")
	}
}

func repeated(n int, line string) []commands.Request {
	return slices.Repeat([]commands.Request{lineRequest(line)}, n)
}

// TestTokensOfFullEntry: three holders of a lock, one after the other at the end of an entry whose
// positions were used up by requests and by who waited, have three tokens.
func TestTokensOfFullEntry(t *testing.T) {
	w := newWaitMachine(t)
	w.crowd(20)
	requests := repeated(20, "RPUSH q job")
	requests = append(requests, repeated(keyspace.MaxPosition+1-20-9, "SET pad x")...)
	for range 3 {
		requests = append(requests, lineRequest("SET lock me NX"), lineRequest("FENCE lock"),
			lineRequest("DEL lock"))
	}
	replies := w.applyAll(requests...)
	var tokens []string
	for i, q := range requests {
		if string(q.Cmds[0][0]) == "FENCE" {
			tokens = append(tokens, fmt.Sprint(replies[i]))
		}
	}
	slices.Sort(tokens)
	if len(slices.Compact(tokens)) != 3 {
		t.Errorf("tokens %v", tokens)
	}
}

// TestManyServedInOneEntry: who waits beyond the positions of an entry is served by the next ones,
// in order, and nobody twice.
func TestManyServedInOneEntry(t *testing.T) {
	w := newWaitMachine(t)
	const many = keyspace.MaxPosition + 100
	w.crowd(many)
	last := uint64(0)
	served := 0
	note := func() {
		for _, e := range w.news {
			if e.Wait <= last {
				t.Fatalf("wait %d is served after %d", e.Wait, last)
			}
			last = e.Wait
			served++
		}
	}
	args := []string{"RPUSH", "q"}
	for range many {
		args = append(args, "x")
	}
	w.apply(commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(args...)}})
	for note(); served < many; note() {
		before := served
		if w.apply(); len(w.news) == 0 {
			t.Fatalf("%d of %d are served, and then nobody", before, many)
		}
	}
	if at := w.ks.CurrentRevision(); at > keyspace.NewRevision(0, w.Index(), keyspace.MaxPosition) {
		t.Errorf("revision %d is beyond the entry", at)
	}
}
