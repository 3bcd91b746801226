// The receiving side of Raft: over TLS a node may send only what it signs with its own id, and Raft
// sees nothing of what this node's own snapshot holds.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/logging"
)

// certified receives Raft's messages over TLS. Hashicorp's transport does not tell which connection
// a message came from, so there is one for each identity, and each passes on the messages that name
// a node of that identity.
type certified struct {
	tls      *PeerTLS
	new      func(raft.StreamLayer) *raft.NetworkTransport
	addr     net.Addr
	warnings *logging.Limited
	stop     <-chan struct{}
	deliver  func(raft.RPC) // to Raft

	mu        lockorder.Mutex
	layers    map[string]*certifiedLayer
	heartbeat func(raft.RPC)
}

// dispatch hands a connection to the transport of its identity.
func (c *certified) dispatch(conn *stream) {
	key := strings.Join(conn.who, " ")
	c.mu.Lock()
	l := c.layers[key]
	if l == nil {
		l = &certifiedLayer{addr: c.addr, closed: make(chan struct{}),
			conns: make(chan net.Conn)}
		c.layers[key] = l
		t := c.new(l)
		t.SetHeartbeatHandler(func(rpc raft.RPC) {
			c.mu.Lock()
			handle := c.heartbeat
			c.mu.Unlock()
			if c.check(conn.who, rpc) {
				handle(rpc)
			}
		})
		go c.pass(conn.who, t)
	}
	c.mu.Unlock()
	select {
	case l.conns <- conn:
	case <-c.stop:
		_ = conn.Close()
	}
}

// pass passes the messages of one identity to Raft.
func (c *certified) pass(who identity, t *raft.NetworkTransport) {
	defer t.Close()
	for {
		select {
		case rpc := <-t.Consumer():
			if c.check(who, rpc) {
				c.deliver(rpc)
			}
		case <-c.stop:
			return
		}
	}
}

// check reports whether a message names a node of the identity. It refuses it otherwise.
func (c *certified) check(who identity, rpc raft.RPC) bool {
	id := speaker(rpc)
	if c.tls.names(who, id) {
		return true
	}
	c.warnings.Warn("Raft message refused: the certificate is another node's", "claimed", id,
		"certificate", strings.Join(who, " "))
	refuseRaft(rpc, fmt.Errorf("node %q: %w", id, errNotTheirName))
	return false
}

// refuseRaft answers a message of Raft with an error.
func refuseRaft(rpc raft.RPC, err error) {
	if rpc.Reader == nil {
		rpc.Respond(nil, err)
		return
	}
	go func() { // ends with the connection at the latest
		_, _ = io.Copy(io.Discard, rpc.Reader) // a snapshot, which precedes the answer
		rpc.Respond(nil, err)
	}()
}

// certifiedLayer gives a transport the connections of one identity.
type certifiedLayer struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *certifiedLayer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The mux closes the connections.
func (l *certifiedLayer) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (l *certifiedLayer) Addr() net.Addr { return l.addr }

// Dial implements raft.StreamLayer.
func (l *certifiedLayer) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, errors.New("this transport only receives")
}

// receive passes messages of other nodes to Raft until the node stops.
func (t *transport) receive() {
	m := t.n.mux
	t.rpcs, t.stop = make(chan raft.RPC), m.ctx.Done()
	t.deciding = make(chan struct{}, 1)
	if m.tls != nil {
		t.certified = &certified{tls: m.tls, new: t.n.newTransport, addr: m.Addr(),
			warnings: m.warnings, stop: t.stop, deliver: t.deliver,
			layers: map[string]*certifiedLayer{}}
		m.certified = t.certified.dispatch
	}
	go func() { // without TLS
		for {
			select {
			case rpc := <-t.NetworkTransport.Consumer():
				t.deliver(rpc)
			case <-t.stop:
				return
			}
		}
	}()
}

