// Dry runs: writes that probably change nothing (a lock that is held, a full window, a script that
// only reads) run as reads first and enter the log only if they would write. A dry run costs about
// as much as a read; it is wasted if the write must be logged after all. Hints about recent
// outcomes, by command and by key, decide which writes to try. Hints never affect the result: the
// machine alone decides whether a request would write.

package server

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
)

const (
	shapeSlots = 256     // slots for commands, scripts and functions
	keySlots   = 1 << 14 // slots for their keys; keys that share a slot share hints
	// maxScore and minScore bound the score of a shape, hits minus misses. From goodScore on, an
	// opaque shape is tried with every key. At lowScore, one in exploreEvery candidates is tried,
	// and half as many with each miss from there: a script that always writes pays little.
	maxScore, goodScore, lowScore, minScore = 4, 2, -4, -8
	// maxCredit bounds the credit of a key: the number of misses in a row that end its dry runs.
	maxCredit    = 3
	exploreEvery = 64
)

// hints remembers the outcomes of dry runs and logged writes. Concurrent updates may be lost.
type hints struct {
	shapes [shapeSlots]shapeHint
	keys   [keySlots]atomic.Int32 // credit
}

type shapeHint struct {
	score atomic.Int32
	turns atomic.Uint32
}

// hintKey identifies a request in hints.
type hintKey struct {
	shape, key uint32
	known      bool // false: no dry run, and nothing to learn
	opaque     bool // the reply does not tell whether it changed anything
	sure       bool // no part of it can write
}

// hintKeyOf returns the key of a command, or of a transaction if there are several commands or
// spec is EXEC's.
func hintKeyOf(db int, spec *commands.Spec, cmds [][][]byte) hintKey {
	spec, cmds = carried(spec, cmds)
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
		h = h*31 + xxhash.Sum64(args[1]) // source, SHA1 or name
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

// likely reports whether a request probably changes nothing.
func (t *hints) likely(m hintKey) bool {
	trust := t.shapes[m.shape].score.Load()
	return m.sure || trust > lowScore && t.keys[m.key].Load() > 0 || m.opaque && trust >= goodScore
}

// explore reports whether to try an unlikely request anyway, to learn.
func (t *hints) explore(m hintKey) bool {
	shape := &t.shapes[m.shape]
	every := uint32(exploreEvery) << max(lowScore-shape.score.Load(), 0)
	return (m.opaque || t.keys[m.key].Load() > 0) && shape.turns.Add(1)%every == exploreEvery/8
}

// hit records that a dry run answered a request.
func (t *hints) hit(m hintKey) {
	score := &t.shapes[m.shape].score
	if score.Load() < lowScore {
		score.Store(lowScore)
	}
	raise(score, maxScore)
	raise(&t.keys[m.key], maxCredit)
}

// miss records that a dry run stopped at a request.
func (t *hints) miss(m hintKey) {
	lower(&t.shapes[m.shape].score, minScore)
	lower(&t.keys[m.key], 0)
}

// logged records the reply to a logged request. After nil, zero, an empty reply or an error, the
// next request like it may change nothing too.
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

// raise and lower write only to change a value: many sessions read it.
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

// saysNothing reports whether a reply suggests that nothing was done.
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

// consider records a write that joins the batch. A batch is tried if all of its writes are likely
// to change nothing, or to explore. It is never tried while MONITOR needs the log entries of
// scripts, or with a command that may wait, which retries by itself.
func (b *batch) consider(t *hints, db int, cmds [][][]byte, owed *pending, shown bool) {
	b.writes++
	if owed.step == delivered || shown || len(cmds) > 0 && owed.spec.MayWait(cmds[0]) {
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

// worthDryRun reports whether to try the batch.
func (b *batch) worthDryRun(t *hints) bool {
	return b.eligible > 0 && b.eligible == b.writes && (b.likely == b.writes || t.explore(b.first))
}

// dryRun runs the batch up to the first request that would change something. Without any reply,
// the whole batch is logged.
func (s *session) dryRun(load Workload, batch []byte) (replies commands.Replies, err error,
	done bool) {
	replies, err = s.srv.backend.DryRun(context.Background(), load, batch)
	s.batch.dryRan = err == nil && replies.Size() > 0
	if err == nil && !s.batch.dryRan {
		s.dryRunMissed(s.batch.first)
	}
	return replies, err, err != nil || s.batch.dryRan
}

// dryRunMissed records that a dry run stopped before a request.
func (s *session) dryRunMissed(m hintKey) {
	s.batch.dryRan = false
	s.srv.stats.dryRunMisses.Add(1)
	if m.known {
		s.srv.hints.miss(m)
	}
}

// learn records the reply to a request of the batch.
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
