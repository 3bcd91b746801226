package server

// This file holds the choice of the writes that are tried before they are put in the log, since they may well change nothing: a lock that is
// held, a window that is full, a script that only looks. A try costs about as much as a read. It is a gain where the request turns out to change
// nothing, and is lost where it has to be logged after all. So the node remembers, for each command and each key, how that went lately. What is
// remembered is never more than a hint: the machine alone decides whether a request would write (fsm/trial.go).

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
)

const (
	shapeSlots = 256     // commands, scripts and functions are told apart by so many numbers,
	keySlots   = 1 << 14 // and their keys by so many: those that share one share its hints
	// mostTrust and leastTrust bound how many more tries of a shape were a gain than a loss. At leastTrust only one in exploreEvery that
	// would be tried is. At highTrust a shape of which replies do not tell whether they changed anything is tried with every key.
	maxScore, goodScore, minScore = 4, 2, -4
	// mostHope bounds what is remembered for a key: how many losses in a row it takes to stop.
	maxCredit    = 3
	exploreEvery = 64
)

// tries is what a node remembers of tried and logged writes. Its counts are not exact where sessions meet: they are hints.
type hints struct {
	shapes [shapeSlots]shapeHint
	keys   [keySlots]atomic.Int32 // hope
}

type shapeHint struct {
	score atomic.Int32
	turns atomic.Uint32
}

// tryMark is a request as tries knows it.
type hintKey struct {
	shape, key uint32
	known      bool // false: it is not to be tried, and nothing is learned of it
	opaque     bool // its reply does not tell whether it changed anything
	sure       bool // no part of it can write
}

// markOf gives the mark of a command, or of a transaction where there are several or spec is EXEC's.
func hintKeyOf(db int, spec *commands.Spec, cmds [][][]byte) hintKey {
	m := hintKey{known: true, opaque: spec.Group == "scripting" || spec.Group == "transactions"}
	var h uint64
	for _, args := range cmds {
		h = h*31 + xxhash.Sum64(args[0])
	}
	first := spec.Keys.First
	var args [][]byte
	if len(cmds) > 0 {
		args = cmds[0]
	}
	switch {
	case spec.Group == "scripting" && len(args) > 1:
		h = h*31 + xxhash.Sum64(args[1]) // the source, the SHA1, the name
		first = spec.Keys.Numkeys + 1
	case spec.Group == "transactions":
		first = 1
	}
	m.shape = uint32(h % shapeSlots)
	if first > 0 && first < len(args) {
		h = h*31 + xxhash.Sum64(args[first])
	}
	m.key = uint32((h + uint64(db)) % keySlots)
	return m
}

// hopeful says whether a request is likely to change nothing.
func (t *hints) likely(m hintKey) bool {
	trust := t.shapes[m.shape].score.Load()
	return m.sure || trust > minScore && t.keys[m.key].Load() > 0 || m.opaque && trust >= goodScore
}

// explore says whether a request that is not likely to change nothing is to be tried all the same, to learn.
func (t *hints) explore(m hintKey) bool {
	shape := &t.shapes[m.shape]
	return (m.opaque || t.keys[m.key].Load() > 0) && shape.turns.Add(1)%exploreEvery == exploreEvery/8
}

// gained notes that a try answered a request.
func (t *hints) hit(m hintKey) {
	raise(&t.shapes[m.shape].score, maxScore)
	raise(&t.keys[m.key], maxCredit)
}

// lost notes that a try ended before a request.
func (t *hints) miss(m hintKey) {
	lower(&t.shapes[m.shape].score, minScore)
	lower(&t.keys[m.key], 0)
}

// logged notes the reply to a request that was put in the log. What answers nil, zero, nothing or an error may have changed nothing, and the next one
// like it too.
func (t *hints) logged(m hintKey, reply []byte) {
	credit := &t.keys[m.key]
	switch {
	case m.opaque:
	case !saysNothing(reply):
		if credit.Load() != 0 {
			credit.Store(0)
		}
	case credit.Load() == 0:
		credit.Store(1)
	}
}

// raise and lower write only where that changes something: many sessions read the same numbers.
func raise(n *atomic.Int32, most int32) {
	if n.Load() < most {
		n.Add(1)
	}
}

func lower(n *atomic.Int32, least int32) {
	if n.Load() > least {
		n.Add(-1)
	}
}

// saysNothing says whether a reply reads as if nothing had been done.
func saysNothing(reply []byte) bool {
	switch reply[0] {
	case '-', '_':
		return true
	case ':', '$', '*', '%', '~':
		head := string(reply[1:min(len(reply), 4)])
		return strings.HasPrefix(head, "-1\r") || reply[0] != '$' && strings.HasPrefix(head, "0\r")
	}
	return false
}

// consider notes what a write that joins the run speaks for or against trying it: a run is tried where all of its writes are hopeful, or to explore.
// MONITOR shows what scripts call as their entries tell it, and who waits is tried in its own way: those are not tried here.
func (b *batch) consider(t *hints, db int, cmds [][][]byte, owed *pending, shown bool) {
	b.writes++
	if owed.step == delivered || shown || len(cmds) > 0 && mayWait(owed.spec, cmds[0]) {
		return
	}
	owed.hint = hintKeyOf(db, owed.spec, cmds)
	owed.hint.sure = owed.looks
	if t.likely(owed.hint) {
		b.likely++
	}
	if b.eligible++; b.eligible == 1 {
		b.first = owed.hint
	}
}

// worthTrying says whether the run is to be tried.
func (b *batch) worthDryRun(t *hints) bool {
	return b.eligible > 0 && b.eligible == b.writes && (b.likely == b.writes || t.explore(b.first))
}

// try runs what the run begins with as long as it changes nothing. Where nothing came of it, all of it is to be logged.
func (s *session) dryRun(batch []byte, count int) (replies []byte, err error, done bool) {
	replies, err = s.srv.backend.Try(context.Background(), s.asks(count), batch, count)
	s.batch.dryRan = err == nil && len(replies) > 0
	if err == nil && !s.batch.dryRan {
		s.dryRunMissed(s.batch.first)
	}
	return replies, err, err != nil || s.batch.dryRan
}

// wasted notes that a try ended before a request.
func (s *session) dryRunMissed(m hintKey) {
	s.batch.dryRan = false
	s.srv.stats.dryRunMisses.Add(1)
	if m.known {
		s.srv.hints.miss(m)
	}
}

// learn takes in how a request of the run was answered.
func (s *session) learn(m hintKey, reply []byte) {
	switch {
	case !m.known:
	case s.batch.dryRan:
		s.srv.stats.dryRunHits.Add(1)
		s.srv.hints.hit(m)
	default:
		s.srv.hints.logged(m, reply)
	}
}
