// The pipeline in which Raft replicates: hashicorp's, with a fix that keeps it from blocking
// forever after a refusal, and soon telling members what is committed.

package cluster

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

var (
	errRefused    = errors.New("the member refused entries")
	errNoReceiver = errors.New("the member may not receive the log")
)

// AppendEntriesPipeline opens a pipeline to a member.
func (t *transport) AppendEntriesPipeline(id raft.ServerID,
	target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	park := func(term uint64) { _ = t.park(id, term) }
	p := &pipeline{AppendPipeline: inner, t: t, id: id, to: t.n.link(string(id)),
		may: t.receiver(id), moving: func() bool { return t.movingFrom(id, target) }, park: park,
		stalled: &t.n.stalledLeader, answers: make(chan raft.AppendFuture),
		failed: make(chan raft.AppendFuture, 1), stop: make(chan struct{}),
		sending: make(chan struct{}, 1)}
	p.later = time.AfterFunc(time.Hour, p.tell)
	go p.pass()
	return p, nil
}

// receiver returns a function that reports whether a member may receive the log. A pipeline opened
// before the cluster was founded would otherwise continue to a member that founding left out, and
// its answers would count. It checks again only when another configuration is committed.
func (t *transport) receiver(id raft.ServerID) func() bool {
	var known *committed
	return func() bool {
		now := t.n.machine.members.Load()
		if now != known && t.mayReceive(id) {
			known = now
		}
		return now == known
	}
}

// pipeline passes answers to Raft until one is a refusal. In hashicorp/raft v1.7.3 Raft reads no
// answers after a refusal, but may be about to send another message; the transport, which buffers
// nothing, then blocks forever on the answers before it. Heartbeats continue, so nothing ends this:
// the member gets no entries until the leader changes, a majority that needs it commits nothing,
// and Raft's Shutdown never returns. A follower refuses entries when its disk is full, for one.
// This pipeline drains the answers after a refusal, upon which Raft closes it, probes the member
// and opens another. A message that cannot be sent is answered with a refusal too: if sending
// failed, Raft would log the member, which it reads without the lock under which it changes the
// member's address.
type pipeline struct {
	raft.AppendPipeline
	t       *transport
	id      raft.ServerID
	to      *link             // nil: it is no member
	may     func() bool       // see receiver
	moving  func() bool       // see errMoving
	park    func(term uint64) // waits until it may, or the leadership in term has ended
	stalled *atomic.Bool
	answers chan raft.AppendFuture
	failed  chan raft.AppendFuture // the first message that could not be sent
	refused atomic.Bool            // nothing is sent any more
	stop    chan struct{}
	stopped sync.Once
	later   *time.Timer // calls tell

	// sending is full while a message is sent, one at a time. It guards the fields below. No mutex,
	// since sending blocks while too many messages are in flight.
	sending chan struct{}
	newest  raft.AppendEntriesRequest // as if sent behind the newest message, without entries
	told    uint64                    // commit index of the newest message
}

// tellAfter is how long the leader waits for another entry, which would tell the members what is
// committed, before it sends a message for that alone. While one client writes all the time there
// is always another; otherwise subscribers and blocked clients of followers wait so long.
const tellAfter = time.Millisecond

// AppendEntries sends a message, and those that hold what follows in the log if Raft had more to
// send than it may hold. Raft itself sends one for each entry that is logged, and one each
// commitTimeout: a member that was away would get some entries every 50 to 100 ms from a leader
// without load, or from one that waits for this member to commit anything. It blocks while too many
// messages are in flight. It returns no error: see pipeline.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	length, end := p.to.messages(), uint64(0)
	if len(req.Entries) >= maxAppendEntries {
		end = p.t.n.raft.LastIndex()
	}
	p.t.extend(req, length)
	withheld := p.t.withhold(p.id, req)
	for {
		message := *req // for its answer: Raft reads from req what was sent last
		sent, err := p.trySend(&message, resp)
		if err != nil {
			answer := &failedAppend{req: &message, resp: resp, start: time.Now(), err: err}
			if !p.refused.Swap(true) {
				p.failed <- answer
			}
			return answer, nil
		}
		next := following(req)
		if withheld || next.PrevLogEntry >= end || !p.t.fill(&next, length) {
			return sent, nil
		}
		if withheld = p.t.withhold(p.id, &next); len(next.Entries) == 0 {
			return sent, nil
		}
		*req, resp = next, new(raft.AppendEntriesResponse)
	}
}

