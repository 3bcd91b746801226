// The connections of this node that may hold leases: those that sent a command which binds one. The
// node tells the machine which of them have closed, so that their leases end after their grace. If
// the leader has taken the node for lost, or a snapshot may hide that it has, the node says which
// are there (docs/adr/0064).

package server

import (
	"bytes"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/resp"
)

// holders tells the machine of connections. One goroutine does, so that what it says of a
// connection arrives in order.
type holders struct {
	mu      lockorder.Mutex
	begun   bool     // it is known whether the machine has leases of an earlier process
	drop    uint64   // … it has: connections of smaller ids than this are gone. 0: it has not
	all     bool     // keep is to have all connections that are there
	keep    []uint64 // ids of connections that are there
	left    []uint64 // ids of connections that have closed
	running bool     // tellHolders runs
}

// holder names the connection for a request that binds a lease to it, nil while the connection has
// no id: see clientIDs.
func (s *session) holder() *commands.Holder {
	id := s.holds.Load()
	if id == 0 {
		if id = uint64(s.clientID()); id < commands.FirstClientID {
			return nil
		}
		s.holds.Store(id)
	}
	return &commands.Holder{Node: []byte(s.srv.backend.Status().ID), ID: id}
}

// bindsLease reports whether a request binds a lease to its connection.
func (p *pending) bindsLease() bool {
	return p.spec.Binds(p.args) ||
		slices.ContainsFunc(p.block, func(q queued) bool { return q.spec.Binds(q.args) })
}

// leave has the machine learn that a session is closed.
func (h *holders) leave(s *session) {
	id := s.holds.Swap(0)
	if id == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = append(h.left, id)
	h.start(s.srv)
}

// heard acts on an event of the machine. It never blocks.
func (h *holders) heard(srv *Server, e *commands.Event) {
	if e.Kind != commands.HoldersDropped && e.Kind != commands.StateReplaced {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = true
	h.start(srv)
}

// begins has the machine drop the connections of an earlier process of this node, if it has any.
// Their ids are smaller than those of this process.
func (h *holders) begins(srv *Server, nodes []string) {
	first := srv.clientIDs.first()
	own := len(nodes) > 0 && slices.Contains(nodes, srv.backend.Status().ID)
	if own && first == 0 { // no connection of this process has an id yet: there may be none
		srv.clientIDs.reserve(srv, 1)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun {
		return
	}
	if h.begun = true; own {
		h.drop = first
		h.start(srv)
	}
}

// start tells what is to be told. The caller holds mu.
func (h *holders) start(srv *Server) {
	if !h.running {
		h.running = srv.outlasting(srv.tellHolders)
	}
}

// tellHolders tells the machine until nothing is left to tell.
func (s *Server) tellHolders() {
	h := &s.holders
	h.mu.Lock()
	defer h.mu.Unlock()
	for pause := firstPause; s.ctx.Err() == nil; {
		if h.all {
			h.all, h.keep = false, nil
			h.mu.Unlock()
			open := s.openHolders()
			h.mu.Lock()
			h.keep = open
			continue
		}
		name, list := commands.SystemKeepHolder, &h.keep
		if len(h.keep) == 0 {
			name, list = commands.SystemEndHolder, &h.left
		}
		told := []uint64{h.drop}
		if h.drop != 0 {
			name = commands.SystemDropHolders
		} else if told = slices.Clone((*list)[:min(len(*list), leaveTogether)]); len(told) == 0 {
			break
		}
		h.mu.Unlock()
		done, err := s.tellOf(name, told)
		if err != nil && outcomeOf(err) == Refused {
			done = len(told) // for good
		} else if err != nil {
			pause = s.rest(pause)
		}
		h.mu.Lock()
		if done > 0 {
			pause = firstPause
		}
		if name != commands.SystemDropHolders {
			*list = (*list)[done:]
		} else if done > 0 {
			h.drop = 0
		}
	}
	h.running = false
}

// openHolders returns the ids of the connections that may hold leases.
func (s *Server) openHolders() (ids []uint64) {
	for _, other := range s.all() {
		if id := other.holds.Load(); id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// tellOf changes what the machine has of connections of this node, and returns for how many, the
// first ones, that is done.
func (s *Server) tellOf(name string, ids []uint64) (done int, err error) {
	var batch []byte
	node := []byte(s.backend.Status().ID)
	for _, id := range ids {
		words := [][]byte{[]byte(name), node, []byte(formatInt(int64(id)))}
		batch = commands.AppendRequest(batch, &commands.Request{Proto: 2, System: true,
			Cmds: [][][]byte{words}})
	}
	replies, err := s.backend.Write(s.ctx, Workload{}, batch, len(ids))
	for a, ok := replies.Next(); ok; a, ok = replies.Next() {
		v, wrong := resp.NewReader(bytes.NewReader(a.Reply)).Value()
		if wrong == nil && v.Kind == resp.Int && v.Text != "0" {
			break // there is more to do
		}
		done++
	}
	return done, err
}
