package locks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// fact is a fact about the lock l, taken in entry index.
func fact(kind commands.FactKind, owner string, index uint64) commands.Fact {
	return commands.Fact{Kind: kind, Key: []byte("l"), Owner: []byte(owner), Token: at(index)}
}

func at(index uint64) keyspace.Revision { return keyspace.NewRevision(0, index, 0) }

func newObserver(t *testing.T, rules string) *Observer {
	t.Helper()
	r, err := ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	return New(r)
}

func TestObserverCounts(t *testing.T) {
	o := newObserver(t, "")
	apply := func(index uint64, ms int64, facts ...commands.Fact) {
		o.Applied(at(index), ms, facts)
	}
	apply(1, 1000, fact(commands.LockGranted, "a", 1))
	o.Tried(1100, []commands.Fact{fact(commands.LockRefused, "b", 1)})
	o.Tried(1200, []commands.Fact{fact(commands.LockRefused, "b", 1)})
	renewed := fact(commands.LockRenewed, "a", 1)
	renewed.BeforeMs, renewed.DeadlineMs = 1309, 1400 // 9 of 100 ms were left
	apply(2, 1300, renewed)
	renewed.BeforeMs, renewed.DeadlineMs = 1400, 1490
	apply(3, 1390, renewed) // 10 of 100 ms
	expired := fact(commands.LockExpired, "a", 1)
	expired.DeadlineMs = 1490
	apply(4, 1500, expired, fact(commands.LockGranted, "b", 4))
	apply(5, 1700, fact(commands.LockReleased, "b", 4))
	s := o.Snapshot()[0]
	got := fmt.Sprintf("%d %d %d %d %d %d %d", s.Granted, s.Refused, s.Released, s.Expired,
		s.Renewed, s.RenewedLate, s.TakenOver)
	if want := "2 2 1 1 2 1 1"; got != want {
		t.Errorf("counts %s, want %s", got, want)
	}
	if s.Held.Count != 2 || s.Held.Sum != 0.49+0.2 || s.Waited.Count != 1 || s.Waited.Sum != 0.4 {
		t.Errorf("held %d in %gs, waited %d in %gs", s.Held.Count, s.Held.Sum, s.Waited.Count,
			s.Waited.Sum)
	}
}

// A lock that was waited for in a queue was waited for since then, however long ago, and whoever
// led.
func TestQueuedWaits(t *testing.T) {
	o := newObserver(t, "")
	granted := fact(commands.LockGranted, "a", 1)
	granted.QueuedMs = 1000
	o.Applied(at(1), 901_000, []commands.Fact{fact(commands.LockRefused, "a", 1)})
	o.Applied(at(2), 901_000, []commands.Fact{granted, fact(commands.LockGranted, "b", 2)})
	s := o.Snapshot()[0]
	if s.Waited.Count != 1 || s.Waited.Sum != 900 {
		t.Errorf("waited %d in %gs", s.Waited.Count, s.Waited.Sum)
	}
}