// following makes a message without entries that follows on another.
func following(req *raft.AppendEntriesRequest) (next raft.AppendEntriesRequest) {
	next = *req
	if n := len(req.Entries); n > 0 {
		next.PrevLogEntry, next.PrevLogTerm = req.Entries[n-1].Index, req.Entries[n-1].Term
	}
	next.Entries = nil
	return next
}

func (p *pipeline) trySend(req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.refused.Load() {
		return nil, errRefused
	}
	p.sending <- struct{}{}
	defer func() { <-p.sending }()
	if !p.may() {
		p.park(req.Term) // rather than probe a member again and again that may not receive anything
		return nil, errNoReceiver
	}
	if p.stalled.Load() {
		return nil, errStalled
	}
	if !p.t.isOfOneLog(req) {
		return nil, errEnded
	}
	return p.send(p.t.verified(req), resp)
}

// failedAppend answers a message that could not be sent.
type failedAppend struct {
	req   *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	start time.Time
	err   error
}

func (f *failedAppend) Error() error                          { return f.err }
func (f *failedAppend) Start() time.Time                      { return f.start }
func (f *failedAppend) Request() *raft.AppendEntriesRequest   { return f.req }
func (f *failedAppend) Response() *raft.AppendEntriesResponse { return f.resp }

// send sends a message. The caller has filled sending.
func (p *pipeline) send(req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.told, p.newest = req.LeaderCommitIndex, following(req)
	sent, err := p.AppendPipeline.AppendEntries(req, resp)
	if err == nil && p.newest.PrevLogEntry > p.told {
		p.later.Reset(tellAfter)
	}
	return sent, err
}

// tell tells the member what is committed, if that is more than it was told. Raft itself would do
// so with its next message, after up to twice commitTimeout. The answer goes to Raft like those to
// its own messages: to it, it is an answer to a message without entries.
func (p *pipeline) tell() {
	select {
	case p.sending <- struct{}{}:
		defer func() { <-p.sending }()
	default: // Another message is being sent, perhaps for long: it calls this again.
		return
	}
	req := p.newest
	req.LeaderCommitIndex = p.t.n.committed()
	next := p.t.verified(&req)
	// The order matters: if this node leads in the term now, it did when it read the commit index,
	// which a later leader's entries may have raised otherwise.
	switch {
	case !p.t.n.leadsIn(req.Term) || p.refused.Load() || p.stalled.Load() || !p.may():
	case next.LeaderCommitIndex > p.told:
		_, _ = p.send(next, new(raft.AppendEntriesResponse)) // Raft's next message fails likewise
	case p.newest.PrevLogEntry > p.told:
		p.later.Reset(tellAfter)
	}
}

// Consumer returns the answers.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close closes the pipeline and its connection.
func (p *pipeline) Close() error {
	p.later.Stop()
	err := p.AppendPipeline.Close()
	p.stopped.Do(func() { close(p.stop) })
	return err
}

// pass passes answers on until the pipeline is closed. Answers that Raft does not read, as it has
// stopped leading, must not hold up the message that it is sending: only then does it close the
// pipeline. A message of tell may be in flight before that one.
func (p *pipeline) pass() {
	var unread []raft.AppendFuture // as few as may be in flight
	ended := false                 // the last of them is a refusal, behind which Raft reads none
	for {
		var answers chan<- raft.AppendFuture
		var next raft.AppendFuture
		if len(unread) > 0 {
			answers, next = p.answers, unread[0]
		}
		select {
		case answer := <-p.AppendPipeline.Consumer():
			if ended {
				continue
			}
			stored := answer.Error() == nil && answer.Response().Success
			if stored && p.moving() {
				stored, answer = false, &failedAppend{req: answer.Request(), err: errMoving,
					resp: new(raft.AppendEntriesResponse), start: answer.Start()}
			}
			p.to.delivered(len(answer.Request().Entries), time.Since(answer.Start()), stored)
			if !stored {
				ended = true
				p.refused.Store(true)
			}
			unread = append(unread, answer)
		case answer := <-p.failed:
			if !ended {
				ended = true
				unread = append(unread, answer)
			}
		case answers <- next:
			unread = unread[1:]
		case <-p.stop:
			return
		}
	}
}
