// Random calls on locks, beside a model of them: who is granted what, until when, in which order,
// what comes of plain commands, leases, claims and time.

package fsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// lockModel is what the machine must do.
type lockModel struct {
	*waitMachine
	dice    *rand.Rand
	keys    map[string]*modelLock
	leases  map[uint64]*modelLease
	queue   []*modelWait // in the order of their turns
	claims  []*modelWait // granted and not claimed, the oldest first
	number  uint64
	largest uint64 // token
	history []string
}

// modelLock is a key: a list, a string, or a hash of owners.
type modelLock struct {
	form       string // "list", "string", "reentrant", "shared", "permits"
	deadlineMs int64  // 0: none
	lease      uint64 // that has it as an item; 0: none
	owners     map[string]*modelHold
}

type modelHold struct {
	count      int64
	token      uint64
	deadlineMs int64  // of a field; 0: none
	lease      uint64 // that has the field as an item
}

type modelLease struct{ ttlMs, untilMs, delayMs int64 }

func (l *modelLease) deadlineMs() int64 { return l.untilMs + l.delayMs }

// modelCall is a LOCK.ACQUIRE.
type modelCall struct {
	line, owner, form       string
	keys                    []string
	ms, permits, most, prio int64
	lease                   uint64
	reentrant               bool
}

// modelWait is one that waits, or was granted.
type modelWait struct {
	*modelCall
	number, order uint64
	untilMs       int64             // until when it may be claimed
	tokens        map[string]uint64 // by key
}

func (k *modelLock) several() bool { return k.form == "shared" || k.form == "permits" }

// held returns what an owner holds of a key, nil if nothing.
func (m *lockModel) held(key, owner string) *modelHold {
	k := m.keys[key]
	if k == nil || k.form == "list" {
		return nil
	}
	return k.owners[owner]
}

// end returns the deadline of what an owner holds.
func (k *modelLock) end(owner string) int64 {
	if k.several() {
		return k.owners[owner].deadlineMs
	}
	return k.deadlineMs
}

// setEnd sets until when an owner holds a key, and attaches that to a lease, or to none.
func (k *modelLock) setEnd(owner string, deadlineMs int64, lease uint64) {
	if k.several() {
		k.owners[owner].deadlineMs, k.owners[owner].lease = deadlineMs, lease
	} else {
		k.deadlineMs, k.lease = deadlineMs, lease
	}
}

// until returns the deadline that a call asks for, and the end that it is told.
func (m *lockModel) until(ms int64, lease uint64) (deadlineMs, endMs int64, ok bool) {
	if lease == 0 {
		return m.clock + ms, m.clock + ms, true
	}
	l := m.leases[lease]
	if l == nil || l.deadlineMs() <= m.clock {
		return 0, 0, false
	}
	return l.deadlineMs(), l.untilMs, true
}

// first returns the first in the queue for a key, nil if there is none.
func (m *lockModel) first(key string) *modelWait {
	for _, w := range m.queue {
		if slices.Contains(w.keys, key) {
			return w
		}
	}
	return nil
}

func (m *lockModel) queued(key string) (n int) {
	for _, w := range m.queue {
		if slices.Contains(w.keys, key) {
			n++
		}
	}
	return n
}

// mayHold reports whether a call may take a key. order is its place, 0 for a new one.
func (m *lockModel) mayHold(c *modelCall, key string, order uint64) bool {
	if k := m.keys[key]; k != nil {
		own := m.held(key, c.owner)
		switch {
		case c.form != k.form || k.form == "string" || k.form == "list":
			return false
		case own != nil && (c.form == "reentrant" || c.form == "shared"):
			return c.reentrant
		case c.form == "reentrant":
			return false
		case c.form == "permits":
			taken := c.permits
			for _, o := range k.owners {
				taken += o.count
			}
			if taken > c.most {
				return false
			}
		}
	}
	first := m.first(key)
	return first == nil || first.prio < c.prio || first.prio == c.prio && order != 0 &&
		first.order >= order
}

func (m *lockModel) mayTake(c *modelCall, order uint64) bool {
	return !slices.ContainsFunc(c.keys, func(key string) bool { return !m.mayHold(c, key, order) })
}

