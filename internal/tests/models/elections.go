package models

import (
	"bytes"
	"fmt"
)

// The rules of elections without waiting, and of handing leadership over: docs/adr/0021, 0045.
const (
	MajorityHasNoLeader Rule = "a member stands when a majority has no leader"
	InTheSameTerm       Rule = "a majority has no leader in one and the same term"
	StandsForOneTerm    Rule = "a member's request to itself is for one term"
	OnlyItsLeaderAsks   Rule = "nobody but the leader that it follows asks a member to stand"
	OneAfterTheOther    Rule = "a request to stand waits for what raises the term, and the reverse"
	VotesOnce           Rule = "a voter votes once in a term"
)

// ElectionBounds are how much of each there is, and the rule that is left out, if any. What Raft
// does by its own timeouts, out of doubt, is left out: such an election may depose a leader.
type ElectionBounds struct {
	Terms, Entries    uint8
	Crashes, Restarts uint8
	Firewalls         uint8 // connections to a living leader that are refused
	Handovers         uint8
	Cold              bool // all members have just started; else one leads
	Without           Rule
}

// elector is a member as elections know it. A log is known by the term of its last entry and by its
// length.
type elector struct {
	up           bool
	term         uint8
	voted        int8 // in its term, for whom
	role         role
	votes        set
	leader       int8 // whom it follows in its term
	last, length uint8
	fresh        bool           // it has heard from no leader since it started, in that term
	lost         bool           // it finds that it has no leader in its term, and
	stood        bool           // has stood for that
	deadIn       uint8          // the newest term whose leader it found dead
	heard        [members]uint8 // what the others found last: a term, and 1 more
	refused      uint8          // the term that it entered as it refused a vote
	hasty        bool           // it has asked itself to stand for that
	standsIn     uint8          // the term for which it asked itself to stand
	asks         uint8          // its requests to itself that are on the way
	queued       request        // what Raft will do next
}

// request asks a member to stand. by is nobody if there is none.
type request struct {
	by   int8
	term uint8 // in which by asked: the members do not see it
}

var noRequest = request{by: nobody}

const maxTerms = 5

// electorate is a state of all members, and of what is known outside of them.
type electorate struct {
	members   [members]elector
	asked     [members]request // that are on the way to each
	won       [maxTerms]int8   // who has led in a term
	left      [maxTerms]set    // who has lost the leader of a term, or power in it
	crashes   uint8
	restarts  uint8
	firewalls uint8
	handovers uint8
	broken    error // what promise the newest step has broken
}

// CheckElections explores all states of three members within the bounds: no term has two leaders,
// and no leader that lives is deposed, but by its own request, when a majority does not follow it
// any more, or by a request that the same node made when it led earlier.
func CheckElections(b ElectionBounds) (states int, v *Violation) {
	return Explore(b.first(), (*electorate).key, b.steps)
}

func (b ElectionBounds) first() (c electorate) {
	for t := range c.won {
		c.won[t] = nobody
	}
	for i := range c.members {
		m := &c.members[i]
		*m = elector{up: true, voted: nobody, leader: nobody, queued: noRequest, fresh: true}
		c.asked[i] = noRequest
		if !b.Cold {
			*m = elector{up: true, term: 1, leader: 0, last: 1, length: 1, queued: noRequest}
		}
	}
	if !b.Cold {
		c.members[0].role, c.won[1] = leads, 0
	}
	return c
}

// key is the same for states that differ in the numbers of the members alone.
func (c *electorate) key() (least electionKey) {
	for n, order := range orders {
		if k := c.keyOf(order); n == 0 || bytes.Compare(k[:], least[:]) < 0 {
			least = k
		}
	}
	return least
}

type electionKey [members*(16+members) + 2*maxTerms + 4]byte

// keyOf encodes the state in which order[i] is the member i.
func (c *electorate) keyOf(order numbering) (k electionKey) {
	at, of, each := 0, order.of, order.each
	add := func(values ...uint8) { copy(k[at:], values); at += len(values) }
	is := func(facts ...bool) (out uint8) {
		for i, f := range facts {
			if f {
				out |= 1 << i
			}
		}
		return out
	}
	for _, i := range order {
		m, r := &c.members[i], c.asked[i]
		add(m.term, of(m.voted), uint8(m.role), each(m.votes), of(m.leader), m.last, m.length,
			m.deadIn, m.refused, m.standsIn, m.asks, of(m.queued.by), m.queued.term)
		add(is(m.up, m.fresh, m.lost, m.stood, m.hasty))
		add(of(r.by), r.term)
		for _, j := range order {
			add(m.heard[j])
		}
	}
	for t := range c.won {
		add(of(c.won[t]), each(c.left[t]))
	}
	add(c.crashes, c.restarts, c.firewalls, c.handovers)
	mustBeWhole(at, len(k))
	return k
}

