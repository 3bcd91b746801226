// Tests of what a leader decides of nodes that it does not reach.

package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
)

// A leader that was paused meanwhile, and another leads by then, ends no leases and waits of nodes:
// its requests reach the new leader, which hears them all.
func TestDecisionsOfAnEarlierTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.heldBy(t, "n2", 7, "k")
		q := commandOf("LOCK.ACQUIRE", "k", "me", "PX", "100000", "WAIT", "0")
		q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
		time.Sleep(2 * contactLimit)
		gate, begun := make(chan struct{}), make(chan struct{}, 100)
		n.fake.set(func() {
			n.fake.gate, n.fake.begun = gate, begun
			n.fake.st.Members[1].LastContact = 2 * contactLimit
		})
		n.fake.change(t, q)
		receive(t, "it drops them", begun)
		n.fake.set(func() { // as it wakes up, it is a follower
			n.fake.st.Term++
			n.fake.st.Role, n.fake.st.LeaderID = "follower", "n2"
			n.fake.gate, n.fake.begun = nil, nil
		})
		close(gate)
		time.Sleep(contactLimit)
		if !n.fake.Waits(1) {
			t.Error("the wait is dropped")
		}
		n.leaves(t, "k", 60_000)
	})
}

// Nor does one that was away itself, and leads all the same: it has heard of nobody.
func TestLeaderThatWasAwayListensFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.heldBy(t, "n2", 7, "k")
		time.Sleep(2 * contactLimit)
		gate, begun := make(chan struct{}), make(chan struct{}, 100)
		n.fake.set(func() { n.fake.gate, n.fake.begun = gate, begun })
		n.fake.heldBy(t, "stranger", 7, "l")
		receive(t, "its loop stands still", begun)
		time.Sleep(3 * contactLimit)
		n.fake.set(func() {
			n.fake.st.Members[1].LastContact = 3 * contactLimit
			n.fake.gate, n.fake.begun = nil, nil
		})
		close(gate)
		time.Sleep(contactLimit / 4)
		n.leaves(t, "l", 5000)
		n.fake.set(func() { n.fake.st.Members[1].LastContact = 0 })
		time.Sleep(3 * contactLimit)
		n.leaves(t, "k", 60_000)
		n.fake.set(func() { n.fake.st.Members[1].LastContact = 3 * contactLimit })
		n.leaves(t, "k", 5000)
	})
}

// A new leader that could not hear of the nodes yet gives those that are connected their time to
// send their waits again. Of the others it expects none.
func TestNewLeadersExpectWaits(t *testing.T) {
	for _, connected := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := startSimulated(t, nil)
			q := commandOf("BLPOP", "k", "0")
			q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
			n.fake.change(t, q)
			time.Sleep(2 * contactLimit)
			began := time.Now()
			n.fake.set(func() {
				n.fake.st.Term++
				n.fake.term = n.fake.st.Term
				m := &n.fake.st.Members[1]
				m.LastContact, m.Connected = time.Hour, connected
			})
			n.fake.change(t)
			eventually(t, "the hold ends", func() bool { return !n.fake.WaitsHeld() })
			if held := time.Since(began); connected != (held >= returnLimit) {
				t.Errorf("connected %v: it expected them for %v", connected, held)
			}
		})
	}
}

// The entry by which a term drops the waits of earlier ones comes on an idle cluster too, also if
// the leader could not propose it at once.
func TestNewLeadersDropWaitsAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		q := commandOf("BLPOP", "k", "0")
		q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
		n.fake.change(t, q)
		time.Sleep(2 * contactLimit)
		n.fake.set(func() {
			n.fake.st.Term++
			n.fake.term = n.fake.st.Term
			n.fake.fail = &Error{NoLeader, "CLUSTERDOWN its barrier has not passed"}
		})
		time.Sleep(3 * watchPeriod)
		n.fake.set(func() { n.fake.fail = nil })
		eventually(t, "the wait is dropped", func() bool { return !n.fake.Waits(1) })
	})
}

// A node that was started again while nothing of it was in the state keeps what it enters later:
// the process that its leader heard of before had nothing of that.
func TestEarlierRestartsEndNothing(t *testing.T) {
	for _, others := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := startSimulated(t, nil)
			n.lead("n1")
			if others {
				n.fake.heldBy(t, "n3", 7, "others")
			}
			n.fake.set(func() { n.fake.began = time.Now().Add(-time.Hour) })
			n.fake.heldBy(t, "n2", 7, "old")
			time.Sleep(2 * contactLimit)
			n.fake.set(func() { n.fake.st.Members[1].LastContact = 2 * contactLimit })
			n.leaves(t, "old", 5000) // its process died
			n.fake.set(func() {
				n.fake.st.Members[1].LastContact, n.fake.began = 0, time.Now()
			})
			time.Sleep(time.Minute)
			n.fake.heldBy(t, "n2", 8, "k")
			q := commandOf("BLPOP", "list", "0")
			q.Wait = &commands.Wait{Node: []byte("n2"), Era: fakeEra, Number: 1}
			n.fake.change(t, q)
			time.Sleep(10 * watchPeriod)
			n.leaves(t, "k", 60_000)
			if !n.fake.Waits(1) {
				t.Error("its wait is dropped")
			}
		})
	}
}
