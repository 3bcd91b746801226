// The pipeline in which Raft replicates: hashicorp's, with a fix that keeps it from blocking
// forever after a refusal.

package cluster

import (
	"errors"
	"sync"
	"sync/atomic"

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
	p := &pipeline{AppendPipeline: inner, t: t, may: t.receiver(id), park: park,
		stalled: &t.n.stalledLeader, answers: make(chan raft.AppendFuture),
		stop: make(chan struct{})}
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
// This pipeline drains the answers after a refusal and fails later sends, upon which Raft closes
// it, probes the member and opens another.
type pipeline struct {
	raft.AppendPipeline
	t       *transport
	may     func() bool       // see receiver
	park    func(term uint64) // waits until it may, or the leadership in term has ended
	stalled *atomic.Bool
	answers chan raft.AppendFuture
	refused atomic.Bool
	stop    chan struct{}
	stopped sync.Once
}

// AppendEntries sends a message. It blocks while too many are in flight.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.refused.Load() {
		return nil, errRefused
	}
	if !p.may() {
		// Raft logs the member when this fails, and reads it without the lock under which a removal
		// changes it: wait until that is over.
		p.park(req.Term)
		return nil, errNoReceiver
	}
	if p.stalled.Load() {
		return nil, errStalled
	}
	return p.AppendPipeline.AppendEntries(p.t.verified(req), resp)
}

// Consumer returns the answers.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close closes the pipeline and its connection.
func (p *pipeline) Close() error {
	err := p.AppendPipeline.Close()
	p.stopped.Do(func() { close(p.stop) })
	return err
}

// pass passes answers on until the pipeline is closed.
func (p *pipeline) pass() {
	for {
		select {
		case answer := <-p.AppendPipeline.Consumer():
			if p.refused.Load() {
				continue
			}
			if answer.Error() != nil || !answer.Response().Success {
				p.refused.Store(true)
			}
			select {
			case p.answers <- answer:
			case <-p.stop:
				return
			}
		case <-p.stop:
			return
		}
	}
}
