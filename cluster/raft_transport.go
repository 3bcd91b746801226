// The transport that Raft sees: hashicorp's network transport over the peer port, with a gate that
// keeps replication to an unreachable member from backing off for long.

package cluster

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/lockorder"
)

var (
	errGateClosed = errors.New("the leadership ended while the member could not be reached")
	// errMoving answers in the place of a member whose address is being replaced. In hashicorp/raft
	// v1.7.3 replication reads the member, after such an answer, without the lock under which the
	// address is written. It sends the same again, to the new address.
	errMoving = errors.New("the member's address is being replaced")
	errEnded  = errors.New("the leadership ended while this message was made")
)

// transport embeds Raft's network transport and adds the gate. After repeated failures Raft's
// replication to a member waits up to 10 s, so a member that returns would stay behind that long,
// and a second failure in that time would stop all writes. A call to an unreachable member waits
// here for its link instead of failing.
type transport struct {
	*raft.NetworkTransport
	n         *Node
	certified *certified                  // nil: TLS is off
	rpcs      chan raft.RPC               // received, for Raft
	moving    atomic.Pointer[raft.Server] // a member without a vote that gets this address
	deciding  chan struct{}               // holds what may raise the term and is not answered yet
	stop      <-chan struct{}
}

// AppendEntries sends entries. Heartbeats pass the gate: they must fail in time, and have a short
// backoff.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.park(id, req.Term); err != nil {
		return err
	}
	heartbeat := req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 &&
		req.LeaderCommitIndex == 0
	if heartbeat {
		if t.n.stalledLeader.Load() {
			return errStalled
		}
		return t.NetworkTransport.AppendEntries(id, target, req, resp)
	}
	if err := t.gate(id, req.Term); err != nil {
		return err
	}
	to, began := t.n.link(string(id)), time.Now()
	t.extend(req, to.messages())
	withheld := t.withhold(id, req)
	if !t.isOfOneLog(req) {
		return errEnded
	}
	err := t.NetworkTransport.AppendEntries(id, target, t.verified(req), resp)
	to.delivered(len(req.Entries), time.Since(began), err == nil && resp.Success)
	if withheld && err == nil && resp.Success && len(req.Entries) == 0 {
		_ = t.pause(commitTimeout, req.Term) // Raft sends the same again at once
	}
	if err == nil && t.movingFrom(id, target) {
		return errMoving
	}
	return err
}

// movingFrom reports whether a member's address is being replaced.
func (t *transport) movingFrom(id raft.ServerID, target raft.ServerAddress) bool {
	s := t.moving.Load()
	return s != nil && s.ID == id && s.Address != target
}

// verified returns a message whose commit index is at most its last entry, and at most the last
// entry that is durable here, since Raft counts this node among the majority that stores those
// after it. A follower of hashicorp/raft v1.7.3 takes its own log for committed up to the leader's
// commit index, including entries after those of the message, which may be another leader's. The
// Raft paper's rule (section 5.3) is the index of the last new entry.
func (t *transport) verified(req *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	last := min(req.PrevLogEntry+uint64(len(req.Entries)), t.n.logs.durableTo())
	if req.LeaderCommitIndex > last {
		capped := *req
		capped.LeaderCommitIndex = last
		req = &capped
	}
	t.n.trace.Record(trace.Event{Kind: trace.Tells, Index: req.LeaderCommitIndex})
	return req
}

// isOfOneLog reports whether this node still leads in the term of a message that is made. Raft
// reads the entry before those that it sends, and then these, one after the other. In
// hashicorp/raft v1.7.3 it goes on with that beside a next leader that replaces some of them, for
// which it has no lock. Who is still in the former term would take them for one log, and have
// another entry than all others at the place of a committed one.
func (t *transport) isOfOneLog(req *raft.AppendEntriesRequest) bool { return t.n.leadsIn(req.Term) }

const (
	// extendEntries and extendBytes bound what a message to a member that is behind holds beyond
	// maxAppendEntries: that many entries, until they have that many bytes.
	extendEntries = 64
	extendBytes   = 128 << 10
	// extendWithin is how soon a message is answered whose length may be doubled.
	extendWithin = 250 * time.Millisecond
)