// Consumer returns the messages of other nodes.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// deliver passes a message to Raft. A follower of hashicorp/raft v1.7.3 compares what it is sent
// with its log alone. It refuses entries that its snapshot holds, so the leader goes back, and at
// last sends a snapshot; for an old one it drops its log, with entries that it has acknowledged,
// and refuses what follows (docs/adr/0049).
func (t *transport) deliver(rpc raft.RPC) {
	if err := t.n.maySendRaft(speaker(rpc)); err != nil {
		refuseRaft(rpc, err)
		return
	}
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		t.n.termLeader.leads(speaker(rpc), req.Term)
		cutAppend(req, t.n.snapshotted())
		t.raise(&rpc, req.Term)
	case *raft.InstallSnapshotRequest:
		if held, err := t.n.holds(req); held || err != nil {
			go t.declineSnapshot(rpc, req, err) // it ends with the connection at the latest
			return
		}
		if req.Term > t.n.raft.CurrentTerm() { // apart: other terms do not wait for a snapshot
			if _, ok := t.passEmpty(req); !ok {
				rpc.Respond(nil, errStopping)
				return
			}
		}
		t.attend(&rpc)
	case *raft.TimeoutNowRequest: // before Raft raises the term
		end := t.decide()
		if err := t.n.mayStand(speaker(rpc)); err != nil {
			end()
			rpc.Respond(nil, err)
			return
		}
		rpc.RespChan = t.listen(rpc.RespChan, func(raft.RPCResponse) { end() })
	case *raft.RequestVoteRequest:
		if t.refusesVote(rpc, position{req.LastLogIndex, req.LastLogTerm}) {
			return
		}
		t.watchVote(&rpc, req.Term)
		t.n.introduce(&req.RPCHeader)
	case *raft.RequestPreVoteRequest:
		if t.refusesVote(rpc, position{req.LastLogIndex, req.LastLogTerm}) {
			return
		}
		t.n.introduce(&req.RPCHeader)
	}
	t.pass(rpc)
}

// introduce has Raft take a candidate for a voter that is one for maySendRaft but not in this
// node's log: hashicorp/raft v1.7.3 looks for the sender's id there. It notes its vote by address.
func (n *Node) introduce(h *raft.RPCHeader) {
	if is := n.ownStanding(string(h.ID)); is != standingNone && is != standingLearner {
		return
	}
	for _, s := range n.view().source {
		if s.Suffrage == raft.Voter {
			h.ID = []byte(s.ID)
		}
	}
}

// refusesVote refuses a vote for a candidate whose log ends so if this node may not give it.
func (t *transport) refusesVote(rpc raft.RPC, ends position) bool {
	err := t.n.mayVote(speaker(rpc), ends)
	if err != nil {
		rpc.Respond(nil, err)
	}
	return err != nil
}

// decide makes what raises the term wait for each other: hashicorp/raft v1.7.3 stands for election
// in whatever term it is when it comes to the request. A vote that it gives meanwhile, which takes
// two writes to the disk, would elect a leader that this node deposes at once, and so it would one
// whose first message comes then.
func (t *transport) decide() (end func()) {
	select {
	case t.deciding <- struct{}{}:
		return func() { <-t.deciding }
	case <-t.stop:
		return func() {}
	}
}

// listen returns where Raft shall send an answer, and passes it on after heard.
func (t *transport) listen(to chan<- raft.RPCResponse,
	heard func(raft.RPCResponse)) chan<- raft.RPCResponse {
	answer := make(chan raft.RPCResponse, 1)
	go func() { // ends with the node at the latest
		select {
		case a := <-answer:
			heard(a)
			to <- a
		case <-t.stop:
		}
	}()
	return answer
}

// raise has a message of a leader wait for what else raises the term, if it does.
func (t *transport) raise(rpc *raft.RPC, term uint64) {
	if term > t.n.raft.CurrentTerm() {
		end := t.decide()
		rpc.RespChan = t.listen(rpc.RespChan, func(raft.RPCResponse) { end() })
	}
}

// watchVote notes that this node refuses a vote. If it enters the candidate's term and refuses, its
// log is longer: in its own it may have voted.
func (t *transport) watchVote(rpc *raft.RPC, term uint64) {
	end, candidate := t.decide(), speaker(*rpc)
	enters := t.n.raft.CurrentTerm() < term
	rpc.RespChan = t.listen(rpc.RespChan, func(a raft.RPCResponse) {
		end()
		r, ok := a.Response.(*raft.RequestVoteResponse)
		if enters && ok && a.Error == nil && !r.Granted && r.Term == term {
			t.n.noteRefusal(candidate, term)
		}
	})
}

func (t *transport) pass(rpc raft.RPC) bool {
	if trace.On {
		t.record(&rpc)
	}
	select {
	case t.rpcs <- rpc:
		return true
	case <-t.stop:
		return false
	}
}

// record records Raft's answer to a message.
func (t *transport) record(rpc *raft.RPC) {
	var e trace.Event
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		if len(req.Entries) == 0 {
			return // Raft counts nothing by it
		}
		e = trace.Event{Kind: trace.Confirms, Index: following(req).PrevLogEntry}
	case *raft.RequestVoteRequest:
		e = trace.Event{Kind: trace.Grants, Peer: speaker(*rpc), Term: req.Term,
			Index: req.LastLogIndex}
	default:
		return
	}
	rpc.RespChan = t.listen(rpc.RespChan, func(a raft.RPCResponse) {
		switch r := a.Response.(type) {
		case *raft.AppendEntriesResponse:
			if r.Success {
				t.n.trace.Record(e)
			}
		case *raft.RequestVoteResponse:
			if r.Granted {
				t.n.trace.Record(e)
			}
		}
	})
}