// steps yields what can happen next.
func (b ElectionBounds) steps(c *electorate,
	yield func(name string, next *electorate, err error)) {
	do := func(who int, what string, whom int, step func(c *electorate)) {
		next := *c
		step(&next)
		err := next.broken
		next.broken = nil
		if err != nil || next != *c {
			yield(fmt.Sprintf("%d %s %d", who, what, whom), &next, err)
		}
	}
	for i := range c.members {
		m := &c.members[i]
		if !m.up {
			if c.restarts < b.Restarts {
				do(i, "starts again", i, func(c *electorate) { c.restart(i) })
			}
			continue
		}
		if c.crashes < b.Crashes {
			do(i, "loses power", i, func(c *electorate) { c.crash(i) })
		}
		if m.role == stands && m.votes.isMajority() {
			do(i, "wins", i, func(c *electorate) { c.win(i) })
		}
		if m.role == leads && m.length < b.Entries {
			do(i, "logs", i, func(c *electorate) { c.members[i].length++ })
		}
		do(i, "finds no leader", i, func(c *electorate) { c.find(i, b) })
		do(i, "asks itself", i, func(c *electorate) { c.turn(i, b) })
		do(i, "asks itself after it refused", i, func(c *electorate) { c.standAfterRefusal(i) })
		do(i, "gets its own request", i, func(c *electorate) { c.getOwn(i, b) })
		do(i, "gets a leader's request", i, func(c *electorate) { c.getAsked(i, b) })
		if m.queued != noRequest && m.term+1 < b.Terms {
			do(i, "stands", i, func(c *electorate) { c.stand(i) })
		}
		for j := range c.members {
			if j == i || !c.members[j].up {
				continue
			}
			do(j, "hears from", i, func(c *electorate) { c.lead(i, j, false, b) })
			do(j, "gets entries from", i, func(c *electorate) { c.lead(i, j, true, b) })
			do(j, "hears what is found by", i, func(c *electorate) { c.tell(i, j) })
			do(j, "votes for", i, func(c *electorate) { c.vote(i, j, b) })
			if c.handovers < b.Handovers {
				do(i, "hands over to", j, func(c *electorate) { c.handOver(i, j) })
			}
		}
	}
}

// enter has a member be in a later term, without a leader.
func (m *elector) enter(term uint8) {
	m.term, m.voted, m.leader = term, nobody, nobody
	m.role, m.votes = follows, 0
	m.fresh, m.lost, m.stood, m.refused, m.hasty = false, false, false, 0, false
}

func (c *electorate) crash(i int) {
	c.crashes++
	m := &c.members[i]
	c.left[m.term] = c.left[m.term].with(i)
	*m = elector{term: m.term, voted: m.voted, leader: nobody, last: m.last, length: m.length,
		queued: noRequest}
	c.asked[i] = noRequest
}

func (c *electorate) restart(i int) {
	c.restarts++
	c.members[i].up, c.members[i].fresh = true, true
}

// win begins a term with the leader's barrier.
func (c *electorate) win(i int) {
	m := &c.members[i]
	if by := c.won[m.term]; by != nobody {
		c.broken = fmt.Errorf("%d and %d lead in term %d", by, i, m.term)
	}
	c.won[m.term] = int8(i)
	m.role, m.votes, m.leader, m.refused = leads, 0, int8(i), 0
	m.last, m.length = m.term, m.length+1
}

// lead has a follower hear from its leader, or get all that it lacks of its log.
func (c *electorate) lead(from, to int, entries bool, b ElectionBounds) {
	l, f := &c.members[from], &c.members[to]
	if l.role != leads || f.term > l.term || f.term < l.term && f.decides(b) {
		return
	}
	if f.term < l.term {
		f.enter(l.term)
	}
	f.role, f.votes, f.leader = follows, 0, int8(from)
	f.fresh, f.lost, f.stood, f.refused = false, false, false, 0
	if entries {
		f.last, f.length = l.last, l.length
	}
}

// find has a member find that its leader is dead, or that it has heard from none since it started.
// Something between them may refuse connections to a leader that lives.
func (c *electorate) find(i int, b ElectionBounds) {
	m := &c.members[i]
	if m.role != follows || m.lost {
		return
	}
	switch {
	case m.leader == nobody && !m.fresh:
		return
	case m.leader != nobody && c.members[m.leader].up:
		if c.firewalls == b.Firewalls {
			return
		}
		c.firewalls++
	}
	m.lost = true
	c.left[m.term] = c.left[m.term].with(i)
	if m.leader != nobody {
		m.deadIn = m.term
	}
}

