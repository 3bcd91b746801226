// How membership changes reach the leader: a connection to its peer port each, with one question
// and one answer.

package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/coordd/coordd/cluster/membership"
)

const (
	// adminWait bounds the search for the leader; adminAnswer the wait for one leader's answer.
	adminWait   = 5 * time.Second
	adminAnswer = 15 * time.Second
	adminPause  = 50 * time.Millisecond
)

// adminRequest is the question, in JSON so that later versions can extend it.
type adminRequest struct {
	Change *membership.Change `json:"change,omitempty"` // nil: only list the members
	About  string             `json:"about,omitempty"`  // what is the node of this id?
}

// adminReply is the answer.
type adminReply struct {
	Outcome string              `json:"outcome"`
	Reason  string              `json:"reason,omitempty"`
	Members []membership.Member `json:"members,omitempty"`
	// Standing is what the node asked About is, a name of standingNames; empty: an older version.
	Standing string `json:"standing,omitempty"`
	missed   bool   // nobody was asked
}

// Outcomes of an adminReply.
const (
	outcomeDone    = "done"
	outcomeRefused = "refused"
	outcomeNotRun  = "not run" // ask the current leader
	outcomeUnknown = "unknown"
)

// err is the outcome as an error.
func (r *adminReply) err() error {
	switch r.Outcome {
	case outcomeDone:
		return nil
	case outcomeRefused:
		return refused(r.Reason)
	case outcomeNotRun:
		return notRun(r.Reason)
	}
	return unknown(r.Reason)
}

// ChangeMembers has the leader, whichever node that is, change the members, and returns when the
// change is committed. Errors: ErrRefused with the reason; ErrNotRun if no leader was found in
// time; ErrUnknown: LeaderMembers shows the outcome. Changes run one at a time.
func (n *Node) ChangeMembers(c membership.Change) error {
	_, err := n.askLeader(adminRequest{Change: &c}, adminWait)
	return err
}

// LeaderMembers returns the members as the leader knows them. The error is ErrNotRun, or ErrUnknown
// if the leader does not answer.
func (n *Node) LeaderMembers() ([]membership.Member, error) {
	r, err := n.askLeader(adminRequest{}, n.cfg.LeaderWait)
	return r.Members, err
}

// askLeader asks until a leader answers or wait is over. It does not repeat a question that may
// have taken effect.
func (n *Node) askLeader(q adminRequest, wait time.Duration) (adminReply, error) {
	for deadline := time.Now().Add(wait); ; {
		if n.removal.removed.Load() {
			return adminReply{}, n.removal.err
		}
		r := n.askOnce(q)
		err := r.err()
		if !errors.Is(err, ErrNotRun) || time.Now().After(deadline) {
			return r, err
		}
		select {
		case <-time.After(adminPause):
		case <-n.closing:
			return adminReply{}, errStopping
		}
	}
}

// askOnce asks the leader that this node knows.
func (n *Node) askOnce(q adminRequest) adminReply {
	r := n.route.Load()
	if r.self {
		return n.answerAdmin(q)
	}
	addr, ok := n.peerAddr(r.leaderID)
	if r.leaderID == "" || !ok {
		return adminReply{Outcome: outcomeNotRun, Reason: errNoLeader.Error()}
	}
	reply, err := n.exchange(r.leaderID, addr, q)
	if err != nil {
		return adminReply{Outcome: outcomeUnknown,
			Reason: fmt.Sprintf("leader %s did not answer: %v", r.leaderID, err)}
	}
	return reply
}

// exchange asks the node at addr. After an error it is unknown whether the question took effect.
func (n *Node) exchange(id, addr string, q adminRequest) (reply adminReply, err error) {
	missed := func(err error) adminReply {
		return adminReply{Outcome: outcomeNotRun, missed: true,
			Reason: fmt.Sprintf("cannot ask leader %s: %v", id, err)}
	}
	conn, reader, h, err := n.greet(id, addr, streamAdmin)
	if err != nil {
		return missed(err), nil
	}
	defer conn.Close()
	switch {
	case h.refusal != "":
		return missed(errors.New(h.refusal)), nil
	case h.version != protocolVersion || h.id != id:
		return missed(fmt.Errorf("at %s is node %q with version %d of the peer protocol", addr,
			h.id, h.version)), nil
	}
	if err := conn.SetDeadline(time.Now().Add(adminAnswer)); err != nil {
		return missed(err), nil
	}
	if err := sendAdmin(conn, q); err != nil {
		return reply, err
	}
	return reply, readAdmin(reader, &reply)
}

