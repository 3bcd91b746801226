// The leader's side of forwarding: frames from followers go into the queues, and answers go back.

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/cluster/fair"
)

// maxInboundFrames is how many frames of one connection are in progress at once; more wait in the
// connection. A peer that respects maxFrames never waits.
const maxInboundFrames = 64

// inbound is a forwarding connection that another member opened.
type inbound struct {
	n          *Node
	w          *peerConn
	peer       string
	number     uint64 // rises from connection to connection
	slots      chan struct{}
	scheduling bool          // the member has abilityScheduling
	walls      bool          // it has abilityWalls
	answering  chan struct{} // holds a token for each question in progress

	heard    atomic.Int64 // when the newest frame came, Unix ns
	retired  atomic.Bool  // the member was removed: refuse its requests
	renewing atomic.Bool  // the member is to connect again
}

// serveForward serves a forwarding connection until it ends.
func (n *Node) serveForward(conn *stream, known func()) {
	reader := bufio.NewReaderSize(conn, linkBuffer)
	peer, err := n.greetPeer(conn, reader, false)
	if err != nil {
		// one that looks for a cluster, or for nodes of another one, asks again and again
		asks := peer.traits&(traitAwaiting|traitAsking) != 0
		if !asks && !errors.Is(err, io.EOF) && !n.draining.Load() {
			n.mux.warnings.Warn("peer connection refused", "from", conn.RemoteAddr(), "error", err)
		}
		return
	}
	known()
	in := &inbound{n: n, w: newPeerConn(conn, reader), peer: peer.id,
		number:     n.nextInbound.Add(1),
		slots:      make(chan struct{}, maxInboundFrames),
		answering:  make(chan struct{}, maxAnswers),
		scheduling: peer.abilities&abilityScheduling != 0,
		walls:      peer.abilities&abilityWalls != 0}
	n.trackInbound(in, true)
	if err = in.serve(); n.draining.Load() || in.renewing.Load() {
		err = in.drain(err)
	}
	n.trackInbound(in, false)
	in.w.close()
	<-in.w.done
	var netErr net.Error
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.As(err, &netErr) {
		n.mux.warnings.Warn("invalid frame from member, connection closed", "member", peer.id,
			"error", err)
	}
}

// greetPeer reads the dialer's hello and answers it. strangers lets nodes pass that are no members.
func (n *Node) greetPeer(conn *stream, reader *bufio.Reader, strangers bool) (hello, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return hello{}, err
	}
	h, err := readHello(reader)
	if err != nil {
		return h, err
	}
	refusal, removed := "", false
	is := n.standing(h.id)
	switch {
	case h.version != protocolVersion:
		refusal = fmt.Sprintf(
			"node %s speaks version %d of the peer protocol, node %s version %d", n.cfg.ID,
			protocolVersion, h.id, h.version)
	case h.id == n.cfg.ID && h.incarnation == n.incarnation:
		refusal = fmt.Sprintf("it is node %s itself that has the address", h.id)
	case h.id == n.cfg.ID:
		refusal = fmt.Sprintf("both nodes have the id %q", h.id)
	case h.id == "":
		refusal = "the node id is empty"
	case !conn.mayBe(h.id):
		refusal = fmt.Sprintf("node %q: %v", h.id, errNotTheirName)
	case n.removal.removed.Load():
		refusal = n.removal.err.Error()
	case n.isOtherCluster(h.cluster):
		// a node of another cluster must not be told that it was removed from this one
		refusal, _ = n.checkIdentity(h)
	case is == standingRemoved:
		refusal, removed = fmt.Sprintf("node %s was removed from the cluster", h.id), true
	case n.draining.Load():
		refusal = fmt.Sprintf("node %s is stopping", n.cfg.ID)
	case is == standingNone && !strangers:
		if h.cluster != "" && h.cluster == n.clusterID() { // it claims to be a member
			n.askAbout(h.id)
		}
		refusal = fmt.Sprintf("node %q is not a member of the cluster of node %s", h.id,
			n.cfg.ID)
	}
	lost := false
	if refusal == "" {
		refusal, lost = n.checkIdentity(h)
	}
	if h.incarnation != n.incarnation && conn.mayBe(h.id) {
		n.meetAwaiting(h)
	}
	answer := n.hello(h.id, refusal)
	answer.removed, answer.lostDisk = removed, lost
	if _, err := conn.Write(appendHello(nil, answer)); err != nil {
		return h, err
	}
	if refusal != "" {
		return h, errors.New(refusal)
	}
	n.noteAddr(h)
	return h, conn.SetDeadline(time.Time{})
}