// Only another owner, within a second, takes a lock over.
func TestTakenOver(t *testing.T) {
	for _, c := range []struct {
		owner string
		ms    int64
		kind  commands.FactKind
		want  uint64
	}{
		{"b", 3000, commands.LockExpired, 1}, {"b", 3001, commands.LockExpired, 0},
		{"a", 2500, commands.LockExpired, 0}, {"b", 2500, commands.LockReleased, 0},
	} {
		o := newObserver(t, "")
		over := fact(c.kind, "a", 1)
		over.DeadlineMs = 2000
		o.Applied(at(2), 2001, []commands.Fact{over})
		o.Applied(at(3), c.ms, []commands.Fact{fact(commands.LockGranted, c.owner, 3)})
		if got := o.Snapshot()[0].TakenOver; got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A follower gets no facts. When it leads, it knows since when a lock is held.
func TestHoldTimesAcrossFailover(t *testing.T) {
	o := newObserver(t, "")
	for i := range uint64(100_000) {
		o.Applied(at(i), int64(i)*10, nil)
	}
	for _, index := range []uint64{99_999, 99_000, 90_000, 50_000, 1} {
		since, ok := o.times.clock(at(index) + 5)
		age, err := 999_990-int64(index)*10, int64(index)*10-since
		if !ok || err < 0 || err > max(age/250, 10) {
			t.Errorf("entry %d: %d ms off, its age is %d ms, known %v", index, err, age, ok)
		}
	}
	if _, ok := newObserver(t, "").times.clock(at(7)); ok {
		t.Error("the time of an entry is known that was never seen")
	}
}

func TestRules(t *testing.T) {
	o := newObserver(t, "lock:=locks lock:orders: lock:orders:eu:=locks rate:=other a")
	for key, want := range map[string]string{
		"lock:x": "locks", "lock:orders:1": "lock:orders:", "lock:orders:eu:7": "locks",
		"lock": Other, "rate:1": Other, "a": "a", "ab": "a", "b": Other, "": Other,
		"lock:orders": "locks", "lock:zzz": "locks", "m": Other,
	} {
		if got := o.rules.labels[o.rules.of([]byte(key))]; got != want {
			t.Errorf("%q has label %q, want %q", key, got, want)
		}
	}
	many := make([]string, MaxLabels+1)
	for i := range many {
		many[i] = fmt.Sprint("p", i, ":")
	}
	if _, err := ParseRules(strings.Join(many[:MaxLabels], " ")); err != nil {
		t.Error(err)
	}
	for _, text := range []string{strings.Join(many, " "), "a a", "=x", "a=", "a=b a", "~\xff"} {
		if _, err := ParseRules(text); err == nil {
			t.Errorf("accepted %.40q", text)
		}
	}
	key := commands.Fact{Kind: commands.LockGranted, Key: []byte("lock:x")}
	o.Applied(1, 1, []commands.Fact{key})
	next, _ := ParseRules("new lock:y=locks")
	o.SetRules(next)
	if s := o.Snapshot(); len(s) != 3 || s[1].Label != "locks" || s[1].Granted != 1 {
		t.Errorf("after a change of rules: %+v", s)
	}
}

// Until a slot is given back, a semaphore looks like a window. From then on it is one, also when it
// was empty meanwhile.
func TestSemaphores(t *testing.T) {
	o := newObserver(t, "")
	of := func(kind commands.FactKind, form commands.LeaseForm) commands.Fact {
		return commands.Fact{Kind: kind, Form: form, Key: []byte("s")}
	}
	o.Applied(at(1), 1, []commands.Fact{of(commands.WindowAllowed, commands.FormSliding),
		of(commands.LockReleased, commands.FormSemaphore),
		of(commands.WindowAllowed, commands.FormSliding)})
	o.Tried(2, []commands.Fact{of(commands.WindowDenied, commands.FormSliding)})
	other := of(commands.WindowDenied, commands.FormSliding)
	other.Key = []byte("other")
	o.Tried(2, []commands.Fact{other})
	s := o.Snapshot()[0]
	if s.Allowed != 1 || s.Granted != 1 || s.Refused != 1 || s.Denied != 1 || s.Released != 1 {
		t.Errorf("%+v", s)
	}
}

// Who has learned when the lease ends waits for a message until then. Others have to ask again.
func TestPatientWaiters(t *testing.T) {
	o := newObserver(t, "")
	refused := fact(commands.LockRefused, "p", 1)
	refused.Patient, refused.DeadlineMs = true, 301_000
	nameless := fact(commands.LockRefused, "", 1)
	o.Tried(1000, []commands.Fact{refused, fact(commands.LockRefused, "q", 1), nameless})
	shown := func(ms int64) (owners string) {
		for _, w := range o.Lock(0, []byte("l"), at(1), ms).Waiters {
			owners += w.Owner + ","
		}
		return owners
	}
	if got := shown(2000); got != "p,q,," {
		t.Errorf("at first %s wait", got)
	}
	o.Applied(at(2), 300_000, nil)
	if got := shown(300_000); got != "p," {
		t.Errorf("later %s wait", got)
	}
	o.Tried(300_000, []commands.Fact{nameless})
	o.Applied(at(3), 301_000, []commands.Fact{fact(commands.LockGranted, "p", 3)})
	if s := o.Snapshot()[0]; s.Waited.Count != 1 || s.Waited.Sum != 300 || shown(301_000) != "" {
		t.Errorf("waited %v, waiting %s", s.Waited, shown(301_000))
	}
}

// Whatever clients do, an observer remembers a bounded number of waiters, and forgets those that
// left.
func TestWaitersAreBounded(t *testing.T) {
	o := newObserver(t, "")
	refuse := func(ms int64, key, owner string) {
		o.Tried(ms, []commands.Fact{{Kind: commands.LockRefused, Key: []byte(key),
			Owner: []byte(owner)}})
	}
	for i := range 2 * maxWaiters {
		refuse(1, fmt.Sprint(i), "w")
	}
	if o.waiters.n != maxWaiters {
		t.Errorf("%d waiters", o.waiters.n)
	}
	o.Applied(1, shownMs+keptMs+1, nil)
	if o.waiters.n != 0 || len(o.waiters.byLock) != 0 {
		t.Errorf("%d waiters after they left", o.waiters.n)
	}
	for i := range 2 * maxLockWaiters {
		refuse(70_000, "l", fmt.Sprint(i))
	}
	if o.waiters.n != maxLockWaiters {
		t.Errorf("%d waiters of one lock", o.waiters.n)
	}
}