// messageLength is how many entries a message to a member may hold. It begins with
// maxAppendEntries, doubles with each message of that length that is answered soon, and begins
// again with one that is refused, fails, or is answered late. A member that has not applied the
// 1,024 entries before answers when it has applied as many as the message holds, and answers
// nothing else meanwhile. And when a member refuses what is new, as its disk is full, Raft waits
// longer from one refusal to the next, up to 10 s, until a message holds only what the member has:
// that comes soon only if messages are short.
type messageLength struct{ entries atomic.Int64 }

// most returns the length. It is that of Raft for no member.
func (l *messageLength) most() int {
	if l == nil {
		return maxAppendEntries
	}
	return max(maxAppendEntries, int(l.entries.Load()))
}

// answered notes the end of a message.
func (l *messageLength) answered(entries int, after time.Duration, stored bool) {
	switch {
	case l == nil:
	case !stored || after > extendWithin:
		l.entries.Store(maxAppendEntries)
	case entries >= l.most():
		l.entries.Store(int64(min(2*l.most(), extendEntries)))
	}
}

// messages returns the length of messages to a member, nil if it is none.
func (l *link) messages() *messageLength {
	if l == nil {
		return nil
	}
	return &l.length
}

// delivered notes the end of a message to a member. One that has stored entries needs no snapshot:
// those that failed before were for something that is over.
func (l *link) delivered(entries int, after time.Duration, stored bool) {
	l.messages().answered(entries, after, stored)
	if l != nil && stored && entries > 0 && l.repeats.failures.Load() > 0 {
		l.repeats.failures.Store(0)
	}
}

// extend adds to a message as long as Raft makes them the entries that follow. Raft reads from the
// message what was sent. It could set a longer limit only in entries, which may be large.
func (t *transport) extend(req *raft.AppendEntriesRequest, length *messageLength) {
	if len(req.Entries) >= maxAppendEntries {
		t.fill(req, length)
	}
}

// fill adds entries to a message, and reports whether it did.
func (t *transport) fill(req *raft.AppendEntriesRequest, length *messageLength) bool {
	entries, size, last := req.Entries, 0, t.n.raft.LastIndex()
	for _, l := range entries {
		size += len(l.Data)
	}
	next, most := req.PrevLogEntry+uint64(len(entries))+1, length.most()
	for ; next <= last && size < extendBytes && len(entries) < most; next++ {
		l := &raft.Log{}
		if t.n.logs.GetLog(next, l) != nil {
			break // Raft finds the error if it lasts
		}
		size += len(l.Data)
		entries = append(entries, l)
	}
	if len(entries) == len(req.Entries) || !t.n.leadsIn(req.Term) {
		return false
	}
	req.Entries = entries // it led all the while, so these are its entries
	return true
}

// withhold cuts from a message the entry of a configuration in which the member has no vote, and
// what follows, until that is committed. It reports whether it did. It takes its vote, perhaps. If
// the leader was lost when nobody else had the entry, the member would refuse the others for their
// shorter logs, who may need its vote, and hashicorp/raft v1.7.3 would not let it stand (the Raft
// thesis does, section 4.2.2): a majority of the voters before and after could elect nobody. Nobody
// waits for the member, which does not count for the entry. Raft sends from the first entry on that
// was not in the message. The first configuration of all takes no vote. Nor do those of earlier
// terms from who has one by the newest: they are committed, which a leader may not know after a
// restart.
func (t *transport) withhold(id raft.ServerID, req *raft.AppendEntriesRequest) bool {
	votes := func(c raft.Configuration) bool { return slices.Contains(voters(c), string(id)) }
	for i, l := range req.Entries {
		if l.Type == raft.LogConfiguration && l.Index > max(t.n.committed(), 1) &&
			!votes(raft.DecodeConfiguration(l.Data)) {
			// Of its own terms a leader knows what is committed, and may send an entry before Raft
			// has the configuration for its newest.
			if l.Term < req.Term && votes(t.n.configuration()) {
				continue
			}
			req.Entries = req.Entries[:i]
			return true
		}
	}
	return false
}

// InstallSnapshot sends a snapshot.
func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress,
	req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := t.park(id, req.Term); err != nil {
		return err
	}
	if err := t.gate(id, req.Term); err != nil {
		return err
	}
	again := &repeats{} // forgotten afterwards, unless it is a member
	if l := t.n.link(string(id)); l != nil {
		again = &l.repeats
	}
	if wait := again.wait(req.LastLogIndex, time.Now()); wait == 0 {
		if t.n.hopes(string(id), again) {
			t.n.sending.Add(1)
			defer t.n.sending.Add(-1)
		}
	} else { // this is no progress
		t.n.mux.warnings.Warn("a member that installed a snapshot asks for it again at once",
			"member", id, "index", req.LastLogIndex, "wait", wait)
		if err := t.pause(wait, req.Term); err != nil {
			return err
		}
	}
	err := t.NetworkTransport.InstallSnapshot(id, target, req, resp,
		whileLeading{data, t.n, req.Term})
	if err == nil && resp.Success {
		again.note(req.LastLogIndex, time.Now())
	} else {
		again.failures.Add(1)
	}
	return err
}

