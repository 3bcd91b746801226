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

// lendingMs is how long something is lent, ms of the cluster clock.
const lendingMs = 2000

// loanCost is what a loan counts besides the name of its key, bytes. Loans count with the commands
// that wait, and less than the one whose place they take: there is always room for them.
const loanCost = 256

// loan is what a wait was given.
type loan struct {
	number     uint64 // number of the wait
	from       *lender
	deadlineMs int64 // deadline of the key, before it was taken; 0: none
	untilMs    int64
	parts      int64 // parts of it that were given back
	ended      bool
}

// due is when a loan ends, if it was not prolonged since.
type due struct {
	*loan
	atMs int64
}

// current reports whether d is that of an open loan. Each has one.
func (d due) current() bool { return d.open() && d.atMs == d.untilMs }

func (l *loan) open() bool { return !l.ended && !l.from.ended }

// lender is a key from which loans were taken by commands of one class, as in waiter. They end
// together, except for those that are given back or whose time is over.
type lender struct {
	key   changedKey
	class string
	loans int // that have not ended
	ended bool
}

// takesBack reports whether a command only puts something to where the lender's loans are from.
func (d *lender) takesBack(spec *commands.Spec, args [][]byte) bool {
	uses, err := spec.KeyUses(args)
	return err == nil && spec.Group == d.class && len(uses) == 1 &&
		uses[0].Flags&(commands.KeyAccess|commands.KeyDelete) == 0 &&
		string(args[uses[0].Index]) == d.key.key
}

func (d *lender) bytes() int { return loanCost + len(d.key.key) }

// lent holds the loans. It is part of the state, but for ended loans, which nothing may depend on:
// a snapshot leaves them out.
type lent struct {
	// queue are the ends of the loans, the next first; also those that have ended, until their time
	// is over
	queue   []due
	numbers map[uint64]*loan
	lenders [keyspace.Databases]map[string][]*lender // lenders by key; never empty, seldom several
	bytes   int                                      // that the loans count

	// what changes keys now; nil: a loan that is given back. Not part of the state
	by *commands.Spec
}

// add adds the loan of a wait. If it has one, that ends: nobody can give it back any more.
func (v *lent) add(s source, untilMs int64) *loan {
	if earlier := v.of(s.number); earlier != nil {
		v.remove(earlier)
	}
	key := s.key
	if v.numbers == nil {
		v.numbers = map[uint64]*loan{}
	}
	if v.lenders[key.db] == nil {
		v.lenders[key.db] = map[string][]*lender{}
	}
	of := v.lenders[key.db][key.key]
	at := slices.IndexFunc(of, func(d *lender) bool { return d.class == s.class })
	if at < 0 {
		at = len(of)
		of = append(of, &lender{key: key, class: s.class})
		v.lenders[key.db][key.key] = of
	}
	l := &loan{number: s.number, from: of[at], deadlineMs: s.deadlineMs, untilMs: untilMs}
	l.from.loans++
	v.bytes += l.from.bytes()
	v.numbers[s.number] = l
	v.queue = append(v.queue, due{l, untilMs})
	return l
}

// none reports whether nothing is lent.
func (v *lent) none() bool { return v.bytes == 0 }

// of returns the loan of a wait, nil if it has ended.
func (v *lent) of(number uint64) *loan {
	if l := v.numbers[number]; l != nil && l.open() {
		return l
	}
	return nil
}

// remove ends a loan.
func (v *lent) remove(l *loan) {
	d := l.from
	if !l.open() {
		return
	}
	l.ended = true
	d.loans--
	v.bytes -= d.bytes()
	if d.loans == 0 {
		v.endLoans(d.key, func(o *lender) bool { return o == d })
	}
}

// prolong has a loan end later than all others: its parts may come one by one.
func (v *lent) prolong(l *loan, untilMs int64) {
	if l.untilMs != untilMs {
		l.untilMs = untilMs
		v.queue = append(v.queue, due{l, untilMs})
	}
}

// expire ends loans whose time is over.
func (v *lent) expire(nowMs int64) {
	for len(v.queue) > 0 && v.queue[0].atMs <= nowMs {
		d := v.queue[0]
		if d.current() {
			v.remove(d.loan)
		}
		if !d.open() && v.numbers[d.number] == d.loan {
			delete(v.numbers, d.number)
		}
		v.queue[0] = due{}
		if v.queue = v.queue[1:]; len(v.queue) == 0 {
			v.queue, v.numbers = nil, nil
		}
	}
}

// endLoans ends the loans of a key from those lenders for which ends returns true.
func (v *lent) endLoans(key changedKey, ends func(*lender) bool) {
	of := v.lenders[key.db][key.key]
	if len(of) == 0 {
		return
	}
	of = slices.DeleteFunc(of, func(d *lender) bool {
		if d.ended = ends(d); d.ended {
			v.bytes -= d.loans * d.bytes()
			d.key.key = "" // its loans stay for a while
		}
		return d.ended
	})
	if v.lenders[key.db][key.key] = of; len(of) == 0 {
		delete(v.lenders[key.db], key.key)
	}
}

// endBy ends the loans of a key by a command that does something else to it than to add or take
// elements at the ends.
func (v *lent) endBy(key changedKey, spec *commands.Spec) {
	v.endLoans(key, func(d *lender) bool { return !leaves(spec, d.class) })
}

