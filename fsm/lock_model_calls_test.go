// The random calls of the model of locks.

package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

func (m *lockModel) pick(of ...string) string { return of[m.dice.IntN(len(of))] }

// lasts returns a random time or lease, as words and as numbers.
func (m *lockModel) lasts() (words string, ms int64, lease uint64) {
	if ids := m.ids(); len(ids) > 0 && m.dice.IntN(3) == 0 {
		lease = ids[m.dice.IntN(len(ids))]
		return fmt.Sprint("LEASE ", lease), 0, lease
	}
	ms = []int64{1, 300, 1000, 3000, 30000}[m.dice.IntN(5)]
	return fmt.Sprint("PX ", ms), ms, 0
}

// ids are those of the leases, in order.
func (m *lockModel) ids() (ids []uint64) {
	for id := range m.leases {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// some returns random keys.
func (m *lockModel) some() (keys []string, words string) {
	keys = []string{"k", "l", "m", "n"}
	m.dice.Shuffle(4, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+m.dice.IntN(3)/m.pick3()]
	if len(keys) > 1 {
		words = fmt.Sprintf(" KEYS %d %s", len(keys)-1, strings.Join(keys[1:], " "))
	}
	return keys, words
}

func (m *lockModel) pick3() int { return 1 + m.dice.IntN(3) }

func (m *lockModel) call(waits bool) *modelCall {
	c := &modelCall{owner: m.pick("a", "b", "c"), form: "string"}
	keys, named := m.some()
	c.keys = keys
	lasts, ms, lease := m.lasts()
	c.ms, c.lease = ms, lease
	c.line = "LOCK.ACQUIRE " + keys[0] + " " + c.owner + " " + lasts
	if waits {
		c.line += " WAIT 0"
	}
	switch m.dice.IntN(6) {
	case 0:
		c.form, c.reentrant = "reentrant", true
		c.line += " REENTRANT"
	case 1:
		c.form = "shared"
		c.line += " SHARED"
	case 2:
		c.form, c.reentrant = "shared", true
		c.line += " REENTRANT SHARED"
	case 3:
		c.form, c.most = "permits", 3
		c.permits = 1 + m.dice.Int64N(3)
		c.line += fmt.Sprintf(" PERMITS %d OF 3", c.permits)
	}
	if c.prio = m.dice.Int64N(8) / 6; c.prio != 0 {
		c.line += fmt.Sprint(" PRIORITY ", c.prio)
	}
	c.line += named
	return c
}

// acquires runs a LOCK.ACQUIRE.
func (m *lockModel) acquires(waits bool) {
	m.t.Helper()
	c := m.call(waits)
	q := lineRequest(c.line)
	if waits {
		m.number++
		q = m.waitRequest("n1", m.number, c.line)
	}
	want := m.acquire(c, waits)
	reply := m.entry(c.line, q)
	switch want {
	case "":
		m.takes(c, reply)
	case "?":
		p, ok := commands.CutPlace([]byte(strings.ReplaceAll(reply, " *0", "\r\n*0\r\n")))
		if !ok || p.Order == 0 {
			m.fail("%s does not wait: %q", c.line, reply)
		}
		m.queue = append(m.queue, &modelWait{modelCall: c, number: m.number, order: p.Order})
		slices.SortStableFunc(m.queue, func(a, b *modelWait) int {
			return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.order, b.order))
		})
	default:
		if reply != want {
			m.fail("%s: %q, want %q", c.line, reply, want)
		}
	}
}

// expects runs a command with a reply.
func (m *lockModel) expects(line, want string) {
	m.t.Helper()
	if reply := m.entry(line, lineRequest(line)); reply != want {
		m.fail("%s: %q, want %q", line, reply, want)
	}
}

// named returns the token that a call names, 0 for none: that of a holder, or another one.
func (m *lockModel) named(key, owner string) (token uint64, words string) {
	switch own := m.held(key, owner); {
	case m.dice.IntN(3) > 0:
	case own != nil && m.dice.IntN(4) > 0:
		token = own.token
	default:
		token = 7
	}
	if token != 0 {
		words = fmt.Sprint(" TOKEN ", token)
	}
	return token, words
}

