// A witness notes what a request does to keys: which it asked about, which it changed and how. From
// that witness_judge.go tells locks and windows, whatever script or command sequence a library uses
// for them (docs/adr/0024-observing-locks.md).

package commands

import (
	"bytes"

	"github.com/coordd/coordd/commands/keyspace"
)

// acts is what commands do to a key: a set.
type acts uint32

const (
	actNX     acts = 1 << iota // creates a key only if there is none
	actSet                     // sets a string
	actTest                    // asks whether the key exists
	actLook                    // reads the value
	actField                   // reads one field of a hash
	actAsk                     // asks for the time to live
	actCount                   // raises or lowers a number
	actLower                   // lowers a number
	actEnter                   // raises a field of a hash
	actLeave                   // lowers it
	actFields                  // sets fields of a hash
	actDrop                    // removes fields of a hash
	actAdd                     // adds to a sorted set
	actSize                    // asks what is in a sorted set
	actTrim                    // removes what is too old from it
	actFree                    // removes named elements of it
	actScore                   // asks for the score of an element
	actExpire                  // sets when the key expires
	actDelete                  // deletes the key
	actRate                    // asks a rate limit
	actPeek                    // only looks at a rate limit

	// actAlone marks what means something also outside of a script or transaction.
	actAlone
)

// maxSeen bounds the keys that a witness notes of one request.
const maxSeen = 32

// Witness gathers the facts of the requests of an entry or of a dry run. Begin starts it, Judge
// ends each request. It is not part of the state.
type Witness struct {
	ks     *keyspace.Keyspace
	wet    bool // in an entry, else in a dry run
	quiet  bool // marks locks, but records no facts
	facts  []Fact
	size   int    // what they count, also those that are left out
	unused Fact   // where quiet ones go
	arena  []byte // holds what facts refer to; the newest part
	seen   []seen // the keys of the running request
	first  int    // its first fact
	locks  bool   // it concerns a lock
	lowers bool   // it has lowered a number

	db   int  // database of the running command
	act  acts // what the running command does; 0: it is of no interest
	what int  // its key in seen
	who  []byte
}

// seen is what a request has done to a key so far.
type seen struct {
	db   int
	key  []byte
	acts acts
	who  []byte // the owner that the request named
	// e is the key's newest state; nil: unchanged or gone
	e        *keyspace.Entry
	added    bool
	asked    bool // the request looked before it created or added
	retimed  bool // its deadline was changed, from beforeMs
	helps    bool // it is a window, or a helper of a lock that the request concerns
	beforeMs int64
}

// keptFacts bounds the memory that a witness keeps for later entries, and keptBytes that of its
// arena.
const (
	keptFacts = 4096
	keptBytes = 64 * keptFacts
)

// What the facts of an entry or a read may count, bytes, and what one counts besides its texts. A
// script can ask for the same locks again and again: what is beyond that is not reported.
const (
	mostFacts = 16 << 20
	factBytes = 160
)

// NewWitness returns a witness of the entries that change ks.
func NewWitness(ks *keyspace.Keyspace) *Witness {
	w := &Witness{ks: ks, wet: true}
	ks.Trace(w.changed)
	return w
}

// BeginRead starts dry runs on ks.
func (w *Witness) BeginRead(ks *keyspace.Keyspace) {
	w.ks = ks
	w.Begin(true)
}

// Begin starts an entry. It forgets all facts. Without wanted the entry only marks locks.
func (w *Witness) Begin(wanted bool) {
	w.quiet = !wanted
	if cap(w.facts) > keptFacts || cap(w.arena) > keptBytes {
		w.facts, w.arena = nil, nil
	}
	w.facts, w.arena, w.size = w.facts[:0], w.arena[:0], 0
	w.next()
}

// next makes the witness ready for the next request.
func (w *Witness) next() {
	w.seen, w.first, w.locks, w.lowers = w.seen[:0], len(w.facts), false, false
	w.trace(0)
}

// trace sets what the running command does. The changes of a keyspace are of interest meanwhile.
func (w *Witness) trace(act acts) {
	w.act = act
	if w.wet {
		w.ks.Tracing(act != 0)
	}
}

// Drop forgets what the running request did: it was a read, or runs again as an entry.
func (w *Witness) Drop() {
	w.facts = w.facts[:w.first]
	w.next()
}

// Facts returns the facts of the requests that were judged, valid until Begin.
func (w *Witness) Facts() []Fact { return w.facts }

// keep returns a copy of b in the arena: a script may reuse its arguments.
func (w *Witness) keep(b []byte) []byte {
	w.makeRoom(len(b))
	start := len(w.arena)
	w.arena = append(w.arena, b...)
	return w.arena[start:len(w.arena):len(w.arena)]
}

func (w *Witness) keepString(s string) []byte {
	w.makeRoom(len(s))
	start := len(w.arena)
	w.arena = append(w.arena, s...)
	return w.arena[start:len(w.arena):len(w.arena)]
}