// hopes reports whether a snapshot for a member may let this leader commit: it is a voter, and the
// last snapshots for it did not all fail.
func (n *Node) hopes(id string, sent *repeats) bool {
	return sent.failures.Load() < 3 && slices.Contains(voters(n.configuration()), id)
}

// repeats paces a snapshot that a member asks for again just after it installed it: something is
// wrong that the snapshot does not mend.
type repeats struct {
	failures atomic.Int32 // since the member last installed one or stored entries

	mu    lockorder.Mutex
	index uint64 // index of the snapshot that it last installed
	pause time.Duration
	at    time.Time // when it was installed
}

// Between a snapshot and the same one again. The longest pause also delays a member whose log has
// room again.
const firstRepeat, longestRepeat = time.Second, 4 * time.Second

// note notes that a snapshot was installed.
func (r *repeats) note(index uint64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if index != r.index || now.Sub(r.at) > 2*longestRepeat {
		r.pause = 0
	}
	r.failures.Store(0)
	r.index, r.at = index, now
	r.pause = min(max(2*r.pause, firstRepeat), longestRepeat)
}

// wait returns how long to wait before a snapshot is sent.
func (r *repeats) wait(index uint64, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if index != r.index {
		return 0
	}
	return max(r.at.Add(r.pause).Sub(now), 0)
}

// pause waits, as long as this node leads in term.
func (t *transport) pause(wait time.Duration, term uint64) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		rung := t.n.roles.next()
		if !t.n.leadsIn(term) {
			return errGateClosed
		}
		select {
		case <-timer.C:
			return nil
		case <-rung:
		case <-t.n.stop:
			return errGateClosed
		}
	}
}

// gate waits while the member is unreachable, or this node stalled, and this node leads in term.
func (t *transport) gate(id raft.ServerID, term uint64) error {
	l := t.n.link(string(id))
	if l == nil {
		return nil
	}
	for {
		rung := t.n.roles.next()
		reached, ok := l.reachable()
		switch silent := t.n.stalledLeader.Load(); {
		case ok && !silent:
			return nil
		case silent:
			reached = nil
		}
		if !t.n.leadsIn(term) {
			return errGateClosed
		}
		select {
		case <-reached:
		case <-rung:
		case <-l.stop:
			return nil // removed: Raft ends this replication itself
		case <-t.n.stop:
			return errGateClosed
		}
	}
}

// mayReceive reports whether a member may receive the log: not if it was removed (the configuration
// keeps its id), not if it is the register, and not before its data directory is known.
func (t *transport) mayReceive(id raft.ServerID) bool {
	return !t.n.retired(string(id)) && !isRegister(raft.Server{ID: id}) && t.n.admitted(string(id))
}

// errUnfit answers this node's own vote requests before they are sent, and a leader that hands
// over.
var errUnfit = errors.New(
	"this node asks for no votes: it is replaying its log, cannot store entries, has not got its " +
		"state again, or has not ruled out another cluster")

// errElected answers who asks a node to stand when it is too late for that.
var errElected = errors.New("this node follows another leader, or is in a later term")

// RequestPreVote asks whether the member would vote for this node.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress,
	req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if !t.n.fitToLead() {
		return errUnfit
	}
	return t.NetworkTransport.RequestPreVote(id, target, req, resp)
}

// RequestVote asks for the member's vote.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress,
	req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if !t.n.fitToLead() {
		return errUnfit
	}
	return t.NetworkTransport.RequestVote(id, target, req, resp)
}

// park holds the calls to a member that may receive nothing, until it may or this node no longer
// leads in term. A removed member's calls stay here for the whole leadership, and there may be
// thousands of such members: they sleep until something changes.
func (t *transport) park(id raft.ServerID, term uint64) error {
	t.n.roles.await(t.n.stop, func() bool { return t.mayReceive(id) || !t.n.leadsIn(term) })
	if !t.mayReceive(id) {
		return errGateClosed
	}
	return nil
}