func (m *lockModel) extends() {
	m.t.Helper()
	owner := m.pick("a", "b", "c")
	keys, named := m.some()
	lasts, ms, lease := m.lasts()
	token, tokenWords := m.named(keys[0], owner)
	line := "LOCK.EXTEND " + keys[0] + " " + owner + " " + lasts + tokenWords + named
	deadlineMs, endMs, ok := m.until(ms, lease)
	if !ok {
		m.expects(line, "-NOLEASE no such lease")
		return
	}
	for _, key := range keys {
		if own := m.held(key, owner); own == nil || token != 0 && token != own.token {
			m.expects(line, "*4 :0 :-1 :0 :0")
			return
		}
	}
	count, largest := m.held(keys[0], owner).count, uint64(0)
	for _, key := range keys {
		k := m.keys[key]
		largest = max(largest, k.owners[owner].token)
		if k.setEnd(owner, deadlineMs, lease); k.several() {
			k.deadlineMs = 0
		}
	}
	m.expects(line, fmt.Sprintf("*4 :%d :%d :%d :0", largest, endMs, count))
}

func (m *lockModel) releases() {
	m.t.Helper()
	owner := m.pick("a", "b", "c")
	keys, named := m.some()
	token, words := m.named(keys[0], owner)
	permits := m.dice.Int64N(3)
	if permits > 0 {
		words += fmt.Sprint(" PERMITS ", permits)
	}
	n := 0
	for _, key := range keys {
		if own := m.held(key, owner); own != nil && (token == 0 || token == own.token) {
			m.letGo(key, owner, permits)
			n++
		}
	}
	m.expects("LOCK.RELEASE "+keys[0]+" "+owner+words+named, fmt.Sprint(":", n))
}

func (m *lockModel) steals() {
	m.t.Helper()
	key, owner := m.pick("k", "l", "m", "n"), m.pick("a", "b", "c")
	lasts, ms, lease := m.lasts()
	line := "LOCK.STEAL " + key + " " + owner + " " + lasts
	deadlineMs, endMs, ok := m.until(ms, lease)
	if !ok {
		m.expects(line, "-NOLEASE no such lease")
		return
	}
	reply := m.entry(line, lineRequest(line))
	token := m.risen(reply)
	if want := fmt.Sprintf("*4 :%d :%d :1 :0", token, endMs); reply != want || token <= m.largest {
		m.fail("%q, want %q", reply, want)
	}
	m.largest = token
	m.keys[key] = &modelLock{form: "string", deadlineMs: deadlineMs, lease: lease,
		owners: map[string]*modelHold{owner: {count: 1, token: token}}}
}

// renews moves what is attached to a lease. What has another deadline is its item no more.
func (m *lockModel) renews(id uint64, after *modelLease) {
	at := m.leases[id].deadlineMs()
	for _, k := range m.keys {
		switch {
		case k.lease != id:
		case k.deadlineMs == at:
			k.deadlineMs = after.deadlineMs()
		default:
			k.lease = 0
		}
		for _, own := range k.owners {
			switch {
			case own.lease != id:
			case own.deadlineMs == at:
				own.deadlineMs = after.deadlineMs()
			default:
				own.lease = 0
			}
		}
	}
	m.leases[id] = after
}

// revokes deletes what is attached to a lease.
func (m *lockModel) revokes(id uint64) {
	at := m.leases[id].deadlineMs()
	for key, k := range m.keys {
		for owner, own := range k.owners {
			if own.lease == id && own.deadlineMs == at {
				delete(k.owners, owner)
			}
		}
		if k.lease == id && k.deadlineMs == at || k.form != "list" && len(k.owners) == 0 {
			delete(m.keys, key)
		}
	}
	delete(m.leases, id)
}

func (m *lockModel) leaseCalls() {
	m.t.Helper()
	ids := m.ids()
	if len(ids) == 0 || len(ids) < 3 && m.dice.IntN(3) == 0 {
		l := &modelLease{ttlMs: []int64{300, 1000, 5000}[m.dice.IntN(3)]}
		l.untilMs, l.delayMs = m.clock+l.ttlMs, m.dice.Int64N(2)*700
		line := fmt.Sprintf("LEASE GRANT %d DELAY %d", l.ttlMs, l.delayMs)
		id := uint64(0)
		if _, err := fmt.Sscanf(m.entry(line, lineRequest(line)), ":%d", &id); err != nil {
			m.fail("%v", err)
		}
		m.leases[id] = l
		return
	}
	id := ids[m.dice.IntN(len(ids))]
	l := m.leases[id]
	if m.dice.IntN(4) > 0 {
		after := &modelLease{l.ttlMs, m.clock + l.ttlMs, l.delayMs}
		m.renews(id, after)
		m.expects(fmt.Sprint("LEASE KEEPALIVE ", id), fmt.Sprint("*1 :", l.ttlMs))
		return
	}
	m.revokes(id)
	m.expects(fmt.Sprint("LEASE REVOKE ", id), ":1")
}

