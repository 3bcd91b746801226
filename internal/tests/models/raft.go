package models

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Rule is one of those that make the leader's deferred disk and its reads right: docs/adr/0019,
// 0001, 0023.
type Rule string

// The rules.
const (
	AppliesWhatIsDurable  Rule = "a node applies, and a leader answers, what is on its own disk"
	TellsWhatIsDurable    Rule = "followers hear of no commit that is not on the leader's disk"
	FollowersWriteFirst   Rule = "a follower acknowledges what is on its disk"
	TermBeforeVote        Rule = "a voter stores a term before it votes in it"
	ReadsAfterBarrier     Rule = "a leader reads when it has committed an entry of its term"
	AnswersToThisQuestion Rule = "an answer to an earlier question confirms no read"
	AsksAMajority         Rule = "a majority, the leader included, confirms a read"
)

// Bounds are how much of each there is, and the rule that is left out, if any.
type Bounds struct {
	Terms, Entries uint8 // at most maxEntries
	Crashes, Reads uint8 // losses of power, and reads; one runs at a time
	Without        Rule
}

const (
	members    = 3
	maxEntries = 4
)

// set is one of members.
type set uint8

func (s set) with(i int) set   { return s | 1<<i }
func (s set) isMajority() bool { return bits.OnesCount8(uint8(s)) > members/2 }

const nobody = -1

type role uint8

const (
	follows role = iota
	stands
	leads
)

// member is a member as Raft knows it. Terms begin with 1; an entry is known by its term.
type member struct {
	term    uint8
	voted   int8 // in its term, for whom
	role    role
	votes   set
	log     [maxEntries]uint8
	length  uint8
	durable uint8          // as much of log is on its disk
	match   [members]uint8 // what a leader knows that each has
	commit  uint8
}

// read is a read that runs.
type read struct {
	by        int8 // nobody: none runs
	term      uint8
	index     uint8 // what it will return
	confirmed set
	// acknowledged is what had been when it began: it may not return less
	acknowledged uint8
}

// cluster is a state of all members, and of what is known outside of them.
type cluster struct {
	members      [members]member
	decided      [maxEntries]uint8 // what has been applied by anybody
	acknowledged uint8             // entries whose clients have an answer
	ackedIn      uint8             // the latest term in which one was given
	read         read
	late         set // whose answers to an earlier question may still arrive
	crashes      uint8
	reads        uint8
	stale        bool // a read has returned less than was acknowledged before it began
}

// Check explores all states of three members within the bounds.
func Check(b Bounds) (states int, v *Violation) {
	return Explore(newCluster(), (*cluster).key, b.steps)
}

func newCluster() (c cluster) {
	for i := range c.members {
		c.members[i].voted = nobody
	}
	c.read.by = nobody
	return c
}

// key is the same for states that differ in the numbers of the members alone.
func (c *cluster) key() (least key) {
	for n, order := range orders {
		if k := c.keyOf(order); n == 0 || bytes.Compare(k[:], least[:]) < 0 {
			least = k
		}
	}
	return least
}

type key [56]byte

// numbering is an order of the members.
type numbering [members]int