// greet opens a connection to the peer port of the node id at addr, or of any node there if id is
// empty, and exchanges hellos. The caller closes it.
func (n *Node) greet(id, addr string, kind byte) (
	conn *stream, reader *bufio.Reader, h hello, err error) {
	if conn, err = n.mux.open(id, addr, []byte{kind}, dialTimeout); err != nil {
		return nil, nil, h, err
	}
	own := n.hello("", "")
	if id == "" {
		own.traits |= traitAsking
	}
	if err = conn.SetDeadline(time.Now().Add(handshakeTimeout)); err == nil {
		_, err = conn.Write(appendHello(nil, own))
	}
	reader = bufio.NewReader(conn)
	if err == nil {
		h, err = readHello(reader)
	}
	if err == nil && !conn.mayBe(h.id) {
		err = fmt.Errorf("the node at %s says that it is %q: %w", addr, h.id, errNotTheirName)
	}
	if err != nil {
		conn.Close()
		return nil, nil, h, err
	}
	return conn, reader, h, nil
}

// probe asks the node at addr who it is.
func (n *Node) probe(addr string) (hello, error) {
	conn, _, h, err := n.greet("", addr, streamForward)
	if err != nil {
		return h, err
	}
	return h, conn.Close()
}

func sendAdmin(conn net.Conn, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = conn.Write(endFrame(append(beginFrame(len(b)), b...), frameAdmin, 0, 0))
	return err
}

func readAdmin(r *bufio.Reader, message any) error {
	f, err := readFrame(r)
	if err != nil {
		return err
	}
	if f.kind != frameAdmin {
		return fmt.Errorf("a frame of kind %d in place of a membership change", f.kind)
	}
	return json.Unmarshal(f.payload, message)
}

// serveAdmin answers the question on a connection that another member opened.
func (n *Node) serveAdmin(conn *stream, known func()) {
	reader := bufio.NewReader(conn)
	peer, err := n.greetPeer(conn, reader, n.cfg.Discover != nil)
	if err == nil {
		known()
		err = conn.SetReadDeadline(time.Now().Add(handshakeTimeout))
	}
	var q adminRequest
	if err == nil {
		err = readAdmin(reader, &q)
	}
	if err == nil {
		if q.Change != nil {
			n.logger.Info("membership change requested", "from", peer.id, "change", q.Change.Kind,
				"member", q.Change.ID)
		}
		answer := n.answerAdmin
		if !n.standing(peer.id).isMember() {
			answer = func(q adminRequest) adminReply { return n.answerStranger(peer, q) }
		}
		err = sendAdmin(conn, answer(q))
	}
	if err != nil {
		n.mux.warnings.Warn("membership request failed", "from", conn.RemoteAddr(), "error", err)
	}
}

// answerAdmin answers, on the leader but for what each node says by itself.
func (n *Node) answerAdmin(q adminRequest) adminReply {
	if q.About != "" {
		return adminReply{Outcome: outcomeDone, Standing: n.whatIs(q.About).String()}
	}
	lead := n.route.Load().lead
	if lead == nil {
		return adminReply{Outcome: outcomeNotRun, Reason: errNoLeader.Error()}
	}
	if q.Change == nil {
		return adminReply{Outcome: outcomeDone, Members: n.Status().Members}
	}
	err := n.makeChange(lead, *q.Change)
	switch {
	case err == nil:
		return adminReply{Outcome: outcomeDone}
	case errors.Is(err, ErrRefused):
		return adminReply{Outcome: outcomeRefused, Reason: err.Error()}
	case errors.Is(err, ErrNotRun):
		return adminReply{Outcome: outcomeNotRun, Reason: err.Error()}
	}
	return adminReply{Outcome: outcomeUnknown, Reason: err.Error()}
}