// grants has a call take its locks, whose new token is that, and returns the reply, and the tokens.
func (m *lockModel) grants(c *modelCall, token uint64) (reply string, tokens map[string]uint64) {
	deadlineMs, endMs, _ := m.until(c.ms, c.lease)
	told, count, largest := int64(1<<62), int64(0), uint64(0)
	tokens = map[string]uint64{}
	for i, key := range c.keys {
		k, n := m.keys[key], max(c.permits, 1)
		own := m.held(key, c.owner)
		if own == nil {
			if k == nil {
				k = &modelLock{form: c.form, owners: map[string]*modelHold{}}
				m.keys[key] = k
			}
			own = &modelHold{token: token}
			k.owners[c.owner] = own
			k.setEnd(c.owner, deadlineMs, c.lease)
			told = min(told, endMs)
		} else {
			before := k.end(c.owner)
			if told = min(told, max(endMs, before)); before != 0 && before < deadlineMs {
				k.setEnd(c.owner, deadlineMs, c.lease)
			}
		}
		if k.several() {
			k.deadlineMs = 0
		}
		own.count += n
		if tokens[key] = own.token; i == 0 {
			count = own.count
		}
		largest = max(largest, own.token)
	}
	return fmt.Sprintf("*4 :%d :%d :%d :0", largest, told, count), tokens
}

// acquire returns the reply to a call that does not wait, "" if it is granted, and "?" if it waits.
func (m *lockModel) acquire(c *modelCall, waits bool) string {
	if _, _, ok := m.until(c.ms, c.lease); !ok {
		return "-NOLEASE no such lease"
	}
	if m.mayTake(c, 0) {
		return ""
	}
	if waits {
		return "?"
	}
	until, place := int64(-1), 1
	for _, key := range c.keys {
		if m.mayHold(c, key, 0) {
			continue
		}
		if place = max(place, m.queued(key)+1); m.keys[key] != nil && m.keys[key].deadlineMs != 0 {
			until = max(until, m.keys[key].deadlineMs)
		}
	}
	return fmt.Sprintf("*4 :0 :%d :0 :%d", until, place)
}

// letGo releases what an owner holds of a key.
func (m *lockModel) letGo(key, owner string, permits int64) {
	k := m.keys[key]
	own := k.owners[owner]
	left := int64(0)
	switch {
	case k.form == "permits" && permits > 0:
		left = own.count - permits
	case k.form == "reentrant" || k.form == "shared":
		left = own.count - 1
	}
	if own.count = left; left <= 0 {
		if delete(k.owners, owner); len(k.owners) == 0 {
			delete(m.keys, key)
		}
	}
}

// giveUp undoes what was granted.
func (m *lockModel) giveUp(w *modelWait) {
	m.claims = slices.DeleteFunc(m.claims, func(o *modelWait) bool { return o == w })
	for _, key := range w.keys {
		if own := m.held(key, w.owner); own != nil && own.token == w.tokens[key] {
			m.letGo(key, w.owner, w.permits)
		}
	}
}

// passes moves the time, and what that ends.
func (m *lockModel) passes(ms int64) {
	m.clock += ms
	over := func(deadlineMs int64) bool { return deadlineMs != 0 && deadlineMs < m.clock }
	for key, k := range m.keys {
		for owner, own := range k.owners {
			if over(own.deadlineMs) {
				delete(k.owners, owner)
			}
		}
		if over(k.deadlineMs) || k.form != "list" && len(k.owners) == 0 {
			delete(m.keys, key)
		}
	}
	for id, l := range m.leases {
		if l.untilMs < m.clock {
			delete(m.leases, id)
		}
	}
	for len(m.claims) > 0 && m.claims[0].untilMs < m.clock {
		m.giveUp(m.claims[0])
	}
	m.entry("")
}

// entry applies a request, and returns the reply. A dry run that answers it answers the same.
func (m *lockModel) entry(line string, q ...commands.Request) (reply string) {
	m.t.Helper()
	var read []byte
	if len(q) == 1 && !q[0].System {
		before := m.StateSum()
		read = m.Read(nil, commands.AppendRequest(nil, &q[0]), m.clock, m.clock*1000)
		if m.StateSum() != before {
			m.fail("%s: a dry run changes the state", line)
		}
	}
	reply = m.text(m.apply(q...))
	m.history = append(m.history, fmt.Sprintf("%d %s: %s", m.clock, line, reply))
	if len(read) > 0 && m.text(read) != reply {
		m.fail("%s: a dry run replies %q", line, m.text(read))
	}
	return reply
}

func (m *lockModel) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.history, "\n"))
}

// risen takes the token of a reply, which must be larger than all before if it is new.
func (m *lockModel) risen(reply string) (token uint64) {
	if _, err := fmt.Sscanf(reply, "*4 :%d", &token); err != nil {
		m.fail("%q is no grant", reply)
	}
	return token
}