// makeRoom begins another part of the arena if this one has no room. It copies nothing: what there
// is stays as long as a fact refers to it.
func (w *Witness) makeRoom(n int) {
	if n > cap(w.arena)-len(w.arena) {
		w.arena = make([]byte, 0, max(n, min(2*cap(w.arena), keptBytes), 64))
	}
}

// takes reports whether a fact about a key is to be recorded.
func (w *Witness) takes(key, owner int) bool {
	if w.quiet {
		return false
	}
	w.size += factBytes + key + owner
	return w.size <= mostFacts
}

// begin notes that a command starts. Outside of scripts and transactions, the handlers of SET and
// SETNX report what they did by Call.asked and Call.renews.
func (w *Witness) begin(x *Call, spec *Spec) {
	act := spec.Acts
	together := x.Tx.Script || x.Tx.Multi
	if act == 0 || !together && act&actAlone == 0 {
		if w.act != 0 {
			w.trace(0)
		}
		return
	}
	w.enter(x, act, max(spec.Keys.First, 1))
}

// enter notes a command that may be of interest, whose key is the argument of that index.
func (w *Witness) enter(x *Call, act acts, key int) {
	w.db, w.who = x.Tx.DB, nil
	act = w.interpret(act, x.Args[key-1:])
	if key >= len(x.Args) {
		act = 0
	} else if w.what = w.find(w.db, x.Args[key]); w.what < 0 {
		act = 0
	}
	w.trace(act)
	if act == 0 {
		return
	}
	s := &w.seen[w.what]
	if act&(actCount|actAdd) != 0 && s.acts&(actLook|actSize) != 0 {
		s.asked = true
	}
	s.acts |= act
	if w.who != nil {
		s.who = w.keep(ownerOf(w.who))
	}
	w.lowers = w.lowers || act&actLower != 0
}

// releases notes that a command is about to delete a key that it does not name.
func (w *Witness) releases(db int, key []byte) {
	w.enter(&Call{Tx: &Tx{DB: db}, Args: [][]byte{nil, key}}, actDelete, 1)
}

// ownerOf returns what facts tell of an owner: a token may be megabytes long.
func ownerOf(b []byte) []byte { return b[:min(len(b), maxOwner)] }

// asked reports what came of SET NX or SETNX outside of scripts and transactions: it created e, or
// found it. nil: neither.
func (x *Call) asked(e *keyspace.Entry, created bool) {
	w := x.Witness
	if w == nil || e == nil || x.Tx.Script || x.Tx.Multi {
		return
	}
	if created {
		e.MarkLease(true)
	}
	if w.quiet || created && e.Deadline() == 0 {
		return
	}
	kind := LockRefused
	if created {
		kind = LockGranted
	}
	w.facts = append(w.facts, Fact{Kind: kind, DB: x.Tx.DB, Key: x.Args[1],
		Owner: ownerOf(x.Args[2]), Token: e.Created(), DeadlineMs: e.Deadline()})
}

// lockFact reports what a LOCK command did to a lock, or found. deadlineMs is when the lock ends, 0
// if that is not known.
func (x *Call) lockFact(kind FactKind, form LeaseForm, key, owner []byte,
	token keyspace.Revision, deadlineMs int64) {
	w := x.Witness
	if w == nil {
		return
	}
	owner = ownerOf(owner)
	if w.locks = true; !w.takes(len(key), len(owner)) { // marks depend on it
		return
	}
	w.facts = append(w.facts, Fact{Kind: kind, Form: form, DB: x.Tx.DB, Key: w.keep(key),
		Owner: w.keep(owner), Token: token, DeadlineMs: deadlineMs,
		Shared: form.several()})
	if kind == LockGranted {
		w.facts[len(w.facts)-1].QueuedMs = x.Tx.QueuedMs
	}
}

// renews reports that SET gives a key that has the right value a new TTL, before it does.
func (x *Call) renews() {
	if x.Witness != nil && !x.Tx.Script && !x.Tx.Multi {
		x.Witness.enter(x, actSet|actExpire, 1)
	}
}

// window reports what a window did, which WINDOW.HIT tells itself. e is its key, or nil.
func (w *Witness) window(x *Call, kind FactKind, key []byte, e *keyspace.Entry) {
	if w == nil || !w.takes(len(key), 0) {
		return
	}
	f := Fact{Kind: kind, Form: FormSliding, DB: x.Tx.DB, Key: w.keep(key)}
	if e != nil {
		f.Token, f.DeadlineMs = e.Created(), e.Deadline()
	}
	w.facts = append(w.facts, f)
}

