// What the machine has taken for commands that waited, and may still put back: a client can be gone
// when its command is served, which only its node finds out. Until then what was taken is lent. A
// change of the key ends that, unless it only adds or takes elements at its ends: what was put back
// would undo it. So does a command that says what is not there, which would be. For all others that
// change nothing, as for reads, putting it back is a push that follows (docs/adr/0040).

package fsm

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/wire"
)

// Bounds of what is lent: ms of the cluster clock, and loans, of which the oldest end first.
const (
	lendingMs = 2000
	maxLoans  = 1024
)

// loan is what a wait was given. It is immutable.
type loan struct {
	number     uint64 // of the wait
	key        changedKey
	class      string // as in waiter
	deadlineMs int64  // of the key, before it was taken; 0: none
	untilMs    int64
}

// lent holds the loans. It is part of the state.
type lent struct {
	loans []loan             // the oldest first
	keys  map[changedKey]int // theirs, with their number

	// what changes keys now; nil: a loan that is given back. Not part of the state
	by *commands.Spec
}

func (v *lent) add(l loan) {
	if len(v.loans) == maxLoans {
		v.remove(0)
	}
	if v.keys == nil {
		v.keys = map[changedKey]int{}
	}
	v.loans = append(v.loans, l)
	v.keys[l.key]++
}

func (v *lent) remove(at int) {
	key := v.loans[at].key
	if v.keys[key]--; v.keys[key] == 0 {
		delete(v.keys, key)
	}
	v.loans = slices.Delete(v.loans, at, at+1)
}

// expire ends loans whose time is over.
func (v *lent) expire(nowMs int64) {
	for len(v.loans) > 0 && v.loans[0].untilMs <= nowMs {
		v.remove(0)
	}
}

// end ends the loans of a key, by a command that does something else to it than to add or take
// elements at the ends.
func (v *lent) end(key changedKey, spec *commands.Spec) {
	for i := len(v.loans) - 1; i >= 0 && v.keys[key] > 0; i-- {
		if l := &v.loans[i]; l.key == key && !leaves(spec, l.class) {
			v.remove(i)
		}
	}
}

// changed ends loans by a change of the keyspace, of which the observer learns. What expires ends
// none: a loan has the deadline of its key.
func (v *lent) changed(db int, e *keyspace.Entry, c keyspace.Change) {
	if len(v.loans) == 0 || v.by == nil {
		return
	}
	switch c {
	case keyspace.Modified, keyspace.Removed:
		v.end(changedKey{db, e.Key()}, v.by)
	case keyspace.Flushed:
		for i := len(v.loans) - 1; i >= 0; i-- {
			if v.loans[i].key.db == db {
				v.remove(i)
			}
		}
	}
}

// leaves reports whether a command leaves a key so that what was taken from it can go back.
func leaves(spec *commands.Spec, class string) bool {
	return spec.Has(commands.Ends) && spec.Group == class
}

// takes reports whether what a command takes can go back: it moved it to no other key.
func takes(spec *commands.Spec, args [][]byte, waited int) bool {
	keys, _ := spec.KeyIndexes(args)
	return spec.Has(commands.Ends) && len(keys) == waited
}

// Runs notes what changes keys from now on.
func (v *lent) Runs(spec *commands.Spec) { v.by = spec }

// Ran ends the loans of keys that a command says something is not in.
func (v *lent) Ran(x *commands.Call) {
	v.purged(x, func(key changedKey) { v.end(key, x.Spec) })
}

// purged calls f with the keys of loans that a command says something is not in, whether or not it
// found it there.
func (v *lent) purged(x *commands.Call, f func(changedKey)) {
	if !x.Spec.Has(commands.Purges) {
		return
	}
	uses, _ := x.Spec.KeyUses(x.Args)
	for _, use := range uses {
		name := x.Args[use.Index]
		if use.Flags&commands.KeyRO == 0 && v.keys[changedKey{x.Tx.DB, string(name)}] > 0 {
			f(changedKey{x.Tx.DB, string(name)})
		}
	}
}

// lentDry is lent for dry runs: a command that ends a loan belongs in the log.
type lentDry struct{ *lent }

func (lentDry) Runs(*commands.Spec) {}

func (v lentDry) Ran(x *commands.Call) { v.purged(x, func(changedKey) { abort() }) }

// lends returns what commands that may write are reported to: nil if nothing is lent.
func (m *Machine) lends(dry bool) commands.Lent {
	v := &m.waiting.lent
	switch {
	case len(v.loans) == 0:
		return nil
	case dry:
		return lentDry{v}
	}
	return v
}

// lend notes that a wait is served from a key, which had a deadline.
func (m *Machine) lend(env *commands.Env, w *waiter, key changedKey, deadlineMs int64) {
	m.waiting.lent.expire(m.ks.Now())
	m.waiting.lent.add(loan{w.number, key, w.class, deadlineMs, m.ks.Now() + lendingMs})
	env.Lent = m.lends(false)
}

// giveBack runs a command that puts back what a wait was given whose client is gone, if it is still
// lent.
func (m *Machine) giveBack(r *runner, q *commands.Request) error {
	number, ok := commands.ParseInt(q.Cmds[0][1])
	at := slices.IndexFunc(m.waiting.lent.loans, func(l loan) bool {
		return l.number == uint64(number)
	})
	if !ok || at < 0 {
		return commands.ErrNotLent
	}
	l := m.waiting.lent.loans[at]
	m.waiting.lent.remove(at)
	db, key := m.ks.DB(l.key.db), []byte(l.key.key)
	absent := db.Find(key) == nil
	if l.deadlineMs != 0 && l.deadlineMs < m.ks.Now() { // it expired, whatever has its name now
		return commands.ErrNotLent
	}
	r.env.Lent, m.waiting.lent.by = nil, nil // it ends no other loan of the key
	defer func() { r.env.Lent = m.lends(false) }()
	var out commands.RESP
	x := &commands.Call{Env: r.env, Tx: &commands.Tx{DB: l.key.db, Proto: 2}, Args: q.Cmds[0][2:],
		Out: &out, Stop: r.env.Work + r.maxWork()}
	x.Run(m.table.ResolveAt(m.level, x.Args))
	if text, failed := strings.CutPrefix(string(out.Buf), "-"); failed {
		return commands.Error(strings.TrimSpace(text))
	}
	if absent && l.deadlineMs != 0 {
		if e := db.Edit(key); e != nil {
			db.SetDeadline(e, l.deadlineMs)
		}
	}
	return nil
}

// appendTo appends the encoding for a snapshot.
func (v *lent) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(v.loans)))
	for _, l := range v.loans {
		dst = binary.AppendUvarint(dst, l.number)
		dst = append(dst, byte(l.key.db))
		dst = wire.AppendBytes(dst, l.key.key)
		dst = wire.AppendBytes(dst, l.class)
		dst = binary.AppendVarint(dst, l.deadlineMs)
		dst = binary.AppendVarint(dst, l.untilMs)
	}
	return dst
}

// restore reads what appendTo wrote.
func (v *lent) restore(c *wire.Cursor) {
	for range c.Count(6) {
		v.add(loan{c.Uvarint(), changedKey{int(c.Byte()), c.Text()}, c.Text(), c.Varint(),
			c.Varint()})
	}
}