// changed ends loans by a change of the keyspace. What expires ends none: a loan has the deadline
// of its key.
func (v *lent) changed(db int, e *keyspace.Entry, c keyspace.Change) {
	if v.none() || v.by == nil {
		return
	}
	switch c {
	case keyspace.Modified, keyspace.Removed:
		v.endBy(changedKey{db, e.Key()}, v.by)
	case keyspace.Flushed:
		for key := range v.lenders[db] { //purity: all of them end
			v.endLoans(changedKey{db, key}, func(*lender) bool { return true })
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

// runs notes what changes keys from now on.
func (v *lent) runs(spec *commands.Spec) { v.by = spec }

// lacks ends the loans of a key of which a command says that it lacks something. Such a command
// belongs in the log.
func (v *lent) lacks(db int, name []byte, writable bool) {
	switch {
	case v.none() || len(v.lenders[db][string(name)]) == 0:
	case !writable:
		abort()
	case v.by != nil:
		v.endBy(changedKey{db, string(name)}, v.by)
	}
}

// lends returns what learns of commands that may write: nil if nothing is lent.
func (m *Machine) lends() func(*commands.Spec) {
	if m.waiting.lent.none() {
		return nil
	}
	return m.waiting.lent.runs
}

// source is a key before the command of a wait takes something from it.
type source struct {
	number     uint64 // number of the wait
	key        changedKey
	class      string
	deadlineMs int64 // deadline of the key; 0: none
}

// lend notes what a wait was given.
func (m *Machine) lend(env *commands.Env, from source) {
	m.waiting.lent.expire(m.ks.Now())
	m.waiting.lent.add(from, m.ks.Now()+lendingMs)
	env.Runs = m.lends()
}

// putBack puts back a part of what a wait was given whose client is gone, if it is still lent. A
// part that was put back before stays so: a node whose request's end is not known asks again.
func (c *systemCall) putBack() error {
	m, values := c.m, c.args
	var n [3]int64 // the wait's number, that of the part, and how many there are
	for i := range n {
		v, ok := commands.ParseInt(values[i])
		if !ok {
			return commands.ErrNoSystemRequest
		}
		n[i] = v
	}
	l := m.waiting.lent.of(uint64(n[0]))
	switch {
	case l == nil || n[1] > l.parts:
		return commands.ErrNotLent
	case n[1] < l.parts:
		return nil
	}
	from := l.from.key
	spec, err := m.table.ResolveAt(m.level, values[3:])
	if err != nil || !l.from.takesBack(spec, values[3:]) {
		return commands.ErrNotLent
	}
	if l.parts++; l.parts >= n[2] {
		m.waiting.lent.remove(l)
	} else {
		m.waiting.lent.prolong(l, m.ks.Now()+lendingMs)
	}
	db, key := m.ks.DB(from.db), []byte(from.key)
	absent := db.Find(key) == nil
	if l.deadlineMs != 0 && l.deadlineMs < m.ks.Now() { // it expired, whatever has its name now
		return commands.ErrNotLent
	}
	c.env.Runs, m.waiting.lent.by = nil, nil // it ends no other loan of the key
	defer func() { c.env.Runs = m.lends() }()
	var out commands.RESP
	x := &commands.Call{Env: c.env, Tx: &commands.Tx{DB: from.db, Proto: 2}, Args: values[3:],
		Out: &out, Stop: c.stop()}
	x.Run(spec, nil)
	if text, failed := strings.CutPrefix(string(out.Buf), "-"); failed {
		return commands.Error(strings.TrimSpace(text))
	}
	if e := db.Edit(key); e != nil && (absent || l.deadlineMs == 0) {
		// What was taken from a key without a deadline does not die by that of an earlier key of
		// its name, of which something was put back before: a later EXPIRE would have ended l.
		db.SetDeadline(e, l.deadlineMs)
	}
	return nil
}

// freeze returns what appendTo needs, while the machine goes on.
func (v *lent) freeze() (f lent) {
	for _, d := range v.queue {
		if d.current() {
			l, from := *d.loan, *d.from
			l.from = &from
			f.queue = append(f.queue, due{&l, d.atMs})
		}
	}
	return f
}

// appendTo appends the encoding for a snapshot, of what freeze returned.
func (v *lent) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(v.queue)))
	for _, l := range v.queue {
		dst = binary.AppendUvarint(dst, l.number)
		dst = append(dst, byte(l.from.key.db))
		dst = wire.AppendBytes(dst, l.from.key.key)
		dst = wire.AppendBytes(dst, l.from.class)
		dst = binary.AppendVarint(dst, l.deadlineMs)
		dst = binary.AppendVarint(dst, l.untilMs)
		dst = binary.AppendVarint(dst, l.parts)
	}
	return dst
}

// restore reads what appendTo wrote.
func (v *lent) restore(c *wire.Cursor) {
	for range c.Count(7) {
		number, db := c.Uvarint(), int(c.Byte())
		if db >= keyspace.Databases {
			c.Fail()
			return
		}
		l := v.add(source{number, changedKey{db, c.Text()}, c.Text(), c.Varint()}, c.Varint())
		l.parts = c.Varint()
	}
}
