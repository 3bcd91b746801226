package cluster

import (
	"net"
	"testing"

	"github.com/hashicorp/raft"
)

// dialing is a peer port that is only dialed from.
type dialing struct{ *mux }

func (d dialing) Accept() (net.Conn, error) {
	<-d.ctx.Done()
	return nil, net.ErrClosed
}

func (dialing) Close() error { return nil }

// A heartbeat is handled beside Raft's main goroutine, so it changes neither term nor role.
func TestHeartbeatChangesNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, from, other := c.leader(), c.followers()[0], c.followers()[1]
		eventually(t, "the cluster has an id", func() bool {
			return lead.clusterID() != "" && from.clusterID() != "" && other.clusterID() != "" &&
				lead.admitted(from.cfg.ID) && other.admitted(from.cfg.ID)
		})
		trans := from.newTransport(dialing{from.mux})
		defer trans.Close()
		term := lead.raft.CurrentTerm()
		for _, test := range []struct {
			to    *Node
			term  uint64
			heard bool
		}{{lead, term + 1, false}, {lead, term, false}, {lead, term - 1, false},
			{other, term + 1, false}, {other, term, true}, {other, term - 1, false}} {
			resp := raft.AppendEntriesResponse{}
			id := []byte(from.cfg.ID)
			err := trans.AppendEntries(raft.ServerID(test.to.cfg.ID), "",
				&raft.AppendEntriesRequest{
					RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id,
						Addr: id},
					Term: test.term}, &resp)
			if err != nil || resp.Success != test.heard || resp.Term != term {
				t.Errorf("%s in term %d: %+v, %v", test.to.cfg.ID, test.term, resp, err)
			}
			if now := test.to.raft.CurrentTerm(); now != term {
				t.Fatalf("%s is in term %d, it was %d", test.to.cfg.ID, now, term)
			}
		}
		if !lead.leads() {
			t.Error("it leads no more")
		}
	})
}

// A node that asks whether it would be elected, after it heard nothing for a while, follows the
// leader of its term again at the first heartbeat.
func TestHeartbeatEndsACandidacy(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		lead, n := c.leader(), c.followers()[0]
		term := n.raft.CurrentTerm()
		c.net.isolate(n.cfg.ID)
		eventually(t, "it asks for votes", func() bool { return n.raft.State() == raft.Candidate })
		id := []byte(lead.cfg.ID)
		answer := make(chan raft.RPCResponse, 1)
		n.transport.whileFollowing(func(raft.RPC) { t.Error("handled beside the main goroutine") })(
			raft.RPC{RespChan: answer, Command: &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id,
					Addr: id}, Term: term}})
		r := received(t, "the answer", answer)
		resp, _ := r.Response.(*raft.AppendEntriesResponse)
		if resp == nil || !resp.Success || resp.Term != term || r.Error != nil {
			t.Errorf("%+v, %v", resp, r.Error)
		}
		if _, now := n.raft.LeaderWithID(); string(now) != lead.cfg.ID {
			t.Errorf("it follows %q, not %s", now, lead.cfg.ID)
		}
		c.net.heal(n.cfg.ID)
	})
}
