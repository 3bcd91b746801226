// What a witness tells from what a request did to a key. The rules are in
// docs/adr/0024-observing-locks.md; none depends on the text of a script.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Judge ends a request: it records the facts of its keys, and marks those that are locks now.
func (w *Witness) Judge() {
	if len(w.seen) == 0 {
		w.first, w.locks = len(w.facts), false
		return
	}
	for i := range w.seen {
		s := &w.seen[i]
		switch {
		case s.acts&actRate != 0:
			w.judgeRate(s)
		case s.e == nil && s.acts&actDelete == 0:
			if e := w.ks.DB(s.db).Find(s.key); e != nil {
				w.judgeLook(s, e)
			}
		case s.e == nil:
		case s.e.Kind() == keyspace.KindString:
			w.judgeString(s)
		case s.e.Kind() == keyspace.KindHash:
			w.judgeHash(s)
		case s.e.Kind() == keyspace.KindZSet:
			w.judgeZSet(s)
		}
	}
	if w.locks {
		w.dropBuckets()
	} else {
		for i := range w.seen {
			if s := &w.seen[i]; s.helps {
				s.e.MarkWindow()
			}
		}
	}
	w.next()
}

// dropBuckets drops what looks like a bucket from the facts of a request that concerns a lock: a
// number with a TTL beside a lock is a helper of the lock, such as a latch. It is not marked.
func (w *Witness) dropBuckets() {
	kept := w.facts[:w.first]
	for _, f := range w.facts[w.first:] {
		if f.Form != FormBucket {
			kept = append(kept, f)
		}
	}
	w.facts = kept
}

// add records a fact about a key. e is the key, or nil.
func (w *Witness) add(kind FactKind, form LeaseForm, s *seen, e *keyspace.Entry,
	owner []byte) *Fact {
	w.locks = w.locks || kind < WindowAllowed
	if w.quiet {
		w.unused = Fact{}
		return &w.unused
	}
	f := Fact{Kind: kind, Form: form, DB: s.db, Key: s.key, Owner: owner}
	if e != nil {
		f.Token, f.DeadlineMs = e.Created(), e.Deadline()
	}
	w.facts = append(w.facts, f)
	return &w.facts[len(w.facts)-1]
}

// judgeRate judges a command that is a rate limit: it writes what it allows.
func (w *Witness) judgeRate(s *seen) {
	switch {
	case s.acts&actPeek != 0:
	case s.e != nil || s.acts&actDelete != 0:
		if s.e != nil {
			s.helps = true
		}
		w.add(WindowAllowed, FormBucket, s, s.e, nil)
	default:
		w.add(WindowDenied, FormBucket, s, nil, nil)
	}
}

// judgeString judges a string that was created or changed.
func (w *Witness) judgeString(s *seen) {
	e := s.e
	timed := e.Deadline() != 0
	switch {
	case s.acts&actCount != 0:
		e.MarkLease(false) // it was a counter that SET NX created
		if timed {
			e.MarkWindow()
			w.add(windowKind(s.asked && s.acts&actNX == 0), FormFixed, s, e, nil)
		}
	case s.added && s.asked:
		switch {
		case timed && s.acts&actNX == 0 && isNumber(e.Bytes()):
			s.helps = true
			w.add(WindowCounted, FormBucket, s, e, nil)
		case timed:
			e.MarkLease(true)
			w.add(LockGranted, FormString, s, e, w.keep(ownerOf(e.Bytes())))
		case s.acts&actNX != 0:
			e.MarkLease(true) // a TTL may follow
		}
	case s.added || !timed || !s.retimed || e.Deadline() == s.beforeMs:
	case !e.Lease() && isNumber(e.Bytes()):
		switch {
		case s.acts&actSet != 0 && s.acts&actLook != 0:
			s.helps = true
			w.add(WindowCounted, FormBucket, s, e, nil)
		case s.beforeMs == 0:
			e.MarkWindow()
			w.add(WindowCounted, FormFixed, s, e, nil) // INCR came before
		}
	case e.Lease() && (s.beforeMs == 0 || e.Created() == w.ks.CurrentRevision()):
		// SETNX came before, or another owner was overwritten
		w.add(LockGranted, FormString, s, e, w.keep(ownerOf(e.Bytes())))
	case e.Lease() || s.acts&actExpire != 0 && s.acts&actLook != 0:
		e.MarkLease(true)
		w.add(LockRenewed, FormString, s, e, w.keep(ownerOf(e.Bytes()))).BeforeMs = s.beforeMs
	}
}

// windowKind says what a window did that counted: one that was asked before let the request pass.
func windowKind(asked bool) FactKind {
	if asked {
		return WindowAllowed
	}
	return WindowCounted
}