var orders = []numbering{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// of returns a member's number.
func (n numbering) of(member int8) uint8 { return uint8(slices.Index(n[:], int(member))) }

// each returns the numbers of members.
func (n numbering) each(s set) (out uint8) {
	for i, old := range n {
		out |= uint8(s) >> old & 1 << i
	}
	return out
}

// mustBeWhole ends a test whose keys lack something: states would be one that are not.
func mustBeWhole(has, room int) {
	if has != room {
		panic(fmt.Sprintf("a key of %d bytes in %d", has, room))
	}
}

// keyOf encodes the state in which order[i] is the member i.
func (c *cluster) keyOf(order numbering) (k key) {
	at, of, each := 0, order.of, order.each
	add := func(values ...uint8) { copy(k[at:], values); at += len(values) }
	for _, i := range order {
		m := &c.members[i]
		add(m.term, of(m.voted), uint8(m.role), each(m.votes), m.length, m.durable, m.commit)
		add(m.log[:]...)
		for _, j := range order {
			add(m.match[j])
		}
	}
	add(c.decided[:]...)
	add(c.acknowledged, c.ackedIn, c.crashes, c.reads, each(c.late))
	r := c.read
	add(of(r.by), r.term, r.index, each(r.confirmed), r.acknowledged)
	mustBeWhole(at, len(k))
	return k
}

// steps yields what can happen next.
func (b Bounds) steps(c *cluster, yield func(name string, next *cluster, err error)) {
	do := func(who int, what string, whom int, step func(c *cluster)) {
		next := *c
		step(&next)
		if err := next.settle(b); err != nil || next != *c {
			yield(fmt.Sprintf("%d %s %d", who, what, whom), &next, err)
		}
	}
	for i := range c.members {
		m := &c.members[i]
		if m.role != leads && m.term < b.Terms {
			do(i, "stands", i, func(c *cluster) { c.stand(i) })
		}
		if m.role == stands && m.votes.isMajority() && m.length < b.Entries {
			do(i, "wins", i, func(c *cluster) { c.win(i) })
		}
		if m.role == leads && m.length < b.Entries {
			do(i, "logs", i, func(c *cluster) { c.propose(i) })
		}
		do(i, "writes", i, func(c *cluster) { c.write(i) })
		if c.crashes < b.Crashes {
			do(i, "loses power", i, func(c *cluster) { c.crash(i) })
		}
		if c.read.by == nobody && c.reads < b.Reads {
			do(i, "reads", i, func(c *cluster) { c.ask(i, b) })
		}
		for j := range c.members {
			if j == i {
				continue
			}
			do(j, "votes for", i, func(c *cluster) { c.vote(i, j, b) })
			do(j, "gets entries from", i, func(c *cluster) { c.replicate(i, j, false, b) })
			do(j, "gets entries and answers", i, func(c *cluster) { c.replicate(i, j, true, b) })
		}
	}
	leader := int(c.read.by)
	if leader == nobody {
		return
	}
	do(leader, "finishes the read", leader, func(c *cluster) { c.finish(b) })
	for j := range c.members {
		if j == leader {
			continue
		}
		do(j, "confirms the read of", leader, func(c *cluster) { c.confirm(j, false) })
		if b.Without == AnswersToThisQuestion {
			do(j, "confirms too late", leader, func(c *cluster) { c.confirm(j, true) })
		}
	}
}

// enter has a member follow in a later term.
func (m *member) enter(term uint8) {
	if term > m.term {
		m.term, m.voted = term, nobody
		m.role, m.votes = follows, 0
		m.match = [members]uint8{}
	}
}

func (m *member) lastTerm() uint8 {
	if m.length == 0 {
		return 0
	}
	return m.log[m.length-1]
}

func (c *cluster) stand(i int) {
	m := &c.members[i]
	m.enter(m.term + 1)
	m.role, m.voted, m.votes = stands, int8(i), set(0).with(i)
}

// vote has voter vote for who stands, or refuse but enter the term.
func (c *cluster) vote(who, voter int, b Bounds) {
	m, v := &c.members[who], &c.members[voter]
	if m.role != stands || v.term > m.term {
		return
	}
	behind := m.lastTerm() < v.lastTerm() || m.lastTerm() == v.lastTerm() && m.length < v.length
	if b.Without == TermBeforeVote && v.term < m.term && !behind {
		m.votes = m.votes.with(voter)
		return
	}
	v.enter(m.term)
	if !behind && (v.voted == nobody || v.voted == int8(who)) {
		v.voted, m.votes = int8(who), m.votes.with(voter)
	}
}

// win begins a term with the leader's barrier. It may be deferred as others are: that a real one
// waits for the disk is for changes of members, of which there are none here.
func (c *cluster) win(i int) {
	m := &c.members[i]
	m.role, m.votes = leads, 0
	m.match = [members]uint8{}
	c.propose(i)
}

// propose logs an entry, which Raft counts as stored at once.
func (c *cluster) propose(i int) {
	m := &c.members[i]
	m.log[m.length] = m.term
	m.length++
	m.match[i] = m.length
}

// write ends what the disk was doing.
func (c *cluster) write(i int) {
	c.members[i].durable = c.members[i].length
}

// replicate sends a follower the entry behind what it has in common with the leader, and what is
// committed.
func (c *cluster) replicate(from, to int, answers bool, b Bounds) {
	l, f := &c.members[from], &c.members[to]
	if l.role != leads || f.term > l.term {
		return
	}
	f.enter(l.term)
	f.role, f.votes = follows, 0
	same := uint8(0)
	for same < min(l.length, f.length) && l.log[same] == f.log[same] {
		same++
	}
	if same < l.length {
		clear(f.log[same:])
		f.log[same] = l.log[same]
		same++
		f.length, f.durable = same, min(f.durable, same-1)
		if b.Without != FollowersWriteFirst {
			f.durable = same // also what it logged while it led: all is written in order
		}
	}
	told := l.commit
	if b.Without != TellsWhatIsDurable {
		told = min(told, l.durable)
	}
	f.commit = max(f.commit, min(told, same))
	if answers {
		l.match[to] = max(l.match[to], same)
	}
}

// count commits what a majority has, as Raft counts.
func (m *member) count() {
	for at := m.length; m.role == leads && at > m.commit; at-- {
		var have set
		for j, n := range m.match {
			if n >= at {
				have = have.with(j)
			}
		}
		if m.log[at-1] == m.term && have.isMajority() {
			m.commit = at
		}
	}
}

// readable is what a member may apply, and a leader may return.
func (m *member) readable(b Bounds) uint8 {
	if b.Without == AppliesWhatIsDurable {
		return m.commit
	}
	return min(m.commit, m.durable)
}

// settle has each member commit and apply what it can, and answer its clients: what is later would
// be asked less of. Then it checks that all apply the same, and that a leader has all that was
// acknowledged.
func (c *cluster) settle(b Bounds) error {
	for i := range c.members {
		m := &c.members[i]
		m.count()
		applied := m.readable(b)
		for at := range applied {
			if c.decided[at] == 0 {
				c.decided[at] = m.log[at]
			}
			if c.decided[at] != m.log[at] {
				return fmt.Errorf("member %d applies entry %d of term %d, others that of term %d",
					i, at, m.log[at], c.decided[at])
			}
		}
		if m.role == leads && applied > c.acknowledged {
			c.acknowledged, c.ackedIn = applied, max(c.ackedIn, m.term)
		}
	}
	if c.stale {
		return errors.New("a read returns less than was acknowledged before it began")
	}
	return c.complete()
}

// complete checks that each leader has what was acknowledged before its term.
func (c *cluster) complete() error {
	for i := range c.members {
		m := &c.members[i]
		for at := uint8(0); m.role == leads && m.term >= c.ackedIn && at < c.acknowledged; at++ {
			if at >= m.length || m.log[at] != c.decided[at] {
				return fmt.Errorf("member %d leads in term %d without entry %d, which has a reply",
					i, m.term, at)
			}
		}
	}
	return nil
}

// crash has a member lose power, and start again with what is on its disk.
func (c *cluster) crash(i int) {
	c.crashes++
	m := &c.members[i]
	clear(m.log[m.durable:])
	*m = member{term: m.term, voted: m.voted, log: m.log, length: m.durable, durable: m.durable}
	if int(c.read.by) == i {
		c.read = read{by: nobody}
	}
}

// ask begins a read: its leader notes what is committed, and asks the others for their terms.
func (c *cluster) ask(i int, b Bounds) {
	m := &c.members[i]
	index := m.readable(b)
	own := index > 0 && m.log[index-1] == m.term
	if m.role != leads || !own && b.Without != ReadsAfterBarrier {
		return
	}
	c.reads++
	c.read = read{by: int8(i), term: m.term, index: index, confirmed: c.late,
		acknowledged: c.acknowledged}
}

// confirm has a member answer the question of a read, if it is in no later term. Without
// AnswersToThisQuestion the answer may also come too late, and be taken for one to the next.
func (c *cluster) confirm(i int, late bool) {
	switch {
	case c.members[i].term > c.read.term:
	case late:
		c.late = c.late.with(i)
	default:
		c.read.confirmed = c.read.confirmed.with(i)
	}
}

// finish returns what a read noted, if it is confirmed. The leader was in no later term when it
// asked, which is enough.
func (c *cluster) finish(b Bounds) {
	r := c.read
	if b.Without != AsksAMajority && !r.confirmed.with(int(r.by)).isMajority() {
		return
	}
	c.read, c.stale = read{by: nobody}, r.index < r.acknowledged
}