// cutAppend removes from a leader's message what is up to a committed entry: this node has it, and
// so has every leader that Raft accepts.
func cutAppend(req *raft.AppendEntriesRequest, upTo uint64) {
	if req.PrevLogEntry > upTo || req.PrevLogEntry == 0 && len(req.Entries) == 0 {
		return
	}
	// no more is compared, so no more is committed (see verified)
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, req.PrevLogEntry+uint64(len(req.Entries)))
	req.PrevLogEntry, req.PrevLogTerm = 0, 0
	for len(req.Entries) > 0 && req.Entries[0].Index <= upTo {
		req.Entries = req.Entries[1:]
	}
}

// declineSnapshot answers a snapshot that brings nothing as if it were installed, or with an error.
// Raft sees an empty message in its place, and decides about the term.
func (t *transport) declineSnapshot(rpc raft.RPC, req *raft.InstallSnapshotRequest, err error) {
	_, err2 := io.CopyN(io.Discard, rpc.Reader, req.Size) // the answer follows all of it
	if err := errors.Join(err, err2); err != nil {
		rpc.Respond(nil, err)
		return
	}
	r, ok := t.passEmpty(req)
	if !ok {
		rpc.Respond(nil, errStopping)
		return
	}
	resp := &raft.InstallSnapshotResponse{}
	if a, ok := r.Response.(*raft.AppendEntriesResponse); ok {
		resp.RPCHeader, resp.Term, resp.Success = a.RPCHeader, a.Term, a.Success
	}
	rpc.Respond(resp, r.Error)
}

// passEmpty passes an empty message of who sends a snapshot to Raft, and returns the answer; false:
// the node stops.
func (t *transport) passEmpty(req *raft.InstallSnapshotRequest) (raft.RPCResponse, bool) {
	answer := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{RespChan: answer,
		Command: &raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term}}
	t.raise(&rpc, req.Term)
	if t.pass(rpc) {
		select {
		case r := <-answer:
			return r, true
		case <-t.stop:
		}
	}
	return raft.RPCResponse{}, false
}

// snapshotted returns the index up to which the newest snapshot, which Raft has, holds the log.
func (n *Node) snapshotted() uint64 {
	newest := n.stores.snapshots.newest.Load().index
	if newest > n.raft.AppliedIndex() { // it is being installed
		return 0
	}
	return newest
}

// holds reports whether this node has all that a snapshot brings: it has applied that, or has the
// entry with which it ends, and so all before.
func (n *Node) holds(req *raft.InstallSnapshotRequest) (bool, error) {
	if max(n.snapshotted(), n.machine.appliedIndex.Load()) >= req.LastLogIndex {
		return true, nil
	}
	var l raft.Log
	switch err := n.logs.GetLog(req.LastLogIndex, &l); {
	case errors.Is(err, raft.ErrLogNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return l.Term == req.LastLogTerm, nil
}

// SetHeartbeatHandler sets what handles heartbeats, which do not wait for other messages.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	handle = t.whileFollowing(handle)
	if c := t.certified; c != nil {
		c.mu.Lock()
		c.heartbeat = handle
		c.mu.Unlock()
	}
	t.NetworkTransport.SetHeartbeatHandler(handle)
}

// whileFollowing keeps heartbeats from changing Raft's state. They are handled beside Raft's main
// goroutine, and in hashicorp/raft v1.7.3 one of a later term raises the term there: beside a vote
// in a still later term, which it can undo, or beside the logging of a leader's entry, which then
// has the other leader's term. The leader's other messages, which come every commitTimeout, raise
// the term where nothing else happens. But a node that asks whether it would be elected, after a
// partition perhaps, gets no such message while the leader waits to try it again: Raft's main
// goroutine takes the heartbeat, and follows.
func (t *transport) whileFollowing(handle func(raft.RPC)) func(raft.RPC) {
	return func(rpc raft.RPC) {
		if err := t.n.maySendRaft(speaker(rpc)); err != nil {
			refuseRaft(rpc, err)
			return
		}
		r := t.n.raft
		term, own := rpc.Command.(*raft.AppendEntriesRequest).Term, r.CurrentTerm()
		t.n.termLeader.leads(speaker(rpc), term)
		if term == own && r.State() == raft.Candidate {
			if !t.pass(rpc) {
				rpc.Respond(nil, errStopping)
			}
			return
		}
		if term > own || term == own && r.State() != raft.Follower {
			rpc.Respond(&raft.AppendEntriesResponse{Term: own, LastLog: r.LastIndex()}, nil)
			return
		}
		handle(rpc)
	}
}