// judgeHash judges a hash that was created or changed.
func (w *Witness) judgeHash(s *seen) {
	e := s.e
	h, ok := e.Collection().(*keyspace.Hash) //hash: two fields of it
	if !ok || e.Deadline() == 0 {
		return
	}
	form := formOf(h)
	w.locks = w.locks || e.Lease()
	enters := s.acts&actEnter != 0 || s.acts&actFields != 0 &&
		(form == FormReadWrite || s.acts&actTest != 0)
	switch {
	case s.added && s.asked && enters:
		e.MarkLease(true)
		w.add(LockGranted, form, s, e, s.who)
	case s.added, !e.Lease() && s.acts&(actField|actDrop|actLeave) == 0:
		if s.acts&(actEnter|actFields) != 0 {
			s.helps = true
			w.add(WindowCounted, FormBucket, s, e, nil)
		}
	case enters:
		e.MarkLease(true)
		if depth, _ := h.Get(s.who); string(depth) == "1" {
			w.add(LockGranted, form, s, e, s.who).Shared = true
		}
	case s.acts&actDrop != 0:
		w.add(LockReleased, form, s, e, s.who).Shared = true
	case s.acts&actLeave != 0:
	case s.retimed && e.Deadline() != s.beforeMs:
		e.MarkLease(true)
		w.add(LockRenewed, form, s, e, s.who).BeforeMs = s.beforeMs
	}
}

// judgeZSet judges a sorted set that was created or changed. A window whose elements are taken out
// by name is a semaphore.
func (w *Witness) judgeZSet(s *seen) {
	e := s.e
	known, asks := e.Lease() || e.Window(), s.acts&actSize != 0
	switch {
	case s.acts&actAdd != 0 && s.acts&actScore != 0 && !asks && known:
		e.MarkLease(true)
		f := w.add(LockRenewed, FormSemaphore, s, e, s.who)
		f.Shared, f.BeforeMs = true, f.DeadlineMs // deadline of the key, not of the holder
	case s.acts&actAdd != 0 && (e.Lease() || w.lowers):
		e.MarkLease(true)
		w.add(LockGranted, FormSemaphore, s, e, s.who).Shared = true
	case s.acts&actFree != 0 && s.acts&actAdd == 0 && !asks:
		if known {
			e.MarkLease(true)
			w.add(LockReleased, FormSemaphore, s, e, s.who).Shared = true
		}
	case e.Deadline() == 0 && s.acts&actTrim == 0:
	case s.acts&actAdd != 0:
		e.MarkWindow()
		w.add(windowKind(s.asked), FormSliding, s, e, nil)
	case asks && e.Lease():
		w.add(LockRefused, FormSemaphore, s, e, nil).Shared = true
	case asks:
		w.add(WindowDenied, FormSliding, s, e, nil)
	case s.acts == actExpire|actAlone && s.retimed && s.beforeMs == 0:
		e.MarkWindow()
		w.add(WindowCounted, FormSliding, s, e, nil) // ZADD came before
	}
}

// judgeLook judges a key that exists and that the request did not change.
func (w *Witness) judgeLook(s *seen, e *keyspace.Entry) {
	if s.acts&actNX != 0 { // also of a value that is no lock
		w.add(LockRefused, FormString, s, e, s.who).Patient = s.acts&actAsk != 0
		return
	}
	switch e.Kind() {
	case keyspace.KindString:
		w.lookString(s, e)
	case keyspace.KindHash:
		h, _ := e.Collection().(*keyspace.Hash) //hash: one field of it
		w.lookHash(s, e, formOf(h))
	case keyspace.KindZSet:
		switch {
		case s.acts&actSize == 0 || s.acts&(actAdd|actFree) != 0:
		case e.Lease():
			w.add(LockRefused, FormSemaphore, s, e, nil).Shared = true
		case e.Window(), s.acts&actTrim != 0:
			w.add(WindowDenied, FormSliding, s, e, nil)
		}
	}
}

// lookString is judgeLook for a string. A number denies only if it was counted up before: others
// are values that a script read.
func (w *Witness) lookString(s *seen, e *keyspace.Entry) {
	switch {
	case e.Deadline() == 0:
	case !e.Lease():
		if s.acts&actLook != 0 && e.Window() {
			w.add(WindowDenied, FormFixed, s, e, nil)
		}
	case s.acts&actTest != 0:
		w.add(LockRefused, FormString, s, e, s.who).Patient = s.acts&actAsk != 0
	case s.acts&(actLook|actAsk) == actLook:
		w.add(LockMissed, FormString, s, e, nil)
	}
}

// lookHash is judgeLook for a hash.
func (w *Witness) lookHash(s *seen, e *keyspace.Entry, form LeaseForm) {
	switch {
	case e.Deadline() == 0:
	case s.acts&(actField|actTest) != 0 && s.acts&actAsk != 0,
		e.Lease() && s.acts&actTest != 0:
		w.add(LockRefused, form, s, e, s.who).Patient = s.acts&actAsk != 0
	case e.Lease() && s.acts&actField != 0:
		w.add(LockMissed, form, s, e, s.who)
	case e.Window() && s.acts&actLook != 0:
		w.add(WindowDenied, FormBucket, s, e, nil)
	}
}

// isNumber reports whether a value is a decimal number, as counters and buckets keep them.
func isNumber(b []byte) bool {
	const longest = 40
	if len(b) > longest {
		return false
	}
	digits := 0
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c != '.' && (c != '-' || i > 0):
			return false
		}
	}
	return digits > 0
}