// interpret completes a command's acts by its arguments, and notes the owner that they name.
func (w *Witness) interpret(act acts, args [][]byte) acts {
	switch {
	case act&(actSet|actNX) != 0:
		if len(args) > 2 {
			w.who = args[2]
		}
		if act&actNX == 0 && len(args) > 3 && len(args[0]) == len("set") {
			act |= conditionOf(args[3:])
		}
	case act&(actField|actDrop) != 0 && len(args) > 2:
		if string(args[2]) != "mode" { // mode of a read-write lock, whose other fields are owners
			w.who = args[2]
		}
	case act&actEnter != 0 && len(args) > 3:
		w.who = args[2]
		if len(args[3]) > 0 && args[3][0] == '-' {
			act ^= actEnter | actLeave
		}
	case act&(actFree|actScore) != 0 && len(args) > 2:
		w.who = args[2]
	case act&actAdd != 0 && len(args) > 3:
		w.who = args[len(args)-1]
	case act&actCount != 0 && len(args) > 2 && len(args[2]) > 0 && args[2][0] == '-':
		act |= actLower
	case act&actFields != 0:
		for i := 2; i+1 < len(args); i += 2 {
			if string(args[i]) != "mode" {
				w.who = args[i]
			}
		}
	case act&actRate != 0 && len(args) == 6 && string(args[5]) == "0":
		act |= actPeek
	}
	return act
}

// conditionOf returns what the options of SET add to its acts: NX, or a condition on the value with
// a TTL, which renews.
func conditionOf(options [][]byte) acts {
	same, timed := false, false
	for i := 0; i < len(options); i++ {
		switch o := options[i]; {
		case isWord(o, "NX"):
			return actNX
		case isWord(o, "XX"), isWord(o, "IFEQ"):
			same = true
		case parseTTLUnit(o) != ttlNone, isWord(o, "LEASE"):
			timed = true
			i++
		}
	}
	if same && timed {
		return actExpire
	}
	return 0
}

// find returns the index of a key in seen, added if missing, -1 if the request has too many.
func (w *Witness) find(db int, key []byte) int {
	for i := range w.seen {
		if s := &w.seen[i]; s.db == db && bytes.Equal(s.key, key) {
			return i
		}
	}
	if len(w.seen) == maxSeen {
		return -1
	}
	w.seen = append(w.seen, seen{db: db, key: w.keep(key)})
	return len(w.seen) - 1
}

// Watched notes a key that a transaction watches. absent means that it did not exist: what the
// transaction does, it does under that condition.
func (w *Witness) Watched(db int, key []byte, absent bool) {
	if i := w.find(db, key); i >= 0 {
		w.seen[i].acts |= actLook
		if absent {
			w.seen[i].acts |= actTest
		}
	}
}

// changed notes a change of the keyspace.
func (w *Witness) changed(db int, e *keyspace.Entry, c keyspace.Change) {
	if c == keyspace.Expired {
		if e.Lease() {
			w.over(LockExpired, db, e, nil)
		}
		return
	}
	if w.act == 0 || c == keyspace.Flushed || c == keyspace.ElementsExpired {
		return
	}
	i := w.what
	if s := &w.seen[i]; s.db != db || string(s.key) != e.Key() {
		if i = w.find(db, w.keepString(e.Key())); i < 0 { // one of several keys
			return
		}
		w.seen[i].acts |= w.act
	}
	s := &w.seen[i]
	switch c {
	case keyspace.Added:
		s.added = true
		s.asked = s.asked || s.acts&(actNX|actTest|actLook|actField) != 0
	case keyspace.Retimed:
		if !s.retimed && !s.added {
			s.retimed, s.beforeMs = true, e.Deadline()
		}
	case keyspace.Removed:
		if e.Lease() || s.acts&actFree != 0 && e.Window() {
			w.over(LockReleased, db, e, s.who)
		}
		s.e, s.added = nil, false
		s.acts |= actDelete // the request has changed it
	case keyspace.Modified:
		s.e = e
	}
}

// over records that a key that is a lock goes. who is the owner of a hash whose fields are gone.
func (w *Witness) over(kind FactKind, db int, e *keyspace.Entry, who []byte) {
	w.locks = w.locks || kind == LockReleased
	if !w.takes(len(e.Key()), maxOwner) {
		return
	}
	f := Fact{Kind: kind, DB: db, Key: w.keepString(e.Key()), Token: e.Created(),
		DeadlineMs: e.Deadline()}
	f.Form, f.Owner = holderOf(e)
	if f.Owner == nil {
		f.Owner = who
	}
	f.Owner, f.Shared = w.keep(ownerOf(f.Owner)), f.Form == FormSemaphore
	w.facts = append(w.facts, f)
}

// holderOf returns the form of a lock and its owner, the first of several.
func holderOf(e *keyspace.Entry) (form LeaseForm, owner []byte) {
	if e.Kind() == keyspace.KindZSet {
		return FormSemaphore, nil
	}
	h, ok := e.Collection().(*keyspace.Hash) //hash: walked once, as the lock goes
	if !ok {
		return FormString, e.Bytes()
	}
	form = formOf(h)
	h.Each(func(name string, _ []byte) bool {
		if form == FormReadWrite && name == "mode" {
			return true
		}
		owner = []byte(name)
		return false
	})
	return form, owner
}

// formOf returns the form of a lock that is a hash.
func formOf(h *keyspace.Hash) LeaseForm {
	if isReadWrite(h) {
		return FormReadWrite
	}
	return FormReentrant
}

// isReadWrite reports whether a hash is a read-write lock: it has a mode.
func isReadWrite(h *keyspace.Hash) bool {
	mode, ok := h.Get([]byte("mode"))
	return ok && (string(mode) == "read" || string(mode) == "write")
}
