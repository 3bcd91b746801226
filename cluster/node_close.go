// This file holds the end of a node: handing leadership over, and stopping everything that Open started.
package cluster

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// drainWait bounds how long Close waits for entries under way. A leader that cannot reach a majority steps down
	// within its lease, which answers them, so it is reached only when the disk or the machine hangs.
	drainWait  = 5 * time.Second
	flightWait = time.Second // for frames under way to the leader
	drainCheck = 2 * time.Millisecond
)

// TransferLeadership hands leadership to the member that is connected and furthest in the log. It returns nil when
// this node leads no more. Errors: ErrRefused, ErrNotRun when it is not the leader, ErrUnknown when nobody has taken over in time: somebody may yet.
func (n *Node) TransferLeadership() error { return n.TransferLeadershipTo("") }

// TransferLeadershipTo is TransferLeadership to the member of that id, which has to be a voter that is connected.
func (n *Node) TransferLeadershipTo(member string) error {
	if n.raft.State() != raft.Leader {
		return notRun("this node is not the leader")
	}
	id, addr, ok := n.successor(member)
	if !ok && member != "" {
		return refused(fmt.Sprintf("leadership was not handed over: %s is no voter that is connected", member))
	}
	if !ok {
		return errNoSuccessor
	}
	defer n.pauseProposals()()
	switch err := n.raft.LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(addr)).Error(); {
	case err == nil:
		return nil
	case neverLogged(err): // with these Raft refuses a transfer too, before it tells anybody
		return notRun(fmt.Sprintf("leadership was not handed over: %v", err))
	default: // the other member may have been told to take over, and may yet do it
		return unknown(fmt.Sprintf("leadership was being handed over when this happened: %v", err))
	}
}

// quiet holds the wishes that nothing be proposed: several transfers may be asked for at a time.
type proposalPause struct {
	mu      sync.Mutex // the proposer holds it over each step
	holders int
}

// pauseProposals keeps the proposer from proposing and waits, for drainWait at most, until the entries under way are answered: those that a change
// of leader interrupts are of unknown outcome, while what waits in the queue is taken by the next leader. Call what it returns.
func (n *Node) pauseProposals() (end func()) {
	add := func(wishes int) {
		n.pause.mu.Lock()
		n.pause.holders += wishes
		n.pause.mu.Unlock()
	}
	add(1)
	for began := time.Now(); n.inFlight.Load() > 0 && time.Since(began) < drainWait; {
		time.Sleep(drainCheck)
	}
	return func() {
		add(-1)
		kick(n.writes.wake)
	}
}

// successor picks the voter to hand leadership to, the wanted one unless that is empty. Raft's own choice may fall on a member that is down.
func (n *Node) successor(wanted string) (id, addr string, ok bool) {
	var best uint64
	for _, s := range n.configuration().Servers {
		l := n.link(string(s.ID))
		if s.Suffrage != raft.Voter || l == nil || !l.up() || !n.admitted(string(s.ID)) || wanted != "" && wanted != string(s.ID) {
			continue
		}
		l.mu.Lock()
		lastIndex := l.report.lastIndex
		l.mu.Unlock()
		if !ok || lastIndex > best {
			id, addr, best, ok = string(s.ID), string(s.Address), lastIndex, true
		}
	}
	return id, addr, ok
}

// Close hands leadership over when this node leads, then refuses new requests, lets what is under way end, and stops
// everything that Open started. It takes a few seconds at most, unless the disk hangs.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closeErr = n.shutdown() })
	return n.closeErr
}

// TransferIfLeader hands leadership over if this node leads and another one can take it. Requests go on meanwhile, on this node too: they wait for
// the next leader. It is what a node does first that is to stop, while its clients are still connected.
func (n *Node) TransferIfLeader() {
	for began := time.Now(); n.raft.State() == raft.Leader && time.Since(began) < drainWait; {
		err := n.TransferLeadership()
		if err == nil {
			return
		}
		n.logger.Debug("leadership was not handed over", "error", err)
		if errors.Is(err, errNoSuccessor) {
			return
		}
		time.Sleep(drainCheck)
	}
}

// errNoSuccessor is why a leader keeps leading.
var errNoSuccessor = refused("leadership was not handed over: no other voter is connected")

func (n *Node) shutdown() error {
	close(n.closing)
	n.TransferIfLeader()
	n.writes.close(errStopping)
	n.reads.close(errStopping)
	drained := n.drain()
	if drained {
		n.drainInbounds()
	}

	// The completer may sleep on a future that only a running Raft answers, so it ends before Raft does.
	close(n.stop)
	n.endLinks()
	n.mux.Close()
	if drained {
		n.loops.Wait()
		close(n.proposed)
		n.completer.Wait()
	}
	n.unpark(time.Time{}) // to the closed queue, which ends them
	err := n.raft.Shutdown().Error()
	n.mux.wait()
	if !drained {
		n.logger.Error("entries were still under way when the node stopped")
	}
	return errors.Join(err, n.stores.close())
}

// drain waits until no entry is under way and no barrier is awaited: what waits for Raft ends before Raft does. The proposer still runs, but its
// queue is closed.
func (n *Node) drain() bool {
	began := time.Now()
	for {
		entries := n.inFlight.Load() != 0 || n.establishing.Load()
		waited := time.Since(began)
		switch {
		case entries && waited > drainWait:
			return false
		case !entries && (!n.linksBusy() || waited > flightWait):
			return true
		}
		time.Sleep(drainCheck)
	}
}

func (n *Node) linksBusy() bool {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for _, l := range n.links {
		if l.busy() {
			return true
		}
	}
	return false
}