// decides reports whether what raises a member's term waits for what Raft does next.
func (m *elector) decides(b ElectionBounds) bool {
	return m.queued != noRequest && b.Without != OneAfterTheOther
}

func (c *electorate) tell(from, to int) {
	if m := &c.members[from]; m.lost {
		c.members[to].heard[from] = m.term + 1
	}
}

// turn has a member ask itself to stand if a majority finds what it finds.
func (c *electorate) turn(i int, b ElectionBounds) {
	m := &c.members[i]
	agree := set(0).with(i)
	for j, term := range m.heard {
		if term == m.term+1 || term > 0 && b.Without == InTheSameTerm {
			agree = agree.with(j)
		}
	}
	if m.lost && !m.stood && (agree.isMajority() || b.Without == MajorityHasNoLeader) {
		m.stood = true
		m.askItself()
	}
}

// askItself sends a member's request to itself; one may be on the way.
func (m *elector) askItself() {
	m.standsIn, m.asks = m.term, m.asks+1
}

// standAfterRefusal has a member that refused a candidate its vote stand at once if the candidate
// cannot win without it, since this member has found the leader dead.
func (c *electorate) standAfterRefusal(i int) {
	if m := &c.members[i]; m.role == follows && m.leader == nobody && m.refused == m.term &&
		m.deadIn > 0 && m.deadIn+1 == m.term {
		m.refused, m.hasty = 0, true
		m.askItself()
	}
}

func (c *electorate) getOwn(i int, b ElectionBounds) {
	m := &c.members[i]
	if m.asks == 0 || m.queued != noRequest {
		return
	}
	m.asks--
	if m.role == follows && (m.term == m.standsIn || b.Without == StandsForOneTerm) {
		m.queued = request{by: int8(i), term: m.standsIn}
	}
}

func (c *electorate) getAsked(i int, b ElectionBounds) {
	m, r := &c.members[i], c.asked[i]
	if r == noRequest || m.queued != noRequest {
		return
	}
	c.asked[i] = noRequest
	if m.leader == r.by || b.Without == OnlyItsLeaderAsks {
		m.queued = r
	}
}

// stand has Raft stand in whatever term it is. It checks that this deposes no leader without a
// reason.
func (c *electorate) stand(i int) {
	m, r := &c.members[i], c.members[i].queued
	own := r.by == int8(i)
	// it stands since it refused a vote, but who led before is back, and may have voted
	back := own && m.hasty && c.members[c.won[m.term-1]].up
	for j := range c.members {
		l := &c.members[j]
		if l.role == leads && l.up && l.term <= m.term && !c.left[l.term].isMajority() &&
			!c.newer(l.term) && (own || r.by != int8(j)) && !back {
			c.broken = fmt.Errorf("%d, asked by %d in term %d, deposes %d in term %d", i, r.by,
				r.term, j, l.term)
		}
	}
	m.enter(m.term + 1)
	m.role, m.voted, m.votes, m.queued = stands, int8(i), set(0).with(i), noRequest
}

// newer reports whether somebody has led in a later term.
func (c *electorate) newer(term uint8) bool {
	for _, by := range c.won[term+1:] {
		if by != nobody {
			return true
		}
	}
	return false
}

// vote has voter vote for who stands, or refuse but enter the term. Who stands since it was asked
// to is not refused for having a leader.
func (c *electorate) vote(who, voter int, b ElectionBounds) {
	m, v := &c.members[who], &c.members[voter]
	if m.role != stands || v.term > m.term || v.decides(b) {
		return
	}
	enters := v.term < m.term
	if enters {
		v.enter(m.term)
	}
	behind := m.last < v.last || m.last == v.last && m.length < v.length
	switch {
	case !behind && (v.voted == nobody || v.voted == int8(who) || b.Without == VotesOnce):
		v.voted, m.votes = int8(who), m.votes.with(voter)
	case enters:
		v.refused = m.term
	}
}

// handOver has a leader ask a follower that has its whole log to stand. It may have asked another.
func (c *electorate) handOver(from, to int) {
	l, f := &c.members[from], &c.members[to]
	if l.role != leads || c.asked[to] != noRequest || f.leader != int8(from) || f.term != l.term ||
		f.last != l.last || f.length != l.length {
		return
	}
	c.handovers++
	c.asked[to] = request{by: int8(from), term: l.term}
}