// takes grants a call in the model. The reply is the machine's.
func (m *lockModel) takes(c *modelCall, reply string) (tokens map[string]uint64) {
	m.t.Helper()
	token := uint64(0)
	for _, key := range c.keys { // the newest key has it
		if m.held(key, c.owner) == nil {
			own, _ := m.LockTokens([]commands.HeldLock{{Key: key, Owner: c.owner}})
			token = max(token, own[0])
		}
	}
	if token != 0 && token <= m.largest {
		m.fail("the token %d of %s does not rise above %d", token, c.line, m.largest)
	}
	m.largest = max(m.largest, token)
	want, tokens := m.grants(c, token)
	if want != reply {
		m.fail("%s: %q, want %q", c.line, reply, want)
	}
	return tokens
}

// serves grants what the machine says that it granted, and fails if that is not allowed, or not
// all.
func (m *lockModel) serves() {
	m.t.Helper()
	for _, e := range m.news {
		if e.Kind != commands.Served {
			continue
		}
		at := slices.IndexFunc(m.queue, func(w *modelWait) bool { return w.number == e.Wait })
		if at < 0 {
			m.fail("%d is served, and does not wait: %q", e.Wait, e.Payload)
		}
		w, reply := m.queue[at], m.text(e.Payload)
		m.history = append(m.history, fmt.Sprintf("    %d: %s", e.Wait, reply))
		_, _, lasts := m.until(w.ms, w.lease)
		if lasts && !m.mayTake(w.modelCall, w.order) {
			m.fail("%d is served: %s", e.Wait, w.line)
		}
		if m.queue = slices.Delete(m.queue, at, at+1); !lasts {
			if reply != "-NOLEASE no such lease" {
				m.fail("%d has no lease: %s", e.Wait, reply)
			}
			continue
		}
		w.tokens, w.untilMs = m.takes(w.modelCall, reply), m.clock+claimMs
		m.claims = append(m.claims, w)
	}
	m.news = nil
	for _, w := range m.queue {
		first := !slices.ContainsFunc(w.keys, func(key string) bool { return m.first(key) != w })
		owns := false
		for _, key := range w.keys {
			owns = owns || w.reentrant && len(w.keys) > 1 && m.held(key, w.owner) != nil
		}
		if (first || owns) && m.mayTake(w.modelCall, w.order) {
			m.fail("%d waits for what it may have: %s", w.number, w.line)
		}
	}
	m.compare()
}

// compare compares all keys.
func (m *lockModel) compare() {
	m.t.Helper()
	db := m.ks.DB(0)
	for _, key := range []string{"k", "l", "m", "n"} {
		k, e := m.keys[key], db.Find([]byte(key))
		if (k == nil) != (e == nil) || k != nil && k.deadlineMs != e.Deadline() {
			m.fail("%s is %+v, want %+v", key, e, k)
		}
		for _, owner := range []string{"a", "b", "c"} {
			want := uint64(0)
			if own := m.held(key, owner); own != nil {
				want = own.token
			}
			got, _ := m.LockTokens([]commands.HeldLock{{Key: key, Owner: owner}})
			if got[0] != want {
				m.fail("%s has token %d of %s, want %d", owner, got[0], key, want)
			}
			if want == 0 || !k.several() {
				continue
			}
			reply := m.text(m.Read(nil, call("HPTTL "+key+" FIELDS 1 "+owner), m.clock, 1))
			left := k.owners[owner].deadlineMs - m.clock
			if reply != fmt.Sprintf("*1 :%d", left) {
				m.fail("%s has %s ms of %s, want %d", owner, reply, key, left)
			}
		}
	}
}

func (m *lockModel) step() {
	m.t.Helper()
	switch k := m.dice.IntN(40); {
	case k < 9:
		m.acquires(true)
	case k < 13:
		m.acquires(false)
	case k < 18:
		m.releases()
	case k < 21:
		m.extends()
	case k < 22:
		m.steals()
	case k < 26:
		m.leaseCalls()
	case k < 31:
		m.plain()
	case k < 35:
		m.claim()
	case k < 36:
		m.leavesQueue()
	case k < 37:
		m.history = append(m.history, "restored")
		m.Machine = restored(m.t, m.Machine)
		m.SetNode("n1")
		return
	default:
		m.passes([]int64{1, 100, 299, 300, 301, 700, 999, 1000, 1001, 5000}[m.dice.IntN(10)])
	}
	m.serves()
}

func TestLocksAgainstAModel(t *testing.T) {
	seed, rounds := seeds.Of(t), 300
	if tier.Soaking() {
		rounds = 10_000
	}
	for i := range rounds {
		m := &lockModel{waitMachine: newWaitMachine(t), dice: rand.New(rand.NewPCG(seed,
			uint64(i))), keys: map[string]*modelLock{}, leases: map[uint64]*modelLease{}}
		for range 120 {
			m.step()
		}
	}
}