// copied returns a lock under another name: its token is that of the key, as the machine has it.
func (m *lockModel) copied(k *modelLock, to string) *modelLock {
	c := &modelLock{form: k.form, deadlineMs: k.deadlineMs, owners: map[string]*modelHold{}}
	largest := m.largest
	for owner, own := range k.owners {
		token, _ := m.LockTokens([]commands.HeldLock{{Key: to, Owner: owner}})
		c.owners[owner] = &modelHold{count: own.count, token: token[0],
			deadlineMs: own.deadlineMs}
		if token[0] <= m.largest || largest > m.largest && token[0] != largest {
			m.fail("%s has token %d of %s", owner, token[0], to)
		}
		largest = token[0]
	}
	m.largest = largest
	return c
}

// plain runs a command that knows no locks.
func (m *lockModel) plain() {
	m.t.Helper()
	key, owner := m.pick("k", "l", "m", "n"), m.pick("a", "b", "c")
	k := m.keys[key]
	is := func(yes bool) string { return map[bool]string{true: ":1", false: ":0"}[yes] }
	switch m.dice.IntN(17) {
	case 13:
		m.swapsTwice()
	case 14:
		m.setsWithLease(key, owner)
	case 15, 16:
		m.operates(key, owner)
	case 0, 1:
		delete(m.keys, key)
		m.expects("DEL "+key, is(k != nil))
	case 2:
		m.setsPlainly(key, owner)
	case 3:
		line := "SET " + key + " " + owner + " NX PX 500"
		if k != nil || m.queued(key) > 0 {
			m.expects(line, "$-1")
			return
		}
		m.setString(line, "+OK", key, owner, m.clock+500)
	case 11:
		line := "SET " + key + " " + owner + " NX GET PX 500"
		switch first := m.first(key); {
		case k != nil && k.form != "string":
			m.expects(line, "-"+commands.ErrWrongType.Error())
		case k != nil:
			for held := range k.owners {
				m.expects(line, "$1 "+held)
			}
		case first != nil:
			m.expects(line, "$1 "+first.owner)
		default:
			m.setString(line, "$-1", key, owner, m.clock+500)
		}
	case 4:
		ms := m.dice.Int64N(3) * 400
		if k != nil && ms == 0 {
			delete(m.keys, key)
		} else if k != nil {
			k.deadlineMs = m.clock + ms
		}
		m.expects(fmt.Sprintf("PEXPIRE %s %d", key, ms), is(k != nil))
	case 5:
		had := k != nil && k.deadlineMs != 0
		if had {
			k.deadlineMs = 0
		}
		m.expects("PERSIST "+key, is(had))
	case 6:
		if k != nil && (k.form == "list" || k.form == "string") {
			return
		}
		had := m.held(key, owner) != nil
		if had {
			if delete(k.owners, owner); len(k.owners) == 0 {
				delete(m.keys, key)
			}
		}
		m.expects("HDEL "+key+" "+owner, is(had))
	case 7:
		if k == nil {
			m.keys[key] = &modelLock{form: "list"}
			m.expects("RPUSH "+key+" e", ":1")
		}
	case 8:
		clear(m.keys)
		m.expects("FLUSHALL", "+OK")
	case 9, 10:
		to := m.pick("k", "l", "m", "n")
		if k == nil || to == key {
			return
		}
		line, want := "RENAME "+key+" "+to, "+OK"
		if m.dice.IntN(2) == 0 {
			line, want = "COPY "+key+" "+to+" REPLACE", ":1"
		} else {
			delete(m.keys, key)
		}
		m.expects(line, want)
		m.keys[to] = m.copied(k, to)
	default:
		m.term++
		m.entry("a new term")
		m.eras["n1"] = m.waiting.eraOf([]byte("n1"))
	}
}

// setString runs a command that sets a string.
func (m *lockModel) setString(line, reply, key, owner string, deadlineMs int64) {
	m.t.Helper()
	m.expects(line, reply)
	token, _ := m.LockTokens([]commands.HeldLock{{Key: key, Owner: owner}})
	own := m.held(key, owner)
	switch k := m.keys[key]; {
	case k != nil && k.form == "string" && own != nil: // the same value keeps the token
		k.deadlineMs = deadlineMs
		return
	case token[0] <= m.largest:
		m.fail("%s: the token is %d", line, token[0])
	}
	m.largest = token[0]
	m.keys[key] = &modelLock{form: "string", deadlineMs: deadlineMs,
		owners: map[string]*modelHold{owner: {count: 1, token: token[0]}}}
}