func (in *inbound) serve() error {
	for {
		in.heard.Store(time.Now().UnixNano())
		f, err := readFrame(in.w.reader)
		if err != nil {
			return err
		}
		switch f.kind {
		case frameConfirm:
			report := in.n.termReport()
			if in.walls {
				report.wallMs = in.n.wallMs()
			}
			if term, commit, ok := decodeCommit(f.payload); ok {
				in.n.lag.note(term, commit, in.n.applied(), time.Now())
			}
			status := statusDone
			if !in.n.mayTakeOver() {
				status = statusNotTaken
			}
			in.w.send(endFrame(appendTermReport(beginFrame(32), report), frameTerm, status, f.id),
				nil)
		case frameLeaderless:
			found, err := decodeFinding(f.payload)
			if err != nil {
				return err
			}
			in.n.findings.note(in.peer, found)
			kick(in.n.routeWake)
		case frameSums:
			r, err := decodeSums(f.payload)
			if err != nil {
				return err
			}
			if in.n.standing(in.peer).isMember() {
				in.n.heard.note(in.peer, in.number, r)
			}
		case frameQuestion:
			in.answerQuestion(f)
		case frameWrite, frameRead:
			q, err := decodeRequests(f.payload)
			if err != nil {
				return err
			}
			select {
			case in.slots <- struct{}{}:
			case <-in.n.stop:
				return nil
			case <-in.w.done:
				return nil
			}
			c := &call{batches: q.batches, count: q.count, size: q.size, from: in, frameID: f.id,
				write: f.kind == frameWrite}
			if q.heavy {
				c.Flow, c.cost = fair.Flow{Via: in, ID: q.tag.flow}, max(q.tag.cost, fair.HeavyWork)
			}
			c.deadline = time.Now().Add(in.n.cfg.LeaderWait)
			err = errNoLeader
			if in.n.leads() && !in.retired.Load() {
				err = in.n.queueOf(f.kind).push(c)
			}
			if err != nil {
				c.finish(nil, err)
			}
		default:
			return fmt.Errorf("a frame of kind %d in place of a request", f.kind)
		}
	}
}

// drain tells the member that this node takes nothing more, after every accepted request is
// answered. So the member knows the outcome of each of its requests, including those that were
// never read. The member then closes the connection. end is why reading ended.
func (in *inbound) drain(end error) error {
	if !errors.Is(end, os.ErrDeadlineExceeded) {
		return end // the connection failed by itself
	}
	limit := time.NewTimer(flightWait)
	defer limit.Stop()
	for range maxInboundFrames { // all slots are free once every frame is answered
		select {
		case in.slots <- struct{}{}:
		case <-in.w.done:
			return nil
		case <-limit.C:
			return nil
		}
	}
	in.w.send(endFrame(beginFrame(0), frameDrained, 0, 0), nil)
	if err := in.w.conn.SetReadDeadline(time.Now().Add(flightWait)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, in.w.reader)
	return err
}

// drainInbounds drains the members' connections and waits until they are closed, for twice
// flightWait at most. The queues are closed by then, and everything in flight is answered.
func (n *Node) drainInbounds() {
	n.linksMu.Lock()
	n.draining.Store(true)
	for in := range n.inbounds {
		in.interrupt()
	}
	n.linksMu.Unlock()
	open := func() int {
		n.linksMu.Lock()
		defer n.linksMu.Unlock()
		return len(n.inbounds)
	}
	for began := time.Now(); open() > 0 && time.Since(began) < 2*flightWait; {
		time.Sleep(drainCheck)
	}
}

// renew drains the connection, for the member to connect again.
func (in *inbound) renew() {
	in.renewing.Store(true)
	in.interrupt()
}

// interrupt ends the reading of requests.
func (in *inbound) interrupt() { _ = in.w.conn.SetReadDeadline(time.Unix(1, 0)) }

// answer sends the outcome of a frame, and only then frees its slot: the drained frame must come
// after all answers. Batches without a reply did not run.
func (in *inbound) answer(c *call, replies [][]byte, err error) {
	size := 0
	for _, r := range replies {
		size += len(r) + 10
	}
	status, buf := statusDone, []byte(nil)
	notRun := max(len(c.batches)-len(replies), 0)
	switch {
	case errors.Is(err, ErrNotRun):
		// also ErrBusy: the follower retries, and keeps its requests meanwhile
		status, buf = statusNotTaken, beginFrame(0)
	case err != nil:
		status, buf = statusUnknown, append(beginFrame(0), err.Error()...)
	case in.scheduling:
		size += 2*notRun + 5*len(c.work)
		buf = appendReplies(beginFrame(min(size, maxReplyFrame)+10), replies, notRun,
			in.n.cfg.batchReply)
		buf = appendWork(buf, c.work)
	case len(replies) == 0 && notRun > 0:
		status, buf = statusNotTaken, beginFrame(0)
	case c.write && notRun > 0:
		// never: while a member has an older version, entries run whole, see commands.LevelSecond
		status, buf = statusUnknown, append(beginFrame(0), "a part of the frame did not run"...)
	default:
		// an older version takes it for too large, and asks again for the reads after the first
		buf = appendReplies(beginFrame(min(size, maxReplyFrame)+10),
			append(replies, make([][]byte, notRun)...), 0, in.n.cfg.batchReply)
	}
	in.w.send(endFrame(buf, frameReply, status, c.frameID), nil)
	<-in.slots
}