func (m *lockModel) setsPlainly(key, owner string) {
	m.t.Helper()
	if m.dice.IntN(2) == 0 {
		m.setString("SET "+key+" "+owner, "+OK", key, owner, 0)
	} else {
		m.setString("SET "+key+" "+owner+" PX 700", "+OK", key, owner, m.clock+700)
	}
}

// swapsTwice swaps the database with another one, and back in the same step: all keys have new
// tokens, and are as before.
func (m *lockModel) swapsTwice() {
	m.t.Helper()
	swap := commandtest.Args("SWAPDB", "0", "1")
	q := commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{swap, swap}}
	if got := m.entry("SWAPDB 0 1, twice", q); got != "*2 +OK +OK" {
		m.fail("%q", got)
	}
	largest := m.largest
	for key, k := range m.keys {
		for owner, own := range k.owners {
			token, _ := m.LockTokens([]commands.HeldLock{{Key: key, Owner: owner}})
			if token[0] <= m.largest {
				m.fail("%s has token %d of %s, after %d", owner, token[0], key, m.largest)
			}
			own.token, largest = token[0], max(largest, token[0])
		}
	}
	m.largest = largest
}

func (m *lockModel) setsWithLease(key, owner string) {
	m.t.Helper()
	ids := m.ids()
	if len(ids) == 0 {
		return
	}
	id := ids[m.dice.IntN(len(ids))]
	line, deadlineMs := fmt.Sprintf("SET %s %s LEASE %d", key, owner, id), m.leases[id].deadlineMs()
	if deadlineMs <= m.clock { // it is over at once
		delete(m.keys, key)
		m.expects(line, "+OK")
		return
	}
	m.setString(line, "+OK", key, owner, deadlineMs)
	m.keys[key].lease = id
}

// operates runs what an operator does to a lock: by its owner and token, or by another token.
func (m *lockModel) operates(key, owner string) {
	m.t.Helper()
	own, k := m.held(key, owner), m.keys[key]
	token, want := uint64(7), ":0"
	if own != nil && m.dice.IntN(4) > 0 {
		token, want = own.token, ":1"
	}
	line := fmt.Sprintf("%s %s %d", key, owner, token)
	if m.dice.IntN(2) == 0 {
		if want == ":1" {
			if delete(k.owners, owner); len(k.owners) == 0 {
				delete(m.keys, key)
			}
		}
		m.expects("LOCKS RELEASE "+line, want)
		return
	}
	if want == ":1" {
		if k.setEnd(owner, m.clock+900, 0); k.several() {
			k.deadlineMs = 0
		}
	}
	m.expects("LOCKS EXTEND "+line+" 900", want)
}

// claim claims what was granted, or gives it up.
func (m *lockModel) claim() {
	m.t.Helper()
	if len(m.claims) == 0 {
		return
	}
	w := m.claims[m.dice.IntN(len(m.claims))]
	if m.dice.IntN(3) == 0 {
		m.giveUp(w)
		line := fmt.Sprint(commands.SystemLeaveWait, " ", w.number)
		m.entry(line, lineSystem(line))
		return
	}
	want := "+OK"
	for _, key := range w.keys {
		if own := m.held(key, w.owner); own == nil || own.token != w.tokens[key] {
			want = notWaiting
		}
	}
	if want == "+OK" {
		m.claims = slices.DeleteFunc(m.claims, func(o *modelWait) bool { return o == w })
	} else {
		m.giveUp(w)
	}
	line := fmt.Sprint(commands.SystemClaim, " ", w.number)
	if got := m.entry(line, lineSystem(line)); got != want {
		m.fail("claim of %d: %q, want %q", w.number, got, want)
	}
}

// leaves ends a wait.
func (m *lockModel) leavesQueue() {
	m.t.Helper()
	if len(m.queue) == 0 {
		return
	}
	at := m.dice.IntN(len(m.queue))
	line := fmt.Sprint(commands.SystemLeaveWait, " ", m.queue[at].number)
	m.queue = slices.Delete(m.queue, at, at+1)
	m.entry(line, lineSystem(line))
}
